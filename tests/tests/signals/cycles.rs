//! Two calls that only together close a cycle: both cannot pass, in whatever order and at whatever isolation. A queue
//! that looks for cycles in its snapshot lets both pass, and the tasks wait for each other for ever.

use serde_json::json;
use taskq_tests::{Db, sqlstate};

/// Edges that are there, and two calls that together close a cycle: of both kinds, with tasks in common and without.
const CYCLES: [([&str; 2], &str, &str); 5] = [
    (
        ["{}", "{}"],
        "SELECT taskq.add_dependencies('{a}', '{b}')",
        "SELECT taskq.add_dependencies('{b}', '{a}')",
    ),
    (
        ["{}", "{}"],
        "SELECT taskq.add_dependencies('{a,c}', '{b,d}')",
        "SELECT taskq.add_dependencies('{b,d}', '{c,a}')",
    ),
    (
        ["{b,d}", "{c,a}"],
        "SELECT taskq.add_dependencies('{a}', '{b}')",
        "SELECT taskq.add_dependencies('{c}', '{d}')",
    ),
    (["{}", "{}"], B_THEN_N_THEN_A, "SELECT taskq.add_dependencies('{a}', '{b}')"),
    (
        ["{}", "{}"],
        B_THEN_N_THEN_A,
        r#"SELECT taskq.insert_tasks('[{"id": "m", "action": "x", "depends_on": ["a"], "to_signal_after": ["b"]}]')"#,
    ),
];

const B_THEN_N_THEN_A: &str = r#"SELECT taskq.insert_tasks('[{"id": "n", "action": "x", "depends_on": ["b"], "to_signal_after": ["a"]}]')"#;

/// In overlapping transactions the second must be refused, or fail to serialise.
#[test]
fn of_two_calls_that_close_a_cycle_one_passes() {
    let db = Db::new();
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for (stored, one, other) in CYCLES {
            for (first_call, second_call) in [(one, other), (other, one)] {
                db.clear();
                let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
                let ids = ["a", "b", "c", "d"];
                watcher.insert(ids.map(|id| json!({"id": id, "action": "x"})).into_iter().collect()).unwrap();
                watcher.run(&format!("SELECT taskq.add_dependencies('{}', '{}')", stored[0], stored[1]));
                for session in [&mut first, &mut second] {
                    session.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM taskq.tasks"));
                }
                first.run(first_call);
                let second = second.background(move |session| session.batch_execute(second_call));
                second.settle_down(&mut watcher);
                first.run("COMMIT");
                let (mut second, answer) = second.join();
                let passed = answer.is_ok() && second.batch_execute("COMMIT").is_ok();
                assert!(!passed, "{level}: {first_call} and {second_call} both passed");
                if let Err(error) = answer {
                    assert!(["TQ004", "40001", "40P01"].contains(&sqlstate(&error)), "{error:?}");
                }
                drop(second);
                // What is left can be done to the end.
                let mut done = 0;
                while let Some(grant) = watcher.own("w", 1, &["x"]).unwrap().pop() {
                    watcher.complete(&grant);
                    done += 1;
                }
                assert!(done >= 4, "{level}: only {done} tasks could be done");
            }
        }
    }
}

#[test]
fn edges_without_a_cycle_all_pass_under_concurrency() {
    let (db, [mut session]) =
        Db::with_tasks((0..100).map(|i| json!({"id": i.to_string(), "action": "x"})).collect());
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
