//! Bulk: 100,000 tasks with dependencies in one call. A per-row cost that grows with the number of rows shows as a
//! test that does not end.

use serde_json::json;
use taskq_tests::Db;

#[test]
#[ignore = "long"]
fn a_hundred_thousand_tasks_with_dependencies_go_in_at_once() {
    let (_db, [mut session]) = Db::connected();
    // 99,000 parts; each hundred signals a shard, all shards signal the end. Parts and shards are mixed in the array.
    let inserted: i64 = session.one(
        "SELECT count(*) FROM taskq.insert_tasks((\
           SELECT jsonb_agg(t) FROM (\
             SELECT jsonb_build_object('id', 'part' || i, 'action', 'part', 'body', repeat('x', 100), \
                                       'to_signal_after', jsonb_build_array('shard' || i / 100)) AS t \
             FROM generate_series(0, 98999) i \
             UNION ALL \
             SELECT jsonb_build_object('id', 'shard' || i, 'action', 'shard', 'spontaneous', true, \
                                       'to_signal_after', jsonb_build_array('end')) \
             FROM generate_series(0, 989) i \
             UNION ALL \
             SELECT jsonb_build_object('id', 'end', 'action', 'end')) AS tasks))",
    );
    assert_eq!(inserted, 99_991);
    let counted: Vec<String> = session.all(
        "SELECT concat_ws(' ', action, state, count) FROM taskq.count_tasks() WHERE count > 0 ORDER BY action",
    );
    assert_eq!(counted, ["end blocked 1", "part ready 99000", "shard blocked 990"]);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.dependencies"), 99_990);
    let mut owned = 0;
    loop {
        let grants = session.own("w", 5000, &["part"]).unwrap();
        if grants.is_empty() {
            break;
        }
        owned += grants.len();
        let (ids, tokens): (Vec<_>, Vec<_>) = grants.into_iter().map(|g| (g.task_id, g.token)).unzip();
        let failed: i64 = session
            .query_one("SELECT count(sqlstate) FROM taskq.return_tasks($1, $2)", &[&ids, &tokens])
            .unwrap()
            .get(0);
        assert_eq!(failed, 0);
    }
    assert_eq!(owned, 99_000);
    assert_eq!(session.perform("end", "completed"), "end");
}

#[test]
#[ignore = "long"]
fn a_long_chain_in_one_call_is_no_problem_of_depth() {
    let (_db, [mut session]) = Db::connected();
    // Recursion along the chain, in the check for cycles for instance, would overflow the stack.
    let inserted: i64 = session.one(
        "SELECT count(*) FROM taskq.insert_tasks((\
           SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'x') || \
                  CASE WHEN i > 0 THEN jsonb_build_object('depends_on', jsonb_build_array('c' || i - 1)) ELSE '{}' END) \
           FROM generate_series(0, 49999) i))",
    );
    assert_eq!(inserted, 50_000);
    assert_eq!(
        session.depend(json!([{"after": "c49999", "run": "c0"}])).unwrap_err().code().unwrap().code(),
        "TQ004"
    );
    assert_eq!(session.cancel(&["c0"]).unwrap(), 1);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'aborted'"), 50_000);
}
