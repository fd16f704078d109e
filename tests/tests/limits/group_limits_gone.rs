//! Groups with limits whose last task goes: their places go with it.
//!
//! Why: places that stay behind are rows that no call ever takes away, one set for each tenant there has been. On wrong
//! code some are left, or the call waits for a transaction that has locked one.

use serde_json::json;
use taskq_tests::{Db, Session};

use crate::group_limits::{of_group, per_group};
use crate::{call, count, owned};

#[test]
fn deleting_a_group_forgets_what_was_set_and_leaves_nothing_behind() {
    let db = Db::new();
    let mut session = per_group(&db);
    call(&mut session, "set_group('a', max_concurrency => 1)");
    let held = session.own("w", 9, &["x"]).unwrap();
    held.iter().for_each(|grant| session.complete(grant));
    assert_eq!(count(&mut session, "delete_group('a')"), 10);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.slot WHERE group_id = 'a'"), 0);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.task_group"), 0);
    session.insert(of_group("x", "a", 5)).unwrap();
    assert_eq!(owned(&mut session, 9, &["x"]).iter().filter(|id| id.starts_with("xa")).count(), 2);
}

#[test]
fn many_groups_that_go_at_once_leave_no_places_behind() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_per_group => 1)");
    for n in 0..60 {
        let tasks = json!([{"id": n.to_string(), "action": "x", "group_id": format!("g{n}")}]);
        session.insert(tasks).unwrap();
    }
    session.own("w", 60, &["x"]).unwrap().iter().for_each(|grant| session.complete(grant));
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.slot"), 60);
    let ids: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    session.delete(&ids.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.slot"), 0);
}

#[test]
fn retention_takes_the_places_of_a_group_with_its_last_task() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_per_group => 2, retention => '0')");
    session.insert(of_group("x", "a", 3)).unwrap();
    while let Some(grant) = session.own("w", 1, &["x"]).unwrap().pop() {
        session.complete(&grant);
    }
    session.run("SELECT taskq.maintain()");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks"), 0);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.slot"), 0);
}

/// The slots of a group go with its last task, but for those that another session has locked just then: no call waits
/// for it.
#[test]
fn the_last_task_of_a_group_goes_also_while_one_of_its_slots_is_locked() {
    let (_db, [mut session, mut holder]) = Db::connected();
    call(&mut session, "set_group('g', max_concurrency => 3)");
    session
        .insert(["a", "b", "c"].iter().map(|id| json!({"id": id, "action": "x", "group_id": "g"})).collect())
        .unwrap();
    for grant in session.own("w", 3, &["x"]).unwrap() {
        session.complete(&grant);
    }
    let slots = |session: &mut Session| -> i64 {
        session.one("SELECT count(*) FROM taskq.slot WHERE group_id = 'g'")
    };
    assert_eq!(slots(&mut session), 3);
    holder.run("BEGIN; SELECT FROM taskq.slot WHERE group_id = 'g' LIMIT 1 FOR UPDATE");
    session.run("SET statement_timeout = '5 s'");
    call(&mut session, "delete_tasks('{a,b,c}')");
    assert_eq!(slots(&mut session), 1, "all but the one that is locked");
    holder.run("COMMIT");
}
