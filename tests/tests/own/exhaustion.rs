//! A task whose last allowed try ends with the deadline is aborted by the queue itself, at the next `own_tasks` of any
//! worker, whatever actions that lists, and its dependents hear of it. Without this, a task whose last worker died
//! stays in progress for ever, and all that waits for it as well.

use serde_json::json;
use taskq_tests::{Db, Session};

/// A task that its only try has lost, and its dependents.
fn with_a_dead_last_try(db: &Db) -> (Session, taskq_tests::Grant) {
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let tasks = json!([
        {"id": "doomed", "action": "x", "max_tries": 1, "lease": "1 minute"},
        {"id": "heir", "action": "y", "depends_on": ["doomed"]},
        {"id": "grandheir", "action": "y", "depends_on": ["heir"]},
        {"id": "handler", "action": "z", "depends_on": [{"id": "doomed", "condition": "aborted"}]},
        {"id": "cleanup", "action": "z", "depends_on": [{"id": "doomed", "condition": "settled"}]},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": [{"id": "grandheir", "condition": "settled"}]},
    ]);
    session.insert(tasks).unwrap();
    let grant = session.own_one("x");
    session.set_now(Some("2030-01-01 00:02:00Z"));
    (session, grant)
}

#[test]
fn the_next_claim_of_any_worker_aborts_it_and_dependents_hear_of_it() {
    let db = Db::new();
    for actions in [&["x"][..], &["unrelated"], &[]] {
        db.clear();
        let (mut session, _) = with_a_dead_last_try(&db);
        assert!(session.own("other", 5, actions).unwrap().is_empty(), "{actions:?}");
        let task = session.task("doomed").unwrap();
        assert_eq!((task.state.as_str(), task.num_tries), ("aborted", 1), "{actions:?}");
        assert!(task.status.is_some_and(|status| !status.is_empty()), "the status says why");
        let states = ["heir", "grandheir", "handler", "cleanup", "mark"].map(|id| session.state(id));
        assert_eq!(states, ["aborted", "aborted", "ready", "ready", "completed"], "{actions:?}");
    }
}

#[test]
fn maintain_aborts_it_in_quiet_times() {
    let db = Db::new();
    let (mut session, _) = with_a_dead_last_try(&db);
    session.query("SELECT taskq.maintain()", &[]).unwrap();
    assert_eq!(["doomed", "heir"].map(|id| session.state(id)), ["aborted", "aborted"]);
}

#[test]
fn thousands_of_dead_tries_are_all_found_and_work_goes_on() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', i::text, 'action', 'x', \
         'max_tries', 1 + i % 2)) FROM generate_series(1, 4000) i))",
    );
    for _ in 0..40 {
        session.own_with("w", 100, &["x"], "lease => '1 minute'").unwrap();
    }
    session.set_now(Some("2030-01-01 00:02:00Z"));
    // The work per call may be bounded; the second tries come back, the others end.
    let mut again = 0;
    for _ in 0..200 {
        again += session.own("w", 100, &["x"]).unwrap().len();
    }
    assert_eq!(again, 2000);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'aborted'"), 2000);
}
