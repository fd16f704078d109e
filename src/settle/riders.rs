//! Riders: tasks that were ready when another with their merge key was granted. They are parked under it, and share its
//! end.

use std::collections::{BTreeMap, HashMap};

use super::{Ending, settle};
use crate::flow::actions::try_limits;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::state::{Cause, Outcome};
use crate::store::aside;
use crate::store::merge_key::{self, MergeKey};
use crate::store::parked::{self, Parked, Reason};
use crate::store::ready::Freed;
use crate::store::run::changes;

/// Lets everything that is ready with these keys, and not held back for its workgroup, ride on the tasks that were just granted; the token of a late actor is
/// void from then on. What somebody is changing just now is not waited for, and runs later.
pub(crate) fn gather(leaders: &BTreeMap<MergeKey, TaskNo>, now: Time) {
    assign_transaction_id();
    let holders: Vec<TaskNo> = leaders.values().copied().collect();
    let (actions, groups, keys) = MergeKey::columns(leaders.keys());
    let columns = || (actions.as_slice(), groups.as_slice(), keys.as_slice(), holders.as_slice(), now);
    let riders: Vec<Parked> = changes::TAKE_RIDERS.map(columns(), |(leader, position, freed)| Parked {
        freed,
        position,
        reason: Reason::Rides(leader),
    });
    changes::SET_RIDERS_ASIDE.execute(columns());
    park(riders, now);
}

/// Parks riders under their leaders. One whose tries are used up has none left to share, and is aborted.
pub(crate) fn park(riders: Vec<Parked>, now: Time) {
    let tried: Vec<TaskNo> = riders.iter().filter(|r| r.freed.tries > 0).map(|r| r.freed.task_no).collect();
    let limits = if tried.is_empty() { HashMap::new() } else { try_limits(&tried) };
    let (exhausted, riders): (Vec<Parked>, Vec<Parked>) = riders.into_iter().partition(|rider| {
        let most = limits.get(&rider.freed.task_no).and_then(|limit| limit.max_tries);
        most.is_some_and(|most| rider.freed.tries >= most)
    });
    parked::park(&riders);
    if !exhausted.is_empty() {
        settle(exhausted.into_iter().map(|rider| used_up(&rider.freed)).collect(), now);
    }
}

fn used_up(freed: &Freed) -> Ending {
    let status = format!("the deadline passed on try {}, and there is no other", freed.tries);
    Ending::of_freed(freed, Outcome::Aborted, Cause::Deadline, Some(status))
}

/// The tasks that held keys have settled: the endings of those that rode on them, which are theirs.
pub(crate) fn settled(holders: &[Ending]) -> Vec<Ending> {
    let task_nos: Vec<TaskNo> = holders.iter().map(|e| e.task_no).collect();
    merge_key::release(&task_nos);
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
