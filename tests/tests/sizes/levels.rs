//! A chain has as many levels as tasks, and what ends or goes with its first task does so level by level. What is done for each
//! level may not pass all that was done for those before.
//!
//! On wrong code: the tally of a group is folded, or the row of a merge key tidied away, once for each level, each time past all
//! that this has left before.

use taskq_tests::Db;

use crate::stale::pages;

/// The pages that a call reads which ends or removes a chain of so many tasks, all of which have this in common.
fn read_by(call: &str, common: &str, levels: usize) -> i64 {
    let db = Db::new();
    let mut session = db.connect();
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || n, 'action', 'x',
                    'depends_on', CASE n WHEN 1 THEN '[]' ELSE jsonb_build_array('c' || n - 1) END) || '{common}')
           FROM generate_series(1, {levels}) AS n))"
    ));
    session.run("ANALYZE");
    let read = pages(&mut session, &format!("SELECT taskq.{call}")).unwrap();
    let left: i64 =
        session.one("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
    assert_eq!(left, 0);
    if call.starts_with("delete") {
        for table in ["task", "merge_key", "unique_key", "group_tally", "dependency"] {
            assert_eq!(session.one::<i64>(&format!("SELECT count(*) FROM taskq.{table}")), 0, "{table}");
        }
    }
    read
}

#[test]
fn a_level_more_costs_what_the_ones_before_did() {
    for call in ["delete_tasks('{c1}')", "cancel_tasks('{c1}')"] {
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
