//! The primary is gone in an instant, and its standby takes its place.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Cluster, Session, refused, sqlstate};
use uuid::Uuid;

use crate::work::{Place, Work, eventually};
use crate::{TMP, much};

const BOTH: [&str; 2] = ["max_connections=60", "max_prepared_transactions=5"];

/// What is acknowledged, to sessions that say `synchronous_commit = on`, is on the standby as well.
const PRIMARY: [&str; 4] = [BOTH[0], BOTH[1], "synchronous_standby_names=*", "synchronous_commit=local"];

/// Waits until the standby shows what the primary has committed.
pub fn catch_up(primary: &mut Session, standby: &mut Session) {
    let end: String = primary.one("SELECT pg_current_wal_flush_lsn()::text");
    eventually("the standby has replayed what there is", || {
        standby.one::<bool>(&format!("SELECT pg_last_wal_replay_lsn() >= '{end}'")).then_some(())
    });
}

fn promote(session: &mut Session) {
    assert!(session.one::<bool>("SELECT pg_promote()"));
}

/// A task of the action is granted until then.
fn hold(session: &mut Session, action: &str, lease: &str) -> (String, Uuid) {
    let grant = session.own_one_with(action, &format!("lease => '{lease}'"));
    (grant.task_id, grant.token)
}

#[test]
fn a_standby_promoted_under_load_has_all_that_was_acknowledged() {
    let primary = Cluster::start(TMP, "recover-primary", &PRIMARY);
    let standby = Cluster::standby(TMP, "recover-standby", &primary, &BOTH);
    let mut session = primary.connect();
    session.run("SET synchronous_commit = on");
    let place = Place::at(primary.config());
    let work = Work::begin(&place, 2);

    // In a worker's hands; waiting in a row; half inserted.
    let named =
        |ids: &[&str], action: &str| ids.iter().map(|id| json!({"id": id, "action": action})).collect();
    session.insert(named(&["awaited", "kept", "extended"], "hold")).unwrap();
    session.insert(named(&["short"], "short")).unwrap();
    session.insert(named(&["o 1", "o 2", "o 3"], "order")).unwrap();
    session.insert(named(&["s 1", "s 2", "s 3", "s 4"], "split")).unwrap();
    let held = [(); 3].map(|()| hold(&mut session, "hold", "10 minutes"));
    let short = hold(&mut session, "short", "1 second");
    session.run("BEGIN; SELECT taskq.insert_task('late', 'late'); PREPARE TRANSACTION 'late'");
    // Sessions that were there before: one has looked at everything, one sleeps.
    let mut looked = standby.connect();
    catch_up(&mut session, &mut looked);
    looked.run("SELECT * FROM taskq.top; SELECT * FROM taskq.tasks; SELECT * FROM taskq.metrics_rows(); SELECT * FROM taskq.health()");
    let asleep = standby.connect().background(|session| {
        session.run("SET statement_timeout = '240s'");
        session.wait("awaited", "200 seconds").unwrap()
    });
    work.goes_on(much());
    looked.until_asleep(asleep.pid());

    primary.kill();
    let acknowledged = work.books.now();
    let gone = Instant::now();
    promote(&mut looked);
    place.is_now(standby.config());
    work.goes_on(1);
    let back = gone.elapsed();

    let mut session = standby.connect();
    acknowledged.hold_in(&mut session);
    // A worker that held something holds it still.
    assert!(session.extend("worker", &[("extended", held[2].1)], "10 minutes").unwrap()[0].1);
    for (id, token) in &held {
        assert_eq!(session.give(id, *token, "completed").unwrap(), "completed");
    }
    assert_eq!(asleep.join().1.expect("who slept on the standby is told").status_code, "completed");
    // What has run out is granted anew, and then the old token is no good.
    let anew = eventually("the lease is over", || looked.own("another", 1, &["short"]).unwrap().pop());
    assert_eq!(anew.num_tries, 2);
    assert_eq!(sqlstate(&session.give(&short.0, short.1, "completed").unwrap_err()), "TQ001");
    session.complete(&anew);
    // New tasks go behind those that were there, for the session that had looked at the standby, too.
    session.insert(named(&["o 4", "o 5", "o 6"], "order")).unwrap();
    let order: Vec<String> = (0..6).map(|_| looked.perform("order", "completed")).collect();
    assert_eq!(order, ["o 1", "o 2", "o 3", "o 4", "o 5", "o 6"]);
    session.run("COMMIT PREPARED 'late'");
    assert_eq!(looked.perform("late", "completed"), "late");
    wakes(&standby);
    work.goes_on(much());

    let inserted = work.books.now().inserted.len();
    let books = work.end().now();
    books.hold_in(&mut session);
    books.refusals_are_right();
    eprintln!(
        "{} tasks were acknowledged before the end, {inserted} in all; {} returns had no answer, {} were refused; \
         the first return after the end of the primary came after {back:?}",
        acknowledged.inserted.len(),
        books.unsure.len(),
        books.refused.len()
    );
    a_zombie_does_no_harm(&primary, &mut session);
}

/// A waiting call is woken by what comes: none looks by itself here.
fn wakes(cluster: &Cluster) {
    let mut session = cluster.connect();
    let sleeper = || {
        let mut session = cluster.connect();
        session.run("SET taskq.shortest_sleep = '60s'; SET statement_timeout = '240s'");
        session
    };
    let owns = sleeper().background(|session| {
        let grant = session.own_with("w", 1, &["later"], "wait => '200 seconds'").unwrap().pop();
        session.complete(&grant.expect("it is woken"));
    });
    session.run("SELECT taskq.insert_task('awaited too', 'in hand')");
    let in_hand = session.own_one("in hand");
    let waits = sleeper().background(|session| session.wait("awaited too", "200 seconds").unwrap());
    let calls = sleeper()
        .background(|session| session.one::<bool>("CALL taskq.wait_for_work('{even later}', '200 seconds')"));
    for pid in [owns.pid(), waits.pid(), calls.pid()] {
        session.until_asleep(pid);
    }
    session.run("SELECT taskq.insert_task('later', 'later'), taskq.insert_task('even later', 'even later')");
    let since = Instant::now();
    session.complete(&in_hand);
    owns.join();
    assert!(calls.join().1, "it is woken");
    assert_eq!(waits.join().1.expect("it is woken").status_code, "completed");
    assert!(since.elapsed() < Duration::from_secs(30), "they were woken, and did not look by themselves");
    session.perform("even later", "completed");
}

/// The old primary comes back, and goes on as if nothing had happened. What it grants is nothing here.
fn a_zombie_does_no_harm(old: &Cluster, session: &mut Session) {
    old.restart();
    let mut zombie = old.connect();
    let theirs = zombie.own_with("zombie", 3, &["split"], "lease => '10 minutes'").unwrap();
    let ours = session.own_with("worker", 2, &["split"], "lease => '10 minutes'").unwrap();
    let ids =
        |grants: &[taskq_tests::Grant]| grants.iter().map(|grant| grant.task_id.clone()).collect::<Vec<_>>();
    assert_eq!(
        (ids(&theirs), ids(&ours)),
        (vec!["s 1".into(), "s 2".into(), "s 3".into()], vec!["s 1".into(), "s 2".into()])
    );
    for grant in &theirs {
        let (id, token) = (&grant.task_id, &grant.token);
        for call in [
            "SELECT taskq.return_task($1, $2)",
            "SELECT taskq.return_task($1, $2, 'aborted')",
            "SELECT taskq.return_task($1, $2, 'pending')",
            "SELECT taskq.report_status($1, $2, 'half', 0.5)",
        ] {
            refused(session, "TQ001", id, call, &[id, token]);
        }
        assert_eq!(session.extend("zombie", &[(id, *token)], "1 hour").unwrap(), [(id.clone(), false)]);
        let row = session.query_one(
            "SELECT sqlstate FROM taskq.return_tasks(ARRAY[$1::text], ARRAY[$2::uuid])",
            &[id, token],
        );
        assert_eq!(row.unwrap().get::<_, String>(0), "TQ001");
    }
    // It cannot even know of what came since.
    zombie.run("SELECT taskq.insert_task('only there', 'there')");
    let grant = zombie.own_one("there");
    refused(
        session,
        "TQ003",
        "only there",
        "SELECT taskq.return_task($1, $2)",
        &[&grant.task_id, &grant.token],
    );
    ours.iter().for_each(|grant| session.complete(grant));
    assert_eq!(
        [session.perform("split", "completed"), session.perform("split", "completed")],
        ["s 3", "s 4"]
    );
    assert_eq!(session.broken(), [""; 0]);
}

/// Several times in a row: each standby becomes the primary of the next one.
#[test]
fn from_one_standby_to_the_next() {
    let mut server = Cluster::start(TMP, "recover-chain-0", &PRIMARY);
    let place = Place::at(server.config());
    let work = Work::begin(&place, 1);
    for round in 1..=2 {
        let next = Cluster::standby(TMP, &format!("recover-chain-{round}"), &server, &PRIMARY);
        work.goes_on(much() / 3);
        server.kill();
        let acknowledged = work.books.now();
        let mut session = next.connect();
        promote(&mut session);
        // As an operator does: commits wait for no standby until there is one again.
        session.run("ALTER SYSTEM SET synchronous_standby_names = ''");
        session.run("SELECT pg_reload_conf()");
        place.is_now(next.config());
        work.goes_on(much() / 3);
        acknowledged.hold_in(&mut session);
        session.run("ALTER SYSTEM RESET synchronous_standby_names");
        session.run("SELECT pg_reload_conf()");
        server = next;
        if round == 2 {
            session.run("ALTER SYSTEM SET synchronous_standby_names = ''");
            session.run("SELECT pg_reload_conf()");
        }
    }
    let books = work.end().now();
    books.hold_in(&mut server.connect());
    books.refusals_are_right();
}
