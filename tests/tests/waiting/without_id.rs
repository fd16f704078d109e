//! A call that was woken, and finds that another transaction has what there is, sleeps on without a transaction id.
//!
//! PostgreSQL gives one to a transaction that tries to change a row, before it tells that another has the row. On wrong
//! code the sleeper keeps it for as long as it sleeps, and so keeps the low-water marks of all sessions, and what
//! vacuum may remove, where they are: the longer it lasts, the longer each claim and each wake-up takes.

use std::thread;

use serde_json::{Value, json};
use taskq_tests::{Db, Session, until};

/// Actions whose entries are claimed in different ways, and the task that a transaction has in hand.
const KINDS: &[(&str, &str)] = &[
    ("plain", "SELECT 1"),
    ("fair", "SELECT taskq.set_action('x', fair => true)"),
    ("limited", "SELECT taskq.set_action('x', max_concurrency => 5)"),
    ("limited by group", "SELECT taskq.set_action('x', max_per_group => 5)"),
];

#[test]
fn a_call_that_is_woken_for_a_task_in_hand_sleeps_on_without_an_id() {
    for (kind, setting) in KINDS {
        for keys in [json!({}), json!({"merge_key": "k"}), json!({"group_id": "g", "workgroup": "w"})] {
            let (db, [mut session, mut holder]) = Db::connected();
            session.run(setting);
            let task = |id: &str| -> Value {
                let mut task = json!({"id": id, "action": "x"});
                task.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
                task
            };
            session.insert(json!([task("in hand")])).unwrap();
            holder.run("BEGIN");
            let grant = holder.own_one("x");
            let sleeper =
                db.connect().background(|s| s.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap());
            let id = format!("SELECT backend_xid::text FROM pg_stat_activity WHERE pid = {}", sleeper.pid());
            for _ in 0..3 {
                session.until_asleep(sleeper.pid());
                assert_eq!(session.one::<Option<String>>(&id), None, "{kind}, {keys}");
                session.run("SELECT taskq.pause_action('x'); SELECT taskq.resume_action('x')");
            }
            holder.run("COMMIT");
            holder.complete(&grant);
            session.insert(json!([task("free")])).unwrap();
            assert_eq!(sleeper.join().1[0].task_id, "free", "{kind}, {keys}");
        }
    }
}

/// What a rate, or one of several limits, does not let go now is left without a look at the others. On wrong code the bucket is
/// locked to see what is in it, or a free slot before the limit that is full.
#[test]
fn a_call_that_finds_its_limits_used_up_sleeps_without_an_id() {
    for (setting, used_up, freed) in [
        ("rate_limit => 1, rate_period => '1 hour'", "", "rate_limit => 1000000"),
        ("rate_limit => 1, rate_period => '1 hour', max_concurrency => 5", "", "rate_limit => 1000000"),
        ("max_concurrency => 1, max_per_group => 5", "", "max_concurrency => 2"),
        ("max_concurrency => 5", "SELECT taskq.set_group('g', max_concurrency => 1)", "max_concurrency => 6"),
    ] {
        let (db, [mut session]) = Db::connected();
        session.run(&format!("SELECT taskq.set_action('x', {setting}); {used_up}"));
        session.insert(json!([
            {"id": "first", "action": "x", "group_id": "g"}, {"id": "second", "action": "x", "group_id": "g"}]))
            .unwrap();
        let first = session.own_one("x");
        let sleeper =
            db.connect().background(|s| s.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap());
        let id = format!("SELECT backend_xid::text FROM pg_stat_activity WHERE pid = {}", sleeper.pid());
        for _ in 0..3 {
            session.until_asleep(sleeper.pid());
            assert_eq!(session.one::<Option<String>>(&id), None, "{setting}");
            session.run("SELECT taskq.pause_action('x'); SELECT taskq.resume_action('x')");
        }
        session.run(&format!("SELECT taskq.set_action('x', {freed})"));
        if !used_up.is_empty() {
            session.complete(&first);
        }
        assert_eq!(sleeper.join().1[0].task_id, "second", "{setting}");
    }
}

/// It asks for a lock before it tries, and for none on the way there: the table of locks has room for a few thousand,
/// of all sessions.
#[test]
fn a_call_that_passes_a_thousand_tasks_in_hand_takes_few_locks() {
    for setting in ["fair => false", "fair => true", "max_concurrency => 2000"] {
        let (_db, [mut session, mut holder]) = Db::connected();
        session.run(&format!("SELECT taskq.set_action('x', {setting})"));
        session.run("SELECT count(*) FROM taskq.insert_many('x', array_fill('body'::text, ARRAY[1001]))");
        holder.run("BEGIN");
        assert_eq!(holder.own("w", 1000, &["x"]).unwrap().len(), 1000);
        session.run("BEGIN");
        assert_eq!(session.own_with("w", 1, &["x"], "wait => '10 seconds'").unwrap().len(), 1, "{setting}");
        let locks: i64 = session
            .one("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'");
        assert!(locks < 10, "{setting}: {locks}");
        session.run("COMMIT");
    }
}

/// Many who are woken one after the other, and some of them for nothing, since the one before is not done yet.
#[test]
fn sleepers_that_are_woken_for_the_same_task() {
    const SLEEPERS: usize = 16;
    const ROUNDS: usize = 300;
    let (db, [mut session]) = Db::connected();
    // The call before has planned what it needs; the one that counts is fast.
    let work = |mut session: Session| {
        loop {
            let grants = session.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap();
            session.complete(&grants[0]);
            if grants[0].body.as_deref() == Some("stop") {
                return;
            }
        }
    };
    let sleepers: Vec<_> = (0..SLEEPERS).map(|_| db.connect()).collect();
    let pids: Vec<i32> = sleepers.iter().map(Session::pid).collect();
    let workers: Vec<_> = sleepers.into_iter().map(|s| thread::spawn(move || work(s))).collect();
    for round in 0..ROUNDS {
        session.run(&format!("SELECT taskq.insert_task('t{round}', 'x')"));
    }
    until("all is done", || {
        (session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'") == 0).then_some(())
    });
    for pid in &pids {
        session.until_asleep(*pid);
    }
    let ids: i64 = session
        .query_one("SELECT count(backend_xid) FROM pg_stat_activity WHERE pid = ANY ($1)", &[&pids])
        .unwrap()
        .get(0);
    for _ in 0..SLEEPERS {
        session.run("SELECT taskq.insert_task(NULL, 'x', 'stop')");
    }
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(ids, 0, "sleepers that had an id");
}
