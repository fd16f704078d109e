//! Leases whose time has come.
//!
//! A task whose deadline has passed goes to the end of its priority *with its token*: until it is granted
//! again, a late return still succeeds. If that was its last try it is aborted instead.
//!
//! Nothing is waited for. A task whose row another transaction has locked just now, to return or extend it or to make
//! another depend on it, and one whose merge key or riders are locked, are looked at again a second later.

mod end;
mod holders;
mod leases;
mod of_use;
mod passed_by;

use std::collections::HashSet;
use std::time::Duration;

use end::Done;
pub(super) use leases::Elapsed;
use of_use::Useful;

use crate::allowance::Allowance;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::random_62_bits;
use crate::store::lease::tidy;
use crate::upkeep::told::Untold;

/// What became of the leases that were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    /// The try of a task has ended.
    pub(crate) ended: bool,
    /// There were some that no task needs any more; they are gone, unless the call does not tidy, or others are about to
    /// remove them.
    pub(crate) stale: bool,
    /// Leases are gone that were there.
    pub(crate) removed: bool,
    /// A task is overdue and in somebody else's hands.
    pub(crate) busy: bool,
    /// Tasks are overdue that this call has no use for, and leaves to others.
    pub(crate) left: bool,
    /// There may be more.
    pub(crate) more: bool,
    /// The look has been cut short where nothing was of use to the call, and goes on from there soon.
    pub(crate) cut: bool,
    /// Deadlines have passed since others were told of such.
    pub(crate) untold: bool,
}

impl Looked {
    /// To look once more is of use: there may be more, and what was seen now will not be all that is seen then. What others
    /// have locked in transactions that stay open is there each time.
    pub(crate) fn goes_on(&self) -> bool {
        self.more && (self.ended || self.removed)
    }

    /// Sees to those of the leases that no task needs any more, and leaves the others.
    fn without_stale(&mut self, window: Vec<Elapsed>, removes: bool) -> Vec<Elapsed> {
        let (stale, passed): (Vec<_>, Vec<_>) = window.into_iter().partition(Elapsed::is_stale);
        self.stale |= !stale.is_empty();
        if removes && !stale.is_empty() {
            self.removed |= !tidy::remove(stale.iter().map(Elapsed::row).collect()).is_empty();
        }
        passed
    }

    /// Notes what was done; how much of the bound that was.
    fn add(&mut self, done: Done) -> usize {
        self.ended |= done.ended;
        self.removed |= done.removed;
        self.more |= done.left;
        done.count
    }
}

/// Looks after leases that have passed, earliest first, whosever they are: up to `bound` of them, or ten times as many tasks.
/// Those that no task needs any more do not count, nor does what others have locked: it is passed over.
pub(crate) fn look_after_all(bound: usize, now: Time) -> Looked {
    let mut looked = Looked::default();
    let (mut overdue, mut count) = (false, 0);
    for window in leases::windows(Time::BEGINNING, now, leases::SOME) {
        looked.more = window.is_cut;
        let passed = looked.without_stale(window.leases, true);
        overdue |= !passed.is_empty();
        count += looked.add(end::all(passed, bound - count, now));
        if count >= bound {
            break;
        }
    }
    looked.busy = overdue && !looked.ended;
    looked
}

/// A call for some actions, and how much it does.
pub(crate) struct Caller<'a> {
    pub(crate) action_nos: &'a [i32],
    pub(crate) names: &'a [String],
    /// So many tasks altogether.
    pub(crate) bound: usize,
    /// So many of them of other actions, with what room its own have left.
    pub(crate) others: usize,
    /// It is about to sleep, and ends only those of which something may come for it: for what comes to nothing is undone, and all
    /// of it has to be looked at each time.
    pub(crate) only_of_use: bool,
    /// It removes leases that no task needs any more.
    pub(crate) tidies: bool,
    /// It may go to sleep, and tells those of what has passed who may have a use for it.
    pub(crate) tells: bool,
}

/// So many windows are looked at each time by a call that has no use for what is in them.
const FEW_WINDOWS: usize = 2;

/// How long a call that is about to sleep looks for what is of use to it; and how long it ends tries of other actions.
const LONGEST_LOOK: Duration = Duration::from_millis(500);
const LONGEST_FOR_OTHERS: Duration = Duration::from_millis(200);

/// The same for a call: first after what it can use, from the deadline `start` on.
///
/// What is done at once has to be short: a call that is given a second by its caller, and is cut off, has done nothing, and
/// the next one begins anew.
pub(crate) fn look_after(caller: &Caller, start: Time, now: Time) -> Looked {
    let &Caller { action_nos, bound, only_of_use, tidies, tells, .. } = caller;
    let within = |most| match only_of_use {
        true => Allowance::quarter_of_time_out().at_most(most),
        false => Allowance::quarter_of_time_out(),
    };
    let looking = within(LONGEST_LOOK);
    let mut ending = None;
    let mut looked = Looked::default();
    let (mut overdue, mut count) = (false, 0);
    let mut others = Useful::default();
    let mut untold = Untold::leases(now);
    let passed_by = passed_by::start(action_nos, only_of_use, now);
    let windows = |start| match only_of_use {
        true => leases::windows(start, now, leases::MANY),
        false => leases::windows(start, now, leases::SOME),
    };
    for (earlier, window) in windows(start.max(passed_by)).enumerate() {
        looked.more = window.is_cut;
        let reached = window.leases.last().map(Elapsed::deadline);
        let passed = looked.without_stale(window.leases, tidies);
        looked.left |= !passed.is_empty();
        if tells {
            untold.note(&passed, action_nos);
        }
        let Useful { leases: passed, near } = match only_of_use {
            true => of_use::only(passed, caller, now),
            false => Useful { leases: passed, ..Useful::default() },
        };
        overdue |= passed.iter().flat_map(Elapsed::tasks).any(|task| task.is_of(action_nos));
        let nothing = !overdue && (!only_of_use || passed.is_empty() && others.leases.is_empty());
        let is_far = earlier >= FEW_WINDOWS || looking.is_used_up();
        if let Some(reached) = reached.filter(|_| nothing && is_far) {
            passed_by::remember(action_nos, only_of_use, reached, now);
        }
        let done = match overdue {
            true => {
                let time = ending.get_or_insert_with(Allowance::quarter_of_time_out);
                end::some(&passed, |task| task.is_of(action_nos), bound - count, time, now)
            }
            false => Done::default(),
        };
        let enough = done.left || looking.is_used_up();
        count += looked.add(done);
        if count >= bound {
            break;
        }
        if only_of_use || others.leases.is_empty() {
            others.add(passed, near);
        }
        if enough {
            break;
        }
    }
    looked.untold = tells && untold.tell();
    looked.busy = overdue && !looked.ended;
    let room = caller.others.min(bound - count);
    let time = ending.unwrap_or_else(|| within(LONGEST_FOR_OTHERS));
    if room > 0 && !time.is_used_up() {
        // Of what was cut short the next look begins behind all this: nothing of it was of use.
        looked.cut = only_of_use && looked.more && !overdue && others.leases.is_empty();
        // Whoever comes does a part: nobody else may be there. But a call does not go on for that.
        looked.more &= looked.goes_on();
        if passed_by > start && !only_of_use {
            others.leases = windows(start).next().map(|window| window.leases).unwrap_or_default();
        }
        looked.ended |= others.end(room, &time, now);
    }
    looked
}

impl Useful {
    fn add(&mut self, leases: Vec<Elapsed>, near: HashSet<TaskNo>) {
        self.leases.extend(leases);
        self.near.extend(near);
    }

    /// Ends up to `room` of them, as long as there is time: those first that surely concern the call. Which of the rest is left
    /// to chance: what was in vain the last time, and will be there each time, keeps nothing from its turn.
    fn end(&mut self, room: usize, time: &Allowance, now: Time) -> bool {
        let Useful { leases, near } = self;
        let done = end::some(leases, |task| near.contains(&task.task_no), room, time, now);
        let room = room - done.count;
        if room == 0 || done.left || leases.is_empty() {
            return done.ended;
        }
        if leases.iter().map(|lease| lease.tasks().count()).sum::<usize>() > room {
            let first = random_62_bits() as usize % leases.len();
            leases.rotate_left(first);
        }
        end::some(leases, |task| !near.contains(&task.task_no), room, time, now).ended || done.ended
    }
}

/// Removes leases that have passed and that no task needs any more; how many.
pub(crate) fn remove_stale(now: Time) -> usize {
    let all = leases::windows(Time::BEGINNING, now, leases::SOME).flat_map(|window| window.leases);
    let all = all.filter(Elapsed::is_stale);
    tidy::remove(all.map(|lease| lease.row()).collect()).len()
}
