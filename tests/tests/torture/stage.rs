//! The cluster on which it is played, who plays, and what must not be left behind.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Config;
use taskq_tests::Cluster;

use crate::client::{Client, MAY_GROW, connect};
use crate::run::Run;
use crate::{producer, saboteur, torment, upheaval, waiter, watchers, worker};

const TMP: &str = env!("CARGO_TARGET_TMPDIR");

/// Short checkpoints keep each recovery short. Without fsync nothing is lost: processes die here, the machine does not, and
/// what they have written stays with the kernel. What is promised rests on the order of writes, `synchronous_commit` and WAL.
const SETTINGS: [&str; 10] = [
    "shared_preload_libraries=taskq",
    "max_connections=60",
    "shared_buffers=256MB",
    "checkpoint_timeout=30s",
    "max_wal_size=512MB",
    "restart_after_crash=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "idle_in_transaction_session_timeout=20s",
    "max_locks_per_transaction=256",
];

const WORKERS: u64 = 6;

/// So long nothing may move, when nothing new comes, before it is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(90);

pub struct Stage {
    cluster: Cluster,
    name: &'static str,
}

impl Stage {
    /// The name is that of the folder with all that the run leaves.
    pub fn set(name: &'static str) -> Stage {
        let more = env::var("TASKQ_TORTURE_SETTINGS").unwrap_or_default();
        let settings: Vec<&str> = SETTINGS.into_iter().chain(more.split_whitespace()).collect();
        Stage { cluster: Cluster::start(TMP, name, &settings), name }
    }

    pub fn config(&self) -> Config {
        self.cluster.config()
    }

    /// The ledger's folder, empty.
    pub fn folder(&self) -> PathBuf {
        let folder = Path::new(TMP).join(self.name).join("books");
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("a folder for the ledger");
        folder
    }

    /// The whole run: faults and work, then work alone until nothing is left.
    pub fn perform(&self, run: &Arc<Run>) {
        let mut operator = Client::new(run, "operator", 800);
        upheaval::first_limits(&mut operator);
        thread::scope(|scope| {
            let mut actors = Vec::new();
            let mut cast = |work: Box<dyn FnOnce() + Send>| actors.push(scope.spawn(work));
            for number in 0..2 {
                cast(Box::new(move || producer::work(run, number)));
                cast(Box::new(move || saboteur::work(run, number)));
                cast(Box::new(move || waiter::work(run, number)));
            }
            for number in 0..WORKERS {
                cast(Box::new(move || worker::work(run, number)));
            }
            cast(Box::new(|| watchers::hold_locks(run)));
            cast(Box::new(|| watchers::read_old(run)));
            cast(Box::new(|| watchers::count(run)));
            cast(Box::new(|| upheaval::rebuild(run)));
            cast(Box::new(|| upheaval::change(run)));
            // No client may wait for ever for one that has failed.
            scope.spawn(|| tell(run));
            torment::torment(run, &self.cluster);
            run.calm.store(true, Ordering::Relaxed);
            upheaval::let_go(&mut operator);
            self.wait_for_the_end(run, &mut operator);
        });
    }

    /// Until nothing is open; or nothing has moved for long, which the audit will tell of.
    fn wait_for_the_end(&self, run: &Run, operator: &mut Client) {
        let (mut least, mut moved) = (i64::MAX, Instant::now());
        let calm = Instant::now();
        while !run.is_over() && moved.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(500));
            let open = run.open.load(Ordering::Relaxed);
            if open < least {
                (least, moved) = (open, Instant::now());
            }
            // A settings call that was under way may have come after the first time.
            if calm.elapsed() < Duration::from_secs(5) {
                upheaval::let_go(operator);
            }
        }
        run.over.store(true, Ordering::Relaxed);
    }

    /// What the server has kept that it should not: contradictions, locks, sessions, memory.
    pub fn left_behind(&self, run: &Run) -> Vec<String> {
        let mut client = connect(run, "auditor", "statement_timeout=0");
        let mut left = Vec::new();
        let mut look = |what: &str, query: &str| {
            let rows = client.query(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
            left.extend(rows.iter().take(20).map(|row| format!("{what}: {}", row.get::<_, String>(0))));
        };
        look("check", "SELECT c::text FROM taskq.check() AS c");
        look("holds", "SELECT a::text FROM taskq.actors AS a");
        look("a broken index", "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid");
        look("prepared", "SELECT gid FROM pg_prepared_xacts");
        look(
            "a lock",
            "SELECT concat_ws(' ', locktype, mode, relation::regclass, pid) FROM pg_locks \
              WHERE pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_stat_activity WHERE backend_type <> 'client backend')",
        );
        look(
            "a session",
            "SELECT application_name || ' ' || query FROM pg_stat_activity \
              WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        );
        let (largest, growth) = *run.memory.lock().unwrap();
        if growth > MAY_GROW {
            left.push(format!("memory: a session grew by {growth} bytes, to {largest}"));
        }
        let log = self.cluster.log();
        let bad = ["PANIC", "XX000", "panicked", "signal 11", "signal 6"];
        left.extend(
            log.lines()
                .filter(|line| bad.iter().any(|word| line.contains(word)))
                .take(20)
                .map(|line| format!("log: {line}")),
        );
        left
    }
}

/// Says now and then how far it is.
fn tell(run: &Run) {
    let mut last = 0;
    while !run.is_over() {
        thread::sleep(Duration::from_millis(500));
        let seconds = run.elapsed().as_secs();
        if seconds >= last + 30 {
            last = seconds;
            println!(
                "{seconds} s: {} tasks, {} open, {} faults",
                run.inserted.load(Ordering::Relaxed),
                run.open.load(Ordering::Relaxed),
                run.faults().values().sum::<u64>()
            );
        }
    }
}
