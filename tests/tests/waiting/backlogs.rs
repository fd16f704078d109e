//! A sleeper comes to what stands behind a backlog that is larger than what one look deals with.
//!
//! Why: a look that comes to nothing is rolled back, with the part of the backlog that it has moved out of its way or ended. The next one began
//! anew, and so on until the time was up, as busy as can be.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Session};

/// A call that sleeps is granted this task, long before its time is up.
fn comes(session: &mut Session, task_id: &str) {
    let began = Instant::now();
    let grants = session.own_with("w", 1, &["x"], "wait => '5 minutes'").unwrap();
    assert_eq!(grants.iter().map(|g| g.task_id.as_str()).collect::<Vec<_>>(), [task_id]);
    assert!(began.elapsed() < Duration::from_secs(120), "it came after {:?}", began.elapsed());
    assert!(session.broken().is_empty(), "{:?}", session.broken());
}

#[test]
fn a_backlog_of_a_group_that_has_got_a_limit() {
    for limit in ["set_group('g', max_concurrency => 1)", "set_action('x', max_per_group => 1)"] {
        let db = Db::new();
        let mut session = db.connect();
        session.run("SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[42000]), group_id => 'g')");
        session.run(&format!("SELECT taskq.{limit}"));
        assert_eq!(session.own("first", 1, &["x"]).unwrap().len(), 1);
        session.insert(json!([{"id": "free", "action": "x"}])).unwrap();
        comes(&mut session, "free");
    }
}

#[test]
fn a_backlog_of_tries_that_have_ended() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[12000]),
             ids => (SELECT array_agg(n::text) FROM generate_series(1, 12000) AS n), max_tries => 1)",
    );
    let held = "max_duration => '8 seconds'";
    assert_eq!(db.connect().own_with("dead", 12_000, &["x"], held).unwrap().len(), 12_000);
    // Which of them is the last to be ended nobody says.
    let last: String = session.one(
        "SELECT t.id FROM taskq.task t JOIN taskq.run r USING (task_no) ORDER BY r.deadline DESC, t.task_no DESC LIMIT 1",
    );
    session
        .insert(json!([{"id": "next", "action": "x", "depends_on": [{"id": last, "condition": "settled"}]}]))
        .unwrap();
    std::thread::sleep(Duration::from_secs(8));
    comes(&mut session, "next");
}
