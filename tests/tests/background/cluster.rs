//! A cluster with the library preloaded.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use postgres::{Config, NoTls};
use taskq_tests::{Session, until};

/// A private cluster, stopped at the end.
pub struct Cluster {
    folder: PathBuf,
}

/// The worker may sleep for an hour: what it does earlier it was woken for, or knew of.
const SETTINGS: [&str; 5] = [
    "shared_preload_libraries=taskq",
    "taskq.maintenance_interval=1h",
    "fsync=off",
    "max_connections=30",
    "log_min_messages=debug1",
];

impl Cluster {
    /// Starts a cluster with the extension in its database `postgres`, empty.
    pub fn start(name: &str) -> Cluster {
        let cluster = Cluster::new(name);
        cluster.call("start", &SETTINGS);
        let mut session = cluster.connect("postgres");
        session.run("CREATE EXTENSION taskq");
        // The first change of a queue brings the worker.
        session.run("SELECT taskq.insert_task('first', 'x')");
        session.run("SELECT taskq.delete_tasks('{first}')");
        cluster
    }

    /// Starts a standby of another cluster.
    pub fn standby(name: &str, primary: &Cluster) -> Cluster {
        let cluster = Cluster::new(name);
        let data = cluster.folder.join("data");
        let env = primary.call("env", &[]);
        let env = env.split_whitespace().map(|pair| pair.split_once('=').expect("name=value"));
        let done = Command::new("pg_basebackup")
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"])
            .arg(&data)
            .envs(env)
            .status();
        assert!(done.expect("pg_basebackup is in the PATH").success());
        let mut reference = std::ffi::OsString::from("--reference=");
        reference.push(primary.folder.join("data"));
        let done = Command::new("chown").arg("-R").arg(reference).arg(&data).status();
        assert!(done.expect("chown").success());
        cluster.call("start", &SETTINGS);
        cluster
    }

    fn new(name: &str) -> Cluster {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("background-{name}"));
        let cluster = Cluster { folder };
        // An earlier run that was killed may have left anything.
        cluster.call("stop", &[]);
        drop(std::fs::remove_dir_all(cluster.folder.join("data")));
        cluster
    }

    /// Kills every process, then starts the server again.
    pub fn crash(&self) {
        self.call("kill", &[]);
        self.call("restart", &[]);
    }

    /// Stops the server as `pg_ctl -m fast` does, and starts it again; how long the stop took.
    pub fn restart(&self) -> Duration {
        let began = Instant::now();
        self.call("stop", &[]);
        let took = began.elapsed();
        self.call("restart", &[]);
        took
    }

    /// What the server has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).expect("a log")
    }

    /// Opens a connection.
    pub fn connect(&self, database: &str) -> Session {
        let env = self.call("env", &[]);
        let mut config = Config::new();
        for pair in env.split_whitespace() {
            match pair.split_once('=').expect("name=value") {
                ("PGHOST", host) => config.host(host),
                ("PGPORT", port) => config.port(port.parse().expect("a port is a number")),
                ("PGUSER", user) => config.user(user),
                (name, _) => panic!("what is {name}?"),
            };
        }
        let client = config.dbname(database).options("-c statement_timeout=60s").connect(NoTls);
        Session::new(client.expect("a connection to the cluster"))
    }

    fn call(&self, command: &str, settings: &[&str]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/cluster.sh");
        let settings = settings.iter().flat_map(|setting| ["-c", setting]);
        let output = Command::new(script).arg(command).arg(&self.folder).args(settings).output();
        let output = output.unwrap_or_else(|error| panic!("{script}: {error}"));
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it prints text")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.call("stop", &[]);
    }
}

/// The process ids of the workers, of one database or of all.
pub fn workers(session: &mut Session, database: Option<&str>) -> Vec<i32> {
    let rows = session.query(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'taskq worker' AND ($1::text IS NULL OR datname = $1)",
        &[&database],
    );
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Waits until the database has a worker that sleeps.
pub fn settled_down(session: &mut Session, database: &str) -> i32 {
    until("a worker sleeps", || {
        let rows = session
            .query(
                "SELECT pid FROM pg_stat_activity \
                  WHERE backend_type = 'taskq worker' AND datname = $1 AND state = 'idle' AND wait_event IS NOT NULL \
                    AND state_change < clock_timestamp() - interval '0.5 seconds'",
                &[&database],
            )
            .unwrap();
        rows.first().map(|row| row.get(0))
    })
}

/// Waits until that many runs of a schedule have been inserted.
pub fn runs(session: &mut Session, schedule: &str, at_least: i64) {
    until("runs are inserted", || {
        let count: i64 = session
            .query_one("SELECT count(*) FROM taskq.tasks WHERE id LIKE $1 || '@%'", &[&schedule])
            .unwrap()
            .get(0);
        (count >= at_least).then_some(())
    });
}
