//! `insert_task`, `insert_tasks`, `insert_tasks_report` and `replace_tasks`.

use pgrx::datum::{AnyElement, Interval, TimestampWithTimeZone};
use pgrx::prelude::*;

use crate::error::{Refusal, Result, required};
use crate::insert::{OnConflict, Options, insert, insert_reporting, parse_if_missing};
use crate::pg::clock::{self, Time};
use crate::pg::json::{JsonText, TextOrJson};
use crate::pg::rows::Rows;
use crate::rights;
use crate::spec::{self, Reference, TaskSpec, interval_problem};
use crate::state::Condition;
use crate::words::word;

/// `taskq.insert_tasks(tasks jsonb, on_conflict text, if_missing text) -> SETOF text`
#[pg_extern(sql = "")]
fn taskq_insert_tasks(
    tasks: Option<AnyElement>,
    on_conflict: Option<&str>,
    if_missing: Option<&str>,
) -> Rows<(String,)> {
    rights::for_caller(|| insert_tasks(tasks, on_conflict, if_missing)).into_iter().collect()
}

fn insert_tasks(
    tasks: Option<AnyElement>,
    on_conflict: Option<&str>,
    if_missing: Option<&str>,
) -> Result<Vec<String>> {
    let options = Options::parse(on_conflict, if_missing)?;
    insert(spec::parse_tasks(&json("tasks", tasks)?)?, options)
}

/// `taskq.insert_tasks_report(tasks jsonb, on_conflict text, if_missing text) -> TABLE (…)`
#[pg_extern(sql = "")]
#[allow(clippy::type_complexity)]
fn taskq_insert_tasks_report(
    tasks: Option<AnyElement>,
    on_conflict: Option<&str>,
    if_missing: Option<&str>,
) -> Rows<(String, &'static str, Option<String>)> {
    let reports = rights::for_caller(|| {
        let ignore_missing = parse_if_missing(if_missing)?;
        let on_conflict = match word("on_conflict", on_conflict, &["error", "skip", "replace"])? {
            "skip" => OnConflict::Skip,
            "replace" => {
                rights::check_replacing()?;
                OnConflict::Replace
            }
            _ => OnConflict::Error,
        };
        let options = Options { on_conflict, ignore_missing };
        insert_reporting(spec::parse_tasks(&json("tasks", tasks)?)?, options)
    });
    Rows(reports.into_iter().map(|r| (r.id, r.outcome, r.existing)).collect())
}

/// `taskq.replace_tasks(tasks jsonb, if_missing text) -> SETOF text`
#[pg_extern(sql = "")]
fn taskq_replace_tasks(tasks: Option<AnyElement>, if_missing: Option<&str>) -> Rows<(String,)> {
    rights::for_caller(|| replace_tasks(tasks, if_missing)).into_iter().collect()
}

fn replace_tasks(tasks: Option<AnyElement>, if_missing: Option<&str>) -> Result<Vec<String>> {
    let ignore_missing = parse_if_missing(if_missing)?;
    let options = Options { on_conflict: OnConflict::Replace, ignore_missing };
    insert(spec::parse_tasks(&json("tasks", tasks)?)?, options)
}

/// The text of a jsonb argument that may not be NULL.
pub(crate) fn json(argument: &str, value: Option<AnyElement>) -> Result<String> {
    let text = required(argument, value)?;
    Ok(required(argument, JsonText::from_argument(text))?.0)
}

/// `taskq.insert_task(id, action, body text, …) -> text`: the keys of a task by name. The form with a body that is jsonb
/// comes here as well; it stores that as `insert_tasks` stores one.
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_insert_task(
    id: Option<String>,
    action: Option<String>,
    body: Option<AnyElement>,
    priority: Option<i32>,
    max_tries: Option<i32>,
    max_duration: Option<Interval>,
    not_before: Option<TimestampWithTimeZone>,
    delay: Option<Interval>,
    depends_on: Option<Vec<Option<String>>>,
    to_signal_after: Option<Vec<Option<String>>>,
    spontaneous: Option<bool>,
    post_result: Option<bool>,
    group_id: Option<String>,
    retention: Option<Interval>,
    metadata: Option<AnyElement>,
    backoff: Option<AnyElement>,
    workgroup: Option<String>,
    merge_key: Option<String>,
    seed: Option<bool>,
    on_conflict: Option<&str>,
    if_missing: Option<&str>,
    unique_by: Option<AnyElement>,
    retention_aborted: Option<Interval>,
) -> Option<String> {
    let body = body.and_then(TextOrJson::from_argument).and_then(|body| match body {
        TextOrJson::Text(text) => Some(text),
        TextOrJson::Json(json) => spec::body_of(&json.0),
    });
    rights::for_caller(|| {
        insert_task(Arguments {
            id,
            action,
            body,
            priority,
            max_tries,
            max_duration,
            not_before,
            delay,
            depends_on,
            to_signal_after,
            spontaneous,
            post_result,
            group_id,
            retention,
            metadata,
            backoff,
            workgroup,
            merge_key,
            seed,
            on_conflict,
            if_missing,
            unique_by,
            retention_aborted,
        })
    })
}

/// The arguments of `insert_task`.
struct Arguments<'a> {
    id: Option<String>,
    action: Option<String>,
    body: Option<String>,
    priority: Option<i32>,
    max_tries: Option<i32>,
    max_duration: Option<Interval>,
    not_before: Option<TimestampWithTimeZone>,
    delay: Option<Interval>,
    depends_on: Option<Vec<Option<String>>>,
    to_signal_after: Option<Vec<Option<String>>>,
    spontaneous: Option<bool>,
    post_result: Option<bool>,
    group_id: Option<String>,
    retention: Option<Interval>,
    metadata: Option<AnyElement>,
    backoff: Option<AnyElement>,
    workgroup: Option<String>,
    merge_key: Option<String>,
    seed: Option<bool>,
    on_conflict: Option<&'a str>,
    if_missing: Option<&'a str>,
    unique_by: Option<AnyElement>,
    retention_aborted: Option<Interval>,
}

fn insert_task(arguments: Arguments) -> Result<Option<String>> {
    let Arguments {
        id,
        action,
        body,
        priority,
        max_tries,
        max_duration,
        not_before,
        delay,
        depends_on,
        to_signal_after,
        spontaneous,
        post_result,
        group_id,
        retention,
        metadata,
        backoff,
        workgroup,
        merge_key,
        seed,
        on_conflict,
        if_missing,
        unique_by,
        retention_aborted,
    } = arguments;
    let options = Options::parse(on_conflict, if_missing)?;
    let refuse = |what: &str| Refusal::malformed(1, id.as_deref(), what);
    let action = action.ok_or_else(|| refuse("argument \"action\" is NULL"))?;
    let metadata = metadata.and_then(JsonText::from_argument);
    if metadata.as_ref().is_some_and(|m| !m.0.starts_with('{')) {
        return Err(refuse("key \"metadata\" is not a JSON object"));
    }
    if let Some(problem) = delay.and_then(interval_problem) {
        return Err(refuse(&format!("key \"delay\" is {problem}")));
    }
    if delay.is_some() && not_before.is_some() {
        return Err(refuse("both \"not_before\" and \"delay\" are given"));
    }
    let unique = match unique_by.and_then(JsonText::from_argument) {
        Some(json) => spec::parse_unique(&json.0, body.as_deref())
            .map_err(|what| refuse(&format!("argument \"unique_by\": {what}")))?,
        None => None,
    };
    let not_before = match delay {
        Some(delay) => Some(clock::now().plus(delay)),
        None => not_before.map(|t| Time(t.into())),
    };
    let spec = TaskSpec {
        id: id.clone(),
        action,
        body,
        priority: priority.unwrap_or(0),
        max_tries,
        max_duration,
        not_before,
        depends_on: references(depends_on)?,
        to_signal_after: references(to_signal_after)?,
        spontaneous: spontaneous.unwrap_or(false),
        post_result: post_result.unwrap_or(false),
        group: group_id,
        retention,
        retention_aborted: retention_aborted.or(retention),
        metadata,
        backoff: backoff.and_then(JsonText::from_argument),
        workgroup,
        merge_key,
        seed: seed.unwrap_or(false),
        unique: unique.map(Box::new),
    };
    Ok(insert(vec![spec.checked(1)?], options)?.into_iter().next())
}

fn references(ids: Option<Vec<Option<String>>>) -> Result<Vec<Reference>> {
    ids.unwrap_or_default()
        .into_iter()
        .map(|id| match id {
            Some(id) => Ok(Reference { id, condition: Condition::default() }),
            None => Err(Refusal::malformed(1, None, "a dependency is NULL")),
        })
        .collect()
}
