//! Parents that share children, returned at once in opposite orders: the classic deadlock of queues with counters.

use serde_json::{Value, json};
use taskq_tests::{Db, Grant};

#[test]
fn two_parents_of_two_children_returned_at_once_never_deadlock() {
    let db = Db::new();
    let mut session = db.connect();
    const ROUNDS: usize = 150;
    let mut tasks = Vec::new();
    for round in 0..ROUNDS {
        // The edges are written in opposite orders, and the children are inserted in both.
        let (c, d) = (format!("c{round}"), format!("d{round}"));
        tasks.push(json!({"id": format!("p{round}"), "action": "p", "to_signal_after": [c, d]}));
        tasks.push(json!({"id": format!("q{round}"), "action": "q", "to_signal_after": [d, c]}));
        let children = if round % 2 == 0 { [c, d] } else { [d, c] };
        tasks.extend(children.iter().map(|id| json!({"id": id, "action": "child"})));
    }
    session.insert(Value::Array(tasks)).unwrap();
    let workers: Vec<_> = ["p", "q"]
        .map(|action| {
            let held = session.own("w", ROUNDS as i32, &[action]).unwrap();
            db.connect().background(move |session| {
                for grant in &held {
                    session.give(&grant.task_id, grant.token, "completed").expect("no deadlock");
                }
            })
        })
        .into();
    for worker in workers {
        worker.join();
    }
    assert_eq!(session.own("w", 1000, &["child"]).unwrap().len(), 2 * ROUNDS);
}

#[test]
fn batches_in_opposite_orders_never_deadlock() {
    let db = Db::new();
    let mut session = db.connect();
    const CHILDREN: usize = 40;
    const WORKERS: usize = 4;
    let children: Vec<String> = (0..CHILDREN).map(|i| format!("c{i}")).collect();
    let mut tasks: Vec<Value> = children.iter().map(|id| json!({"id": id, "action": "child"})).collect();
    for worker in 0..WORKERS {
        for i in 0..CHILDREN {
            let signals = [&children[i], &children[(i * 7 + worker) % CHILDREN]];
            let (id, action) = (format!("p{worker}-{i}"), format!("p{worker}"));
            tasks.push(json!({"id": id, "action": action, "to_signal_after": signals}));
        }
    }
    session.insert(Value::Array(tasks)).unwrap();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let mut held = session.own("w", CHILDREN as i32, &[&format!("p{worker}")]).unwrap();
            if worker % 2 == 1 {
                held.reverse();
            }
            db.connect().background(move |session| {
                for batch in held.chunks(8) {
                    let (ids, tokens): (Vec<_>, Vec<_>) =
                        batch.iter().map(|g| (g.task_id.as_str(), g.token)).unzip();
                    let query = "SELECT count(sqlstate) FROM taskq.return_tasks($1, $2)";
                    let failed: i64 = session.query_one(query, &[&ids, &tokens]).expect("no deadlock").get(0);
                    assert_eq!(failed, 0);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join();
    }
    assert_eq!(session.own("w", 1000, &["child"]).unwrap().len(), CHILDREN);
}

#[test]
fn transactions_that_return_in_opposite_orders_do_not_deadlock() {
    // No return waits for a hot child: the order in which a caller's transaction settles its tasks is the caller's own.
    let db = Db::new();
    let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
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
    let db = Db::new();
    let mut session = db.connect();
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
