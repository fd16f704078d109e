//! Calling a worker: a call that sleeps has found something due that it can show to no other session before it ends.
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
use crate::pg::lock::{self, Key, Mode};
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

/// What has come of a call.
pub(crate) struct Called {
    /// How soon to look whether a worker has come; `None`: one is there, or none will come.
    pub(crate) look_again: Option<Duration>,
    /// Others start none as long as this is there.
    _starting: Option<Starting>,
}

/// A worker is on its way that this session has sent for. Of many that wait for the same deadline one starts a worker.
struct Starting;

const STARTING: &str = "a worker is on its way";

impl Starting {
    fn begin() -> Option<Starting> {
        lock::try_lock_if_room(Key::new(&[STARTING]), Mode::Only).then(|| Starting)
    }
}

impl Drop for Starting {
    /// An error gives the lock up by itself.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            lock::unlock(Key::new(&[STARTING]), Mode::Only);
        }
    }
}

impl Called {
    const NONE: Called = Called { look_again: None, _starting: None };

    fn again(after: Duration) -> Called {
        Called { look_again: Some(after), _starting: None }
    }
}

/// Has what is due done by a process that commits: wakes the one that is there, or starts one. It waits for nothing and raises no
/// error. To be called before a sleep, and the answer to be kept for that; the sleep is in the same subtransaction.
///
/// A worker goes by the server's clock: a session that has set another one ([`guc::fake_now`]) calls none.
pub(crate) fn call() -> Called {
    if !guc::background_worker() || guc::fake_now().is_some() {
        return Called::NONE;
    }
    if board::is_there() {
        board::tell(wall());
        return Called::NONE;
    }
    if !process::may_start_workers() {
        return Called::NONE;
    }
    // In this order: see `station`.
    process::wake_workers();
    if Post::OfDatabase.is_taken() {
        return Called::NONE;
    }
    STARTS.with_borrow_mut(Starts::start)
}

impl Starts {
    fn start(&mut self) -> Called {
        let now = Instant::now();
        let left = self.not_before.map(|at| at.saturating_duration_since(now));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Called::again(left);
        }
        // Those that others have called leave soon.
        let starting = if all_called() { None } else { Starting::begin() };
        if starting.is_none() {
            return Called::again(SOON);
        }
        if let Some((last, at)) = self.last.take() {
            // One that has done something has stayed for longer.
            let failed = last.has_ended() && at.elapsed() < 2 * self.patience;
            self.patience = if failed { (self.patience * 2).min(LATE) } else { SOON };
        }
        match process::start_worker(WORKER, ENTRY, process::my_database(), false) {
            Some(started) => {
                self.last = Some((started, now));
                self.not_before = now.checked_add(self.patience);
                Called { look_again: Some(self.patience), _starting: starting }
            }
            None => {
                self.not_before = now.checked_add(LATE);
                Called::NONE
            }
        }
    }
}
