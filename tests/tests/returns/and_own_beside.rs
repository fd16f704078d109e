//! `return_and_own_tasks` beside others: workers that live on nothing else, a transaction that holds a row, a snapshot
//! that is held for long, deadlines.

use std::collections::HashMap;
use std::thread;

use serde_json::{Value, json};
use taskq_tests::{Db, Progress, Session, until};
use uuid::Uuid;

use super::and_own::{Line, call, granted};

/// Chains of tasks, which only go on by what is returned; six workers of which each returns what it has with the call
/// that takes the next. Each task is performed once, and the queue is empty when no worker has anything.
#[test]
fn workers_that_live_on_it_perform_everything_once() {
    const CHAINS: usize = 60;
    const LENGTH: usize = 20;
    let (db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('x', max_concurrency => 40)");
    let tasks: Vec<Value> = (0..CHAINS)
        .flat_map(|chain| {
            (0..LENGTH).map(move |n| {
                let after: Vec<String> = (n > 0).then(|| format!("{chain}-{}", n - 1)).into_iter().collect();
                let key = (n % 7 == 3).then(|| format!("k{chain}"));
                json!({"id": format!("{chain}-{n}"), "action": "x", "depends_on": after, "merge_key": key})
            })
        })
        .collect();
    session.insert(json!(tasks)).unwrap();
    let worker = |mut session: Session, batch: i32| {
        let mut performed = Vec::new();
        let mut held: Vec<(String, Uuid)> = Vec::new();
        until("everything is performed", || {
            let returns: Vec<Value> =
                held.iter().map(|(id, token)| json!({"task_id": id, "token": token})).collect();
            held = granted(&mut session, &json!(returns), batch, &["x"]);
            performed.extend(held.iter().map(|(id, _)| id.clone()));
            let left: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'");
            (left == 0).then_some(())
        });
        performed
    };
    let workers: Vec<_> = [1, 1, 3, 7, 20, 50]
        .into_iter()
        .map(|batch| {
            let session = db.connect();
            thread::spawn(move || worker(session, batch))
        })
        .collect();
    let mut times: HashMap<String, usize> = HashMap::new();
    for worker in workers {
        for id in worker.join().unwrap() {
            *times.entry(id).or_default() += 1;
        }
    }
    assert_eq!(times.len(), CHAINS * LENGTH);
    assert!(times.values().all(|times| *times == 1), "{times:?}");
}

/// A task that another transaction holds back is waited for by the return, as it is by `return_tasks`; one that another is
/// granted is passed over.
#[test]
fn the_return_waits_for_its_own_task_and_the_claim_for_no_other() {
    let (_db, [mut session, mut other, mut third]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let a = session.own_one("x");
    session.insert(json!([{"id": "b", "action": "x"}, {"id": "c", "action": "x"}])).unwrap();
    other.run("BEGIN");
    other.insert(json!([{"id": "after", "action": "y", "depends_on": ["a"]}])).unwrap();
    let b = other.own_one("x");
    assert_eq!(b.task_id, "b");
    // Nothing of what the other has is in the way of one who has nothing to return.
    let c = granted(&mut third, &json!([]), 5, &["x"]);
    assert_eq!(c.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["c"]);
    let returns = json!([{"task_id": "a", "token": a.token}]);
    let waiting = session.background(move |session| granted(session, &returns, 5, &["x", "y"]));
    assert_eq!(waiting.settle_down(&mut third), Progress::Blocked);
    other.run("COMMIT");
    let (_, grants) = waiting.join();
    assert_eq!(grants.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["after"]);
}

/// The last parents of a task, returned at the same moment: one of the calls, or the next one, owns the child.
#[test]
fn the_last_parents_at_the_same_moment() {
    let db = Db::new();
    for round in 0..20 {
        let parents: Vec<String> = (0..4).map(|n| format!("p{round}-{n}")).collect();
        let mut tasks: Vec<Value> = parents.iter().map(|id| json!({"id": id, "action": "x"})).collect();
        tasks.push(json!({"id": format!("c{round}"), "action": "y", "depends_on": parents}));
        db.connect().insert(json!(tasks)).unwrap();
        let calls: Vec<_> = (0..4)
            .map(|_| {
                let mut session = db.connect();
                let parent = session.own_one("x");
                session.background(move |session| {
                    granted(session, &json!([{"task_id": parent.task_id, "token": parent.token}]), 1, &["y"])
                })
            })
            .collect();
        let mut grants: Vec<(String, Uuid)> = calls.into_iter().flat_map(|call| call.join().1).collect();
        let mut session = db.connect();
        if grants.is_empty() {
            grants = granted(&mut session, &json!([]), 1, &["y"]);
        }
        let [(id, token)] = &grants[..] else { panic!("round {round}: {grants:?}") };
        assert_eq!(*id, format!("c{round}"));
        granted(&mut session, &json!([{"task_id": id, "token": token}]), 0, &["y"]);
    }
}

/// A worker that knows no other call, while a snapshot is held: its claims begin at low-water marks like those of
/// `own_tasks`. Without the look before the returns they would walk over all that it has ever been granted: 750 pages
/// instead of 75.
#[test]
fn a_long_snapshot_makes_it_no_slower() {
    let (_db, [mut session, mut reader]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('action', 'x')) FROM generate_series(1, 10000)))",
    );
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let _: i64 = reader.one("SELECT count(*) FROM taskq.run");
    let mut held = granted(&mut session, &json!([]), 1, &["x"]).remove(0);
    let mut work = |session: &mut Session, times: usize| {
        for _ in 0..times {
            held = granted(session, &json!([{"task_id": held.0, "token": held.1}]), 1, &["x"]).remove(0);
        }
        pages(session, &held)
    };
    let first = work(&mut session, 50);
    work(&mut session, 3_000);
    // Marks stay where they are while others, of any test, have a transaction open, and are forgotten now and then.
    until(&format!("a call reads hardly more than the {first} pages of the first"), || {
        (work(&mut session, 1) <= first + 100).then_some(())
    });
}

/// How many pages such a call reads, which is rolled back.
fn pages(session: &mut Session, (id, token): &(String, Uuid)) -> i64 {
    session.run("BEGIN");
    let pages = session.pages(&format!(
        "SELECT * FROM taskq.return_and_own_tasks('w', ARRAY['{id}'], ARRAY['{token}'::uuid], 1, '{{x}}')"
    ));
    session.run("ROLLBACK");
    pages
}

/// Deadlines pass while a worker is away. A worker that returns late in one call with taking the next finds out, and
/// what was taken from it is not returned twice.
#[test]
fn a_task_that_was_taken_over_is_refused_and_the_rest_goes_on() {
    let (_db, [mut late, mut other]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "z"}]),
    );
    let held = late.own_with("late", 2, &["x"], "lease => '1 millisecond'").unwrap();
    let mut taken = Vec::new();
    until("one deadline has passed", || {
        taken = granted(&mut other, &json!([]), 1, &["x"]);
        (!taken.is_empty()).then_some(())
    });
    assert_eq!(taken[0].0, "a");
    let returns: Value = held.iter().map(|g| json!({"task_id": g.task_id, "token": g.token})).collect();
    let lines = call(&mut late, &returns, 1, &["z"]).unwrap();
    assert_eq!(lines[0], Line::Refused(Some("a".to_owned()), "TQ001".to_owned()));
    assert!(matches!(&lines[1..], [Line::Granted(id, _)] if id == "c"), "{lines:?}");
    assert_eq!(["a", "b"].map(|id| other.state(id)), ["in-progress", "completed"]);
}
