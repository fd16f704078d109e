//! Merge keys of tasks whose performances have ended: others may run with them.

use crate::locks::parked as locked;
use crate::number::TaskNo;
use crate::store::live::Live;
use crate::store::reason::{self, Reason};
use crate::store::{aside, merge_key, parked, ready};

/// Frees the keys of tasks whose performance has ended: what is parked under them, in place or not, is ready again, at the end of its
/// priority. The row of a key is locked first, so that what a claim is parking under it is seen. Then all that is
/// parked under the keys or rides on the holders is locked in one go, in the order in which calls that name these
/// tasks lock them.
pub(crate) fn release(holders: &[TaskNo]) {
    let keys = merge_key::free(holders);
    locked::lock(holders, &keys);
    aside::release(&keys.iter().map(reason::key).collect::<Vec<_>>());
    for key in keys {
        ready::make_ready(&parked::release(&Reason::Key(key)));
    }
}

/// Performances have ended without settling their tasks: those that held keys free them, and their riders are ready again.
pub(crate) fn given_back<'a>(ended: impl IntoIterator<Item = &'a Live>) {
    let holders: Vec<TaskNo> = ended.into_iter().filter(|live| live.keyed).map(|live| live.task_no).collect();
    if holders.is_empty() {
        return;
    }
    release(&holders);
    for holder in &holders {
        ready::make_ready(&parked::release(&Reason::Rides(*holder)));
    }
    aside::release(&holders.iter().map(|holder| reason::rides(*holder)).collect::<Vec<_>>());
}
