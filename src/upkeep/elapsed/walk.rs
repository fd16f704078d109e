//! What a call for some actions does of what has passed: first what it can use, then a part of what there is for others.
//!
//! What is done at once has to be short: a call that is given a second by its caller, and is cut off, has done nothing, and
//! the next one begins anew.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Looked;
use super::end::{self, Done};
use super::leases::{self, Elapsed, Task, Window};
use super::of_use::{self, Useful};
use super::passed_by::{self, Walked};
use crate::allowance::Allowance;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::random_62_bits;
use crate::store::contradiction;
use crate::upkeep::told::Untold;

/// A call for some actions, and how much it does.
pub(crate) struct Caller<'a> {
    pub(crate) action_nos: &'a [i32],
    pub(crate) names: &'a [String],
    /// So many tasks altogether.
    pub(crate) bound: usize,
    /// So many of its own actions; with these it has enough.
    pub(crate) own: usize,
    /// So many of them of other actions, with what room its own have left.
    pub(crate) others: usize,
    /// It is about to sleep, and ends only those of which something may come for it: for what comes to nothing is undone, and all
    /// of it has to be looked at each time. It tells those of the others who may have a use for them.
    pub(crate) only_of_use: bool,
    /// It keeps what it does, and others have to wait for that until its transaction ends: so it ends its own, and of the others
    /// those only that a task of its own waits for.
    pub(crate) stays_open: bool,
    /// It removes leases that no task needs any more.
    pub(crate) tidies: bool,
}

/// So many windows are looked at each time by a call that has no use for what is in them.
const FEW_WINDOWS: usize = 2;

/// How long a call that is about to sleep looks for what is of use to it; and how long it ends tries of other actions.
const LONGEST_LOOK: Duration = Duration::from_millis(500);
const LONGEST_FOR_OTHERS: Duration = Duration::from_millis(200);

/// Looks after leases that have passed, from the deadline `start` on.
pub(crate) fn look_after(caller: &Caller, start: Time, now: Time) -> Looked {
    let mut walk = Walk::new(caller, start, now);
    let start = walk.before.map_or(start, |walked| walked.up_to);
    for (n, window) in caller.windows(start, now).enumerate() {
        if !walk.take(window, n) {
            break;
        }
    }
    walk.end_for_others()
}

impl Caller<'_> {
    /// For how long it goes on with something: with a part of its caller's time-out, and not for long if it has to look again.
    fn within(&self, most: Duration) -> Allowance {
        let allowance = Allowance::quarter_of_time_out();
        if self.only_of_use { allowance.at_most(most) } else { allowance }
    }

    fn windows(&self, start: Time, now: Time) -> impl Iterator<Item = Window> {
        leases::windows(start, now, if self.only_of_use { leases::MANY } else { leases::SOME })
    }

    /// Those of the leases that it has a use for, as far as it asks.
    fn useful(&self, passed: Vec<Elapsed>, now: Time) -> Useful {
        match self.only_of_use {
            true => of_use::only(passed, self, now),
            false => Useful { leases: passed, near: HashSet::new() },
        }
    }
}

/// A look under way.
struct Walk<'a> {
    caller: &'a Caller<'a>,
    now: Time,
    began: Instant,
    /// From there on it looks,
    start: Time,
    /// or goes on behind what has been walked before, where a moment ago there was nothing for it.
    before: Option<Walked>,
    looked: Looked,
    looking: Allowance,
    /// For ending tries, since the first of its own.
    ending: Option<Allowance>,
    /// Tasks of its own actions are overdue.
    overdue: bool,
    /// How much of its bound it has done.
    count: usize,
    /// What is left to be ended for others.
    for_others: Useful,
    untold: Untold,
}

impl<'a> Walk<'a> {
    fn new(caller: &'a Caller<'a>, start: Time, now: Time) -> Self {
        let before = passed_by::known(caller.action_nos, caller.only_of_use, now);
        Walk {
            caller,
            now,
            began: Instant::now(),
            start,
            before: before.filter(|walked| walked.up_to > start),
            looked: Looked::default(),
            looking: caller.within(LONGEST_LOOK),
            ending: None,
            overdue: false,
            count: 0,
            for_others: Useful::default(),
            untold: Untold::leases(now),
        }
    }

    /// Ends the call's own tries in the nth window, and keeps the others for later. Whether to go on to the next.
    fn take(&mut self, window: Window, n: usize) -> bool {
        let caller = self.caller;
        self.looked.more = window.is_cut;
        let reached = window.leases.last().map(Elapsed::deadline);
        let passed = self.looked.without_stale(window.leases, caller.tidies);
        self.looked.left |= !passed.is_empty();
        if caller.only_of_use {
            self.untold.note(&passed, caller.action_nos);
        }
        let Useful { leases: passed, near } = caller.useful(passed, self.now);
        let concerns = |task: &Task| task.is_of(caller.action_nos) && !contradiction::is_left(task.task_no);
        self.overdue |= passed.iter().flat_map(Elapsed::tasks).any(concerns);
        if let Some(reached) = reached.filter(|_| self.passes_by(&passed, n)) {
            let (of_use, began) = (caller.only_of_use, self.began);
            passed_by::remember(caller.action_nos, of_use, reached, self.before, began, self.now);
        }
        let done = self.end_own(&passed);
        let enough = done.left || self.looking.is_used_up();
        self.count += self.looked.add(done);
        if self.count >= caller.own {
            return false;
        }
        if caller.only_of_use || self.for_others.leases.is_empty() {
            self.for_others.add(passed, near);
        }
        !enough
    }

    /// Whether there was nothing for the call so far, in more than it can look at each time.
    fn passes_by(&self, passed: &[Elapsed], n: usize) -> bool {
        let of_no_use = !self.caller.only_of_use || passed.is_empty() && self.for_others.leases.is_empty();
        !self.overdue && of_no_use && (n >= FEW_WINDOWS || self.looking.is_used_up())
    }

    fn end_own(&mut self, passed: &[Elapsed]) -> Done {
        if !self.overdue {
            return Done::default();
        }
        let time = self.ending.get_or_insert_with(Allowance::quarter_of_time_out);
        let action_nos = self.caller.action_nos;
        end::some(passed, |task| task.is_of(action_nos), self.caller.own - self.count, time, self.now)
    }

    /// Ends a part of the others, as far as room and time are left.
    fn end_for_others(mut self) -> Looked {
        let mut looked = self.looked;
        looked.untold = self.caller.only_of_use && self.untold.tell();
        looked.busy = self.overdue && !looked.ended;
        let room = match self.count < self.caller.own {
            true => self.caller.others.min(self.caller.bound - self.count),
            false => 0,
        };
        let time = self.ending.unwrap_or_else(|| self.caller.within(LONGEST_FOR_OTHERS));
        if room > 0 && !time.is_used_up() {
            if self.caller.only_of_use && !self.overdue && self.for_others.leases.is_empty() {
                // Of what was cut short the next look begins behind all this: nothing of it was of use. And of what was passed by
                // something may be of use since.
                looked.cut = looked.more;
                looked.walked = self.before;
            }
            // A call does not go on for others.
            looked.more &= looked.goes_on();
            let passes = self.before.is_some() && !self.caller.only_of_use;
            if let Some(first) = passes.then(|| self.caller.windows(self.start, self.now).next()).flatten() {
                // Whoever comes does a part: nobody else may be there.
                self.for_others.leases = first.leases;
            }
            if self.caller.stays_open {
                let leases = std::mem::take(&mut self.for_others.leases);
                self.for_others = of_use::only(leases, self.caller, self.now);
            }
            looked.ended |= self.for_others.end(room, &time, self.now);
        }
        looked
    }
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
            let chance = random_62_bits() as usize;
            let first = chance % leases.len();
            leases.rotate_left(first);
            for lease in leases.iter_mut().filter(|lease| !lease.overdue.is_empty()) {
                let first = chance % lease.overdue.len();
                lease.overdue.rotate_left(first);
            }
        }
        end::some(leases, |task| !near.contains(&task.task_no), room, time, now).ended || done.ended
    }
}
