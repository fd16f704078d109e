//! `CALL wait_for_work`: waiting for tasks without holding back vacuum.
//!
//! It ends its caller's transaction and sleeps in a new one that has no snapshot and no id. The look is that of `own_tasks`, in a
//! function of its own with the owner's rights, because a procedure that commits cannot have them.

use std::convert::Infallible;
use std::time::Duration;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::args::check_actions;
use super::own::{keep_up, look_for_work};
use super::waiter::Waiter;
use crate::claim::may_run::Taking;
use crate::claim::{Request, left_behind};
use crate::clock;
use crate::error::{Result, or_throw, required};
use crate::flow::actions::for_claim;
use crate::input::check_interval;
use crate::locks::tables;
use crate::pg::arg::Arg;
use crate::pg::caller;
use crate::pg::clock::Time;
use crate::pg::procedure::{Call, procedure};
use crate::pg::rows::{Columns, Rows};
use crate::pg::session;
use crate::pg::statement::Statement;
use crate::pg::subtransaction;
use crate::rights::{self, Doing};
use crate::store::actions;
use crate::upkeep::{self, Next};
use crate::wake;

procedure!(taskq_wait_for_work_wrapper, pg_finfo_taskq_wait_for_work_wrapper, wait_for_work);

static LOOK_FOR_WORK: Statement<(&[&str], bool), (bool, bool, Option<Time>, Option<Time>, i64)> =
    Statement::new(c"SELECT l.ready, l.owed, l.due, l.shared, l.rest FROM taskq._look_for_work($1, $2) AS l");
static ACTION_NUMBERS: Statement<&[&str], i32> = Statement::new(c"SELECT taskq._action_channels($1)");
static LEFT_BEHIND: Statement<(&[&str], &[i32]), i32> = Statement::new(c"SELECT taskq._left_behind($1, $2)");

/// `CALL taskq.wait_for_work(actions text[], timeout interval, INOUT ready boolean)`
fn wait_for_work(call: &Call) -> pg_sys::Datum {
    let names = or_throw(required("actions", call.argument(0)).and_then(check_actions));
    let timeout = or_throw(required("timeout", call.argument(1)));
    or_throw(check_interval("timeout", Some(timeout)));
    call.leave_transaction("wait_for_work");
    let stop = wake::Stop::of(&session::application_name(), caller::current());
    let mut waiter = or_throw(Waiter::for_work("timeout", timeout, &names, stop));
    loop {
        waiter.before_look();
        let mut look = look(&mut waiter, &names);
        if session::has_transaction_id() {
            // The look has locked or changed something, which is undone: a sleeping call keeps no id.
            wake::stay_registered(|| call.leave_transaction("wait_for_work"));
        }
        if !look.ready && waiter.sleep(look.next) {
            continue;
        }
        if !look.ready && look.next.owed && !waiter.is_stopped() {
            // The time is up: some of what is due is done, as by a call that does not wait, and committed.
            look.ready = LOOK_FOR_WORK.first((names.clone(), true)).is_some_and(|(ready, ..)| ready);
            wake::stay_registered(|| call.leave_transaction("wait_for_work"));
        }
        let slept = waiter.has_heard();
        waiter.leave(!look.ready);
        // What is ready is for the call of own_tasks that follows, which passes on what it leaves.
        wake::hand_on(&look.numbers, true, || match slept {
            true => LEFT_BEHIND.query((names.to_vec(), look.numbers.as_slice())),
            false => vec![],
        });
        return over(call, look.ready);
    }
}

/// What a look has come to.
struct Look {
    ready: bool,
    /// The numbers of the actions.
    numbers: Vec<i32>,
    next: Next,
}

/// Looks once. What the look has read is locked no longer than it takes, and nothing of it is kept.
fn look(waiter: &mut Waiter, names: &[String]) -> Look {
    subtransaction::keeping_no_locks(|| {
        // It locks the tables first.
        let numbers: Vec<i32> = ACTION_NUMBERS.query(names.to_vec());
        waiter.register(wake::channels_for_work(names, &numbers));
        let (ready, owed, due, shared, rest) =
            LOOK_FOR_WORK.first((names.to_vec(), false)).unwrap_or_default();
        Look { ready, numbers, next: Next { due, shared, owed, rest: Duration::from_millis(rest as u64) } }
    })
}

/// The answer, which no statement of the call's transaction follows.
pub(super) fn over<T: IntoDatum>(call: &Call, answer: T) -> pg_sys::Datum {
    call.leave_as_found();
    call.result(answer)
}

/// `taskq._action_channels(actions text[]) -> SETOF integer`: the numbers that stand for the names now.
#[pg_extern(sql = "")]
fn taskq_action_channels(names: Vec<Option<String>>) -> SetOfIterator<'static, i32> {
    SetOfIterator::new(rights::for_caller(|| {
        tables::hold();
        Ok(actions::numbers(&permitted(names)?))
    }))
}

/// The actions of a call that waits for work of them, which its caller may own.
fn permitted(names: Vec<Option<String>>) -> Result<Vec<String>> {
    let names: Vec<String> = names.into_iter().flatten().collect();
    rights::check_actions(Doing::Work, names.iter().map(String::as_str))?;
    Ok(names)
}

/// `taskq._look_for_work(actions text[], keep_up boolean) ->
/// TABLE (ready boolean, owed boolean, due timestamptz, shared timestamptz, rest bigint)`: whether
/// own_tasks would be granted a task; else what is left for others, and until when. `keep_up`: some of what is due is done first.
#[pg_extern(sql = "")]
fn taskq_look_for_work(names: Vec<Option<String>>, keeps_up: bool) -> Rows<Found> {
    Rows(vec![rights::for_caller(|| {
        let names = permitted(names)?;
        if keeps_up {
            let numbers = actions::numbers(&names);
            let now = clock::now();
            keep_up(&upkeep::look(&numbers, now), &numbers, upkeep::STEP as usize, now);
        }
        Ok(try_to_own(names))
    })])
}

/// What a look for work has found.
struct Found {
    ready: bool,
    next: Next,
}

impl Columns for Found {
    fn datums(self) -> Vec<Arg> {
        let Next { due, shared, owed, rest } = self.next;
        vec![
            Arg::new(self.ready),
            Arg::new(owed),
            Arg::new(due),
            Arg::new(shared),
            Arg::new(rest.as_millis() as i64),
        ]
    }
}

/// Asks by a claim that is rolled back. No query on the tables can answer as well: which transaction has locked a row and how,
/// a slot, a bucket or the row of a key, only shows when it is to be locked.
fn try_to_own(names: Vec<String>) -> Found {
    let request = Request { actions: names, ..Request::trial(Taking::Free) };
    let tried = subtransaction::all_or_nothing(|| {
        let actions = for_claim(&request.actions);
        let mut grants = Vec::new();
        let (_, next) = look_for_work(&request, &actions, &mut grants);
        Err::<Infallible, Found>(Found { ready: !grants.is_empty(), next })
    });
    match tried {
        Err(found) => found,
        Ok(never) => match never {},
    }
}

/// `taskq._left_behind(actions text[], action_nos integer[]) -> SETOF integer`: what a waiter for these actions knew that
/// others may have to know when it leaves. `action_nos` are the numbers that it took to stand for the names; what they stand
/// for else is not looked at.
#[pg_extern(sql = "")]
fn taskq_left_behind(
    names: Vec<Option<String>>,
    action_nos: Vec<Option<i32>>,
) -> SetOfIterator<'static, i32> {
    SetOfIterator::new(rights::for_caller(|| {
        let mut action_nos: Vec<i32> = action_nos.into_iter().flatten().collect();
        let known = actions::numbers(&permitted(names)?);
        action_nos.retain(|action_no| known.contains(action_no));
        Ok(left_behind(&action_nos, false, Some(clock::now())))
    }))
}
