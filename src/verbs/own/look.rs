//! One look for tasks: what is due is done and tasks are claimed, in a transaction that keeps both.

use std::time::Duration;

use crate::allowance::Allowance;
use crate::background;
use crate::claim::{Grant, Request, claim, marks};
use crate::clock;
use crate::flow::actions::{self, Action};
use crate::pg::block::in_transaction_block;
use crate::pg::clock::Time;
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

/// How many rounds of upkeep and claim a call makes at most that grant it nothing. There may be any number of tasks that are due, and
/// may not run; a call that is cut off by its caller's time-out has done nothing. The next call goes on from there.
const MOST_IN_VAIN: usize = 5;

/// How often a call counts signals that are not counted yet at most, for something of its own behind those of others; in a
/// transaction block once.
const MOST_ROUNDS: usize = 25;

/// Does what is due, and claims, several times if upkeep may have left something due behind and there is room. `looked`: what is due
/// was looked for before. `granted_from`: what is in the look was granted from that moment on.
pub(super) fn look(request: &Request, look: &mut Look, looked: Option<Due>, granted_from: Option<Time>) {
    let mut first_grant = granted_from;
    if request.max_tasks > 0 && looked.is_none() && nothing_was_due(&look.actions) {
        let now = clock::now();
        claim(request, &look.actions, now, &mut look.grants);
        first_grant = (!look.grants.is_empty()).then_some(now);
        if look.grants.len() >= request.max_tasks {
            return sort(&mut look.grants);
        }
    }
    if keep_up_and_claim(request, look, looked, first_grant) {
        background::begin_call();
        background::call_if(true);
    }
    // What a transaction that may stay open counts, others have to leave to it.
    let rounds = if in_transaction_block() { 1 } else { MOST_ROUNDS };
    for _ in 0..rounds {
        if look.grants.len() >= request.max_tasks || !upkeep::fold(clock::now()) {
            break;
        }
        // Signals were counted that others had left. A task that this has freed may be one that the call asks for.
        look_anew(request, look);
        claim(request, &look.actions, clock::now(), &mut look.grants);
    }
    sort(&mut look.grants);
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

/// Upkeep and claim by turns. Whether something is due that is left to a process that commits.
///
/// What this call has granted may be for less time than the call takes: it must not end such a try, and grant the task to the same
/// caller once more. So once it has granted something, it looks after deadlines before that moment only.
fn keep_up_and_claim(
    request: &Request,
    look: &mut Look,
    mut looked: Option<Due>,
    mut first_grant: Option<Time>,
) -> bool {
    let numbers = look.action_nos();
    let (mut in_vain, mut left) = (0, false);
    let time = Allowance::half_of_time_out();
    loop {
        let now = clock::now();
        let had = look.grants.len();
        let due = first_grant.map_or(now, |at| at - Duration::from_micros(1));
        let room = request.max_tasks.saturating_sub(had);
        let upkeep = upkeep::before_claim(&numbers, room, looked.take(), due);
        look.expired |= upkeep.expired;
        left |= upkeep.left;
        if upkeep.changed {
            look_anew(request, look);
        }
        claim(request, &look.actions, now, &mut look.grants);
        in_vain += usize::from(look.grants.len() == had);
        let enough = look.grants.len() >= request.max_tasks || in_vain >= MOST_IN_VAIN;
        if enough || !upkeep.more || time.is_used_up() {
            return left;
        }
        first_grant = first_grant.or((!look.grants.is_empty()).then_some(now));
    }
}

/// What upkeep has made, a run of a schedule for instance, may be the first task of its action, and what it has made ready the first
/// entry in a lane: it has its place in the order of what is granted.
fn look_anew(request: &Request, look: &mut Look) {
    look.actions = actions::for_claim(&request.actions);
}

/// Higher priorities first, each in the order of positions.
pub(super) fn sort(grants: &mut [Grant]) {
    grants.sort_by_key(|g| (std::cmp::Reverse(g.priority), g.position));
}
