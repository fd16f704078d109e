//! How a worker has come to its database, how it is woken, and when it leaves.
//!
//! With the library preloaded it is *kept*: the launcher has sent it, shared memory says how to wake it, and it stays as a rule.
//! Without, it was *called*: by a session whose call sleeps, or is in a transaction that may stay open, and has found something due
//! that it could not show to other sessions ([`super::call_if`]). Then it holds two posts: that of its database, so that this has
//! one worker; and one of those that the server has for such workers, so that background processes are left for other
//! extensions. It leaves when there is nothing to do for a moment, for instance, or no call waits any more.
//!
//! **No call is lost.** A caller first sets the latches of the database's background processes, then looks whether the post is
//! taken, and if it is not starts a worker, where it may. A worker that leaves for want of work or of calls first gives up the
//! post, then looks at its latch, and goes on if that is set and the post still free. So either the caller finds the post free, or
//! the worker its latch set.

use std::cell::Cell;
use std::time::Duration;

use super::{AWAY_AFTER_END, most_called};
use crate::guc;
use crate::pg::board::{self, WorkerSlot, WorkerState};
use crate::pg::clock::{Wall, wall};
use crate::pg::latch;
use crate::pg::post::Post;
use crate::pg::process;
use crate::pg::wait_event::Sleep;
use crate::wake;

/// How long, as a rule, a worker that was called stays when it has nothing to do, or when no call waits.
const LINGERS: Duration = Duration::from_secs(1);

/// What is due so soon it stays for, if a call waits and not all posts of the server are taken.
pub(super) const NEAR: Duration = Duration::from_secs(2);

const AT_ONCE: Duration = Duration::ZERO;

/// Where a worker is.
pub(super) enum Station {
    /// The launcher has sent it.
    Kept(&'static WorkerSlot),
    /// A call has.
    Called {
        /// When it did something last.
        busy: Cell<Wall>,
        /// When a call was waiting last.
        needed: Cell<Wall>,
    },
}

impl Station {
    /// Takes the place, or ends the process if another one has it, or none is wanted or to be had. The process is connected.
    pub(super) fn take() -> Station {
        let kept = board::my_slot();
        match kept {
            Some(slot) => {
                if !slot.occupy() {
                    process::end(0);
                }
                process::at_exit(leave_slot);
            }
            None if board::is_there() || !Post::OfDatabase.take() => process::end(0),
            None => {
                if !(0..most_called()).any(|n| Post::OfServer(n).take()) {
                    process::end(0);
                }
            }
        }
        let station = match kept {
            Some(slot) => Station::Kept(slot),
            None => Station::Called { busy: Cell::new(wall()), needed: Cell::new(wall()) },
        };
        if !guc::background_worker() {
            station.end(WorkerState::Off);
        }
        station
    }

    /// To be called before looking at what is due.
    pub(super) fn begin_look(&self) {
        match self {
            Station::Kept(slot) => slot.begin_look(),
            Station::Called { .. } => latch::reset(),
        }
    }

    /// Ends the process if it is to go: it was asked to (by a shutdown, for instance), for a command that wants the
    /// database for itself, since settings have changed, or since no call waits for what it does.
    pub(super) fn leave_if_wanted(&self) {
        let asked = process::asked_to_end();
        if let (Station::Kept(slot), true) = (self, asked) {
            // That may have been DROP DATABASE … WITH (FORCE).
            slot.stay_away_until(wall() + AWAY_AFTER_END);
        }
        let unwanted = matches!(self, Station::Kept(slot) if slot.away_until() > wall());
        if asked || unwanted || process::settings_changed() {
            self.end(WorkerState::Ended);
        }
        if let Station::Called { needed, .. } = self
            && is_alone(needed)
        {
            leave_unless_called();
            needed.set(wall());
        }
    }

    /// Ends the process; the state is what the launcher has to know, if there is one.
    pub(super) fn end(&self, state: WorkerState) -> ! {
        if let Station::Kept(slot) = self {
            slot.set_state(state);
        }
        process::end(0)
    }

    /// Sleeps after a look, until something is due or it is woken; a worker that was called may leave instead. `done`: the look
    /// has found something to do; `stays`: it is not to leave for want of work, since another one would begin anew with what has
    /// failed.
    pub(super) fn rest(&self, due: Wall, done: bool, stays: bool) {
        let (busy, needed) = match self {
            Station::Kept(slot) => {
                return process::sleep(process::until(slot.end_look(due)), Sleep::Worker);
            }
            Station::Called { busy, needed } => (busy, needed),
        };
        if done {
            busy.set(wall());
        }
        while !latch::is_set() && due > wall() {
            // Others may be waiting for a process of the server.
            let (near, lingers, stays) =
                if all_called() { (AT_ONCE, AT_ONCE, false) } else { (NEAR, LINGERS, stays) };
            let now = wall();
            let idle = !stays && due > now + near && busy.get() + lingers <= now;
            if is_alone(needed) || idle {
                return leave_unless_called();
            }
            process::sleep(process::until(due.min(now + LINGERS)), Sleep::Worker);
        }
    }
}

/// Whether no call has been waiting for a while; notes it if one is.
fn is_alone(needed: &Cell<Wall>) -> bool {
    let now = wall();
    if wake::is_any_call_waiting() {
        needed.set(now);
    }
    needed.get() + LINGERS <= now
}

/// Ends a process that was called, unless it has just been called again.
fn leave_unless_called() {
    Post::OfDatabase.give_up();
    if !latch::is_set() || !Post::OfDatabase.take() {
        process::end(0);
    }
}

/// Whether all posts of the server are taken.
pub(super) fn all_called() -> bool {
    (0..most_called()).all(|n| Post::OfServer(n).is_taken())
}

/// The slot of this process is free again: run at its exit.
fn leave_slot() {
    if let Some(slot) = board::my_slot() {
        slot.leave();
    }
}
