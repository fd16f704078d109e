//! Signals that are not counted yet: those of a prepared transaction, those behind the ones that an open transaction
//! holds up. The next call counts them, and what they free goes before what was there, if it is more urgent.
//!
//! A queue that looks at the first of them only, or leaves them to calls outside of transaction blocks, has tasks that
//! wait for nothing.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

/// A signal of a parent that is not counted, as a prepared transaction leaves it at its commit.
fn leave_uncounted(session: &mut Session, child: &str) {
    session.run(&format!(
        "UPDATE taskq.blocked SET remaining = remaining + 1 \
          WHERE task_no = (SELECT task_no FROM taskq.task WHERE id = '{child}'); \
         INSERT INTO taskq.countdown SELECT task_no, 0, 1, 0, 0, NULL, 0 FROM taskq.task WHERE id = '{child}'"
    ));
}

/// A child whose first parent has settled and whose second one's signal is not counted.
fn stranded(session: &mut Session, child: &str, priority: i32) {
    let (p, q) = (format!("p of {child}"), format!("q of {child}"));
    session
        .insert(json!([
            {"id": p, "action": "parent"}, {"id": q, "action": "parent"},
            {"id": child, "action": "child", "priority": priority, "depends_on": [p, q]},
        ]))
        .unwrap();
    session.perform("parent", "completed");
    leave_uncounted(session, child);
    // The second parent is settled, too, and its signal the one that is left.
    session.run(&format!(
        "UPDATE taskq.blocked SET remaining = remaining - 1 \
          WHERE task_no = (SELECT task_no FROM taskq.task WHERE id = '{child}')"
    ));
    session.run(
        "WITH gone AS (DELETE FROM taskq.run r USING taskq.task t, taskq.action a \
                        WHERE t.task_no = r.task_no AND a.action_no = t.action_no AND a.name = 'parent' RETURNING r.task_no, r.action_no) \
         INSERT INTO taskq.settled (task_no, expires_at, settled_at, tries, failures, dependencies, signals, action_no, grouped, code, cause) \
         SELECT task_no, 'infinity', now(), 1, 0, 0, 0, action_no, false, 'c', 'w' FROM gone",
    );
}

#[test]
#[ignore = "long"]
fn signals_behind_stuck_ones_are_counted_all_the_same() {
    let (_db, [mut holder, mut session]) = Db::connected();
    // One child with very many signals, and very many children with one signal: all held by an open transaction.
    const MANY: usize = 450;
    let children: Vec<String> = (0..MANY).map(|n| format!("stuck {n}")).collect();
    let mut tasks: Vec<Value> = children.iter().map(|id| json!({"id": id, "action": "stuck"})).collect();
    tasks.push(json!({"id": "first", "action": "first", "to_signal_after": children}));
    tasks.extend((0..MANY).map(|n| {
        json!({"id": format!("other {n}"), "action": "other", "to_signal_after": ["stuck 0", children[n]]})
    }));
    tasks.push(json!({"id": "never", "action": "never", "to_signal_after": children}));
    session.insert(Value::Array(tasks)).unwrap();
    let first = session.own_one("first");
    holder.run("BEGIN");
    holder.complete(&first);
    for _ in 0..MANY {
        session.perform("other", "completed");
    }
    let deferred: i64 = session.one("SELECT count(*) FROM taskq.countdown");
    assert!(deferred >= MANY as i64, "{deferred}");
    for round in 0..2 {
        let child = format!("child {round}");
        stranded(&mut session, &child, 0);
        if round == 0 {
            assert_eq!(session.own_one("child").task_id, child);
        } else {
            session.run("SELECT taskq.maintain()");
            assert_eq!(session.state(&child), "ready");
        }
    }
    holder.run("COMMIT");
}

/// The first call in a block has a worker count; then the task is the first.
#[test]
fn a_freed_task_of_high_priority_goes_before_a_backlog_in_transaction_blocks_too() {
    let (_db, [mut session]) = Db::connected();
    let backlog: Vec<Value> = (0..100).map(|_| json!({"action": "child"})).collect();
    session.insert(Value::Array(backlog)).unwrap();
    stranded(&mut session, "urgent", 100);
    session.run("BEGIN");
    session.own_one("child");
    session.run("COMMIT");
    taskq_tests::until("it is counted", || (session.state("urgent") != "blocked").then_some(()));
    session.run("BEGIN");
    assert_eq!(session.own_one("child").task_id, "urgent");
    session.run("COMMIT");
}
