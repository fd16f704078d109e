//! Whom a commit has to wake, remembered until the commit.
//!
//! What is noted here is a hint: a note of a rolled-back savepoint wakes somebody for nothing, who looks
//! and sleeps again. A transaction that is prepared (2PC) and committed later wakes nobody; waiters look
//! again now and then for that case, see `verbs::wait`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use pgrx::{PgXactCallbackEvent, register_xact_callback};

use crate::pg::board;
use crate::pg::clock::Time;
use crate::pg::latch::{self, Channel};

const READY: u8 = 1;
pub(crate) const SETTLED: u8 = 2;
pub(crate) const NEW_ACTION: u8 = 3;
const TIMER: u8 = 4;

thread_local! {
    /// How many waiters of each channel this transaction's commit has to wake.
    static NOTES: RefCell<BTreeMap<Channel, usize>> = const { RefCell::new(BTreeMap::new()) };
    /// What this transaction brings that is due by itself, the earliest of it.
    static DUE: Cell<Time> = const { Cell::new(Time::INFINITY) };
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

/// Something that is due then: the background worker, if there is one, looks after it in time. To be called
/// besides one of the others, which has the commit tell.
pub(crate) fn due(time: Time) {
    DUE.set(DUE.get().min(time));
}

/// To be called when a waiting call for work ends, after it has given up its registrations: hands on a
/// wake-up that came after its last look, and one more if it took all it could (`full`), since there may be
/// more. A wake-up is only ever lost with a backend that ends by an error; the slow look covers that.
pub(crate) fn hand_on(action_nos: &[i32], full: bool) {
    let woken = latch::is_set();
    if woken || full {
        for action_no in action_nos {
            if latch::wake(ready_channel(*action_no), 1) > 0 {
                break;
            }
        }
    }
    if woken {
        latch::wake(TIMER_CHANNEL, 1);
    }
}

fn note(channel: Channel, count: usize) {
    let first = NOTES.with_borrow_mut(|notes| {
        let first = notes.is_empty();
        let noted = notes.entry(channel).or_insert(0);
        *noted = noted.saturating_add(count);
        first
    });
    if first {
        register_xact_callback(PgXactCallbackEvent::Commit, || {
            // The commit is visible to everybody by now.
            for (channel, count) in NOTES.take() {
                latch::wake(channel, count);
            }
            board::tell(DUE.replace(Time::INFINITY));
        });
        register_xact_callback(PgXactCallbackEvent::Abort, forget);
        register_xact_callback(PgXactCallbackEvent::Prepare, forget);
    }
}

fn forget() {
    NOTES.take();
    DUE.set(Time::INFINITY);
}
