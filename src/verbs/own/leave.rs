//! The end of a call: what it leaves to others.

use super::look::Look;
use crate::claim::{lanes, left_behind};
use crate::clock;
use crate::flow::actions::Action;
use crate::verbs::waiter::Waiter;
use crate::wake;

/// What the call owes to others at its end, see [`wake`].
pub(super) fn leave(look: &Look, waiter: &mut Option<Waiter>, max_tasks: usize) {
    let (granted, waiting) = (look.grants.len(), waiter.is_some());
    let full = granted > 0 && granted == max_tasks;
    let slept = waiter.as_ref().is_some_and(Waiter::has_heard);
    if let Some(waiter) = waiter {
        waiter.leave(look.grants.is_empty());
    }
    if !full && !waiting {
        return;
    }
    let action_nos = look.action_nos();
    wake::hand_on(&action_nos, waiting, || {
        // When a rate lets a task go again only calls that have looked know.
        let rated: Vec<i32> = look.actions.iter().filter(|a| a.rate.is_some()).map(|a| a.action_no).collect();
        let mut left = match full {
            true => left_behind(&action_nos, true, slept.then(clock::now)),
            false => left_behind(&rated, slept, None),
        };
        if slept && !full {
            left.extend(left_behind(&action_nos, false, Some(clock::now())));
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
        limited.into_iter().for_each(wake::ready);
        left
    });
}
