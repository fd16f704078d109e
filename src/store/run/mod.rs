//! The table `run`: tasks that nothing blocks: ready, in progress, or parked in place ([`aside`](super::aside)).
//!
//! What is done most goes by direct access and stands here: [`insert`], [`grant`], [`extend`], [`remove`], [`lock`]. Statements
//! write what is rare, or decided with other tables. In [`changes`] they remove rows that the call has locked, wherever it met
//! them (`REMOVE`); move entries into lanes (`GIVE_TO_LANES`, `MOVE_INTO_LANES`); take what is to ride (`TAKE_RIDERS`,
//! `PARK_RIDERS`); end a try at its deadline in place, since the token stays good, and let a late worker hold the task again
//! (`REQUEUE`, `HOLD_AGAIN`); count dependencies anew (`RECOUNT`); change priority and lease of many tasks (`KEEP_PLACE`). In
//! [`aside`](super::aside) they set entries aside, make them ready again and remove riders. In [`merge_key`](super::merge_key) and
//! [`slot::backfill`](super::slot::backfill) they set `keyed` and `limited`, together with the row that makes it true.
//!
//! Statements lock rows that are chosen by what is in them, or are read with others. Those of `upkeep::elapsed::overdue`, `claim::gates`
//! and `claim::sweep` pass over what is locked.

pub(crate) mod changes;
mod reach;
mod run_time;

use pgrx::datum::Interval;

use crate::number::{Lane, Position, ReasonNo, TaskNo};
use crate::pg::clock::Time;
use crate::pg::session::{self, check_for_interrupts};
use crate::pg::table::{self, Change, Index, Key, LockStrength, Look, Places, Row, Set, Wait, look, table};
use crate::pg::throw;
use crate::store::lease::Left;
use crate::store::live_row::Live;
use crate::token::Nonce;
pub(crate) use reach::{in_order, note_reach};
pub(crate) use run_time::{Extended, within_run_time};

table!(c"run":
    TASK_NO: TaskNo,
    POSITION: Position,
    LANE: Lane,
    PREV_NONCE: Nonce,
    ACTION_NO: i32,
    PRIORITY: i32,
    FAILURES: i32,
    DEPENDENCIES: i32,
    GATED: bool,
    LEASE: Option<Interval>,
    MAX_RUN_TIME: Option<Interval>,
    KEY_HASH: Option<i64>,
    ASIDE: Option<ReasonNo>,
    TRIES: i32,
    NONCE: Nonce,
    DEADLINE: Time,
    GRANTED_AT: Option<Time>,
    GRANTABLE: bool,
    LIMITED: bool,
    KEYED: bool,
    ACTOR_ID: Option<String>,
    PREV_DEADLINE: Option<Time>,
    PREV_GRANTED_AT: Option<Time>,
    PREV_ACTOR_ID: Option<String>;
    c"run_lane_idx" where LANE NotZero,
    c"run_key_idx" where KEY_HASH Something,
    c"run_aside_idx" where ASIDE Something
);

/// By task_no.
pub(crate) static BY_NUMBER: Index = Index::new(&TABLE, c"run_pkey");
thread_local! {
    /// Where some of this backend's grants lie.
    static PLACES: Places = const { Places::new() };
}

/// What is in no lane: action_no, priority (descending), position.
pub(crate) static IN_ORDER: Index = Index::new(&TABLE, c"run_claim_idx");
/// What is in lanes: action_no, priority (descending), lane, position.
pub(crate) static IN_LANES: Index = Index::new(&TABLE, c"run_lane_idx");

/// Of each action, priority and position, the first position from there on at which an entry in no lane is grantable.
pub(crate) fn first_grantable(
    look: &Look,
    from: impl Iterator<Item = (i32, i32, Position)>,
) -> Vec<Option<Position>> {
    look.scan(&IN_ORDER, |entries| {
        from.map(|(action_no, priority, start)| {
            for keys in in_order(action_no, priority, start, 1) {
                entries.start(&keys);
                while let Some(entry) = entries.next() {
                    if entry.get(GRANTABLE) {
                        return Some(entry.get(POSITION));
                    }
                }
            }
            None
        })
        .collect()
    })
}

/// The priorities of which the index has entries of an action in no lane, dead ones too, from the highest down; so many at most.
pub(crate) fn priorities(look: &Look, action_nos: &[i32], most: usize) -> Vec<(i32, i32)> {
    look.scan(&IN_ORDER, |entries| {
        entries.dead_too();
        let mut found = Vec::new();
        for action_no in action_nos {
            let mut next = Some(i32::MAX);
            for _ in 0..most {
                let Some(highest) = next else { break };
                let keys = [Key::eq(1, *action_no), Key::at_most(2, highest)];
                let Some(priority) = entries.first(&keys, |entry| entry.get(PRIORITY)) else { break };
                found.push((*action_no, priority));
                next = priority.checked_sub(1);
            }
        }
        found
    })
}

/// A task that nothing blocks, as it begins here.
pub(crate) struct Entry {
    /// The number of the task.
    pub(crate) task_no: TaskNo,
    /// Where it stands among the entries of its priority.
    pub(crate) position: Position,
    /// The number that stands for its action.
    pub(crate) action_no: i32,
    /// Higher ones are granted first.
    pub(crate) priority: i32,
    /// The lane of its group; [`Lane::NONE`]: it has none, or nothing asks for lanes.
    pub(crate) lane: Lane,
    /// Tries so far.
    pub(crate) tries: i32,
    /// How many of its dependencies have aborted.
    pub(crate) failures: i32,
    /// How many dependencies it has in all.
    pub(crate) dependencies: i32,
    /// It has a group, a workgroup or a merge key.
    pub(crate) gated: bool,
    /// The lease of its grants where the claim gives none; `None`: what its action says, else the setting.
    pub(crate) lease: Option<Interval>,
    /// The longest that a try of it lasts; `None`: what its action says.
    pub(crate) max_run_time: Option<Interval>,
    /// Stands for its action, group and merge key; `None`: it has no merge key.
    pub(crate) key_hash: Option<i64>,
}

/// Inserts entries that may be granted.
pub(crate) fn insert(entries: impl Iterator<Item = Entry>) {
    table::insert(&TABLE, |into| {
        for entry in entries {
            check_for_interrupts();
            into.row(|| {
                [
                    TASK_NO.to(entry.task_no),
                    POSITION.to(entry.position),
                    NONCE.to(Nonce::NONE),
                    PREV_NONCE.to(Nonce::NONE),
                    DEADLINE.to(Time::INFINITY),
                    ACTION_NO.to(entry.action_no),
                    PRIORITY.to(entry.priority),
                    LANE.to(entry.lane),
                    TRIES.to(entry.tries),
                    FAILURES.to(entry.failures),
                    DEPENDENCIES.to(entry.dependencies),
                    GRANTABLE.to(true),
                    LIMITED.to(false),
                    GATED.to(entry.gated),
                    KEYED.to(false),
                    LEASE.to(entry.lease),
                    MAX_RUN_TIME.to(entry.max_run_time),
                    KEY_HASH.to(entry.key_hash),
                ]
            });
        }
    });
}

/// What a grant makes of an entry.
pub(crate) struct Grant<'a> {
    /// The secret part of the token.
    pub(crate) nonce: Nonce,
    /// Tries so far, this one included.
    pub(crate) tries: i32,
    /// When it is granted.
    pub(crate) granted_at: Time,
    /// When the lease ends; infinity: never.
    pub(crate) deadline: Time,
    /// The name of the worker that gets it.
    pub(crate) actor_id: &'a str,
    /// It holds slots.
    pub(crate) limited: bool,
}

/// Grants an entry, if no other transaction has it. What went with the token before is kept while the grant checks
/// whether it may stand.
pub(crate) fn grant(entry: &Row, grant: &Grant) -> Change {
    let before = entry.get(NONCE);
    let overdue = before != Nonce::NONE;
    let change = entry.update(&[
        PREV_NONCE.to(before),
        PREV_DEADLINE.to(overdue.then(|| entry.get(DEADLINE))),
        PREV_GRANTED_AT.to(entry.get(GRANTED_AT).filter(|_| overdue)),
        PREV_ACTOR_ID.to(entry.get(ACTOR_ID).filter(|_| overdue)),
        NONCE.to(grant.nonce),
        GRANTABLE.to(false),
        TRIES.to(grant.tries),
        GRANTED_AT.to(Some(grant.granted_at)),
        ACTOR_ID.to(Some(grant.actor_id)),
        KEYED.to(false),
        LIMITED.to(grant.limited),
        DEADLINE.to(grant.deadline),
    ]);
    if change == Change::Done {
        let task_no = entry.get(TASK_NO);
        PLACES.with(|places| places.remember(task_no.0, entry.place_of_update()));
    }
    change
}

/// Removes the rows of the performances that have these numbers and nonces, in the order of the numbers; waits for
/// transactions that hold them.
///
/// **A stale token is not trusted.** The row is removed in the version that the look has seen with this nonce. If there
/// is a newer one by then, that is locked, and asked for its nonce, before it is removed. (At a higher level than READ
/// COMMITTED it is a serialization failure.)
pub(crate) fn remove(mut performances: Vec<(TaskNo, Nonce)>) -> Vec<Live> {
    performances.sort_unstable();
    changed(&performances, remove_one)
}

/// What `change` makes of the rows of the performances, in the order of their numbers.
fn changed<T>(performances: &[(TaskNo, Nonce)], change: impl Fn(Nonce, &Row) -> Option<T>) -> Vec<T> {
    let numbers = performances.iter().map(|(task_no, _)| *task_no);
    look(|look| {
        look.changing(&BY_NUMBER, |rows| {
            let changed =
                rows.of_each_seen(&PLACES, TASK_NO, numbers, |at, row| change(performances[at].1, row));
            changed.into_iter().flatten().flatten().collect()
        })
    })
}

fn remove_one(nonce: Nonce, row: &Row) -> Option<Live> {
    if row.get(NONCE) != nonce {
        return None;
    }
    match row.delete(Wait::Yes) {
        Change::Done => Some(live(row)),
        Change::Gone => None,
        Change::Newer | Change::Busy => {
            if !session::is_read_committed() {
                throw::serialization_failure();
            }
            row.newest(Wait::Yes, |row| {
                let is_it = row.get(NONCE) == nonce && row.delete(Wait::Yes) == Change::Done;
                is_it.then(|| live(row))
            })
            .ok()
            .flatten()
        }
    }
}

/// Gives the performances that have these numbers and nonces, and that still hold their tasks, until `deadline`, or for as long as
/// a try may last; returns them with the deadlines that they had. Locks those as well whose tasks are back in the queue, or aside.
/// Goes in the order of the numbers, and waits for transactions that hold them.
///
/// A token is trusted as in [`remove`].
pub(crate) fn extend(
    mut performances: Vec<(TaskNo, Nonce)>,
    deadline: Time,
    actor_id: &str,
    now: Time,
) -> Vec<Extended> {
    performances.sort_unstable();
    performances.dedup();
    let until = |row: &Row| {
        let granted = (row.get(GRANTED_AT), deadline);
        within_run_time(granted, row.get(MAX_RUN_TIME), row.get(ACTION_NO), now)
    };
    let values = |deadline: Time| [DEADLINE.to(deadline), ACTOR_ID.to(Some(actor_id))];
    changed(&performances, |nonce, row| extend_one(nonce, row, until, values))
}

fn extend_one(
    nonce: Nonce,
    row: &Row,
    until: impl Fn(&Row) -> Option<Time>,
    values: impl Fn(Time) -> [Set; 2],
) -> Option<Extended> {
    if row.get(NONCE) != nonce {
        return None;
    }
    let task_no = row.get(TASK_NO);
    let extend = |row: &Row| {
        let held = row.get(NONCE) == nonce && !row.get(GRANTABLE) && row.get(ASIDE).is_none();
        let left = Left { task_no, nonce, deadline: row.get(DEADLINE) };
        match held.then(|| until(row)).flatten() {
            Some(deadline) => (row.update(&values(deadline)), Extended { left, deadline }),
            None => (Change::Busy, Extended { left, deadline: Time::BEGINNING }),
        }
    };
    let (change, left) = extend(row);
    match change {
        Change::Done => Some(left),
        Change::Gone => None,
        Change::Busy | Change::Newer => row
            .newest_to_update(Wait::Yes, |newest| {
                if !session::is_read_committed() && !same_place(row, newest) {
                    throw::serialization_failure();
                }
                let (change, left) = extend(newest);
                (change == Change::Done).then_some(left)
            })
            .flatten(),
    }
}

fn same_place(one: &Row, other: &Row) -> bool {
    let (one, other) = (one.place(), other.place());
    (one.ip_blkid.bi_hi, one.ip_blkid.bi_lo, one.ip_posid)
        == (other.ip_blkid.bi_hi, other.ip_blkid.bi_lo, other.ip_posid)
}

/// An entry that this transaction has locked.
pub(crate) struct Locked {
    /// The row as it is now.
    pub(crate) live: Live,
    /// The number that stands for its action.
    pub(crate) action_no: i32,
    /// A claim may take it: no grant holds it, and it is not parked.
    pub(crate) grantable: bool,
}

/// Locks the entries of those of the tasks that have one, one after the other in the order given, and hands each to `see`
/// before the next is waited for.
pub(crate) fn lock<E>(
    task_nos: &[TaskNo],
    strength: LockStrength,
    wait: Wait,
    mut see: impl FnMut(Locked) -> Result<(), E>,
) -> Result<(), E> {
    look(|look| {
        look.changing(&BY_NUMBER, |rows| {
            task_nos.iter().try_for_each(|task_no| {
                check_for_interrupts();
                rows.start(&[Key::eq(1, *task_no)]);
                let locked = rows.next().and_then(|row| row.locked(strength, wait, locked));
                locked.map_or(Ok(()), &mut see)
            })
        })
    })
}

fn locked(row: &Row) -> Locked {
    Locked { live: live(row), action_no: row.get(ACTION_NO), grantable: row.get(GRANTABLE) }
}

/// A row of the table, locked or removed.
fn live(row: &Row) -> Live {
    Live {
        task_no: row.get(TASK_NO),
        place: crate::store::live_row::Place::Run { nonce: row.get(NONCE) },
        tries: row.get(TRIES),
        failures: row.get(FAILURES),
        dependencies: row.get(DEPENDENCIES),
        granted_at: row.get(GRANTED_AT),
        deadline: row.get(DEADLINE),
        actor_id: row.get(ACTOR_ID),
        limited: row.get(LIMITED),
        keyed: row.get(KEYED),
    }
}
