//! `update_tasks`: tasks that are neither in progress nor settled are changed in place, with their dependencies and dependents as they are.
//!
//! **No worker performs what was there before.** A claim whose snapshot is older than this call's commit would read the
//! `task` row as it was, should it find the same row in `run`. So a changed task that stands in `run` gets another row,
//! there or in `scheduled`: its row is deleted. A claim that sees the old one with an old snapshot finds it deleted and skips it.
//!
//! **No mark passes an entry.** What keeps its place is inserted at the position of the row that is deleted in the same
//! statement. Every snapshot sees one of the two, grantable as before, so no low-water mark (see `claim::marks`) has moved
//! beyond an entry that is. What else becomes ready gets a new position, taken after the transaction has its id.

use std::collections::{HashMap, HashSet};

use pgrx::datum::{AnyElement, Interval, TimestampWithTimeZone};
use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::input::{check_interval, check_sizes};
use crate::locks::{self, LockStrength, restartable};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Statement, sql};
use crate::rights::{self, Doing};
use crate::settle::{Ending, fold, riders, settle};
use crate::state::{Cause, Outcome};
use crate::store::live::{self, Live, Place};
use crate::store::run::changes;
use crate::store::{blocked, numbers, parked, ready, sizes, task};
use crate::verbs::filter::{Filter, on_tasks};
use crate::wake;
use crate::words::word;

/// What is to change; `None` leaves as it is.
struct Change {
    priority: Option<i32>,
    not_before: Option<Time>,
    max_tries: Option<i32>,
    lease: Option<Interval>,
    body: Option<String>,
    metadata: Option<JsonText>,
}

/// `taskq.update_tasks(task_ids, priority, not_before, delay, max_tries, lease, body, metadata, if_started, groups,
/// actions) -> bigint`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_update_tasks(
    task_ids: Option<Vec<Option<String>>>,
    priority: Option<i32>,
    not_before: Option<TimestampWithTimeZone>,
    delay: Option<Interval>,
    max_tries: Option<i32>,
    lease: Option<Interval>,
    body: Option<String>,
    metadata: Option<AnyElement>,
    if_started: Option<&str>,
    groups: Option<Vec<Option<String>>>,
    actions: Option<Vec<Option<String>>>,
) -> i64 {
    rights::for_caller(|| {
        let skip = word("if_started", if_started, &["error", "skip"])? == "skip";
        let filter = Filter { actions, groups, ..Filter::default() };
        let ids = match task_ids {
            None if filter.looks_at_tasks() => None,
            ids => Some(given(required("task_ids", ids)?)?),
        };
        let metadata = check_metadata(metadata.and_then(JsonText::from_argument))?;
        check_sizes(None, None, body.as_deref(), metadata.as_ref())?;
        let change = Change {
            priority,
            not_before: time(not_before, delay)?,
            max_tries: check_max_tries(max_tries)?,
            lease: check_interval("lease", lease)?,
            body,
            metadata,
        };
        match ids {
            Some(ids) => {
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                restartable(|| update(&ids, &filter, skip, &change, clock::now()))
            }
            None => update_matching(filter, &change),
        }
    })
}

fn given(ids: Vec<Option<String>>) -> Result<Vec<String>> {
    ids.into_iter().map(|id| required("task_ids", id)).collect()
}

fn time(not_before: Option<TimestampWithTimeZone>, delay: Option<Interval>) -> Result<Option<Time>> {
    match (not_before, check_interval("delay", delay)?) {
        (Some(_), Some(_)) => Err(Refusal::not_valid(
            "delay",
            "given together with \"not_before\"",
            "Give a time or how long from now, not both.",
        )),
        (Some(time), None) => Ok(Some(Time(time.into()))),
        (None, delay) => Ok(delay.map(|delay| clock::now().plus(delay))),
    }
}

fn check_max_tries(max_tries: Option<i32>) -> Result<Option<i32>> {
    match max_tries {
        Some(tries) if tries < 1 => {
            Err(Refusal::out_of_range("max_tries", &tries.to_string(), "Give an integer from 1 up."))
        }
        other => Ok(other),
    }
}

fn check_metadata(metadata: Option<JsonText>) -> Result<Option<JsonText>> {
    match metadata {
        Some(json) if !json.0.starts_with('{') => Err(Refusal::not_valid(
            "metadata",
            "not a JSON object",
            "Give an object, or NULL to leave it as it is.",
        )),
        other => Ok(other),
    }
}

/// Changes the tasks that meet the filter, or none of them, unless those that have begun are to be left alone; how many
/// have been changed.
fn update(ids: &[&str], filter: &Filter, skip: bool, change: &Change, now: Time) -> Result<i64> {
    // A look without locks: what is in progress is refused, or left alone, at once, and not when the transaction that
    // has locked it ends.
    let mut found = numbers::by_id(ids);
    refuse_missing(ids, &found)?;
    rights::check_tasks(Doing::Change, found.values().copied())?;
    meeting(filter, &mut found);
    let begun = begun(&found);
    if !skip && let Some(refusal) = first_begun(ids, &found, |n| begun.get(&n).map(String::as_str)) {
        return Err(refusal);
    }
    let ids: Vec<&str> = ids
        .iter()
        .copied()
        .filter(|id| found.get(*id).is_some_and(|task_no| !begun.contains_key(task_no)))
        .collect();
    let (mut found, mut rows) =
        fold::locked(|| Ok(locks::lock_by_id(&ids, LockStrength::Update)), |(_, rows)| rows)?;
    refuse_missing(&ids, &found)?;
    rights::check_tasks(Doing::Change, found.values().copied())?;
    // Another task may have come in the place of one by now. The group and the action of a task do not change.
    meeting(filter, &mut found);
    let pending = |task_no: &TaskNo| rows.get(task_no).is_some_and(|row| !row.in_progress());
    if !skip && !found.values().all(pending) {
        let states = self::begun(&found);
        let state = |n: TaskNo| {
            let settled = states.get(&n).map_or("settled", String::as_str);
            rows.get(&n).map_or(Some(settled), |row| row.in_progress().then_some(IN_PROGRESS))
        };
        if let Some(refusal) = first_begun(&ids, &found, state) {
            return Err(refusal);
        }
    }
    rows.retain(|_, row| !row.in_progress());
    change_all(&in_order(&ids, &found, &rows), change, now)
}

/// Tasks that are not settled and for which no token is valid, in the order of their numbers.
static MATCHING: Statement<(&[&str], &[&str], &[&str]), TaskNo> = Statement::planned_each_time(sql!(
    "SELECT t.task_no
       FROM (SELECT r.task_no FROM taskq.run r WHERE r.nonce = 0
             UNION ALL SELECT b.task_no FROM taskq.blocked b
             UNION ALL SELECT d.task_no FROM taskq.scheduled d
             UNION ALL SELECT k.task_no FROM taskq.parked k) AS l
      CROSS JOIN LATERAL (SELECT t.task_no, t.id, t.action_no, t.group_id FROM taskq.task t
                           WHERE t.task_no = l.task_no OFFSET 0) AS t
      WHERE ",
    on_tasks!(),
    "
      ORDER BY t.task_no"
));

/// Changes what a filter has found, except what has begun, ended or gone since; how many have been changed.
fn update_matching(filter: Filter, change: &Change) -> Result<i64> {
    filter.check(Doing::Change)?;
    let Filter { task_ids, actions, groups, .. } = filter;
    let task_nos: Vec<TaskNo> = MATCHING.query((task_ids, actions, groups));
    rights::check_found(Doing::Change, task_nos.iter().copied())?;
    restartable(|| {
        let mut rows = fold::locked(|| Ok(locks::lock(&task_nos, LockStrength::Update)), |rows| rows)?;
        rows.retain(|_, row| !row.in_progress());
        let rows: Vec<&Live> = task_nos.iter().filter_map(|task_no| rows.get(task_no)).collect();
        change_all(&rows, change, clock::now())
    })
}

static MEETING: Statement<(&[&str], &[&str], &[&str], &[TaskNo]), TaskNo> =
    Statement::planned_each_time(sql!(
        "SELECT t.task_no
       FROM pg_catalog.unnest($4) AS u(task_no)
      CROSS JOIN LATERAL (SELECT t.task_no, t.id, t.action_no, t.group_id FROM taskq.task t
                           WHERE t.task_no = u.task_no OFFSET 0) AS t
      WHERE ",
        on_tasks!()
    ));

/// Leaves those of the tasks that the filter asks for.
fn meeting(filter: &Filter, found: &mut HashMap<String, TaskNo>) {
    if filter.looks_at_tasks() {
        let task_nos: Vec<TaskNo> = found.values().copied().collect();
        let Filter { task_ids, actions, groups, .. } = filter;
        let meeting: HashSet<TaskNo> = MEETING
            .query((task_ids.clone(), actions.clone(), groups.clone(), task_nos))
            .into_iter()
            .collect();
        found.retain(|_, task_no| meeting.contains(task_no));
    }
}

fn change_all(rows: &[&Live], change: &Change, now: Time) -> Result<i64> {
    if !change.is_empty() && !rows.is_empty() {
        change.check_lengths(rows)?;
        assign_transaction_id();
        apply(rows, change, now);
    }
    Ok(rows.len() as i64)
}

fn refuse_missing(ids: &[&str], found: &HashMap<String, TaskNo>) -> Result<()> {
    match ids.iter().find(|id| !found.contains_key(**id)) {
        Some(id) => Err(Refusal::no_such_task(id)),
        None => Ok(()),
    }
}

const IN_PROGRESS: &str = "in progress";

/// Tasks for which a token is valid, and tasks that have ended.
static BEGUN: Statement<&[TaskNo], (TaskNo, String)> = Statement::new(
    c"SELECT u.task_no, 'in progress'
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT FROM taskq.run r WHERE r.task_no = u.task_no AND r.nonce <> 0 OFFSET 0) AS r
       UNION ALL
      SELECT u.task_no, CASE s.code WHEN 'c' THEN 'completed' ELSE 'aborted' END
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT s.code FROM taskq.settled s WHERE s.task_no = u.task_no OFFSET 0) AS s",
);

/// Those of the tasks that are in progress or have ended, with their states.
fn begun(found: &HashMap<String, TaskNo>) -> HashMap<TaskNo, String> {
    let task_nos: Vec<TaskNo> = found.values().copied().collect();
    BEGUN.query(task_nos).into_iter().collect()
}

/// The refusal of the first of the tasks that has a state here: it is in progress, or has ended.
fn first_begun<'s>(
    ids: &[&str],
    found: &HashMap<String, TaskNo>,
    state: impl Fn(TaskNo) -> Option<&'s str>,
) -> Option<Refusal> {
    let (id, state) = ids.iter().find_map(|id| Some((*id, state(*found.get(*id)?)?)))?;
    let what = "cannot be changed";
    Some(match state {
        IN_PROGRESS => locks::held(id, what, "Wait until it is given back, or cancel it and insert another."),
        _ => Refusal::state(id, state, what, "Retry or replace it, or insert another."),
    })
}

/// The rows in the order of the call, each once.
fn in_order<'a>(
    ids: &[&str],
    found: &HashMap<String, TaskNo>,
    rows: &'a HashMap<TaskNo, Live>,
) -> Vec<&'a Live> {
    let mut seen = HashSet::with_capacity(rows.len());
    ids.iter()
        .filter_map(|id| found.get(*id))
        .filter(|task_no| seen.insert(**task_no))
        .filter_map(|task_no| rows.get(task_no))
        .collect()
}

static OTHER_PRIORITY: Statement<(&[TaskNo], i32), TaskNo> =
    Statement::new(c"SELECT t.task_no FROM taskq.task t WHERE t.task_no = ANY ($1) AND t.priority <> $2");

fn apply(rows: &[&Live], change: &Change, now: Time) {
    let task_nos: Vec<TaskNo> = rows.iter().map(|row| row.task_no).collect();
    let moved: HashSet<TaskNo> = match change.priority {
        Some(priority) => OTHER_PRIORITY.query((task_nos.as_slice(), priority)).into_iter().collect(),
        None => HashSet::new(),
    };
    let ahead = change.not_before.filter(|time| *time > now);
    let asks_riders = change.body.is_some() || change.priority.is_some() || change.not_before.is_some();
    let riding: HashSet<TaskNo> = match asks_riders {
        true => riders::among(&task_nos),
        false => HashSet::new(),
    };
    // A rider whose body changes, or whose time lies ahead now, is to run alone.
    let gets_off = change.body.is_some() || ahead.is_some();
    task::UPDATE.execute((
        task_nos,
        change.priority,
        change.not_before,
        change.max_tries,
        change.lease,
        change.body.as_deref(),
        change.metadata.clone(),
    ));
    let (mut leaving, mut staying, mut parked, mut blocked) = (vec![], vec![], vec![], vec![]);
    for row in rows {
        let at_the_end = moved.contains(&row.task_no) || change.not_before.is_some();
        match row.place {
            Place::Blocked(_) if change.not_before.is_some() => blocked.push(row.task_no),
            Place::Blocked(_) => {}
            Place::Scheduled { .. } if change.not_before.is_some() => leaving.push(*row),
            Place::Scheduled { .. } => {}
            _ if gets_off && riding.contains(&row.task_no) => leaving.push(*row),
            Place::Parked if ahead.is_some() => leaving.push(*row),
            Place::Parked if at_the_end => parked.push(row.task_no),
            Place::Parked => {}
            // A rider: where it stands is asked once its leader is given back.
            Place::Run { .. } if riding.contains(&row.task_no) => staying.push(row.task_no),
            Place::Run { .. } if at_the_end => leaving.push(*row),
            Place::Run { .. } => staying.push(row.task_no),
        }
    }
    forget_delay(&blocked);
    stand_behind(&parked);
    keep_place(&staying, change);
    live::remove(leaving.iter().copied());
    match ahead {
        Some(due) => ready::schedule(leaving.iter().map(|row| (row.freed(), due))),
        None => free(&leaving, now),
    }
}

/// Makes tasks ready whose time is now, and completes timers.
fn free(rows: &[&Live], now: Time) {
    let timers = task::spontaneous_by(now, rows.iter().map(|row| row.task_no));
    let (timers, others): (Vec<&Live>, Vec<&Live>) =
        rows.iter().copied().partition(|row| timers.contains(&row.task_no));
    ready::make_ready(&others.iter().map(|row| row.freed()).collect::<Vec<_>>());
    let complete = |row: &&Live| Ending::of(row, Outcome::Completed, Cause::Spontaneous, None);
    settle(timers.iter().map(complete).collect(), now);
}

fn forget_delay(task_nos: &[TaskNo]) {
    if !task_nos.is_empty() {
        blocked::FORGET_DELAY.execute(task_nos);
    }
}

fn stand_behind(task_nos: &[TaskNo]) {
    if !task_nos.is_empty() {
        parked::STAND_BEHIND.execute(task_nos);
    }
}

fn keep_place(task_nos: &[TaskNo], change: &Change) {
    if task_nos.is_empty() {
        return;
    }
    // Claims have skipped them while they were locked.
    for action_no in changes::KEEP_PLACE.query((task_nos, change.lease, change.priority)) {
        wake::ready(action_no);
    }
}

impl Change {
    /// Refuses a body or metadata that are too large beside the checkpoint of one of the tasks and what stays of the two.
    fn check_lengths(&self, rows: &[&Live]) -> Result<()> {
        let body = self.body.as_ref().map(String::len);
        let metadata = self.metadata.as_ref().map(|json| json.0.len());
        let task_nos: Vec<TaskNo> = rows.iter().map(|row| row.task_no).collect();
        sizes::check("the body", body.unwrap_or(0) + metadata.unwrap_or(0), &task_nos, |has| {
            let stays = |new: Option<usize>, old: i32| if new.is_none() { i64::from(old) } else { 0 };
            i64::from(has.checkpoint) + stays(body, has.body) + stays(metadata, has.metadata)
        })
    }

    fn is_empty(&self) -> bool {
        let Change { priority, not_before, max_tries, lease, body, metadata } = self;
        priority.is_none()
            && not_before.is_none()
            && max_tries.is_none()
            && lease.is_none()
            && body.is_none()
            && metadata.is_none()
    }
}
