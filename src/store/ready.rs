//! Tasks that nothing blocks any more go into `run`, or into `scheduled` while their time lies ahead.

use std::collections::{BTreeSet, HashMap};

use crate::number::{Lane, Position, TaskNo};
use crate::pg::clock::Time;
use crate::pg::digest::hash;
use crate::pg::sequence;
use crate::pg::session::{assign_transaction_id, check_for_interrupts};
use crate::pg::statement::{Record, Statement};
use crate::pg::table::{Look, Row, insert, look};
use crate::store::notify::notify_ready;
use crate::store::{action_setting, numbers, run, task, task_group};
use crate::token::Nonce;
use crate::wake;

/// A task that nothing blocks, and what it brings along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) task_no: TaskNo,
    pub(crate) tries: i32,
    pub(crate) failures: i32,
    pub(crate) dependencies: i32,
    /// Not owned before this time, whatever the task itself says.
    pub(crate) not_before: Option<Time>,
}

/// From four columns: task_no, tries, failures, dependencies.
impl Record for Freed {
    type Columns = (TaskNo, i32, i32, i32);

    fn of((task_no, tries, failures, dependencies): Self::Columns) -> Self {
        Freed { task_no, tries, failures, dependencies, not_before: None }
    }
}

/// The columns of several [`Freed`], for `unnest`.
struct Columns {
    task_nos: Vec<TaskNo>,
    tries: Vec<i32>,
    failures: Vec<i32>,
    dependencies: Vec<i32>,
}

fn columns(freed: &[Freed]) -> Columns {
    Columns {
        task_nos: freed.iter().map(|f| f.task_no).collect(),
        tries: freed.iter().map(|f| f.tries).collect(),
        failures: freed.iter().map(|f| f.failures).collect(),
        dependencies: freed.iter().map(|f| f.dependencies).collect(),
    }
}

/// Makes the tasks ready, in the order given, whatever their `not_before` says: new rows at the end of their priority.
pub(crate) fn make_ready(freed: &[Freed]) {
    if freed.is_empty() {
        return;
    }
    // A position is taken after the transaction has its id.
    assign_transaction_id();
    let action_nos: Vec<i32> = look(|look| {
        let tasks = task::placed(look, freed.iter().map(|f| f.task_no));
        let mut lanes = Lanes::default();
        insert(&run::TABLE, |into| {
            for (freed, task) in freed.iter().zip(&tasks) {
                check_for_interrupts();
                let lane =
                    task.group.as_deref().map_or(Lane::NONE, |group| lanes.of(look, task.action_no, group));
                let key = task.merge_key.as_deref();
                into.row(|| {
                    [
                        run::TASK_NO.to(freed.task_no),
                        run::POSITION.to(Position(sequence::next(&numbers::POSITIONS))),
                        run::NONCE.to(Nonce::NONE),
                        run::PREV_NONCE.to(Nonce::NONE),
                        run::DEADLINE.to(Time::INFINITY),
                        run::ACTION_NO.to(task.action_no),
                        run::PRIORITY.to(task.priority),
                        run::LANE.to(lane),
                        run::TRIES.to(freed.tries),
                        run::FAILURES.to(freed.failures),
                        run::DEPENDENCIES.to(freed.dependencies),
                        run::GRANTABLE.to(true),
                        run::LIMITED.to(false),
                        run::GATED.to(task.gated),
                        run::KEYED.to(false),
                        run::MAX_DURATION.to(task.max_duration),
                        run::KEY_HASH.to(key.map(|key| key_hash(task.group.as_deref(), key))),
                    ]
                });
            }
        });
        tasks.iter().map(|task| task.action_no).collect()
    });
    announce(&action_nos);
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
            let gives =
                |row: &Row| row.get(action_setting::FAIR) || row.get(action_setting::MAX_PER_GROUP).is_some();
            action_setting::of_number(look, action_no, gives).unwrap_or(false)
        });
        let mut limited = || {
            let limited = self.limited.entry(group.to_owned());
            *limited.or_insert_with(|| task_group::has_limit(look, group))
        };
        if given || limited() { lane(group) } else { Lane::NONE }
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
fn key_hash(group: Option<&str>, key: &str) -> i64 {
    hash(key, hash(group.unwrap_or_default(), 0))
}

/// Has waiters for tasks of these actions woken at commit, one for each, and listeners notified.
pub(crate) fn announce(action_nos: &[i32]) {
    for action_no in action_nos {
        wake::ready(*action_no);
    }
    let action_nos: BTreeSet<i32> = action_nos.iter().copied().collect();
    let notified: BTreeSet<i32> = look(|look| {
        let is_set = |n: &i32| {
            action_setting::of_number(look, *n, |row| row.get(action_setting::NOTIFY)) == Some(true)
        };
        action_nos.into_iter().filter(is_set).collect()
    });
    if !notified.is_empty() {
        notify_ready(&notified);
    }
}

static TO_SCHEDULED: Statement<(&[TaskNo], &[Time], &[i32], &[i32], &[i32], bool), (i32, Time)> =
    Statement::new(
        c"INSERT INTO taskq.scheduled (task_no, due, action_no, tries, failures, dependencies,
                                   held_back)
      SELECT u.task_no, u.due, t.action_no, u.tries, u.failures, u.dependencies, $6
        FROM unnest($1, $2, $3, $4, $5) AS u(task_no, due, tries, failures, dependencies)
       CROSS JOIN LATERAL (SELECT t.action_no FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
      RETURNING action_no, due",
    );

/// Sets the tasks aside until they are due.
pub(crate) fn schedule(freed: &[(Freed, Time)]) {
    set_aside(freed, false);
}

/// The same of tasks whose workgroup is held back: a shorter delay brings them forward.
pub(crate) fn hold_back(freed: &[(Freed, Time)]) {
    set_aside(freed, true);
}

fn set_aside(freed: &[(Freed, Time)], held_back: bool) {
    if freed.is_empty() {
        return;
    }
    let c = columns(&freed.iter().map(|(f, _)| *f).collect::<Vec<_>>());
    let due: Vec<Time> = freed.iter().map(|(_, due)| *due).collect();
    let added: Vec<(i32, Time)> = TO_SCHEDULED
        .map((c.task_nos, due, c.tries, c.failures, c.dependencies, held_back), |(action_no, due)| {
            (action_no, due)
        });
    if let Some(first) = freed.iter().map(|(_, due)| *due).min() {
        wake::due(first);
    }
    for (action_no, due) in added {
        // One waiter for this action has to learn of the new due time.
        wake::ready_later(action_no, due);
    }
}

/// Makes the tasks ready, or sets them aside where their `not_before` lies ahead.
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
    schedule(&scheduled.into_iter().map(|f| (f, later[&f.task_no])).collect::<Vec<_>>());
}
