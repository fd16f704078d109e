//! Two calls that only together close a cycle: both cannot pass, in whatever order and at whatever isolation. A queue
//! that looks for cycles in its snapshot lets both pass, and the tasks wait for each other for ever.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

fn tasks(session: &mut Session) {
    session
        .insert(["a", "b", "c", "d"].map(|id| json!({"id": id, "action": "x"})).into_iter().collect())
        .unwrap();
}

/// Runs the two in overlapping transactions; the second must be refused, or fail to serialise.
fn both_cannot_pass(db: &Db, isolation: &str, first_call: &str, second_call: &'static str) {
    db.clear();
    let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
    tasks(&mut watcher);
    for session in [&mut first, &mut second] {
        session.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM taskq.tasks"));
    }
    first.run(first_call);
    let second = second.background(move |session| session.batch_execute(second_call));
    second.settle_down(&mut watcher);
    first.run("COMMIT");
    let (mut second, answer) = second.join();
    let passed = answer.is_ok() && second.batch_execute("COMMIT").is_ok();
    assert!(!passed, "{isolation}: {first_call} and {second_call} both passed");
    if let Err(error) = answer {
        assert!(["TQ004", "40001", "40P01"].contains(&sqlstate(&error)), "{error:?}");
    }
    drop(second);
    // The task of a call that was not refused can be done to the end.
    let mut done = 0;
    while let Some(grant) = watcher.own("w", 1, &["x"]).unwrap().pop() {
        watcher.complete(&grant);
        done += 1;
    }
    assert!(done >= 4, "{isolation}: only {done} tasks could be done");
}

const B_THEN_N_THEN_A: &str = r#"SELECT taskq.insert_tasks('[{"id": "n", "action": "x", "depends_on": ["b"], "to_signal_after": ["a"]}]')"#;

const ISOLATIONS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

#[test]
fn two_edges_that_close_a_cycle() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        both_cannot_pass(
            &db,
            isolation,
            "SELECT taskq.add_dependencies(ARRAY['a'], ARRAY['b'])",
            "SELECT taskq.add_dependencies(ARRAY['b'], ARRAY['a'])",
        );
    }
}

#[test]
fn two_edges_that_close_a_longer_cycle_without_a_common_task() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        both_cannot_pass(
            &db,
            isolation,
            "SELECT taskq.add_dependencies(ARRAY['a', 'c'], ARRAY['b', 'd'])",
            "SELECT taskq.add_dependencies(ARRAY['b', 'd'], ARRAY['c', 'a'])",
        );
    }
}

#[test]
fn two_calls_without_a_common_task_that_close_a_cycle_over_stored_edges() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        db.clear();
        let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
        tasks(&mut watcher);
        // Stored: b before c, and d before a. One call adds a before b, the other c before d.
        watcher.depend(json!([{"after": "b", "run": "c"}, {"after": "d", "run": "a"}])).unwrap();
        for session in [&mut first, &mut second] {
            session.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM taskq.tasks"));
        }
        first.depend_on("a", "b").unwrap();
        let second = second.background(|session| session.depend_on("c", "d"));
        second.settle_down(&mut watcher);
        first.run("COMMIT");
        let (mut second, answer) = second.join();
        let passed = answer.is_ok() && second.batch_execute("COMMIT").is_ok();
        assert!(!passed, "{isolation}: both passed");
        drop(second);
        assert_eq!(watcher.own("w", 9, &["x"]).unwrap().len(), 1, "{isolation}: d can run");
    }
}

#[test]
fn an_insert_and_an_edge_that_close_a_cycle() {
    let db = Db::new();
    const EDGE: &str = "SELECT taskq.add_dependencies(ARRAY['a'], ARRAY['b'])";
    for isolation in ISOLATIONS {
        both_cannot_pass(&db, isolation, B_THEN_N_THEN_A, EDGE);
        both_cannot_pass(&db, isolation, EDGE, B_THEN_N_THEN_A);
    }
}

#[test]
fn two_inserts_that_close_a_cycle() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        both_cannot_pass(
            &db,
            isolation,
            B_THEN_N_THEN_A,
            r#"SELECT taskq.insert_tasks('[{"id": "m", "action": "x", "depends_on": ["a"], "to_signal_after": ["b"]}]')"#,
        );
    }
}

#[test]
fn a_replace_and_an_edge_that_close_a_cycle() {
    let db = Db::new();
    const REPLACE: &str =
        r#"SELECT taskq.replace_tasks('[{"id": "a", "action": "x", "depends_on": ["b"]}]')"#;
    const EDGE: &str = "SELECT taskq.add_dependencies(ARRAY['a'], ARRAY['b'])";
    for isolation in ISOLATIONS {
        db.clear();
        let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
        tasks(&mut watcher);
        for session in [&mut first, &mut second] {
            session.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM taskq.tasks"));
        }
        first.run(REPLACE);
        let second = second.background(|session| session.batch_execute(EDGE));
        second.settle_down(&mut watcher);
        first.run("COMMIT");
        let (mut second, _) = second.join();
        // A commit after an error is a rollback, and it works.
        second.batch_execute("COMMIT").ok();
        drop(second);
        let mut done = 0;
        while let Some(grant) = watcher.own("w", 1, &["x"]).unwrap().pop() {
            watcher.complete(&grant);
            done += 1;
        }
        // The edge may have named the old a; then b was aborted with it, and the new a by b.
        let settled =
            watcher.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state IN ('completed', 'aborted')");
        assert_eq!(settled, 4, "{isolation}: nothing is stuck; {done} were done");
    }
}

#[test]
fn edges_without_a_cycle_all_pass_under_concurrency() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert((0..100).map(|i| json!({"id": i.to_string(), "action": "x"})).collect()).unwrap();
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            db.connect().background(move |session| {
                for i in 0..100 {
                    let (low, high) = ((i * 31 + caller * 7) % 99, 99 - (i + caller) % 3);
                    if low < high {
                        session
                            .depend_on(&low.to_string(), &high.to_string())
                            .expect("no deadlock, no cycle");
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join();
    }
    let mut done = 0;
    loop {
        let grants = session.own("w", 7, &["x"]).unwrap();
        if grants.is_empty() {
            break;
        }
        done += grants.len();
        for grant in &grants {
            session.complete(grant);
        }
    }
    assert_eq!(done, 100);
}
