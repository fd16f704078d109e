//! Which calls the end of a transaction has to wake.
//!
//! What is noted here is a hint: a note of a rolled-back savepoint wakes a call needlessly, which looks and
//! sleeps again. A transaction that is prepared (2PC) and committed later wakes none; waiting calls look
//! again now and then for that case, see `verbs::pace`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use super::channels::{
    LOOKS_SOON, SOON_CHANNEL, TIMER, TIMER_CHANNEL, WATCH_CHANNEL, WORKER_CHANNEL, longest_sleep,
    name_channel, ready_channel, settled_channel,
};
use super::lately;
use super::owed::{owe, pay};
use super::registered::give_up;
use crate::clock;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::latch::{self, Channel, HowMany};
use crate::pg::transaction::{self, End, Levels, Listener};

/// What this transaction has noted for its end.
struct Notes {
    /// How many waiters of each channel its commit has to wake.
    on_commit: BTreeMap<Channel, HowMany>,
    /// The earliest moments at which waiters of these channels have to look, by the monotonic clock.
    later: BTreeMap<Channel, Instant>,
    /// How many waiters for each action its rollback has to wake.
    taken: Levels<(i32, usize)>,
    /// Ready tasks that it has locked, and their actions.
    held: Levels<(TaskNo, i32)>,
    /// Those of them that it has removed.
    gone: Levels<TaskNo>,
}

impl Notes {
    const NONE: Notes = Notes {
        on_commit: BTreeMap::new(),
        later: BTreeMap::new(),
        taken: Levels::new(),
        held: Levels::new(),
        gone: Levels::new(),
    };
}

thread_local! {
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes::NONE) };
    /// The transaction that commits is one of several of a waiting call.
    static STAYS: Cell<bool> = const { Cell::new(false) };
}

/// A task of this action is ready, or there may be one that no other call can have before this transaction ends: one
/// waiting call looks at its commit.
pub(crate) fn ready(action_no: i32) {
    note(ready_channel(action_no), HowMany::UpTo(1));
}

/// What held tasks of this action back has changed: all calls that wait for them look again.
pub(crate) fn ready_for_all(action_no: i32) {
    note(ready_channel(action_no), HowMany::All);
}

/// This task has ended, or is gone: all calls that wait for it are woken.
pub(crate) fn settled(task_no: TaskNo) {
    note(settled_channel(task_no), HowMany::All);
}

/// A new number stands for an action's name.
pub(crate) fn new_number(name: &str) {
    note(name_channel(name), HowMany::All);
}

/// Something is due then that no call asks for by its action: a deadline, a schedule, a timer. One waiting call is enough: it looks in
/// time, and has what there is to do done.
pub(crate) fn timer(due: Time) {
    later(TIMER_CHANNEL, due);
}

/// This transaction leaves countdown rows that another one has to count.
pub(crate) fn signals_left() {
    timer(clock::now());
}

/// Something has changed that may hold back tasks of any action: all calls that wait for work look again.
pub(crate) fn all_look() {
    note(TIMER_CHANNEL, HowMany::All);
}

/// A task of this action is ready then.
pub(crate) fn ready_later(action_no: i32, due: Time) {
    later(ready_channel(action_no), due);
}

/// Notes the earliest time of a channel. The transaction may stay open for long: what counts is how far off it is at the commit.
fn later(channel: Channel, due: Time) {
    if due == Time::INFINITY {
        return;
    }
    transaction::listen(&LISTENER);
    lately::will_be_due(due);
    if let Some(at) = Instant::now().checked_add(clock::now().until(due)) {
        NOTES.with_borrow_mut(|notes| {
            notes.later.entry(channel).and_modify(|earliest| *earliest = at.min(*earliest)).or_insert(at);
        });
    }
}

/// What is due later than that the worker finds unasked: it looks as often, if anything has changed, and one that was called may
/// have left by then.
pub(crate) const HORIZON: Duration = Duration::from_secs(4);

/// Has a waiting call woken for something that is due at that moment, unless one looks in time anyway. For a timer it is one for
/// work, and one that waits for tasks.
fn wake_for(channel: Channel, due: Instant) {
    let ahead = due.saturating_duration_since(Instant::now());
    if ahead.is_zero() && channel.kind == TIMER {
        // It was due before others could see it: no sleep ends for it.
        owe(WATCH_CHANNEL, HowMany::UpTo(1));
        return owe(channel, HowMany::UpTo(1));
    }
    // For which actions those look that look soon is not known. For a deadline that is no matter.
    let in_time = ahead >= longest_sleep()
        || (ahead >= LOOKS_SOON && channel.kind == TIMER && latch::is_any_registered(SOON_CHANNEL));
    if !in_time {
        owe(channel, HowMany::UpTo(1));
        if channel.kind == TIMER {
            owe(WATCH_CHANNEL, HowMany::UpTo(1));
        }
    }
}

/// A call that waits for work is to look now, and so is the background worker: countdown rows may be left that no commit
/// counts. To be called when a transaction has ended, or a savepoint was rolled back: unlike the notes this takes
/// effect as soon as its locks are gone.
pub(crate) fn let_one_look() {
    transaction::listen(&LISTENER);
    owe(WORKER_CHANNEL, HowMany::UpTo(1));
    owe(TIMER_CHANNEL, HowMany::UpTo(1));
}

/// A ready task of each of these actions was taken: granted, moved, or made to ride on another. If that is rolled back,
/// they are there to be had again, and others have passed over them.
pub(crate) fn taken(action_nos: impl Iterator<Item = i32>) {
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    for action_no in action_nos {
        *counts.entry(action_no).or_default() += 1;
    }
    if !counts.is_empty() {
        transaction::listen(&LISTENER);
        let level = latch::nest_level();
        NOTES.with_borrow_mut(|notes| counts.into_iter().for_each(|count| notes.taken.add(level, count)));
    }
}

/// This transaction has locked a ready task. Other calls may pass over it until that ends: one is woken then, unless it has
/// [`gone`].
pub(crate) fn held(task_no: TaskNo, action_no: i32) {
    transaction::listen(&LISTENER);
    NOTES.with_borrow_mut(|notes| notes.held.add(latch::nest_level(), (task_no, action_no)));
}

/// This transaction has removed the task from those that are ready: if it commits, there is nothing to wake for.
pub(crate) fn gone(task_no: TaskNo) {
    transaction::listen(&LISTENER);
    NOTES.with_borrow_mut(|notes| notes.gone.add(latch::nest_level(), task_no));
}

fn note(channel: Channel, how_many: HowMany) {
    transaction::listen(&LISTENER);
    NOTES.with_borrow_mut(|notes| {
        notes.on_commit.entry(channel).and_modify(|noted| *noted = noted.and(how_many)).or_insert(how_many);
    });
}

/// Has what a transaction concerns woken: noted at its end, done once its locks are gone.
pub(super) static LISTENER: Listener = Listener { ended: on_end, unlocked: pay, ..Listener::DEAF };

fn on_end(end: End) {
    match end {
        End::Commit => {
            let mut notes = NOTES.replace(Notes::NONE);
            let now = Instant::now();
            if notes.later.values().any(|due| due.saturating_duration_since(now) < HORIZON) {
                // If a worker is there, those that wait rely on it for what is due so soon.
                owe(WORKER_CHANNEL, HowMany::UpTo(1));
            }
            for (channel, due) in notes.later {
                if !notes.on_commit.contains_key(&channel) || due <= now {
                    wake_for(channel, due);
                }
            }
            for (channel, how_many) in notes.on_commit {
                owe(channel, how_many);
            }
            let gone: HashSet<TaskNo> = notes.gone.take().collect();
            wake_for_held(notes.held.take().filter(|(task_no, _)| !gone.contains(task_no)));
            if !STAYS.get() {
                give_up(0);
            }
        }
        End::Prepare => drop(NOTES.replace(Notes::NONE)),
        End::Abort => {
            let mut notes = NOTES.replace(Notes::NONE);
            wake_for_taken(notes.taken.take());
            wake_for_held(notes.held.take());
            give_up(0);
        }
        // What was granted or locked before the savepoint is still ours. Two waiting calls whose looks are rolled back,
        // in transactions that hold something already, would wake each other for ever for that.
        End::AbortSub(level) => {
            let (taken, held) = NOTES.with_borrow_mut(|notes| {
                drop(notes.gone.undone(level));
                (notes.taken.undone(level), notes.held.undone(level))
            });
            wake_for_taken(taken);
            wake_for_held(held);
            give_up(level);
        }
        End::CommitSub(level) => NOTES.with_borrow_mut(|notes| {
            notes.taken.released(level);
            notes.held.released(level);
            notes.gone.released(level);
        }),
    }
}

fn wake_for_taken(taken: impl Iterator<Item = (i32, usize)>) {
    for (action_no, count) in taken {
        owe(ready_channel(action_no), HowMany::UpTo(count));
    }
}

/// Wakes calls that may have skipped tasks whose locks have ended, one for each.
fn wake_for_held(held: impl Iterator<Item = (TaskNo, i32)>) {
    let mut tasks: BTreeMap<i32, HashSet<TaskNo>> = BTreeMap::new();
    for (task_no, action_no) in held {
        tasks.entry(action_no).or_default().insert(task_no);
    }
    for (action_no, tasks) in tasks {
        owe(ready_channel(action_no), HowMany::UpTo(tasks.len()));
    }
}

/// Commits in the middle of a waiting call, which can be found as before: its looks go on.
pub(crate) fn stay_registered(commit: impl FnOnce()) {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            STAYS.set(false);
        }
    }
    STAYS.set(true);
    let _over = Over;
    commit();
}
