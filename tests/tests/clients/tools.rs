//! Programs under test.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use taskq_tests::Db;

use crate::gate::Gate;

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

/// Node with the packages of the examples.
pub fn node(script: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(example(script)).env("NODE_PATH", installed("node/node_modules"));
    command
}

/// A program of the examples in Go.
pub fn go(program: &str) -> Command {
    Command::new(installed("go").join(format!("taskq-{program}")))
}

/// A program of the examples in Java, with the packages of the examples. It connects through a socket of TCP only: for a
/// server that listens on none a [`Gate`] stands in between.
pub fn java(class: &str) -> Command {
    let jars = "/usr/share/java/postgresql.jar:/usr/share/java/gson.jar";
    let mut command = Command::new("java");
    // What a program of a few seconds wants: no time spent on optimizing it.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
    command.arg(format!("{}:{jars}", installed("java/classes").display())).arg(class);
    command
}

/// A script of the examples in Ruby.
pub fn ruby(script: &str) -> Command {
    let mut command = Command::new("ruby");
    command.arg(example(script));
    command
}

fn bash(script: &Path) -> Command {
    let mut command = Command::new("bash");
    command.arg(script);
    command
}

/// The worker in bash that writes another result: the line of `checksum` that does is this one instead.
pub fn shell_that_writes(result: &str, name: &str) -> Command {
    let program = fs::read_to_string(example("shell/worker.sh")).unwrap();
    let old: Vec<&str> = program.lines().filter(|line| line.starts_with("    printf '{\"sha256\"")).collect();
    assert_eq!(old.len(), 1, "{old:?}");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, program.replace(old[0], result)).unwrap();
    let mut command = bash(&path);
    command.arg("checksum");
    command
}

/// The example workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Client {
    Rust,
    RustPool,
    Shell,
    Go,
    Java,
    Ruby,
}

impl Client {
    pub const ALL: [Client; 6] =
        [Client::Rust, Client::RustPool, Client::Shell, Client::Go, Client::Java, Client::Ruby];
    /// Those with many tasks at once.
    pub const POOLS: [Client; 4] = [Client::RustPool, Client::Go, Client::Java, Client::Ruby];

    /// The worker of action `checksum`, with one task at a time.
    pub fn command(self) -> Command {
        self.pool(1)
    }

    /// The same with so many tasks at once, for those that can.
    pub fn pool(self, tasks: u32) -> Command {
        let mut command = self.of(Some("checksum"));
        if Client::POOLS.contains(&self) {
            command.arg(tasks.to_string());
        }
        command
    }

    /// The worker of these actions, with commas in between; without: of all that it knows.
    pub fn of(self, actions: Option<&str>) -> Command {
        let mut command = match self {
            Client::Rust => Command::new(installed("build/release/taskq_worker")),
            Client::RustPool => Command::new(installed("build/release/taskq_pool")),
            Client::Shell => bash(&example("shell/worker.sh")),
            Client::Go => go("worker"),
            Client::Java => java("Worker"),
            Client::Ruby => ruby("ruby/worker.rb"),
        };
        command.args(actions);
        command
    }

    /// What it calls itself in its results.
    pub fn name(self) -> &'static str {
        match self {
            Client::Rust | Client::RustPool => "rust",
            Client::Shell => "shell",
            Client::Go => "go",
            Client::Java => "java",
            Client::Ruby => "ruby",
        }
    }
}

/// Runs a test of each client in a thread of its own; fails if one of them does, and says which. `TASKQ_CLIENTS="Go
/// Ruby"` in the environment restricts that to these clients.
pub fn each_client(name: &str, clients: &[Client], test: fn(Client)) {
    let only = std::env::var("TASKQ_CLIENTS").ok();
    let wanted = |client: &Client| {
        only.as_ref().is_none_or(|only| only.split_whitespace().any(|word| word == format!("{client:?}")))
    };
    let start = |client: &Client| {
        let client = *client;
        // The thread's name goes into that of the test's database.
        let thread = std::thread::Builder::new().name(format!("{client:?}_{name}"));
        (client, thread.spawn(move || test(client)).unwrap())
    };
    let threads: Vec<_> = clients.iter().filter(|client| wanted(client)).map(start).collect();
    let failed: Vec<Client> =
        threads.into_iter().filter_map(|(client, thread)| thread.join().is_err().then_some(client)).collect();
    assert!(failed.is_empty(), "{name}: {failed:?}");
}

/// A running worker; killed at the end of the test, with its output for the reader if that has failed.
pub struct Worker {
    child: Child,
    log: PathBuf,
    _gate: Option<Gate>,
}

impl Worker {
    /// Starts a worker for a database: a lease of 3 seconds, a grace as given.
    pub fn start(db: &Db, client: Client, grace: &str) -> Worker {
        Worker::start_with(db, client, grace, |_| ())
    }

    /// The same, with changes to the command.
    pub fn start_with(db: &Db, client: Client, grace: &str, change: impl FnOnce(&mut Command)) -> Worker {
        let mut command = client.command();
        change(&mut command);
        Worker::run(db, command, grace)
    }

    /// The same with any command.
    pub fn run(db: &Db, command: Command, grace: &str) -> Worker {
        Worker::run_in(db.name(), command, grace)
    }

    /// The same in a database of that name, maybe of another cluster.
    pub fn run_in(database: &str, mut command: Command, grace: &str) -> Worker {
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{database}.log"));
        let out = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        if command.get_envs().all(|(name, _)| name != "PGDATABASE") {
            command.env("PGDATABASE", database);
        }
        let gate = Gate::if_wanted(&mut command);
        command
            .envs([("TASKQ_LEASE", "3"), ("TASKQ_GRACE", grace)])
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Worker { child, log, _gate: gate }
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
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

/// Tests of these clients, all of them at the same time, since most of it is waiting.
#[macro_export]
macro_rules! each_client {
    ($clients:expr; $($test:ident),* $(,)?) => {
        mod each {
            use super::Client;
            $(
                #[test]
                fn $test() {
                    $crate::tools::each_client(stringify!($test), &$clients, super::$test);
                }
            )*
        }
    };
}
