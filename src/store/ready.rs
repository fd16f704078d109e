//! Tasks that nothing blocks any more go into `run`, or into `scheduled` while their time lies ahead.

use std::collections::HashMap;

use crate::input::TaskSpec;
use crate::number::{Lane, Position, TaskNo};
use crate::pg::clock::Time;
use crate::pg::digest::hash;
use crate::pg::sequence;
use crate::pg::session::assign_transaction_id;
use crate::pg::table::{Look, look};
use crate::store::announce::announce;
use crate::store::freed::Freed;
use crate::store::scheduled::{self, Later};
use crate::store::{known_actions, positions, run, task, task_group};
use crate::wake;

/// Makes the tasks ready, in the order given, whatever their `not_before` says: new rows at the end of their priority.
pub(crate) fn make_ready(freed: &[Freed]) {
    if freed.is_empty() {
        return;
    }
    // A position is taken after the transaction has its id.
    assign_transaction_id();
    let action_nos: Vec<i32> = look(|look| {
        let tasks = task::placed(look, freed.iter().map(|f| f.task_no));
        let mut given = Lanes::default();
        let mut lane = |task: &task::Placed| match task.group.as_deref() {
            Some(group) => given.of(look, task.action_no, group),
            None => Lane::NONE,
        };
        let lanes: Vec<Lane> = tasks.iter().map(&mut lane).collect();
        run::insert(freed.iter().zip(&tasks).zip(lanes).map(|((freed, task), lane)| run::Entry {
            task_no: freed.task_no,
            position: Position(sequence::next(&positions::POSITIONS)),
            action_no: task.action_no,
            priority: task.priority,
            lane,
            tries: freed.tries,
            failures: freed.failures,
            dependencies: freed.dependencies,
            gated: task.gated,
            lease: task.lease,
            max_run_time: task.max_run_time,
            key_hash: task.merge_key.as_deref().map(|key| {
                let action = known_actions::of_number(task.action_no)
                    .unwrap_or_else(|| pgrx::error!("the action of a task is gone"));
                key_hash(&action.name, task.group.as_deref(), key)
            }),
        }));
        tasks.iter().map(|task| task.action_no).collect()
    });
    announce(&action_nos);
}

/// A new task that nothing blocks.
pub(crate) struct New<'a> {
    /// Its number, which is also its position.
    pub(crate) task_no: TaskNo,
    /// The number that stands for its action.
    pub(crate) action_no: i32,
    /// Every task of its action that has a group belongs into the lane of that.
    pub(crate) gives_lanes: bool,
    /// What its inserter says of it.
    pub(crate) spec: &'a TaskSpec,
    /// How many of its dependencies have aborted.
    pub(crate) failures: i32,
    /// How many dependencies it has in all.
    pub(crate) dependencies: i32,
}

/// Makes new tasks ready. Their positions are their numbers: both come from the same sequence, and the numbers were taken in
/// this call after the transaction had its id.
pub(crate) fn insert_new<'a>(tasks: impl Iterator<Item = New<'a>>) {
    look(|look| {
        let mut lanes = Lanes::default();
        run::insert(tasks.map(|task| {
            let group = task.spec.group.as_deref();
            let lane = |group| match task.gives_lanes || lanes.is_limited(look, group) {
                true => lane(group),
                false => Lane::NONE,
            };
            run::Entry {
                task_no: task.task_no,
                position: Position(task.task_no.0),
                action_no: task.action_no,
                priority: task.spec.priority,
                lane: group.map_or(Lane::NONE, lane),
                tries: 0,
                failures: task.failures,
                dependencies: task.dependencies,
                gated: task.spec.is_gated(),
                lease: task.spec.lease,
                max_run_time: task.spec.max_run_time,
                key_hash: task.spec.merge_key.as_deref().map(|key| key_hash(&task.spec.action, group, key)),
            }
        }));
    });
}

/// Into which lanes tasks belong. It is asked only of those that have a group; a claim asks again.
#[derive(Default)]
struct Lanes {
    given: HashMap<i32, bool>,
    limited: HashMap<String, bool>,
}

impl Lanes {
    fn of(&mut self, look: &Look, action_no: i32, group: &str) -> Lane {
        let given = *self.given.entry(action_no).or_insert_with(|| {
            known_actions::of_number(action_no).is_some_and(|action| action.setting.gives_lanes())
        });
        if given || self.is_limited(look, group) { lane(group) } else { Lane::NONE }
    }

    /// Whether the group has a limit of its own.
    fn is_limited(&mut self, look: &Look, group: &str) -> bool {
        match self.limited.get(group) {
            Some(limited) => *limited,
            None => {
                let limited = task_group::has_limit(look, group);
                self.limited.insert(group.to_owned(), limited);
                limited
            }
        }
    }
}

/// As `taskq._lane`.
fn lane(group: &str) -> Lane {
    match hash(group, 0) {
        0 => Lane(1),
        lane => Lane(lane),
    }
}

/// As `taskq._key_hash`.
fn key_hash(action: &str, group: Option<&str>, key: &str) -> i64 {
    hash(key, hash(group.unwrap_or_default(), hash(action, 0)))
}

/// Puts the tasks into `scheduled` until they are due.
pub(crate) fn schedule(freed: impl Iterator<Item = (Freed, Time)>) {
    put_into_scheduled(&freed.map(|(freed, due)| Later::own(freed, due)).collect::<Vec<_>>(), false);
}

/// The same of tasks whose workgroup is held back, or whose group or workgroup may just be changing. A shorter delay of the
/// workgroup brings them forward.
pub(crate) fn hold_back(tasks: &[Later]) {
    put_into_scheduled(tasks, true);
}

fn put_into_scheduled(tasks: &[Later], held_back: bool) {
    if tasks.is_empty() {
        return;
    }
    let kinds = scheduled::insert(tasks, held_back);
    for (task, (action_no, timer)) in tasks.iter().zip(kinds) {
        // One waiter has to learn of the new due time: for this action, or of any for what no worker is granted.
        if timer {
            wake::timer(task.due);
        } else {
            wake::ready_later(action_no, task.due);
        }
    }
}

/// Makes the tasks ready, or puts them into `scheduled` where their `not_before` lies ahead.
pub(crate) fn release(freed: Vec<Freed>, now: Time) {
    if freed.is_empty() {
        return;
    }
    let own = look(|look| task::placed(look, freed.iter().map(|f| f.task_no)));
    let later: HashMap<TaskNo, Time> = freed
        .iter()
        .zip(own)
        .filter_map(|(f, task)| {
            Some((f.task_no, f.not_before.max(task.not_before).filter(|time| *time > now)?))
        })
        .collect();
    let (scheduled, ready): (Vec<Freed>, Vec<Freed>) =
        freed.into_iter().partition(|f| later.contains_key(&f.task_no));
    make_ready(&ready);
    schedule(scheduled.into_iter().map(|f| (f, later[&f.task_no])));
}
