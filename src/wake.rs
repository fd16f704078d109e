//! Whom the end of a transaction has to wake, and who waits in this backend.
//!
//! What is noted here is a hint: a note of a rolled-back savepoint wakes somebody for nothing, who looks
//! and sleeps again. A transaction that is prepared (2PC) and committed later wakes nobody; waiters look
//! again now and then for that case, see `verbs::pace`.
//!
//! **No wake-up is lost.** A waiter registers, resets its latch, looks, sleeps. What is committed before the look
//! is seen by it, what is committed after it finds the registration. Of several waiters a commit wakes as many as
//! it brought work for. So whoever leaves owes three things to those who go on sleeping: a wake-up that came after
//! its last look; one for what is left, if it took all it could; and what it alone may have known, which is when
//! the next thing is due. [`hand_on`] pays when a call ends, [`give_up`] when an error ends it.
//!
//! **Nobody is woken for nothing.** Of what is due later only those need to hear who would not look in time by
//! themselves: all look within [`longest_sleep`], and those who look within [`SOON`] say so.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use crate::pg::board;
use crate::pg::clock::{self, Time};
use crate::pg::latch::{self, Channel};
use crate::pg::lock::Key;
use crate::pg::session;
use crate::pg::transaction::{self, End, Levels, Listener};

const READY: u8 = 1;
pub(crate) const SETTLED: u8 = 2;
const NEW_NUMBER: u8 = 3;
pub(crate) const TIMER: u8 = 4;
const SOON_UP: u8 = 5;
const READY_ANY: u8 = 6;

thread_local! {
    /// How many waiters of each channel this transaction's commit has to wake.
    static NOTES: RefCell<BTreeMap<Channel, usize>> = const { RefCell::new(BTreeMap::new()) };
    /// What this transaction brings that is due by itself, the earliest of it.
    static DUE: Cell<Time> = const { Cell::new(Time::INFINITY) };
    /// The earliest moments at which waiters of these channels have to look, by the monotonic clock.
    static LATER: RefCell<BTreeMap<Channel, Instant>> = const { RefCell::new(BTreeMap::new()) };
    /// Whom to wake as soon as the locks of the (sub)transaction that has ended are gone.
    static OWED: RefCell<Vec<(Channel, usize)>> = const { RefCell::new(Vec::new()) };
    /// Whether this look has passed over something that it might have had, had others not held it just then; `None` if
    /// nobody is going to ask.
    static PASSED_OVER: Cell<Option<bool>> = const { Cell::new(None) };
    /// How many waiters for each action this transaction's rollback has to wake.
    static TAKEN: RefCell<Levels<(i32, usize)>> = const { RefCell::new(Levels::new()) };
    /// Ready tasks that this transaction has locked, and their actions.
    static HELD: RefCell<Levels<(i64, i32)>> = const { RefCell::new(Levels::new()) };
    /// Those of them that it has removed.
    static GONE: RefCell<Levels<i64>> = const { RefCell::new(Levels::new()) };
    /// The transaction that commits is one of several of a waiting call.
    static STAYS: Cell<bool> = const { Cell::new(false) };
    /// Under which channels this backend can be found, and in which subtransaction it registered.
    static REGISTERED: RefCell<Vec<(Channel, i32)>> = const { RefCell::new(Vec::new()) };
}

/// Waiters for tasks of this action.
fn ready_channel(action_no: i32) -> Channel {
    Channel { kind: READY, number: action_no as u64 }
}

/// Waiters for tasks of more actions than they may have locks for: they hear of all that becomes ready.
const ANY_READY_CHANNEL: Channel = Channel { kind: READY_ANY, number: 0 };

/// Waiters for the end of this task.
pub(crate) fn settled_channel(task_no: i64) -> Channel {
    Channel { kind: SETTLED, number: task_no as u64 }
}

/// Waiters for tasks of the action with this name, which may just have got a number (or one more).
fn name_channel(name: &str) -> Channel {
    Channel { kind: NEW_NUMBER, number: Key::new(&[name]).number() }
}

/// Waiters for tasks, whose next deadline to look after may have come nearer.
const TIMER_CHANNEL: Channel = Channel { kind: TIMER, number: 0 };

/// Waiters for tasks that look within [`SOON`] whether they are woken or not.
const SOON_CHANNEL: Channel = Channel { kind: SOON_UP, number: 0 };

/// Who sleeps no longer than that needs no wake-up for what is due later.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// How long a waiter sleeps at most before it looks again by itself. Needed where no commit callback runs: for
/// COMMIT PREPARED, which a server without prepared transactions does not have, and on a standby.
pub(crate) fn longest_sleep() -> Duration {
    Duration::from_secs(if session::has_silent_commits() { 5 } else { 30 })
}

/// For how many actions one call is registered by name and by number: the server's lock table has room for
/// `max_locks_per_transaction` locks for each connection, 64 if nothing else is set. Of more it hears by one lock for
/// all.
fn most_actions() -> usize {
    session::max_locks_per_transaction() / 4
}

/// The channels on which news come that concern a claim for these names, whatever their numbers are.
pub(crate) fn channels_for_names(names: &[String]) -> Vec<Channel> {
    let mut channels = vec![TIMER_CHANNEL];
    if names.len() > most_actions() {
        // Whoever hears of every ready task need not hear of a new number.
        channels.push(ANY_READY_CHANNEL);
    } else {
        channels.extend(names.iter().map(|name| name_channel(name)));
    }
    channels
}

/// The channels on which tasks of these actions are announced to a claim for these names.
pub(crate) fn channels_for_work(names: &[String], action_nos: &[i32]) -> Vec<Channel> {
    if names.len() > most_actions() {
        vec![]
    } else if action_nos.len() > most_actions() {
        vec![ANY_READY_CHANNEL]
    } else {
        action_nos.iter().map(|n| ready_channel(*n)).collect()
    }
}

/// A task of this action is ready.
pub(crate) fn ready(action_no: i32) {
    note(ready_channel(action_no), 1);
}

/// There may be a task of this action that nobody can have before this transaction ends: one waiter looks then.
pub(crate) fn ready_soon(action_no: i32) {
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
pub(crate) fn new_number(name: &str) {
    note(name_channel(name), usize::MAX);
}

/// A deadline was added, or a schedule. One waiter is enough: it looks in time and frees what the deadline held.
pub(crate) fn timer(due: Time) {
    later(TIMER_CHANNEL, due);
}

/// A task of this action is ready then.
pub(crate) fn ready_later(action_no: i32, due: Time) {
    later(ready_channel(action_no), due);
}

fn later(channel: Channel, due: Time) {
    if due == Time::INFINITY {
        return;
    }
    transaction::listen(LISTENER);
    // The transaction may stay open for long: what counts is how far off it is at the commit.
    let ahead = Duration::from_micros(clock::now().until(due).max(0) as u64);
    if let Some(at) = Instant::now().checked_add(ahead) {
        LATER.with_borrow_mut(|later| {
            later.entry(channel).and_modify(|earliest| *earliest = at.min(*earliest)).or_insert(at);
        });
    }
}

/// Has one waiter woken for something that is due at that moment, unless there is one who looks in time anyway.
fn wake_for(channel: Channel, due: Instant) {
    let ahead = due.saturating_duration_since(Instant::now());
    // Of those who look soon nobody knows for which actions.
    let in_time =
        ahead >= longest_sleep() || (ahead >= SOON && channel.kind == TIMER && latch::anybody(SOON_CHANNEL));
    if !in_time {
        owe(channel, 1);
    }
}

/// To be called before a look that may be followed by a sleep.
pub(crate) fn begin_look() {
    PASSED_OVER.set(Some(false));
}

/// This look leaves something out that it might have had, had others not held it just then: a bucket, a slot, a lock
/// that is only tried. If they let go of it without a change that wakes, nobody would hear of it.
pub(crate) fn passed_over() {
    PASSED_OVER.set(PASSED_OVER.get().map(|_| true));
}

/// Whether this call may sleep, and so wants to know what it has [`passed_over`].
pub(crate) fn may_sleep() -> bool {
    PASSED_OVER.get().is_some()
}

/// Ends what [`begin_look`] has begun; whether the look has [`passed_over`] anything.
pub(crate) fn end_look() -> bool {
    PASSED_OVER.take().unwrap_or(false)
}

/// Something that is due then: the background worker, if there is one, looks after it in time.
pub(crate) fn due(time: Time) {
    transaction::listen(LISTENER);
    DUE.set(DUE.get().min(time));
}

/// Somebody who waits for work is to look now, and so is the background worker: signals may be left that no commit
/// counts. To be called when a transaction has ended: unlike the notes this takes effect as soon as its locks are gone.
pub(crate) fn somebody_to_look() {
    transaction::listen(LISTENER);
    board::tell(clock::wall());
    owe(TIMER_CHANNEL, 1);
}

/// A ready task of each of these actions was taken: granted, moved, or made to ride on another. If that is rolled back,
/// they are there to be had again, and others have passed over them.
pub(crate) fn taken(action_nos: impl Iterator<Item = i32>) {
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    for action_no in action_nos {
        *counts.entry(action_no).or_default() += 1;
    }
    if !counts.is_empty() {
        transaction::listen(LISTENER);
        let level = latch::nest_level();
        TAKEN.with_borrow_mut(|taken| counts.into_iter().for_each(|count| taken.add(level, count)));
    }
}

/// This transaction has locked a ready task. Others pass over it until that ends, and are woken then.
pub(crate) fn held(task_no: i64, action_no: i32) {
    transaction::listen(LISTENER);
    HELD.with_borrow_mut(|held| held.add(latch::nest_level(), (task_no, action_no)));
}

/// This transaction has removed the task from those that are ready: if it commits, there is nothing to wake for.
pub(crate) fn gone(task_no: i64) {
    transaction::listen(LISTENER);
    GONE.with_borrow_mut(|gone| gone.add(latch::nest_level(), task_no));
}

fn note(channel: Channel, count: usize) {
    transaction::listen(LISTENER);
    NOTES.with_borrow_mut(|notes| {
        let noted = notes.entry(channel).or_insert(0);
        *noted = noted.saturating_add(count);
    });
}

const LISTENER: Listener = Listener { ended: on_end, unlocked: pay };

fn on_end(end: End) {
    match end {
        End::Commit => {
            let (notes, due) = (NOTES.take(), DUE.replace(Time::INFINITY));
            if !notes.is_empty() || due != Time::INFINITY {
                board::tell(due);
            }
            for (channel, due) in LATER.take() {
                if !notes.contains_key(&channel) {
                    wake_for(channel, due);
                }
            }
            for (channel, count) in notes {
                owe(channel, count);
            }
            let gone: HashSet<i64> = GONE.with_borrow_mut(|gone| gone.take().collect());
            wake_for_held(HELD.with_borrow_mut(Levels::take).filter(|(task_no, _)| !gone.contains(task_no)));
            forget();
            if !STAYS.get() {
                give_up(0);
            }
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
    LATER.take();
    DUE.set(Time::INFINITY);
    TAKEN.set(Levels::new());
    HELD.set(Levels::new());
    GONE.set(Levels::new());
}

fn wake_for_taken(taken: impl Iterator<Item = (i32, usize)>) {
    for (action_no, count) in taken {
        owe(ready_channel(action_no), count);
    }
}

/// Wakes those who may have passed over tasks whose locks have ended, one for each.
fn wake_for_held(held: impl Iterator<Item = (i64, i32)>) {
    let mut tasks: BTreeMap<i32, HashSet<i64>> = BTreeMap::new();
    for (task_no, action_no) in held {
        tasks.entry(action_no).or_default().insert(task_no);
    }
    for (action_no, tasks) in tasks {
        owe(ready_channel(action_no), tasks.len());
    }
}

/// Has so many waiters woken when the locks of what has just ended are gone: who is woken before finds them held.
fn owe(channel: Channel, count: usize) {
    OWED.with_borrow_mut(|owed| owed.push((channel, count)));
}

fn pay() {
    if OWED.with_borrow(Vec::is_empty) {
        return;
    }
    for (channel, count) in OWED.take() {
        wake(channel, count);
    }
}

/// Wakes up to `limit` waiters of the channel; tasks that become ready are news for those, too, who wait for any.
/// Returns how many.
fn wake(channel: Channel, limit: usize) -> usize {
    match channel.kind {
        READY => {
            let woken = latch::wake(channel, limit);
            woken + latch::wake_highest(ANY_READY_CHANNEL, limit - woken)
        }
        READY_ANY => latch::wake_highest(channel, limit),
        _ => latch::wake(channel, limit),
    }
}

/// To be called by a waiter that was woken and has found nothing. If it hears of any action, it may have been woken for
/// one that is not its own: it wakes the next of those who do. Each wakes one with a lower number than its own, so
/// all get their turn, and that ends.
pub(crate) fn pass_on() {
    let any = REGISTERED.with_borrow(|registered| registered.iter().any(|(c, _)| *c == ANY_READY_CHANNEL));
    if any {
        latch::wake_next_lower(ANY_READY_CHANNEL);
    }
}

/// The channels under which a waiting call can be found; given up when it is dropped, or by the abort that ends
/// the call.
pub(crate) struct Registration {
    channels: Vec<Channel>,
}

impl Registration {
    /// Makes this backend findable under each of the channels, from the subtransaction of this level on.
    pub(crate) fn new(channels: Vec<Channel>, level: i32) -> Self {
        transaction::listen(LISTENER);
        for channel in &channels {
            latch::register(*channel);
            REGISTERED.with_borrow_mut(|registered| registered.push((*channel, level)));
        }
        Registration { channels }
    }

    /// Says that this backend looks soon whether it is woken or not. Given up before that look.
    pub(crate) fn soon() -> Self {
        Registration::new(vec![SOON_CHANNEL], latch::nest_level())
    }

    /// The channels.
    pub(crate) fn channels(&self) -> &[Channel] {
        &self.channels
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
    for channel in channels.into_iter().filter(|c| [READY, READY_ANY, TIMER].contains(&c.kind)) {
        owe(channel, 1);
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
        latch::wake_highest(ANY_READY_CHANNEL, 1);
    } else if channels.any(latch::anybody_asleep) || latch::anybody_asleep(ANY_READY_CHANNEL) {
        let mut left = left();
        left.sort_unstable();
        left.dedup();
        let any = left.first() == Some(&0);
        let woken: usize = left.iter().filter(|n| **n != 0).map(|n| wake(ready_channel(*n), 1)).sum();
        // Whoever looks knows of all deadlines.
        if any && woken == 0 {
            wake(TIMER_CHANNEL, 1);
        }
    }
}
