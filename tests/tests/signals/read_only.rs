//! A transaction may become read-only after its calls: `SET TRANSACTION READ ONLY` is allowed at any time. What was done before
//! counts, and what is to be done right before the commit is left to others.
//!
//! On wrong code the commit fails, and with it what was granted or returned, or a signal is never counted.

use serde_json::json;
use taskq_tests::{Db, Session};

fn child_of_two(session: &mut Session) {
    let tasks = json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "y", "depends_on": ["a", "b"]}]);
    session.insert(tasks).unwrap();
}

#[test]
fn signals_are_counted_by_others() {
    for reader_first in [true, false] {
        let (_db, [mut holder, mut reader, mut other]) = Db::connected();
        child_of_two(&mut other);
        let grants = other.own("w", 2, &["x"]).unwrap();
        holder.run("BEGIN");
        holder.complete(&grants[0]);
        reader.run("BEGIN");
        reader.complete(&grants[1]);
        reader.run("SET TRANSACTION READ ONLY");
        if reader_first {
            reader.run("COMMIT");
            holder.run("COMMIT");
        } else {
            holder.run("COMMIT");
            reader.run("COMMIT");
        }
        assert_eq!(other.own_one("y").task_id, "c", "the reader first: {reader_first}");
    }
}

/// The lease of two tasks is kept by one of them. When that has come back, it is to be handed on to the other.
#[test]
fn what_is_tidied_at_a_commit_waits() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    let grants = session.own_with("w", 2, &["x"], "lease => '1 hour'").unwrap();
    let keeper: String =
        session.one("SELECT t.id FROM taskq.lease AS l JOIN taskq.task AS t ON t.task_no = l.keeper_no");
    let (kept, left): (Vec<_>, Vec<_>) = grants.iter().partition(|grant| grant.task_id == keeper);
    session.run("BEGIN");
    session.complete(kept[0]);
    session.run("SET TRANSACTION READ ONLY; COMMIT");
    assert_eq!(session.state(&keeper), "completed");
    session.set_now(Some("2030-01-01 02:00:00Z"));
    assert_eq!(session.own_one("x").task_id, left[0].task_id, "its deadline has passed");
}
