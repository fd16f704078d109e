//! `own_tasks`: granting tasks to an actor, now or as soon as there are some. What is granted is decided in
//! [`crate::claim`].

use std::cell::Cell;

use pgrx::datum::{AnyElement, Interval};
use pgrx::prelude::*;

use crate::claim::left_out::LeftOut;
use crate::claim::{Grant, Request, claim, lanes};
use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::flow::actions::{self, Action};
use crate::number::TaskNo;
use crate::pg::arg::Arg;
use crate::pg::board;
use crate::pg::clock::{Time, wall};
use crate::pg::json::{Json, JsonText};
use crate::pg::rows::{Columns, Rows};
use crate::pg::session;
use crate::pg::statement::Statement;
use crate::rights::{self, Doing};
use crate::settle::commit;
use crate::spec::check_interval;
use crate::store::seal;
use crate::store::tables;
use crate::store::touched;
use crate::token::Token;
use crate::upkeep::{self, Due, Upkeep, elapsed, retention};
use crate::verbs::wait::Waiter;
use crate::wake;

/// `taskq.own_tasks(actor_id, max_tasks, actions, max_duration, wait, with_results) -> TABLE (…)`
#[pg_extern(sql = "")]
fn taskq_own_tasks(
    actor_id: Option<String>,
    max_tasks: Option<i32>,
    actions: Option<Vec<Option<String>>>,
    max_duration: Option<Interval>,
    wait: Option<Interval>,
    with_results: Option<bool>,
    info: pg_sys::FunctionCallInfo,
) -> Rows<Grant> {
    let _called = session::called(info);
    Rows(rights::for_caller(|| {
        let request = request(actor_id, max_tasks, actions, max_duration)?;
        let mut grants = own_tasks(&request, wait)?;
        if with_results.unwrap_or(false) {
            fetch_results(&mut grants);
        }
        Ok(grants)
    }))
}

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

/// What SQL passes, checked: whoever it is may own tasks of these actions.
pub(super) fn request(
    actor_id: Option<String>,
    max_tasks: Option<i32>,
    actions: Option<Vec<Option<String>>>,
    max_duration: Option<Interval>,
) -> Result<Request> {
    let request = Request {
        actor_id: required("actor_id", actor_id)?,
        max_tasks: check_max_tasks(required("max_tasks", max_tasks)?)?,
        actions: check_actions(required("actions", actions)?)?,
        max_duration,
        trial: false,
    };
    if request.actor_id.is_empty() {
        return Err(Refusal::out_of_range("actor_id", "an empty string", "Give the worker a name."));
    }
    check_interval("max_duration", max_duration)?;
    rights::check_actions(Doing::Work, request.actions.iter().map(String::as_str))?;
    Ok(request)
}

fn own_tasks(request: &Request, wait: Option<Interval>) -> Result<Vec<Grant>> {
    let waits = wait.is_some();
    let mut waiter = match wait {
        Some(wait) => Some(Waiter::for_work("wait", wait, &request.actions)?),
        None => None,
    };
    let (grants, upkeep) = look_until(request, &mut waiter)?;
    // Left alone while the call might have slept on it.
    if upkeep.expired {
        retention::keep_up(grants.len());
    }
    if !grants.is_empty() {
        seal::keep_up();
    }
    if upkeep.stale {
        elapsed::remove_stale(clock::now());
    }
    if waits && upkeep.signals {
        upkeep::fold(clock::now());
    }
    Ok(grants)
}

/// Does something, and grants what there is then, without waiting.
///
/// The low-water marks of claiming only move in a transaction that has no id yet (see [`crate::claim::marks`]). What is done
/// first gives it one. So the look that moves them comes before: a worker that always returns and owns in one call
/// would walk all that it has ever been granted otherwise, for as long as somebody holds a snapshot. What is due by that
/// look is looked after by the claim, which finds the signals that came since by itself.
pub(super) fn own_after<T>(
    request: &Request,
    with_results: bool,
    first: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Grant>)> {
    let looked = (!session::has_transaction_id()).then(|| {
        let numbers: Vec<i32> = actions::for_claim(&request.actions).iter().map(|a| a.action_no).collect();
        let due = upkeep::look(&numbers, clock::now());
        (numbers, due)
    });
    let done = first()?;
    // Names may be new, and lanes may have entries, by what was done.
    let mut look = Look::of(actions::for_claim(&request.actions));
    let numbers = look.action_nos();
    let looked = looked.filter(|(of, _)| *of == numbers).map(|(_, due)| due);
    attempt(request, &mut look, &numbers, &LeftOut::default(), false, looked);
    leave(&look, &mut None, request.max_tasks);
    if look.upkeep.expired {
        retention::keep_up(look.grants.len());
    }
    if !look.grants.is_empty() {
        seal::keep_up();
    }
    if with_results {
        fetch_results(&mut look.grants);
    }
    Ok((done, look.grants))
}

/// What a look has come to.
struct Look {
    grants: Vec<Grant>,
    upkeep: Upkeep,
    actions: Vec<Action>,
    /// It has counted signals, perhaps for others only.
    counted_for_others: bool,
    /// If nothing has come of it: when there will be something to do.
    due: Option<Time>,
}

impl Look {
    fn of(actions: Vec<Action>) -> Self {
        Look { grants: Vec::new(), upkeep: Upkeep::default(), actions, counted_for_others: false, due: None }
    }

    fn action_nos(&self) -> Vec<i32> {
        self.actions.iter().map(|a| a.action_no).collect()
    }
}

/// Looks, and looks again after each sleep, until there is something to return or the time is up. Also
/// tells what the last look has left to the end of the call.
fn look_until(request: &Request, waiter: &mut Option<Waiter>) -> Result<(Vec<Grant>, Upkeep)> {
    let mut looks = Looks { again: WARY.get(), ..Looks::default() };
    loop {
        let mut found = match waiter {
            Some(waiter) => looks.without_trace(request, waiter),
            None => look(request, None, &mut LeftOut::default(), false),
        };
        let over = !found.grants.is_empty() || request.max_tasks == 0;
        if let Some(waiter) = waiter.as_mut().filter(|_| found.counted_for_others) {
            waiter.leaves_signals();
        }
        if waiter.as_mut().is_some_and(|waiter| !over && waiter.sleep(found.due)) {
            continue;
        }
        if waiter.is_some() {
            WARY.set(looks.owing);
            if !over && looks.owing {
                // The time is up, and nothing that is changed now is held back.
                found = look(request, None, &mut LeftOut::default(), false);
            }
        }
        leave(&found, waiter, request.max_tasks);
        return Ok((found.grants, found.upkeep));
    }
}

thread_local! {
    /// The last call that waited has met entries that may not run. The next one reads before it takes from the beginning:
    /// where such entries keep coming, a call would meet some with its first look, and sleep with a transaction id.
    static WARY: Cell<bool> = const { Cell::new(false) };
}

/// The looks of a call that may go to sleep: what comes to nothing leaves no trace.
///
/// What such a look has moved out of the way, or looked after, others could not see before the call ends, nor change: a
/// resume of a group would wait for the sleeper. So it is rolled back, and whoever has a use for it does it himself: he
/// knows as well when it is due. Entries that may not run are left out of the looks that follow, so that they are not met
/// again ([`LeftOut`]). What is owed to others is done by the last look, when the time is up.
#[derive(Default)]
struct Looks {
    left_out: LeftOut,
    /// The call has looked before, or knows that it may be in vain.
    again: bool,
    /// A look was rolled back, or has left something out.
    owing: bool,
}

impl Looks {
    /// A look that takes no lock and no transaction id where there is nothing for it, but for the first. That is the one of
    /// calls that find something at once.
    ///
    /// If nothing comes of it, it is rolled back, and so nobody sleeps on a lock. A statement with SKIP LOCKED may lock a
    /// row and then leave it out: if another session has changed the row since the statement's snapshot (granted the task,
    /// say) and committed, its newest version is locked first and found unsuitable then. The lock stays. Asleep with it,
    /// we would make the return of that task wait for the end of our sleep; the end of the subtransaction gives it up. So
    /// it does with slots that were locked for entries which others took: those who are woken for the slots would find
    /// none. And so it does with the tables, which a VACUUM FULL or an upgrade may want for itself.
    fn without_trace(&mut self, request: &Request, waiter: &mut Waiter) -> Look {
        waiter.before_look();
        let reading = std::mem::replace(&mut self.again, true);
        let mut found = self.attempt(request, waiter, reading);
        if found.grants.is_empty() && found.upkeep.moved {
            // It may have ended for all that is in its way. What comes behind that?
            found = self.attempt(request, waiter, true);
        }
        self.owing |= !self.left_out.is_empty();
        found
    }

    fn attempt(&mut self, request: &Request, waiter: &mut Waiter, reading: bool) -> Look {
        let left_out = &mut self.left_out;
        let looked = session::all_or_nothing(|| {
            tables::hold();
            let look = look(request, Some(waiter), left_out, reading);
            if look.grants.is_empty() { Err(look) } else { Ok(look) }
        });
        looked.unwrap_or_else(|mut look| {
            self.owing |= look.upkeep.changed || look.upkeep.moved;
            if let Some(grants) = after_a_rollback(request, &look.actions, &self.left_out) {
                look.grants = grants;
            }
            look
        })
    }
}

/// Signals that came while the look had their counters locked were left to it. If what they free can be owned, that is
/// what the call comes back with; else they stay for whoever calls next, and the background worker is told.
fn after_a_rollback(request: &Request, actions: &[Action], left_out: &LeftOut) -> Option<Vec<Grant>> {
    if !touched::has_touched() {
        return None;
    }
    let looked = session::all_or_nothing(|| {
        if !commit::look_now() {
            return Err(false);
        }
        let mut grants = Vec::new();
        claim(request, actions, clock::now(), left_out, &mut grants);
        if grants.is_empty() { Err(true) } else { Ok(grants) }
    });
    if looked.as_ref().is_err_and(|left| *left) {
        board::tell(wall());
    }
    looked.ok()
}

/// One look: upkeep, then the claim, and again while upkeep may have left something due behind. `reading`: only if there
/// is something for it, as far as can be told without a lock.
fn look(request: &Request, waiter: Option<&mut Waiter>, left_out: &mut LeftOut, reading: bool) -> Look {
    let mut look = Look::of(actions::for_claim(&request.actions));
    let action_nos = look.action_nos();
    let waiting = waiter.is_some();
    if let Some(waiter) = waiter {
        waiter.register(wake::channels_for_work(&request.actions, &action_nos));
    }
    let now = clock::now();
    let mut worth_it = true;
    if reading {
        let due = upkeep::look(&action_nos, now);
        look.upkeep.expired = due.expired;
        let open: Vec<&Action> = look.actions.iter().filter(|a| !a.paused).collect();
        worth_it = left_out.walk(&open, now) || due.any();
    }
    if worth_it {
        attempt(request, &mut look, &action_nos, left_out, waiting, None);
    }
    if waiting && look.grants.is_empty() {
        let rates = actions::next_grant(&look.actions, clock::now());
        // What was due was looked at in vain: whoever has a use for it commits it. What somebody has in hand is looked at
        // again.
        let looked_at = look.upkeep.looked_at.filter(|_| look.upkeep.changed || look.upkeep.stale);
        let overdue = look.upkeep.busy.then(clock::now);
        let due = upkeep::next_due(&action_nos, looked_at);
        look.due = due.into_iter().chain(overdue).chain(rates).chain(left_out.until()).min();
        if left_out.is_empty() && !look.upkeep.moved {
            upkeep::note_passed_over(&look.actions);
        }
    }
    look
}

/// `looked`: what is due was looked for before.
fn attempt(
    request: &Request,
    look: &mut Look,
    action_nos: &[i32],
    left_out: &LeftOut,
    waiting: bool,
    mut looked: Option<Due>,
) {
    let Look { grants, upkeep: total, actions, counted_for_others, .. } = look;
    loop {
        let now = clock::now();
        let room = request.max_tasks - grants.len();
        let upkeep = upkeep::before_claim(action_nos, room, waiting, looked.take(), now);
        total.changed |= upkeep.changed;
        total.expired |= upkeep.expired;
        total.busy |= upkeep.busy;
        total.stale |= upkeep.stale;
        total.signals |= upkeep.signals;
        total.looked_at = upkeep.looked_at;
        total.moved |= claim(request, actions, now, left_out, grants);
        if grants.len() >= request.max_tasks || !upkeep.more {
            break;
        }
    }
    // What a waiting call counts for others it undoes, if it has no use for it, and does again at its end.
    let counts = || match waiting {
        true => total.signals && upkeep::fold_due(clock::now()),
        false => upkeep::fold(clock::now()),
    };
    if grants.len() < request.max_tasks && counts() {
        *counted_for_others = true;
        // Signals that nobody had counted: what they have freed may be ours.
        total.changed = true;
        total.moved |= claim(request, actions, clock::now(), left_out, grants);
    }
    if grants.is_empty() && total.changed {
        // What upkeep has made, a run of a schedule for instance, may be the first task of its action.
        let named = actions::for_claim(&request.actions);
        if named.len() > actions.len() {
            *actions = named;
            total.moved |= claim(request, actions, clock::now(), left_out, grants);
        }
    }
    grants.sort_by_key(|g| (std::cmp::Reverse(g.priority), g.position));
}

/// What the call owes to others at its end, see [`wake`].
fn leave(look: &Look, waiter: &mut Option<Waiter>, max_tasks: usize) {
    let (granted, waiting) = (look.grants.len(), waiter.is_some());
    let full = granted > 0 && granted == max_tasks;
    let slept = waiter.as_ref().is_some_and(Waiter::slept);
    if let Some(waiter) = waiter {
        waiter.leave(look.grants.is_empty());
    }
    if !full && !waiting {
        return;
    }
    let action_nos = look.action_nos();
    wake::hand_on(&action_nos, waiting, || {
        // When a rate lets a task go again only those know who have looked.
        let rated: Vec<i32> = look.actions.iter().filter(|a| a.rate.is_some()).map(|a| a.action_no).collect();
        let mut left = match full {
            true => upkeep::left_behind(&action_nos, true, slept.then(clock::now)),
            false => upkeep::left_behind(&rated, slept, None),
        };
        if slept && !full {
            left.extend(upkeep::left_behind(&action_nos, false, Some(clock::now())));
        }
        if full {
            left.extend(lanes::with_entries(look.actions.iter()));
        }
        // The actions are in the order of their numbers.
        let action =
            |n: i32| look.actions.binary_search_by_key(&n, |a| a.action_no).ok().map(|at| &look.actions[at]);
        left.retain(|n| *n == 0 || action(*n).is_some_and(Action::lets_one_go_in_time));
        // What limits allow is locked by this call until its commit.
        let (limited, left): (Vec<i32>, Vec<i32>) =
            left.into_iter().partition(|n| action(*n).is_some_and(Action::is_chosen_from));
        limited.into_iter().for_each(wake::ready_soon);
        left
    });
}

fn check_max_tasks(max_tasks: i32) -> Result<usize> {
    usize::try_from(max_tasks)
        .map_err(|_| Refusal::out_of_range("max_tasks", &max_tasks.to_string(), "Ask for 0 tasks or more."))
}

/// The names, none of which may be NULL.
pub(crate) fn check_actions(actions: Vec<Option<String>>) -> Result<Vec<String>> {
    actions.into_iter().map(|action| required("actions", action)).collect()
}

/// What the dependencies of tasks left, in the order in which they were inserted. A jsonb array holds 256 MB;
/// what is larger is NULL, and to be read with `dependency_results`. Compressed sizes are looked at first:
/// 700 kB cannot be more than 200 MB.
static RESULTS: Statement<&[TaskNo], (TaskNo, Option<JsonText>)> = Statement::new(
    c"SELECT u.task_no,
             CASE WHEN z.size <= 200000000 THEN COALESCE(r.results, '[]') END
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (
             SELECT CASE WHEN pg_catalog.sum(pg_catalog.pg_column_size(s.result)) > 700000
                         THEN pg_catalog.sum(pg_catalog.octet_length(s.result::text) + 200)
                         ELSE 0 END AS size
               FROM taskq.dependency d
               JOIN taskq.settled s ON s.task_no = d.after_no
              WHERE d.run_no = u.task_no OFFSET 0) AS z
        LEFT JOIN LATERAL (
             SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                        'task_id', t.id, 'action', a.name,
                        'status_code', CASE s.code WHEN 'c' THEN 'completed' ELSE 'aborted' END,
                        'status', s.status, 'result', s.result) ORDER BY d.after_no) AS results
               FROM taskq.dependency d
               JOIN taskq.settled s ON s.task_no = d.after_no
               JOIN taskq.task t ON t.task_no = d.after_no
               JOIN taskq.action a ON a.action_no = t.action_no
              WHERE d.run_no = u.task_no AND z.size <= 200000000 OFFSET 0) AS r ON true",
);

fn fetch_results(grants: &mut [Grant]) {
    if grants.is_empty() {
        return;
    }
    let task_nos: Vec<TaskNo> = grants.iter().map(|g| g.task_no).collect();
    let mut results: std::collections::HashMap<TaskNo, Option<JsonText>> =
        RESULTS.query(task_nos).into_iter().collect();
    for grant in grants {
        grant.results = results.remove(&grant.task_no).flatten();
    }
}
