//! What the tables' changes look like to logical decoding: a subscriber that follows them has the same rows in the end.
//!
//! On wrong code changes that are made through the table access method lack what a follower needs, or a row on trial that was
//! undone goes out with the others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use taskq_tests::{Cluster, Session};

/// The numbers of the tasks in each of the tables.
type Rows = BTreeMap<String, BTreeSet<i64>>;

const TABLES: [&str; 4] = ["task", "run", "blocked", "settled"];

fn stored(session: &mut Session) -> Rows {
    TABLES
        .iter()
        .map(|table| {
            let numbers = session.all::<i64>(&format!("SELECT task_no FROM taskq.{table}"));
            ((*table).to_owned(), numbers.into_iter().collect())
        })
        .collect()
}

/// Does to `rows` what a change, as `test_decoding` writes it, says.
fn follow(rows: &mut Rows, change: &str) {
    let Some((table, what)) = change.strip_prefix("table taskq.").and_then(|rest| rest.split_once(": "))
    else {
        return;
    };
    let Some(rows) = TABLES.contains(&table).then(|| rows.entry(table.to_owned()).or_default()) else {
        return;
    };
    let number = what.split("task_no[bigint]:").nth(1).expect("a change says of which row it is");
    let number: i64 = number.split(' ').next().unwrap().parse().unwrap();
    match what.split(':').next().unwrap() {
        "INSERT" => assert!(rows.insert(number), "inserted twice: {change}"),
        "UPDATE" => assert!(rows.contains(&number), "not there: {change}"),
        "DELETE" => assert!(rows.remove(&number), "not there: {change}"),
        other => panic!("{other}: {change}"),
    }
}

#[test]
fn a_follower_has_the_same_rows() {
    let cluster =
        Cluster::start(env!("CARGO_TARGET_TMPDIR"), "own-decoding", &["wal_level=logical", "fsync=off"]);
    let mut session = cluster.connect();
    session.run("SELECT pg_create_logical_replication_slot('follower', 'test_decoding')");
    // Many at once, one by one, ids that are taken already, and what is undone.
    let many: serde_json::Value =
        (0..700).map(|i| json!({"id": format!("t{i:03}"), "action": "x"})).collect();
    session.insert(many.clone()).unwrap();
    session
        .insert_with(
            json!([{"id": "t003", "action": "x"}, {"id": "new", "action": "x"}]),
            "on_conflict => 'skip'",
        )
        .unwrap();
    session.insert(json!([{"id": "t003", "action": "x"}])).unwrap_err();
    session.run("BEGIN; SELECT taskq.insert_task('undone', 'x'); ROLLBACK");
    session.run("BEGIN; SAVEPOINT s; SELECT taskq.insert_task('half', 'x'); ROLLBACK TO s; SELECT taskq.insert_task('whole', 'x'); COMMIT");
    session.insert(json!([{"id": "child", "action": "y", "depends_on": ["t000", "t001"]}])).unwrap();
    for n in [1, 1, 1, 200] {
        let grants = session.own("w", n, &["x"]).unwrap();
        let held: Vec<(&str, _)> = grants.iter().map(|g| (g.task_id.as_str(), g.token)).collect();
        session.extend("w", &held, "1 hour").unwrap();
        grants.iter().for_each(|grant| session.complete(grant));
    }
    session.replace(json!([{"id": "t600", "action": "x", "body": "another"}])).unwrap();
    session.delete(&["t001", "t601"]).unwrap();
    session.cancel(&["t602"]).unwrap();

    let changes = session.all::<String>(
        "SELECT data FROM pg_logical_slot_get_changes('follower', NULL, NULL, 'include-xids', 'off')",
    );
    let mut followed: Rows = TABLES.iter().map(|table| ((*table).to_owned(), BTreeSet::new())).collect();
    changes.iter().for_each(|change| follow(&mut followed, change));
    assert!(changes.len() > 2_000, "{} changes", changes.len());
    assert_eq!(followed, stored(&mut session));
    session.run("SELECT pg_drop_replication_slot('follower')");
}
