//! Waiting for very many actions takes a handful of locks, and wakes as promptly.
//!
//! Why: the server's lock table is shared by all. With a lock for each action a few honest workers that serve an action
//! for each tenant fill it, and unrelated sessions fail with 53200. A worker that is found by one lock for any action is
//! also woken for actions of others: it has to pass that on to the calls that may be meant.

use std::time::Instant;

use taskq_tests::{Db, Session};

use crate::sleeper::{Sleeper, WORK, Way};

const ACTIONS: usize = 400;

/// The two ways to wait for 400 actions whose names begin like this.
fn ways(prefix: &str) -> [Way; 2] {
    let names = (1..=ACTIONS).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(",");
    let names = format!("'{{{names}}}'");
    let leak = |call: String| -> &'static str { Box::leak(call.into_boxed_str()) };
    [
        Way {
            call: leak(format!(
                "SELECT count(*) > 0 FROM taskq.own_tasks('w', 1, {names}, wait => '60 seconds')"
            )),
            ..WORK[0]
        },
        Way { call: leak(format!("CALL taskq.wait_for_work({names}, '60 seconds', NULL)")), ..WORK[1] },
    ]
}

fn locks(watcher: &mut Session, pid: i32) -> i64 {
    watcher.one(&format!("SELECT count(*) FROM pg_locks WHERE pid = {pid}"))
}

fn make_names(session: &mut Session) {
    for prefix in ["a", "b"] {
        let tasks = format!(
            "SELECT taskq.insert_tasks(jsonb_agg(jsonb_build_object('id', '{prefix}' || n, 'action', '{prefix}' || n))) \
               FROM generate_series(1, {ACTIONS}) AS n"
        );
        session.run(&tasks);
    }
    session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
}

#[test]
fn a_wait_for_very_many_actions_takes_a_handful_of_locks() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for known in [false, true] {
        if known {
            make_names(&mut session);
        }
        for way in ways("a") {
            let sleeper = Sleeper::start(&db, &mut watcher, way);
            assert!(locks(&mut watcher, sleeper.pid()) <= 6);
            let inserted = Instant::now();
            session.run("SELECT taskq.insert_task('t', 'a399')");
            drop(sleeper.woken_soon_after(inserted, "an insert"));
            db.clear();
        }
    }
}

/// Several calls wait for any action, with different lists: the one that is found first passes it on.
#[test]
fn a_call_that_was_woken_for_another_wakes_it() {
    let (db, [mut session, mut watcher]) = Db::connected();
    make_names(&mut session);
    for _ in 0..3 {
        for (prefix, other) in [("a", "b"), ("b", "a")] {
            for way in 0..2 {
                let sleepers: Vec<Sleeper> = [prefix, other, prefix, other, prefix]
                    .into_iter()
                    .map(|prefix| Sleeper::start(&db, &mut watcher, ways(prefix)[way]))
                    .collect();
                let inserted = Instant::now();
                session.run(&format!(
                    "SELECT taskq.insert_tasks(jsonb_agg(jsonb_build_object('action', p || n))) \
                       FROM (VALUES ('{other}', 1), ('{other}', 2), ('{prefix}', 3), ('{prefix}', 4), ('{prefix}', 5)) AS v(p, n)"
                ));
                for sleeper in sleepers {
                    drop(sleeper.woken_soon_after(inserted, "an insert for it, maybe by way of others"));
                }
                db.clear();
            }
        }
    }
}

/// Limits of thousands of groups, set in one transaction.
#[test]
fn limits_of_thousands_of_groups_take_a_bounded_number_of_locks() {
    let (db, [mut session]) = Db::connected();
    session.run(
        "BEGIN; SELECT taskq.set_group('g' || n, max_concurrency => 1) FROM generate_series(1, 3000) AS n",
    );
    let pid = session.pid();
    let held = locks(&mut db.connect(), pid);
    assert!(held < 400, "{held} locks");
    session.run("COMMIT");
    session.run(
        "SELECT taskq.insert_task('t', 'x', group_id => 'g7'), taskq.insert_task('u', 'x', group_id => 'g7')",
    );
    assert_eq!(session.own("w", 5, &["x"]).unwrap().len(), 1);
}
