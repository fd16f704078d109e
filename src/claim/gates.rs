//! What may keep a single entry from running: its group is paused, its workgroup held back, its merge key
//! busy. Such an entry was taken by the claim a moment ago, in this transaction; it is moved out of the way of
//! later claims, and comes back, at a new position, when the reason ends, unless it has ended by then. One that belongs into the
//! lane of its group goes there, to be granted with the slots that its limits ask for.
//!
//! **Nothing is stranded.** An entry is parked, or held back for as long as its workgroup is, only under a lock that stands for the
//! reason (a group, a workgroup, a key: the [turnstile] of the first two, the rows of a group and a key). The call that resumes the
//! group or brings the workgroup forward, and the transaction that settles or gives back the key's holder, take that lock first:
//! either they wait for the claim and then see what it has moved, or the lock is not to be had for the claim, or the reason is
//! gone. Where that of a group or workgroup is not to be had the claim does not wait: the entry is held back for a second.
//! (That of a key is had by then.)
//!
//! **Nothing is waited for.** A claim has its entries locked, so that no other transaction grants or settles them, but
//! others may still add dependencies on them, and hold them for that. What is to be removed is locked against these,
//! too, without waiting. Where that lock is not to be had, the entry is parked in place (see
//! [`crate::store::aside`]), and so is one that a late worker may still return, unless it is to ride. **An entry is met once** for a
//! reason, whatever its past; where the lock of the reason was not to be had it is met again, after a second.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::call::{Call, Grant};
use super::merge;
use super::reasons;
use super::way::{Found, Stretch, Way};
use crate::locks::turnstile;
use crate::number::{Lane, Position, ReasonNo, TaskNo};
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;
use crate::settle::riders::{self, Rider};
use crate::store::announce::announce;
use crate::store::freed::Freed;
use crate::store::parked::{self, Parked};
use crate::store::reason::{MergeKey, Reason};
use crate::store::run::changes;
use crate::store::scheduled::Later;
use crate::store::slot::Limit;
use crate::store::{aside, ready};

/// For how long entries are held back whose group or workgroup another transaction may be changing.
const HELD_BACK_FOR: Duration = Duration::from_secs(1);

static LOCK_TAKEN: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT r.task_no FROM taskq.run r WHERE r.task_no = ANY ($1) FOR UPDATE SKIP LOCKED");

/// Whether a task was given a slot of a limit.
pub(super) type HasSlot<'a> = &'a dyn Fn(TaskNo, &Limit) -> bool;

/// Where an entry stood in the order of claiming.
pub(super) type Met = (Reverse<i32>, Position);

/// What becomes of entries that were taken.
pub(super) struct Admitted {
    /// Those that may run now.
    pub(super) grants: Vec<Grant>,
    /// How many were moved out of the way.
    pub(super) moved: usize,
    /// What keeps these back, and where they were met.
    pub(super) found: Found,
    /// Those that are in lanes now, with their actions and where they were met.
    pub(super) to_lanes: Vec<(TaskNo, i32, Met)>,
}

/// Tells which of the entries may run now, and moves the others out of the way.
pub(super) fn admit(call: &Call, taken: Vec<Grant>, has_slot: HasSlot) -> Admitted {
    let names = |of: fn(&Grant) -> Option<&String>| -> Vec<String> {
        taken.iter().filter_map(of).collect::<HashSet<_>>().into_iter().cloned().collect()
    };
    let groups = names(|g| g.group_id.as_ref());
    let Groups { paused, changing, limited } = Groups::look(groups);
    let held_back = held_back(names(|g| g.workgroup.as_ref()), call.now);
    let soon = call.now + HELD_BACK_FOR;
    let changing = changing.into_iter().map(|group| (group, soon)).collect();
    let mut found = Found { paused, changing, held_back, ..Found::default() };

    let (mut admitted, mut turned_away) = (Vec::with_capacity(taken.len()), Vec::new());
    for grant in taken {
        let group = grant.group_id.as_ref();
        if let Some(way) = found.way(group, grant.workgroup.as_ref()) {
            turned_away.push((grant, way));
        } else if group.is_some_and(|g| belongs_into_lane(call, &grant, g, limited.contains(g), has_slot)) {
            turned_away.push((grant, Way::Lane));
        } else {
            admitted.push(grant);
        }
    }
    let grants = by_key(call, admitted, &mut turned_away);
    found.note(&turned_away);
    let moved = turned_away.len();
    Admitted { grants, moved, found, to_lanes: turn_away(turned_away, call.now) }
}

/// What is set for groups of entries.
#[derive(Default)]
struct Groups {
    /// Those that are paused, with their rows locked against a resume.
    paused: HashSet<String>,
    /// Those that are paused, and whose locks are not to be had: a call may be resuming them.
    changing: HashSet<String>,
    /// Those with limits of their own.
    limited: HashSet<String>,
}

impl Groups {
    fn look(groups: Vec<String>) -> Self {
        if groups.is_empty() {
            return Groups::default();
        }
        let read =
            |groups: &[String]| reasons::groups(&groups.iter().map(String::as_str).collect::<Vec<_>>());
        let mut set = read(&groups);
        let paused: Vec<String> =
            set.iter().filter(|(_, paused, _)| *paused).map(|(g, ..)| g.clone()).collect();
        let paused: HashSet<String> = if paused.is_empty() {
            HashSet::new()
        } else {
            let through = |group: &&String| turnstile::pass(turnstile::Reason::Group(group));
            let through: Vec<String> = paused.iter().filter(through).cloned().collect();
            let locked = reasons::still_paused(through).into_iter().collect();
            if paused.iter().any(|group| !HashSet::contains(&locked, group)) {
                // Some may have been resumed in between.
                set = read(&groups);
            }
            locked
        };
        let changing =
            set.iter().filter(|(g, is_paused, _)| *is_paused && !paused.contains(g)).map(|(g, ..)| g.clone());
        let changing = changing.collect();
        let limited = set.into_iter().filter(|(_, _, limited)| *limited).map(|(g, ..)| g).collect();
        Groups { paused, changing, limited }
    }
}

/// Those of the workgroups that are held back, and until when: no call brings them forward before this transaction ends.
/// Where a call may be doing that just now: until soon.
fn held_back(workgroups: Vec<String>, now: Time) -> HashMap<String, Time> {
    let read = |names: Vec<String>| -> HashMap<String, Time> {
        if names.is_empty() {
            return HashMap::new();
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        reasons::held_back(&names, now).into_iter().collect()
    };
    let seen = read(workgroups);
    if seen.is_empty() {
        return seen;
    }
    let (through, closed): (Vec<String>, Vec<String>) =
        seen.into_keys().partition(|name| turnstile::pass(turnstile::Reason::Workgroup(name)));
    let mut held_back = read(through);
    held_back.extend(closed.into_iter().map(|name| (name, now + HELD_BACK_FOR)));
    held_back
}

/// Whether an entry was taken as if nothing were asked of its group, and something is.
fn belongs_into_lane(call: &Call, grant: &Grant, group: &str, limited: bool, has_slot: HasSlot) -> bool {
    let action = call.action(grant.action_no);
    let per_group = action.is_some_and(|a| a.max_per_group.is_some());
    (limited && !has_slot(grant.task_no, &Limit::of_group(group)))
        || (per_group && !has_slot(grant.task_no, &Limit::per_group(&grant.action, group)))
        || (grant.lane == Lane::NONE && action.is_some_and(|action| action.gives_lanes()))
}

/// The entries without a merge key, and of those with one the leaders.
fn by_key(call: &Call, mut taken: Vec<Grant>, turned_away: &mut Vec<(Grant, Way)>) -> Vec<Grant> {
    if taken.iter().all(|g| g.merge_key.is_none()) {
        return taken;
    }
    taken.sort_by_key(|g| (Reverse(g.priority), g.position));
    let key = |g: &Grant| MergeKey::of(&g.action, g.group_id.as_deref(), g.merge_key.as_deref());
    let mut first: BTreeMap<MergeKey, TaskNo> = BTreeMap::new();
    for grant in &taken {
        if let Some(key) = key(grant) {
            first.entry(key).or_insert(grant.task_no);
        }
    }
    let leaders = merge::lead(&first, call.now);
    let mut admitted = Vec::with_capacity(taken.len());
    for grant in taken {
        match key(&grant) {
            None => admitted.push(grant),
            Some(key) => match leaders.get(&key) {
                Some(leader) if *leader == grant.task_no => admitted.push(grant),
                // It was ready when the other was granted: it shares its end.
                Some(leader) => turned_away.push((grant, Way::Park(Reason::Rides(*leader)))),
                None => turned_away.push((grant, Way::Park(Reason::Key(key)))),
            },
        }
    }
    admitted
}

impl Found {
    /// Notes where entries were met that have others like them behind them, it may be.
    fn note(&mut self, turned_away: &[(Grant, Way)]) {
        for (grant, way) in turned_away {
            match way {
                Way::Park(Reason::Key(key)) => {
                    self.busy.insert(key.clone());
                }
                Way::Park(Reason::Group(_)) | Way::Schedule(..) => {}
                Way::Park(Reason::Rides(_)) | Way::Lane => continue,
            }
            let (action_no, priority, lane) = (grant.action_no, grant.priority, grant.lane);
            self.has_met(Stretch { action_no, priority, lane }, grant.position);
        }
    }
}

/// Moves entries out of the way, as if they had not been taken; returns those that are in lanes now, with their actions.
fn turn_away(turned_away: Vec<(Grant, Way)>, now: Time) -> Vec<(TaskNo, i32, Met)> {
    if turned_away.is_empty() {
        return Vec::new();
    }
    assign_transaction_id();
    let (to_lanes, turned_away): (Vec<_>, Vec<_>) =
        turned_away.into_iter().partition(|(_, way)| matches!(way, Way::Lane));
    let to_lanes = give_to_lanes(to_lanes.into_iter().map(|(grant, _)| grant).collect());
    let (staying, turned_away) = remove(turned_away);
    park_in_place(staying);
    let (mut parked, mut riders, mut scheduled) = (Vec::new(), Vec::new(), Vec::new());
    for (grant, way) in turned_away {
        let freed = Freed {
            task_no: grant.task_no,
            tries: grant.tries - 1,
            failures: grant.failures,
            dependencies: grant.dependencies,
            not_before: None,
        };
        match way {
            Way::Lane => {}
            Way::Park(reason) => {
                let rides = matches!(reason, Reason::Rides(_));
                let entry = Parked { freed, position: grant.position, reason };
                match rides {
                    true => riders.push(Rider { timed_out: grant.overdue, parked: entry }),
                    false => parked.push(entry),
                }
            }
            Way::Schedule(_, due) => scheduled.push(Later { freed, due, position: grant.position }),
        }
    }
    parked::park(&parked);
    riders::park(riders, now);
    ready::hold_back(&scheduled);
    to_lanes
}

/// What cannot leave `run` is parked in place.
fn park_in_place(staying: Vec<(Grant, Way)>) {
    let aside: Vec<(TaskNo, ReasonNo, Option<Time>)> = staying
        .into_iter()
        .filter_map(|(grant, way)| way.aside().map(|(reason, until)| (grant.task_no, reason, until)))
        .collect();
    aside::set_taken(&aside);
}

/// Removes the rows of entries that are to go elsewhere; returns those that stay, and those that are gone. Those stay
/// that a late worker may still return, since their token is found there (the token of a rider is void), and those
/// that another transaction holds.
#[allow(clippy::type_complexity)]
fn remove(turned_away: Vec<(Grant, Way)>) -> (Vec<(Grant, Way)>, Vec<(Grant, Way)>) {
    let may_go = |(grant, way): &&(Grant, Way)| !grant.overdue || matches!(way, Way::Park(Reason::Rides(_)));
    let going: Vec<TaskNo> = turned_away.iter().filter(may_go).map(|(g, _)| g.task_no).collect();
    let locked: HashSet<TaskNo> =
        if going.is_empty() { HashSet::new() } else { LOCK_TAKEN.query(going).into_iter().collect() };
    let (gone, staying): (Vec<_>, Vec<_>) =
        turned_away.into_iter().partition(|(g, _)| locked.contains(&g.task_no));
    if !gone.is_empty() {
        changes::REMOVE.execute(gone.iter().map(|(g, _)| g.task_no).collect::<Vec<_>>());
    }
    (staying, gone)
}

/// Puts entries into the lanes of their groups, in their order; returns them, with their actions.
fn give_to_lanes(mut grants: Vec<Grant>) -> Vec<(TaskNo, i32, Met)> {
    if grants.is_empty() {
        return Vec::new();
    }
    grants.sort_by_key(|g| (Reverse(g.priority), g.position));
    changes::GIVE_TO_LANES.execute(grants.iter().map(|g| g.task_no).collect::<Vec<_>>());
    announce(&grants.iter().map(|g| g.action_no).collect::<Vec<_>>());
    grants.into_iter().map(|g| (g.task_no, g.action_no, (Reverse(g.priority), g.position))).collect()
}
