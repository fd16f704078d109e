//! Children under concurrency, on real connections: siblings of the same dependents returned in overlapping transactions,
//! dependents inserted while the parent is returned, trees that many workers grow at once with rollbacks. What goes wrong
//! where the dependents are not held: one is freed before it learns of the child, or two returns wait for each other.

use serde_json::{Value, json};
use taskq_tests::{Background, Db, Grant, Progress, Session, until};

use super::{hold, states};

fn give_in_background(session: Session, grant: Grant, arguments: String) -> Background<()> {
    session.background(move |session| {
        session.give_with(&grant.task_id, grant.token, "completed", &arguments).expect("no deadlock");
    })
}

/// It has the parent by the time that it comes to what the child waits for, which another transaction has. So it begins
/// anew, and waits for both in their order.
#[test]
fn a_return_does_not_wait_for_a_scheduled_task_with_the_parent_in_its_hands() {
    let (_db, [mut open, second, mut watcher]) = Db::connected();
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
fn a_tree_grown_by_many_workers_with_rollbacks_frees_its_end_once_after_all() {
    // Each task of depth below 7 has two children; `end` waits for the root, and so for the whole tree.
    const WORKERS: usize = 6;
    const TASKS: i64 = 2_i64.pow(8) - 1;
    let (db, [mut session]) = Db::with_tasks(
        json!([{"id": "t", "action": "grow"}, {"id": "end", "action": "end", "depends_on": ["t"]},
               {"id": "mark", "action": "mark", "spontaneous": true, "depends_on": ["t"]}]),
    );
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
