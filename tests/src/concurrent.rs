//! Calls on other connections, and whether they wait: seen in `pg_stat_activity`, never guessed by sleeping.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::session::Session;

/// How long a condition may take; far longer than it should.
const PATIENCE: Duration = Duration::from_secs(60);

/// A call under way on a connection of its own.
pub struct Background<T> {
    pid: i32,
    handle: JoinHandle<(Session, T)>,
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// It waits for a lock that another transaction holds.
    Blocked,
    /// It is over.
    Done,
}

impl Session {
    /// Runs the calls of `work` on this connection, in a thread.
    pub fn background<T, F>(mut self, work: F) -> Background<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session) -> T + Send + 'static,
    {
        let pid = self.pid();
        let handle = thread::spawn(move || {
            let outcome = work(&mut self);
            (self, outcome)
        });
        Background { pid, handle }
    }

    /// Waits until the backend of another connection sleeps in a call, not for a lock.
    pub fn until_asleep(&mut self, pid: i32) {
        until("the backend is asleep", || (self.waits_for(pid) == "asleep").then_some(()));
    }

    /// What a backend is waiting for: `lock`, `asleep`, or nothing that lasts.
    fn waits_for(&mut self, pid: i32) -> &'static str {
        // In a transaction block the view would stay as it was.
        self.run("SELECT pg_stat_clear_snapshot()");
        let rows = self
            .query("SELECT state, wait_event_type FROM pg_stat_activity WHERE pid = $1", &[&pid])
            .expect("a look at pg_stat_activity");
        let Some(row) = rows.first() else { return "gone" };
        let (state, wait): (Option<&str>, Option<&str>) = (row.get(0), row.get(1));
        match (state, wait) {
            (Some("active"), Some("Lock")) => "lock",
            (Some("active"), Some("Extension" | "IPC" | "Timeout" | "Activity")) => "asleep",
            _ => "nothing",
        }
    }
}

impl<T> Background<T> {
    /// The process id of the backend that does the work.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until the call is over or waits for a lock.
    pub fn settle_down(&self, watcher: &mut Session) -> Progress {
        until("the call is over or blocked", || {
            if self.handle.is_finished() {
                return Some(Progress::Done);
            }
            (watcher.waits_for(self.pid) == "lock").then_some(Progress::Blocked)
        })
    }

    /// Waits for the end of the call: the connection, and what the call gave.
    pub fn join(self) -> (Session, T) {
        self.handle.join().expect("the work on the other connection does not panic")
    }
}

/// Polls a condition until it gives a value.
///
/// # Panics
/// If it gives none in a minute.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
