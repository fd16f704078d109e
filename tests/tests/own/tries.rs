//! Each grant counts one try and has a token of its own; a rolled-back grant was none.

use std::collections::HashSet;

use serde_json::json;
use taskq_tests::{Db, sqlstate};

#[test]
fn tokens_of_one_call_differ_and_each_fits_one_task() {
    let (_db, [mut session]) =
        Db::with_tasks((0..50).map(|i| json!({"id": i.to_string(), "action": "x"})).collect());
    let grants = session.own("w", 50, &["x"]).unwrap();
    assert_eq!(grants.iter().map(|grant| grant.token).collect::<HashSet<_>>().len(), 50);
    for (grant, other) in grants.iter().zip(grants.iter().skip(1)) {
        assert_eq!(sqlstate(&session.give(&grant.task_id, other.token, "completed").unwrap_err()), "TQ001");
    }
    for grant in &grants {
        session.complete(grant);
    }
}

#[test]
fn a_death_of_the_connection_in_the_middle_of_a_transaction_undoes_it() {
    let (_db, [mut doomed, mut watcher]) = Db::connected();
    watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    doomed.run("BEGIN");
    doomed.own_one("x");
    watcher.run(&format!("SELECT pg_terminate_backend({}, 10000)", doomed.pid()));
    assert_eq!(watcher.state("a"), "ready");
    assert_eq!(watcher.own_one("x").num_tries, 1);
}
