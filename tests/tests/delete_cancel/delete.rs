//! Deletion takes along every dependent that was blocked and has no dependency left, and frees those that have only
//! settled ones. A deletion that drops rows without looking leaves blocked tasks that nothing will ever free.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

fn left(session: &mut Session) -> Vec<String> {
    session.all("SELECT id FROM taskq.tasks ORDER BY id")
}

#[test]
fn one_in_progress_refuses_the_whole_call() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "held", "action": "x"}, {"id": "free", "action": "y"}]));
    let grant = session.own_one("x");
    refused(&mut session, "TQ005", "held", "SELECT taskq.delete_tasks('{free,held}')", &[]);
    session.complete(&grant);
    assert_eq!(session.delete(&["free", "held"]).unwrap(), 2);
}

#[test]
fn a_long_chain_and_a_wide_fan_go_in_one_call() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'x') || \
         CASE WHEN i > 0 THEN jsonb_build_object('depends_on', jsonb_build_array('c' || i - 1)) ELSE '{}' END) \
         FROM generate_series(0, 2999) i)); \
         SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'f' || i, 'action', 'x', \
         'depends_on', jsonb_build_array('c2999'))) FROM generate_series(1, 5000) i))",
    );
    assert_eq!(session.delete(&["c0"]).unwrap(), 8000);
    assert!(left(&mut session).is_empty());
}

#[test]
fn a_signal_that_was_deferred_is_counted_before_its_dependency_goes() {
    let (_db, [mut busy, mut session]) = Db::connected();
    let settled = |id: &str| json!({"id": id, "condition": "settled"});
    session
        .insert(json!([
            {"id": "a", "action": "x"}, {"id": "b", "action": "y"}, {"id": "c", "action": "z"},
            {"id": "last", "action": "w", "depends_on": [settled("a"), settled("b"), settled("c")]},
        ]))
        .unwrap();
    let (a, b) = (session.own_one("x"), session.own_one("y"));
    // The counter is locked while "a" aborts, so that its signal is deferred; and no call comes by to count it.
    busy.run("BEGIN");
    busy.complete(&b);
    session.give("a", a.token, "aborted").unwrap();
    busy.run("ROLLBACK");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.countdown"), 1);
    assert_eq!(session.delete(&["a"]).unwrap(), 1);
    let last = session.task("last").unwrap();
    assert_eq!((last.num_signals, last.total_dependencies, last.num_failures), (0, 2, 0));
    assert_eq!(session.broken(), [""; 0]);
    session.give("b", b.token, "completed").unwrap();
    session.perform("z", "completed");
    assert_eq!(session.own_one("w").task_id, "last");
}
