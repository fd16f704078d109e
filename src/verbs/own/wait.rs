//! A call that waits: it registers, looks, claims, sleeps, and looks again.
//!
//! **While it waits it does nothing for others.** It is one statement, and what it changes is not seen by others before it ends. So
//! a look that grants nothing is rolled back. Except in a race it takes no transaction id either. What is due the call leaves to a
//! process that commits ([`background::call_if`]), whose commit wakes it as any other does.
//! There is one exception: a task of its own actions whose time has come, and that may run, it makes ready itself, to be granted at
//! once.
//!
//! **That process may be missing.** Then a call does what is due when its time is up, as one that does not wait.

use std::time::{Duration, Instant};

use super::look::{self, Look, look, nothing_was_due};
use crate::claim::may_run::{self, Taking};
use crate::claim::{Grant, Moved, Request, claim, note_passed_over};
use crate::clock;
use crate::error::Result;
use crate::flow::actions::{Action, next_grant};
use crate::locks::tables;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::subtransaction::{self, unless_others_were_faster};
use crate::rights::{self, Doing};
use crate::upkeep::{self, Due, Next};
use crate::verbs::waiter::Waiter;
use crate::wake;

/// A call whose look has gone past entries that may not run rests for so many times as long as the look has taken.
const REST: u32 = 9;

/// How long a call rests after such a look, up to `longest`: a commit wakes no call for what is due later than that.
fn rest(took: Duration, longest: Duration) -> Duration {
    took.saturating_mul(REST).min(longest)
}

/// How soon a look comes again for what others were faster to take.
const OUTRUN: Duration = Duration::from_millis(100);

/// Looks until there is something to return or the time is up; once, if no task is asked for.
pub(super) fn wait(request: &Request, waiter: &mut Waiter) -> Result<Look> {
    let free = Request { taking: Taking::Free, ..request.clone() };
    loop {
        let began = clock::now();
        waiter.before_look();
        let (mut found, due, next) = look_once(&free, waiter);
        if !found.grants.is_empty() || request.max_tasks == 0 {
            if due.any() {
                // The call ends: what is due it does in part, as one that does not wait.
                look(request, &mut found, Some(due), Some(began));
            }
            if next.owed {
                // Else the next call would go past the same entries. What it has been granted does not hang on that.
                let now = clock::now();
                unless_others_were_faster(|| {
                    for action in &found.actions {
                        upkeep::parking::clear(action, now);
                    }
                });
            }
            return Ok(found);
        }
        let goes_on = waiter.sleep(next);
        rights::after_sleep("taskq.own_tasks")?;
        rights::check_actions(Doing::Work, request.actions.iter().map(String::as_str))?;
        if goes_on {
            continue;
        }
        if next.owed && !waiter.is_stopped() {
            look(request, &mut found, None, None);
        }
        return Ok(found);
    }
}

/// Looks once, and keeps what it is granted, or nothing at all: it has no lock on a row then. Those on tables it gives up as well, for
/// a VACUUM FULL or an upgrade.
///
/// A statement with SKIP LOCKED may lock a row and then leave it out: if another session has changed the row since the statement's
/// snapshot (such as granted the task) and committed, its newest version is locked first and found unsuitable then. The
/// lock stays. Asleep with it, the call would make the return of that task wait for the end of its sleep.
fn look_once(request: &Request, waiter: &mut Waiter) -> (Look, Due, Next) {
    let looked = subtransaction::all_or_nothing(|| {
        tables::hold();
        let mut look = Look::of(request);
        waiter.register(wake::channels_for_work(&request.actions, &look.action_nos()));
        let (due, next) = look_for_work(request, &look.actions, &mut look.grants);
        look::sort(&mut look.grants);
        look.expired = due.expired;
        if look.grants.is_empty() { Err(Box::new((look, due, next))) } else { Ok((look, due, next)) }
    });
    looked.unwrap_or_else(|looked| *looked)
}

/// Claims what may run. What else is due, unless that was not looked for; and if nothing was to be had, until when there is nothing to
/// do.
///
/// To be called in a subtransaction that is rolled back if nothing comes of it.
pub(crate) fn look_for_work(request: &Request, actions: &[Action], grants: &mut Vec<Grant>) -> (Due, Next) {
    let numbers: Vec<i32> = actions.iter().map(|a| a.action_no).collect();
    if nothing_was_due(actions) {
        let claimed = claim(request, actions, clock::now(), grants);
        if grants.len() >= request.max_tasks || claimed.may_not_run && !grants.is_empty() {
            return (Due::default(), Next { owed: claimed.may_not_run, ..Next::default() });
        }
    }
    let (now, began) = (clock::now(), Instant::now());
    let due = upkeep::look(&numbers, now);
    if due.tasks {
        release(actions, request.max_tasks, now);
    }
    let claimed = claim(request, actions, now, grants);
    if !grants.is_empty() {
        return (due, Next { owed: claimed.may_not_run, ..Next::default() });
    }
    // The next look would go past the same entries again.
    let rest =
        if claimed.may_not_run { rest(began.elapsed(), wake::longest_sleep()) } else { Duration::ZERO };
    (due, Next { rest, ..next(actions, &numbers, &due, &claimed) })
}

/// Tasks of some actions that are due, timers aside, so many of each at most.
static DUE: Statement<(&[i32], Time, i32), (TaskNo, i32)> = Statement::new(
    c"SELECT s.task_no, a.action_no
        FROM unnest($1) AS a(action_no)
       CROSS JOIN LATERAL (SELECT s.task_no FROM taskq.scheduled s
                            WHERE s.action_no = a.action_no AND NOT s.timer AND s.due <= $2
                            ORDER BY s.due, s.position LIMIT $3) AS s",
);

/// How many due tasks of an action are asked about, if the call has no room for more; and at most. What is behind them is for others
/// to make ready.
const SOME_DUE: usize = upkeep::STEP as usize;
const MOST_DUE: usize = 10_000;

/// Makes tasks ready whose time has come and that nothing holds back: those that may be granted at once.
fn release(actions: &[Action], room: usize, now: Time) {
    // Where limits are to be asked nothing may be granted of it.
    let free: Vec<i32> =
        actions.iter().filter(|a| !a.paused && !a.is_chosen_from()).map(|a| a.action_no).collect();
    let most = room.clamp(SOME_DUE, MOST_DUE) as i32;
    let tasks = DUE.query((free, now, most));
    let named = |(task_no, action_no): &(TaskNo, i32)| {
        let action = actions.iter().find(|a| a.action_no == *action_no)?;
        Some((*task_no, action))
    };
    let free = may_run::free(tasks.iter().filter_map(named), now);
    if !free.is_empty() {
        unless_others_were_faster(|| upkeep::due::release_these(&free, now));
    }
}

/// When to look again after a look that has granted nothing.
fn next(actions: &[Action], numbers: &[i32], due: &Due, claimed: &Moved) -> Next {
    let now = clock::now();
    // What is due already is for others: when will the next be?
    let ahead = upkeep::next_task(numbers, now);
    let rates = next_grant(actions, now);
    let outrun = claimed.outrun.then(|| now + OUTRUN);
    if !claimed.may_not_run {
        note_passed_over(actions);
    }
    let shared = Next::after(due, now);
    Next {
        due: ahead.into_iter().chain(rates).chain(outrun).chain(claimed.until).min(),
        owed: shared.owed || claimed.may_not_run,
        ..shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_never_longer_than_the_longest_sleep() {
        let longest = Duration::from_secs(30);
        assert_eq!(rest(Duration::from_millis(10), longest), Duration::from_millis(90));
        assert_eq!(rest(Duration::from_secs(4), longest), longest);
        assert_eq!(rest(Duration::MAX, longest), longest);
    }
}
