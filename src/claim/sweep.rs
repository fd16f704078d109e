//! Moving what stands behind an entry that may not run.
//!
//! A paused group, a workgroup that is held back, a merge key that is busy often have a backlog in one stretch of the
//! queue. A claim that has met one entry of it looks ahead and moves the others in one go, before it takes the next:
//! met one at a time, each of them would cost a walk past all that were moved before.
//!
//! The reasons are those that the [gates](super::gates) have found in this call, under the locks that they have taken:
//! what is parked here is stranded no more than what is parked there.

use std::collections::{HashMap, HashSet};

use crate::number::{Lane, Position, ReasonNo, TaskNo};
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Statement, record};
use crate::store::aside;
use crate::store::merge_key::MergeKey;
use crate::store::parked::{self, Parked, Reason};
use crate::store::ready::{self, Freed};
use crate::store::run::changes;

/// How many entries the first look ahead of a call sees; each later one twice as many.
const FIRST: usize = 1_000;

/// Where entries stand one behind the other: a priority of an action, in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stretch {
    pub(super) action_no: i32,
    pub(super) priority: i32,
    pub(super) lane: Lane,
}

/// What keeps entries back, as far as a call has found out.
#[derive(Default)]
pub(super) struct Found {
    /// Groups that are paused, with their rows locked.
    pub(super) paused: HashSet<String>,
    /// Groups that are paused and whose rows somebody is changing, and when to look again.
    pub(super) changing: HashMap<String, Time>,
    /// Workgroups that are held back, and until when; where somebody is changing that, when to look again.
    pub(super) held_back: HashMap<String, Time>,
    /// Keys that other tasks have, with their rows locked.
    pub(super) busy: HashSet<MergeKey>,
    /// Where such entries were met since the last look ahead.
    pub(super) met: HashSet<Stretch>,
}

record! {
    /// An entry further on.
    struct Ahead {
        task_no: TaskNo,
        group: Option<String>,
        workgroup: Option<String>,
        merge_key: Option<String>,
    }
}

/// $1 action, $2 priority, $3 lane, $4 how many.
static AHEAD: Statement<(i32, i32, Lane, i32), Ahead> = Statement::new(
    c"SELECT c.task_no, t.group_id, t.workgroup, t.merge_key
        FROM (SELECT r.task_no, r.gated FROM taskq.run r
               WHERE r.action_no = $1 AND r.priority = $2 AND r.lane = 0 AND r.grantable
               ORDER BY r.position LIMIT $4) AS c
       CROSS JOIN LATERAL (SELECT t.group_id, t.workgroup, t.merge_key
                             FROM taskq.task t WHERE t.task_no = c.task_no OFFSET 0) AS t
       WHERE c.gated AND $3 = 0",
);
static AHEAD_IN_LANE: Statement<(i32, i32, Lane, i32), Ahead> = Statement::new(
    c"SELECT c.task_no, t.group_id, t.workgroup, t.merge_key
        FROM (SELECT r.task_no FROM taskq.run r
               WHERE r.action_no = $1 AND r.priority = $2 AND r.lane = $3 AND r.lane <> 0 AND r.grantable
               ORDER BY r.position LIMIT $4) AS c
       CROSS JOIN LATERAL (SELECT t.group_id, t.workgroup, t.merge_key
                             FROM taskq.task t WHERE t.task_no = c.task_no OFFSET 0) AS t",
);
/// Locked against everybody, those too who attach dependencies, and waiting for nobody. Those that an earlier actor may
/// still return, and those that somebody attaches a dependency to, are set aside where they are.
static LOCK: Statement<&[TaskNo], (Position, Freed)> = Statement::new(
    c"SELECT r.position, r.task_no, r.tries, r.failures, r.dependencies FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.grantable AND r.nonce = 0
         FOR UPDATE SKIP LOCKED",
);

/// How many entries a look ahead sees, after so many others.
pub(super) fn depth(looks: u32) -> usize {
    FIRST.saturating_mul(1 << looks.min(16))
}

/// Moves what stands in a stretch and is kept back by what was found; how many entries, of those that come first.
pub(super) fn move_all(found: &Found, stretch: Stretch, action: &str, most: usize) -> usize {
    let ahead = if stretch.lane == Lane::NONE { &AHEAD } else { &AHEAD_IN_LANE };
    let ways: HashMap<TaskNo, Way> = ahead
        .map((stretch.action_no, stretch.priority, stretch.lane, most as i32), |entry| {
            Some((entry.task_no, found.way(&entry, action)?))
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
    let locked = LOCK.map(task_nos, |(position, freed)| {
        match &ways[&freed.task_no] {
            Way::Park(reason) => {
                parked.push(Parked { freed, position, reason: reason.clone() });
            }
            Way::Schedule(_, due) => scheduled.push((freed, *due)),
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
        .map(|(task_no, way)| match way {
            Way::Park(reason) => (task_no, reason.aside(), None),
            Way::Schedule(reason, due) => (task_no, reason, Some(due)),
        })
        .collect();
    moved.len() + aside::set(&staying)
}

/// Where an entry goes.
enum Way {
    Park(Reason),
    /// With the number of the reason.
    Schedule(ReasonNo, Time),
}

impl Found {
    /// Adds what was found since.
    pub(super) fn add(&mut self, since: Found) {
        self.paused.extend(since.paused);
        self.changing.extend(since.changing);
        self.held_back.extend(since.held_back);
        self.busy.extend(since.busy);
        self.met.extend(since.met);
    }

    /// What keeps an entry back, if one of the reasons found does; in the order in which the gates ask.
    fn way(&self, entry: &Ahead, action: &str) -> Option<Way> {
        let group = entry.group.as_ref();
        if let Some(group) = group.filter(|g| self.paused.contains(*g)) {
            return Some(Way::Park(Reason::Group(group.clone())));
        }
        if let Some((group, due)) = group.and_then(|g| self.changing.get_key_value(g)) {
            return Some(Way::Schedule(aside::group(group), *due));
        }
        let workgroup = entry.workgroup.as_ref();
        if let Some((name, due)) = workgroup.and_then(|w| self.held_back.get_key_value(w)) {
            return Some(Way::Schedule(aside::workgroup(name), *due));
        }
        let key = MergeKey::of(action, group.map(String::as_str), entry.merge_key.as_deref())?;
        self.busy.contains(&key).then_some(Way::Park(Reason::Key(key)))
    }
}
