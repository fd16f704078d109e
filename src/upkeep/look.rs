//! Looking for what is due.

use super::kind::Kind;
use crate::claim::marks::{self, Seen};
use crate::pg::clock::Time;
use crate::pg::table;
use crate::store::by_time as due_by_time;
use crate::store::low_ends::{self, Found};
use crate::store::{countdown, lease, numbers, run, schedule, scheduled, settled};
use crate::wake::lately;

/// What is due, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due {
    /// The time of a lease has come.
    lease: bool,
    /// Tasks of the actions that were asked about whose time has come.
    pub(crate) tasks: bool,
    /// There are countdown rows to be counted.
    signal: bool,
    /// Settled tasks whose retention is over.
    pub(crate) expired: bool,
    /// The time of a schedule has come.
    schedule: bool,
    /// Timers, suspended tasks and such as expire.
    by_time: bool,
}

impl Due {
    /// That there are settled tasks whose retention is over, and nothing else.
    pub(crate) const EXPIRED: Due =
        Due { lease: false, tasks: false, signal: false, expired: true, schedule: false, by_time: false };

    /// What comes before a claim: all but what the claim does not depend on.
    pub(crate) fn before_claim(&self) -> Self {
        Due { expired: false, ..*self }
    }

    /// Something that may change what there is to claim.
    pub(crate) fn any(&self) -> bool {
        self.tasks || self.shared()
    }

    /// The same, and it is not for the call alone that has asked.
    fn shared(&self) -> bool {
        self.lease || self.signal || self.schedule || self.by_time
    }

    /// Something is due that the worker of the database can do as well.
    pub(crate) fn is_for_worker(&self) -> bool {
        self.shared() || self.expired
    }

    /// What the worker does not do in time for the call: tasks of its actions.
    pub(crate) fn for_call(&self) -> Self {
        Due { tasks: self.tasks, ..Due::default() }
    }

    /// The kinds of it, in the order of [`Kind::ALL`].
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let due = *self;
        Kind::ALL.into_iter().filter(move |kind| match kind {
            Kind::Leases => due.lease,
            Kind::ByTime => due.by_time,
            Kind::Schedules => due.schedule,
            Kind::DueTasks => due.tasks,
            Kind::Signals => due.signal,
            Kind::Retention => due.expired,
            Kind::Parking | Kind::Tallies => false,
        })
    }
}

/// Looks for what [`keep_up`](super::keep_up) would find to do, and does nothing; moves the marks on the way.
///
/// One look for all kinds: the first that is due, at the low end of an index or further up where nothing is known to be
/// below ([`low_ends`]). And what moves the low-water marks, see [`marks`].
pub(crate) fn look(action_nos: &[i32], now: Time) -> Due {
    let known = marks::known(action_nos);
    let starts = low_ends::starts(action_nos);
    let (found, schedule, seen, pages) = table::look(|look| {
        let found = Found {
            lease: lease::first_due(look, starts.lease, now),
            scheduled: scheduled::first_due(
                look,
                action_nos.iter().copied().zip(starts.scheduled.iter().copied()),
                now,
            ),
            by_time: due_by_time::first_due(look, &starts.by_time, now),
            signals: starts.signals && countdown::any(look),
            settled: settled::first_expired(look, starts.settled, now),
        };
        let schedule = schedule::any_due(look, now);
        let firsts = run::first_grantable(look, known.each());
        // The last position is read after the snapshot was taken: see `store::decided`.
        let seen = Seen { firsts, look: numbers::look(look), xmin_of_others: look.xmin_of_others() };
        (found, schedule, seen, look.pages())
    });
    let few = 8 * (action_nos.len() + seen.firsts.len());
    low_ends::remember(action_nos, &starts, &found, now, (pages, few));
    marks::advance(&known, &seen);
    let due = Due {
        lease: found.lease.is_some(),
        tasks: found.scheduled.iter().any(Option::is_some),
        signal: found.signals,
        expired: found.settled.is_some(),
        schedule,
        by_time: found.by_time.iter().any(Option::is_some),
    };
    lately::note(action_nos, due.any() || due.expired);
    due
}
