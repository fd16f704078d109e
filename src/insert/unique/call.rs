//! What the stages of deciding share.

use crate::insert::new::Fates;
use crate::pg::clock::Time;

/// The call whose tasks are decided on.
pub(in crate::insert) struct Call<'a> {
    /// The time by which periods are over.
    pub(in crate::insert) now: Time,
    /// Tasks with the same ids give way (`replace_tasks`).
    pub(in crate::insert) by_id: bool,
    /// Tasks whose ids are there are left out (`on_conflict => 'skip'`).
    pub(in crate::insert) skips: bool,
    /// What becomes of the elements that are not simply inserted; the decision adds to it.
    pub(in crate::insert) fates: &'a mut Fates,
}
