//! A call that is granted all it asks for does not look for what is due each time; one that is granted less does.
//!
//! Why: what is due must not stay hidden from a worker that asks for it because another call has looked a moment
//! before, and what comes before everything else must not wait behind a backlog. On wrong code a call that could have a
//! task that is due comes back without it, or a task of the highest priority is granted when the backlog is at its end.

use std::thread::sleep;
use std::time::Duration;

use serde_json::json;
use taskq_tests::{Db, Session};

fn backlog(session: &mut Session, of: usize) {
    let tasks: Vec<_> = (0..of).map(|i| json!({"id": format!("t{i}"), "action": "x"})).collect();
    session.insert(json!(tasks)).unwrap();
}

#[test]
#[ignore = "long"]
fn a_call_that_is_granted_less_has_looked() {
    let (db, [mut worker, mut other]) = Db::connected();
    for round in 0..100 {
        backlog(&mut other, 2);
        // It looks, and finds nothing due.
        assert_eq!(worker.own("w", 1, &["x"]).unwrap().len(), 1);
        let due = json!([{"id": format!("due{round}"), "action": "x", "delay": "0.001 seconds"}]);
        other.insert(due).unwrap();
        sleep(Duration::from_millis(2));
        assert_eq!(worker.own("w", 3, &["x"]).unwrap().len(), 2, "round {round}");
        db.clear();
    }
}

#[test]
#[ignore = "long"]
fn nor_is_a_deadline_hidden() {
    let (db, [mut worker, mut other]) = Db::connected();
    for round in 0..100 {
        backlog(&mut other, 2);
        assert_eq!(worker.own("w", 1, &["x"]).unwrap().len(), 1);
        let lost = other.own_with("o", 1, &["x"], "lease => '0'").unwrap().remove(0);
        let again = worker.own("w", 1, &["x"]).unwrap();
        assert_eq!(again.iter().map(|g| &g.task_id).collect::<Vec<_>>(), [&lost.task_id], "round {round}");
        db.clear();
    }
}

/// What comes first is granted first, whatever is ready, a moment after it is due.
#[test]
fn a_backlog_hides_nothing_for_long() {
    let (db, [mut worker, mut other]) = Db::connected();
    for single in [true, false] {
        backlog(&mut other, 5_000);
        let call = |worker: &mut Session| -> String {
            match single {
                true => worker.own("w", 1, &["x"]).unwrap().remove(0).task_id,
                false => worker.one("SELECT task_id FROM taskq.return_and_own_tasks('w', '[]', 1, '{x}')"),
            }
        };
        call(&mut worker);
        other
            .insert(json!([{"id": "first", "action": "x", "priority": 9, "delay": "0.001 seconds"}]))
            .unwrap();
        let calls = (0..4_000).take_while(|_| call(&mut worker) != "first").count();
        assert!(calls < 4_000, "it was not granted before the backlog");
        db.clear();
    }
}
