//! `own_tasks`: granting tasks to an actor, now or as soon as there are some. What is granted is decided in
//! [`crate::claim`].

mod leave;
mod look;
mod wait;

use pgrx::datum::Interval;
use pgrx::prelude::*;

use super::args::check_actions;
use super::grants::With;
use super::waiter::Waiter;
use crate::claim::may_run::Taking;
use crate::claim::{Grant, Request};
use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::flow::actions;
use crate::input::{check_interval, check_name};
use crate::pg::block;
use crate::pg::rows::Rows;
use crate::pg::session;
use crate::rights::{self, Doing};
use crate::store::seal;
use crate::upkeep::{self, Due};
use crate::wake::{Stop, lately};
use leave::leave;
pub(crate) use look::keep_up;
use look::{Look, look};
pub(crate) use wait::look_for_work;

/// `taskq.own_tasks(actor_id, max_tasks, actions, lease, wait, with_results, with_steps) -> TABLE (…)`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_own_tasks(
    actor_id: Option<String>,
    max_tasks: Option<i32>,
    actions: Option<Vec<Option<String>>>,
    lease: Option<Interval>,
    wait: Option<Interval>,
    with_results: Option<bool>,
    with_steps: Option<bool>,
    info: pg_sys::FunctionCallInfo,
) -> Rows<Grant> {
    let _called = block::called(info);
    Rows(rights::for_caller(|| {
        let request = request(actor_id, max_tasks, actions, lease)?;
        let mut grants = own_tasks(&request, wait)?;
        With::of(with_results, with_steps).fetch(&mut grants);
        Ok(grants)
    }))
}

/// What SQL passes, checked, and that the caller may own tasks of these actions.
pub(super) fn request(
    actor_id: Option<String>,
    max_tasks: Option<i32>,
    actions: Option<Vec<Option<String>>>,
    lease: Option<Interval>,
) -> Result<Request> {
    let request = Request {
        actor_id: check_name("actor_id", actor_id.as_deref())?.to_owned(),
        max_tasks: check_max_tasks(required("max_tasks", max_tasks)?)?,
        actions: check_actions(required("actions", actions)?)?,
        lease,
        taking: Taking::All,
        trial: false,
    };
    check_interval("lease", lease)?;
    rights::check_actions(Doing::Work, request.actions.iter().map(String::as_str))?;
    Ok(request)
}

fn check_max_tasks(max_tasks: i32) -> Result<usize> {
    usize::try_from(max_tasks)
        .map_err(|_| Refusal::out_of_range("max_tasks", &max_tasks.to_string(), "Ask for 0 tasks or more."))
}

fn own_tasks(request: &Request, wait: Option<Interval>) -> Result<Vec<Grant>> {
    // A worker that is connected to a standby by mistake has to learn that, also while there is nothing to
    // own.
    session::refuse_if_read_only();
    let mut waiter = match wait {
        Some(wait) => {
            let stop = Stop::of(&request.actor_id, rights::caller());
            Some(Waiter::for_work("wait", wait, &request.actions, stop)?)
        }
        None => None,
    };
    let found = match &mut waiter {
        Some(waiter) => wait::wait(request, waiter)?,
        None => {
            let mut found = Look::of(request);
            look(request, &mut found, None, None);
            found
        }
    };
    leave(&found, &mut waiter, request.max_tasks);
    Ok(tidied(found))
}

/// What the call is granted, after it has done a part of what is to be tidied up.
fn tidied(found: Look) -> Vec<Grant> {
    if found.expired {
        keep_up(&Due::EXPIRED, &[], 0, clock::now());
    }
    if !found.grants.is_empty() {
        seal::keep_up();
    }
    found.grants
}

/// Does something, and grants what there is then, without waiting.
///
/// The low-water marks of claiming move for longer than a transaction only where that has no id yet (see
/// [`crate::claim::marks`]). What is done first gives it one. So the look that moves them, if one is needed, comes
/// before. Otherwise a worker that always returns and owns in one call would scan again and again what it has been granted, for
/// as long as a session holds a snapshot. What is due by that look is done after the work; signals that came since are found by themselves.
pub(super) fn own_after<T>(
    request: &Request,
    with: With,
    first: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Grant>)> {
    session::refuse_if_read_only();
    let look_first = || {
        let numbers = actions::numbers(&request.actions);
        if lately::nothing_was_due(&numbers) {
            return None;
        }
        let due = upkeep::look(&numbers, clock::now());
        Some((numbers, due))
    };
    let looked = if session::has_transaction_id() { None } else { look_first() };
    let done = first()?;
    // Names may be new, and lanes may have entries, by what was done.
    let mut found = Look::of(request);
    let looked = looked.filter(|(of, _)| *of == found.action_nos()).map(|(_, due)| due);
    look(request, &mut found, looked, None);
    leave(&found, &mut None, request.max_tasks);
    let mut grants = tidied(found);
    with.fetch(&mut grants);
    Ok((done, grants))
}
