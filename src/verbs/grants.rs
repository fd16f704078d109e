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
use crate::pg::statement::Statement;
use crate::store::step;
use crate::token::Token;

impl Columns for Grant {
    fn datums(self) -> Vec<Arg> {
        let body_json = Arg::new(self.body.as_deref().and_then(body_json));
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
            Arg::new(self.results),
            Arg::new(self.priority),
            Arg::new(self.metadata),
            body_json,
            Arg::new(self.steps),
        ]
    }
}

/// A body as JSON, if it is that.
fn body_json(body: &str) -> Option<Json> {
    Json::parse(body)
}

/// `taskq._body_json(body text) -> jsonb`
#[pg_extern(sql = "")]
fn taskq_body_json(body: &str) -> Option<AnyElement> {
    body_json(body).and_then(Json::into_result)
}

/// What the settled dependencies of tasks left, in the order of their numbers. A jsonb array holds 256 MB; where the results come
/// near that it is NULL, and they are to be read with `dependency_results`. Compressed sizes are looked at first: 700 kB cannot be
/// more than 200 MB.
static RESULTS: Statement<&[TaskNo], (TaskNo, Option<JsonText>)> = Statement::new(
    c"SELECT u.task_no,
             CASE WHEN z.size <= 200000000 THEN COALESCE(r.results, '[]') END
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (
             SELECT CASE WHEN pg_catalog.sum(pg_catalog.pg_column_size(s.result)) > 700000
                         THEN pg_catalog.sum(pg_catalog.octet_length(s.result::text) + 200)
                         ELSE 0 END AS size
               FROM taskq.dependency d
              CROSS JOIN LATERAL (SELECT s.result FROM taskq.settled s WHERE s.task_no = d.after_no OFFSET 0) AS s
              WHERE d.run_no = u.task_no AND d.state <> 'd' OFFSET 0) AS z
        LEFT JOIN LATERAL (
             SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                        'task_id', t.id, 'action', a.name,
                        'status_code', CASE s.code WHEN 'c' THEN 'completed' ELSE 'aborted' END,
                        'status', s.status, 'result', s.result) ORDER BY d.after_no) AS results
               FROM taskq.dependency d
              CROSS JOIN LATERAL (SELECT s.code, s.status, s.result FROM taskq.settled s
                                   WHERE s.task_no = d.after_no OFFSET 0) AS s
              CROSS JOIN LATERAL (SELECT t.id, t.action_no FROM taskq.task t WHERE t.task_no = d.after_no OFFSET 0) AS t
              CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no OFFSET 0) AS a
              WHERE d.run_no = u.task_no AND d.state <> 'd' AND z.size <= 200000000 OFFSET 0) AS r ON true",
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
    let task_nos: Vec<TaskNo> = grants.iter().map(|g| g.task_no).collect();
    let mut steps: HashMap<TaskNo, Option<JsonText>> = match task_nos.is_empty() || !step::may_be_there() {
        true => HashMap::new(),
        false => step::OBJECTS.query(task_nos).into_iter().collect(),
    };
    for grant in grants {
        grant.steps = steps.remove(&grant.task_no).unwrap_or_else(|| Some(JsonText("{}".to_owned())));
    }
}

fn fetch_results(grants: &mut [Grant]) {
    if grants.is_empty() {
        return;
    }
    let task_nos: Vec<TaskNo> = grants.iter().map(|g| g.task_no).collect();
    let mut results: HashMap<TaskNo, Option<JsonText>> = RESULTS.query(task_nos).into_iter().collect();
    for grant in grants {
        grant.results = results.remove(&grant.task_no).flatten();
    }
}
