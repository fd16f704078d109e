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
//!
//! **Where the server has fewer posts than databases need**, a call that finds all taken registers as one that wants a post, wakes the
//! workers of all databases, and then looks at the posts once more. A worker whose round has done something, or is over for a while,
//! leaves if a post is wanted: it gives up its posts first, then looks who wants one, and wakes the first of them. So either the
//! call finds a post free, or the worker the call. Others may be faster to take it: their process finds work, or leaves in turn.
//! What relied on a worker that leaves so is looked after by a call of its database, which it wakes.

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

/// What is due so soon it stays for, if a call waits and no other database wants its post.
pub(super) const NEAR: Duration = Duration::from_secs(2);

/// How soon one that stays asks again for the post, where another has it.
const ASK_FOR_POST_AFTER: Duration = Duration::from_secs(1);

/// Where a worker is.
pub(super) struct Station {
    /// The server keeps it: it leaves only when it is asked to.
    stays: bool,
    /// That of the server that it has, if it was called.
    post: Cell<Option<Post>>,
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
        let (busy, needed) = (Cell::new(wall()), Cell::new(wall()));
        let station = Station { stays, post: Cell::new(None), busy, needed, quiet: Cell::new(None) };
        while stays && !Post::OfDatabase.take() {
            latch::reset();
            station.leave_if_asked();
            process::sleep(ASK_FOR_POST_AFTER, Sleep::Worker);
        }
        if !stays && !station.take_posts() {
            process::end(0);
        }
        station
    }

    /// Takes the post of the database and one of the server, if both are to be had. If it is the latter that is not, a call of this
    /// database looks again, and registers as one that wants it.
    fn take_posts(&self) -> bool {
        if !Post::OfDatabase.take() {
            return false;
        }
        self.post.set((0..most_called()).map(Post::OfServer).find(|post| post.take()));
        let has_both = self.post.get().is_some();
        if !has_both {
            Post::OfDatabase.give_up();
            wake::worker_leaves();
        }
        has_both
    }

    fn give_up_posts(&self) {
        Post::OfDatabase.give_up();
        if let Some(post) = self.post.take() {
            post.give_up();
        }
        wake::post_is_free();
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
        while !latch::is_set() && !self.is_wanted_elsewhere() && due > wall() {
            if self.stays {
                process::sleep(process::until(due.min(wall() + wake::HORIZON)), Sleep::Worker);
                // What is due later than that no commit tells.
                if self.quiet.get().is_none_or(|next| next != next_transaction_id()) {
                    return;
                }
                continue;
            }
            let now = wall();
            let idle = !failed && due > now + NEAR && self.busy.get() + LINGERS <= now;
            if self.is_alone() || idle {
                return self.leave_unless_called();
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

    /// Ends a process that was called, unless it has just been called again.
    fn leave_unless_called(&self) {
        self.give_up_posts();
        if !latch::is_set() || !self.take_posts() {
            process::end(0);
        }
    }

    /// Whether another database wants the post of the server that this process has.
    pub(super) fn is_wanted_elsewhere(&self) -> bool {
        self.post.get().is_some() && wake::is_post_wanted()
    }

    /// Ends the process if another database wants its post. `more`: it has something to do, and leaves only if a call of its own
    /// database waits, which sees to that.
    pub(super) fn leave_to_others(&self, more: bool) {
        if !self.is_wanted_elsewhere() || more && !wake::is_any_call_waiting() {
            return;
        }
        self.give_up_posts();
        wake::worker_leaves();
        // Else a call that waits has been told.
        let is_called = latch::is_set() && !wake::is_any_call_waiting();
        if !is_called || !self.take_posts() {
            process::end(0);
        }
    }
}

/// Whether all posts of the server are taken.
pub(super) fn all_called() -> bool {
    (0..most_called()).all(|n| Post::OfServer(n).is_taken())
}
