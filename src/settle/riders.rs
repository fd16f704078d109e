//! Riders: tasks that were ready, or past their deadline, when another with their merge key was granted. They are parked under it,
//! or in place, and share its end if it settles.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Ending, settle};
use crate::flow::actions::try_limits;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;
use crate::state::{Cause, Outcome};
use crate::store::parked::{self, Parked};
use crate::store::reason::{self, MergeKey, Reason};
use crate::store::run::changes;

/// Lets everything that is ready with these keys, and not held back for its workgroup, ride on the tasks that were just granted; also
/// such whose deadline has passed and that back off: the token of a late worker is void from then on. What another transaction is
/// changing just now is not waited for, and runs later.
pub(crate) fn gather(leaders: &BTreeMap<MergeKey, TaskNo>, now: Time) {
    assign_transaction_id();
    let holders: Vec<TaskNo> = leaders.values().copied().collect();
    let (actions, groups, keys) = MergeKey::columns(leaders.keys());
    let columns = || {
        let (actions, groups, keys) = (actions.as_slice(), groups.as_slice(), keys.as_slice());
        (actions, groups, keys, holders.as_slice(), now, reason::BACKOFF)
    };
    let riders: Vec<Rider> = changes::TAKE_RIDERS.map(columns(), |(leader, timed_out, position, freed)| {
        Rider { timed_out, parked: Parked { freed, position, reason: Reason::Rides(leader) } }
    });
    changes::PARK_RIDERS.execute(columns());
    park(riders, now);
}

static AMONG: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT p.task_no FROM taskq.parked p WHERE p.task_no = ANY ($1) AND p.kind = 'm'
       UNION ALL
      SELECT r.task_no FROM taskq.run r WHERE r.task_no = ANY ($1) AND r.aside < 0",
);

/// Those of the tasks that ride on another, whose performance has begun before.
pub(crate) fn among(task_nos: &[TaskNo]) -> HashSet<TaskNo> {
    AMONG.query(task_nos).into_iter().collect()
}

/// A task that is to ride.
pub(crate) struct Rider {
    /// Its last try has ended with its deadline.
    pub(crate) timed_out: bool,
    /// What its row in `parked` will say.
    pub(crate) parked: Parked,
}

/// Parks riders under their leaders. One whose tries are used up has none left to share, and is aborted: how many it may have was
/// set lower after the last one.
pub(crate) fn park(riders: Vec<Rider>, now: Time) {
    let tries = |rider: &Rider| rider.parked.freed.tries;
    let tried: Vec<TaskNo> = riders.iter().filter(|r| tries(r) > 0).map(|r| r.parked.freed.task_no).collect();
    let limits = if tried.is_empty() { HashMap::new() } else { try_limits(&tried) };
    let most = |rider: &Rider| limits.get(&rider.parked.freed.task_no).and_then(|limit| limit.max_tries);
    let (mut riding, mut exhausted) = (Vec::new(), Vec::new());
    for rider in riders {
        match most(&rider).filter(|most| tries(&rider) >= *most) {
            Some(most) => exhausted.push(used_up(&rider, most)),
            None => riding.push(rider.parked),
        }
    }
    parked::park(&riding);
    if !exhausted.is_empty() {
        settle(exhausted, now);
    }
}

fn used_up(rider: &Rider, most: i32) -> Ending {
    let freed = &rider.parked.freed;
    let (cause, status) = match rider.timed_out {
        true => {
            (Cause::Deadline, format!("the deadline passed on try {}, and there is no other", freed.tries))
        }
        false => (Cause::Exhausted, format!("all {most} tries are used up")),
    };
    Ending::of_freed(freed, Outcome::Aborted, cause, Some(status))
}
