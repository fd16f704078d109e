//! `pg_stat_activity` tells of a sleeping backend what it waits for: the names of ours from PostgreSQL 17 on, and the one name of
//! all extensions before.
//!
//! On wrong code: a sleep that counts as running, or under another's name.

use taskq_tests::Db;

/// What each call shows while it sleeps.
const SHOWN: [(&str, &str); 4] = [
    ("SELECT task_id FROM taskq.own_tasks('w', 1, '{x}', wait => '60 s')", "TaskqWaitForWork"),
    ("CALL taskq.wait_for_work('{x}', '60 s', NULL)", "TaskqWaitForWork"),
    ("SELECT status_code FROM taskq.wait_for_task('a', '60 s')", "TaskqWaitForTasks"),
    ("CALL taskq.wait_for_tasks('{a}', '60 s', NULL)", "TaskqWaitForTasks"),
];

#[test]
fn a_sleeping_backend_says_what_it_waits_for() {
    let (db, [mut watcher]) = Db::connected();
    let version: i32 = watcher.one("SELECT current_setting('server_version_num')::int");
    watcher.run("SELECT taskq.insert_task('a', 'y')");
    for (call, name) in SHOWN {
        let name = if version >= 170_000 { name } else { "Extension" };
        let mut session = db.connect();
        // Twice on one connection: the second time the number of the name is known.
        for _ in 0..2 {
            let sleeper = session.background(move |session| session.batch_execute(call).is_err());
            watcher.until_asleep(sleeper.pid());
            let shown: String = watcher.one(&format!(
                "SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity WHERE pid = {}",
                sleeper.pid()
            ));
            assert_eq!(shown, format!("Extension {name}"), "{call}");
            watcher.run(&format!("SELECT pg_cancel_backend({})", sleeper.pid()));
            let (back, cancelled) = sleeper.join();
            assert!(cancelled, "{call}");
            session = back;
        }
    }
}
