//! What was held back for its workgroup, and comes back: whole, and in its old order.
//!
//! On wrong code a task keeps the delay that was ended long ago, or what came last is granted before what came first.

use serde_json::json;
use taskq_tests::Db;

use crate::{call, owned};

/// Three ways for a task that was held back to wait for another one: what it takes along is its own time, and not its workgroup's.
#[test]
fn a_task_that_gets_a_dependency_while_held_back_does_not_keep_the_delay() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "insert_task('p3', 'q')");
    assert_eq!(session.cancel(&["p3"]).unwrap(), 1);
    session
        .insert(json!([
            {"id": "t1", "action": "x", "workgroup": "w"}, {"id": "t2", "action": "x", "workgroup": "w"},
            {"id": "t3", "action": "x", "workgroup": "w", "depends_on": [{"id": "p3", "condition": "settled"}]},
            {"id": "late", "action": "x", "workgroup": "w", "delay": "1 day"},
            {"id": "p1", "action": "q"},
        ]))
        .unwrap();
    call(&mut session, "delay_workgroup('w', '1 hour')");
    assert!(owned(&mut session, 9, &["x"]).is_empty(), "all are held back");
    call(&mut session, "add_dependencies('{p1,p1}', '{t1,late}')");
    call(&mut session, "insert_task('p2', 'q', to_signal_after => '{t2}')");
    call(&mut session, "retry_tasks('{p3}')");
    for task in ["t1", "t2", "t3", "late"] {
        assert_eq!(session.state(task), "blocked", "{task}");
    }
    for parent in ["p1", "p2", "p3"] {
        call(&mut session, &format!("complete_task('{parent}')"));
    }
    // Held back once more, by who asks for them.
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    call(&mut session, "delay_workgroup('w', '0')");
    let mut all = owned(&mut session, 9, &["x"]);
    all.sort();
    assert_eq!(all, ["t1", "t2", "t3"]);
    assert_eq!(session.state("late"), "scheduled");
}

/// More than one look brings back, and by another session than the one that ends the delay, so that some are due and others not yet
/// taken out. Round after round, since the table has room in its middle then.
#[test]
fn what_was_held_back_comes_back_in_its_old_order_however_much_it_is() {
    let (_db, [mut operator, mut worker]) = Db::connected();
    // The database's worker brings parts back beside the calls, each with places of its own at the end.
    worker.run("SET taskq.background_worker = off");
    operator.run("SET taskq.background_worker = off");
    for round in 0..4 {
        call(&mut operator, &format!("delay_workgroup('w{round}', '1 hour')"));
        operator.run(&format!(
            "SELECT count(*) FROM taskq.insert_many('x', (SELECT array_agg(n::text ORDER BY n) FROM generate_series(1, 900) AS n), \
                                                    workgroup => 'w{round}')"
        ));
        assert!(owned(&mut worker, 1, &["x"]).is_empty(), "all of them are held back");
        call(&mut operator, &format!("delay_workgroup('w{round}', '0')"));
        let mut bodies: Vec<i32> = Vec::new();
        while bodies.len() < 900 {
            let some: Vec<i32> = worker.all("SELECT body::int FROM taskq.own_tasks('w', 50, '{x}')");
            assert!(!some.is_empty(), "round {round}: {} came back", bodies.len());
            bodies.extend(some);
        }
        assert!(bodies.is_sorted(), "round {round}: {bodies:?}");
    }
}

/// Where it stood, and not when it was inserted: one that was given back, or got another priority for a while, stood behind.
#[test]
fn what_is_held_back_keeps_its_place_among_its_like() {
    for held_by_one_claim in [true, false] {
        let (_db, [mut session]) = Db::connected();
        for id in ["a", "b", "c", "d"] {
            session.insert(json!([{"id": id, "action": "x", "workgroup": "w"}])).unwrap();
        }
        let a = session.own_one("x");
        assert_eq!(a.task_id, "a");
        session
            .query("SELECT taskq.return_task('a', $1, 'pending', retry_after => '0')", &[&a.token])
            .unwrap();
        call(&mut session, "update_tasks('{b}', priority => 1)");
        call(&mut session, "update_tasks('{b}', priority => 0)");
        call(&mut session, "delay_workgroup('w', '1 hour')");
        let most = if held_by_one_claim { 9 } else { 1 };
        assert!(owned(&mut session, most, &["x"]).is_empty());
        call(&mut session, "delay_workgroup('w', '0')");
        assert_eq!(owned(&mut session, 9, &["x"]), ["c", "d", "a", "b"]);
    }
}

/// What is held back is not ready: it does not ride on a task that is granted with its key, whether a claim has met it
/// or not.
#[test]
fn what_is_held_back_does_not_ride() {
    for met_before in [false, true] {
        let (_db, [mut session]) = Db::with_tasks(json!([
            {"id": "held", "action": "x", "merge_key": "k", "workgroup": "w"},
            {"id": "rider", "action": "x", "merge_key": "k"}, {"id": "free", "action": "x", "merge_key": "k", "workgroup": "v"},
        ]));
        call(&mut session, "delay_workgroup('w', '1 hour')");
        if !met_before {
            // The rider is met first.
            call(&mut session, "update_tasks('{rider}', priority => 1)");
        }
        let leader = session.own_one("x");
        assert_eq!(leader.task_id, "rider");
        assert_eq!(session.state("held"), "scheduled");
        let rides = "SELECT array_agg(id ORDER BY id) FROM taskq.tasks WHERE merged_into IS NOT NULL";
        assert_eq!(session.one::<Vec<String>>(rides), ["free"]);
        session.complete(&leader);
        assert_eq!(session.state("held"), "scheduled");
        assert!(owned(&mut session, 9, &["x"]).is_empty());
        call(&mut session, "delay_workgroup('w', '0')");
        assert_eq!(owned(&mut session, 9, &["x"]), ["held"]);
    }
}
