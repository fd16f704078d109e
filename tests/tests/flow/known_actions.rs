//! What is set for actions is kept by each backend until it is changed, and a change counts at once.
//!
//! Why: a worker that goes by what was set a moment ago performs tasks of a paused action, or finds none of an action that
//! it has heard of before it had any. On wrong code a worker that has called before is granted what it should not be, or
//! misses what is there; that of a rolled-back change it goes on by what never was.

use serde_json::json;
use taskq_tests::{Db, Session, until};

use crate::call;

/// How many tasks of action `x` a worker is granted now, who gives them back at once.
fn granted(worker: &mut Session) -> usize {
    let grants = worker.own("w", 9, &["x"]).unwrap();
    for grant in &grants {
        worker.give_with(&grant.task_id, grant.token, "pending", "retry_after => '0'").unwrap();
    }
    grants.len()
}

fn with_a_task() -> (Db, Session, Session) {
    let (db, [boss, mut worker]) =
        Db::with_tasks(json!([{"id": "a", "action": "x", "max_tries": 1_000_000}]));
    assert_eq!(granted(&mut worker), 1);
    (db, boss, worker)
}

#[test]
fn a_change_counts_for_the_next_call_of_any_session() {
    let (_db, mut boss, mut worker) = with_a_task();
    for _ in 0..100 {
        call(&mut boss, "pause_action('x')");
        assert_eq!(granted(&mut worker), 0);
        call(&mut boss, "resume_action('x')");
        assert_eq!(granted(&mut worker), 1);
    }
}

#[test]
fn also_for_one_inside_a_transaction_block() {
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        let (_db, mut boss, mut worker) = with_a_task();
        worker.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        worker.own("w", 1, &["none"]).unwrap();
        call(&mut boss, "pause_action('x')");
        assert_eq!(worker.own("w", 9, &["x"]).unwrap().len(), 0, "{level}");
        worker.run("ROLLBACK");
    }
}

#[test]
fn ones_own_change_counts_at_once_and_not_after_a_rollback() {
    let (_db, _boss, mut worker) = with_a_task();
    worker.run("BEGIN");
    call(&mut worker, "pause_action('x')");
    assert_eq!(worker.own("w", 9, &["x"]).unwrap().len(), 0);
    worker.run("SAVEPOINT s");
    call(&mut worker, "resume_action('x')");
    assert_eq!(worker.own("w", 9, &["x"]).unwrap().len(), 1);
    worker.run("ROLLBACK TO s");
    assert_eq!(worker.own("w", 9, &["x"]).unwrap().len(), 0);
    worker.run("ROLLBACK");
    assert_eq!(granted(&mut worker), 1);
}

#[test]
fn within_one_statement_too() {
    let (_db, _boss, mut worker) = with_a_task();
    worker.run(
        "CREATE FUNCTION pg_temp.granted() RETURNS text LANGUAGE plpgsql AS $$
         DECLARE before bigint; after bigint;
         BEGIN
             SELECT count(*) INTO before FROM taskq.own_tasks('w', 1, '{x}');
             PERFORM taskq.pause_action('x');
             PERFORM taskq.insert_task('b', 'x', '');
             SELECT count(*) INTO after FROM taskq.own_tasks('w', 1, '{x}');
             RETURN before || ', then ' || after;
         END $$",
    );
    assert_eq!(worker.one::<String>("SELECT pg_temp.granted()"), "1, then 0");
}

#[test]
fn no_session_goes_by_a_change_that_is_not_committed() {
    let (_db, mut boss, mut worker) = with_a_task();
    boss.run("BEGIN");
    call(&mut boss, "pause_action('x')");
    assert_eq!(granted(&mut worker), 1);
    boss.run("ROLLBACK");
    assert_eq!(granted(&mut worker), 1);
    boss.run("BEGIN");
    call(&mut boss, "pause_action('x')");
    boss.run("PREPARE TRANSACTION 'pause'");
    assert_eq!((granted(&mut worker), granted(&mut boss)), (1, 1));
    boss.run("COMMIT PREPARED 'pause'");
    assert_eq!((granted(&mut worker), granted(&mut boss)), (0, 0));
}

#[test]
fn a_name_that_is_new_to_all() {
    let (_db, [mut boss, mut worker]) = Db::connected();
    for i in 0..50 {
        let name = format!("new-{i}");
        assert_eq!(worker.own("w", 1, &[&name]).unwrap().len(), 0);
        boss.insert(json!([{"id": name, "action": name}])).unwrap();
        assert_eq!(worker.own("w", 1, &[&name]).unwrap().len(), 1);
    }
}

/// Two transactions that use a name for the first time give it two numbers, and one of them may be rolled back.
#[test]
fn a_name_with_two_numbers() {
    let (_db, [mut one, mut other, mut worker]) = Db::connected();
    one.run("BEGIN");
    one.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    other.insert(json!([{"id": "b", "action": "x"}])).unwrap();
    assert_eq!(worker.own("w", 9, &["x"]).unwrap().len(), 1);
    one.run("COMMIT");
    assert_eq!(worker.own("w", 9, &["x"]).unwrap().len(), 1);
    one.run("BEGIN");
    one.insert(json!([{"id": "c", "action": "y"}])).unwrap();
    one.run("ROLLBACK");
    one.insert(json!([{"id": "c", "action": "y"}])).unwrap();
    assert_eq!(worker.own("w", 9, &["y"]).unwrap().len(), 1);
}

/// What is written into the tables directly, in a restore say, is not announced.
#[test]
fn a_change_that_was_not_announced_counts_after_a_second() {
    let (_db, mut boss, mut worker) = with_a_task();
    boss.run("INSERT INTO taskq.action_setting (name, paused) VALUES ('x', true)");
    until("the worker has noticed", || (granted(&mut worker) == 0).then_some(()));
}

#[test]
fn what_is_set_for_ends_counts_as_well() {
    let (_db, mut boss, mut worker) = with_a_task();
    let mut kept = |boss: &mut Session, id: &str| -> bool {
        boss.insert(json!([{"id": id, "action": "x"}])).unwrap();
        for grant in worker.own("w", 9, &["x"]).unwrap() {
            worker.complete(&grant);
        }
        boss.one(&format!(
            "SELECT s.expires_at > taskq.clock() + interval '1 day' \
               FROM taskq.settled AS s JOIN taskq.task AS t USING (task_no) WHERE t.id = '{id}'"
        ))
    };
    call(&mut boss, "set_action('x', retention => '1 hour')");
    assert!(!kept(&mut boss, "short"));
    call(&mut boss, "set_action('x', retention => '1 year')");
    assert!(kept(&mut boss, "long"));
    call(&mut boss, "set_action('x', retention => '1 hour')");
    assert!(!kept(&mut boss, "short again"));
}

/// Numbers of actions are used up by what is rolled back as well. On wrong code one role that goes on with that keeps all others from
/// ever naming a new action.
#[test]
fn the_numbers_of_actions_do_not_come_to_an_end() {
    let (_db, mut boss, mut worker) = with_a_task();
    boss.run("SELECT taskq.insert_task('b', 'y'), setval('taskq.action_no_seq', 2147483647)");
    boss.run("BEGIN; SELECT taskq.insert_task(NULL, 'undone'); ROLLBACK");
    boss.run("SELECT setval('taskq.action_no_seq', 2147483647)");
    boss.run("SELECT taskq.insert_task('c', 'z'), taskq.insert_task('d', 'zz')");
    for action in ["x", "y", "z", "zz"] {
        assert_eq!(worker.own("w", 9, &[action]).unwrap().len(), 1, "{action}");
    }
    assert_eq!(boss.one::<i64>("SELECT count(DISTINCT action_no) FROM taskq.action"), 4);
}
