//! Graphs of a hundred thousand tasks in one transaction: aborted, cancelled, deleted, taken back, asked about. Work per task
//! that grows with the number of tasks shows as a statement that runs into its time-out; recursion as a stack that overflows.

use taskq_tests::{Db, Session};

/// A chain of tasks `c1`, `c2`, …
fn insert_chain(session: &mut Session, length: i32, spontaneous: bool) {
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks((
            SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'x', 'spontaneous', {spontaneous} AND i > 1,
                       'depends_on', CASE i WHEN 1 THEN '[]' ELSE jsonb_build_array('c' || i - 1) END))
              FROM generate_series(1, {length}) i))"
    ));
}

/// A root, `width` tasks after it, and an end after these.
fn insert_fan(session: &mut Session, width: i32) {
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks(taskq.chain(
            '{{\"id\": \"root\", \"action\": \"root\"}}',
            (SELECT jsonb_agg(jsonb_build_object('id', 'f' || i, 'action', 'x')) FROM generate_series(1, {width}) i),
            '{{\"id\": \"end\", \"action\": \"end\"}}'))"
    ));
}

fn count(session: &mut Session, state: &str) -> i64 {
    session.one(&format!("SELECT count(*) FROM taskq.tasks WHERE state = '{state}'"))
}

#[test]
#[ignore = "long"]
fn an_abort_reaches_a_hundred_thousand_dependents_and_a_retry_brings_them_back() {
    let (_db, [mut session]) = Db::connected();
    insert_fan(&mut session, 100_000);
    session.perform("root", "aborted");
    assert_eq!(count(&mut session, "aborted"), 100_002);
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{root}')"), 100_002);
    assert_eq!(count(&mut session, "blocked"), 100_001);
    session.perform("root", "completed");
    assert_eq!(count(&mut session, "ready"), 100_000);
}

#[test]
#[ignore = "long"]
fn a_graph_of_a_hundred_thousand_is_cancelled_in_one_call_and_deleted_in_another() {
    let (_db, [mut session]) = Db::connected();
    insert_fan(&mut session, 100_000);
    let all = "(SELECT array_agg(id) FROM taskq.tasks)";
    assert_eq!(session.one::<i64>(&format!("SELECT taskq.cancel_tasks({all})")), 100_002);
    assert_eq!(count(&mut session, "aborted"), 100_002);
    assert_eq!(session.one::<i64>(&format!("SELECT taskq.delete_tasks({all})")), 100_002);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.dependencies"), 0);
}

#[test]
#[ignore = "long"]
fn deleting_the_root_deletes_all_that_was_left_without_a_dependency() {
    let (_db, [mut session]) = Db::connected();
    insert_fan(&mut session, 50_000);
    assert_eq!(session.one::<i64>("SELECT taskq.delete_tasks('{root}')"), 50_002);
    insert_chain(&mut session, 20_000, false);
    assert_eq!(session.one::<i64>("SELECT taskq.delete_tasks('{c1}')"), 20_000);
}

#[test]
fn a_chain_of_fifty_thousand_spontaneous_tasks_passes_in_one_transaction() {
    let (_db, [mut session]) = Db::connected();
    insert_chain(&mut session, 50_000, true);
    session.perform("x", "completed");
    assert_eq!(count(&mut session, "completed"), 50_000);
}

#[test]
#[ignore = "long"]
fn questions_about_a_chain_of_fifty_thousand_are_answered() {
    let (_db, [mut session]) = Db::connected();
    insert_chain(&mut session, 50_000, false);
    session.run("SET statement_timeout = '20s'");
    for (query, rows) in [
        ("SELECT max(depth)::bigint FROM taskq.ancestors('c50000')", 49_999),
        ("SELECT max(depth)::bigint FROM taskq.descendants('c1')", 49_999),
        ("SELECT count(*) FROM taskq.ancestors('c50000', max_tasks => 10)", 10),
        ("SELECT count(*) FROM taskq.why('c50000')", 2),
        (
            "SELECT count(*) FROM regexp_split_to_table(taskq.graph('c25000'), '\\n') AS line WHERE line LIKE '%blocked%'",
            500,
        ),
    ] {
        assert_eq!(session.one::<i64>(query), rows, "{query}");
    }
}
