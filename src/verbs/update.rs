//! `update_tasks`: tasks that have yet to begin are changed in place, with their dependencies and dependents as they are.
//!
//! **Nobody performs what was there before.** A claim whose snapshot is older than this call's commit would read the
//! `task` row as it was, should it find the same row in `run`. So the row in `run` is always another one: it is deleted
//! and inserted anew. Who sees the old one with an old snapshot finds it deleted and passes over it.
//!
//! **No mark passes an entry.** What keeps its place is inserted at the position of the row that is deleted in the same
//! statement. Every snapshot sees one of the two, as grantable, so no low-water mark (see `claim::marks`) has moved
//! beyond that position. All others get new positions, taken after the transaction has its id.

use std::collections::{HashMap, HashSet};

use pgrx::datum::{AnyElement, Interval, TimestampWithTimeZone};
use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;
use crate::rights::{self, Doing};
use crate::settle::{fold, riders};
use crate::spec::check_interval;
use crate::store::blocked;
use crate::store::live::{self, Live, LockStrength, Place};
use crate::store::numbers;
use crate::store::order::restartable;
use crate::store::parked;
use crate::store::ready;
use crate::store::run::changes;
use crate::store::task;
use crate::wake;

/// What is to change; `None` leaves as it is.
struct Change {
    priority: Option<i32>,
    not_before: Option<Time>,
    max_tries: Option<i32>,
    max_duration: Option<Interval>,
    body: Option<String>,
    metadata: Option<JsonText>,
}

/// `taskq.update_tasks(task_ids, priority, not_before, delay, max_tries, max_duration, body, metadata) -> bigint`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_update_tasks(
    task_ids: Option<Vec<Option<String>>>,
    priority: Option<i32>,
    not_before: Option<TimestampWithTimeZone>,
    delay: Option<Interval>,
    max_tries: Option<i32>,
    max_duration: Option<Interval>,
    body: Option<String>,
    metadata: Option<AnyElement>,
) -> i64 {
    rights::for_caller(|| {
        let ids = required("task_ids", task_ids)?
            .into_iter()
            .map(|id| required("task_ids", id))
            .collect::<Result<Vec<String>>>()?;
        let change = Change {
            priority,
            not_before: time(not_before, delay)?,
            max_tries: check_max_tries(max_tries)?,
            max_duration: check_interval("max_duration", max_duration)?,
            body,
            metadata: check_metadata(metadata.and_then(JsonText::from_argument))?,
        };
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        restartable(|| update(&ids, &change, clock::now()))
    })
}

fn time(not_before: Option<TimestampWithTimeZone>, delay: Option<Interval>) -> Result<Option<Time>> {
    match (not_before, check_interval("delay", delay)?) {
        (Some(_), Some(_)) => Err(Refusal::out_of_range(
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
        Some(json) if !json.0.starts_with('{') => Err(Refusal::out_of_range(
            "metadata",
            "not a JSON object",
            "Give an object, or NULL to leave it as it is.",
        )),
        other => Ok(other),
    }
}

/// Changes the tasks, or none of them; how many they are.
fn update(ids: &[&str], change: &Change, now: Time) -> Result<i64> {
    // A look without locks: what is in progress is refused at once, and not when whoever has locked it lets it go.
    let found = numbers::by_id(ids);
    refuse_missing(ids, &found)?;
    rights::check_tasks(Doing::Change, found.values().copied())?;
    refuse_begun(ids, &found)?;
    let (found, rows) = fold::locked(|| Ok(live::lock_by_id(ids, LockStrength::Update)), |(_, rows)| rows)?;
    refuse_missing(ids, &found)?;
    rights::check_tasks(Doing::Change, found.values().copied())?;
    if rows.len() < found.len() || rows.values().any(Live::in_progress) {
        refuse_begun(ids, &found)?;
    }
    if !change.is_empty() {
        assign_transaction_id();
        apply(&in_order(ids, &found, &rows), change, now);
    }
    Ok(found.len() as i64)
}

fn refuse_missing(ids: &[&str], found: &HashMap<String, TaskNo>) -> Result<()> {
    match ids.iter().find(|id| !found.contains_key(**id)) {
        Some(id) => Err(Refusal::no_such_task(id)),
        None => Ok(()),
    }
}

/// Tasks that somebody owns, and tasks that have ended.
static BEGUN: Statement<&[TaskNo], (TaskNo, String)> = Statement::new(
    c"SELECT u.task_no, 'in progress'
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT FROM taskq.run r WHERE r.task_no = u.task_no AND r.nonce <> 0 OFFSET 0) AS r
       UNION ALL
      SELECT u.task_no, CASE s.code WHEN 'c' THEN 'completed' ELSE 'aborted' END
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT s.code FROM taskq.settled s WHERE s.task_no = u.task_no OFFSET 0) AS s",
);

fn refuse_begun(ids: &[&str], found: &HashMap<String, TaskNo>) -> Result<()> {
    let task_nos: Vec<TaskNo> = found.values().copied().collect();
    let begun: HashMap<TaskNo, String> = BEGUN.query(task_nos).into_iter().collect();
    if begun.is_empty() {
        return Ok(());
    }
    let first = ids.iter().find_map(|id| Some((*id, begun.get(found.get(*id)?)?.as_str())));
    let (id, state) = first.unwrap_or(("", "in progress"));
    let what = "cannot be changed";
    Err(match state {
        "in progress" => {
            live::held(id, what, "Wait until it is given back, or cancel it and insert another.")
        }
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
    // What they are to do has changed since, or when: that is to be done, too.
    let gets_off = change.body.is_some() || ahead.is_some();
    task::UPDATE.execute((
        task_nos,
        change.priority,
        change.not_before,
        change.max_tries,
        change.max_duration,
        change.body.as_deref(),
        change.metadata.clone(),
    ));
    let (mut leaving, mut staying, mut parked, mut blocked) = (vec![], vec![], vec![], vec![]);
    for row in rows {
        let at_the_end = moved.contains(&row.task_no) || change.not_before.is_some();
        match row.place {
            Place::Blocked { .. } if change.not_before.is_some() => blocked.push(row.task_no),
            Place::Blocked { .. } => {}
            Place::Scheduled { .. } if change.not_before.is_some() => leaving.push(*row),
            Place::Scheduled { .. } => {}
            _ if gets_off && riding.contains(&row.task_no) => leaving.push(*row),
            Place::Parked if ahead.is_some() => leaving.push(*row),
            Place::Parked if at_the_end => parked.push(row.task_no),
            Place::Parked => {}
            // Where it stands is asked once the other is given back.
            Place::Run { .. } if riding.contains(&row.task_no) => staying.push(row.task_no),
            Place::Run { .. } if at_the_end => leaving.push(*row),
            Place::Run { .. } => staying.push(row.task_no),
        }
    }
    forget_delay(&blocked);
    stand_behind(&parked);
    keep_place(&staying, change);
    live::remove(leaving.iter().copied());
    let freed = leaving.iter().map(|row| row.freed());
    match ahead {
        Some(due) => ready::schedule(freed.map(|freed| (freed, due))),
        None => ready::make_ready(&freed.collect::<Vec<_>>()),
    }
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
    // Claims have passed over them while they were locked. `store::live` wakes somebody for what it has locked.
    for action_no in changes::KEEP_PLACE.query((task_nos, change.max_duration, change.priority)) {
        wake::ready(action_no);
    }
}

impl Change {
    fn is_empty(&self) -> bool {
        let Change { priority, not_before, max_tries, max_duration, body, metadata } = self;
        priority.is_none()
            && not_before.is_none()
            && max_tries.is_none()
            && max_duration.is_none()
            && body.is_none()
            && metadata.is_none()
    }
}
