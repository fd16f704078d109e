//! Thousands of waits, however they end, leave no lock behind; one wait for many tasks takes few.

use taskq_tests::{Db, until};

#[test]
#[ignore = "long"]
fn no_lock_stays_after_thousands_of_waits_that_end_in_every_way() {
    let (_db, [mut session, mut watcher]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'y')");
    session.run("SET statement_timeout = '3ms'");
    let calls = [
        "SELECT FROM taskq.own_tasks('w', 1, '{x,y2,z}', wait => '1 millisecond')",
        "SELECT FROM taskq.wait_for_task('a', '1 millisecond')",
        "CALL taskq.wait_for_work('{x,z}', '1 millisecond', NULL)",
        "CALL taskq.wait_for_tasks('{a}', '1 millisecond', NULL)",
        "SELECT FROM taskq.own_tasks('w', 1, '{x}', wait => '1 minute')",
        "CALL taskq.wait_for_work('{x}', '1 minute', NULL)",
        "SELECT FROM taskq.wait_for_task('absent', '1 minute')",
    ];
    let (mut worked, mut failed) = (0, 0);
    for n in 0..4000 {
        match session.simple_query(calls[n % calls.len()]) {
            Ok(_) => worked += 1,
            Err(_) => failed += 1,
        }
    }
    assert!(worked > 100 && failed > 100, "both ends were tried: {worked}, {failed}");
    // An error is sent before the abort that follows it; the next answer comes after that.
    session.simple_query("RESET statement_timeout").ok();
    let held = format!(
        "SELECT COALESCE(string_agg(l::text, ', '), '') FROM pg_locks l WHERE pid = {}",
        session.pid()
    );
    assert_eq!(watcher.one::<String>(&held), "");
}

#[test]
fn waits_in_one_transaction_leave_only_what_any_statement_leaves() {
    let (_db, [mut session, mut watcher]) = Db::connected();
    session.run("BEGIN");
    for n in 0..300 {
        session.run(&format!("SELECT FROM taskq.own_tasks('w', 1, '{{x{n}}}', wait => '1 millisecond')"));
    }
    let held =
        format!("SELECT count(*) FROM pg_locks WHERE pid = {} AND locktype = 'advisory'", session.pid());
    assert_eq!(watcher.one::<i64>(&held), 0);
    session.run("COMMIT");
}

#[test]
fn waiting_for_many_tasks_takes_few_locks() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run(
        "SELECT taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', n::text, 'action', 'many')) \
                                      FROM generate_series(1, 20000) AS n))",
    );
    session.run("CREATE TABLE ids AS SELECT array_agg(n::text) AS ids FROM generate_series(1, 20000) AS n");
    let ids: Vec<String> = session.one("SELECT ids FROM ids");
    let caller = db.connect().background(move |session| {
        let row = session.query_one("CALL taskq.wait_for_tasks($1, '100 seconds', NULL)", &[&ids]).unwrap();
        row.get::<_, i32>(0)
    });
    watcher.until_asleep(caller.pid());
    let locks: i64 = watcher.one(&format!("SELECT count(*) FROM pg_locks WHERE pid = {}", caller.pid()));
    assert!(locks < 200, "{locks} locks");
    session.run("SELECT taskq.cancel_tasks(ids) FROM ids");
    assert_eq!(caller.join().1, 20_000);
}

#[test]
fn waiting_for_very_many_actions_does_not_fill_the_lock_table() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run(
        "SELECT taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('action', 'action ' || n)) \
                                      FROM generate_series(1, 2000) AS n))",
    );
    session.run("SELECT count(*) FROM taskq.cancel_tasks((SELECT array_agg(id) FROM taskq.tasks))");
    let caller = db.connect().background(|session| {
        session.run("SELECT FROM taskq.own_tasks('w', 1, (SELECT array_agg('action ' || n) FROM generate_series(1, 2000) AS n), wait => '100 seconds')");
    });
    watcher.until_asleep(caller.pid());
    session.run("SELECT taskq.insert_task(NULL, 'action 2000')");
    caller.join();
    until("the task is taken", || {
        (session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'ready'") == 0).then_some(())
    });
}
