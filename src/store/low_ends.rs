//! Where the looks for what is due begin: at the low ends of indexes by time, or a little further up.
//!
//! A deadline that was kept, a task that was due, an end whose retention is over: each leaves its entry at the low
//! end, where it stays at least while a session holds a snapshot from before. A claim that asked whether anything is
//! due would pass all of them, each time. So where a probe has turned out to be [costly](crate::memory::cost), the backend remembers for a
//! while what it has found first, or that there was nothing up to now, and begins there.
//!
//! **What may be missed, and for how long.** What is committed after its time has passed: a lease that is shorter than
//! its transaction, a task that was due before the commit. It is found when the while is over, half a minute at most,
//! and by every backend that has not remembered. What is due later than the probe is never below its mark. The marks
//! of positions are exact instead ([`decided`](crate::store::decided)), at the price that any transaction with an id
//! that stays open stops them. Here no claim loses a task: it only comes later, and marks of times go on while that
//! transaction does.
//!
//! `countdown` has no order in time: that it is empty is what is remembered, for half a second at most.

use std::time::{Duration, Instant};

use crate::memory::{Belief, Memory, Remembered, cost};
use crate::pg::clock::Time;
use crate::store::by_time;

/// Of how many actions of a call something is remembered at most.
const MOST_ACTIONS: usize = 1_024;

/// How long an empty `countdown` is remembered at most.
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

/// Below this time a probe has found nothing.
static ENDS: Memory<Remembered<End, Time>> = Memory::of(Belief::LowEnds);

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
    /// Whether there may be countdown rows.
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

/// Where the looks begin that are made for these actions.
pub(crate) fn starts(action_nos: &[i32]) -> Starts {
    ENDS.with(|known| {
        if known.is_empty() {
            return Starts::beginning(action_nos.len());
        }
        let now = Instant::now();
        let from = |end| known.get_at(&end, now).copied().unwrap_or(Time::BEGINNING);
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
    /// Whether there are countdown rows to be counted; false, too, where they were not looked for.
    pub(crate) signals: bool,
}

/// Remembers what a probe has found that has read so many pages, where `few` would have been cheap.
pub(crate) fn remember(
    action_nos: &[i32],
    starts: &Starts,
    found: &Found,
    now: Time,
    (pages, few): (u64, usize),
) {
    let time = cost::lasts(pages, few);
    ENDS.learn(|known| {
        if time.is_none() && known.is_empty() {
            return;
        }
        note(known, End::Lease, starts.lease, found.lease.unwrap_or(now), time);
        note(known, End::Settled, starts.settled, found.settled.unwrap_or(now), time);
        let scheduled = action_nos.iter().zip(starts.scheduled.iter().zip(&found.scheduled));
        for (action_no, (start, first)) in scheduled.take(MOST_ACTIONS) {
            note(known, End::Scheduled(*action_no), *start, first.unwrap_or(now), time);
        }
        for (kind, (start, first)) in starts.by_time.iter().zip(found.by_time).enumerate() {
            note(known, End::ByTime(kind), *start, first.unwrap_or(now), time);
        }
        if starts.signals {
            let time = time.filter(|_| !found.signals).map(|time| time.min(SIGNALS));
            note(known, End::Signal, Time::BEGINNING, now, time);
        }
    });
}

/// A look that began at the beginning is good for a while, if it was costly; the others go on from there.
fn note(known: &mut Remembered<End, Time>, end: End, start: Time, from: Time, time: Option<Duration>) {
    match time {
        _ if start != Time::BEGINNING => known.go_on(&end, from),
        Some(time) => known.note_for(end, from, time),
        None => known.drop_key(&end),
    }
}
