//! How long a grant holds, and what a late worker may still do: the token decides, not the deadline.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};
use uuid::Uuid;

fn at(time: &str) -> Option<DateTime<Utc>> {
    Some(format!("2030-01-01T{time}Z").parse().unwrap())
}

#[test]
fn the_deadline_is_the_calls_else_the_tasks_else_the_settings_else_never() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let own = json!([
        {"id": "own 1", "action": "x", "lease": "1 hour"},
        {"id": "own 2", "action": "x", "lease": "1 hour"},
    ]);
    session.insert(own).unwrap();
    let none = json!([{"id": "none 1", "action": "y"}, {"id": "none 2", "action": "y"}, {"id": "none 3", "action": "y"}]);
    session.insert(none).unwrap();
    assert_eq!(session.own_one_with("x", "lease => '5 minutes'").action_deadline, at("00:05:00"));
    assert_eq!(session.own_one("x").action_deadline, at("01:00:00"));
    assert_eq!(session.own_one_with("y", "lease => '5 minutes'").action_deadline, at("00:05:00"));
    assert_eq!(session.own_one("y").action_deadline, at("01:00:00"), "as shipped");
    session.run("SET taskq.lease = ''");
    assert_eq!(session.own_one("y").action_deadline, None);
    assert_eq!(session.task("none 3").unwrap().action_deadline, None);
    assert_eq!(session.task("own 2").unwrap().action_deadline, at("01:00:00"));
    session.set_now(Some("2099-01-01 00:00:00Z"));
    let taken: Vec<String> =
        session.own("w", 9, &["x", "y"]).unwrap().into_iter().map(|g| g.task_id).collect();
    assert!(!taken.contains(&"none 3".to_owned()), "without a deadline no worker takes it over: {taken:?}");
    assert_eq!(taken.len(), 4);
}

#[test]
fn after_a_new_grant_everything_with_the_old_token_fails() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let old = session.own_one_with("x", "lease => '1 minute'");
    session.set_now(Some("2030-01-01 00:02:00Z"));
    let new = session.own_one_with("x", "lease => '1 minute'");
    for code in ["completed", "aborted", "pending"] {
        assert_eq!(sqlstate(&session.give("a", old.token, code).unwrap_err()), "TQ001");
    }
    assert_eq!(session.extend("w", &[("a", old.token)], "1 hour").unwrap(), [("a".to_owned(), false)]);
    assert_eq!(session.task("a").unwrap().action_deadline, at("00:03:00"));
    // The new one has an elapsed deadline too: it is still the last one granted.
    session.set_now(Some("2030-01-01 00:10:00Z"));
    assert_eq!(sqlstate(&session.give("a", old.token, "completed").unwrap_err()), "TQ001");
    session.complete(&new);
}

#[test]
fn extension_gives_a_row_per_pair_in_input_order_and_records_the_actor() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x"}]),
    );
    let a = session.own_one("x");
    let b = session.own_one("x");
    let stranger = Uuid::new_v4();
    let pairs = [
        ("c", a.token),
        ("b", b.token),
        ("absent", b.token),
        ("a", stranger),
        ("a", a.token),
        ("b", b.token),
    ];
    let answer = session.extend("deputy", &pairs, "1 hour").unwrap();
    let expected = [("c", false), ("b", true), ("absent", false), ("a", false), ("a", true), ("b", true)];
    assert_eq!(answer, expected.map(|(id, owned)| (id.to_owned(), owned)));
    assert_eq!(session.task("a").unwrap().actor_id.as_deref(), Some("deputy"));
    assert_eq!(session.task("b").unwrap().actor_id.as_deref(), Some("deputy"));
    assert_eq!(session.task("c").unwrap().actor_id, None);
}

/// A call that ends a part of a backlog of elapsed deadlines may take longer than the leases that it grants: it neither ends its own
/// tries nor grants a task twice in one answer. The rest of the backlog comes with the next calls.
#[test]
fn a_call_does_not_end_the_tries_that_it_grants() {
    let (db, [mut session]) = Db::connected();
    // From the second deadline in a row on there would be a back-off. The worker asks no setting of a session.
    session.run(r#"SELECT taskq.set_action('x', backoff => '{"kind": "fixed", "initial": "0 seconds"}')"#);
    session.run("SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[9000]))");
    for _ in 0..9 {
        assert_eq!(session.own_with("dead", 1000, &["x"], "lease => '1 hour'").unwrap().len(), 1000);
    }
    for table in ["run", "lease"] {
        session.run(&format!("UPDATE taskq.{table} SET deadline = deadline - interval '2 hours'"));
    }
    let mut all = std::collections::HashSet::new();
    let began = Instant::now();
    while all.len() < 9000 {
        // A session that has not looked yet: others know for a while where the first deadline was.
        let granted = db.connect().own_with("w", 20_000, &["x"], "lease => '1 millisecond'").unwrap();
        let ids: std::collections::HashSet<String> =
            granted.iter().map(|task| task.task_id.clone()).collect();
        assert_eq!(ids.len(), granted.len(), "granted twice");
        all.extend(ids);
        assert!(began.elapsed() < Duration::from_secs(60), "{} of 9,000", all.len());
    }
    // Its own tries are for others to end.
    let again = db.connect().own_with("w", 1, &["x"], "lease => '1 hour'").unwrap();
    assert_eq!(again.len(), 1);
}

/// A lease that is over at once, and a call that has room for more.
#[test]
fn leases_of_no_time_are_not_ended_by_the_call_that_grants_them() {
    let (_db, [mut session]) = Db::connected();
    // A worker would end them, too. From the second deadline in a row on there would be a back-off.
    session.run("SET taskq.background_worker = off; SET taskq.backoff = ''");
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[2000]), max_tries => 100)",
    );
    for tries in 1..=3 {
        let granted = session.own_with("w", 6000, &["x"], "lease => '0'").unwrap();
        assert_eq!(granted.len(), 2000);
        assert!(granted.iter().all(|task| task.num_tries == tries), "some were granted twice by one call");
    }
}

/// Workers that own a thousand each die together. A call that ended all of their tries at once would take seconds, and
/// be cut off by its caller's time-out, and so would the next one: no worker would get anything again.
#[test]
fn a_backlog_of_large_leases_is_ended_in_short_steps() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[15000]))");
    for _ in 0..15 {
        assert_eq!(session.own_with("w", 1000, &["x"], "lease => '1 hour'").unwrap().len(), 1000);
    }
    let held =
        |session: &mut Session| session.one::<i64>("SELECT count(*) FROM taskq.run WHERE NOT grantable");
    session.set_now(Some("2100-01-01 00:00:00Z"));
    let mut left = held(&mut session);
    for calls in 1.. {
        // Of another action, too: each call does a part.
        let action = if calls % 3 == 0 { "y" } else { "x" };
        session.own("w", 1, &[action]).unwrap();
        let now = held(&mut session);
        assert!(left - now <= 3_000 || action == "y", "{} tries were ended by one call", left - now);
        left = now;
        if session.one::<i64>("SELECT count(*) FROM taskq.lease WHERE deadline < '2100-01-01'") == 0 {
            assert!(calls >= 3, "{calls}");
            break;
        }
        assert!(calls < 300, "{left} are left");
    }
}
