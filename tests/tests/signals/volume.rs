//! Signals in numbers: a long chain of spontaneous tasks, an abort with many dependents, a wide fan-in. What recurses
//! per task overflows the stack here; what looks at all tasks for each does not end.

use serde_json::json;
use taskq_tests::{Db, Session};

fn count(session: &mut Session, state: &str) -> i64 {
    session.one(&format!("SELECT count(*) FROM taskq.tasks WHERE state = '{state}'"))
}

#[test]
fn a_chain_of_a_thousand_spontaneous_tasks_completes_in_one_transaction() {
    let (_db, [mut session]) = Db::connected();
    let mut tasks = vec![json!({"id": "start", "action": "x", "to_signal_after": ["s0"]})];
    for i in 0..1000 {
        let next = if i == 999 { "end".to_owned() } else { format!("s{}", i + 1) };
        tasks.push(
            json!({"id": format!("s{i}"), "action": "s", "spontaneous": true, "to_signal_after": [next]}),
        );
    }
    tasks.push(json!({"id": "end", "action": "y"}));
    session.insert(json!(tasks)).unwrap();
    assert_eq!(count(&mut session, "blocked"), 1001);
    session.perform("x", "completed");
    assert_eq!(count(&mut session, "completed"), 1001);
    assert_eq!(session.own_one("y").task_id, "end");
}

#[test]
fn an_abort_travels_down_a_chain_of_a_thousand() {
    let (_db, [mut session]) = Db::connected();
    let mut tasks = vec![json!({"id": "0", "action": "x"})];
    tasks.extend(
        (1..=1000).map(|i| json!({"id": i.to_string(), "action": "y", "depends_on": [(i - 1).to_string()]})),
    );
    tasks.push(
        json!({"id": "handler", "action": "z", "depends_on": [{"id": "1000", "condition": "aborted"}]}),
    );
    session.insert(json!(tasks)).unwrap();
    session.perform("x", "aborted");
    assert_eq!(count(&mut session, "aborted"), 1001);
    assert_eq!(session.own_one("z").num_failures, 1);
}

#[test]
fn an_abort_reaches_ten_thousand_dependents() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(t) FROM (\
         SELECT '{\"id\": \"root\", \"action\": \"x\"}'::jsonb AS t \
         UNION ALL SELECT jsonb_build_object('id', 'd' || i, 'action', 'y', 'depends_on', '[\"root\"]'::jsonb) \
         FROM generate_series(1, 10000) i \
         UNION ALL SELECT jsonb_build_object('id', 'last', 'action', 'z', 'depends_on', \
         (SELECT jsonb_agg(jsonb_build_object('id', 'd' || i, 'condition', 'settled')) \
          FROM generate_series(1, 10000) i))) AS tasks))",
    );
    assert_eq!(session.task("last").unwrap().total_dependencies, 10_000);
    session.perform("x", "aborted");
    assert_eq!(count(&mut session, "aborted"), 10_001);
    assert_eq!(session.own_one("z").num_failures, 10_000);
}

#[test]
fn a_fan_in_of_ten_thousand_is_returned_in_batches() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(t) FROM (\
         SELECT jsonb_build_object('id', 'p' || i, 'action', 'x', 'to_signal_after', '[\"child\"]'::jsonb) AS t \
         FROM generate_series(1, 10000) i \
         UNION ALL SELECT '{\"id\": \"child\", \"action\": \"y\"}') AS tasks))",
    );
    for batch in 0..10 {
        assert_eq!(session.task("child").unwrap().num_signals, batch * 1000);
        let grants = session.own("w", 1000, &["x"]).unwrap();
        let (ids, tokens): (Vec<_>, Vec<_>) =
            grants.into_iter().map(|grant| (grant.task_id, grant.token)).unzip();
        let query = "SELECT count(*) FROM taskq.return_tasks($1, $2) WHERE status_code = 'completed'";
        assert_eq!(session.query_one(query, &[&ids, &tokens]).unwrap().get::<_, i64>(0), 1000);
    }
    assert_eq!(session.own_one("y").task_id, "child");
}

#[test]
fn a_diamond_of_many_levels_is_walked_once_per_edge() {
    // 30 levels of two tasks, each after both of the level above: two to the thirtieth paths.
    let (_db, [mut session]) = Db::connected();
    let mut tasks = vec![json!({"id": "top", "action": "x"})];
    for level in 0..30 {
        let above = if level == 0 {
            vec!["top".to_owned()]
        } else {
            vec![format!("l{}", level - 1), format!("r{}", level - 1)]
        };
        for side in ["l", "r"] {
            tasks.push(json!({"id": format!("{side}{level}"), "action": "s", "spontaneous": true, "depends_on": above}));
        }
    }
    session.insert(json!(tasks)).unwrap();
    let error = session.depend_on("l29", "top").unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "TQ004");
    session.perform("x", "completed");
    assert_eq!(count(&mut session, "completed"), 61);
}
