//! `insert_task`, `insert_many`, `insert_tasks`, `insert_tasks_report` and `replace_tasks`.

use pgrx::datum::{AnyElement, Interval, TimestampWithTimeZone};
use pgrx::prelude::*;
use serde::de::IgnoredAny;

use crate::clock;
use crate::error::{Refusal, Result, required, shortened};
use crate::input::{self, Element, INTERVAL_HINT, Problem, Reference, TaskSpec, Unique, interval_problem};
use crate::insert::{OnConflict, Options, insert, insert_reporting, parse_if_missing};
use crate::pg::clock::Time;
use crate::pg::json::{JsonText, TextOrJson};
use crate::pg::rows::Rows;
use crate::pg::throw::notice;
use crate::rights;
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
    insert(input::parse_tasks(&json("tasks", tasks)?)?, options)
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
        insert_reporting(input::parse_tasks(&json("tasks", tasks)?)?, options)
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
    insert(input::parse_tasks(&json("tasks", tasks)?)?, options)
}

/// The text of a jsonb argument that may not be NULL.
pub(crate) fn json(argument: &str, value: Option<AnyElement>) -> Result<String> {
    let text = required(argument, value)?;
    Ok(required(argument, JsonText::from_argument(text))?.0)
}

/// A function that takes the keys of tasks as arguments, most of which are alike for all such functions. Those in
/// parentheses are its own: the first ones, and those between `retention_aborted` and `num_required`. Its body has `keys`
/// without the action, and `options`, which are read when they are called.
macro_rules! insertion {
    (
        $(#[doc = $doc:literal])*
        fn $name:ident($($first:tt)*) ($($between:tt)*) -> ($($returns:tt)*), |$keys:ident, $options:ident| $body:expr
    ) => {
        $(#[doc = $doc])*
        #[pg_extern(sql = "")]
        #[allow(clippy::too_many_arguments)]
        fn $name(
            $($first)*
            priority: Option<i32>,
            max_tries: Option<i32>,
            lease: Option<Interval>,
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
            $($between)*
            num_required: Option<i32>,
            signal: Option<bool>,
            expires_at: Option<TimestampWithTimeZone>,
            expires_in: Option<Interval>,
            max_run_time: Option<Interval>,
        ) -> $($returns)* {
            let $keys = Keys {
                action: None,
                not_before,
                delay,
                expires_at,
                expires_in,
                depends_on,
                to_signal_after,
                metadata,
                unique_by,
                plain: TaskSpec {
                    priority: priority.unwrap_or(0),
                    max_tries,
                    lease,
                    max_run_time,
                    num_required,
                    spontaneous: spontaneous.unwrap_or(false),
                    signal: signal.unwrap_or(false),
                    post_result: post_result.unwrap_or(false),
                    group: group_id,
                    retention,
                    retention_aborted: retention_aborted.or(retention),
                    backoff: backoff.and_then(JsonText::from_argument),
                    workgroup,
                    merge_key,
                    seed: seed.unwrap_or(false),
                    ..TaskSpec::default()
                },
            };
            let $options = || Options::parse(on_conflict, if_missing);
            $body
        }
    };
}

insertion! {
    /// `taskq.insert_task(id, action, body text, …) -> text`: the keys of a task by name. The form with a body that is jsonb
    /// comes here as well; it stores that as `insert_tasks` stores one.
    fn taskq_insert_task(id: Option<String>, action: Option<String>, body: Option<AnyElement>,) () -> (Option<String>),
    |keys, options| {
        let body = body.and_then(TextOrJson::from_argument).and_then(|body| match body {
            TextOrJson::Text(text) => Some(text),
            TextOrJson::Json(json) => input::body_of(&json.0),
        });
        rights::for_caller(|| {
            let options = options()?;
            tell_of_json(action.as_deref());
            Ok(insert(Keys { action, ..keys }.of(vec![(id, body)])?, options)?.pop())
        })
    }
}

/// Tells of an action that is JSON: probably the body of a call in which the id was left out.
fn tell_of_json(action: Option<&str>) {
    let is_json =
        |text: &&str| text.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok();
    if let Some(action) = action.filter(is_json) {
        notice(
            &format!("the action of this task is \"{}\": is an id missing?", shortened(action)),
            "The arguments of insert_task are id, action and body, in this order; the action is JSON.",
            "Give the id first, or NULL to have one made. taskq.delete_tasks() removes this task.",
        );
    }
}

insertion! {
    /// `taskq.insert_many(action, bodies text[], ids text[], …) -> SETOF text`: tasks that differ only in id and body.
    /// Bodies that are texts come without JSON on the way.
    fn taskq_insert_many(
        action: Option<String>,
        bodies: Option<Vec<Option<String>>>,
        ids: Option<Vec<Option<String>>>,
    ) (bodies_json: Option<AnyElement>,) -> (Rows<(String,)>),
    |keys, options| {
        let inserted = rights::for_caller(|| {
            let options = options()?;
            let tasks = with_ids(bodies_of(bodies, bodies_json)?, ids)?;
            insert(Keys { action, ..keys }.of(tasks)?, options)
        });
        inserted.into_iter().collect()
    }
}

/// The bodies, which are given in one way or in the other.
fn bodies_of(texts: Option<Vec<Option<String>>>, json: Option<AnyElement>) -> Result<Vec<Option<String>>> {
    match (texts, json.and_then(JsonText::from_argument)) {
        (Some(_), Some(_)) => Err(Refusal::argument(
            "arguments \"bodies\" and \"bodies_json\" are both given",
            "The bodies of the tasks are in one array.",
            "Give one of the two, with a NULL for each task without a body, and NULL for the other.",
        )),
        (Some(texts), None) => Ok(texts),
        (None, Some(json)) => Ok(input::bodies("bodies_json", &json.0)?
            .into_iter()
            .map(|body| input::body_of(body.get()))
            .collect()),
        (None, None) => Err(Refusal::no_bodies()),
    }
}

fn with_ids(
    bodies: Vec<Option<String>>,
    ids: Option<Vec<Option<String>>>,
) -> Result<Vec<(Option<String>, Option<String>)>> {
    let Some(ids) = ids else { return Ok(bodies.into_iter().map(|body| (None, body)).collect()) };
    if ids.len() != bodies.len() {
        return Err(Refusal::argument(
            "arguments \"bodies\" and \"ids\" differ in length",
            &format!("\"bodies\" has {} elements, \"ids\" {}.", bodies.len(), ids.len()),
            "Give one id for each body, with a NULL where one is to be made; or leave \"ids\" out.",
        ));
    }
    Ok(ids.into_iter().zip(bodies).collect())
}

/// The keys that all tasks of a call share.
struct Keys {
    action: Option<String>,
    not_before: Option<TimestampWithTimeZone>,
    delay: Option<Interval>,
    expires_at: Option<TimestampWithTimeZone>,
    expires_in: Option<Interval>,
    depends_on: Option<Vec<Option<String>>>,
    to_signal_after: Option<Vec<Option<String>>>,
    metadata: Option<AnyElement>,
    unique_by: Option<AnyElement>,
    /// Those that are as they are given.
    plain: TaskSpec,
}

impl Keys {
    /// A task for each id and body. What is wrong with the keys that they share is said of the first of them; what is wrong
    /// with an id or `unique_by`, of the task itself.
    fn of(self, tasks: Vec<(Option<String>, Option<String>)>) -> Result<Vec<TaskSpec>> {
        let alone = tasks.len() == 1;
        let first = tasks.first().and_then(|(id, _)| id.clone());
        let place = |n: usize| (!alone).then_some(n);
        let refuse = |what: &str, hint: &str| {
            Element::Task.malformed(place(1), first.as_deref(), &Problem::new(what, hint))
        };
        let action = self
            .action
            .ok_or_else(|| refuse("argument \"action\" is NULL", "Give the name of what is to be done."))?;
        let metadata = self.metadata.and_then(JsonText::from_argument);
        if metadata.as_ref().is_some_and(|m| !m.0.starts_with('{')) {
            return Err(refuse("key \"metadata\" is not a JSON object", "Give an object, or NULL."));
        }
        let now = clock::now();
        let time = |at, after| {
            time_of(now, at, after)
                .map_err(|problem| Element::Task.malformed(place(1), first.as_deref(), &problem))
        };
        let not_before = time(("not_before", self.not_before), ("delay", self.delay))?;
        let expires_at = time(("expires_at", self.expires_at), ("expires_in", self.expires_in))?;
        let alike = TaskSpec {
            id: first.clone(),
            action,
            not_before,
            expires_at,
            depends_on: references(self.depends_on)?,
            to_signal_after: references(self.to_signal_after)?,
            metadata,
            ..self.plain
        }
        .checked(place(1))?;
        let unique_by = self.unique_by.and_then(JsonText::from_argument);
        let task = |n: usize, (id, body): (Option<String>, Option<String>)| {
            let unique = match &unique_by {
                Some(json) => unique_of(json, body.as_deref())
                    .map_err(|problem| Element::Task.malformed(place(n), id.as_deref(), &problem))?,
                None => None,
            };
            input::check_id(place(n), id.as_deref())?;
            input::check_sizes(place(n), id.as_deref(), body.as_deref(), None)?;
            Ok(TaskSpec { id, body, unique: unique.map(Box::new), ..alike.clone() })
        };
        tasks.into_iter().enumerate().map(|(i, one)| task(i + 1, one)).collect()
    }
}

fn unique_of(json: &JsonText, body: Option<&str>) -> std::result::Result<Option<Unique>, Problem> {
    input::parse_unique(&json.0, body).map_err(|problem| problem.within("argument \"unique_by\": "))
}

/// The time of two keys, of which one may be given: a time, or how far it is from now.
fn time_of(
    now: Time,
    (at, time): (&str, Option<TimestampWithTimeZone>),
    (after, interval): (&str, Option<Interval>),
) -> std::result::Result<Option<Time>, Problem> {
    if let Some(problem) = interval.and_then(interval_problem) {
        return Err(Problem::new(format!("key \"{after}\" is {problem}"), INTERVAL_HINT));
    }
    match (time, interval) {
        (Some(_), Some(_)) => {
            Err(Problem::new(format!("both \"{at}\" and \"{after}\" are given"), "Give one of the two."))
        }
        (time, None) => Ok(time.map(|time| Time(time.into()))),
        (None, Some(interval)) => Ok(Some(now.plus(interval))),
    }
}

fn references(ids: Option<Vec<Option<String>>>) -> Result<Vec<Reference>> {
    ids.unwrap_or_default()
        .into_iter()
        .map(|id| match id {
            Some(id) => Ok(Reference::named(id, Condition::default())),
            None => {
                let problem = Problem::new("a dependency is NULL", "Name a task, or leave the entry out.");
                Err(Element::Task.malformed(None, None, &problem))
            }
        })
        .collect()
}
