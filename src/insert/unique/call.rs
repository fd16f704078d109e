//! What the stages of deciding share.

use crate::insert::new::Fates;
use crate::pg::clock::Time;

/// The call whose tasks are decided on.
pub(in crate::insert) struct Call<'a> {
    pub(in crate::insert) now: Time,
    /// Tasks with the same ids give way (`replace_tasks`).
    pub(in crate::insert) by_id: bool,
    pub(in crate::insert) fates: &'a mut Fates,
}
