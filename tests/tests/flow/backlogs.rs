//! Backlogs that may not run are moved out of the way in one go, and come back when the reason ends.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use crate::{call, owned};

const BACKLOG: usize = 20_000;

/// A backlog of action x with some keys set, and a task behind it that may run.
///
/// Only the calls bring it back: with the worker beside them each has places at the end for its part, and the order is that of the parts.
fn insert(session: &mut Session, keys: &Value) {
    session.run("SET taskq.background_worker = off");
    let tasks = "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(
                     $1::jsonb || jsonb_build_object('id', to_char(n, 'FM00000'), 'action', 'x')) FROM generate_series(1, $2::integer) AS n))";
    session.query_one(tasks, &[keys, &(BACKLOG as i32)]).unwrap();
    session.insert(json!([{"id": "last", "action": "x"}])).unwrap();
}

fn count(session: &mut Session, table: &str) -> usize {
    session.one::<i64>(&format!("SELECT count(*) FROM taskq.{table}")) as usize
}

/// Claims of one find the task behind the backlog; all others are moved by very few of them.
fn finds_the_last(session: &mut Session, table: &str) {
    let granted: Vec<String> = (0..3).flat_map(|_| owned(session, 1, &["x"])).collect();
    assert_eq!(granted, ["last"]);
    assert_eq!(count(session, table), BACKLOG);
}

fn comes_back_in_order(session: &mut Session) {
    // A call makes a part of what is due ready.
    let back: Vec<String> = (0..3).flat_map(|_| owned(session, 2 * BACKLOG as i32, &["x"])).collect();
    assert_eq!(back.len(), BACKLOG);
    assert!(back.is_sorted(), "in the old order");
    assert!(session.broken().is_empty());
}

#[test]
fn of_a_paused_group_whose_turn_it_is() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', fair => true)");
    insert(&mut session, &json!({"group_id": "g"}));
    call(&mut session, "pause_group('g')");
    finds_the_last(&mut session, "parked");
    call(&mut session, "resume_group('g')");
    comes_back_in_order(&mut session);
}

#[test]
fn of_a_workgroup_that_is_held_back() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &json!({"workgroup": "w"}));
    call(&mut session, "delay_workgroup('w', '1 hour')");
    finds_the_last(&mut session, "scheduled");
    call(&mut session, "delay_workgroup('w', '0')");
    comes_back_in_order(&mut session);
}

#[test]
fn behind_a_busy_key() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "leader", "action": "x", "merge_key": "k"}]));
    let leader = session.own_one("x");
    insert(&mut session, &json!({"merge_key": "k"}));
    finds_the_last(&mut session, "parked");
    session.complete(&leader);
    // They share the fate of the first of them now.
    assert_eq!(owned(&mut session, 2 * BACKLOG as i32, &["x"]), ["00001"]);
    assert_eq!(count(&mut session, "parked"), BACKLOG - 1);
}
