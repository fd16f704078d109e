//! What views and counts read: few rows for few answers, and what is not asked for not at all.
//!
//! Why: people look while something is wrong, at the largest queue they have. On wrong code the plans below read every task
//! for the sake of one, or the history of every aborted task to count them.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

/// 6,000 tasks: completed, aborted, given back, in progress, blocked, scheduled, parked and ready, of three actions.
fn fill(db: &Db) -> Session {
    let mut session = db.connect();
    for action in ["x", "y", "z"] {
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object( \
                 'id', '{action}' || i, 'action', '{action}', 'group_id', CASE WHEN i % 10 = 9 THEN 'g' END, \
                 'delay', CASE WHEN i % 10 = 8 THEN '1 day' END, 'workgroup', CASE WHEN i % 10 = 7 THEN 'w' END, \
                 'depends_on', CASE WHEN i % 10 = 6 THEN jsonb_build_array('{action}' || i - 6) END))) \
               FROM generate_series(0, 1999) AS i))"
        ));
    }
    session.run("SELECT taskq.pause_group('g'); SELECT taskq.delay_workgroup('w', '1 day')");
    // What is given back is due at once, so that nothing becomes ready between two looks.
    for (code, number, again) in
        [("completed", 300, ""), ("aborted", 200, ""), ("pending", 200, ", retry_after => '0.001 seconds'")]
    {
        session.run(&format!(
            "WITH held AS MATERIALIZED (SELECT * FROM taskq.own_tasks('w', {number}, '{{x,y}}')) \
             SELECT taskq.return_tasks(array_agg(task_id), array_agg(token), '{code}'{again}) FROM held"
        ));
    }
    session.run("SELECT count(*) FROM taskq.own_tasks('w', 100, '{z}')");
    session.run("VACUUM ANALYZE");
    session
}

/// How many pages a query reads, planning included.
fn pages(session: &mut Session, query: &str) -> u64 {
    session.run(&format!("EXPLAIN {query}"));
    let plan: serde_json::Value =
        session.one(&format!("EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) {query}"));
    let of = |key: &str| plan[0]["Plan"][key].as_u64().unwrap();
    of("Shared Hit Blocks") + of("Shared Read Blocks")
}

fn plan(session: &mut Session, query: &str) -> String {
    session.all::<String>(&format!("EXPLAIN {query}")).join("\n")
}

#[test]
fn few_rows_cost_few_pages() {
    let db = Db::new();
    let mut session = fill(&db);
    for query in [
        "SELECT * FROM taskq.attempts WHERE task_id = 'x0'",
        "SELECT * FROM taskq.tasks WHERE id = 'x0'",
        "SELECT * FROM taskq.dead_ends WHERE task_id = 'x500'",
        "SELECT * FROM taskq.dependencies WHERE run = 'x6'",
    ] {
        let read = pages(&mut session, query);
        // The entries of all tasks that nothing blocks are on about a hundred.
        assert!(read < 40, "{query} reads {read} pages");
    }
}

#[test]
fn what_is_not_asked_for_is_not_worked_out() {
    let db = Db::new();
    let mut session = fill(&db);
    let counted = plan(&mut session, "SELECT cause, count(*) FROM taskq.dead_ends GROUP BY cause");
    assert!(!counted.contains("attempt"), "{counted}");
    let newest =
        plan(&mut session, "SELECT task_id, status FROM taskq.dead_ends ORDER BY settled_at DESC LIMIT 20");
    assert!(!newest.contains("attempt"), "{newest}");
    let counts = plan(&mut session, "SELECT action, ready, aborted, oldest_ready FROM taskq.stats");
    assert!(!counts.contains("epoch") && !counts.contains("percentile"), "{counts}");
    // What has settled is counted by a function of its own, from tallies.
    assert_eq!(counts.matches("on settled").count(), 0, "{counts}");
    assert_eq!(counts.matches("_ended").count(), 1, "{counts}");
}

#[test]
fn counts_agree_with_what_there_is() {
    let db = Db::new();
    let mut session = fill(&db);
    let brute =
        "SELECT concat_ws(' ', action, state, count(*)) FROM taskq.tasks GROUP BY action, state ORDER BY 1";
    let expected: Vec<String> = session.all(brute);
    assert!(expected.len() >= 12, "{expected:?}");
    let counted = "SELECT concat_ws(' ', action, state, count) FROM taskq.count_tasks() ORDER BY 1";
    assert_eq!(session.all::<String>(counted), expected);
    let stats = "SELECT concat_ws(' ', s.action, v.state, v.number) FROM taskq.stats AS s CROSS JOIN LATERAL \
                 (VALUES ('blocked', blocked), ('scheduled', scheduled), ('ready', ready), \
                         ('in-progress', in_progress), ('completed', completed), ('aborted', aborted + skipped)) AS v(state, number) \
                 WHERE v.number > 0 ORDER BY 1";
    assert_eq!(session.all::<String>(stats), expected);
    let narrowed = "SELECT concat_ws(' ', action, state, count) FROM \
                    taskq.count_tasks(actions => '{x,y}', states => '{ready,aborted}') ORDER BY 1";
    let wanted: Vec<String> = expected
        .iter()
        .filter(|line| !line.starts_with('z') && (line.contains(" ready ") || line.contains(" aborted ")))
        .cloned()
        .collect();
    assert_eq!(session.all::<String>(narrowed), wanted);
    let of_group =
        "SELECT concat_ws(' ', action, state, count) FROM taskq.count_tasks(groups => '{g}') ORDER BY 1";
    let grouped = "SELECT concat_ws(' ', action, state, count(*)) FROM taskq.tasks WHERE group_id = 'g' GROUP BY action, state ORDER BY 1";
    assert_eq!(session.all::<String>(of_group), session.all::<String>(grouped));
    assert_eq!(
        session.one::<i64>("SELECT sum(count)::bigint FROM taskq.count_tasks(ids => '{x0,y1,absent}')"),
        2
    );
    let oldest = "SELECT action || ' ' || oldest_ready FROM taskq.stats WHERE ready > 0 ORDER BY 1";
    let first = "SELECT action || ' ' || min(inserted_at) FROM taskq.tasks WHERE state = 'ready' GROUP BY action ORDER BY 1";
    assert_eq!(session.all::<String>(oldest), session.all::<String>(first));
}

#[test]
fn a_state_that_is_none_is_refused() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    refused(&mut session, "22023", "states", "SELECT * FROM taskq.count_tasks(states => '{redy}')", &[]);
}
