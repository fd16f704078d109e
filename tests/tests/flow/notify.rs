//! `notify`: an action that is set to it sends NOTIFY on its channel when a task of it is ready, others do not.
//!
//! Why: clients that LISTEN instead of polling hang when one way of becoming ready is forgotten; NOTIFY takes a lock at
//! commit, so no session that did not ask may pay for it. On wrong code a notification is missing, or there is one.

use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use serde_json::json;
use taskq_tests::{Db, Session};

use crate::{at, call};

/// The channels on which something came since the last look. A statement of its own makes the server deliver first.
fn heard(listener: &mut Session) -> usize {
    listener.run("SELECT 1");
    let mut notifications = listener.notifications();
    let mut iterator = notifications.timeout_iter(Duration::from_millis(50));
    let mut count = 0;
    while let Some(notification) = iterator.next().unwrap() {
        assert!(notification.payload().contains("\"x\""), "{}", notification.payload());
        count += 1;
    }
    count
}

fn listening(db: &Db) -> (Session, Session) {
    let (mut listener, mut session) = (db.connect(), db.connect());
    let channels: Vec<String> =
        session.all("SELECT taskq.action_channel(a) FROM unnest('{x,quiet}'::text[]) a");
    for channel in channels {
        listener.run(&format!("LISTEN {channel}"));
    }
    call(&mut session, "set_action('x', notify => true)");
    (listener, session)
}

#[test]
fn an_insert_a_give_back_and_a_freed_task_notify_and_a_blocked_one_does_not() {
    let db = Db::new();
    let (mut listener, mut session) = listening(&db);
    session.insert(json!([{"id": "gate", "action": "quiet"}, {"id": "freed", "action": "x", "depends_on": ["gate"]}])).unwrap();
    assert_eq!(heard(&mut listener), 0, "blocked");
    session.perform("quiet", "completed");
    assert_eq!(heard(&mut listener), 1, "freed");
    let grant = session.own_one("x");
    assert_eq!(heard(&mut listener), 0, "granted");
    session.give("freed", grant.token, "pending").unwrap();
    assert_eq!(heard(&mut listener), 1, "given back");
    session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    assert_eq!(heard(&mut listener), 1, "one for a transaction");
    session.run("BEGIN");
    session.insert(json!([{"id": "c", "action": "x"}])).unwrap();
    session.run("ROLLBACK");
    assert_eq!(heard(&mut listener), 0, "rolled back");
}

#[test]
fn due_tasks_passed_deadlines_and_resumed_groups_notify() {
    let db = Db::new();
    let (mut listener, mut session) = listening(&db);
    at(&mut session, 0.0);
    session.insert(json!([{"id": "later", "action": "x", "delay": "1 hour"}])).unwrap();
    assert_eq!(heard(&mut listener), 0, "scheduled");
    at(&mut session, 3601.0);
    call(&mut session, "maintain()");
    assert_eq!(heard(&mut listener), 1, "due");
    session.own_one_with("x", "lease => '1 minute'");
    at(&mut session, 3700.0);
    call(&mut session, "maintain()");
    assert_eq!(heard(&mut listener), 1, "its deadline has passed");
    session.insert(json!([{"id": "g", "action": "x", "group_id": "g", "priority": 5}])).unwrap();
    assert_eq!(heard(&mut listener), 1);
    call(&mut session, "pause_group('g')");
    assert_eq!(session.own_one("x").task_id, "later");
    call(&mut session, "resume_group('g')");
    assert_eq!(heard(&mut listener), 1, "resumed");
}

#[test]
fn without_notify_nothing_is_sent() {
    let db = Db::new();
    let (mut listener, mut session) = listening(&db);
    call(&mut session, "set_action('x', notify => false)");
    for action in ["x", "quiet"] {
        session.insert(json!([{"id": action, "action": action}])).unwrap();
        let grant = session.own_one(action);
        session.give(action, grant.token, "pending").unwrap();
        session.perform(action, "completed");
    }
    assert_eq!(heard(&mut listener), 0);
}
