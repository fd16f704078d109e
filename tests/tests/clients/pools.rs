//! Workers with many tasks at once: as many as asked for and no more, one heartbeat for all, returns in batches in which one
//! bad token spoils nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskq_tests::{Db, Session, until};

use crate::tools::{Client, Worker};
use crate::workers::until_state;

fn tasks(ids: std::ops::Range<usize>, seconds: f64) -> Value {
    ids.map(
        |n| json!({"id": format!("{n:03}"), "action": "checksum", "body": {"text": "x", "seconds": seconds}}),
    )
    .collect()
}

fn in_progress(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.actors")
}

fn as_many_as_asked_for(client: Client) {
    let (db, [mut session]) = Db::with_tasks(tasks(0..24, 1.0));
    let start = Instant::now();
    let _worker = Worker::run(&db, client.pool(8), "5");
    let mut most = 0;
    until("all are done", || {
        most = in_progress(&mut session).max(most);
        assert!(most <= 8, "{most} at once");
        (session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'") == 24).then_some(())
    });
    assert_eq!(most, 8);
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "one after the other they take 24 s: {:?}",
        start.elapsed()
    );
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE num_tries <> 1"), 0);
}

fn all_leases_are_kept_and_one_that_is_lost_is_dropped_alone(client: Client) {
    let (db, [mut session]) = Db::connected();
    // Longer than the lease of three seconds.
    session.insert(tasks(0..5, 5.0)).unwrap();
    let _worker = Worker::run(&db, client.pool(5), "5");
    until("all are in progress", || (in_progress(&mut session) == 5).then_some(()));
    session.cancel(&["002"]).unwrap();
    session.insert(tasks(5..6, 0.0)).unwrap();
    // There is room for another one as soon as a heartbeat hears of it, long before the others end.
    until_state(&mut session, "005", "completed");
    assert_eq!(in_progress(&mut session), 4);
    until("the others are done", || {
        assert!(session.own("thief", 9, &["checksum"]).unwrap().is_empty(), "a lease has elapsed");
        (session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'") == 5).then_some(())
    });
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE num_tries <> 1"), 0);
}

fn sigterm_lets_end_what_can_and_gives_back_the_rest(client: Client) {
    let (db, [mut session]) = Db::with_tasks(tasks(0..3, 2.0));
    session.insert(tasks(3..6, 300.0)).unwrap();
    session.insert(tasks(6..9, 0.0)).unwrap();
    let mut worker = Worker::run(&db, client.pool(6), "4");
    until("six are in progress", || (in_progress(&mut session) == 6).then_some(()));
    worker.terminate();
    assert!(worker.end().success());
    let states: Vec<String> =
        session.all("SELECT concat_ws(' ', state, num_tries, num_releases) FROM taskq.tasks ORDER BY id");
    let expected = [["completed 1 0"; 3], ["ready 0 1"; 3], ["ready 0 0"; 3]].concat();
    assert_eq!(states, expected);
}

crate::each_client!(
    Client::POOLS;
    as_many_as_asked_for,
    all_leases_are_kept_and_one_that_is_lost_is_dropped_alone,
    sigterm_lets_end_what_can_and_gives_back_the_rest,
);
