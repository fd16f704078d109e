//! `taskq.attempts`: each try of a task, who, when, and how it ended.
//!
//! Why: what was aborted for good is looked into try by try; a history that a retry wipes or that misses the tries whose
//! actor died is none. On wrong code a row is missing, doubled, or tells another end.

use serde_json::json;
use taskq_tests::{Db, Session};

use crate::{at, call, count};

fn attempts(session: &mut Session, id: &str) -> Vec<String> {
    session
        .query(
            "SELECT concat_ws(' ', num_try, actor_id, EXTRACT(epoch FROM started_at - '2030-01-01 00:00:00Z')::int, \
             EXTRACT(epoch FROM ended_at - '2030-01-01 00:00:00Z')::int, outcome, status) \
             FROM taskq.attempts WHERE task_id = $1 ORDER BY started_at, num_try",
            &[&id],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[test]
fn attempts_shows_each_try_with_its_end() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    assert!(attempts(&mut session, "a").is_empty());
    at(&mut session, 10.0);
    let first = session.own("ann", 1, &["x"]).unwrap().remove(0);
    assert_eq!(attempts(&mut session, "a"), ["1 ann 10 in-progress"]);
    at(&mut session, 20.0);
    session.give_with("a", first.token, "pending", "status => 'no answer', retry_after => '0'").unwrap();
    at(&mut session, 30.0);
    session.own_with("bob", 1, &["x"], "lease => '5 seconds'").unwrap();
    at(&mut session, 40.0);
    let third = session.own("eve", 1, &["x"]).unwrap().remove(0);
    at(&mut session, 50.0);
    session.give_with("a", third.token, "completed", "status => 'fine'").unwrap();
    let told = attempts(&mut session, "a");
    assert_eq!(told[0], "1 ann 10 20 pending no answer");
    assert!(told[1].starts_with("2 bob 30 40 timeout"), "{told:?}");
    assert_eq!(told[2..], ["3 eve 40 50 completed fine"]);
}

/// Each try once, whatever came under its token.
#[test]
fn attempts_shows_a_try_once_that_is_extended_after_its_deadline() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    at(&mut session, 0.0);
    let grant = session.own_with("ann", 1, &["x"], "lease => '5 seconds'").unwrap().remove(0);
    let metric =
        "SELECT COALESCE(sum(value), 0)::float8 FROM taskq.metrics_rows() WHERE name = 'taskq_earlier_tries'";
    for second in [10.0, 20.0, 30.0] {
        at(&mut session, second);
        session.run("SELECT taskq.maintain()");
        let told = attempts(&mut session, "a");
        assert!(told[0].starts_with("1 ann 0 ") && told[0].contains(" timeout"), "{told:?}");
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(session.one::<f64>(metric), 1.0);
        assert!(session.extend("ann", &[("a", grant.token)], "5 seconds").unwrap()[0].1);
        assert_eq!(attempts(&mut session, "a"), ["1 ann 0 in-progress"]);
        assert_eq!(session.one::<f64>(metric), 0.0);
    }
    session.give_with("a", grant.token, "completed", "status => 'late'").unwrap();
    assert_eq!(attempts(&mut session, "a"), ["1 ann 0 30 completed late"]);
}

#[test]
fn attempts_distinguishes_aborted_cancelled_and_timeout() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session
        .insert(json!([
            {"id": "a", "action": "a"}, {"id": "c", "action": "c"}, {"id": "t", "action": "t", "max_tries": 1},
            {"id": "never", "action": "n"}, {"id": "spent", "action": "s", "max_tries": 1},
        ]))
        .unwrap();
    session.perform("a", "aborted");
    session.own_one("c");
    session.cancel(&["c", "never"]).unwrap();
    session.own_one_with("t", "lease => '1 second'");
    let spent = session.own_one("s");
    assert_eq!(session.give("spent", spent.token, "pending").unwrap(), "aborted");
    at(&mut session, 2.0);
    call(&mut session, "maintain()");
    let outcomes: Vec<String> =
        session.all("SELECT task_id || ' ' || outcome FROM taskq.attempts ORDER BY 1");
    assert_eq!(outcomes, ["a aborted", "c cancelled", "spent aborted", "t timeout"]);
}

#[test]
fn a_retry_keeps_the_history_and_deletion_forgets_it() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x", "max_tries": 2}]));
    for round in 1..=2 {
        let first = session.own_one("x");
        session.give("a", first.token, "pending").unwrap();
        let second = session.own_one("x");
        assert_eq!(session.give("a", second.token, "pending").unwrap(), "aborted");
        assert_eq!(attempts(&mut session, "a").len(), 2 * round);
        assert_eq!(count(&mut session, "retry_tasks('{a}')"), 1);
        assert_eq!(attempts(&mut session, "a").len(), 2 * round, "the retry keeps them");
    }
    session.delete(&["a"]).unwrap();
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.attempts"), 0);
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    assert!(attempts(&mut session, "a").is_empty());
}
