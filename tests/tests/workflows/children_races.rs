//! Children under concurrency, on real connections: siblings of the same dependents returned in overlapping transactions,
//! dependents inserted while the parent is returned, trees that many workers grow at once with rollbacks. What goes wrong
//! where the dependents are not held: one is freed before it learns of the child, or two returns wait for each other.

use serde_json::{Value, json};
use taskq_tests::{Background, Db, Grant, Progress, Session, until};

use super::{hold, states};

/// Two parents in progress, and two dependents of both.
fn siblings(session: &mut Session) -> (Grant, Grant) {
    session
        .insert(json!([
            {"id": "p", "action": "parent"}, {"id": "q", "action": "parent"},
            {"id": "d", "action": "dependent", "depends_on": ["p", "q"]},
            {"id": "e", "action": "dependent", "depends_on": ["q", {"id": "p", "condition": "settled"}]},
        ]))
        .unwrap();
    let mut held = hold(session, "parent").into_iter();
    (held.next().unwrap(), held.next().unwrap())
}

fn blocking_child(id: &str) -> String {
    format!("children_block => true, children => '[{{\"id\": \"{id}\", \"action\": \"child\"}}]'")
}

fn give_in_background(session: Session, grant: Grant, arguments: String) -> Background<()> {
    session.background(move |session| {
        session.give_with(&grant.task_id, grant.token, "completed", &arguments).expect("no deadlock");
    })
}

#[test]
fn siblings_returned_in_overlapping_transactions_both_hold_back_their_dependents() {
    // With a child each, or one of them without; and the first transaction commits or rolls back.
    for (p_child, q_child) in [(true, true), (true, false), (false, true)] {
        for commit in [true, false] {
            let db = Db::new();
            let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
            let (p, q) = siblings(&mut watcher);
            let arguments =
                |with: bool, id: &str| if with { blocking_child(id) } else { "status => NULL".to_owned() };
            first.run("BEGIN");
            first.give_with("p", p.token, "completed", &arguments(p_child, "p child")).unwrap();
            let second = give_in_background(second, q, arguments(q_child, "q child"));
            second.settle_down(&mut watcher);
            first.run(if commit { "COMMIT" } else { "ROLLBACK" });
            second.join();
            if !commit {
                assert_eq!(states(&mut watcher, ["p", "p child"]), ["in-progress", "gone"]);
                first.give_with("p", p.token, "completed", &arguments(p_child, "p child")).unwrap();
            }
            for (with, id) in [(p_child, "p child"), (q_child, "q child")] {
                if with {
                    let case = format!("{id} of {p_child} {q_child}, commit: {commit}");
                    assert_eq!(states(&mut watcher, ["d", "e"]), ["blocked"; 2], "{case}");
                    watcher.run(&format!("SELECT taskq.complete_task('{id}')"));
                }
            }
            let children = i32::from(p_child) + i32::from(q_child);
            for id in ["d", "e"] {
                let task = watcher.task(id).unwrap();
                assert_eq!((task.state.as_str(), task.num_signals), ("ready", 2 + children));
            }
        }
    }
}

/// It has the parent by the time that it comes to what the child waits for, which another transaction has. So it begins
/// anew, and waits for both in their order.
#[test]
fn a_return_does_not_wait_for_a_scheduled_task_with_the_parent_in_its_hands() {
    let db = Db::new();
    let (mut open, second, mut watcher) = (db.connect(), db.connect(), db.connect());
    let tasks =
        json!([{"id": "s", "action": "x", "not_before": "2100-01-01"}, {"id": "p", "action": "parent"}]);
    watcher.insert(tasks).unwrap();
    let parent = hold(&mut watcher, "parent").remove(0);
    open.run("BEGIN");
    open.run("SELECT taskq.cancel_tasks('{s}')");
    let child = json!([{"id": "c", "action": "child", "depends_on": [{"id": "s", "condition": "settled"}]}]);
    let call = give_in_background(second, parent, format!("children => '{child}'"));
    assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
    open.run("SELECT FROM taskq.run FOR UPDATE NOWAIT");
    open.run("COMMIT");
    call.join();
    assert_eq!(states(&mut watcher, ["p", "c"]), ["completed", "ready"]);
}

#[test]
fn a_dependent_inserted_while_its_parent_is_returned_waits_for_the_child_too() {
    let db = Db::new();
    let (mut inserter, returner, mut watcher) = (db.connect(), db.connect(), db.connect());
    let (p, _) = siblings(&mut watcher);
    inserter.run("BEGIN");
    inserter.insert(json!([{"id": "late", "action": "late", "depends_on": ["p"]}])).unwrap();
    let call = give_in_background(returner, p, blocking_child("c"));
    assert_eq!(call.settle_down(&mut watcher), Progress::Blocked, "the return waits for the insert");
    inserter.run("COMMIT");
    call.join();
    assert_eq!(states(&mut watcher, ["late", "c"]), ["blocked", "ready"]);
    watcher.perform("child", "completed");
    assert_eq!(watcher.state("late"), "ready");
}

#[test]
fn a_dependent_inserted_after_an_open_return_does_not_wait_for_the_child() {
    // It was not there when the parent ended: what it named is the parent, and that is over.
    let db = Db::new();
    let (mut returner, inserter, mut watcher) = (db.connect(), db.connect(), db.connect());
    let (p, _) = siblings(&mut watcher);
    returner.run("BEGIN");
    returner.give_with("p", p.token, "completed", &blocking_child("c")).unwrap();
    let call = inserter.background(|session| {
        session.insert(json!([{"id": "late", "action": "late", "depends_on": ["p"]}])).unwrap();
    });
    call.settle_down(&mut watcher);
    returner.run("COMMIT");
    call.join();
    assert_eq!(states(&mut watcher, ["late", "d"]), ["ready", "blocked"]);
}

#[test]
fn a_dependent_that_is_cancelled_while_its_parent_brings_children_stays_aborted() {
    for cancel_first in [true, false] {
        let db = Db::new();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        let (p, q) = siblings(&mut watcher);
        first.run("BEGIN");
        let call = if cancel_first {
            first.cancel(&["d"]).unwrap();
            give_in_background(second, p, blocking_child("c"))
        } else {
            first.give_with("p", p.token, "completed", &blocking_child("c")).unwrap();
            second.background(|session| assert_eq!(session.cancel(&["d"]).unwrap(), 1))
        };
        call.settle_down(&mut watcher);
        first.run("COMMIT");
        call.join();
        assert_eq!(states(&mut watcher, ["d", "e", "c"]), ["aborted", "blocked", "ready"]);
        watcher.complete(&q);
        watcher.perform("child", "completed");
        assert_eq!(states(&mut watcher, ["d", "e"]), ["aborted", "ready"]);
    }
}

#[test]
fn a_tree_grown_by_many_workers_with_rollbacks_frees_its_end_once_after_all() {
    // Each task of depth below 7 has two children; `end` waits for the root, and so for the whole tree.
    const WORKERS: usize = 6;
    const TASKS: i64 = 2_i64.pow(8) - 1;
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "t", "action": "grow"}, {"id": "end", "action": "end", "depends_on": ["t"]},
                       {"id": "mark", "action": "mark", "spontaneous": true, "depends_on": ["t"]}]))
        .unwrap();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            db.connect().background(move |session| {
                let mut turn = worker;
                loop {
                    let held = session.own_with("w", 3, &["grow"], "wait => '2 seconds'").unwrap();
                    if held.is_empty() && session.state("mark") == "completed" {
                        return;
                    }
                    for grant in held {
                        turn += 1;
                        grow(session, &grant, turn % 3 == 0);
                    }
                }
            })
        })
        .collect();
    // A sleeping call may come back early with nothing, when it has counted signals that others should see.
    let end = until("the end is granted", || {
        session.own_with("w", 1, &["end"], "wait => '5 seconds'").unwrap().pop()
    });
    let (grown, open): (i64, i64) = {
        let row = session
            .query_one(
                "SELECT count(*), count(*) FILTER (WHERE state <> 'completed') FROM taskq.tasks WHERE action = 'grow'",
                &[],
            )
            .unwrap();
        (row.get(0), row.get(1))
    };
    assert_eq!((end.num_failures, grown, open), (0, TASKS, 0), "the end is free after all of the tree");
    workers.into_iter().for_each(|worker| drop(worker.join()));
    assert_eq!(session.task("end").unwrap().total_dependencies, TASKS as i32);
}

/// Returns a node of the tree with its children; first in vain, if so wished.
fn grow(session: &mut Session, grant: &Grant, rolled_back: bool) {
    let id = &grant.task_id;
    let children: Vec<Value> = match id.len() {
        1..8 => {
            ["l", "r"].iter().map(|side| json!({"id": format!("{id}{side}"), "action": "grow"})).collect()
        }
        _ => Vec::new(),
    };
    let arguments = format!("children_block => true, children => '{}'", json!(children));
    if rolled_back {
        session.run("BEGIN; SAVEPOINT s");
        session.give_with(id, grant.token, "completed", &arguments).unwrap();
        session.run("ROLLBACK TO s");
        session.give_with(id, grant.token, "completed", &arguments).unwrap();
        session.run("COMMIT");
    } else {
        session.give_with(id, grant.token, "completed", &arguments).unwrap();
    }
}

#[test]
fn returns_that_share_dependents_in_batches_never_deadlock() {
    const PARENTS: usize = 60;
    let db = Db::new();
    let mut session = db.connect();
    let mut tasks: Vec<Value> =
        (0..8).map(|i| json!({"id": format!("d{i}"), "action": "dependent"})).collect();
    for i in 0..PARENTS {
        let targets: Vec<String> = [0, 3, 5].iter().map(|step| format!("d{}", (i * 3 + step) % 8)).collect();
        tasks.push(json!({"id": format!("p{i}"), "action": "parent", "to_signal_after": targets}));
    }
    session.insert(json!(tasks)).unwrap();
    let held = session.own("w", PARENTS as i32, &["parent"]).unwrap();
    let workers: Vec<_> = held
        .chunks(PARENTS / 4)
        .map(|part| {
            let mut part = part.to_vec();
            db.connect().background(move |session| {
                part.reverse();
                for grant in part {
                    let child = blocking_child(&format!("{} child", grant.task_id));
                    session.give_with(&grant.task_id, grant.token, "completed", &child).expect("no deadlock");
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| drop(worker.join()));
    assert_eq!(session.task("d0").unwrap().state, "blocked");
    super::work_off(&mut session, &["child"]);
    assert_eq!(hold(&mut session, "dependent").len(), 8);
}
