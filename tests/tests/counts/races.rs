//! A seal beside everything that removes settled tasks, or brings them back: the removal commits before the seal looks, after
//! it, or never.
//!
//! On wrong code: a correction that the seal does not take along makes the number too low, one that it takes along although
//! it has seen the rows makes it too high.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::{assert_counted, seal};

/// Each removes tasks of an action of its own, beside the others of its list; calls that guard the graph would wait for each
/// other.
const REMOVALS: [&[&str]; 3] = [
    &[
        "SELECT taskq.delete_tasks('{done0,failed0}')",
        "SELECT taskq.replace_tasks('[{\"id\": \"done1\", \"action\": \"x1\"}]')",
        "SELECT taskq.delete_group('g2')",
        "UPDATE taskq.settled SET expires_at = now() FROM taskq.task AS t WHERE t.task_no = settled.task_no AND t.id = 'done3';
         SELECT taskq.maintain()",
        // Settles and removes in one transaction: no other ever sees the row, only its correction.
        "SELECT taskq.cancel_tasks('{ready4}'); SELECT taskq.delete_tasks('{ready4}')",
    ],
    &["SAVEPOINT s; SELECT taskq.delete_tasks('{done0}'); ROLLBACK TO s; SELECT taskq.retry_tasks('{failed0}')"],
    &["SELECT taskq.reset_group('g0')"],
];

/// When the removal begins and ends, and how.
const ORDERS: [(&str, &str, &str); 5] = [
    ("before the mark", "COMMIT", "after the seal"),
    ("after the mark", "COMMIT", "before the seal"),
    ("after the mark", "COMMIT", "after the seal"),
    ("after the mark", "ROLLBACK", "after the seal"),
    ("after the seal", "COMMIT", "after the seal"),
];

#[test]
#[ignore = "long"]
fn whenever_tasks_are_removed_the_numbers_are_right() {
    for removals in REMOVALS {
        for (begins, end, ends) in ORDERS {
            let case = format!("{removals:?}, begun {begins}, {end} {ends}");
            let (db, [mut session]) = Db::connected();
            let mut open: Vec<Session> = removals.iter().map(|_| db.connect()).collect();
            for i in 0..removals.len() {
                let (action, group) = (format!("x{i}"), format!("g{i}"));
                session
                    .insert(json!([
                        {"id": format!("done{i}"), "action": action, "group_id": group},
                        {"id": format!("failed{i}"), "action": action, "group_id": group},
                        {"id": format!("ready{i}"), "action": action, "priority": -1},
                    ]))
                    .unwrap();
                session.perform(&action, "completed");
                session.perform(&action, "aborted");
            }
            let begin = |open: &mut Vec<Session>| {
                open.iter_mut()
                    .zip(removals)
                    .for_each(|(open, removal)| open.run(&format!("BEGIN; {removal}")));
            };
            if begins == "before the mark" {
                begin(&mut open);
            }
            // The next whole second, and the mark.
            session.run(
                "SELECT pg_sleep(1.001 - extract(microseconds FROM clock_timestamp())::int % 1000000 / 1e6)",
            );
            session.run("SELECT taskq.maintain()");
            if begins == "after the mark" {
                begin(&mut open);
            }
            if ends == "before the seal" {
                open.iter_mut().for_each(|open| open.run(end));
            }
            assert_counted(&mut session, &format!("{case}: before the seal"));
            for _ in 0..2 {
                session.run("SELECT taskq.maintain()");
                assert_counted(&mut session, &format!("{case}: sealed, maybe"));
            }
            if begins == "after the seal" {
                seal(&mut session);
                begin(&mut open);
                open.iter_mut().for_each(|open| {
                    assert_counted(open, &format!("{case}: the session that removes sees it"))
                });
            }
            if ends == "after the seal" {
                open.iter_mut().for_each(|open| open.run(end));
            }
            assert_counted(&mut session, &case);
            seal(&mut session);
            assert_counted(&mut session, &format!("{case}: all sealed"));
        }
    }
}
