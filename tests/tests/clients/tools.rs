//! Programs under test.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use taskq_tests::Db;

/// What `examples/clients/setup.sh` has installed; it must be there.
pub fn installed(path: &str) -> PathBuf {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in target").join("clients").join(path);
    assert!(path.exists(), "{} is missing: run examples/clients/setup.sh", path.display());
    path
}

/// A file of the examples.
pub fn example(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/clients")).join(path)
}

/// Python with the packages of the examples.
pub fn python(script: &str) -> Command {
    let mut command = Command::new(installed("python/bin/python"));
    command.arg(example(script));
    command
}

/// The example workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Client {
    Python,
    Node,
    Rust,
    Shell,
}

impl Client {
    /// The worker of action `checksum`.
    pub fn command(self) -> Command {
        match self {
            Client::Python => python("python/worker.py"),
            Client::Node => {
                let mut command = Command::new("node");
                command.arg(example("node/worker.js")).env("NODE_PATH", installed("node/node_modules"));
                command
            }
            Client::Rust => Command::new(installed("build/release/taskq_worker")),
            Client::Shell => Command::new(example("shell/worker.sh")),
        }
    }

    /// What it calls itself in its results.
    pub fn name(self) -> &'static str {
        match self {
            Client::Python => "python",
            Client::Node => "node",
            Client::Rust => "rust",
            Client::Shell => "shell",
        }
    }
}

/// Runs a test of each client in a thread of its own; fails if one of them does, and says which.
pub fn each_client(name: &str, test: fn(Client)) {
    let start = |client: Client| {
        // The thread's name goes into that of the test's database.
        let thread = std::thread::Builder::new().name(format!("{}_{name}", client.name()));
        (client, thread.spawn(move || test(client)).unwrap())
    };
    let threads = [Client::Python, Client::Node, Client::Rust, Client::Shell].map(start);
    let failed: Vec<Client> =
        threads.into_iter().filter_map(|(client, thread)| thread.join().is_err().then_some(client)).collect();
    assert!(failed.is_empty(), "{name}: {failed:?}");
}

/// A running worker; killed at the end of the test, with its output for the reader if that has failed.
pub struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    /// Starts a worker for a database: a lease of 3 seconds, a grace as given.
    pub fn start(db: &Db, client: Client, grace: &str) -> Worker {
        Worker::start_with(db, client, grace, |_| ())
    }

    /// The same, with changes to the command.
    pub fn start_with(db: &Db, client: Client, grace: &str, change: impl FnOnce(&mut Command)) -> Worker {
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.log", db.name()));
        let out = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut command = client.command();
        command
            .envs([("PGDATABASE", db.name()), ("TASKQ_LEASE", "3"), ("TASKQ_GRACE", grace)])
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out);
        change(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Worker { child, log }
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// Waits until it has ended, which must be soon.
    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "the worker does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            let log = fs::read(&self.log).unwrap_or_default();
            std::io::stderr().write_all(&log).ok();
        }
        fs::remove_file(&self.log).ok();
    }
}
