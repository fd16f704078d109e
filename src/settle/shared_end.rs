//! The end that riders share with the task on which they ride.

use super::Ending;
use crate::number::TaskNo;
use crate::settle::merge_keys;
use crate::state::Cause;
use crate::store::reason::Reason;
use crate::store::{aside, parked};

/// The tasks that held keys have settled: the endings of those that rode on them, which are theirs. A rider in `run` that another
/// transaction has locked gets none here: it is made ready again.
pub(super) fn of_riders(holders: &[Ending]) -> Vec<Ending> {
    let task_nos: Vec<TaskNo> = holders.iter().map(|e| e.task_no).collect();
    merge_keys::release(&task_nos);
    let mut endings = Vec::new();
    let mut aside = aside::riders(&task_nos);
    for holder in holders {
        let parked = parked::release(&Reason::Rides(holder.task_no));
        for rider in parked.into_iter().chain(aside.remove(&holder.task_no).unwrap_or_default()) {
            endings.push(Ending {
                result: holder.result.clone(),
                leader: Some(holder.task_no),
                ..Ending::of_freed(&rider, holder.outcome, Cause::Merged, holder.status.clone())
            });
        }
    }
    endings
}
