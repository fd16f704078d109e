//! A fresh database for each test, so that tests run in parallel and none sees another's tasks.

use std::array;
use std::env;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use postgres::{Client, Config, NoTls};
use serde_json::Value;

use crate::session::Session;

/// No test means to wait longer than this for one statement; a hang then fails with a name instead of stalling.
const STATEMENT_TIMEOUT: &str = "120s";

/// Sleeping calls look by themselves as late as they may (see `sleeper`): a call that is not woken sleeps on, and the test sees
/// that.
const NO_LOOKS: &str = "30s";

/// A database with the extension in it, dropped when this value goes.
pub struct Db {
    name: String,
}

impl Db {
    /// Creates the database; its name carries the test's, so that `pg_stat_activity` tells who is at work.
    #[allow(clippy::new_without_default, reason = "creating a database is no default of anything")]
    pub fn new() -> Db {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let test: String =
            thread::current().name().unwrap_or("main").replace("::", "_").chars().take(40).collect();
        let name = format!("t_{test}_{}_{}", COUNTER.fetch_add(1, Ordering::Relaxed), process::id());
        let template = template();
        // Copied as files, which costs less than by way of the log where nothing is synced.
        admin(&format!("CREATE DATABASE \"{name}\" TEMPLATE \"{template}\" STRATEGY file_copy"));
        Db { name }
    }

    /// A fresh one, and connections to it.
    pub fn connected<const N: usize>() -> (Db, [Session; N]) {
        let db = Db::new();
        let sessions = array::from_fn(|_| db.connect());
        (db, sessions)
    }

    /// The same with these tasks, which the first connection has inserted.
    pub fn with_tasks<const N: usize>(tasks: Value) -> (Db, [Session; N]) {
        let (db, mut sessions) = Db::connected();
        sessions[0].insert(tasks).expect("the tasks that a test begins with");
        (db, sessions)
    }

    /// Creates a database without the extension.
    pub fn empty() -> Db {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t_empty_{}_{}", COUNTER.fetch_add(1, Ordering::Relaxed), process::id());
        admin(&format!("CREATE DATABASE \"{name}\" TEMPLATE template0"));
        Db { name }
    }

    /// Removes every task, after a look at the invariants: cheaper than another database, for tests that try several
    /// variants one after the other.
    pub fn clear(&self) {
        let mut session = self.connect();
        let broken = session.broken();
        assert!(broken.is_empty(), "taskq.check() after a variant of the test: {broken:#?}");
        let all = "SELECT coalesce(array_agg(id), '{}') FROM taskq.tasks";
        session.run(&format!("SELECT taskq.cancel_tasks(({all}))"));
        session.run(&format!("SELECT taskq.delete_tasks(({all}))"));
        assert_eq!(session.tasks(), [], "what is cancelled and deleted is gone");
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens a new connection as the superuser of the cluster.
    pub fn connect(&self) -> Session {
        self.connect_with(&config())
    }

    /// How to connect to it.
    pub fn config(&self) -> Config {
        let mut config = config();
        config.dbname(&self.name);
        config
    }

    /// Opens a new connection as another role.
    pub fn connect_as(&self, role: &str) -> Session {
        self.connect_with(config().user(role))
    }

    fn connect_with(&self, config: &Config) -> Session {
        let client =
            config.clone().dbname(&self.name).connect(NoTls).expect("a connection to the test database");
        Session::new(client)
    }
}

/// Whether databases stay, see [`let_databases_stay`].
static STAY: AtomicBool = AtomicBool::new(false);

/// From now on the databases of this program stay until another program begins, which drops them. To drop one wakes all
/// processes of the cluster; calls that sleep are to be woken by nothing but what their own tests do.
pub fn let_databases_stay() {
    STAY.store(true, Ordering::Relaxed);
}

impl Drop for Db {
    /// A look at the invariants, unless the test has failed anyway or the extension is not there.
    fn drop(&mut self) {
        let statement = format!("DROP DATABASE \"{}\" WITH (FORCE)", self.name);
        if thread::panicking() {
            // It cannot be dropped with a prepared transaction in it. A second panic would end the whole program, and no test
            // would be named.
            try_admin(&statement).ok();
            return;
        }
        let broken = invariants_broken(self.connect());
        if !STAY.load(Ordering::Relaxed) {
            admin(&statement);
        }
        assert!(broken.is_empty(), "taskq.check() at the end of the test: {broken:#?}");
    }
}

fn invariants_broken(mut session: Session) -> Vec<String> {
    let installed = session.one::<bool>("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'taskq')");
    if installed { session.broken() } else { Vec::new() }
}

/// How to reach the cluster: `PGHOST` (also a socket's folder), `PGPORT`, `PGUSER`.
pub fn config() -> Config {
    let var = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let mut config = Config::new();
    config
        .host(&var("PGHOST", "/var/run/postgresql"))
        .port(var("PGPORT", "5432").parse().expect("PGPORT is a number"))
        .user(&var("PGUSER", "postgres"))
        .application_name(&program())
        .options(&format!(
            "-c statement_timeout={STATEMENT_TIMEOUT} -c client_min_messages=warning -c taskq.shortest_sleep={NO_LOOKS}"
        ));
    config
}

/// Runs one statement in the maintenance database.
pub fn admin(statement: &str) {
    try_admin(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

fn try_admin(statement: &str) -> Result<(), postgres::Error> {
    config().dbname("postgres").connect(NoTls)?.batch_execute(statement)
}

fn program() -> String {
    format!("taskq_tests_{}", process::id())
}

/// The database that the others are copied from: `CREATE EXTENSION` once for each test program, not once a test.
fn template() -> &'static str {
    static TEMPLATE: OnceLock<String> = OnceLock::new();
    /// Kept open as long as the program runs: by its name others see that this program's databases are in use.
    static SIGN_OF_LIFE: Mutex<Option<Client>> = Mutex::new(None);
    TEMPLATE.get_or_init(|| {
        let mut client = config().dbname("postgres").connect(NoTls).expect(
            "a connection to the cluster; set PGHOST, PGPORT and PGUSER to those of a private one with taskq installed",
        );
        drop_leftovers(&mut client);
        let name = format!("t_template_{}", process::id());
        client.batch_execute(&format!("CREATE DATABASE \"{name}\" TEMPLATE template0")).unwrap();
        *SIGN_OF_LIFE.lock().unwrap() = Some(client);
        let mut inside = config().dbname(&name).connect(NoTls).unwrap();
        inside.batch_execute("CREATE EXTENSION taskq").expect("CREATE EXTENSION taskq");
        inside.close().expect("the template's last connection closes");
        name
    })
}

/// Removes the databases of test programs that were killed.
fn drop_leftovers(client: &mut Client) {
    let leftovers = client
        .query(
            "SELECT datname FROM pg_database d WHERE datname ~ '^t_.*_[0-9]+$' AND NOT EXISTS \
             (SELECT FROM pg_stat_activity \
              WHERE application_name = 'taskq_tests_' || substring(d.datname FROM '[0-9]+$'))",
            &[],
        )
        .unwrap();
    let leftovers: Vec<String> = leftovers.iter().map(|row| row.get(0)).collect();
    // Several at a time: each waits for all processes of the cluster, and a program may leave a hundred.
    thread::scope(|scope| {
        for some in leftovers.chunks(leftovers.len().div_ceil(8).max(1)) {
            scope.spawn(move || {
                for name in some {
                    // Another program may be removing the same one.
                    try_admin(&format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)")).ok();
                }
            });
        }
    });
}
