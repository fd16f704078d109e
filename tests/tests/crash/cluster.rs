//! A cluster that may be killed.

use std::path::PathBuf;
use std::process::Command;

use postgres::{Config, NoTls};
use taskq_tests::Session;

/// A private cluster, stopped at the end.
pub struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// Starts a cluster with the extension in its database `postgres`, empty.
    pub fn start(name: &str) -> Cluster {
        let cluster = Cluster { folder: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name) };
        // No sync: processes are killed, the machine is not.
        cluster.call(&["start"], &["-c", "fsync=off", "-c", "max_connections=30"]);
        cluster
            .connect()
            .run("SET client_min_messages = warning; DROP EXTENSION IF EXISTS taskq; CREATE EXTENSION taskq");
        cluster
    }

    /// Kills every process, then starts the server again.
    pub fn crash(&self) {
        self.call(&["kill"], &[]);
        self.call(&["restart"], &[]);
    }

    /// Kills every process.
    pub fn kill(&self) {
        self.call(&["kill"], &[]);
    }

    /// Starts the server again.
    pub fn restart(&self) {
        self.call(&["restart"], &[]);
    }

    /// Opens a connection.
    pub fn connect(&self) -> Session {
        let env = self.call(&["env"], &[]);
        let mut config = Config::new();
        for pair in env.split_whitespace() {
            match pair.split_once('=').expect("name=value") {
                ("PGHOST", host) => config.host(host),
                ("PGPORT", port) => config.port(port.parse().expect("a port is a number")),
                ("PGUSER", user) => config.user(user),
                (name, _) => panic!("what is {name}?"),
            };
        }
        let client = config.dbname("postgres").options("-c statement_timeout=60s").connect(NoTls);
        Session::new(client.expect("a connection to the cluster"))
    }

    fn call(&self, command: &[&str], settings: &[&str]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/cluster.sh");
        let output = Command::new(script).args(command).arg(&self.folder).args(settings).output();
        let output = output.unwrap_or_else(|error| panic!("{script}: {error}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it prints text")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.call(&["stop"], &[]);
    }
}
