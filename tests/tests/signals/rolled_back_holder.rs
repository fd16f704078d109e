//! The last parent of a child is returned while another transaction has the counter. The signal is left to that holder,
//! which has yet to look. The holder rolls back, and wakes a session to look; but the return is still in its commit, so
//! there is nothing to be seen. When that is over the signal is not counted, and there are no other calls.
//!
//! A queue that relies on the rollback alone leaves the child to the next look: of a sleeper at its own pace, or none.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Cluster, until};

#[test]
fn a_signal_that_is_committed_after_the_rollback_it_was_left_to_is_counted() {
    // A commit that waits for a standby which does not exist is stopped before any session sees it.
    let settings = ["synchronous_standby_names=absent", "synchronous_commit=local"];
    let cluster = Cluster::start(env!("CARGO_TARGET_TMPDIR"), "signals-rolled-back-holder", &settings);
    let (mut session, mut holder) = (cluster.connect(), cluster.connect());
    session
        .insert(
            json!([{"id": "p", "action": "parent"}, {"id": "child", "action": "child", "depends_on": ["p"]}]),
        )
        .unwrap();
    let p = session.own_one("parent");
    // By itself it looks again in half a minute.
    let mut worker = cluster.connect();
    worker.run("SET taskq.shortest_sleep = '30s'");
    let worker =
        worker.background(|session| session.own_with("w", 1, &["child"], "wait => '60 seconds'").unwrap());
    session.until_asleep(worker.pid());
    holder.run("BEGIN");
    holder.cancel(&["child"]).unwrap();

    let mut returner = cluster.connect();
    returner.run("SET synchronous_commit = on");
    let returner = returner.background(move |session| session.complete(&p));
    let commits =
        format!("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {}", returner.pid());
    until("the return is in its commit", || {
        (session.one::<Option<bool>>(&commits) == Some(true)).then_some(())
    });
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.countdown"), 0, "no session sees it");
    holder.run("ROLLBACK");
    // The session that this has woken looks, and sleeps again.
    std::thread::sleep(Duration::from_millis(500));
    session.until_asleep(worker.pid());
    session.run(&format!("SELECT pg_cancel_backend({})", returner.pid()));
    let start = Instant::now();
    returner.join();
    let mut grants = worker.join().1;
    if grants.is_empty() {
        // A look that has only counted may come back with nothing.
        grants = session.own("w", 1, &["child"]).unwrap();
    }
    assert_eq!(grants[0].task_id, "child");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
