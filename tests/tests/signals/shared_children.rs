//! Parents that share children, returned at once in opposite orders: the classic deadlock of queues with counters.

use serde_json::json;
use taskq_tests::{Db, Grant};

#[test]
fn transactions_that_return_in_opposite_orders_do_not_deadlock() {
    // No return waits for a hot child: the order in which a caller's transaction settles its tasks is the caller's own.
    let (_db, [mut first, mut second, mut watcher]) = Db::connected();
    let tasks = json!([
        {"id": "c", "action": "child"}, {"id": "d", "action": "child"},
        {"id": "pc", "action": "x", "to_signal_after": ["c"]}, {"id": "pd", "action": "x", "to_signal_after": ["d"]},
        {"id": "qc", "action": "x", "to_signal_after": ["c"]}, {"id": "qd", "action": "x", "to_signal_after": ["d"]},
    ]);
    watcher.insert(tasks).unwrap();
    let held = watcher.own("w", 4, &["x"]).unwrap();
    let grant = |id: &str| -> Grant { held.iter().find(|grant| grant.task_id == id).unwrap().clone() };
    let (pc, pd, qc, qd) = (grant("pc"), grant("pd"), grant("qc"), grant("qd"));
    first.run("BEGIN");
    second.run("BEGIN");
    first.complete(&pc);
    second.complete(&qd);
    let first = first.background(move |session| session.give("pd", pd.token, "completed"));
    first.settle_down(&mut watcher);
    let second = second.background(move |session| session.give("qc", qc.token, "completed"));
    let (mut second, answer) = second.join();
    answer.expect("the second transaction neither waits for ever nor deadlocks");
    second.run("COMMIT");
    let (mut first, answer) = first.join();
    answer.expect("nor does the first");
    first.run("COMMIT");
    let mut freed: Vec<String> =
        watcher.own("w", 9, &["child"]).unwrap().into_iter().map(|g| g.task_id).collect();
    freed.sort();
    assert_eq!(freed, ["c", "d"]);
}

#[test]
fn a_hot_child_gets_every_signal_of_eight_connections() {
    let (db, [mut session]) = Db::connected();
    const PARENTS: i32 = 800;
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(t) FROM (\
         SELECT jsonb_build_object('id', 'p' || i, 'action', 'p', 'to_signal_after', '[\"mark\", \"child\"]'::jsonb) AS t \
         FROM generate_series(1, {PARENTS}) i \
         UNION ALL SELECT '{{\"id\": \"child\", \"action\": \"child\"}}' \
         UNION ALL SELECT '{{\"id\": \"mark\", \"action\": \"s\", \"spontaneous\": true}}') AS tasks))"
    ));
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            db.connect().background(move |session| {
                loop {
                    let grants = session.own("w", 1 + worker % 4, &["p"]).unwrap();
                    if grants.is_empty() {
                        break;
                    }
                    for (i, grant) in grants.iter().enumerate() {
                        // Some transactions stay open over several signals, some roll one back.
                        session.run("BEGIN; SAVEPOINT s");
                        session.complete(grant);
                        if i % 3 == 1 {
                            session.run("ROLLBACK TO s");
                            session.complete(grant);
                        }
                        session.run("COMMIT");
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join();
    }
    for grant in session.own("w", PARENTS, &["p"]).unwrap() {
        session.complete(&grant);
    }
    assert_eq!(session.own_one("child").task_id, "child");
    let child = session.task("child").unwrap();
    assert_eq!((child.num_signals, child.total_dependencies), (PARENTS, PARENTS));
    assert_eq!(session.wait("mark", "10 seconds").unwrap().unwrap().status_code, "completed");
}
