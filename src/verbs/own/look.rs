//! One look for tasks: a step of what is due is done and tasks are claimed, in a transaction that keeps both.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::background;
use crate::claim::{Grant, Request, claim, marks};
use crate::clock;
use crate::flow::actions::{self, Action};
use crate::pg::block::in_transaction_block;
use crate::pg::clock::Time;
use crate::pg::session;
use crate::upkeep::{self, Due};
use crate::wake::lately;

/// What a look has come to.
#[derive(Default)]
pub(super) struct Look {
    /// What the call was granted so far.
    pub(super) grants: Vec<Grant>,
    /// The actions that it asks for, in the order of their numbers, as they were when they were last looked
    /// up.
    pub(super) actions: Vec<Action>,
    /// Settled tasks were found whose retention is over.
    pub(super) expired: bool,
}

impl Look {
    /// One for these actions, as they are now.
    pub(super) fn of(request: &Request) -> Self {
        Look { actions: actions::for_claim(&request.actions), ..Look::default() }
    }

    /// The numbers of the actions, in ascending order.
    pub(super) fn action_nos(&self) -> Vec<i32> {
        self.actions.iter().map(|a| a.action_no).collect()
    }
}

/// Does a step of what is due, and claims. `looked`: what is due was looked for before. `granted_from`: what is in the look was granted
/// from that moment on.
pub(super) fn look(request: &Request, look: &mut Look, looked: Option<Due>, granted_from: Option<Time>) {
    let mut granted_from = granted_from;
    if request.max_tasks > 0 && looked.is_none() && nothing_was_due(&look.actions) {
        let now = clock::now();
        claim(request, &look.actions, now, &mut look.grants);
        granted_from = (!look.grants.is_empty()).then_some(now);
        if look.grants.len() >= request.max_tasks {
            return sort(&mut look.grants);
        }
    }
    let (now, numbers) = (clock::now(), look.action_nos());
    let due = looked.unwrap_or_else(|| upkeep::look(&numbers, now));
    look.expired |= due.expired;
    // What this call has been granted may be for less time than the call takes: it must not end such a try, and grant the task to the
    // same caller once more.
    let until = granted_from.map_or(now, |at| at - Duration::from_micros(1));
    let room = request.max_tasks.saturating_sub(look.grants.len());
    if keep_up(&due.before_claim(), &numbers, room, until) {
        // What upkeep has made, such as a run of a schedule, may be the first task of its action, and what it has made ready the
        // first entry in a lane: it has its place in the order of what is granted.
        look.actions = actions::for_claim(&request.actions);
    }
    claim(request, &look.actions, now, &mut look.grants);
    sort(&mut look.grants);
}

/// A call with less time than that may be cut off by the steps of upkeep.
const SHORT_TIME_OUT: Duration = Duration::from_secs(1);

/// For how long a session leaves the steps to the worker after one of its calls was cut off in them.
const AFTER_CUT_OFF: Duration = Duration::from_secs(60);

thread_local! {
    /// When the last call that has done steps began with them, if it has not come to their end.
    static CUT_OFF: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Does a step of each kind that is due, for a claim that has room for so many tasks, and has the worker of the database do the rest.
/// In a transaction that may stay open what is done is kept from others, and a call that is cut off by its caller's time-out has done
/// nothing, as the next one will: there the worker does all that is not for this claim, if one can be called. How long a step takes is
/// not known before: what depends on one task may be any number. So a session that was cut off does not try again soon. Whether anything
/// has changed.
pub(crate) fn keep_up(due: &Due, action_nos: &[i32], room: usize, now: Time) -> bool {
    if !due.any() && !due.expired {
        return false;
    }
    let is_short = session::statement_time_left().is_some_and(|left| left < SHORT_TIME_OUT);
    let was_cut_off = CUT_OFF.get().is_some_and(|at| at.elapsed() < AFTER_CUT_OFF);
    let in_vain = in_transaction_block() || is_short || was_cut_off;
    let leaves = in_vain && due.is_for_worker() && background::call();
    if !leaves {
        CUT_OFF.set(Some(Instant::now()));
    }
    let part = if leaves { due.for_call() } else { *due };
    let did = background::or_by_worker(|| upkeep::keep_up(&part, action_nos, room, now));
    if !leaves {
        CUT_OFF.set(None);
    }
    if did.more {
        background::call();
    }
    did.done
}

/// Whether a claim of these actions may come before a look at what is due: there was nothing a moment ago, and no limit is to be
/// asked.
pub(super) fn nothing_was_due(actions: &[Action]) -> bool {
    let numbers: Vec<i32> = actions.iter().map(|a| a.action_no).collect();
    let may_do_without = !actions.iter().any(Action::is_chosen_from) && lately::nothing_was_due(&numbers);
    if may_do_without {
        marks::without_look();
    }
    may_do_without
}

/// Higher priorities first, each in the order of positions.
pub(super) fn sort(grants: &mut [Grant]) {
    grants.sort_by_key(|g| (std::cmp::Reverse(g.priority), g.position));
}
