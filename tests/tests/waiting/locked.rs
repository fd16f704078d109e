//! Calls pass over a ready task that another transaction has locked, and sleep if there is nothing else. The end of that
//! transaction wakes them, however it ends, if the task is still there.

use taskq_tests::Db;

use crate::sleeper::{Sleeper, WORK, Way};

/// Both ways to wait.
const BOTH: &[Way] = &WORK;

/// What is done to ready task a and stays open, how it ends, and who passes the task over meanwhile.
const CASES: &[(&str, &str, &[Way])] = &[
    ("SELECT taskq.add_dependencies('{p}', '{a}')", "COMMIT", BOTH),
    ("SELECT taskq.add_dependencies('{p}', '{a}')", "ROLLBACK", BOTH),
    ("SELECT taskq.cancel_tasks('{a}')", "ROLLBACK", BOTH),
    ("SAVEPOINT s; SELECT taskq.cancel_tasks('{a}')", "ROLLBACK TO SAVEPOINT s", BOTH),
    ("SAVEPOINT s; SELECT taskq.cancel_tasks('{a}')", "ROLLBACK", BOTH),
    ("SAVEPOINT s; SELECT taskq.cancel_tasks('{a}'); RELEASE SAVEPOINT s", "ROLLBACK", BOTH),
    (
        "SAVEPOINT s; SELECT taskq.cancel_tasks('{a}'); RELEASE SAVEPOINT s; SAVEPOINT s; ROLLBACK TO SAVEPOINT s",
        "ROLLBACK",
        BOTH,
    ),
    ("SELECT taskq.delete_tasks('{a}')", "ROLLBACK", BOTH),
    ("SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"y\"}]')", "ROLLBACK", BOTH),
    ("SELECT taskq.complete_task('a')", "ROLLBACK", BOTH),
];

#[test]
fn the_end_of_a_transaction_that_had_locked_a_ready_task_wakes() {
    let db = Db::new();
    for (change, end, ways) in CASES {
        for way in *ways {
            db.clear();
            let (mut session, mut watcher) = (db.connect(), db.connect());
            session.run("SELECT taskq.insert_task('p', 'y'), taskq.insert_task('a', 'x'); SELECT taskq.complete_task('p')");
            session.run("BEGIN");
            session.run(change);
            let sleeper = Sleeper::start(&db, &mut watcher, *way);
            session.run(end);
            drop(sleeper.woken_by(&format!("{change}, {end}")));
            session.run("ROLLBACK");
        }
    }
}
