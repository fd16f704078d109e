//! A private cluster: for tests that need settings of the server, or stop or kill it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::{Config, NoTls};

use crate::session::Session;

/// Made and run by `.ci/cluster.sh`; stopped when this value goes.
pub struct Cluster {
    folder: PathBuf,
    /// The `pg_config` of its server, if that is another one than that of the tests.
    server: Option<String>,
}

impl Cluster {
    /// Starts a new cluster with these settings (`name=value`) and the extension in its database `postgres`, empty.
    /// It lives in a folder of that name in `tmp`, a test program's `CARGO_TARGET_TMPDIR`; what an earlier run has left
    /// there goes.
    pub fn start(tmp: &str, name: &str, settings: &[&str]) -> Cluster {
        Cluster::cleared(tmp, name).started(settings)
    }

    /// The same with another server, given by its `pg_config`, that has the extension.
    pub fn start_other(tmp: &str, name: &str, server: Option<String>, settings: &[&str]) -> Cluster {
        let mut cluster = Cluster::cleared(tmp, name);
        cluster.server = server;
        cluster.started(settings)
    }

    fn started(self, settings: &[&str]) -> Cluster {
        let cluster = self;
        cluster.run(settings);
        cluster.connect().run("CREATE EXTENSION taskq");
        cluster
    }

    /// Starts a standby of another cluster.
    pub fn standby(tmp: &str, name: &str, primary: &Cluster, settings: &[&str]) -> Cluster {
        let cluster = Cluster::backup(tmp, name, primary, &["--write-recovery-conf"]);
        cluster.run(settings);
        cluster
    }

    /// Takes a base backup of another cluster, which runs; starts nothing.
    pub fn backup(tmp: &str, name: &str, primary: &Cluster, arguments: &[&str]) -> Cluster {
        let cluster = Cluster::cleared(tmp, name);
        let data = cluster.folder.join("data");
        let done = Command::new("pg_basebackup")
            .args(["--checkpoint=fast", "--no-sync", "--pgdata"])
            .arg(&data)
            .args(arguments)
            .envs(primary.env())
            .status();
        assert!(done.expect("pg_basebackup is in the PATH").success());
        let mut reference = OsString::from("--reference=");
        reference.push(primary.data());
        let done = Command::new("chown").arg("-R").arg(reference).arg(&data).status();
        assert!(done.expect("chown").success());
        cluster
    }

    /// Stops another cluster, and makes one for the server of the tests of it, by pg_upgrade.
    pub fn upgraded(tmp: &str, name: &str, from: &Cluster, settings: &[&str]) -> Cluster {
        let cluster = Cluster::cleared(tmp, name);
        let programs: String = from.connect().one("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
        from.stop();
        let folder = from.folder.to_str().expect("UTF-8");
        cluster.call("upgrade", &[folder, &programs]);
        cluster.run(settings);
        cluster
    }

    /// Recovers a base backup, from the archive of the server that it was taken of, up to where these settings name, and
    /// makes it a primary.
    pub fn recover(&self, archive: &Path, settings: &[&str]) {
        std::fs::write(self.data().join("recovery.signal"), "").expect("a file in the data folder");
        let restore = format!("restore_command=cp '{}'/%f %p", archive.display());
        let mut all = vec![restore.as_str(), "recovery_target_action=promote"];
        all.extend(settings);
        self.run(&all);
    }

    /// Without data: an earlier run that was killed may have left anything.
    fn cleared(tmp: &str, name: &str) -> Cluster {
        let cluster = Cluster { folder: Path::new(tmp).join(name), server: None };
        cluster.stop();
        drop(std::fs::remove_dir_all(cluster.data()));
        // Tests read the log, and what an earlier run has written there is none of theirs.
        drop(std::fs::OpenOptions::new().write(true).truncate(true).open(cluster.folder.join("log")));
        cluster
    }

    /// Where a cluster that was started with `archive_command=mkdir -p archive && cp %p archive/%f` keeps its log.
    pub fn archive(&self) -> PathBuf {
        self.data().join("archive")
    }

    /// Where the data are: in the folder, or where the script says that they had to go instead.
    fn data(&self) -> PathBuf {
        let elsewhere = std::fs::read_to_string(self.folder.join("base.path"));
        elsewhere.map_or_else(|_| self.folder.clone(), |base| PathBuf::from(base.trim_end())).join("data")
    }

    /// Starts it with these settings.
    pub fn run(&self, settings: &[&str]) {
        // No sync: processes are killed, the machine is not.
        let settings = ["fsync=off"].iter().chain(settings);
        self.call("start", &settings.flat_map(|setting| ["-c", setting]).collect::<Vec<_>>());
    }

    /// Stops the server as `pg_ctl -m fast` does; that of a cluster that does not run is no error.
    pub fn stop(&self) {
        self.call("stop", &[]);
    }

    /// Stops the server as `pg_ctl -m immediate` does: it recovers when it is started again.
    pub fn stop_now(&self) {
        self.call("stop-now", &[]);
    }

    /// Kills every process of the server, as a power cut would.
    pub fn kill(&self) {
        self.call("kill", &[]);
    }

    /// Starts the server again, with the settings that it had; stops it first if it runs.
    pub fn restart(&self) {
        self.call("restart", &[]);
    }

    /// Kills every process, then starts the server again.
    pub fn crash(&self) {
        self.kill();
        self.restart();
    }

    /// What the server has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).expect("a log")
    }

    /// Opens a connection to the database `postgres`.
    pub fn connect(&self) -> Session {
        self.connect_to("postgres")
    }

    /// Opens a connection to a database.
    pub fn connect_to(&self, database: &str) -> Session {
        let config = self.config();
        let client = config.clone().dbname(database).options("-c statement_timeout=60s").connect(NoTls);
        Session::new(client.expect("a connection to the cluster"))
    }

    /// How to connect to the server.
    pub fn config(&self) -> Config {
        let mut config = Config::new();
        for (name, value) in self.env() {
            match name.as_str() {
                "PGHOST" => config.host(&value),
                "PGPORT" => config.port(value.parse().expect("a port is a number")),
                "PGUSER" => config.user(&value),
                _ => panic!("what is {name}?"),
            };
        }
        config
    }

    /// The folder of its socket, which is what libpq calls the host.
    pub fn host(&self) -> String {
        let env = self.env();
        let host = env.iter().find(|(name, _)| name == "PGHOST").expect("it has a socket");
        host.1.clone()
    }

    /// The server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        let env = self.env();
        let value = |name| &env.iter().find(|(key, _)| key == name).expect("it is set").1;
        Path::new(value("PGHOST")).join(format!(".s.PGSQL.{}", value("PGPORT")))
    }

    /// How to reach the server.
    fn env(&self) -> Vec<(String, String)> {
        let env = self.call("env", &[]);
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').expect("name=value");
            (name.to_owned(), value.to_owned())
        };
        env.split_whitespace().map(pair).collect()
    }

    fn call(&self, command: &str, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/cluster.sh");
        let server = self.server.iter().map(|server| ("PG_CONFIG", server));
        let output =
            Command::new(&script).arg(command).arg(&self.folder).args(arguments).envs(server).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it prints text")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}
