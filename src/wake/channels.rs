//! The channels under which waiting calls are found, and how long these sleep without a wake-up.

use std::time::Duration;

use crate::number::TaskNo;
use crate::pg::latch::{self, Channel, HowMany};
use crate::pg::lock::Key;
use crate::pg::post::Post;
use crate::pg::{process, session};

/// The kind of channel for tasks of one action that are ready; its number is the action's.
pub(super) const READY: u8 = 1;
/// The kind for one task: it has settled or gone; its number is the task's.
const SETTLED: u8 = 2;
const NEW_NUMBER: u8 = 3;
/// The kind, with one channel, for all calls that wait for work: something may be due sooner.
pub(super) const TIMER: u8 = 4;
const SOON_UP: u8 = 5;
/// The kind, with one channel, for calls that wait for too many actions to be found under each.
pub(super) const READY_ANY: u8 = 6;
/// The kind, with one channel, for calls that wait for the ends of tasks.
pub(super) const WATCH: u8 = 7;
/// Four kinds by which another session ends calls that sleep for work, see `stop`; their numbers stand for an actor and a role, and
/// for an actor and a process id.
pub(super) const OF_ACTOR: u8 = 8;
/// The same for a call that sleeps.
pub(super) const ASLEEP: u8 = 9;
/// The same for a call that is to end.
pub(super) const MARKED: u8 = 10;

/// The same for a call that ends since it is to.
pub(super) const STOPPED: u8 = 12;

/// The kind of the one channel that is no call's.
const WORKER: u8 = 11;

/// Sleeping calls of any database that have something due and need a post of the server for a worker.
pub(super) const POST_WANTED: Channel = Channel { kind: latch::OF_SERVER, number: 0 };

/// Waiters for tasks of this action.
pub(super) fn ready_channel(action_no: i32) -> Channel {
    Channel { kind: READY, number: action_no as u64 }
}

/// Waiting calls for more actions than they may have locks for: they may be woken for whatever becomes ready.
pub(super) const ANY_READY_CHANNEL: Channel = Channel { kind: READY_ANY, number: 0 };

/// Waiters for the end of this task.
pub(crate) fn settled_channel(task_no: TaskNo) -> Channel {
    Channel { kind: SETTLED, number: task_no.0 as u64 }
}

/// Waiters for tasks of the action with this name, which may just have got a number (or one more).
pub(super) fn name_channel(name: &str) -> Channel {
    Channel { kind: NEW_NUMBER, number: Key::new(&[name]).number() }
}

/// Calls that wait for work: such as that the next deadline that they look after may have come nearer.
pub(super) const TIMER_CHANNEL: Channel = Channel { kind: TIMER, number: 0 };

/// Calls for work that look within [`LOOKS_SOON`] whether they are woken or not.
pub(super) const SOON_CHANNEL: Channel = Channel { kind: SOON_UP, number: 0 };

/// Calls that wait for the ends of tasks: what ends one of these may be due sooner now than they knew.
pub(super) const WATCH_CHANNEL: Channel = Channel { kind: WATCH, number: 0 };

/// Whether a call of this database waits, for work or for tasks.
pub(crate) fn is_any_call_waiting() -> bool {
    latch::is_used(TIMER_CHANNEL) || latch::is_used(WATCH_CHANNEL)
}

/// Whether a call of some database waits for a post of the server.
pub(crate) fn is_post_wanted() -> bool {
    latch::is_used(POST_WANTED)
}

/// A post of the server is free: the call that has waited for one for longest is woken.
pub(crate) fn post_is_free() {
    latch::wake_in_turn(POST_WANTED, HowMany::UpTo(1));
}

/// Calls of this database look again when something is due: the worker that they have relied on leaves.
pub(crate) fn worker_leaves() {
    latch::wake_highest(TIMER_CHANNEL, HowMany::UpTo(1));
    latch::wake(WATCH_CHANNEL, HowMany::UpTo(1));
}

/// Whether a call waits for tasks of this action, or for those of more actions than it may be found under.
pub(crate) fn is_waited_for(action_no: i32) -> bool {
    latch::is_used(ready_channel(action_no)) || latch::is_used(ANY_READY_CHANNEL)
}

/// A call that sleeps no longer than that needs no wake-up for what is due later.
pub(crate) const LOOKS_SOON: Duration = Duration::from_secs(1);

/// How long a waiter sleeps at most before it looks again unwoken, or finds that it need not. Needed where no commit callback
/// runs: for COMMIT PREPARED, which a server without prepared transactions does not have, and on a standby.
pub(crate) fn longest_sleep() -> Duration {
    Duration::from_secs(if session::has_silent_commits() { 5 } else { 30 })
}

/// For how many actions one call is registered by name and by number: the server's lock table has room for
/// `max_locks_per_transaction` locks for each connection, 64 if nothing else is set. For more it registers by one
/// lock for all.
fn most_actions() -> usize {
    session::max_locks_per_transaction() / 4
}

/// Not of a call: the background worker of this database, if there is one. It does not register: a commit finds its
/// process.
pub(super) const WORKER_CHANNEL: Channel = Channel { kind: WORKER, number: 0 };

/// The channels on which a claim for these names is woken, whatever their numbers are.
pub(crate) fn channels_for_names(names: &[String]) -> Vec<Channel> {
    let mut channels = vec![TIMER_CHANNEL];
    if names.len() > most_actions() {
        // A call that may be woken for any ready task need not be woken for a new number.
        channels.push(ANY_READY_CHANNEL);
    } else {
        channels.extend(names.iter().map(|name| name_channel(name)));
    }
    channels
}

/// The channels of a call that waits for the ends of tasks: those of the tasks, and the one of all such calls.
pub(crate) fn channels_for_tasks(mut own: Vec<Channel>) -> Vec<Channel> {
    own.push(WATCH_CHANNEL);
    own
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

/// Wakes so many waiting calls of the channel; tasks that become ready concern those as well that wait for
/// any. Returns how many.
pub(super) fn wake(channel: Channel, how_many: HowMany) -> usize {
    match channel.kind {
        READY => {
            let woken = latch::wake(channel, how_many);
            woken + latch::wake_highest(ANY_READY_CHANNEL, how_many.less(woken))
        }
        READY_ANY | TIMER => latch::wake_highest(channel, how_many),
        WORKER => {
            if Post::OfDatabase.is_taken() {
                process::wake_workers();
            }
            0
        }
        _ => latch::wake(channel, how_many),
    }
}
