//! A call with very many tasks takes time that grows with them, and not with their square.
//!
//! Why: what a worker fetched with one call it may well extend and return with one. On wrong code forty thousand take
//! minutes, and hold all rows meanwhile; here they take seconds, of which a limit allows a multiple.

use taskq_tests::Db;

const TASKS: i32 = 40_000;

#[test]
fn what_was_fetched_with_one_call_is_extended_and_returned_with_one() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET statement_timeout = '60s'");
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg('{{\"action\": \"x\"}}'::jsonb) FROM generate_series(1, {TASKS})))"
    ));
    session.run(&format!(
        "CREATE TEMPORARY TABLE held AS SELECT task_id, token FROM taskq.own_tasks('w', {TASKS}, '{{x}}', '1 hour')"
    ));
    let arrays = "(SELECT array_agg(task_id) FROM held), (SELECT array_agg(token) FROM held)";
    let extended: i64 = session.one(&format!(
        "SELECT count(*) FILTER (WHERE owned) FROM taskq.extend_tasks_ownership('w', {arrays}, '1 second')"
    ));
    assert_eq!(extended, i64::from(TASKS));
    // All deadlines have passed, and some of the tasks are back in the queue.
    std::thread::sleep(std::time::Duration::from_secs(2));
    session.run("SELECT count(*) FROM taskq.own_tasks('w', 0, '{x}')");
    let late: i64 = session.one(&format!(
        "SELECT count(*) FILTER (WHERE owned) FROM taskq.extend_tasks_ownership('w', {arrays}, '1 hour')"
    ));
    assert_eq!(late, i64::from(TASKS), "no other worker has them");
    let returned: i64 = session
        .one(&format!("SELECT count(*) FILTER (WHERE status_code = 'completed' AND sqlstate IS NULL) FROM taskq.return_tasks({arrays})"));
    assert_eq!(returned, i64::from(TASKS));
}
