//! An errand: a small piece of work that a call has done by a process that commits, and waits for.
//!
//! What a call changes itself is not seen by others before its transaction ends. Where they should see it while the call sleeps, a
//! background process is started for this one piece of work, if one may be. The work is described in a segment of shared memory.
//! The process needs a post of the server, as a worker does that was called, and works with the same rights: see [`super::trust`].

use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::call::is_wanted;
use super::station::all_called;
use super::worker::as_owner;
use super::{most_called, trust};
use crate::pg::latch;
use crate::pg::post::Post;
use crate::pg::process;
use crate::pg::segment::{self, Segment};
use crate::pg::wait_event::Sleep;

const ERRAND: &str = "taskq errand";

/// For how long a call waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// How soon a call looks again whether it is done, where the server has not told it before.
const LOOK: Duration = Duration::from_millis(100);

/// Has something done by a process of its own, whose life is `entry`; whether it has come to its end in time. That it has done what
/// it was for is for the caller to see. The caller must hold no lock that the process needs.
pub(crate) fn send(entry: &str, what: &[u8]) -> bool {
    if !is_wanted() || !process::may_start_workers() || all_called() {
        return false;
    }
    let Some(segment) = Segment::of(what) else { return false };
    let database = process::my_database();
    let Some(errand) = process::start_worker(ERRAND, entry, database, &segment.name(), true) else {
        return false;
    };
    let until = Instant::now() + PATIENCE;
    loop {
        latch::reset();
        if errand.has_ended() {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        latch::sleep(LOOK.min(left), Sleep::ForTasks);
    }
}

/// The life of a process that was sent: does the work in a transaction of its own, if there is a post for it and nothing speaks
/// against it, and ends.
pub(crate) fn run(database: pg_sys::Oid, work: impl FnOnce(&[u8])) -> ! {
    // Before anything else: the call that has sent it may end.
    let Some(what) = segment::sent() else { process::end(0) };
    process::connect(Some(database));
    process::begin_session();
    if (0..most_called()).any(|n| Post::OfServer(n).take()) {
        // What comes of an error is that the caller does without.
        let _done = as_owner(|held| {
            if trust::objection(held).is_none() {
                work(&what);
            }
        });
    }
    process::end(0)
}
