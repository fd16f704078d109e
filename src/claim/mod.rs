//! Claiming: which entries a call is granted.
//!
//! **No grant waits, and no task is granted twice.** An entry is changed where the look has found it, or passed over
//! where somebody else has it or has changed it since ([`take`]). A look may come up short for that although more is there,
//! and then the loop in [`claim`] tries again.
//!
//! A claim begins at its [`marks`], before which there is nothing to be had.
//!
//! What concerns a whole action (paused, its limits full) or a whole group (its limits full, another's turn) is
//! looked at before its range is walked. What concerns single entries (their group is paused, their workgroup or
//! merge key) is looked at once they are taken, by the [`gates`]: what may not run is moved out of the way, once, not
//! once per call.

mod allowance;
mod candidates;
mod gates;
mod lane_marks;
pub(crate) mod lanes;
pub(crate) mod left_out;
mod limited;
pub(crate) mod marks;
mod merge;
mod sweep;
mod take;
mod turns;

use std::collections::HashSet;

use pgrx::datum::Interval;

use crate::claim::left_out::LeftOut;
use crate::flow::actions::Action;
use crate::number::{Lane, Position, TaskNo};
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::{check_for_interrupts, random_62_bits};
use crate::store::lease;
use crate::store::slot::Limit;
use crate::token::{Base, Nonce};
use crate::wake;

/// What a call asks for.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) actor_id: String,
    pub(crate) max_tasks: usize,
    pub(crate) actions: Vec<String>,
    pub(crate) max_duration: Option<Interval>,
    /// Whether it only wants to know: what it is granted is rolled back, and nothing is to be left of it.
    pub(crate) trial: bool,
}

/// A task that a call is granted.
pub(crate) struct Grant {
    pub(crate) task_no: TaskNo,
    pub(crate) nonce: Nonce,
    pub(crate) id: String,
    pub(crate) action: String,
    pub(crate) body: Option<String>,
    pub(crate) metadata: Option<JsonText>,
    pub(crate) checkpoint: Option<JsonText>,
    pub(crate) results: Option<JsonText>,
    pub(crate) tries: i32,
    pub(crate) failures: i32,
    pub(crate) deadline: Time,
    pub(crate) priority: i32,
    pub(crate) position: Position,
    action_no: i32,
    lane: Lane,
    dependencies: i32,
    gated: bool,
    /// Its deadline had passed, and the actor that had it may still return it.
    overdue: bool,
    group_id: Option<String>,
    workgroup: Option<String>,
    merge_key: Option<String>,
}

/// When a call has moved so many entries out of its way it moves no more, and ends with what it has: twice as many at most, since
/// what it moves at a time grows.
const MOST_MOVES: usize = 20_000;

/// A claim under way.
struct Claim<'a> {
    request: &'a Request,
    /// In ascending order of their numbers.
    actions: &'a [Action],
    base: Base,
    now: Time,
    moves: usize,
    /// What keeps entries back, and where such were met.
    found: sweep::Found,
    /// Actions of which entries were met that belong into lanes, and these entries, which are in lanes now.
    to_lanes: HashSet<i32>,
    moved_into_lanes: Vec<TaskNo>,
}

/// Whether a task was given a slot of a limit.
type HasSlot<'a> = &'a dyn Fn(TaskNo, &Limit) -> bool;

/// Grants as many as there is room for, beyond those in `grants`. Tells whether it has moved entries out of
/// its way, which others should see soon.
///
/// What is `left_out` has been looked at, and may not run.
pub(crate) fn claim(
    request: &Request,
    actions: &[Action],
    now: Time,
    left_out: &LeftOut,
    grants: &mut Vec<Grant>,
) -> bool {
    let open: Vec<&Action> = actions.iter().filter(|a| !a.paused).collect();
    let first = grants.len();
    merge::begin();
    if open.is_empty() || first >= request.max_tasks {
        return false;
    }
    let mut claim = Claim {
        request,
        actions,
        base: Base(random_62_bits()),
        now,
        moves: 0,
        found: sweep::Found::default(),
        to_lanes: HashSet::new(),
        moved_into_lanes: Vec::new(),
    };
    // Entries are left out by choosing others.
    let choosing = !left_out.is_empty() || open.iter().any(|a| a.is_chosen_from());
    if !choosing {
        claim.unlimited(&open.iter().map(|a| a.action_no).collect::<Vec<_>>(), grants);
    }
    // A group may have got a limit since its tasks came.
    if choosing || !claim.to_lanes.is_empty() {
        limited::claim(&mut claim, &open, left_out, grants);
    }
    if !request.trial {
        let granted: Vec<(Time, TaskNo)> = grants[first..].iter().map(|g| (g.deadline, g.task_no)).collect();
        lease::record(&granted, claim.base);
        marks::learn(&grants[first..]);
        merge::end();
    }
    claim.moves > 0
}

impl Claim<'_> {
    fn unlimited(&mut self, action_nos: &[i32], grants: &mut Vec<Grant>) {
        let ranges = marks::ranges_of_look(action_nos);
        let mut depth = 0;
        let mut more = true;
        while more && grants.len() < self.request.max_tasks && self.moves < MOST_MOVES {
            check_for_interrupts();
            let room = self.request.max_tasks - grants.len();
            depth = room.max(depth).saturating_mul(2);
            let taken = take::in_order(self, &ranges, room, depth);
            more = taken.more;
            if !self.request.trial {
                wake::taken(taken.grants.iter().map(|g| g.action_no));
            }
            grants.extend(self.admit(taken.grants, &|_, _| false));
            sweep::sweep(self);
            if !self.to_lanes.is_empty() {
                break;
            }
        }
    }

    /// Those of the entries that may run; the others are moved out of the way.
    fn admit(&mut self, taken: Vec<Grant>, has_slot: HasSlot) -> Vec<Grant> {
        if !taken.iter().any(|g| g.gated) {
            return taken;
        }
        merge::taken(&taken);
        gates::admit(self, taken, has_slot)
    }

    fn action(&self, action_no: i32) -> Option<&Action> {
        let at = self.actions.binary_search_by_key(&action_no, |a| a.action_no).ok()?;
        Some(&self.actions[at])
    }
}
