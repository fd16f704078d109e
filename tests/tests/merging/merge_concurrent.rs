//! Merge by key over six sessions: of each key one task runs at a time, and every task ends.
//!
//! Why: the key is taken, given up and waited for in different transactions; each gap between them is a chance to run two at
//! once or to strand one. On wrong code a ledger of the sessions counts two for a key, or tasks are left at the end.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Progress, Session, until};

const KEYS: usize = 4;

fn wave(session: &mut Session, name: &str, n: usize) {
    let tasks: Value = (0..n)
        .map(|i| {
            let group = if i % 2 == 0 { Value::Null } else { json!("g") };
            json!({"id": format!("{name} {i}"), "action": "x", "merge_key": format!("k{}", i / 2 % KEYS), "group_id": group})
        })
        .collect();
    session.insert(tasks).unwrap();
}

fn place(session: &mut Session, id: &str) -> usize {
    let query = "SELECT right(key, 1)::int * 2 + (group_id IS NOT NULL)::int FROM (SELECT merge_key AS key, group_id \
                 FROM taskq.task WHERE id = $1) t";
    session.query_one(query, &[&id]).unwrap().get::<_, i32>(0) as usize
}

#[test]
fn six_sessions_run_one_task_of_a_key_at_a_time_and_finish_all() {
    let (db, [mut main]) = Db::connected();
    wave(&mut main, "first", 80);
    let ledger: Vec<AtomicI32> = (0..2 * KEYS).map(|_| AtomicI32::new(0)).collect();
    thread::scope(|scope| {
        for seed in 0..6_u64 {
            let (mut session, ledger) = (db.connect(), &ledger);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for round in 0..60 {
                    if random.chance(20) {
                        wave(&mut session, &format!("{seed} {round}"), 1 + random.below(12) as usize);
                    }
                    let open = random.chance(15);
                    if open {
                        session.run("BEGIN");
                    }
                    let grants = session.own("w", 1 + random.below(4) as i32, &["x"]).unwrap();
                    if open {
                        session.run("ROLLBACK");
                        continue;
                    }
                    for grant in &grants {
                        let key = place(&mut session, &grant.task_id);
                        let now = ledger[key].fetch_add(1, Ordering::SeqCst) + 1;
                        assert_eq!(now, 1, "{} runs beside another of its key", grant.task_id);
                    }
                    for grant in &grants {
                        let key = place(&mut session, &grant.task_id);
                        ledger[key].fetch_sub(1, Ordering::SeqCst);
                        match random.below(8) {
                            0 | 1 => drop(session.give(&grant.task_id, grant.token, "pending").unwrap()),
                            2 => assert_eq!(session.cancel(&[&grant.task_id]).unwrap(), 1),
                            3 => drop(session.give(&grant.task_id, grant.token, "aborted").unwrap()),
                            _ => session.complete(grant),
                        }
                    }
                }
            });
        }
    });
    assert!(main.broken().is_empty(), "{:?}", main.broken());
    until("all is settled", || {
        for grant in main.own("end", 100, &["x"]).unwrap() {
            main.complete(&grant);
        }
        let left: i64 =
            main.one("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
        (left == 0).then_some(())
    });
}

#[test]
fn no_task_of_a_key_runs_beside_an_open_grant_of_its_leader() {
    let (db, [mut a, mut b]) = Db::with_tasks(json!([
        {"id": "a", "action": "x", "merge_key": "k"}, {"id": "b", "action": "x", "merge_key": "k"}, {"id": "plain", "action": "x"},
        {"id": "gate", "action": "y"}, {"id": "c", "action": "x", "merge_key": "k", "depends_on": ["gate"]},
    ]));
    a.run("BEGIN");
    let leader = a.own_one("x");
    b.perform("y", "completed");
    let claiming = b.background(|s| s.own("b", 9, &["x"]).unwrap());
    assert_eq!(claiming.settle_down(&mut db.connect()), Progress::Done, "a claim waits for no other");
    let (mut b, granted) = claiming.join();
    assert_eq!(granted.iter().map(|g| g.task_id.as_str()).collect::<Vec<_>>(), ["plain"]);
    a.run("COMMIT");
    assert!(b.own("b", 9, &["x"]).unwrap().is_empty());
    a.complete(&leader);
    let next = b.own("b", 9, &["x"]).unwrap();
    assert_eq!(next.iter().map(|g| g.task_id.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(a.state("b"), "completed");
}

#[test]
fn a_return_that_is_open_while_others_look_strands_nothing() {
    for end in ["COMMIT", "ROLLBACK"] {
        let (_db, [mut a, mut b]) = Db::with_tasks(json!([{"id": "a", "action": "x", "merge_key": "k"}]));
        let leader = a.own_one("x");
        b.insert(json!([{"id": "b", "action": "x", "merge_key": "k"}])).unwrap();
        a.run("BEGIN");
        a.complete(&leader);
        assert!(b.own("b", 9, &["x"]).unwrap().is_empty(), "the end is not committed");
        a.run(end);
        if end == "ROLLBACK" {
            assert!(b.own("b", 9, &["x"]).unwrap().is_empty());
            a.complete(&leader);
        }
        assert_eq!(b.own("b", 9, &["x"]).unwrap().len(), 1, "{end}");
    }
}

#[test]
fn a_claim_that_is_open_while_the_leader_ends_strands_nothing() {
    let (db, [mut a, mut b]) = Db::with_tasks(json!([{"id": "a", "action": "x", "merge_key": "k"}]));
    let leader = a.own_one("x");
    b.insert(json!([{"id": "b", "action": "x", "merge_key": "k"}])).unwrap();
    b.run("BEGIN");
    assert!(b.own("b", 9, &["x"]).unwrap().is_empty());
    let ending = a.background(move |s| s.complete(&leader));
    ending.settle_down(&mut db.connect());
    b.run("COMMIT");
    let (mut a, ()) = ending.join();
    assert_eq!(a.own("a", 9, &["x"]).unwrap().len(), 1);
}

#[test]
fn inserting_and_deleting_tasks_of_one_key_at_once_keeps_its_row_right() {
    let db = Db::new();
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            let mut session = db.connect();
            scope.spawn(move || {
                for round in 0..60 {
                    let id = format!("{seed} {round}");
                    session.insert(json!([{"id": id, "action": "x", "merge_key": "k"}])).unwrap();
                    if round % 3 == 0 {
                        let grants = session.own("w", 1, &["x"]).unwrap();
                        grants.iter().for_each(|grant| session.complete(grant));
                    }
                    // In progress only if another session is just performing it.
                    session.delete(&[&id]).ok();
                }
            });
        }
    });
    let mut main = db.connect();
    assert!(main.broken().is_empty(), "{:?}", main.broken());
    until("all is settled", || {
        main.own("end", 100, &["x"]).unwrap().iter().for_each(|grant| main.complete(grant));
        let left: i64 =
            main.one("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
        (left == 0).then_some(())
    });
    let ids: Vec<String> = main.all("SELECT id FROM taskq.tasks");
    main.delete(&ids.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.merge_key"), 0);
}
