//! `return_and_own_tasks`: what a worker in steady state needs, in one call and one commit. It is `return_tasks`, and
//! then `own_tasks` without a wait.
//!
//! **In this order**, so that what the returns free can be owned by the call: a dependent, a child that waits for nothing else, a
//! task that is given back without a delay, or what a slot or a key had kept back. Nor does the call end a try by its
//! deadline and then refuse its return: it looks after deadlines as a part of owning.

use pgrx::datum::{AnyElement, Interval, Uuid};
use pgrx::prelude::*;

use super::args::pairs;
use super::grants::With;
use super::own::{self, own_after};
use super::return_::Returning;
use crate::claim::{Grant, Request};
use crate::error::{Result, required};
use crate::pg::arg::Arg;
use crate::pg::block;
use crate::pg::clock::Time;
use crate::pg::json::{Json, JsonText};
use crate::pg::rows::{Columns, Rows};
use crate::returns::Given;
use crate::rights;
use crate::verbs::insert::json;

/// `taskq.return_and_own_tasks(actor_id, returns jsonb, max_tasks, actions, lease, with_results, with_steps) ->
/// TABLE (…)`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_return_and_own_tasks_json(
    actor_id: Option<String>,
    returns: Option<AnyElement>,
    max_tasks: Option<i32>,
    actions: Option<Vec<Option<String>>>,
    lease: Option<Interval>,
    with_results: Option<bool>,
    with_steps: Option<bool>,
    info: pg_sys::FunctionCallInfo,
) -> Rows<Row> {
    let _called = block::called(info);
    Rows(rights::for_caller(|| {
        let returning = Returning::parse(&json("returns", returns)?)?;
        let request = own::request(actor_id, max_tasks, actions, lease)?;
        return_and_own(returning, &request, With::of(with_results, with_steps))
    }))
}

/// `taskq.return_and_own_tasks(actor_id, task_ids, tokens, max_tasks, actions, lease, with_results, with_steps) ->
/// TABLE (…)`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_return_and_own_tasks(
    actor_id: Option<String>,
    task_ids: Option<Vec<Option<String>>>,
    tokens: Option<Vec<Option<Uuid>>>,
    max_tasks: Option<i32>,
    actions: Option<Vec<Option<String>>>,
    lease: Option<Interval>,
    with_results: Option<bool>,
    with_steps: Option<bool>,
    info: pg_sys::FunctionCallInfo,
) -> Rows<Row> {
    let _called = block::called(info);
    Rows(rights::for_caller(|| {
        let pairs = pairs(required("task_ids", task_ids)?, required("tokens", tokens)?)?;
        let request = own::request(actor_id, max_tasks, actions, lease)?;
        return_and_own(Returning::completed(pairs), &request, With::of(with_results, with_steps))
    }))
}

fn return_and_own(returning: Returning, request: &Request, with: With) -> Result<Vec<Row>> {
    let (given, grants) = own_after(request, with, || returning.carry_out())?;
    let refused = given.into_iter().filter_map(|Given { task_id, code }| {
        let sqlstate = code.err()?;
        Some(Row::Refused { task_id, sqlstate })
    });
    Ok(refused.chain(grants.into_iter().map(Row::Granted)).collect())
}

/// A return that was refused, or a task that was granted.
// Few of the rows of a call are refused: boxes for the others would cost more than the room that these take.
#[allow(clippy::large_enum_variant)]
enum Row {
    Refused { task_id: Option<String>, sqlstate: &'static str },
    Granted(Grant),
}

impl Columns for Row {
    fn datums(self) -> Vec<Arg> {
        match self {
            Row::Granted(grant) => {
                let mut columns = grant.datums();
                columns.push(Arg::new(None::<&str>));
                columns
            }
            Row::Refused { task_id, sqlstate } => vec![
                Arg::new(task_id),
                Arg::new(None::<Uuid>),
                Arg::new(None::<&str>),
                Arg::new(None::<&str>),
                Arg::new(None::<i32>),
                Arg::new(None::<i32>),
                Arg::new(None::<Time>),
                Arg::new(None::<JsonText>),
                Arg::new(None::<JsonText>),
                Arg::new(None::<i32>),
                Arg::new(None::<JsonText>),
                Arg::new(None::<Json>),
                Arg::new(None::<JsonText>),
                Arg::new(None::<bool>),
                Arg::new(sqlstate),
            ],
        }
    }
}
