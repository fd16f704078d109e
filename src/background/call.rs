//! Calling a worker: a call that sleeps has found something due that it can show to nobody before it ends.
//!
//! Nothing of the transaction under way is needed by the worker, and nothing of it is seen by it: it does what is due by what has
//! been committed. So it may be called in the middle of a transaction, which may still be rolled back. What it does comes to the
//! caller as everything comes to it that others commit; whether a worker has come, and why not, it does not learn.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::station::all_called;
use super::{ENTRY, WORKER};
use crate::guc;
use crate::pg::board;
use crate::pg::clock::wall;
use crate::pg::post::Post;
use crate::pg::process::{self, Started};

/// How soon a session starts another worker, and how late at most where each has ended at once.
const SOON: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(60);

/// What this session has started.
struct Starts {
    last: Option<(Started, Instant)>,
    not_before: Option<Instant>,
    patience: Duration,
}

thread_local! {
    static STARTS: RefCell<Starts> =
        const { RefCell::new(Starts { last: None, not_before: None, patience: SOON }) };
}

/// Has what is due done by a process that commits: wakes the one that is there, or starts one. It waits for nothing and raises no
/// error. Returns how soon to look whether somebody has come; `None` if somebody is there, or nobody will come.
///
/// A worker goes by the server's clock: a session that has set another one ([`guc::fake_now`]) calls none.
pub(crate) fn call() -> Option<Duration> {
    if !guc::background_worker() || guc::fake_now().is_some() {
        return None;
    }
    if board::is_there() {
        board::tell(wall());
        return None;
    }
    if !process::may_start_workers() {
        return None;
    }
    // In this order: see `station`.
    process::wake_workers();
    if Post::OfDatabase.is_taken() {
        return None;
    }
    STARTS.with_borrow_mut(Starts::start)
}

impl Starts {
    fn start(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if let Some(left) =
            self.not_before.map(|at| at.saturating_duration_since(now)).filter(|d| !d.is_zero())
        {
            return Some(left);
        }
        if let Some((last, at)) = self.last.take() {
            // One that has done something has stayed for longer.
            let failed = last.has_ended() && at.elapsed() < 2 * SOON;
            self.patience = if failed { (self.patience * 2).min(LATE) } else { SOON };
        }
        let started = if all_called() {
            None
        } else {
            process::start_worker(WORKER, ENTRY, process::my_database(), false)
        };
        self.not_before = now.checked_add(if started.is_some() { self.patience } else { LATE });
        self.last = started.map(|started| (started, now));
        self.last.as_ref().map(|_| self.patience)
    }
}
