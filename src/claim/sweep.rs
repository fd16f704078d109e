//! Moving what stands behind an entry that may not run.
//!
//! A paused group, a workgroup that is held back, a merge key that is busy often have a backlog in one stretch of the
//! queue. A claim that has met one entry of it looks ahead and moves those that come next in one go, before it takes more:
//! met one at a time, each of them would cost a walk past all that were moved before.
//!
//! The reasons are those that the [gates](super::gates) have found in this call, under the locks that they have taken:
//! what is parked here is stranded no more than what is parked there.

use std::collections::{HashMap, HashSet};

use super::way::{Found, Stretch, Way};
use crate::number::{Lane, Position, ReasonNo, TaskNo};
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Statement, record};
use crate::store::freed::Freed;
use crate::store::parked::{self, Parked};
use crate::store::reason::{MergeKey, Reason};
use crate::store::run::changes;
use crate::store::scheduled::Later;
use crate::store::{aside, ready};

/// How many entries the first look ahead of a call sees; each later one twice as many.
const FIRST: usize = 1_000;

record! {
    /// An entry further on.
    struct Ahead {
        task_no: TaskNo,
        group: Option<String>,
        workgroup: Option<String>,
        merge_key: Option<String>,
    }
}

/// $1 action, $2 priority, $3 lane, $4 how many, $5 from which position on.
static AHEAD: Statement<(i32, i32, Lane, i32, Position), Ahead> = Statement::new(
    c"SELECT c.task_no, t.group_id, t.workgroup, t.merge_key
        FROM (SELECT r.task_no, r.gated FROM taskq.run r
               WHERE r.action_no = $1 AND r.priority = $2 AND r.lane = 0 AND r.grantable AND r.position >= $5
               ORDER BY r.position LIMIT $4) AS c
       CROSS JOIN LATERAL (SELECT t.group_id, t.workgroup, t.merge_key
                             FROM taskq.task t WHERE t.task_no = c.task_no OFFSET 0) AS t
       WHERE c.gated AND $3 = 0",
);
static AHEAD_IN_LANE: Statement<(i32, i32, Lane, i32, Position), Ahead> = Statement::new(
    c"SELECT c.task_no, t.group_id, t.workgroup, t.merge_key
        FROM (SELECT r.task_no FROM taskq.run r
               WHERE r.action_no = $1 AND r.priority = $2 AND r.lane = $3 AND r.lane <> 0 AND r.grantable
                 AND r.position >= $5
               ORDER BY r.position LIMIT $4) AS c
       CROSS JOIN LATERAL (SELECT t.group_id, t.workgroup, t.merge_key
                             FROM taskq.task t WHERE t.task_no = c.task_no OFFSET 0) AS t",
);
/// Locked for removal, which conflicts with adding dependents, too; waits for no lock. Those that an earlier worker may
/// still return, and those that are locked, as to add a dependent, are parked in place if that can be.
static LOCK_UNGRANTED: Statement<&[TaskNo], (Position, Freed)> = Statement::new(
    c"SELECT r.position, r.task_no, r.tries, r.failures, r.dependencies FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.grantable AND r.nonce = 0
         FOR UPDATE SKIP LOCKED",
);

/// How many entries a look ahead sees, after so many others.
pub(super) fn depth(looks: u32) -> usize {
    FIRST.saturating_mul(1 << looks.min(16))
}

/// Moves what stands in a stretch from a position on and is kept back by what was found; how many entries, of those that come
/// first. (What stands before may be in the hands of others, any number of it.)
pub(super) fn move_all(found: &Found, stretch: Stretch, from: Position, action: &str, most: usize) -> usize {
    let ahead = if stretch.lane == Lane::NONE { &AHEAD } else { &AHEAD_IN_LANE };
    let ways: HashMap<TaskNo, Way> = ahead
        .map((stretch.action_no, stretch.priority, stretch.lane, most as i32, from), |entry| {
            Some((entry.task_no, entry.way(found, action)?))
        })
        .into_iter()
        .flatten()
        .collect();
    if ways.is_empty() {
        return 0;
    }
    assign_transaction_id();
    let task_nos: Vec<TaskNo> = ways.keys().copied().collect();
    let (mut parked, mut scheduled) = (Vec::new(), Vec::new());
    let locked = LOCK_UNGRANTED.map(task_nos, |(position, freed)| {
        match &ways[&freed.task_no] {
            Way::Park(reason) => {
                parked.push(Parked { freed, position, reason: reason.clone() });
            }
            Way::Schedule(_, due) => scheduled.push(Later { freed, due: *due, position }),
            // Nothing that stands in a stretch is sent there.
            Way::Lane => {}
        }
        freed.task_no
    });
    if !locked.is_empty() {
        changes::REMOVE.execute(locked.as_slice());
        parked::park(&parked);
        ready::hold_back(&scheduled);
    }
    let moved: HashSet<TaskNo> = locked.into_iter().collect();
    let staying: Vec<(TaskNo, ReasonNo, Option<Time>)> = ways
        .into_iter()
        .filter(|(task_no, _)| !moved.contains(task_no))
        .filter_map(|(task_no, way)| way.aside().map(|(reason, until)| (task_no, reason, until)))
        .collect();
    moved.len() + aside::set(&staying)
}

impl Ahead {
    /// Where the entry goes, if one of the reasons found keeps it back; asked in the order in which the gates ask.
    fn way(&self, found: &Found, action: &str) -> Option<Way> {
        let group = self.group.as_ref();
        found.way(group, self.workgroup.as_ref()).or_else(|| {
            let key = MergeKey::of(action, group.map(String::as_str), self.merge_key.as_deref())?;
            found.busy.contains(&key).then_some(Way::Park(Reason::Key(key)))
        })
    }
}
