//! A VACUUM FULL of one of the tables, between two parents of a child that commit.
//!
//! It waits for one of the two, and the other one waits behind it for the table. On wrong code that one has the sign by then that
//! the first one naps for: a circle that no deadlock detector sees, until the first one gives up after five seconds.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::Db;

#[test]
fn neither_commit_waits_for_a_vacuum_that_waits_for_the_other() {
    for table in ["countdown", "blocked", "run", "scheduled", "task", "settled", "dependency", "lease"] {
        let (db, [mut first, mut second, mut watcher]) = Db::connected();
        watcher
            .insert(json!([
                {"id": "p", "action": "parent"}, {"id": "q", "action": "parent"},
                {"id": "child", "action": "child", "depends_on": ["p", "q"]},
            ]))
            .unwrap();
        let parents = watcher.own("w", 2, &["parent"]).unwrap();
        first.run("BEGIN");
        first.complete(&parents[0]);
        second.run("BEGIN");
        second.complete(&parents[1]);
        let vacuum =
            db.connect().background(move |session| session.run(&format!("VACUUM FULL taskq.{table}")));
        // Of a table that neither has locked it is done by now.
        vacuum.settle_down(&mut watcher);
        let start = Instant::now();
        let first = first.background(|session| session.run("COMMIT"));
        let progress = first.settle_down(&mut watcher);
        second.run("COMMIT");
        first.join();
        vacuum.join();
        assert!(start.elapsed() < Duration::from_secs(4), "{table}, {progress:?}: {:?}", start.elapsed());
        assert_eq!(watcher.state("child"), "ready", "{table}");
    }
}
