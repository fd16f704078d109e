//! Unique tasks inserted by several connections at once.
//!
//! Why: two that see no holder would both insert; two that lock their keys in different orders would deadlock; a task that
//! another relies upon could begin, or settle, between the look and the commit.

use std::thread;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Progress, Session, sqlstate};

use super::unique::report;

fn unique(id: &str, key: Value) -> Value {
    json!([{"id": id, "action": "x", "unique_by": key}])
}

#[test]
fn the_second_waits_and_goes_by_what_the_first_has_done() {
    for (end, skip, replace) in
        [("COMMIT", ["a skipped a"], ["b replaced a"]), ("ROLLBACK", ["b inserted"], ["b inserted"])]
    {
        for (on_conflict, expected) in [("skip", skip), ("replace", replace)] {
            let (_db, [mut first, second, mut watcher]) = Db::connected();
            first.run("BEGIN");
            first.insert(unique("a", json!("k"))).unwrap();
            let key = json!({"key": "k", "on_conflict": on_conflict});
            let other = second.background(move |s| report(s, unique("b", key)));
            assert_eq!(other.settle_down(&mut watcher), Progress::Blocked);
            first.run(end);
            assert_eq!(other.join().1, expected, "{end} {on_conflict}");
        }
    }
}

#[test]
fn an_error_is_an_error_for_the_second_as_well() {
    let (_db, [mut first, second, mut watcher]) = Db::connected();
    first.run("BEGIN");
    first.insert(unique("a", json!("k"))).unwrap();
    let other = second.background(|s| s.insert(unique("b", json!({"key": "k", "on_conflict": "error"}))));
    other.settle_down(&mut watcher);
    first.run("COMMIT");
    assert_eq!(sqlstate(&other.join().1.unwrap_err()), "TQ002");
}

#[test]
fn a_key_whose_task_has_settled_is_taken_by_one_of_two() {
    let (_db, [mut first, second, mut watcher]) = Db::with_tasks(unique("old", json!("k")));
    first.perform("x", "completed");
    first.run("BEGIN");
    assert_eq!(report(&mut first, unique("a", json!("k"))), ["a inserted"]);
    let other = second.background(|s| report(s, unique("b", json!("k"))));
    assert_eq!(other.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    assert_eq!(other.join().1, ["a skipped a"]);
}

#[test]
fn under_repeatable_read_the_second_fails_rather_than_answer_wrongly() {
    for held in [false, true] {
        let (_db, [mut first, mut second, mut watcher]) = Db::connected();
        if held {
            first.insert(unique("old", json!("k"))).unwrap();
            first.perform("x", "completed");
        }
        second.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM taskq.tasks");
        first.run("BEGIN");
        first.insert(unique("a", json!("k"))).unwrap();
        let other = second.background(|s| s.insert(unique("b", json!("k"))));
        assert_eq!(other.settle_down(&mut watcher), Progress::Blocked);
        first.run("COMMIT");
        let (mut second, answer) = other.join();
        assert_eq!(sqlstate(&answer.unwrap_err()), "40001");
        second.run("ROLLBACK");
        // What was committed before the call is seen, whatever the transaction's own snapshot shows.
        second.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM taskq.unique_keys");
        first.insert(unique("c", json!("l"))).unwrap();
        assert_eq!(report(&mut second, unique("d", json!("l"))), ["c skipped c"]);
        second.run("COMMIT");
    }
}

#[test]
fn a_task_that_is_relied_upon_does_not_begin_before_the_commit() {
    let (db, [mut producer, mut worker]) = Db::connected();
    let waiting = json!({"key": "k", "states": ["pending"]});
    producer.insert(unique("a", waiting.clone())).unwrap();
    producer.run("BEGIN");
    assert_eq!(report(&mut producer, unique("b", waiting.clone())), ["a skipped a"]);
    assert!(worker.own("w", 9, &["x"]).unwrap().is_empty(), "it would miss what the producer has done");
    producer.run("COMMIT");
    // The other way round: a grant that is open may have begun.
    worker.run("BEGIN");
    let grant = worker.own_one("x");
    let other = producer.background({
        let key = waiting.clone();
        move |s| report(s, unique("b", key))
    });
    assert_eq!(other.settle_down(&mut db.connect()), Progress::Blocked);
    worker.run("COMMIT");
    let (producer, answer) = other.join();
    assert_eq!(answer, ["b inserted"]);
    worker.complete(&grant);
    // A grant that is rolled back has not.
    worker.run("BEGIN");
    worker.own_one("x");
    let other = producer.background(move |s| report(s, unique("c", waiting)));
    assert_eq!(other.settle_down(&mut db.connect()), Progress::Blocked);
    worker.run("ROLLBACK");
    assert_eq!(other.join().1, ["b skipped b"]);
}

#[test]
fn a_grant_that_comes_first_is_followed_and_not_replaced() {
    let (db, [producer, mut worker]) = Db::connected();
    let key = json!({"key": "k", "on_conflict": "replace"});
    worker.insert(unique("a", key.clone())).unwrap();
    worker.run("BEGIN");
    let grant = worker.own_one("x");
    let other = producer.background(move |s| report(s, unique("b", key)));
    assert_eq!(other.settle_down(&mut db.connect()), Progress::Blocked);
    worker.run("COMMIT");
    let (mut producer, answer) = other.join();
    assert_eq!(answer, ["b inserted a"]);
    assert_eq!(producer.state("b"), "blocked");
    worker.complete(&grant);
    assert_eq!(worker.perform("x", "completed"), "b");
}

#[test]
fn a_removal_waits_for_no_insertion_and_what_it_leaves_is_free() {
    let (db, [mut inserter, mut remover]) = Db::connected();
    let kept = json!({"key": "k", "states": ["completed", "pending", "in-progress"]});
    inserter.insert(unique("a", kept.clone())).unwrap();
    inserter.perform("x", "completed");
    inserter.run("BEGIN");
    assert_eq!(report(&mut inserter, unique("b", kept.clone())), ["a skipped a"]);
    let deleting = remover.background(|s| s.delete(&["a"]).unwrap());
    assert_eq!(deleting.settle_down(&mut db.connect()), Progress::Done);
    (remover, _) = deleting.join();
    inserter.run("COMMIT");
    assert_eq!(remover.state("a"), "gone");
    assert_eq!(remover.one::<i64>("SELECT count(*) FROM taskq.unique_key"), 1, "its row was locked");
    assert_eq!(remover.one::<i64>("SELECT count(*) FROM taskq.unique_keys"), 0);
    // The removal of a task with a key near by takes it along.
    remover.insert(unique("c", json!("a"))).unwrap();
    remover.delete(&["c"]).unwrap();
    assert_eq!(remover.one::<i64>("SELECT count(*) FROM taskq.unique_key"), 0);
    assert_eq!(report(&mut remover, unique("d", kept)), ["d inserted"]);
}

#[test]
fn a_return_whose_child_has_the_parents_key_and_a_debounce_do_not_deadlock() {
    let db = Db::new();
    let key = json!({"key": "k", "on_conflict": "replace"});
    let mut main = db.connect();
    main.insert(unique("first", key.clone())).unwrap();
    thread::scope(|scope| {
        for n in 0..2 {
            let (mut session, key) = (db.connect(), key.clone());
            scope.spawn(move || {
                for round in 0..100 {
                    session.insert(unique(&format!("{n} {round}"), key.clone())).unwrap();
                }
            });
        }
        for n in 0..2 {
            let (mut session, key) = (db.connect(), key.clone());
            scope.spawn(move || {
                for round in 0..100 {
                    for grant in session.own("w", 1, &["x"]).unwrap() {
                        let children =
                            json!([{"id": format!("child {n} {round}"), "action": "x", "unique_by": key}]);
                        let arguments = format!("children => '{children}'");
                        session.give_with(&grant.task_id, grant.token, "completed", &arguments).unwrap();
                    }
                }
            });
        }
    });
    let live: i64 = main.one("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
    assert!(live <= 2, "one that runs and one behind it: {live}");
}

#[test]
fn batches_with_the_same_keys_in_any_order_insert_each_once() {
    const KEYS: usize = 40;
    let db = Db::new();
    let inserted: usize = thread::scope(|scope| {
        let sessions: Vec<_> = (0..6_u64)
            .map(|seed| {
                let mut session = db.connect();
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let mut inserted = 0;
                    for _ in 0..20 {
                        let mut keys: Vec<usize> = (0..KEYS).collect();
                        for i in (1..KEYS).rev() {
                            keys.swap(i, random.below(i as u64 + 1) as usize);
                        }
                        let tasks: Value = keys
                            .iter()
                            .map(|key| json!({"action": "x", "unique_by": {"key": format!("k{key}"), "period": "1 day"}}))
                            .collect();
                        inserted += session.insert(tasks).unwrap().len();
                    }
                    inserted
                })
            })
            .collect();
        sessions.into_iter().map(|session| session.join().unwrap()).sum()
    });
    assert_eq!(inserted, KEYS);
}

/// Every request counts up a number and debounces a task that copies it. At the end the copy must be right: a request that
/// was dropped because its task had already begun leaves an old number.
#[test]
fn no_request_is_lost_whatever_happens_at_once() {
    for key in [
        json!({"key": "k", "on_conflict": "replace"}),
        json!({"key": "k", "states": ["pending"]}),
        json!({"key": "k", "states": ["pending"], "on_conflict": "replace"}),
    ] {
        let (db, [mut main]) = Db::connected();
        main.run("CREATE TABLE source (n bigint); INSERT INTO source VALUES (0); CREATE TABLE copy (n bigint); INSERT INTO copy VALUES (0)");
        thread::scope(|scope| {
            for seed in 0..3_u64 {
                let (mut session, key) = (db.connect(), key.clone());
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..60 {
                        session.run("BEGIN; UPDATE source SET n = n + 1");
                        session.insert(json!([{"action": "x", "unique_by": key.clone()}])).unwrap();
                        session.run(if random.chance(20) { "ROLLBACK" } else { "COMMIT" });
                    }
                });
            }
            for seed in 10..12_u64 {
                let mut session = db.connect();
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..120 {
                        perform(&mut session, &mut random);
                    }
                });
            }
        });
        let mut random = Random::new(99);
        while main.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')")
            > 0
        {
            perform(&mut main, &mut random);
        }
        assert_eq!(main.one::<i64>("SELECT n FROM source"), main.one::<i64>("SELECT n FROM copy"), "{key}");
    }
}

/// One performance: reads, then writes what it has read unless a later one was quicker.
fn perform(session: &mut Session, random: &mut Random) {
    for grant in session.own("w", 1, &["x"]).unwrap() {
        let n: i64 = session.one("SELECT n FROM source");
        if random.chance(10) {
            session.give(&grant.task_id, grant.token, "pending").unwrap();
            continue;
        }
        session.run(&format!("UPDATE copy SET n = greatest(n, {n})"));
        session.complete(&grant);
    }
}
