//! A private cluster with settings of its own, which may be stopped.

use std::path::PathBuf;
use std::process::Command;

use postgres::{Config, NoTls};
use taskq_tests::Session;

/// Stopped at the end.
pub struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// Starts a cluster with these settings and the extension in its database `postgres`, empty.
    pub fn start(name: &str, settings: &[&str]) -> Cluster {
        let cluster = Cluster { folder: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name) };
        let mut arguments = vec!["-c", "fsync=off"];
        arguments.extend(settings.iter().flat_map(|setting| ["-c", setting]));
        cluster.call("start", &arguments);
        cluster.connect().run(
            "SET client_min_messages = warning; DROP EXTENSION IF EXISTS taskq CASCADE; CREATE EXTENSION taskq",
        );
        cluster
    }

    /// Stops it in the mode `fast`.
    pub fn stop(&self) {
        self.call("stop", &[]);
    }

    /// Opens a connection.
    pub fn connect(&self) -> Session {
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
        let client = config.dbname("postgres").options("-c statement_timeout=60s").connect(NoTls);
        Session::new(client.expect("a connection to the cluster"))
    }

    fn call(&self, command: &str, arguments: &[&str]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/cluster.sh");
        let output = Command::new(script).arg(command).arg(&self.folder).args(arguments).output();
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
