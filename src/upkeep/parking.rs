//! Entries that may not run are moved out of the way of waiting calls, which leave them where they are: by upkeep in steps, and by a
//! waiting call that has been granted something, and so ends.

use super::look::look;
use super::step::Step;
use crate::claim::may_run::Taking;
use crate::claim::{Moved, Request, claim, lanes, left_behind};
use crate::flow::actions::{Action, for_claim};
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::subtransaction;
use crate::wake;

static NAMES: Statement<(), (i32, String)> =
    Statement::new(c"SELECT a.action_no, a.name FROM taskq.action a ORDER BY a.action_no");

/// Moves a part of what stands before the first entry that may run, of each action that a call waits for and that
/// lets one go.
pub(super) fn step(now: Time) -> Step {
    let mut names: Vec<String> =
        NAMES.query(()).into_iter().filter(|(n, _)| wake::is_waited_for(*n)).map(|(_, name)| name).collect();
    names.dedup();
    if names.is_empty() {
        return Step { done: false, more: false };
    }
    let actions: Vec<Action> = for_claim(&names).into_iter().filter(|a| a.lets_one_go(now)).collect();
    let action_nos: Vec<i32> = actions.iter().map(|a| a.action_no).collect();
    // So that the walk does not begin at the beginning.
    look(&action_nos, now);
    let mut ready = left_behind(&action_nos, true, None);
    ready.extend(lanes::with_entries(actions.iter()));
    let mut moved = false;
    for action in actions.iter().filter(|a| ready.contains(&a.action_no)) {
        check_for_interrupts();
        moved |= clear(action, now);
    }
    Step { done: moved, more: moved }
}

/// Moves a part of what stands before the first entry of one action that may run; whether it has moved any.
pub(crate) fn clear(action: &Action, now: Time) -> bool {
    let request = Request::trial(Taking::Parkable);
    // What has become free since it was looked at is not granted here.
    let cleared = subtransaction::all_or_nothing(|| {
        let mut grants = Vec::new();
        let moved = claim(&request, std::slice::from_ref(action), now, &mut grants);
        if grants.is_empty() && moved.any { Ok(moved) } else { Err(()) }
    });
    // What stands behind what was moved a waiting call has not come to, it may be.
    if let Ok(Moved { free: true, .. }) = cleared {
        wake::ready(action.action_no);
    }
    cleared.is_ok()
}
