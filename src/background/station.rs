//! How a worker has its place, is woken, and when it leaves.
//!
//! It holds the post of its database, so that this has one worker. One that was *called* by a session ([`super::call_if`]) holds a second
//! one, of those that the server has for such workers, so that background processes are left for other extensions. It leaves when
//! there is nothing to do for a moment, or no call waits any more. One that *stays* has its process from the server, and leaves when
//! it is told to.
//!
//! **No call is lost.** A caller first sets the latches of the database's background processes, then looks whether the post is
//! taken, and if it is not starts a worker, where it may. A worker that leaves for want of work or of calls first gives up the
//! post, then looks at its latch, and goes on if that is set and the post still free. So either the caller finds the post free, or
//! the worker its latch set. In the same way a commit that brings something which is due soon sets the latch if it finds the post
//! taken, and a worker takes the post before its first look. A latch that Postgres resets in the middle of a look costs
//! [`HORIZON`](wake::HORIZON) at most.

use std::cell::Cell;
use std::time::Duration;

use super::most_called;
use crate::guc;
use crate::pg::clock::{Wall, wall};
use crate::pg::latch;
use crate::pg::post::Post;
use crate::pg::process;
use crate::pg::session::{next_transaction_id, next_transaction_id_if_quiet};
use crate::pg::wait_event::Sleep;
use crate::wake;

/// How long a worker that was called stays when it has nothing to do, or when no call waits.
const LINGERS: Duration = Duration::from_secs(1);

/// What is due so soon it stays for, if a call waits and not all posts of the server are taken.
pub(super) const NEAR: Duration = Duration::from_secs(2);

const AT_ONCE: Duration = Duration::ZERO;

/// How soon one that stays asks again for the post, where another has it.
const ASK_FOR_POST_AFTER: Duration = Duration::from_secs(1);

/// Where a worker is.
pub(super) struct Station {
    /// The server keeps it: it leaves only when it is asked to.
    stays: bool,
    /// When it did something last.
    busy: Cell<Wall>,
    /// When a call was waiting last.
    needed: Cell<Wall>,
    /// The next transaction id of the cluster when the last look began, if no transaction had one then.
    quiet: Cell<Option<u64>>,
}

impl Station {
    /// Takes the place, or ends the process if a call has sent it and another one has it, or none is wanted or to be had. The process
    /// is connected.
    pub(super) fn take(stays: bool) -> Station {
        let station =
            Station { stays, busy: Cell::new(wall()), needed: Cell::new(wall()), quiet: Cell::new(None) };
        while stays && !Post::OfDatabase.take() {
            latch::reset();
            station.leave_if_asked();
            process::sleep(ASK_FOR_POST_AFTER, Sleep::Worker);
        }
        let has_posts = || Post::OfDatabase.take() && (0..most_called()).any(|n| Post::OfServer(n).take());
        if !stays && !has_posts() {
            process::end(0);
        }
        station
    }

    /// To be called before looking at what is due.
    pub(super) fn begin_look(&self) {
        latch::reset();
        self.quiet.set(next_transaction_id_if_quiet());
    }

    /// Ends the process if it is to go: it was asked to (by a shutdown, or by DROP DATABASE … WITH (FORCE)), or it is switched off. That
    /// no call waits for what it does is no reason before all of it is done: a call that does not sleep has sent for it, it may be.
    pub(super) fn leave_if_wanted(&self) {
        self.leave_if_asked();
        if process::settings_changed() {
            process::read_settings();
        }
        if !self.stays && !guc::background_worker() {
            process::end(0);
        }
    }

    fn leave_if_asked(&self) {
        if process::asked_to_end() {
            // The server starts one that stays again, unless it ends with 0 or the server does.
            process::end(i32::from(self.stays));
        }
    }

    /// Ends the process of one that was called: it cannot do anything here.
    pub(super) fn leave_if_called(&self) {
        if !self.stays {
            process::end(0);
        }
    }

    /// Sleeps after a look, until something is due or it is woken; a worker that was called may leave instead. `done`: the look
    /// has found something to do; `failed`: it is not to leave for want of work, since another one would begin anew with what has
    /// failed.
    pub(super) fn rest(&self, due: Wall, done: bool, failed: bool) {
        if done {
            self.busy.set(wall());
        }
        while !latch::is_set() && due > wall() {
            if self.stays {
                process::sleep(process::until(due.min(wall() + wake::HORIZON)), Sleep::Worker);
                // What is due later than that no commit tells.
                if self.quiet.get().is_none_or(|next| next != next_transaction_id()) {
                    return;
                }
                continue;
            }
            // Others may be waiting for a process of the server.
            let (near, lingers, failed) =
                if all_called() { (AT_ONCE, AT_ONCE, false) } else { (NEAR, LINGERS, failed) };
            let now = wall();
            let idle = !failed && due > now + near && self.busy.get() + lingers <= now;
            if self.is_alone() || idle {
                return leave_unless_called();
            }
            process::sleep(process::until(due.min(now + LINGERS)), Sleep::Worker);
        }
    }

    /// Whether it was called, and no call has been waiting for a while; notes it if one is.
    fn is_alone(&self) -> bool {
        let now = wall();
        if self.stays || wake::is_any_call_waiting() {
            self.needed.set(now);
        }
        self.needed.get() + LINGERS <= now
    }
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
