//! A server whose table of locks is full: there is no room for the signs with which a transaction looks before its commit.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Cluster, sqlstate, until};

#[test]
fn a_commit_without_room_for_its_signs_takes_no_longer() {
    // Want of room is no sign of another transaction that commits: to wait for one is of no use.
    let cluster = Cluster::start(
        env!("CARGO_TARGET_TMPDIR"),
        "signals-full-lock-table",
        &["max_connections=10", "max_locks_per_transaction=10"],
    );
    let (mut one, mut two, mut hog) = (cluster.connect(), cluster.connect(), cluster.connect());
    let tasks = json!([
        {"id": "p", "action": "x"}, {"id": "q", "action": "x"}, {"id": "child", "action": "y", "depends_on": ["p", "q"]},
    ]);
    one.insert(tasks).unwrap();
    // Without deadlines: a commit that has leases to tidy up wants locks for that.
    one.run("SET taskq.lease = ''");
    let held = one.own("w", 2, &["x"]).unwrap();
    // The one has the counter locked, and the other leaves its signal.
    for (session, grant) in [(&mut one, &held[0]), (&mut two, &held[1])] {
        session.run("BEGIN");
        session.complete(grant);
    }
    let full =
        hog.batch_execute("SELECT pg_advisory_lock(n) FROM generate_series(1, 1000000) AS n").unwrap_err();
    assert_eq!(sqlstate(&full), "53200");
    for session in [&mut two, &mut one] {
        let begun = Instant::now();
        session.run("COMMIT");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
    hog.run("SELECT pg_advisory_unlock_all()");
    until("the rest is counted", || one.own("w", 1, &["y"]).unwrap().pop());
    assert_eq!(one.broken(), Vec::<String>::new());
}
