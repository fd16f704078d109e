//! Two actors never hold the same task: many connections take from one heap, and each task is taken exactly once.

use std::collections::HashSet;

use serde_json::json;
use taskq_tests::{Db, Session};

fn insert_tasks(session: &mut Session, count: i32) {
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', i::text, \
         'action', 'act' || i % 3, 'priority', i % 2)) FROM generate_series(1, {count}) i))"
    ));
}

const ACTIONS: &[&str] = &["act0", "act1", "act2"];

#[test]
fn eight_connections_own_two_thousand_tasks_each_exactly_once_also_beside_rollbacks() {
    let (db, [mut session]) = Db::connected();
    insert_tasks(&mut session, 2000);
    let workers: Vec<_> = (0..8i32)
        .map(|worker| {
            db.connect().background(move |session| {
                let (mut taken, mut idle) = (Vec::new(), 0);
                for round in 0.. {
                    session.run("BEGIN");
                    let grants = session.own("w", 1 + worker, ACTIONS).unwrap();
                    idle = if grants.is_empty() { idle + 1 } else { 0 };
                    let undone = (round + worker) % 3 == 0;
                    session.run(if undone { "ROLLBACK" } else { "COMMIT" });
                    if !undone {
                        taken.extend(grants);
                    }
                    if idle == 5 {
                        break;
                    }
                }
                taken
            })
        })
        .collect();
    let mut all: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().1).collect();
    // No claim waits for an open grant, so the very last calls may come up short; what is left is still there.
    all.extend(session.own("last", 2000, ACTIONS).unwrap());
    assert!(all.iter().all(|grant| grant.num_tries == 1));
    let ids: HashSet<&String> = all.iter().map(|grant| &grant.task_id).collect();
    assert_eq!((ids.len(), all.len()), (2000, 2000));
}

#[test]
fn inserts_and_takeovers_meanwhile_lose_nothing() {
    // Inserters with transactions of different length: an entry that becomes visible late must still be found.
    let db = Db::new();
    let inserters: Vec<_> = (0..3)
        .map(|inserter| {
            db.connect().background(move |session| {
                for round in 0..40 {
                    session.run("BEGIN");
                    for part in 0..5 {
                        let id = format!("{inserter}-{round}-{part}");
                        session.insert(json!([{"id": id, "action": "act0", "priority": part % 2}])).unwrap();
                    }
                    session.run(if round % 4 == 3 { "ROLLBACK" } else { "COMMIT" });
                }
            })
        })
        .collect();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            db.connect().background(move |session| {
                let mut settled = 0;
                let mut idle = 0;
                while idle < 100 {
                    let grants = session.own_with("w", 3, &["act0"], "wait => '20 milliseconds'").unwrap();
                    idle = if grants.is_empty() { idle + 1 } else { 0 };
                    for grant in grants {
                        session.complete(&grant);
                        settled += 1;
                    }
                    if settled + idle > 450 {
                        break;
                    }
                }
                settled
            })
        })
        .collect();
    for inserter in inserters {
        inserter.join();
    }
    let settled: i32 = workers.into_iter().map(|worker| worker.join().1).sum();
    let mut session = db.connect();
    let left = session.own("last", 1000, &["act0"]).unwrap().len();
    assert_eq!(settled as usize + left, 3 * 30 * 5);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'ready'"), 0);
}
