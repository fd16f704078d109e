//! Whom the end of a transaction has to wake, and who waits in this backend.
//!
//! What is noted here is a hint: a note of a rolled-back savepoint wakes somebody for nothing, who looks
//! and sleeps again. A transaction that is prepared (2PC) and committed later wakes nobody; waiters look
//! again now and then for that case, see `verbs::wait`.
//!
//! **No wake-up is lost.** A waiter registers, resets its latch, looks, sleeps. What is committed before the look
//! is seen by it, what is committed after it finds the registration. Of several waiters a commit wakes as many as
//! it brought work for. So whoever leaves owes three things to those who go on sleeping: a wake-up that came after
//! its last look; one for what is left, if it took all it could; and what it alone may have known, which is when
//! the next thing is due. [`hand_on`] pays when a call ends, [`give_up`] when an error ends it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};

use crate::pg::board;
use crate::pg::clock::{self, Time};
use crate::pg::latch::{self, Channel};
use crate::pg::transaction::{self, End, Levels};

const READY: u8 = 1;
pub(crate) const SETTLED: u8 = 2;
pub(crate) const NEW_ACTION: u8 = 3;
const TIMER: u8 = 4;

thread_local! {
    /// How many waiters of each channel this transaction's commit has to wake.
    static NOTES: RefCell<BTreeMap<Channel, usize>> = const { RefCell::new(BTreeMap::new()) };
    /// What this transaction brings that is due by itself, the earliest of it.
    static DUE: Cell<Time> = const { Cell::new(Time::INFINITY) };
    /// How many waiters for each action this transaction's rollback has to wake.
    static TAKEN: RefCell<Levels<(i32, usize)>> = const { RefCell::new(Levels::new()) };
    /// Ready tasks that this transaction has locked, and their actions.
    static HELD: RefCell<Levels<(i64, i32)>> = const { RefCell::new(Levels::new()) };
    /// Those of them that it has removed.
    static GONE: RefCell<Levels<i64>> = const { RefCell::new(Levels::new()) };
    /// Under which channels this backend can be found, and in which subtransaction it registered.
    static REGISTERED: RefCell<Vec<(Channel, i32)>> = const { RefCell::new(Vec::new()) };
}

/// Waiters for tasks of this action.
pub(crate) fn ready_channel(action_no: i32) -> Channel {
    Channel { kind: READY, number: action_no as u64 }
}

/// Waiters for the end of this task.
pub(crate) fn settled_channel(task_no: i64) -> Channel {
    Channel { kind: SETTLED, number: task_no as u64 }
}

/// Waiters for tasks, whose list of actions may just have got a new number.
pub(crate) const NEW_ACTION_CHANNEL: Channel = Channel { kind: NEW_ACTION, number: 0 };

/// Waiters for tasks, whose next deadline to look after may have come nearer.
pub(crate) const TIMER_CHANNEL: Channel = Channel { kind: TIMER, number: 0 };

/// A task of this action is ready.
pub(crate) fn ready(action_no: i32) {
    note(ready_channel(action_no), 1);
}

/// What held tasks of this action back has changed: all who wait for them look again.
pub(crate) fn ready_for_all(action_no: i32) {
    note(ready_channel(action_no), usize::MAX);
}

/// This task has ended: all who wait for it are woken.
pub(crate) fn settled(task_no: i64) {
    note(settled_channel(task_no), usize::MAX);
}

/// A new number stands for an action's name.
pub(crate) fn new_action() {
    note(NEW_ACTION_CHANNEL, usize::MAX);
}

/// A deadline was added. One waiter is enough: it looks in time and frees what the deadline held.
pub(crate) fn timer() {
    note(TIMER_CHANNEL, 1);
}

/// Something that is due then: the background worker, if there is one, looks after it in time.
pub(crate) fn due(time: Time) {
    transaction::listen(on_end);
    DUE.set(DUE.get().min(time));
}

/// Somebody who waits for work is to look now, and so is the background worker: signals may be left that no commit
/// counts. Unlike the notes this takes effect at once.
pub(crate) fn somebody_to_look() {
    board::tell(clock::wall());
    latch::wake(TIMER_CHANNEL, 1);
}

/// Up to `count` tasks of each of these actions were granted. If that is rolled back, they are there to be had
/// again, and others have passed over them.
pub(crate) fn taken(action_nos: &[i32], count: usize) {
    if count > 0 {
        transaction::listen(on_end);
        let level = latch::nest_level();
        TAKEN.with_borrow_mut(|taken| action_nos.iter().for_each(|n| taken.add(level, (*n, count))));
    }
}

/// This transaction has locked a ready task. Others pass over it until that ends, and are woken then.
pub(crate) fn held(task_no: i64, action_no: i32) {
    transaction::listen(on_end);
    HELD.with_borrow_mut(|held| held.add(latch::nest_level(), (task_no, action_no)));
}

/// This transaction has removed the task from those that are ready: if it commits, there is nothing to wake for.
pub(crate) fn gone(task_no: i64) {
    transaction::listen(on_end);
    GONE.with_borrow_mut(|gone| gone.add(latch::nest_level(), task_no));
}

fn note(channel: Channel, count: usize) {
    transaction::listen(on_end);
    NOTES.with_borrow_mut(|notes| {
        let noted = notes.entry(channel).or_insert(0);
        *noted = noted.saturating_add(count);
    });
}

fn on_end(end: End) {
    match end {
        End::Commit => {
            let (notes, due) = (NOTES.take(), DUE.replace(Time::INFINITY));
            if !notes.is_empty() || due != Time::INFINITY {
                board::tell(due);
            }
            for (channel, count) in notes {
                latch::wake(channel, count);
            }
            let gone: HashSet<i64> = GONE.with_borrow_mut(|gone| gone.take().collect());
            wake_for_held(HELD.with_borrow_mut(Levels::take).filter(|(task_no, _)| !gone.contains(task_no)));
            forget();
            give_up(0);
        }
        End::Prepare => forget(),
        End::Abort => {
            wake_for_taken(TAKEN.with_borrow_mut(Levels::take));
            wake_for_held(HELD.with_borrow_mut(Levels::take));
            forget();
            give_up(0);
        }
        // What was granted or locked before the savepoint is still ours. Two waiting calls whose looks are rolled back, in
        // transactions that hold something already, would wake each other for ever for that.
        End::AbortSub(level) => {
            GONE.with_borrow_mut(|gone| drop(gone.undone(level)));
            wake_for_taken(TAKEN.with_borrow_mut(|taken| taken.undone(level)));
            wake_for_held(HELD.with_borrow_mut(|held| held.undone(level)));
            give_up(level);
        }
        End::CommitSub(level) => {
            TAKEN.with_borrow_mut(|taken| taken.released(level));
            HELD.with_borrow_mut(|held| held.released(level));
            GONE.with_borrow_mut(|gone| gone.released(level));
        }
    }
}

fn forget() {
    NOTES.take();
    DUE.set(Time::INFINITY);
    TAKEN.set(Levels::new());
    HELD.set(Levels::new());
    GONE.set(Levels::new());
}

fn wake_for_taken(taken: impl Iterator<Item = (i32, usize)>) {
    for (action_no, count) in taken {
        latch::wake(ready_channel(action_no), count);
    }
}

/// Wakes those who may have passed over tasks whose locks have ended, one for each.
fn wake_for_held(held: impl Iterator<Item = (i64, i32)>) {
    let mut tasks: BTreeMap<i32, HashSet<i64>> = BTreeMap::new();
    for (task_no, action_no) in held {
        tasks.entry(action_no).or_default().insert(task_no);
    }
    for (action_no, tasks) in tasks {
        latch::wake(ready_channel(action_no), tasks.len());
    }
}

/// The channels under which a waiting call can be found; given up when it is dropped, or by the abort that ends
/// the call.
pub(crate) struct Registration {
    channels: Vec<Channel>,
}

impl Registration {
    /// Makes this backend findable under each of the channels.
    pub(crate) fn new(channels: Vec<Channel>) -> Self {
        transaction::listen(on_end);
        let level = latch::nest_level();
        for channel in &channels {
            latch::register(*channel);
            REGISTERED.with_borrow_mut(|registered| registered.push((*channel, level)));
        }
        Registration { channels }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // While a panic carries an error outwards no lock may be touched: Postgres has yet to release those that
        // it holds inside. The abort gives the registrations up.
        if std::thread::panicking() {
            return;
        }
        for channel in &self.channels {
            let there = REGISTERED.with_borrow_mut(|registered| {
                registered.iter().rposition(|(c, _)| c == channel).map(|n| registered.remove(n)).is_some()
            });
            if there {
                latch::unregister(*channel);
            }
        }
    }
}

/// An error has ended a waiting call that began in a subtransaction of this level or a deeper one: cancelled, timed
/// out, terminated. It may have been woken for work just then, and it may have been the one to know what is due.
fn give_up(level: i32) {
    let mut channels: Vec<Channel> = Vec::new();
    REGISTERED.with_borrow_mut(|registered| {
        registered.retain(|(channel, at)| {
            let over = *at >= level;
            if over {
                channels.push(*channel);
            }
            !over
        });
    });
    for channel in &channels {
        latch::unregister(*channel);
    }
    for channel in channels.into_iter().filter(|c| c.kind == READY || c.kind == TIMER) {
        latch::wake(channel, 1);
    }
}

/// To be called when a call for work ends, after it has given up its registrations, if it had any: hands on a
/// wake-up that came after its last look (`waited`) to one waiter of each action, since nobody knows for which of
/// them it was meant.
///
/// Otherwise it wakes those that something is left for: `left` tells the actions, 0 for any. That is asked only
/// if somebody sleeps who could hear of it.
pub(crate) fn hand_on(action_nos: &[i32], waited: bool, left: impl FnOnce() -> Vec<i32>) {
    let mut channels = action_nos.iter().map(|n| ready_channel(*n)).chain([TIMER_CHANNEL]);
    if waited && latch::is_set() {
        for channel in channels {
            latch::wake(channel, 1);
        }
    } else if channels.any(latch::anybody_asleep) {
        let mut left = left();
        left.sort_unstable();
        left.dedup();
        let any = left.first() == Some(&0);
        let woken: usize = left.iter().filter(|n| **n != 0).map(|n| latch::wake(ready_channel(*n), 1)).sum();
        // Whoever looks knows of all deadlines.
        if any && woken == 0 {
            latch::wake(TIMER_CHANNEL, 1);
        }
    }
}
