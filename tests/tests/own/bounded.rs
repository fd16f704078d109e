//! How much one call does of what time has made necessary, beside what it is for.
//!
//! On wrong code a call works off all that there is, in one transaction. With a time-out it is cut off then, nothing of it
//! stays, the next one begins anew, and nobody gets anything however often he calls.

use serde_json::json;
use taskq_tests::{Db, Session};

fn held(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.run WHERE NOT grantable")
}

#[test]
fn a_backlog_of_elapsed_leases_of_others_is_worked_off_in_small_parts() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT count(*) FROM taskq.insert_many('dead', array_fill('b'::text, ARRAY[3000]))");
    for _ in 0..3 {
        assert_eq!(session.own_with("w", 1000, &["dead"], "max_duration => '1 hour'").unwrap().len(), 1000);
    }
    session.insert((0..5).map(|n| json!({"id": format!("mine {n}"), "action": "mine"})).collect()).unwrap();
    session.set_now(Some("2100-01-01 00:00:00Z"));
    assert_eq!(session.own("w", 10, &["mine"]).unwrap().len(), 5);
    let left = held(&mut session) - 5;
    assert!((2_500..3_000).contains(&left), "{left} of 3,000 are left by one call");
    // One that finds nothing does no more, and each goes on where the last one stopped.
    assert!(session.own("w", 10, &["nothing"]).unwrap().is_empty());
    let now = held(&mut session) - 5;
    assert!((left - 500..left).contains(&now), "{now} of {left} are left by the next call");
    // So does one that has waited in vain.
    assert!(session.own_with("w", 10, &["nothing"], "wait => '0.1 s'").unwrap().is_empty());
    let then = held(&mut session) - 5;
    assert!((now - 500..now).contains(&then), "{then} of {now} are left by one that has slept");
    // Whoever asks for the action itself is granted them at once.
    assert_eq!(session.own("w", 3000, &["dead"]).unwrap().len(), 3000);
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// What ends with a try may take long: here each aborts its task, and with that two more. How many can be ended in a hundredth
/// of a second is up to the machine; these cannot. On wrong code a call ends 2,000 of them whatever that takes, and where
/// others are at the same, longer than any of them has: all are cut off, for ever.
#[test]
fn tries_are_ended_for_a_hundredth_of_a_second_and_not_for_as_long_as_it_takes() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((
                SELECT jsonb_agg(jsonb_build_object('id', 'try ' || n, 'action', 'x', 'max_tries', 1, 'group_id', 'g'))
                       || jsonb_agg(jsonb_build_object('id', 'then ' || n, 'action', 'y', 'depends_on', jsonb_build_array('try ' || n)))
                       || jsonb_agg(jsonb_build_object('id', 'last ' || n, 'action', 'z', 'depends_on', jsonb_build_array('then ' || n)))
                  FROM generate_series(1, 9000) AS n))",
    );
    for _ in 0..9 {
        assert_eq!(session.own_with("w", 1000, &["x"], "max_duration => '1 hour'").unwrap().len(), 1000);
    }
    session.set_now(Some("2100-01-01 00:00:00Z"));
    let mut left = held(&mut session);
    assert_eq!(left, 9000);
    while left > 0 {
        assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
        let ended = left - held(&mut session);
        // Five looks of which nothing comes, each a part.
        assert!((1..6_000).contains(&ended), "{ended} of {left} tries are ended by one call");
        left -= ended;
    }
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'aborted'"), 27_000);
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// What depends on a task that aborts ends with it, however much that is. So the first tries that a call ends are few.
#[test]
fn tries_whose_end_is_a_large_one_are_ended_a_few_at_a_time() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[100]), ids => ARRAY(SELECT 'try ' || n FROM generate_series(1, 100) AS n), max_tries => 1)",
    );
    session.run(
        "SELECT count(*) FROM generate_series(1, 100) AS n,
                LATERAL taskq.insert_many('y', array_fill('b'::text, ARRAY[300]), depends_on => ARRAY['try ' || n])",
    );
    assert_eq!(session.own_with("w", 100, &["x"], "max_duration => '1 hour'").unwrap().len(), 100);
    session.set_now(Some("2100-01-01 00:00:00Z"));
    assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
    let left = held(&mut session);
    assert!((1..100).contains(&left), "{left} of 100 are left by one call");
    while held(&mut session) > 0 {
        session.own("w", 1, &["x"]).unwrap();
    }
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'aborted'"), 30_100);
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// Tasks that are due and may not run: they have to be moved before that is known of each.
#[test]
fn a_backlog_of_due_tasks_that_may_not_run_is_worked_off_in_small_parts() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[4000]), delay => '1 hour', group_id => 'paused')",
    );
    session.run("SELECT taskq.pause_group('paused')");
    session.insert(json!([{"id": "behind", "action": "x", "delay": "2 hours", "group_id": "open"}])).unwrap();
    session.insert((0..5).map(|n| json!({"id": format!("mine {n}"), "action": "mine"})).collect()).unwrap();
    session.set_now(Some("2100-01-01 00:00:00Z"));
    assert_eq!(session.own("w", 10, &["x", "mine"]).unwrap().len(), 5);
    let scheduled = |session: &mut Session| session.one::<i64>("SELECT count(*) FROM taskq.scheduled");
    let mut left = scheduled(&mut session);
    assert!((2_000..4_000).contains(&left), "{left} of 4,000 are left by one call");
    for calls in 1.. {
        let granted = session.own("w", 10, &["x", "mine"]).unwrap();
        let now = scheduled(&mut session);
        assert!(left - now <= 2_000, "{now} of {left} are left by one call");
        left = now;
        if let [grant] = granted.as_slice() {
            assert_eq!(grant.task_id, "behind");
            break;
        }
        assert!(calls < 10, "what is behind them is not granted");
    }
    assert_eq!(session.broken(), Vec::<String>::new());
}
