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
        let db = Db::new();
        let (mut holder, mut reader, mut other) = (db.connect(), db.connect(), db.connect());
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
        assert_eq!(other.broken(), Vec::<String>::new());
    }
}

#[test]
fn what_is_tidied_at_a_commit_waits() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "old", "action": "x", "retention": "0"}, {"id": "a", "action": "x"}]))
        .unwrap();
    session.perform("x", "completed");
    session.run("BEGIN");
    let grant = session.own_one("x");
    session.run("SET TRANSACTION READ ONLY; COMMIT");
    session.complete(&grant);
    session.run("SELECT taskq.maintain()");
    assert_eq!(session.all::<String>("SELECT id FROM taskq.tasks"), ["a"]);
}
