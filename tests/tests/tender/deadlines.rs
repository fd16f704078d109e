//! A deadline that passes gives a sleeper what becomes free by it, whosever it was, before its time is up.
//!
//! Why: the task that had a merge key died with its last try, by the very look of the sleeper that waited for the key,
//! and that had left the next one out before. And what a task of another action held, or kept waiting, was not let go
//! of before a sleeper's time was up.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Session};

/// A worker takes the task of this action, and dies.
fn dies(db: &Db, action: &str) {
    let had = db.connect().own_with("dead", 1, &[action], "lease => '0.5 seconds'").unwrap();
    assert_eq!(had.len(), 1);
}

/// A call that sleeps for tasks of x is granted this one, long before its time is up.
fn comes(session: &mut Session, task_id: &str) {
    let began = Instant::now();
    let grants = session.own_with("w", 5, &["x"], "wait => '20 seconds'").unwrap();
    assert_eq!(grants.iter().map(|g| g.task_id.as_str()).collect::<Vec<_>>(), [task_id]);
    assert!(began.elapsed() < Duration::from_secs(10), "it came after {:?}", began.elapsed());
}

#[test]
fn the_next_with_a_merge_key_comes_when_its_holder_dies_on_its_last_try() {
    let (db, [mut session]) =
        Db::with_tasks(json!([{"id": "holder", "action": "x", "merge_key": "k", "max_tries": 1}]));
    dies(&db, "x");
    session.insert(json!([{"id": "next", "action": "x", "merge_key": "k"}])).unwrap();
    comes(&mut session, "next");
}

#[test]
fn a_place_of_a_group_that_a_task_of_another_action_had() {
    let (db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_group('g', max_concurrency => 1)");
    session.insert(json!([{"id": "mine", "action": "x", "group_id": "g"}])).unwrap();
    session.insert(json!([{"id": "theirs", "action": "y", "group_id": "g"}])).unwrap();
    dies(&db, "y");
    comes(&mut session, "mine");
}

#[test]
fn what_waits_for_a_task_of_another_action_that_dies_on_its_last_try() {
    for limit in ["max_tries => 1", "on_timeout => 'abort'"] {
        let (db, [mut session]) = Db::connected();
        session.run(&format!("SELECT taskq.set_action('y', {limit})"));
        session.insert(
            json!([
                {"id": "theirs", "action": "y"},
                {"id": "mark", "action": "z", "spontaneous": true, "depends_on": [{"id": "theirs", "condition": "settled"}]},
                {"id": "mine", "action": "x", "depends_on": ["mark"]},
            ]),
        ).unwrap();
        dies(&db, "y");
        comes(&mut session, "mine");
    }
}

/// A try of another action's task that frees nothing is left to others: the sleeper takes no transaction id for it.
#[test]
fn what_frees_nothing_is_left_to_others() {
    let (db, [mut session]) = Db::with_tasks(json!([
        {"id": "theirs", "action": "y", "group_id": "g"},
        {"id": "behind", "action": "x", "depends_on": [{"id": "theirs", "condition": "settled"}]},
    ]));
    dies(&db, "y");
    let call = db.connect().background(|s| s.own_with("w", 5, &["x"], "wait => '4 seconds'").unwrap().len());
    session.until_asleep(call.pid());
    std::thread::sleep(Duration::from_millis(1500));
    let ids =
        format!("SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND pid = {}", call.pid());
    let ids: i64 = session.one(&ids);
    assert_eq!(ids, 0, "it sleeps with a transaction id");
    assert_eq!(call.join().1, 0);
    assert_eq!(session.state("behind"), "blocked");
    let ended: i64 =
        session.one("SELECT count(*) FROM taskq.attempts WHERE task_id = 'theirs' AND outcome = 'timeout'");
    assert_eq!(ended, 1, "by the last look");
}

/// What depends on a rider depends on the end of its leader.
#[test]
fn what_waits_for_a_task_that_rides_on_one_that_dies_on_its_last_try() {
    for held in [false, true] {
        let (db, [mut session, mut other]) = Db::connected();
        let y = |id: &str| json!({"id": id, "action": "y", "merge_key": "k", "max_tries": 1});
        session.insert(json!([y("leader"), y("rider")])).unwrap();
        let mine =
            json!([{"id": "mine", "action": "x", "depends_on": [{"id": "rider", "condition": "settled"}]}]);
        match held {
            // Then it rides where it is.
            true => {
                other.run("BEGIN");
                other.insert(mine).unwrap();
            }
            false => drop(session.insert(mine).unwrap()),
        }
        dies(&db, "y");
        if held {
            other.run("COMMIT");
        }
        comes(&mut session, "mine");
    }
}

#[test]
fn the_next_run_of_a_schedule_that_the_one_before_keeps_away() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"x\", \"max_tries\": 1}', overlap => 'skip')");
    let first = session.own_with("dead", 1, &["x"], "wait => '5 seconds', lease => '0.5 seconds'").unwrap();
    assert_eq!(first.len(), 1);
    let began = Instant::now();
    let next = session.own_with("w", 1, &["x"], "wait => '20 seconds'").unwrap();
    assert_eq!(next.len(), 1, "{:?}", began.elapsed());
    assert_ne!(next[0].task_id, first[0].task_id);
    assert!(began.elapsed() < Duration::from_secs(10), "it came after {:?}", began.elapsed());
}

/// At all levels: the transaction's snapshot has the schedule as it was before others ran it, and it is due once more when the
/// sleeper is granted a task.
#[test]
fn what_a_sleeper_is_granted_comes_with_the_runs_of_others_that_are_due() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let (_db, [mut session, mut sleeper]) = Db::connected();
        session.run("SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"y\"}', overlap => 'queue')");
        session.run("SELECT taskq.insert_task('mine', 'x', delay => '4.5 seconds')");
        sleeper.run(&format!("SET default_transaction_isolation = '{level}'"));
        let call =
            sleeper.background(|s| s.own_with("w", 5, &["x"], "wait => '20 seconds'").map(|g| g.len()));
        session.until_asleep(call.pid());
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            session.own("other", 5, &["y"]).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        let runs = "SELECT count(*) FROM taskq.tasks WHERE action = 'y'";
        let before: i64 = session.one(runs);
        let (_, granted) = call.join();
        assert_eq!(granted.unwrap(), 1, "{level}");
        assert!(session.one::<i64>(runs) > before, "{level}: a worker has to insert them");
    }
}
