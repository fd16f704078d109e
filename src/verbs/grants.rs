//! What an actor is given: the rows of `own_tasks` and `return_and_own_tasks`.

use std::collections::HashMap;

use pgrx::datum::AnyElement;
use pgrx::prelude::*;

use crate::claim::Grant;
use crate::number::TaskNo;
use crate::pg::arg::Arg;
use crate::pg::clock::Time;
use crate::pg::json::{Json, JsonText};
use crate::pg::rows::Columns;
use crate::pg::statement::{FromRow, Statement, record};
use crate::store::step;
use crate::token::Token;

impl Columns for Grant {
    fn datums(self) -> Vec<Arg> {
        let body_json = Arg::new(self.body.as_deref().and_then(body_json));
        let [results, steps] = [&self.results, &self.steps]
            .map(|text| text.as_ref().map(|text| Json::within(&text.0, MOST_GATHERED)));
        let fits = |json: &Option<Option<Json>>| json.as_ref().is_none_or(Option::is_some);
        let incomplete = self.incomplete || !fits(&results) || !fits(&steps);
        let deadline = (self.deadline != Time::INFINITY).then_some(self.deadline);
        vec![
            Arg::new(self.id),
            Arg::new(Token { task_no: self.task_no, nonce: self.nonce }.to_uuid()),
            Arg::new(self.action),
            Arg::new(self.body),
            Arg::new(self.tries),
            Arg::new(self.failures),
            Arg::new(deadline),
            Arg::new(self.checkpoint),
            Arg::new(results.flatten()),
            Arg::new(self.priority),
            Arg::new(self.metadata),
            body_json,
            Arg::new(steps.flatten()),
            Arg::new(incomplete),
        ]
    }
}

/// A body as JSON, if it is that, and not too long as such.
fn body_json(body: &str) -> Option<Json> {
    Json::parse(body, MOST_BODY_JSON)
}

/// `taskq._body_json(body text) -> jsonb`
#[pg_extern(sql = "")]
fn taskq_body_json(body: &str) -> Option<AnyElement> {
    body_json(body).and_then(Json::into_result)
}

/// How long `results` and `steps` may be as JSON text, and what PostgreSQL makes of them, in bytes.
const MOST_GATHERED: usize = 200 << 20;

/// How long a body may be as the text of the JSON that it is.
const MOST_BODY_JSON: usize = 128 << 20;

record! {
    /// A row of [`RESULTS`]: what a settled dependency has left.
    struct Left {
        run_no: TaskNo,
        id: String,
        action: String,
        completed: bool,
        status: Option<String>,
        result: Option<JsonText>,
    }
}

/// What the settled dependencies of tasks left, in the order of their numbers.
static RESULTS: Statement<&[TaskNo], Left> = Statement::new(
    c"SELECT u.task_no, t.id, a.name, s.code = 'c', s.status, s.result
        FROM pg_catalog.unnest($1) WITH ORDINALITY AS u(task_no, place)
       CROSS JOIN LATERAL (SELECT d.after_no FROM taskq.dependency d
                            WHERE d.run_no = u.task_no AND d.state <> 'd' OFFSET 0) AS d
       CROSS JOIN LATERAL (SELECT s.code, s.status, s.result FROM taskq.settled s WHERE s.task_no = d.after_no OFFSET 0) AS s
       CROSS JOIN LATERAL (SELECT t.id, t.action_no FROM taskq.task t WHERE t.task_no = d.after_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no OFFSET 0) AS a
       ORDER BY u.place, d.after_no",
);

/// The steps of tasks.
static STEPS: Statement<&[TaskNo], (TaskNo, String, Option<JsonText>)> = Statement::new(
    c"SELECT u.task_no, s.name, s.result
        FROM pg_catalog.unnest($1) WITH ORDINALITY AS u(task_no, place)
       CROSS JOIN LATERAL (SELECT s.name, s.result FROM taskq.step s WHERE s.task_no = u.task_no OFFSET 0) AS s
       ORDER BY u.place",
);

/// What comes with grants if it is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct With {
    /// What the dependencies left, as [`Grant::results`].
    pub(super) results: bool,
    /// What the tasks have saved, as [`Grant::steps`].
    pub(super) steps: bool,
}

impl With {
    /// As SQL passes it; NULL is as false.
    pub(super) fn of(results: Option<bool>, steps: Option<bool>) -> Self {
        With { results: results.unwrap_or(false), steps: steps.unwrap_or(false) }
    }

    /// Adds it to each of the grants.
    pub(super) fn fetch(self, grants: &mut [Grant]) {
        if self.results {
            fetch_results(grants);
        }
        if self.steps {
            fetch_steps(grants);
        }
    }
}

/// The look is newer than the grants: a transaction that has saved a step of one of the tasks had its row until it ended.
fn fetch_steps(grants: &mut [Grant]) {
    let mut steps = match step::may_be_there() {
        true => gathered(grants, &STEPS, '}', |(task_no, name, result)| {
            (task_no, format!("{}: {}", quoted(&name), null_if_none(result)))
        }),
        false => HashMap::new(),
    };
    for grant in grants {
        set(grant, steps.remove(&grant.task_no), "{}", |grant| &mut grant.steps);
    }
}

fn fetch_results(grants: &mut [Grant]) {
    let mut results = gathered(grants, &RESULTS, ']', |left: Left| {
        let code = if left.completed { "completed" } else { "aborted" };
        let entry = format!(
            "{{\"task_id\": {}, \"action\": {}, \"status_code\": \"{code}\", \"status\": {}, \"result\": {}}}",
            quoted(&left.id),
            quoted(&left.action),
            left.status.as_deref().map_or("null".to_owned(), quoted),
            null_if_none(left.result)
        );
        (left.run_no, entry)
    });
    for grant in grants {
        set(grant, results.remove(&grant.task_no), "[]", |grant| &mut grant.results);
    }
}

/// Hands on what was gathered for a grant: `empty` where there was nothing, and nothing where it is too much.
fn set(
    grant: &mut Grant,
    gathered: Option<Option<String>>,
    empty: &str,
    field: fn(&mut Grant) -> &mut Option<JsonText>,
) {
    let text = gathered.unwrap_or_else(|| Some(empty.to_owned()));
    grant.incomplete |= text.is_none();
    *field(grant) = text.map(JsonText);
}

/// The JSON text of the entries of each task that has any; `None` if they are too long. `entry` makes of a row the task and the text
/// of its entry, `close` ends the array or object. Texts are what counts: a number of a few bytes may have 130,000 digits.
///
/// What does not fit is not even read: the statement hands on its rows one by one, and is run again for the tasks behind that one.
fn gathered<R: FromRow>(
    grants: &[Grant],
    rows: &'static Statement<&'static [TaskNo], R>,
    close: char,
    mut entry: impl FnMut(R) -> (TaskNo, String),
) -> HashMap<TaskNo, Option<String>> {
    let open = if close == ']' { '[' } else { '{' };
    let task_nos: Vec<TaskNo> = grants.iter().map(|grant| grant.task_no).collect();
    let mut texts: HashMap<TaskNo, Option<String>> = HashMap::new();
    let mut from = 0;
    while from < task_nos.len() {
        let mut over = None;
        rows.each_while(&task_nos[from..], |row| {
            let (task_no, entry) = entry(row);
            let Some(text) = texts.entry(task_no).or_insert_with(|| Some(String::new())) else { return true };
            let separator = if text.is_empty() { String::from(open) } else { ", ".to_owned() };
            if text.len() + entry.len() + 2 >= MOST_GATHERED {
                over = Some(task_no);
                return false;
            }
            text.push_str(&separator);
            text.push_str(&entry);
            true
        });
        let Some(too_long) = over else { break };
        texts.insert(too_long, None);
        from = task_nos.iter().position(|task_no| *task_no == too_long).map_or(task_nos.len(), |at| at + 1);
    }
    texts.values_mut().flatten().for_each(|text| text.push(close));
    texts
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn null_if_none(json: Option<JsonText>) -> String {
    json.map_or_else(|| "null".to_owned(), |json| json.0)
}
