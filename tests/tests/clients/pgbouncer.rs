//! Behind PgBouncer in transaction mode: each call may run on another server connection.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postgres::{Client as Connection, NoTls, SimpleQueryMessage};
use serde_json::json;
use taskq_tests::{Db, Session, until};

use crate::tools::Worker;
use crate::workers::until_state;

/// A worker that has its task sooner was woken.
const PROMPT: Duration = Duration::from_secs(4);

/// A PgBouncer of its own on a Unix socket.
struct Bouncer {
    child: Child,
    folder: PathBuf,
}

impl Bouncer {
    /// Starts one for the tests' cluster, with so many server connections.
    fn start(pool_size: usize) -> Bouncer {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .expect("pgbouncer is missing: run examples/clients/setup.sh");
        let var = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
        let (host, port) = (var("PGHOST", "/var/run/postgresql"), var("PGPORT", "5432"));
        // Short, because a socket's path is limited to 107 bytes; and where any user may enter.
        let folder = Command::new("mktemp").args(["-d", "/tmp/taskq-bouncer-XXXXXX"]).output().unwrap();
        let folder = PathBuf::from(String::from_utf8(folder.stdout).unwrap().trim());
        let settings = format!(
            "[databases]\n* = host={host} port={port} user={}\n[pgbouncer]\npool_mode = transaction\n\
             listen_addr =\nlisten_port = 6432\nunix_socket_dir = {folder}\nauth_type = any\n\
             default_pool_size = {pool_size}\nmax_client_conn = 100\n\
             ignore_startup_parameters = extra_float_digits,options\nlogfile = {folder}/log\n",
            var("PGUSER", "postgres"),
            folder = folder.display(),
        );
        fs::write(folder.join("pgbouncer.ini"), settings).unwrap();
        let child = as_owner_of_the_socket(&host, &folder, program)
            .arg(folder.join("pgbouncer.ini"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let bouncer = Bouncer { child, folder };
        until("PgBouncer listens", || bouncer.folder.join(".s.PGSQL.6432").exists().then_some(()));
        bouncer
    }

    fn connect(&self, db: &Db) -> Connection {
        let mut config = postgres::Config::new();
        config.host(self.folder.to_str().unwrap()).port(6432).user("anybody").dbname(db.name());
        config.connect(NoTls).unwrap_or_else(|error| {
            panic!("{error:?}\n{}", fs::read_to_string(self.folder.join("log")).unwrap_or_default())
        })
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        // The child may be a program that changes the user and becomes PgBouncer; it is the same process.
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// PgBouncer refuses to run as root, and no user but its owner may enter the folder of a private cluster's socket:
/// PgBouncer runs as that owner.
fn as_owner_of_the_socket(host: &str, folder: &Path, program: &str) -> Command {
    let me = fs::metadata("/proc/self").unwrap().uid();
    if me != 0 {
        return Command::new(program);
    }
    let owner = match fs::metadata(host).map(|metadata| metadata.uid()) {
        Ok(uid) if uid != 0 => uid.to_string(),
        _ => "nobody".to_owned(),
    };
    let given = Command::new("chown").arg("-R").arg(&owner).arg(folder).status().unwrap();
    assert!(given.success());
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={owner}"), "--clear-groups", program]);
    command
}

/// The rows of a query in the simple protocol, which names no prepared statement.
fn rows(connection: &mut Connection, query: &str) -> Vec<Vec<String>> {
    let messages = connection.simple_query(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|n| row.get(n).unwrap_or("").to_owned()).collect())
        }
        _ => None,
    });
    rows.collect()
}

fn until_asleep(watcher: &mut Session, sleepers: i64) {
    until("they are asleep", || {
        let asleep: i64 = watcher.one(
            "SELECT count(*) FROM pg_stat_activity \
              WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Extension'",
        );
        (asleep >= sleepers).then_some(())
    });
}

#[test]
fn a_task_goes_through_its_life_on_changing_connections() {
    let (db, bouncer) = (Db::new(), Bouncer::start(3));
    let mut connections: Vec<Connection> = (0..6).map(|_| bouncer.connect(&db)).collect();
    for n in 0..30 {
        // A client that holds its server connection in a transaction: the others change places.
        let busy = n % 6;
        connections[busy].batch_execute("BEGIN").unwrap();
        let mut call = |m: usize, query: &str| rows(&mut connections[(busy + m) % 6], query);
        call(1, &format!("SELECT taskq.insert_task('{n}', 'x')"));
        let granted = call(2, "SELECT task_id, token FROM taskq.own_tasks('w', 1, '{x}', '1 minute')");
        let (id, token) = (&granted[0][0], &granted[0][1]);
        let extend = format!(
            "SELECT owned FROM taskq.extend_tasks_ownership('w', '{{{id}}}', '{{{token}}}', '2 minutes')"
        );
        assert_eq!(call(3, &extend), [["t"]]);
        call(4, &format!("SELECT taskq.report_status('{id}', '{token}', progress => 0.5)"));
        assert_eq!(call(5, &format!("SELECT taskq.return_task('{id}', '{token}')")), [["completed"]]);
        assert_eq!(
            call(1, &format!("SELECT status_code FROM taskq.wait_for_task('{id}', '0')")),
            [["completed"]]
        );
        connections[busy].batch_execute("COMMIT").unwrap();
    }
}

#[test]
fn every_waiting_call_is_woken() {
    let (db, bouncer) = (Db::new(), Bouncer::start(4));
    let mut watcher = db.connect();
    let mut other = bouncer.connect(&db);
    for (call, wake, answer) in [
        (
            "SELECT task_id FROM taskq.own_tasks('w', 1, '{x}', wait => '60 s')",
            "SELECT taskq.insert_task('t', 'x')",
            "t",
        ),
        ("CALL taskq.wait_for_work('{x}', '60 s', NULL)", "SELECT taskq.insert_task('t', 'x')", "t"),
        (
            "SELECT status_code FROM taskq.wait_for_task('a', '60 s')",
            "SELECT taskq.complete_task('a')",
            "completed",
        ),
        ("CALL taskq.wait_for_tasks('{a}', '60 s', NULL)", "SELECT taskq.cancel_tasks('{a}')", "1"),
    ] {
        rows(&mut other, "SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"y\"}]')");
        let mut connection = bouncer.connect(&db);
        let waiting = std::thread::spawn(move || (rows(&mut connection, call), Instant::now()));
        until_asleep(&mut watcher, 1);
        let start = Instant::now();
        rows(&mut other, wake);
        let (got, at) = waiting.join().unwrap();
        assert_eq!(got, [[answer]], "{call}");
        assert!(at - start < PROMPT, "{call} was not woken, but looked after {:?}", at - start);
        // So that the next finds neither.
        rows(&mut other, "SELECT taskq.cancel_tasks('{a,t}'), taskq.own_tasks('w', 9, '{x}')");
        rows(&mut other, "SELECT taskq.cancel_tasks('{t}')");
        rows(&mut other, "SELECT taskq.delete_tasks('{t}')");
    }
}

#[test]
fn a_sleeping_procedure_holds_no_snapshot_behind_it_either() {
    let (db, bouncer) = (Db::new(), Bouncer::start(2));
    let mut watcher = db.connect();
    let mut connection = bouncer.connect(&db);
    let waiting = std::thread::spawn(move || {
        rows(&mut connection, "CALL taskq.wait_for_work('{x}', '60 s', NULL)");
        // The connection goes on to work, in a transaction too.
        rows(&mut connection, "BEGIN; SELECT task_id FROM taskq.own_tasks('w', 1, '{x}'); COMMIT")
    });
    until_asleep(&mut watcher, 1);
    let held: bool = watcher.one(
        "SELECT bool_or(backend_xmin IS NOT NULL) FROM pg_stat_activity \
          WHERE datname = current_database() AND wait_event_type = 'Extension' AND state = 'active'",
    );
    assert!(!held);
    watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_eq!(waiting.join().unwrap(), [["a"]]);
}

#[test]
fn a_waiting_call_takes_a_place_in_the_pool() {
    let (db, bouncer) = (Db::new(), Bouncer::start(1));
    let mut watcher = db.connect();
    let (mut connection, mut other) = (bouncer.connect(&db), bouncer.connect(&db));
    let waiting = std::thread::spawn(move || {
        rows(&mut connection, "SELECT task_id FROM taskq.own_tasks('w', 1, '{x}', wait => '2 s')").len()
    });
    until_asleep(&mut watcher, 1);
    let start = Instant::now();
    rows(&mut other, "SELECT taskq.insert_task('a', 'x')");
    assert!(start.elapsed() > Duration::from_secs(1), "the insertion had to wait for the pool's only place");
    assert_eq!(waiting.join().unwrap(), 0, "and so the waiting call ended first");
}

#[test]
fn a_cancel_and_a_client_that_goes_end_the_wait() {
    let (db, bouncer) = (Db::new(), Bouncer::start(3));
    let mut watcher = db.connect();
    let wait = "SELECT task_id FROM taskq.own_tasks('w', 1, '{x}', wait => '60 s')";
    let psql = || {
        Command::new("psql")
            .args(["-X", "-d", db.name(), "-U", "anybody", "-p", "6432", "-c", wait, "-h"])
            .arg(&bouncer.folder)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql is installed")
    };
    let client = psql();
    until_asleep(&mut watcher, 1);
    let start = Instant::now();
    // psql turns it into a cancel request. It then waits until that has been read; PgBouncer 1.18 falls over clients
    // that do not.
    let killed = Command::new("kill").args(["-INT", &client.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let errors = String::from_utf8(client.wait_with_output().unwrap().stderr).unwrap();
    assert!(errors.contains("canceling statement due to user request"), "{errors}");
    assert!(start.elapsed() < PROMPT, "it took {:?}", start.elapsed());

    let mut client = psql();
    until_asleep(&mut watcher, 1);
    client.kill().unwrap();
    client.wait().unwrap();
    // PgBouncer closes the server connection of a client that went in the middle of a call.
    std::thread::sleep(Duration::from_millis(300));
    watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    until("the wait is over", || {
        let active: i64 = watcher.one(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Extension' AND state = 'active'",
        );
        (active == 0).then_some(())
    });
    assert_eq!(watcher.own_one("x").num_tries, 1, "the task did not go to a client that is gone");
}

#[test]
fn every_example_worker_works_behind_it() {
    crate::tools::each_client("works_behind_pgbouncer", &crate::tools::Client::ALL, |client| {
        let (db, bouncer) = (Db::new(), Bouncer::start(3));
        let mut session = db.connect();
        let mut worker = Worker::start_with(&db, client, "5", |command| {
            command.env("PGHOST", &bouncer.folder).env("PGPORT", "6432").env("PGUSER", "anybody");
        });
        for n in 0..8 {
            let id = n.to_string();
            session
                .insert(json!([{"id": id, "action": "checksum", "body": {"text": id, "seconds": 0.1}}]))
                .unwrap();
            until_state(&mut session, &id, "completed");
        }
        worker.terminate();
        assert!(worker.end().success(), "{client:?}");
    });
}
