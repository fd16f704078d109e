//! Claiming: which entries a call is granted.
//!
//! **No grant waits for a row, and no task is granted to two calls at once.** An entry is changed where the look has
//! found it, or skipped if another transaction has it or has changed it since ([`take`]). A look may grant fewer for that
//! although more is there, and then the claim tries again for a while.
//!
//! A claim begins at its [`marks`], before which there is nothing to be granted.
//!
//! What concerns a whole action (paused, its limits full) or a whole group (its limits full, another's turn) is
//! checked before its range is scanned, and again where that may be out of date. What concerns single entries (their group is paused, their workgroup or merge
//! key) is checked once they are taken, by the [`gates`]: what may not run is moved out of the way, once, not once per
//! call. A claim that can keep nothing of that asks before as well ([`may_run`]).

mod call;
mod candidate;
mod candidates;
mod gates;
mod jumps;
mod lane_marks;
pub(crate) mod lanes;
mod left_behind;
mod limited;
pub(crate) mod marks;
pub(crate) mod may_run;
mod merge;
mod reasons;
mod reservations;
mod sleeper;
mod sweep;
mod take;
mod turns;
mod under_way;
mod way;

pub(crate) use call::{Grant, Request};
pub(crate) use left_behind::{left_behind, note_passed_over};

use std::time::{Duration, Instant};

use crate::flow::actions::Action;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::store::lease;
use crate::wake;
use call::Call;
use under_way::Claim;

/// What a claim has done besides granting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    /// It has moved entries out of its way, which others should see soon.
    pub(crate) any: bool,
    /// Others were faster, again and again: it has given up, and there may be something for it.
    pub(crate) outrun: bool,
    /// It has asked, and come to entries that may not run, or count as such.
    pub(crate) may_not_run: bool,
    /// When time ends the first of their reasons, if it does.
    pub(crate) until: Option<Time>,
    /// It takes what may not run, and has come to an entry that may.
    pub(crate) free: bool,
}

/// For how long a claim tries again where others are faster each time.
const MOST_OUTRUN: Duration = Duration::from_millis(50);

/// Grants up to as many as there is room for, beyond those in `grants`.
pub(crate) fn claim(request: &Request, actions: &[Action], now: Time, grants: &mut Vec<Grant>) -> Moved {
    let mut open: Vec<&Action> = actions.iter().filter(|a| !a.paused).collect();
    let call = Call::new(request, actions, now);
    if sleeper::has_no_id(&call) {
        // It would lock the bucket, or free slots of other limits, to see the same, and sleep with an id.
        open.retain(|a| a.lets_one_go(now));
    }
    let first = grants.len();
    merge::begin();
    if open.is_empty() || first >= request.max_tasks {
        return Moved::default();
    }
    let mut claim = Claim::new(call);
    let mut outrun = false;
    let choosing = open.iter().any(|a| a.is_chosen_from());
    if !choosing {
        outrun = unlimited(&mut claim, &open.iter().map(|a| a.action_no).collect::<Vec<_>>(), grants);
    }
    // A group may have got a limit since its tasks came.
    if choosing || claim.has_met_lanes() {
        limited::claim(&mut claim, &open, grants);
    }
    if !request.trial {
        let granted: Vec<(Time, TaskNo)> = grants[first..].iter().map(|g| (g.deadline, g.task_no)).collect();
        lease::record(&granted, claim.call.base);
        marks::learn(&grants[first..]);
        merge::end();
    }
    let asked = &claim.call.asked;
    Moved {
        any: claim.has_moved(),
        outrun,
        may_not_run: asked.has_met(),
        until: asked.until(),
        free: asked.has_met_free(),
    }
}

/// Takes entries that are in no lane, in their order. Tells whether it has given up since others are faster each time.
fn unlimited(claim: &mut Claim, action_nos: &[i32], grants: &mut Vec<Grant>) -> bool {
    let (max_tasks, before) = (claim.call.request.max_tasks, grants.len());
    let mut ranges = marks::ranges_of_look(action_nos);
    let mut depth = 0;
    let mut more = true;
    // Since when nothing has come of it.
    let mut in_vain: Option<Instant> = None;
    while more
        && grants.len() < max_tasks
        && claim.may_move()
        && !claim.call.asked.is_over(grants.len() > before)
    {
        check_for_interrupts();
        let room = max_tasks - grants.len();
        depth = room.max(depth).saturating_mul(2);
        let taken = take::in_order(&claim.call, &mut ranges, room, depth);
        more = taken.more;
        marks::has_walked(action_nos, &ranges, taken.pages, 4 * taken.grants.len());
        if !taken.grants.is_empty() {
            in_vain = None;
        } else if in_vain.get_or_insert_with(Instant::now).elapsed() > MOST_OUTRUN {
            return more;
        }
        if !claim.call.request.trial {
            wake::taken(taken.grants.iter().map(|g| g.action_no));
        }
        grants.extend(claim.admit(taken.grants, &|_, _| false));
        claim.sweep();
        if claim.has_met_lanes() {
            break;
        }
    }
    false
}
