//! A chain has as many levels as tasks, and what ends or goes with its first task does so level by level. What is done for each
//! level may not pass all that was done for those before.
//!
//! On wrong code: the tally of a group is folded, or the row of a merge key tidied away, once for each level, each time past all
//! that this has left before. Or all tables are asked once more for each level: that is linear as well, and ten times as slow as
//! what goes with all levels at once.

use taskq_tests::Db;

use crate::stale::pages;

/// The pages that a call reads which ends or removes a chain of so many tasks, all of which have this in common.
fn read_by(call: &str, common: &str, levels: usize) -> i64 {
    let (_db, [mut session]) = Db::connected();
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || n, 'action', 'x',
                    'depends_on', CASE n WHEN 1 THEN '[]' ELSE jsonb_build_array('c' || n - 1) END) || '{common}')
           FROM generate_series(1, {levels}) AS n))"
    ));
    let retries = call.starts_with("retry");
    if retries {
        session.run("SELECT taskq.cancel_tasks('{c1}')");
    }
    session.run("ANALYZE");
    let read = pages(&mut session, &format!("SELECT taskq.{call}")).unwrap();
    let left: i64 =
        session.one("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
    assert_eq!(left, if retries { levels as i64 } else { 0 });
    if call.starts_with("delete") {
        for table in ["task", "merge_key", "unique_key", "group_tally", "dependency"] {
            assert_eq!(session.one::<i64>(&format!("SELECT count(*) FROM taskq.{table}")), 0, "{table}");
        }
    }
    read
}

#[test]
#[ignore = "long"]
fn a_level_more_costs_what_the_ones_before_did() {
    for call in ["delete_tasks('{c1}')", "cancel_tasks('{c1}')", "retry_tasks('{c1}')"] {
        for common in
            [r#"{"group_id": "g"}"#, r#"{"merge_key": "k"}"#, r#"{"group_id": "g", "merge_key": "k"}"#]
        {
            let (few, many) = (read_by(call, common, 1_000), read_by(call, common, 8_000));
            assert!(
                many < 12 * few,
                "{call} of tasks with {common}: {few} pages for 1,000, {many} for 8,000"
            );
        }
    }
}

/// How many commands a call has made that changed or locked something: what is stored after it in the same transaction has the
/// number of its command.
fn commands_of(call: &str, prepare: &str, levels: usize) -> i64 {
    let (_db, [mut session]) = Db::connected();
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || n, 'action', 'x',
                    'depends_on', CASE n WHEN 1 THEN '[]' ELSE jsonb_build_array('c' || n - 1) END))
           FROM generate_series(1, {levels}) AS n));
         {prepare}"
    ));
    session.run("BEGIN");
    let number: i64 = session.one(&format!("SELECT taskq.{call}"));
    assert_eq!(number, levels as i64);
    session.run("SELECT taskq.insert_task('after', 'x')");
    let commands: i64 = session.one("SELECT cmin::text::bigint FROM taskq.task WHERE id = 'after'");
    session.run("COMMIT");
    commands
}

/// Levels are gone through together as far as they are seen. On wrong code each has a round of statements of its own.
#[test]
fn a_chain_is_gone_through_in_a_few_rounds() {
    for (call, prepare) in
        [("delete_tasks('{c1}')", ""), ("retry_tasks('{c1}')", "SELECT taskq.cancel_tasks('{c1}')")]
    {
        let (few, many) = (commands_of(call, prepare, 500), commands_of(call, prepare, 4_000));
        assert!(many < 2 * few && many < 200, "{call}: {many} commands for a chain of 4,000, {few} for 500");
    }
}
