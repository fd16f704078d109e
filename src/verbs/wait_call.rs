//! `CALL wait_for_tasks` and `CALL wait_for_work`: waiting without holding back vacuum.
//!
//! Each ends its caller's transaction and sleeps in a new one that has no snapshot and no id. The look is a
//! function of its own with the owner's rights, because a procedure that commits cannot have them.

use std::collections::HashSet;
use std::time::Duration;

use pgrx::datum::Interval;
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::claim::left_out::LeftOut;
use crate::claim::{Request, claim};
use crate::clock;
use crate::error::{Refusal, Result, or_throw, required};
use crate::flow::actions::{Action, for_claim, next_grant};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::procedure::{Call, procedure};
use crate::pg::session;
use crate::pg::statement::Statement;
use crate::pg::subtransaction;
use crate::pg::table::look as look_at;
use crate::rights::{self, Doing};
use crate::spec::check_interval;
use crate::store::{actions, live, numbers, tables, task};
use crate::upkeep::{self, retention};
use crate::verbs::args::check_actions;
use crate::verbs::wait::Waiter;
use crate::wake;

procedure!(taskq_wait_for_tasks_wrapper, pg_finfo_taskq_wait_for_tasks_wrapper, wait_for_tasks);
procedure!(taskq_wait_for_work_wrapper, pg_finfo_taskq_wait_for_work_wrapper, wait_for_work);

static LOOK_AT_TASKS: Statement<(&[TaskNo], &[&str]), i32> =
    Statement::new(c"SELECT taskq._num_settled($1, $2)");
static LOOK_FOR_WORK: Statement<(&[&str], bool, &[i32]), i32> =
    Statement::new(c"SELECT taskq._look_for_work($1, $2, $3)");
static NUMBERS: Statement<&[&str], TaskNo> = Statement::new(c"SELECT taskq._task_channels($1)");
static ACTION_NUMBERS: Statement<&[&str], i32> = Statement::new(c"SELECT taskq._action_channels($1)");
static NEXT_DUE: Statement<&[&str], Option<Time>> = Statement::new(c"SELECT taskq._next_due($1)");
static LEFT_BEHIND: Statement<(&[&str], &[i32]), i32> = Statement::new(c"SELECT taskq._left_behind($1, $2)");

/// `CALL taskq.wait_for_tasks(task_ids text[], timeout interval, INOUT num_settled integer)`
fn wait_for_tasks(call: &Call) -> pg_sys::Datum {
    let (ids, mut waiter) = or_throw((|| {
        let ids: Vec<Option<String>> = required("task_ids", call.argument(0))?;
        let ids = ids.into_iter().map(|id| required("task_ids", id)).collect::<Result<Vec<String>>>()?;
        Ok((ids, waiter(call)?))
    })());
    call.leave_transaction("wait_for_tasks");
    // Unknown ids are refused here, before any sleep. From here on the numbers count: another task that
    // takes an id is not the one that is waited for.
    let numbers: Vec<TaskNo> = subtransaction::keeping_no_locks(|| NUMBERS.query(ids.clone()));
    let tasks: Vec<(TaskNo, &str)> = numbers.into_iter().zip(ids.iter().map(String::as_str)).collect();
    // All are waited for: it is enough to be found under a few that are not over yet, and then under the
    // next few. A lock for each of many tasks would fill the server's lock table.
    let mut left = tasks.as_slice();
    loop {
        let (few, _) = left.split_at(left.len().min(MOST_CHANNELS));
        waiter.register(few.iter().map(|(n, _)| wake::settled_channel(*n)).collect());
        waiter.before_look();
        if num_over(few) == few.len() {
            left = &left[few.len()..];
            if left.is_empty() {
                return over(call, tasks.len() as i32);
            }
            continue;
        }
        if !waiter.sleep(None, false) {
            return over(call, num_over(&tasks) as i32);
        }
    }
}

/// The answer, which no statement of the call's transaction follows.
fn over<T: IntoDatum>(call: &Call, answer: T) -> pg_sys::Datum {
    call.leave_as_found();
    call.result(answer)
}

/// Under how many tasks one call is registered.
const MOST_CHANNELS: usize = 16;

fn num_over(tasks: &[(TaskNo, &str)]) -> usize {
    let (numbers, ids): (Vec<TaskNo>, Vec<&str>) = tasks.iter().copied().unzip();
    subtransaction::keeping_no_locks(|| LOOK_AT_TASKS.first((numbers, ids))).unwrap_or(0) as usize
}

/// `CALL taskq.wait_for_work(actions text[], timeout interval, INOUT ready boolean)`
fn wait_for_work(call: &Call) -> pg_sys::Datum {
    let names = or_throw(required("actions", call.argument(0)).and_then(check_actions));
    let timeout = or_throw(required("timeout", call.argument(1)));
    or_throw(check_interval("timeout", Some(timeout)));
    call.leave_transaction("wait_for_work");
    let mut waiter = or_throw(Waiter::for_work("timeout", timeout, &names));
    // Whether what time has made necessary is looked after before the look.
    let mut look_after = true;
    // What was changed may be what was waited for. But there may be more to change each time.
    let mut changes = 0;
    loop {
        waiter.before_look();
        // What a look that finds nothing has read is locked no longer than it takes.
        let looked = subtransaction::all_or_nothing(|| {
            let look = look(&mut waiter, &names, look_after);
            if [NOTHING, HELD].contains(&look.found) { Err(look) } else { Ok(look) }
        });
        let look = looked.unwrap_or_else(|look| look);
        match look.found {
            // Others have to see it, and a sleeper has no locks and no transaction id. If others have all that is
            // due in their hands, that is for the look after the next sleep.
            CHANGED | BUSY if !(waiter.time_is_up() && changes >= LEAST_CHANGES) => {
                changes += 1;
                wake::stay_registered(|| call.leave_transaction("wait_for_work"));
                look_after = look.found == CHANGED;
            }
            // Under which channels to be found is to be looked up again.
            RENUMBERED => {}
            NOTHING if waiter.sleep(look.due, false) => look_after = true,
            // The look has cost a transaction id, since others had something in their hands. A sleeper keeps none for
            // long.
            HELD if waiter.sleep(Some(clock::now()), false) => {
                wake::stay_registered(|| call.leave_transaction("wait_for_work"));
                look_after = true;
            }
            found => {
                let slept = waiter.slept();
                waiter.leave(found != READY);
                // What is ready is for the call of own_tasks that follows, which passes on what it leaves.
                wake::hand_on(&look.numbers, true, || match slept {
                    true => LEFT_BEHIND.query((names.to_vec(), look.numbers.as_slice())),
                    false => vec![],
                });
                return over(call, found == READY);
            }
        }
    }
}

/// How many looks that change something are made at least, however short the time.
const LEAST_CHANGES: usize = 3;

/// What a look has come to.
struct Look {
    found: i32,
    /// The numbers of the actions.
    numbers: Vec<i32>,
    /// If it has found nothing: when there will be something to do.
    due: Option<Time>,
}

fn look(waiter: &mut Waiter, names: &[String], look_after: bool) -> Look {
    // It locks the tables first.
    let numbers: Vec<i32> = ACTION_NUMBERS.query(names.to_vec());
    waiter.register(wake::channels_for_work(names, &numbers));
    let found = LOOK_FOR_WORK.first((names.to_vec(), look_after, numbers.as_slice())).unwrap_or(NOTHING);
    let due = match (found, look_after) {
        (NOTHING, true) => NEXT_DUE.first(names.to_vec()).flatten(),
        (NOTHING, false) => Some(clock::now()),
        _ => None,
    };
    Look { found, numbers, due }
}

/// What a look for work finds: nothing; something to own; something that time has made necessary and that has
/// been done, or that other transactions are doing; other numbers for the names of the actions.
const NOTHING: i32 = 0;
const READY: i32 = 1;
const CHANGED: i32 = 2;
const BUSY: i32 = 3;
const RENUMBERED: i32 = 4;
/// Nothing, and the look has taken locks for it.
const HELD: i32 = 5;

fn waiter(call: &Call) -> Result<Waiter> {
    let timeout: Interval = required("timeout", call.argument(1))?;
    Waiter::new("timeout", timeout)
}

/// `taskq._task_channels(task_ids text[]) -> SETOF bigint`: the numbers of tasks that must exist.
#[pg_extern(sql = "")]
fn taskq_task_channels(task_ids: Vec<Option<String>>) -> SetOfIterator<'static, i64> {
    SetOfIterator::new(rights::for_caller(|| {
        tables::hold();
        let ids: Vec<&str> = task_ids.iter().flatten().map(String::as_str).collect();
        let numbers = numbers::by_id(&ids);
        rights::check_tasks(Doing::Look, numbers.values().copied())?;
        ids.iter()
            .map(|id| numbers.get(*id).map(|n| n.0).ok_or_else(|| Refusal::no_such_task(id)))
            .collect::<Result<Vec<i64>>>()
    }))
}

/// `taskq._action_channels(actions text[]) -> SETOF integer`: the numbers that stand for the names now.
#[pg_extern(sql = "")]
fn taskq_action_channels(names: Vec<Option<String>>) -> SetOfIterator<'static, i32> {
    SetOfIterator::new(rights::for_caller(|| {
        tables::hold();
        Ok(actions::numbers(&his(names)?))
    }))
}

/// The actions of a call that waits for work of them, which its caller may own.
fn his(names: Vec<Option<String>>) -> Result<Vec<String>> {
    let names: Vec<String> = names.into_iter().flatten().collect();
    rights::check_actions(Doing::Work, names.iter().map(String::as_str))?;
    Ok(names)
}

/// `taskq._num_settled(task_nos bigint[], task_ids text[]) -> integer`: how many of the tasks are over: settled, also by
/// having been replaced, or deleted.
///
/// A number says nothing without the id: who makes numbers up hears that such a task is over, whether or not there is one.
#[pg_extern(sql = "")]
fn taskq_num_settled(task_nos: Vec<Option<i64>>, task_ids: Vec<Option<String>>) -> i32 {
    rights::for_caller(|| {
        let tasks: Vec<(TaskNo, &str)> = task_nos
            .iter()
            .zip(&task_ids)
            .filter_map(|(task_no, id)| Some((TaskNo((*task_no)?), id.as_deref()?)))
            .collect();
        let are_there = look_at(|look| task::have_ids(look, &tasks));
        let there: Vec<TaskNo> =
            tasks.iter().zip(are_there).filter(|(_, is_there)| *is_there).map(|((n, _), _)| *n).collect();
        rights::check_found(Doing::Look, there.iter().copied())?;
        Ok((tasks.len() - there.len() + live::outcomes(&there).len()) as i32)
    })
}

/// `taskq._look_for_work(actions text[], look_after boolean, action_nos integer[]) -> integer`: what own_tasks would
/// find. `action_nos` are the numbers that the caller takes to stand for the names.
#[pg_extern(sql = "")]
fn taskq_look_for_work(names: Vec<Option<String>>, look_after: bool, action_nos: Vec<Option<i32>>) -> i32 {
    rights::for_caller(|| Ok(look_for_work(&his(names)?, look_after, action_nos)))
}

fn look_for_work(names: &[String], look_after: bool, action_nos: Vec<Option<i32>>) -> i32 {
    let actions = for_claim(names);
    let all: Vec<i32> = actions.iter().map(|action| action.action_no).collect();
    let known: HashSet<i32> = action_nos.into_iter().flatten().collect();
    if !all.iter().all(|n| known.contains(n)) {
        return RENUMBERED;
    }
    let now = clock::now();
    let mut upkeep = upkeep::Upkeep::default();
    if look_after {
        let room = upkeep::STEP as usize;
        let claimant = upkeep::Claimant { action_nos: &all, names, room, waiting: false, in_vain: None };
        upkeep = upkeep::before_claim(claimant, None, now);
        if upkeep.expired {
            retention::keep_up(0, Duration::ZERO);
        }
    } else {
        upkeep::look(&all, now);
    }
    let open: Vec<Action> = actions.iter().filter(|a| a.lets_one_go(now)).cloned().collect();
    let (ready, moved) = try_to_own(&open, now);
    match () {
        () if ready => READY,
        () if upkeep.changed || moved => CHANGED,
        () if upkeep.tried => BUSY,
        () => {
            upkeep::note_passed_over(&actions);
            if session::has_transaction_id() { HELD } else { NOTHING }
        }
    }
}

/// Whether own_tasks would be granted a task: asked by a claim that is rolled back. No question put to the tables can
/// tell as much; who has locked a row and how, a slot, a bucket, the row of a key, only shows when it is to be locked.
/// And whether it has moved entries out of its way: others will not meet those again.
fn try_to_own(actions: &[Action], now: Time) -> (bool, bool) {
    let request = Request {
        actor_id: String::new(),
        max_tasks: 1,
        actions: Vec::new(),
        max_duration: None,
        trial: true,
    };
    let tried = subtransaction::all_or_nothing(|| {
        let mut grants = Vec::new();
        let moved = claim(&request, actions, now, &LeftOut::default(), &mut grants).any;
        // What a look that comes to nothing has locked it gives up.
        if grants.is_empty() && moved { Ok(()) } else { Err(!grants.is_empty()) }
    });
    match tried {
        Ok(()) => (false, true),
        Err(ready) => (ready, false),
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
        let his = actions::numbers(&his(names)?);
        action_nos.retain(|action_no| his.contains(action_no));
        Ok(upkeep::left_behind(&action_nos, false, Some(clock::now())))
    }))
}

/// `taskq._next_due(actions text[]) -> timestamptz`: when there will be something to do.
#[pg_extern(sql = "")]
fn taskq_next_due(names: Vec<Option<String>>) -> Option<pgrx::datum::TimestampWithTimeZone> {
    let due = rights::for_caller(|| {
        let actions = for_claim(&his(names)?);
        let numbers: Vec<i32> = actions.iter().map(|action| action.action_no).collect();
        Ok(upkeep::next_due(&numbers, None).into_iter().chain(next_grant(&actions, clock::now())).min())
    });
    due.and_then(|t| pgrx::datum::TimestampWithTimeZone::try_from(t.0).ok())
}
