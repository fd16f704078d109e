//! What is going on when the power goes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use taskq_tests::{Cluster, Session, until};
use uuid::Uuid;

fn snapshot(session: &mut Session) -> Vec<String> {
    ["tasks", "dependencies", "actors"]
        .iter()
        .flat_map(|view| {
            session.all::<String>(&format!("SELECT to_jsonb(v)::text FROM taskq.{view} v ORDER BY 1"))
        })
        .collect()
}

#[test]
fn committed_states_survive_and_open_transactions_are_gone() {
    let cluster = Cluster::start(env!("CARGO_TARGET_TMPDIR"), "crash-states", &[]);
    let mut session = cluster.connect();
    let tasks = json!([
        {"id": "done", "action": "d"}, {"id": "failed", "action": "d"},
        {"id": "held", "action": "h"}, {"id": "held too", "action": "h"}, {"id": "ready", "action": "x"},
        {"id": "scheduled", "action": "x", "delay": "1 day"}, {"id": "blocked", "action": "x", "depends_on": ["held"]},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": ["blocked", "held too"]},
        {"id": "back", "action": "b"},
    ]);
    session.insert(tasks).unwrap();
    session.perform("d", "completed");
    session.perform("d", "aborted");
    session.perform("b", "pending");
    let held = session.own("w", 2, &["h"]).unwrap();
    let before = snapshot(&mut session);
    let (mut inserting, mut granting, mut returning) =
        (cluster.connect(), cluster.connect(), cluster.connect());
    inserting.run("BEGIN");
    inserting.insert(json!([{"id": "never", "action": "x", "to_signal_after": ["ready"]}])).unwrap();
    granting.run("BEGIN");
    granting.own_one("b");
    returning.run("BEGIN");
    returning.complete(&held[0]);

    cluster.crash();

    let mut session = cluster.connect();
    assert_eq!(snapshot(&mut session), before);
    assert_eq!(session.broken(), [""; 0]);
    session.complete(&held[0]);
    session.complete(&held[1]);
    session.insert(json!([{"id": "after", "action": "x"}])).unwrap();
    let order: Vec<String> =
        session.own("w", 9, &["x"]).unwrap().into_iter().map(|grant| grant.task_id).collect();
    assert_eq!(order, ["ready", "blocked", "after"], "positions go on where they were");
    assert_eq!(session.own_one("b").num_tries, 2);
    assert_eq!(session.broken(), [""; 0]);
}

/// What the workers were told before the power went.
#[derive(Default)]
struct Told {
    granted: Mutex<HashMap<String, Uuid>>,
    completed: Mutex<Vec<String>>,
}

#[test]
fn grants_and_acknowledged_returns_still_hold_after_the_crash() {
    const TASKS: usize = 3000;
    let cluster = Cluster::start(env!("CARGO_TARGET_TMPDIR"), "crash-workers", &[]);
    let mut session = cluster.connect();
    let tasks = (0..TASKS).map(|i| {
        let after: Vec<String> =
            if i < 50 { Vec::new() } else { vec![(i - 50).to_string(), (i - 7).to_string()] };
        json!({"id": i.to_string(), "action": "x", "depends_on": after})
    });
    session.insert(tasks.collect()).unwrap();
    let told = Arc::new(Told::default());
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let told = Arc::clone(&told);
            cluster.connect().background(move |session| {
                while let Ok(grants) = session.own_with("w", 3, &["x"], "wait => '1 second'") {
                    for grant in &grants {
                        told.granted.lock().unwrap().insert(grant.task_id.clone(), grant.token);
                    }
                    for grant in grants {
                        match session.give(&grant.task_id, grant.token, "completed") {
                            Ok(_) => told.completed.lock().unwrap().push(grant.task_id),
                            // The connection is gone; whether the commit came through is unknown.
                            Err(_) => return,
                        }
                    }
                }
            })
        })
        .collect();
    until("the work is well under way", || (told.completed.lock().unwrap().len() > 300).then_some(()));
    cluster.kill();
    for worker in workers {
        worker.join();
    }
    cluster.restart();

    let mut session = cluster.connect();
    assert_eq!(session.broken(), [""; 0]);
    let completed = told.completed.lock().unwrap();
    let kept: i64 = session
        .query_one(
            "SELECT count(*) FROM taskq.tasks WHERE id = ANY ($1) AND state = 'completed'",
            &[&*completed],
        )
        .unwrap()
        .get(0);
    assert_eq!(kept as usize, completed.len(), "no acknowledged completion is lost");
    // A worker that held a task holds it still, and can return it.
    let held: Vec<String> = session.all("SELECT id FROM taskq.tasks WHERE state = 'in-progress'");
    let granted = told.granted.lock().unwrap();
    for id in &held {
        match granted.get(id) {
            Some(token) => drop(session.give(id, *token, "completed").unwrap()),
            // The grant was committed, but the answer never arrived: its lease has no end here.
            None => drop(session.cancel(&[id]).unwrap()),
        }
    }
    loop {
        let grants = session.own("w", 100, &["x"]).unwrap();
        if grants.is_empty() {
            break;
        }
        for grant in &grants {
            session.complete(grant);
        }
    }
    let open: i64 =
        session.one("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
    assert_eq!(open, 0);
    assert_eq!(session.broken(), [""; 0]);
}
