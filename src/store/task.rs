//! The table `task`: what was asked for.

use std::collections::{HashMap, HashSet};

use pgrx::datum::Interval;

use crate::input::{TaskSpec, Wants};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::table::{Index, Key, Look, Places, Row, Scan, Set, insert_unless_there, look, table};

table!(c"task":
    TASK_NO: TaskNo,
    ACTION_NO: i32,
    PRIORITY: i32,
    MAX_TRIES: Option<i32>,
    NUM_REQUIRED: Option<i32>,
    SPONTANEOUS: bool,
    SIGNAL: bool,
    POST_RESULT: bool,
    INSERTED_AT: Time,
    NOT_BEFORE: Option<Time>,
    EXPIRES_AT: Option<Time>,
    LEASE: Option<Interval>,
    MAX_RUN_TIME: Option<Interval>,
    RETENTION: Option<Interval>,
    RETENTION_ABORTED: Option<Interval>,
    BACKOFF: Option<JsonText>,
    SEED: bool,
    ID: String,
    GROUP_ID: Option<String>,
    WORKGROUP: Option<String>,
    MERGE_KEY: Option<String>,
    UNIQUE_KEY: Option<String>,
    UNIQUE_UNTIL: Option<Time>,
    UNIQUE_STATES: Option<i16>,
    BODY: Option<String>,
    METADATA: Option<JsonText>;
    c"task_group_idx" where GROUP_ID Something,
    c"task_workgroup_idx" where WORKGROUP Something,
    c"task_merge_key_idx" where MERGE_KEY Something
);

/// By task_no.
pub(crate) static BY_NUMBER: Index = Index::new(&TABLE, c"task_pkey");
thread_local! {
    /// Where some of the tasks lie that this backend has met.
    static PLACES: Places = const { Places::new() };
}

/// By id, which is unique.
static BY_ID: Index = Index::new(&TABLE, c"task_id_key");

/// The numbers of those of the ids that are there.
pub(super) fn numbers(look: &Look, ids: &[&str]) -> HashMap<String, TaskNo> {
    look.scan(&BY_ID, |rows| {
        let number = |id: &&str| {
            check_for_interrupts();
            rows.first(&[Key::eq(1, *id)], |row| ((*id).to_owned(), row.get(TASK_NO)))
        };
        ids.iter().filter_map(number).collect()
    })
}

/// Sorted afterwards: what is to come in the order of another index would be looked for in that, through the whole table.
static OF_GROUP: Statement<&str, TaskNo> =
    Statement::new(c"SELECT t.task_no FROM taskq.task t WHERE t.group_id = $1");

/// The tasks of a group, in the order of their numbers.
pub(crate) fn of_group(group: &str) -> Vec<TaskNo> {
    let mut task_nos = OF_GROUP.query(group);
    task_nos.sort_unstable();
    task_nos
}

/// Whether each of the tasks is there, and has this id.
pub(crate) fn have_ids(look: &Look, tasks: &[(TaskNo, &str)]) -> Vec<bool> {
    let has_id = each(look, tasks.iter().map(|(task_no, _)| *task_no), |at, row| row.get(ID) == tasks[at].1);
    has_id.into_iter().map(|has_id| has_id == Some(true)).collect()
}

/// What `read` makes of the row of each of the tasks, where there is one.
pub(crate) fn each<T>(
    look: &Look,
    task_nos: impl ExactSizeIterator<Item = TaskNo>,
    read: impl FnMut(usize, &Row) -> T,
) -> Vec<Option<T>> {
    look.scan(&BY_NUMBER, |rows| rows.of_each_seen(&PLACES, TASK_NO, task_nos, read))
}

/// The action of a task that is there. `tasks` goes by [`BY_NUMBER`].
pub(super) fn action_no(tasks: &mut Scan, task_no: TaskNo) -> i32 {
    tasks
        .first(&[Key::eq(1, task_no)], |row| row.get(ACTION_NO))
        .unwrap_or_else(|| pgrx::error!("a task that is to wait is gone"))
}

/// The same, and whether the queue completes it itself.
pub(super) fn action_no_and_kind(tasks: &mut Scan, task_no: TaskNo) -> (i32, bool) {
    tasks
        .first(&[Key::eq(1, task_no)], |row| (row.get(ACTION_NO), row.get(SPONTANEOUS)))
        .unwrap_or_else(|| pgrx::error!("a task that is parked is gone"))
}

/// What the end of a task depends on.
pub(crate) struct AtTheEnd {
    /// The number that stands for its action.
    pub(crate) action_no: i32,
    /// It has a group, whose tally counts it.
    pub(crate) grouped: bool,
    /// Its end is announced.
    pub(crate) post_result: bool,
    /// How long it is kept once it has completed; `None`: what its action says, else the setting.
    pub(crate) retention: Option<Interval>,
    /// How long it is kept once it has aborted; `None`: what its action says, else the setting.
    pub(crate) retention_aborted: Option<Interval>,
    /// The end of its period, if it is unique and has one: it is kept until then.
    pub(crate) unique_until: Option<Time>,
    /// It was to expire, if it was not granted in time.
    pub(crate) expires: bool,
}

impl AtTheEnd {
    /// From a row of `task`.
    pub(crate) fn read(row: &Row) -> Self {
        AtTheEnd {
            action_no: row.get(ACTION_NO),
            grouped: row.get(GROUP_ID).is_some(),
            post_result: row.get(POST_RESULT),
            retention: row.get(RETENTION),
            retention_aborted: row.get(RETENTION_ABORTED),
            unique_until: row.get(UNIQUE_UNTIL),
            expires: row.get(EXPIRES_AT).is_some(),
        }
    }
}

/// Those of the tasks that the queue completes itself, and whose time has come.
pub(crate) fn spontaneous_by(now: Time, task_nos: impl Iterator<Item = TaskNo>) -> HashSet<TaskNo> {
    let completes = |row: &Row| row.get(SPONTANEOUS) && row.get(NOT_BEFORE).is_none_or(|time| time <= now);
    look(|look| {
        look.scan(&BY_NUMBER, |rows| {
            task_nos.filter(|n| rows.first(&[Key::eq(1, *n)], completes) == Some(true)).collect()
        })
    })
}

/// Of those of the tasks for which some of their dependencies suffice: how many.
pub(crate) fn with_num_required(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    if task_nos.is_empty() {
        return HashMap::new();
    }
    let required = look(|look| each(look, task_nos.iter().copied(), |_, row| row.get(NUM_REQUIRED)));
    task_nos.iter().zip(required).filter_map(|(task_no, required)| Some((*task_no, required??))).collect()
}

/// The groups of those of the tasks that have one.
pub(crate) fn groups(task_nos: &[TaskNo]) -> HashMap<TaskNo, String> {
    let groups = look(|look| each(look, task_nos.iter().copied(), |_, row| row.get(GROUP_ID)));
    task_nos.iter().copied().zip(groups).filter_map(|(task_no, group)| Some((task_no, group??))).collect()
}

/// How many dependencies each of the tasks needs, and whether it is a signal.
pub(crate) fn wants(task_nos: &[TaskNo]) -> HashMap<TaskNo, Wants> {
    let read = |row: &Row| Wants { num_required: row.get(NUM_REQUIRED), signal: row.get(SIGNAL) };
    let wants = look(|look| each(look, task_nos.iter().copied(), |_, row| read(row)));
    task_nos.iter().copied().zip(wants).filter_map(|(task_no, wants)| Some((task_no, wants?))).collect()
}

/// What a task that nothing blocks any more is put into its place by.
pub(crate) struct Placed {
    /// The number that stands for its action.
    pub(crate) action_no: i32,
    /// Higher ones are granted first.
    pub(crate) priority: i32,
    /// It is not granted before this time; `None`: from now on.
    pub(crate) not_before: Option<Time>,
    /// The lease of its grants where the claim gives none; `None`: what its action says, else the setting.
    pub(crate) lease: Option<Interval>,
    /// The longest that a try of it lasts; `None`: what its action says.
    pub(crate) max_run_time: Option<Interval>,
    /// The group that it belongs to.
    pub(crate) group: Option<String>,
    /// The key with which tasks are merged that run once for all.
    pub(crate) merge_key: Option<String>,
    /// It has a group, a workgroup or a merge key.
    pub(crate) gated: bool,
}

impl Placed {
    fn read(row: &Row) -> Self {
        let (group, merge_key) = (row.get(GROUP_ID), row.get(MERGE_KEY));
        Placed {
            action_no: row.get(ACTION_NO),
            priority: row.get(PRIORITY),
            not_before: row.get(NOT_BEFORE),
            lease: row.get(LEASE),
            max_run_time: row.get(MAX_RUN_TIME),
            gated: group.is_some() || merge_key.is_some() || row.get(WORKGROUP).is_some(),
            group,
            merge_key,
        }
    }
}

/// The same of each of the tasks, all of which are there.
pub(crate) fn placed(look: &Look, task_nos: impl ExactSizeIterator<Item = TaskNo>) -> Vec<Placed> {
    each(look, task_nos, |_, row| Placed::read(row))
        .into_iter()
        .map(|task| task.unwrap_or_else(|| pgrx::error!("a task that is to be ready is gone")))
        .collect()
}

/// A task that is to be inserted.
pub(crate) struct New<'a> {
    /// The number that the call has taken for it.
    pub(crate) task_no: TaskNo,
    /// The number that stands for its action.
    pub(crate) action_no: i32,
    /// Its id, given or made up.
    pub(crate) id: &'a str,
    /// No other call can have its id: it was made in this call.
    pub(crate) id_is_new: bool,
    /// What its inserter says of it.
    pub(crate) spec: &'a TaskSpec,
}

/// Inserts tasks, in the order given; returns the places of those whose ids belong to others.
///
/// Waits for a transaction that is inserting the same id, or removing it.
pub(crate) fn insert<'a>(tasks: impl Iterator<Item = New<'a>>, now: Time) -> Vec<usize> {
    let mut refused = Vec::new();
    insert_unless_there(&BY_ID, |into| {
        for (at, task) in tasks.enumerate() {
            check_for_interrupts();
            let row = || values(&task, now);
            if task.id_is_new {
                into.row(row);
            } else if !into.row_unless_there(row) {
                refused.push(at);
            }
        }
    });
    refused
}

fn values(task: &New, now: Time) -> [Set; 26] {
    let spec = task.spec;
    let unique = spec.unique.as_deref();
    [
        TASK_NO.to(task.task_no),
        ACTION_NO.to(task.action_no),
        PRIORITY.to(spec.priority),
        MAX_TRIES.to(spec.max_tries),
        NUM_REQUIRED.to(spec.num_required),
        SPONTANEOUS.to(spec.spontaneous),
        SIGNAL.to(spec.signal),
        POST_RESULT.to(spec.post_result),
        INSERTED_AT.to(now),
        NOT_BEFORE.to(spec.not_before),
        EXPIRES_AT.to(spec.expires_at),
        LEASE.to(spec.lease),
        MAX_RUN_TIME.to(spec.max_run_time),
        RETENTION.to(spec.retention),
        RETENTION_ABORTED.to(spec.retention_aborted),
        BACKOFF.to(spec.backoff.clone()),
        SEED.to(spec.seed),
        ID.to(task.id),
        GROUP_ID.to(spec.group.as_deref()),
        WORKGROUP.to(spec.workgroup.as_deref()),
        MERGE_KEY.to(spec.merge_key.as_deref()),
        UNIQUE_KEY.to(unique.map(|unique| unique.key.as_str())),
        UNIQUE_UNTIL.to(unique.and_then(|unique| unique.until(spec.not_before, now))),
        UNIQUE_STATES.to(unique.map(|unique| unique.states.0)),
        BODY.to(spec.body.as_deref()),
        METADATA.to(spec.metadata.clone()),
    ]
}

/// The only statement that updates rows of `task`. The live rows of these tasks are ours, so no other call reads them
/// to put the tasks anywhere.
pub(crate) static UPDATE: Statement<(&[TaskNo], i32, Time, i32, Interval, &str, JsonText)> = Statement::new(
    c"UPDATE taskq.task t
         SET priority = COALESCE($2, t.priority), not_before = COALESCE($3, t.not_before),
             max_tries = COALESCE($4, t.max_tries), lease = COALESCE($5, t.lease),
             body = COALESCE($6, t.body), metadata = COALESCE($7, t.metadata)
       WHERE t.task_no = ANY ($1)",
);

/// The action is looked up only for those that have a key.
pub(super) static REMOVE: Statement<
    &[TaskNo],
    (TaskNo, bool, Option<String>, Option<String>, Option<String>, Option<String>),
> = Statement::new(
    c"DELETE FROM taskq.task t WHERE t.task_no = ANY ($1)
      RETURNING t.task_no, t.expires_at IS NOT NULL, t.group_id, t.merge_key, t.unique_key,
                CASE WHEN t.unique_key IS NOT NULL OR t.merge_key IS NOT NULL
                     THEN (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no) END",
);

static TAKE_BACK: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.task t WHERE t.task_no = ANY ($1)");

/// Removes rows again that this call has inserted, and nothing else refers to yet.
pub(crate) fn take_back(task_nos: &[TaskNo]) {
    if !task_nos.is_empty() {
        TAKE_BACK.execute(task_nos);
    }
}
