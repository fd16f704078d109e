//! What time makes necessary, done in small bounded steps by calls that claim tasks, by the background worker, and by
//! `taskq.maintain()` for quiet times: elapsed leases, due tasks, deferred signals, retention.
//!
//! Everything here takes its rows with SKIP LOCKED and waits for nobody. Inside a caller's transaction
//! block, function or larger statement the steps are as small as the claim itself, since what they touch is hostage to
//! that transaction; and a call that is going to sleep removes nothing that others might wait for.

pub(crate) mod due;
pub(crate) mod elapsed;
mod low_ends;
mod owed;
pub(crate) mod retention;
pub(crate) mod steps;
mod told;

use std::time::Duration;

pub(crate) use owed::owed;

use elapsed::Walked;
use low_ends::{Found, Starts};

use crate::claim::marks::Seen;
use crate::claim::{Moved, marks};
use crate::clock;
use crate::flow::actions::Action;
use crate::number::Position;
use crate::pg::block::in_transaction_block;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::{session, table};
use crate::schedules;
use crate::settle::fold;
use crate::store::{before_commit, lease, numbers, run, schedule, scheduled, settled, signal};
use crate::wake::{self, lately};

/// How many rows of a kind one step handles when it is nobody's hostage.
pub(crate) const STEP: i32 = 200;

/// How many tries whose time has come are ended at most by one step of a call that is nobody's hostage; and how many of them of
/// actions that it does not ask for, which a call that is going to sleep ends if they may be of use to it.
const MOST_ENDED: usize = 2_000;
const ENDED_FOR_OTHERS: usize = 100;
const ENDED_BY_SLEEPER: usize = 1_000;

/// What a round of upkeep did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Upkeep {
    /// It changed something that other sessions should see soon.
    pub(crate) changed: bool,
    /// A step reached its bound: more may be due.
    pub(crate) more: bool,
    /// There are settled tasks whose retention is over, for the end of the call.
    pub(crate) expired: bool,
    /// Something was due, and locks were taken to look after it.
    pub(crate) tried: bool,
    /// The claim that followed has moved entries out of its way.
    pub(crate) moved: bool,
    /// It has given up, since others were faster each time.
    pub(crate) outrun: bool,
    /// A deadline has passed of a task that somebody has in hand.
    pub(crate) busy: bool,
    /// There are signals that wait to be counted: for the end of the call, if it may go to sleep.
    pub(crate) signals: bool,
    /// Leases that no task needs any more were left, because the call may go to sleep.
    pub(crate) stale: bool,
    /// Deadlines have passed of tasks that the call has no use for; they were left to others.
    pub(crate) left: bool,
    /// The look for deadlines was cut short where nothing was of use to the call.
    pub(crate) cut: bool,
    /// It has gone on with this walk, in which nothing was.
    pub(crate) walked: Option<Walked>,
    /// Deadlines have passed since others were told of such.
    pub(crate) untold: bool,
    /// Schedules of actions that the call does not ask for may be due; they were left to others, or to its end.
    pub(crate) schedules: bool,
    /// The time up to which deadlines were looked after.
    pub(crate) looked_at: Option<Time>,
}

/// A call that claims tasks of these actions.
#[derive(Clone, Copy)]
pub(crate) struct Claimant<'a> {
    pub(crate) action_nos: &'a [i32],
    pub(crate) names: &'a [String],
    /// For so many tasks.
    pub(crate) room: usize,
    /// It may go to sleep.
    pub(crate) waiting: bool,
    /// The deadlines up to this one, and schedules, have been looked after, and nothing has come of it.
    pub(crate) in_vain: Option<Time>,
}

/// Upkeep before a claim. What a [`look`] has found is not looked for again.
pub(crate) fn before_claim(claimant: Claimant, looked: Option<Due>, now: Time) -> Upkeep {
    let Claimant { action_nos, names, room, waiting, in_vain } = claimant;
    let mut upkeep = Upkeep::default();
    let Due { lease, due, signal, expired, schedule } = looked.unwrap_or_else(|| look(action_nos, now));
    upkeep.tried = lease || due || signal || schedule || expired;
    let hostage = in_transaction_block();
    // What comes to nothing is rolled back: others are left to the last look.
    let alone = waiting && !hostage;
    let bound = if hostage { room.clamp(1, STEP as usize) as i32 } else { STEP };
    let starts = low_ends::starts(action_nos, now);
    if lease {
        let (few, some) = (bound as usize, STEP as usize);
        let (bound, own, others) = match (hostage, waiting) {
            (true, false) => (few, few, few),
            // Of what is of use several may have to be ended at once: of one alone nothing would come, each time.
            (true, true) => (some, few, some),
            (false, false) => (MOST_ENDED, MOST_ENDED, ENDED_FOR_OTHERS),
            (false, true) => (MOST_ENDED, MOST_ENDED, ENDED_BY_SLEEPER),
        };
        let caller = elapsed::Caller {
            action_nos,
            names,
            bound,
            own,
            others,
            only_of_use: waiting,
            stays_open: hostage && !waiting,
            tidies: !alone,
        };
        let start = in_vain.map_or(starts.lease, |deadline| starts.lease.max(deadline));
        let looked = elapsed::look_after(&caller, start, now);
        upkeep.changed |= looked.ended;
        upkeep.more |= looked.goes_on();
        upkeep.busy = looked.busy;
        upkeep.stale = looked.stale && waiting;
        upkeep.left = looked.left;
        upkeep.cut = looked.cut;
        upkeep.walked = looked.walked;
        upkeep.untold = looked.untold;
    }
    // After the leases: the try that has ended may be of the run that kept a schedule from its next.
    if schedule && waiting {
        // In a transaction block it has no use for those of its own either.
        told::tell_of_schedules(if hostage { &[] } else { names }, now);
    }
    if schedule && !hostage {
        // To try whether a run may be inserted takes locks. Given up with the look, they wake another sleeper of the action, who
        // would do the same: so who has done that in vain rests from it.
        if !alone || in_vain.is_none() {
            let fired = match alone {
                true => schedules::fire_own(names, STEP, now),
                false => schedules::fire_due(STEP, now),
            };
            upkeep.changed |= fired;
            // A try whose end was of no use may be what such a run waits for.
            upkeep.more |= fired && alone;
        }
        upkeep.schedules = alone;
        upkeep.left |= alone;
    }
    if due {
        // So it is with tasks whose time has come, and that may not run: somebody is woken for what was taken and given up.
        let since = |start: Time| in_vain.map_or(start, |deadline| start.max(deadline));
        let starts = starts.scheduled.into_iter().map(since).collect();
        let released = due::release(action_nos, starts, bound.max(room.min(10_000) as i32), now);
        upkeep.changed |= released.done;
        upkeep.more |= released.more;
    }
    if signal {
        upkeep.changed |= match (waiting, hostage) {
            (false, false) => fold::some(STEP, now),
            _ => fold::due_of(action_nos, room.max(1), now),
        };
    }
    upkeep.expired = expired;
    upkeep.signals = signal;
    upkeep.looked_at = Some(now);
    upkeep
}

/// What is due, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due {
    lease: bool,
    due: bool,
    signal: bool,
    /// Settled tasks whose retention is over.
    pub(crate) expired: bool,
    schedule: bool,
}

impl Due {
    /// Something that changes what there is to claim.
    pub(crate) fn any(&self) -> bool {
        self.lease || self.due || self.signal || self.schedule
    }
}

/// Looks for what [`before_claim`] would find to do, and does nothing; moves the marks on the way.
///
/// One look for all kinds: the first that is due, at the low end of an index or further up where nothing is known to be
/// below ([`low_ends`]). And what moves the low-water marks, see [`marks`].
pub(crate) fn look(action_nos: &[i32], now: Time) -> Due {
    let known = marks::known(action_nos);
    let starts = low_ends::starts(action_nos, now);
    let (found, schedule, seen) = table::look(|look| {
        let found = Found {
            lease: lease::first_due(look, starts.lease, now),
            scheduled: scheduled::first_due(
                look,
                action_nos.iter().copied().zip(starts.scheduled.iter().copied()),
                now,
            ),
            signals: starts.signals && signal::any(look),
            settled: settled::first_expired(look, starts.settled, now),
        };
        let schedule = schedule::any_due(look, now);
        let firsts = run::first_grantable(look, known.each());
        let part = known
            .part
            .map(|p| run::first_grantable_within(look, (p.action_no, p.priority), (p.from, p.to), p.most));
        // The last position is read after the snapshot was taken: see `store::decided`.
        (
            found,
            schedule,
            Seen {
                firsts,
                part,
                look: numbers::look(look),
                xmin_of_others: look.xmin_of_others(),
                pages: look.pages(),
            },
        )
    });
    let few = 8 * (action_nos.len() + seen.firsts.len());
    low_ends::remember(action_nos, &starts, &found, now, (seen.pages, few));
    marks::advance(&known, &seen);
    let due = Due {
        lease: found.lease.is_some(),
        due: found.scheduled.iter().any(Option::is_some),
        signal: found.signals,
        expired: found.settled.is_some(),
        schedule,
    };
    lately::note(action_nos, due.any() || due.expired);
    due
}

/// The body of `taskq._tidy_before_commit()`: what [`before_commit`] has kept until now.
pub(crate) fn tidy_before_commit() {
    let work = before_commit::take();
    // It may have become so after the call. What is to be done can wait, and the commit must not fail for it.
    if session::is_read_only() {
        return;
    }
    lease::tidy::hand_on(work.leases);
    if work.sweep > 0 {
        retention::sweep_from_low_end(work.sweep, clock::now());
    }
}

/// Inserts the runs of schedules that are due, which a call that might have slept has left alone.
pub(crate) fn fire_left_schedules() {
    schedules::fire_due(STEP, clock::now());
}

/// Folds deferred signals, if there are any; returns whether that changed anything. A call whose transaction may stay
/// open counts for others only what frees a task.
pub(crate) fn fold(now: Time) -> bool {
    if in_transaction_block() { fold::due(STEP as usize, now) } else { fold::some(STEP, now) }
}

/// Folds those that free a task, whatever its action: what comes after it may be the caller's.
pub(crate) fn fold_due(now: Time) -> bool {
    fold::due(STEP as usize, now)
}

/// Actions with grantable tasks in no lane, if asked for; then what somebody has to look after in time, who would not
/// look by himself before: actions with scheduled tasks, and 0 for deadlines and schedules.
static LEFT_BEHIND: Statement<(&[i32], bool, Time, &[i32], &[i32], &[i32], &[Position], &[Time], Time), i32> =
    Statement::new(
        c"SELECT a.action_no
        FROM unnest($4, $5, $6, $7) AS a(action_no, highest, lowest, start)
       CROSS JOIN LATERAL (SELECT FROM taskq.run r WHERE r.action_no = a.action_no AND r.lane = 0
                              AND r.grantable
                              AND r.priority <= a.highest AND r.priority >= a.lowest AND r.position >= a.start
                            ORDER BY r.priority DESC, r.position LIMIT 1) AS r
       WHERE $2
       UNION ALL
      SELECT a.action_no
        FROM unnest($1, $8) AS a(action_no, start)
       CROSS JOIN LATERAL (SELECT FROM taskq.scheduled s
                            WHERE s.action_no = a.action_no AND s.due >= a.start AND s.due < $3
                            ORDER BY s.due LIMIT 1) AS s
       WHERE $3 IS NOT NULL
       UNION ALL
      (SELECT 0 FROM taskq.lease l WHERE l.deadline >= $9 AND l.deadline < $3 ORDER BY l.deadline LIMIT 1)
       UNION ALL
      (SELECT 0 FROM taskq.schedule s WHERE s.next_at < $3 ORDER BY s.next_at LIMIT 1)",
    );

/// What a call for these actions leaves to those who go on sleeping: the actions that have something `ready`, or
/// something that is due before any sleeper looks again by himself (`later`, with the time it is now); 0 stands for what
/// is due in any action. What is `ready` is as the latest look has seen it: what has been committed since has woken
/// somebody.
pub(crate) fn left_behind(action_nos: &[i32], ready: bool, later: Option<Time>) -> Vec<i32> {
    if action_nos.is_empty() && later.is_none() {
        return Vec::new();
    }
    let horizon = later.map(|now| now + wake::longest_sleep());
    let ranges = marks::ranges_of_look(action_nos);
    let (of, highest, lowest, from) = ranges.columns();
    let starts = match later {
        Some(now) => low_ends::starts(action_nos, now),
        None => Starts::beginning(action_nos.len()),
    };
    let (due, lease) = (starts.scheduled, starts.lease);
    LEFT_BEHIND.query((action_nos, ready, horizon, of, highest, lowest, from, due, lease))
}

/// Notes whether a look that has found nothing leaves out tasks that are ready as far as a snapshot can tell: others hold
/// them. (What limits or lanes keep back is noted where they are asked.)
pub(crate) fn note_passed_over(actions: &[Action]) {
    let free = actions.iter().filter(|a| !a.paused && !a.is_chosen_from()).map(|a| a.action_no);
    if !left_behind(&free.collect::<Vec<_>>(), true, None).is_empty() {
        wake::passed_over();
    }
}

/// Leases from $2 to $3: further on there may be many dead entries, of tasks that came back in time. What is before $4
/// and $5 is dead.
static NEXT: Statement<(&[i32], Time, Time, Time, &[Time]), Option<Time>> = Statement::new(
    c"SELECT LEAST((SELECT l.deadline FROM taskq.lease l
                     WHERE l.deadline > $2 AND l.deadline >= $4 AND l.deadline <= $3
                     ORDER BY l.deadline LIMIT 1),
                   (SELECT pg_catalog.min(s.due)
                      FROM unnest($1, $5) AS a(action_no, start)
                     CROSS JOIN LATERAL (SELECT s.due FROM taskq.scheduled s
                                          WHERE s.action_no = a.action_no AND s.due > $2 AND s.due >= a.start
                                          ORDER BY s.due LIMIT 1) AS s))",
);

/// How far ahead a waiter has to know of deadlines: it does not sleep for longer.
const AHEAD: Duration = Duration::from_secs(60);

/// When there will be something to do for a waiter for these actions, if nobody commits anything; `after` a time, if
/// what is due before has been looked at in vain.
pub(crate) fn next_due(action_nos: &[i32], after: Option<Time>) -> Option<Time> {
    let from = after.unwrap_or(Time::BEGINNING);
    let now = clock::now();
    let until = now + AHEAD;
    let starts = low_ends::starts(action_nos, now);
    let due: Option<Time> = NEXT.first((action_nos, from, until, starts.lease, starts.scheduled)).flatten();
    due.into_iter().chain(schedules::next_after(from)).min()
}

impl Upkeep {
    /// Adds what a claim that followed did.
    pub(crate) fn note(&mut self, claimed: Moved) {
        self.moved |= claimed.any;
        self.outrun |= claimed.outrun;
    }

    /// Adds what the next round of the same look did. How far it got, and whether there is more, is as that one has left it.
    pub(crate) fn go_on_with(&mut self, next: Upkeep) {
        let Upkeep {
            changed,
            more,
            expired,
            tried,
            moved,
            outrun,
            busy,
            signals,
            stale,
            left,
            cut,
            walked,
            untold,
            schedules,
            looked_at,
        } = next;
        self.changed |= changed;
        self.more = more;
        self.expired |= expired;
        self.tried |= tried;
        self.moved |= moved;
        self.outrun |= outrun;
        self.busy |= busy;
        self.signals |= signals;
        self.stale |= stale;
        self.left |= left;
        self.cut = cut;
        self.walked = walked;
        self.untold |= untold;
        self.schedules |= schedules;
        self.looked_at = looked_at;
    }
}
