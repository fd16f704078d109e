//! What a call for some actions does of what has passed: first what it can be granted itself, then a part of what there is for
//! others.
//!
//! What is done at once has to be short: a call that is given a second by its caller, and is cut off, has done nothing, and
//! the next one begins anew.

use super::Looked;
use super::end::{self, Done};
use super::leases::{self, Elapsed, Task, Window};
use super::passed_by;
use crate::allowance::Allowance;
use crate::pg::clock::Time;
use crate::store::contradiction;

/// A call for some actions, and how much it does.
pub(crate) struct Caller<'a> {
    /// The actions that it asks for.
    pub(crate) action_nos: &'a [i32],
    /// So many tasks of its own actions; with these it has enough.
    pub(crate) own: usize,
    /// So many of other actions, if its own have left room.
    pub(crate) others: usize,
}

/// A call that finds nothing for its actions in more windows than this remembers where it has come to.
const FEW_WINDOWS: usize = 2;

/// Looks after leases that have passed, from the deadline `start` on.
pub(crate) fn look_after(caller: &Caller, start: Time, now: Time) -> Looked {
    let mut walk =
        Walk { caller, now, looked: Looked::default(), ending: None, overdue: false, count: 0, first: None };
    let known = passed_by::known(caller.action_nos).filter(|reached| *reached > start);
    for (n, window) in leases::windows(known.unwrap_or(start), now, leases::LEASES_OF_A_WALK).enumerate() {
        if !walk.take(window, n) {
            break;
        }
    }
    if known.is_some() && walk.count < caller.own {
        // It skips, because of what it remembers, the first leases; each time it ends some of these, for no
        // other call may come.
        walk.first = leases::windows(start, now, leases::LEASES_OF_A_WALK).next().map(|window| window.leases);
    }
    walk.end_for_others()
}

/// A look under way.
struct Walk<'a> {
    caller: &'a Caller<'a>,
    now: Time,
    looked: Looked,
    /// For ending tries, since the first of its own.
    ending: Option<Allowance>,
    /// Tasks of its own actions are overdue.
    overdue: bool,
    /// How many it has ended.
    count: usize,
    /// The first leases that are left, of which a part is ended for others.
    first: Option<Vec<Elapsed>>,
}

impl Walk<'_> {
    /// Ends the call's own tries in the nth window. Whether to go on to the next.
    fn take(&mut self, window: Window, n: usize) -> bool {
        let action_nos = self.caller.action_nos;
        self.looked.more = window.is_cut;
        let reached = window.leases.last().map(Elapsed::deadline);
        let passed = self.looked.without_stale(window.leases);
        let concerns = |task: &Task| task.is_of(action_nos) && !contradiction::is_left(task.task_no);
        self.overdue |= passed.iter().flat_map(Elapsed::tasks).any(concerns);
        self.looked.of_others |= passed.iter().flat_map(Elapsed::tasks).any(|task| !task.is_of(action_nos));
        if let Some(reached) = reached.filter(|_| !self.overdue && n >= FEW_WINDOWS) {
            passed_by::remember(action_nos, reached);
        }
        let done = self.end_own(&passed);
        let enough = done.left;
        self.count += self.looked.add(done);
        self.first.get_or_insert(passed);
        self.count < self.caller.own && !enough
    }

    fn end_own(&mut self, passed: &[Elapsed]) -> Done {
        if !self.overdue {
            return Done::default();
        }
        let time = self.ending.get_or_insert_with(Allowance::quarter_of_time_out);
        let action_nos = self.caller.action_nos;
        end::some(passed, |task| task.is_of(action_nos), self.caller.own - self.count, time, self.now)
    }

    /// Ends a part of the others, as far as room and time are left. A call does not go on for others.
    fn end_for_others(self) -> Looked {
        let mut looked = self.looked;
        looked.more &= looked.goes_on();
        let room = self.caller.others.min(self.caller.own.saturating_sub(self.count));
        let time = self.ending.unwrap_or_else(Allowance::quarter_of_time_out);
        if room > 0 && !time.is_used_up() {
            looked.ended |= end::some(&self.first.unwrap_or_default(), |_| true, room, &time, self.now).ended;
        }
        looked
    }
}
