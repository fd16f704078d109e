//! Where the looks for what is due begin: at the low ends of indexes by time, or a little further up.
//!
//! A deadline that was kept, a task that was due, an end whose retention is over: all leave their entries at the low
//! end, and under a snapshot that a session holds for long none of them goes. A claim that asked whether anything is
//! due would pass all of them, each time. So where a probe has turned out to be [costly], the backend remembers for a
//! while what it has found first, or that there was nothing up to now, and begins there.
//!
//! **What may be missed, and for how long.** What is committed after its time has passed: a lease that is shorter than
//! its transaction, a task that was due before the commit. It is found when the while is over, half a minute at most,
//! and by every backend that has not remembered. What is due later than the probe is never below its mark. The marks
//! of positions are exact instead ([`decided`](crate::store::decided)), at the price that any transaction with an id
//! that stays open stops them. Here no claim loses a task: it only comes later, and marks of times go on while that
//! transaction does.
//!
//! `signal` has no order in time: that it is empty is what is remembered, and only for half a second.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use crate::pg::clock::{Time, wall};
use crate::pg::session;
use crate::store::{by_time, costly};

/// Of how many actions something is remembered.
const MOST_ACTIONS: usize = 1_024;

/// How long an empty `signal` is remembered at most.
const SIGNALS: Duration = Duration::from_millis(500);

/// The low end of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Lease,
    Settled,
    Signal,
    /// Of the tasks of an action.
    Scheduled(i32),
    /// Of what is due by time, of this kind.
    ByTime(usize),
}

/// Below `from` there is nothing, until this time.
#[derive(Clone, Copy)]
struct Known {
    from: Time,
    until: Time,
}

#[derive(Default)]
struct LowEnds {
    ends: HashMap<End, Known>,
    /// The queue's time of the last probe: if that goes back nothing is known any more.
    latest: Option<Time>,
}

thread_local! {
    static LOW_ENDS: RefCell<LowEnds> = RefCell::default();
}

/// Where to begin.
#[derive(Clone, Debug)]
pub(crate) struct Starts {
    /// The deadline from which leases are looked for.
    pub(crate) lease: Time,
    /// The end of a retention from which settled tasks are looked for.
    pub(crate) settled: Time,
    /// Of each of the actions, the time from which scheduled tasks are looked for.
    pub(crate) scheduled: Vec<Time>,
    /// Of each kind of what is due by time.
    pub(crate) by_time: by_time::Each<Time>,
    /// Whether there may be signals.
    pub(crate) signals: bool,
}

impl Starts {
    /// At the beginning of everything.
    pub(crate) fn beginning(actions: usize) -> Self {
        Starts {
            lease: Time::BEGINNING,
            settled: Time::BEGINNING,
            scheduled: vec![Time::BEGINNING; actions],
            by_time: [Time::BEGINNING; by_time::KINDS],
            signals: true,
        }
    }
}

/// Where the looks begin that are made for these actions at this time.
pub(crate) fn starts(action_nos: &[i32], now: Time) -> Starts {
    LOW_ENDS.with_borrow_mut(|known| {
        if known.latest.is_some_and(|latest| now < latest) {
            known.ends.clear();
        }
        if known.ends.is_empty() {
            return Starts::beginning(action_nos.len());
        }
        let wall = wall();
        let from = |end| {
            known
                .ends
                .get(&end)
                .filter(|known| wall < known.until)
                .map_or(Time::BEGINNING, |known| known.from)
        };
        Starts {
            lease: from(End::Lease),
            settled: from(End::Settled),
            scheduled: action_nos.iter().map(|action_no| from(End::Scheduled(*action_no))).collect(),
            by_time: std::array::from_fn(|kind| from(End::ByTime(kind))),
            signals: from(End::Signal) == Time::BEGINNING,
        }
    })
}

/// The first that a probe has found of each kind, up to the time at which it looked.
pub(crate) struct Found {
    /// The first deadline that has passed; `None`: none has.
    pub(crate) lease: Option<Time>,
    /// The first end of a retention that has passed; `None`: none has.
    pub(crate) settled: Option<Time>,
    /// Of each of the actions, the first time that has come; `None`: none has.
    pub(crate) scheduled: Vec<Option<Time>>,
    /// Of each kind of what is due by time, the first time that has come; `None`: none has.
    pub(crate) by_time: by_time::Each<Option<Time>>,
    /// Whether there are signals to be counted; false, too, where they were not looked for.
    pub(crate) signals: bool,
}

/// Remembers what a probe has found that has read so many pages, where `few` would have been cheap.
///
/// Not in a transaction that has an id: what it has removed itself may come back with a savepoint.
pub(crate) fn remember(
    action_nos: &[i32],
    starts: &Starts,
    found: &Found,
    now: Time,
    (pages, few): (u64, usize),
) {
    LOW_ENDS.with_borrow_mut(|known| {
        known.latest = Some(now);
        let until = costly::good_until(pages, few);
        if session::has_transaction_id() || until.is_none() && known.ends.is_empty() {
            return;
        }
        if known.ends.len() > MOST_ACTIONS {
            known.ends.clear();
        }
        known.note(End::Lease, starts.lease, found.lease.unwrap_or(now), until);
        known.note(End::Settled, starts.settled, found.settled.unwrap_or(now), until);
        let scheduled = action_nos.iter().zip(starts.scheduled.iter().zip(&found.scheduled));
        for (action_no, (start, first)) in scheduled.take(MOST_ACTIONS) {
            known.note(End::Scheduled(*action_no), *start, first.unwrap_or(now), until);
        }
        for (kind, (start, first)) in starts.by_time.iter().zip(found.by_time).enumerate() {
            known.note(End::ByTime(kind), *start, first.unwrap_or(now), until);
        }
        if starts.signals {
            let soon = wall() + SIGNALS;
            let until = until.filter(|_| !found.signals).map(|until| until.min(soon));
            known.note(End::Signal, Time::BEGINNING, now, until);
        }
    });
}

impl LowEnds {
    /// A look that began at the beginning is good for a while, if it was costly; the others go on from there.
    fn note(&mut self, end: End, start: Time, from: Time, until: Option<Time>) {
        match (self.ends.get_mut(&end), until) {
            (Some(known), _) if start != Time::BEGINNING => known.from = from,
            (_, Some(until)) if start == Time::BEGINNING => {
                self.ends.insert(end, Known { from, until });
            }
            (known, _) => {
                if known.is_some() {
                    self.ends.remove(&end);
                }
            }
        }
    }
}
