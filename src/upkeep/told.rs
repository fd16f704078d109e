//! Whom a call that may go to sleep tells of what has become due, and is of no use to itself.
//!
//! Of a deadline or a schedule one sleeper hears, whichever it is, and sleeps no longer than until then ([`wake::timer`]). But what
//! comes to nothing for him he would undo, and so he does only what may be of use to him. Then it is for him to wake those who may
//! have a use for it: for a deadline whoever waits for the actions of its tasks, for a schedule whoever waits for its action.
//! And what he has done in vain has noted whom its commit would have woken ([`wake::undone`]).
//!
//! **Once for each, or it would not end**: two sleepers could tell each other for ever of what neither has a use for. So a backend
//! tells of what has become due since it has told the last time.

use std::cell::Cell;
use std::collections::HashSet;

use super::elapsed::Elapsed;
use crate::pg::clock::Time;
use crate::schedules;
use crate::wake;

thread_local! {
    /// Up to which deadline others have been told of leases.
    static LEASES: Cell<Time> = const { Cell::new(Time::BEGINNING) };
    /// The same of schedules.
    static SCHEDULES: Cell<Time> = const { Cell::new(Time::BEGINNING) };
}

/// What a look finds that others have not been told of.
pub(super) struct Untold {
    /// Up to this deadline they have.
    told: Time,
    last: Time,
    action_nos: HashSet<i32>,
}

/// A clock that has gone back has everything before it once more.
fn unless_later(told: Time, now: Time) -> Time {
    if told > now { Time::BEGINNING } else { told }
}

impl Untold {
    pub(super) fn leases(now: Time) -> Self {
        let told = unless_later(LEASES.get(), now);
        Untold { told, last: told, action_nos: HashSet::new() }
    }

    /// Notes whom these concern, beside those who wait for the `own` actions.
    pub(super) fn note(&mut self, leases: &[Elapsed], own: &[i32]) {
        let untold = leases.iter().filter(|lease| lease.deadline() > self.told);
        let tasks = untold.flat_map(Elapsed::tasks).filter(|task| !task.is_of(own));
        self.action_nos.extend(tasks.map(|task| task.action_no()));
        self.last = leases.iter().map(Elapsed::deadline).fold(self.last, Time::max);
    }

    /// Has them woken as soon as the look is over. Whether there was anything that they had not been told of.
    pub(super) fn tell(self) -> bool {
        LEASES.set(self.last);
        self.action_nos.into_iter().for_each(wake::not_for_us);
        self.last > self.told
    }
}

/// Has those woken who wait for other actions than these, of which schedules have become due.
pub(super) fn tell_of_schedules(own: &[String], now: Time) {
    let told = unless_later(SCHEDULES.replace(now), now);
    let due = schedules::actions_due_since(told, now);
    due.iter().filter(|action| !own.contains(action)).for_each(|action| wake::name_not_for_us(action));
}
