//! Statistics of an empty queue, under a full one: they were gathered at a quiet moment, and a minute later there are
//! 50,000 tasks. The planner then takes each table for a single row, and a join that goes through one table for each row
//! of another looks good. `check()` ran for 40 minutes that way.
//!
//! Pages are counted, not seconds: a plan that is quadratic reads millions of times as many.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

const TASKS: usize = 50_000;

/// How many pages a statement may read for each task: some tables, several times over, and an index for each.
const PAGES_PER_TASK: i64 = 60;

/// What may take a whole table.
const REPORTS: [&str; 25] = [
    "taskq.actions",
    "taskq.actors",
    "taskq.attempts",
    "taskq.dead_ends",
    "taskq.dependencies",
    "taskq.groups",
    "taskq.schedules",
    "taskq.stats",
    "taskq.tasks",
    "taskq.unique_keys",
    "taskq.workgroups",
    "taskq.check()",
    "taskq.count_tasks()",
    "taskq.count_tasks(groups => '{g50,g150}')",
    "taskq.count_tasks(states => '{blocked}', actions => '{x1,x10}')",
    "taskq.metrics(true)",
    "taskq.ancestors('blocked 50')",
    "taskq.dependency_results('blocked 50')",
    "taskq.descendants('held 51')",
    "taskq.graph('blocked 50')",
    "taskq.why('blocked 50')",
    // Nothing but the numbers of the rows, for which an index is enough.
    "(SELECT count(*) FROM taskq.dependencies)",
    "(SELECT count(*) FROM taskq.tasks)",
    "(SELECT count(*) FROM taskq.tasks WHERE state = 'scheduled')",
    "taskq.retry_tasks(NULL, status_like => 'never written')",
];

/// What is about a few tasks.
const LOOK_UPS: [&str; 12] = [
    "SELECT * FROM taskq.tasks WHERE id = 'done 60'",
    "SELECT * FROM taskq.tasks WHERE group_id = 'g60'",
    "SELECT * FROM taskq.tasks ORDER BY inserted_at DESC LIMIT 20",
    "SELECT * FROM taskq.tasks WHERE state = 'aborted' ORDER BY settled_at DESC LIMIT 20",
    "SELECT * FROM taskq.tasks WHERE status_code = 'aborted' ORDER BY settled_at DESC LIMIT 20",
    "SELECT * FROM taskq.dependencies WHERE run = 'blocked 50'",
    "SELECT * FROM taskq.dependencies WHERE after = 'held 51'",
    "SELECT * FROM taskq.attempts WHERE task_id = 'held 51'",
    "SELECT * FROM taskq.dead_ends WHERE task_id = 'lost 57'",
    "SELECT * FROM taskq.dead_ends ORDER BY settled_at DESC LIMIT 20",
    "SELECT * FROM taskq.groups WHERE group_id = 'g60'",
    "SELECT * FROM taskq.unique_keys WHERE action = 'x1' AND key = 'absent''s'",
];

/// The same by joins of the user's own, which go by the statistics.
const JOINS: [&str; 2] = [
    "SELECT t.* FROM (VALUES ('done 60'), ('held 51')) AS mine(id) JOIN taskq.tasks AS t ON t.id = mine.id",
    "SELECT t.* FROM taskq.tasks AS t WHERE t.id IN (SELECT d.after FROM taskq.dependencies AS d WHERE d.run = 'blocked 50')",
];

/// What a look-up may read, of many thousands.
const PAGES_FOR_A_FEW: i64 = 4_000;

/// The tables have pages, and no rows; that is what the statistics say until the end of the test.
fn statistics_of_an_empty_queue(session: &mut Session) {
    let tables: Vec<String> =
        session.all("SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'taskq'::regnamespace AND relkind = 'r'");
    for table in &tables {
        session.run(&format!("ALTER TABLE {table} SET (autovacuum_enabled = off)"));
    }
    let some: Value = (0..2_000)
        .map(|n| json!({"id": n.to_string(), "action": "x1", "group_id": format!("g{}", n % 10)}))
        .collect();
    session.insert(some).unwrap();
    session.own("w", 500, &["x1"]).unwrap();
    session.run("SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks");
    session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
    session.run("ANALYZE");
}

/// Tasks in every state, most of them settled.
fn fill(session: &mut Session) {
    let task = |n: usize| {
        let action = format!("x{}", n % 20);
        let group_id = format!("g{}", n % 500);
        match n % 50 {
            0 => {
                json!({"id": format!("blocked {n}"), "action": action, "group_id": group_id, "depends_on": [format!("held {}", n + 1), format!("done {}", n + 2)]})
            }
            1 => json!({"id": format!("held {n}"), "action": "held", "lease": "1 hour"}),
            3 => json!({"id": format!("later {n}"), "action": action, "delay": "1 day"}),
            4 => json!({"id": format!("keyed {n}"), "action": "keyed", "merge_key": format!("k{}", n % 100)}),
            5 => {
                json!({"id": format!("mark {n}"), "action": "mark", "spontaneous": true, "depends_on": [format!("done {}", n - 3)]})
            }
            6 => json!({"id": format!("ready {n}"), "action": "ready", "group_id": group_id}),
            7 | 8 => json!({"id": format!("lost {n}"), "action": "lost", "group_id": group_id}),
            _ => {
                json!({"id": format!("done {n}"), "action": action, "group_id": group_id, "retention": "1 day"})
            }
        }
    };
    for chunk in 0..5 {
        let from = chunk * TASKS / 5;
        session.insert((from..from + TASKS / 5).map(task).collect()).unwrap();
    }
    let actions: Vec<String> = (0..20).map(|n| format!("'x{n}'")).collect();
    let settle = "SELECT count(*) FROM (SELECT coalesce(array_agg(o.task_id), '{}') AS ids, coalesce(array_agg(o.token), '{}') AS tokens \
                    FROM taskq.own_tasks('w', 5000, ARRAY[ACTIONS]) AS o) AS o, taskq.return_tasks(o.ids, o.tokens)"
        .replace("ACTIONS", &actions.join(", "));
    while session.one::<i64>(&settle) > 0 {}
    session.own("w", 100_000, &["held"]).unwrap();
    session.own("w", 100_000, &["keyed"]).unwrap();
    session.run("SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks WHERE action = 'lost'");
    // Nothing of this is in a call's way, but what is asked may be.
    session.run("SELECT taskq.delay_workgroup('absent''s', '1 hour')");
}

/// How many pages a query reads; none if it takes too long.
pub(crate) fn pages(session: &mut Session, query: &str) -> Option<i64> {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) {query}");
    let plan: Value = session.query_one(&explain, &[]).ok()?.get(0);
    let blocks = |what: &str| plan[0]["Plan"][what].as_i64().unwrap();
    Some(blocks("Shared Hit Blocks") + blocks("Shared Read Blocks"))
}

#[test]
fn no_report_goes_through_a_table_for_each_row_of_another() {
    let (_db, [mut session]) = Db::connected();
    statistics_of_an_empty_queue(&mut session);
    fill(&mut session);
    session.run("SET statement_timeout = '40s'");
    // Of each row all columns are asked for.
    let query = |report: &str| format!("SELECT count(r) FROM {report} AS r");
    let most = PAGES_PER_TASK * TASKS as i64;
    let read: BTreeMap<&str, Option<i64>> =
        REPORTS.iter().map(|report| (*report, pages(&mut session, &query(report)))).collect();
    let too_many: BTreeMap<_, _> =
        read.iter().filter(|(_, pages)| pages.is_none_or(|pages| pages > most)).collect();
    assert!(too_many.is_empty(), "pages read: {too_many:#?}");
    only_look_up(&mut session, &LOOK_UPS);
    assert_eq!(
        session.one::<i64>("SELECT reltuples::bigint FROM pg_class WHERE oid = 'taskq.task'::regclass"),
        0
    );
    session.run("ANALYZE");
    only_look_up(&mut session, &LOOK_UPS);
    only_look_up(&mut session, &JOINS);
}

/// What is asked of a few tasks, or of one group, does not read the others.
fn only_look_up(session: &mut Session, queries: &[&str]) {
    let read: BTreeMap<&str, Option<i64>> =
        queries.iter().map(|query| (*query, pages(session, query))).collect();
    let too_many: BTreeMap<_, _> =
        read.iter().filter(|(_, pages)| pages.is_none_or(|pages| pages > PAGES_FOR_A_FEW)).collect();
    assert!(too_many.is_empty(), "pages read: {too_many:#?}");
}

/// Why: the table of what is to be done was taken for an empty one, and for each of its rows all riders were gone through: 10,000 of them
/// took minutes.
#[test]
fn riders_whose_insertion_was_open_when_statistics_were_gathered() {
    let (_db, [mut session, mut other]) = Db::connected();
    session.run("SET statement_timeout = '20s'");
    let insert =
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[20000]), merge_key => 'm')";
    session.run(&format!("BEGIN; {insert}"));
    other.run("ANALYZE taskq.run");
    session.run("COMMIT");
    let leader = session.own_one("x");
    other.run("ANALYZE taskq.run, taskq.parked");
    session.complete(&leader);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'"), 20_000);
}
