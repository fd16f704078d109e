//! What is due and of no use to those that sleep is done while they sleep: by a worker that they call.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Background, Db, Session, listen, notifications, until};

/// A deadline has passed for so long at most when others hear of it; the machine of the tests may be busy.
const SOON: Duration = Duration::from_secs(3);

/// The workers of a database.
fn workers(watcher: &mut Session, db: &Db) -> Vec<i32> {
    watcher.all(&format!(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'taskq worker' AND datname = '{}'",
        db.name()
    ))
}

/// Runs statements on a connection of their own until they are cut off.
fn asleep(db: &Db, watcher: &mut Session, statements: &'static str) -> Background<()> {
    let call = db.connect().background(move |session| drop(session.simple_query(statements)));
    watcher.until_asleep(call.pid());
    call
}

fn end(watcher: &mut Session, call: Background<()>) {
    watcher.run(&format!("SELECT pg_terminate_backend({})", call.pid()));
    call.join();
}

/// Inserts a task whose worker dies on its last try, with a dependent, and whose deadline is in a second.
fn dead(session: &mut Session, id: &str) {
    session
        .insert(json!([
            {"id": id, "action": "x", "max_tries": 1, "post_result": true},
            {"id": format!("after {id}"), "action": "y", "depends_on": [{"id": id, "condition": "settled"}]}
        ]))
        .unwrap();
    session.own_one_with("x", "lease => '1 second'");
}

/// Calls that sleep of the same action, in whatever transaction they do.
const SLEEPERS: [&str; 5] = [
    "SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '25 seconds')",
    "SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '1 hour')",
    "BEGIN; SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '25 seconds'); COMMIT",
    "BEGIN; SAVEPOINT a; SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '25 seconds'); COMMIT",
    "SET statement_timeout = '25s'; SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '1 minute')",
];

#[test]
fn the_last_try_of_a_dead_worker_ends_while_workers_of_its_action_sleep() {
    let (db, [mut session, mut watcher, mut listener]) = Db::connected();
    for (n, sleeper) in SLEEPERS.into_iter().enumerate() {
        let id = format!("t{n}");
        dead(&mut session, &id);
        let granted = Instant::now();
        let channel = listen(&mut listener, "task_channel", &id);
        let sleepers = [asleep(&db, &mut watcher, sleeper), asleep(&db, &mut watcher, sleeper)];
        let end_ = session.wait(&id, "20 seconds").unwrap().expect("it ends in time");
        let heard = granted.elapsed();
        assert_eq!(end_.status_code, "aborted", "{sleeper}");
        assert!(heard < Duration::from_secs(1) + SOON, "{sleeper}: heard after {heard:?}");
        assert_eq!(
            notifications(&mut listener, &mut session),
            [(channel, json!({"task_id": id, "status_code": "aborted"}))]
        );
        assert_eq!(session.state(&format!("after {id}")), "ready", "{sleeper}");
        assert!(
            session
                .one::<bool>(&format!("SELECT EXISTS (SELECT FROM taskq.dead_ends WHERE task_id = '{id}')"))
        );
        sleepers.into_iter().for_each(|call| end(&mut watcher, call));
    }
    session.run("SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks WHERE status_code = 'pending'");
}

/// One for a database, however many call it; and away a moment after the last call, whatever is due every second.
#[test]
fn there_is_one_worker_and_it_leaves_after_those_that_wait() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run("SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"z\"}', overlap => 'queue')");
    let calls: Vec<Background<()>> = (0..10)
        .map(|_| {
            asleep(&db, &mut watcher, "SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '25 seconds')")
        })
        .collect();
    let first = until("a worker comes", || workers(&mut watcher, &db).first().copied());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let now = workers(&mut watcher, &db);
        assert!(now.len() <= 1, "{now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Killed, it is followed by another. (Where other tests need the server's processes, it leaves and comes by itself.)
    watcher.run(&format!("SELECT pg_terminate_backend({first})"));
    until("another comes", || workers(&mut watcher, &db).into_iter().find(|pid| *pid != first));
    calls.into_iter().for_each(|call| end(&mut watcher, call));
    let began = Instant::now();
    until("it leaves", || workers(&mut watcher, &db).is_empty().then_some(()));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    session.run("SELECT taskq.unschedule('tick')");
}

/// A command that wants the database for itself gets it while a worker is about to leave.
#[test]
fn a_database_can_be_dropped_after_the_last_call() {
    let db = Db::new();
    taskq_tests::db::admin(&format!("CREATE DATABASE \"{}_copy\" TEMPLATE \"{}\"", db.name(), db.name()));
    let mut config = db.config();
    config.dbname(&format!("{}_copy", db.name()));
    let mut session = Session::open(&config).unwrap();
    session.run("SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"z\"}', overlap => 'queue')");
    session.run("SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '2.5 seconds')");
    assert!(session.one::<i64>("SELECT count(*) FROM taskq.tasks") > 0, "a worker was there");
    drop(session);
    let began = Instant::now();
    taskq_tests::db::admin(&format!("DROP DATABASE \"{}_copy\"", db.name()));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn none_comes_where_it_is_switched_off_or_another_clock_is_set() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for setting in ["taskq.background_worker = off", "taskq.now = '2100-01-01'"] {
        session.insert(json!([{"id": "tried", "action": "z"}])).unwrap();
        session.own_one_with("z", "lease => '0.1 seconds'");
        let mut sleeper = db.connect();
        sleeper.run(&format!("SET {setting}"));
        sleeper.run("SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '1.5 seconds')");
        assert_eq!(workers(&mut watcher, &db), [0; 0], "{setting}");
        session.delete(&["tried"]).ok();
        session.run("SELECT taskq.cancel_tasks('{tried}')");
        session.delete(&["tried"]).ok();
    }
}

/// In a transaction that stays open a call ends no tries of others: they would be kept from their own workers.
#[test]
fn an_open_transaction_keeps_no_tries_of_other_actions() {
    let (_db, [mut session, mut open]) = Db::connected();
    session.run("SELECT taskq.insert_task('s' || n, 'secret') FROM generate_series(1, 50) AS n");
    session.run("SELECT taskq.insert_task('own', 'mine', max_tries => 1)");
    session.run("SELECT taskq.insert_task('freed', 'mine', depends_on => '{s1}')");
    session.run("SELECT taskq.own_tasks('dead', 50, '{secret,mine}', lease => '0.1 seconds'), pg_sleep(0.2)");
    session.run("SELECT taskq.own_tasks('dead', 1, '{mine}', lease => '0.1 seconds'), pg_sleep(0.2)");
    open.run("BEGIN");
    assert!(open.own("n", 200, &["mine"]).unwrap().is_empty());
    assert_eq!(session.own("w", 100, &["secret"]).unwrap().len(), 50, "all are there for their own workers");
    open.run("COMMIT");
    assert_eq!(session.state("own"), "aborted", "its own it has ended");
}

/// A worker that has done its work and left is none that has failed. On wrong code the lone worker of a schedule waits twice as long each
/// time for the next run, from the fourth on.
#[test]
fn a_session_that_works_for_a_while_between_its_calls_is_not_late() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"s\"}')");
    let took: Vec<Duration> = (0..6)
        .map(|_| {
            let began = Instant::now();
            let grant = session.own_one_with("s", "wait => '60 seconds'");
            let took = began.elapsed();
            std::thread::sleep(Duration::from_millis(2200));
            session.complete(&grant);
            took
        })
        .collect();
    assert!(took.iter().all(|took| *took < Duration::from_secs(1) + SOON), "{took:?}");
}

/// On wrong code a waiting call makes sixteen due tasks ready, and is granted the best of these.
#[test]
fn of_tasks_that_become_due_together_a_waiting_call_gets_the_first() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('action', 'x', 'not_before', now() + interval '1 second'))
                                      FROM generate_series(1, 100)));
         SELECT taskq.insert_task('urgent', 'x', priority => 10, not_before => now() + interval '1 second')",
    );
    assert_eq!(session.own_one_with("x", "wait => '20 seconds'").task_id, "urgent");
}
