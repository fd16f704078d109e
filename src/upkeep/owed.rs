//! What a call that waits for the ends of tasks asks: whether something is due that has to be done, and until when it may sleep.

use super::{look, next_due};
use crate::clock;
use crate::pg::clock::Time;
use crate::pg::subtransaction;
use crate::rights;
use crate::store::tables;

/// Whether something is due, whatever its action; and when the next thing will be, deadlines and schedules. Holds nothing
/// afterwards.
pub(crate) fn owed() -> (bool, Option<Time>) {
    subtransaction::keeping_no_locks(|| {
        let mut owed = (false, None);
        rights::for_nobody(|| {
            tables::hold();
            let now = clock::now();
            let due = look(&[], now);
            owed = (due.any() || due.expired, next_due(&[], Some(now)));
        });
        owed
    })
}
