//! Tasks whose priorities are changed while a claim looks from one priority to the next.
//!
//! A claim of an action with lanes asks priority after priority, each with a statement of its own: it meets a task at its old priority
//! and again at the new one. On wrong code it tries to grant it twice, and fails with an internal error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use taskq_tests::{Db, Session, sqlstate};

use crate::call;

const TASKS: usize = 60;
const PRIORITIES: usize = 20;

/// Goes on changing the priorities of tasks until told to stop.
fn change(session: &mut Session, stop: &AtomicBool) {
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 7;
        let (task, priority) = (turn % TASKS, turn / 3 % PRIORITIES);
        let call = format!("SELECT taskq.update_tasks('{{t{task}}}', priority => {priority})");
        if let Err(error) = session.batch_execute(&call) {
            assert_eq!(sqlstate(&error), "TQ005", "it may be in progress: {error:?}");
        }
    }
}

fn claims_beside_changes(setting: &str) {
    let (db, [mut worker]) = Db::connected();
    worker.run("SET taskq.max_tries = -1");
    call(&mut worker, &format!("set_action('x', {setting})"));
    let task = |n: usize| json!({"id": format!("t{n}"), "action": "x", "group_id": format!("g{}", n % 4), "priority": n % PRIORITIES});
    worker.insert((0..TASKS).map(task).collect::<Vec<Value>>().into()).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut session in [db.connect(), db.connect()] {
            let stop = &stop;
            scope.spawn(move || change(&mut session, stop));
        }
        let mut granted = 0;
        for _ in 0..100 {
            let grants = worker.own("w", TASKS as i32, &["x"]);
            let grants = match grants {
                Ok(grants) => grants,
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    panic!("{error:?}");
                }
            };
            granted += grants.len();
            let (ids, tokens): (Vec<String>, Vec<_>) =
                grants.into_iter().map(|g| (g.task_id, g.token)).unzip();
            worker
                .query("SELECT taskq.return_tasks($1, $2, 'pending', retry_after => '0')", &[&ids, &tokens])
                .unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(granted > 0);
    });
    assert_eq!(worker.own("w", TASKS as i32, &["x"]).unwrap().len(), TASKS);
}

#[test]
#[ignore = "long"]
fn a_fair_action() {
    claims_beside_changes("fair => true");
}

#[test]
#[ignore = "long"]
fn an_action_with_limits_per_group() {
    claims_beside_changes("max_per_group => 1000");
}

#[test]
fn an_action_with_a_limit() {
    claims_beside_changes("max_concurrency => 1000");
}
