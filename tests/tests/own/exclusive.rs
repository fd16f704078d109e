//! Two actors never hold the same task: many connections take from one heap, and each task is taken exactly once.

use std::collections::HashMap;

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
fn eight_connections_own_two_thousand_tasks_each_exactly_once() {
    let db = Db::new();
    let mut session = db.connect();
    insert_tasks(&mut session, 2000);
    let workers: Vec<_> = (0..8i32)
        .map(|worker| {
            db.connect().background(move |session| {
                let mut taken = Vec::new();
                let actor = format!("actor {worker}");
                loop {
                    let grants = session.own(&actor, 1 + worker, ACTIONS).unwrap();
                    if grants.is_empty() {
                        break;
                    }
                    taken.extend(grants);
                }
                taken
            })
        })
        .collect();
    let mut owners: HashMap<String, usize> = HashMap::new();
    for worker in workers {
        for grant in worker.join().1 {
            assert_eq!(grant.num_tries, 1, "{}", grant.task_id);
            *owners.entry(grant.task_id).or_default() += 1;
        }
    }
    // No claim waits for an open grant, so the very last calls may come up short; what is left is still there.
    for grant in session.own("last", 2000, ACTIONS).unwrap() {
        *owners.entry(grant.task_id).or_default() += 1;
    }
    assert_eq!(owners.len(), 2000);
    assert!(owners.values().all(|times| *times == 1));
}

#[test]
fn rollbacks_between_lose_no_task_and_double_none() {
    let db = Db::new();
    let mut session = db.connect();
    insert_tasks(&mut session, 1000);
    let workers: Vec<_> = (0..6)
        .map(|worker| {
            db.connect().background(move |session| {
                let mut taken = Vec::new();
                let mut idle = 0;
                let mut round = worker;
                while idle < 5 {
                    round += 1;
                    session.run("BEGIN");
                    let grants = session.own("w", 7, ACTIONS).unwrap();
                    let give_up = round % 3 == 0;
                    session.run(if give_up { "ROLLBACK" } else { "COMMIT" });
                    idle = if grants.is_empty() { idle + 1 } else { 0 };
                    if !give_up {
                        taken.extend(grants);
                    }
                }
                taken
            })
        })
        .collect();
    let mut all: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().1).collect();
    all.extend(session.own("last", 1000, ACTIONS).unwrap());
    assert!(all.iter().all(|grant| grant.num_tries == 1));
    let mut ids: Vec<_> = all.into_iter().map(|grant| grant.task_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1000);
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
