//! Without preloading: a call that sleeps starts a worker, as far as the server has one, with the owner's rights.

use std::time::{Duration, Instant};

use taskq_tests::{Cluster, Session, until};

use super::cluster::workers;

const TMP: &str = env!("CARGO_TARGET_TMPDIR");

fn cluster(name: &str, settings: &[&str]) -> Cluster {
    let all: Vec<&str> = ["max_connections=30"].iter().chain(settings).copied().collect();
    Cluster::start(TMP, &format!("called-{name}"), &all)
}

/// A task of another action whose only try has run out.
fn dead(session: &mut Session) {
    session.run(
        "SELECT taskq.insert_task('dead', 'h', max_tries => 1); \
         SELECT taskq.own_tasks('w', 1, '{h}', lease => '0.2 seconds')",
    );
}

const SLEEPS: &str = "SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '1 minute')";

#[test]
fn without_a_free_process_nothing_is_lost_and_health_says_so() {
    // That of logical replication takes the only one.
    let cluster = cluster("full", &["max_worker_processes=1"]);
    let mut session = cluster.connect();
    dead(&mut session);
    let call = cluster.connect().background(|session| {
        session.run("SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '8 seconds')");
    });
    let kind =
        "SELECT count(*) FROM taskq.health() WHERE kind = 'no_worker' AND subject = 'max_worker_processes'";
    until("health says so", || (session.one::<i64>(kind) == 1).then_some(()));
    assert_eq!(workers(&mut session, None), [0; 0]);
    assert_eq!(session.state("dead"), "in-progress");
    call.join();
    assert_eq!(session.state("dead"), "aborted", "the call has done it at its end");
    assert_eq!(session.one::<i64>(kind), 0);
}

/// On wrong code a worker that does nothing, since something of others is on the queue's tables, keeps the only place of the server for
/// as long as a call waits there.
#[test]
fn a_worker_that_does_nothing_leaves_its_place_to_other_databases() {
    let cluster = cluster("refuses", &["max_worker_processes=4"]);
    let mut session = cluster.connect();
    session.run("CREATE DATABASE other");
    session.run(
        "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER foreign_one AFTER INSERT ON taskq.task FOR EACH STATEMENT EXECUTE FUNCTION public.nothing()",
    );
    dead(&mut session);
    let call = cluster.connect().background(|session| drop(session.batch_execute(SLEEPS)));
    until("it has come", || (!workers(&mut session, Some("postgres")).is_empty()).then_some(()));
    let mut other = cluster.connect_to("other");
    other.run("CREATE EXTENSION taskq");
    dead(&mut other);
    other.run("SELECT taskq.insert_tasks('[{\"action\": \"y\", \"depends_on\": [{\"id\": \"dead\", \"condition\": \"settled\"}]}]')");
    let began = Instant::now();
    assert_eq!(other.own_with("w", 1, &["y"], "wait => '50 seconds'").unwrap().len(), 1);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    session.run(&format!("SELECT pg_terminate_backend({})", call.pid()));
    call.join();
}

#[test]
fn a_worker_that_was_called_ends_at_once_with_the_server() {
    let cluster = cluster("stop", &[]);
    let mut session = cluster.connect();
    session.run("SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"h\"}', overlap => 'queue')");
    let call = cluster.connect().background(|session| drop(session.batch_execute(SLEEPS)));
    let worker = until("a worker comes", || workers(&mut session, Some("postgres")).first().copied());
    // It stays for what is due so soon, and holds nothing but its posts while it sleeps.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(workers(&mut session, Some("postgres")), [worker]);
    let held = format!(
        "SELECT (SELECT count(*) FROM pg_locks WHERE pid = {worker} AND NOT (locktype = 'advisory' AND objsubid = 29811)) \
              + (SELECT count(*) FROM pg_stat_activity WHERE pid = {worker} AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL))"
    );
    until("it holds nothing", || (session.one::<i64>(&held) == 0).then_some(()));
    drop(session);
    let began = Instant::now();
    cluster.stop();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    call.join();
}

#[test]
fn the_owner_of_the_functions_gains_no_rights_by_a_worker_on_call() {
    let cluster = cluster("owner", &[]);
    let mut session = cluster.connect();
    session.run("CREATE ROLE exdba SUPERUSER; DROP EXTENSION taskq; SET SESSION AUTHORIZATION exdba; CREATE EXTENSION taskq");
    session.run("RESET SESSION AUTHORIZATION; ALTER ROLE exdba NOSUPERUSER; SET ROLE exdba");
    session.run(
        "CREATE OR REPLACE FUNCTION taskq._lane(group_id text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
           IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN EXECUTE 'ALTER ROLE exdba SUPERUSER'; END IF;
           RETURN 1; END $$",
    );
    // Settings of the database that its owner may make are not the worker's.
    session.run("RESET ROLE; ALTER DATABASE postgres SET role = 'exdba'; ALTER DATABASE postgres SET search_path = 'nowhere'");
    session.run("ALTER DATABASE postgres SET default_transaction_read_only = on");
    dead(&mut session);
    session.run("SELECT taskq.insert_task('late', 'h', delay => '0.1 seconds', group_id => 'g')");
    let call = cluster.connect().background(|session| {
        session.run("SET default_transaction_read_only = off");
        drop(session.batch_execute(SLEEPS));
    });
    until("the worker has done it", || (session.state("dead") == "aborted").then_some(()));
    let moved = "SELECT NOT EXISTS (SELECT FROM taskq.scheduled)";
    until("and that", || session.one::<bool>(moved).then_some(()));
    assert!(!session.one::<bool>("SELECT rolsuper FROM pg_roles WHERE rolname = 'exdba'"));
    // With something of another role on its tables it says so once, stays while a call waits, and does nothing.
    session.run("CREATE RULE spy AS ON INSERT TO taskq.run DO ALSO NOTIFY spy");
    dead_again(&mut session);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(session.state("again"), "in-progress");
    session.run(&format!("SELECT pg_terminate_backend({})", call.pid()));
    call.join();
    until("it leaves", || workers(&mut session, None).is_empty().then_some(()));
    assert!(
        cluster.log().contains("nothing is done in this database: there is a rule on run"),
        "{}",
        cluster.log()
    );
    session.run("DROP RULE spy ON taskq.run");
}

fn dead_again(session: &mut Session) {
    session.run(
        "SELECT taskq.insert_task('again', 'h', max_tries => 1); \
         SELECT taskq.own_tasks('w', 10, '{h}', lease => '0.2 seconds')",
    );
}
