//! Large fan-ins: the results of 10,000 dependencies in one grant, complete and in order; and results that are too large
//! together for one `jsonb` must not make the task, or the other tasks of its action, impossible to own.

use taskq_tests::Db;

#[test]
fn a_fan_in_of_ten_thousand_is_handed_over_complete_and_in_order() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks(taskq.chord(
            (SELECT jsonb_agg(jsonb_build_object('id', 'part ' || i, 'action', 'part', 'body', i)) FROM generate_series(1, 10000) i),
            '{\"id\": \"sum\", \"action\": \"sum\"}'))",
    );
    // Returned in parts, each in its own way, the last inserted first.
    session.run(
        "DO $$
         DECLARE returns jsonb;
         BEGIN
             CREATE TEMPORARY TABLE held AS SELECT * FROM taskq.own_tasks('w', 10000, '{part}');
             FOR n IN REVERSE 9..0 LOOP
                 SELECT jsonb_agg(jsonb_build_object('task_id', task_id, 'token', token, 'result', body::integer) ORDER BY body::integer DESC)
                   INTO returns FROM held WHERE body::integer / 1000 = n OR (n = 9 AND body = '10000');
                 PERFORM * FROM taskq.return_tasks(returns);
             END LOOP;
         END
         $$",
    );
    let row = session
        .query_one(
            "SELECT jsonb_array_length(results), ordered.ok
               FROM taskq.own_tasks('w', 1, '{sum}', with_results => true),
                    LATERAL (SELECT bool_and((r ->> 'result')::bigint = n AND r ->> 'task_id' = 'part ' || n) AS ok
                               FROM jsonb_array_elements(results) WITH ORDINALITY AS e(r, n)) AS ordered",
            &[],
        )
        .unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, bool>(1)), (10_000, true));
    let same: bool = session.one(
        "SELECT bool_and((result)::bigint = n AND task_id = 'part ' || n) AND count(*) = 10000
           FROM (SELECT r.*, row_number() OVER () AS n FROM taskq.dependency_results('sum') AS r) AS numbered",
    );
    assert!(same);
}

#[test]
#[ignore = "long"]
fn results_too_large_together_neither_lock_the_task_out_nor_its_action() {
    let (_db, [mut session]) = Db::connected();
    // Eleven of 25 MB: jsonb holds 255 MB.
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks(taskq.parallel(
            taskq.chord((SELECT jsonb_agg(jsonb_build_object('id', 'p' || i, 'action', 'p')) FROM generate_series(1, 11) i),
                        '{\"id\": \"large\", \"action\": \"sum\", \"priority\": 1}'),
            taskq.chord('{\"id\": \"q\", \"action\": \"q\"}', '{\"id\": \"small\", \"action\": \"sum\"}')));
         SELECT count(*) FROM taskq.own_tasks('w', 11, '{p}') AS o,
                              taskq.return_task(o.task_id, o.token, result => to_jsonb(repeat('x', 25000000)));
         SELECT taskq.return_task(task_id, token, result => '7') FROM taskq.own_tasks('w', 1, '{q}')",
    );
    let rows = session
        .query("SELECT task_id, results FROM taskq.own_tasks('w', 2, '{sum}', with_results => true)", &[])
        .expect("a grant, though the results do not fit");
    let granted: Vec<(String, bool)> =
        rows.iter().map(|row| (row.get(0), row.get::<_, Option<serde_json::Value>>(1).is_some())).collect();
    assert_eq!(granted, [("large".to_owned(), false), ("small".to_owned(), true)]);
    // One by one they can be read.
    let lengths: i64 =
        session.one("SELECT sum(length(result #>> '{}')) FROM taskq.dependency_results('large')");
    assert_eq!(lengths, 11 * 25_000_000);
}
