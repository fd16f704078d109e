//! Numbers of tasks come from tallies that upkeep makes of the past, a second at a time, while others settle, remove
//! and revive tasks. They have to be those of the rows, in every snapshot.

mod model;
mod races;
mod seals;

use taskq_tests::{Session, until};

/// What `count_tasks` says.
const COUNTED: &str = "SELECT coalesce(jsonb_object_agg(c.action || ' ' || c.state, c.count), '{}')::text FROM taskq.count_tasks() AS c";

/// The same from the rows.
const ROWS: &str = "SELECT coalesce(jsonb_object_agg(c.action || ' ' || c.state, c.count), '{}')::text
      FROM (SELECT t.action, t.state, count(*) FROM taskq.tasks AS t GROUP BY t.action, t.state) AS c";

/// Both in one snapshot.
fn assert_counted(session: &mut Session, case: &str) {
    let [counted, rows] = [COUNTED, ROWS].map(|query| format!("({query})"));
    let both: Vec<String> = session.all(&format!("SELECT {counted} UNION ALL SELECT {rows}"));
    assert_eq!(both[0], both[1], "{case}: what is counted, and the rows");
}

/// Seals until all is sealed that has settled by now.
fn seal(session: &mut Session) {
    let now: String = session.one("SELECT clock_timestamp()::text");
    until("all is sealed that has settled by now", || {
        session.run("SELECT taskq.maintain()");
        sealed_since(session, &now).then_some(())
    });
}

/// Whether everything is sealed that settled at this time or before.
fn sealed_since(session: &mut Session, time: &str) -> bool {
    session.one(&format!("SELECT e.until > '{time}' FROM taskq.seal AS e"))
}

/// How many settled tasks of an action the tallies alone have.
fn tallied(session: &mut Session, action: &str) -> i64 {
    session.one(&format!(
        "SELECT coalesce(sum(y.number), 0)::bigint FROM taskq.end_tally AS y, taskq.action AS a, taskq.seal AS e
          WHERE a.action_no = y.action_no AND a.name = '{action}' AND y.span < e.until"
    ))
}
