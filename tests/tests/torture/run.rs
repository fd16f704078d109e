//! What all threads of a run share.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Config;
use taskq_tests::random::Random;
use uuid::Uuid;

/// A grant whose holder has died; another worker comes back with it later.
pub struct Late {
    pub task: String,
    pub token: Uuid,
}

pub struct Run {
    pub config: Config,
    pub folder: PathBuf,
    pub seed: u64,
    pub seconds: u64,
    /// How many tasks a second are inserted, on the average.
    pub pace: u64,
    pub begun: Instant,
    /// The faults have ended, and nothing new is inserted: what is there runs to its end.
    pub calm: AtomicBool,
    /// Nothing is left to do.
    pub over: AtomicBool,
    pub families: AtomicU64,
    pub inserted: AtomicU64,
    /// How many tasks are not settled, as was last seen.
    pub open: AtomicI64,
    pub late: Mutex<VecDeque<Late>>,
    /// Some tasks that were inserted lately and are never retried or replaced: later families run after them.
    pub recent: Mutex<VecDeque<String>>,
    /// Families whose tasks may be replaced, retried, reset and deleted, with how many they have.
    pub loose: Mutex<VecDeque<(u64, usize)>>,
    faults: Mutex<BTreeMap<String, u64>>,
    /// The largest memory of a session, and the most one has grown by after its first calls, in bytes.
    pub memory: Mutex<(i64, i64)>,
    /// What a client saw that may never be.
    pub seen: Mutex<Vec<String>>,
}

impl Run {
    pub fn new(config: Config, folder: PathBuf, seed: u64, seconds: u64, pace: u64) -> Run {
        Run {
            config,
            folder,
            seed,
            seconds,
            pace,
            begun: Instant::now(),
            calm: AtomicBool::new(false),
            over: AtomicBool::new(false),
            families: AtomicU64::new(1),
            inserted: AtomicU64::new(0),
            open: AtomicI64::new(0),
            late: Mutex::default(),
            recent: Mutex::default(),
            loose: Mutex::default(),
            faults: Mutex::default(),
            memory: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Counts a fault that was injected.
    pub fn fault(&self, kind: &str) {
        *self.faults.lock().unwrap().entry(kind.to_owned()).or_default() += 1;
    }

    pub fn faults(&self) -> BTreeMap<String, u64> {
        self.faults.lock().unwrap().clone()
    }

    /// Notes something that may never be; it fails the run at its end.
    pub fn complain(&self, what: String) {
        println!("SEEN: {what}");
        self.seen.lock().unwrap().push(what);
    }

    pub fn bury(&self, late: Late) {
        let mut all = self.late.lock().unwrap();
        all.push_back(late);
        if all.len() > 2000 {
            all.pop_front();
        }
    }

    /// A task that was inserted lately; if there is none, after a moment.
    pub fn some_recent(&self, random: &mut Random) -> Option<String> {
        let recent = self.recent.lock().unwrap();
        if recent.is_empty() {
            drop(recent);
            thread::sleep(Duration::from_millis(20));
            return None;
        }
        let place = random.below(recent.len() as u64) as usize;
        recent.get(place).cloned()
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}
