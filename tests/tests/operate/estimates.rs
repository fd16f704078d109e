//! What `top`, `stats`, `page` and `metrics` say of a queue that is too large to be counted at each look: estimates, and which of
//! them are none.
//!
//! Why: an operator who looks every second at ten million tasks decides by what such a look shows, and it must not take
//! seconds. On wrong code an action with a few tasks is lost beside a huge one, what is in progress is guessed, or
//! holes in the table count as tasks.

use serde_json::json;
use taskq_tests::{Db, Session};

/// From so many pages on nothing is counted.
fn count_up_to(session: &mut Session, pages: u32) {
    session.run(&format!(
        "CREATE OR REPLACE FUNCTION taskq._counted_pages() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN {pages}"
    ));
}

/// For each action and state: what is said, what there is, and whether that is said to be exact; in one snapshot.
fn compare(session: &mut Session) -> Vec<(String, i64, i64, bool)> {
    session
        .query(
            "SELECT COALESCE(a.what, c.what), COALESCE(a.number, 0), COALESCE(c.count, 0),
                    COALESCE(a.exact, c.what NOT LIKE '% blocked' OR taskq._pages('taskq.blocked') <= taskq._counted_pages() / 3)
               FROM (SELECT n.name || ' ' || a.state AS what, sum(a.number)::bigint AS number, bool_and(a.exact) AS exact
                       FROM taskq._about() AS a JOIN taskq.action AS n USING (action_no) GROUP BY 1) AS a
               FULL JOIN (SELECT c.action || ' ' || c.state AS what, c.count
                            FROM taskq.count_tasks(states => '{blocked,scheduled,ready,in-progress}') AS c) AS c ON c.what = a.what
              ORDER BY 1",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect()
}

/// What is said to be exact is; the rest, and there are so many, is right within eight percent.
fn assert_near(session: &mut Session, case: &str, estimates: usize) {
    let all = compare(session);
    for (what, about, number, exact) in &all {
        assert!(*about >= 0, "{case}: {what}: {about}");
        if *exact {
            assert_eq!(about, number, "{case}: {what}: {all:?}");
        } else {
            assert!(about.abs_diff(*number) * 12 <= number.unsigned_abs(), "{case}: {what}: {all:?}");
        }
    }
    assert_eq!(all.iter().filter(|(.., exact)| !exact).count(), estimates, "{case}: {all:?}");
}

fn insert(session: &mut Session, action: &str, number: u32) {
    let inserted: i64 = session.one(&format!(
        "SELECT count(*) FROM taskq.insert_many('{action}', (SELECT array_agg(i::text) FROM generate_series(1, {number}) AS i))"
    ));
    assert_eq!(inserted, i64::from(number));
}

fn own(session: &mut Session, number: u32, action: &str, lease: &str) {
    let owned: i64 =
        session.one(&format!("SELECT count(*) FROM taskq.own_tasks('w', {number}, '{{{action}}}', {lease})"));
    assert_eq!(owned, i64::from(number));
}

/// Performs so many thousand tasks.
fn perform(session: &mut Session, action: &str, thousands: u32) {
    for _ in 0..thousands {
        let done: i64 = session.one(&format!(
            "WITH held AS MATERIALIZED (SELECT * FROM taskq.own_tasks('w', 1000, '{{{action}}}'))
             SELECT count(*) FROM taskq.return_tasks((SELECT array_agg(task_id) FROM held), (SELECT array_agg(token) FROM held), 'completed')"
        ));
        assert_eq!(done, 1000);
    }
}

/// 3,000 tasks in all states.
fn fill(session: &mut Session) {
    for action in ["x", "y", "z"] {
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object( \
                 'id', '{action}' || i, 'action', '{action}', 'group_id', CASE WHEN i % 10 = 9 THEN 'g' END, \
                 'delay', CASE i % 10 WHEN 8 THEN '1 day' WHEN 5 THEN '0.001 seconds' END, \
                 'priority', i % 3, 'workgroup', CASE WHEN i % 10 IN (5, 7) THEN 'w' || i % 2 END, \
                 'merge_key', CASE WHEN i % 10 = 4 THEN 'k' || i % 50 END, \
                 'depends_on', CASE WHEN i % 10 = 6 THEN jsonb_build_array('{action}' || i - 6) END))) \
               FROM generate_series(0, 999) AS i))"
        ));
    }
    session.run("SELECT taskq.pause_group('g')");
    own(session, 100, "x", "'1 hour'");
    own(session, 100, "y", "NULL");
    own(session, 30, "z", "'1 hour'");
    own(session, 30, "z", "NULL");
}

#[test]
fn what_is_not_too_much_is_counted() {
    let (_db, [mut session]) = Db::connected();
    fill(&mut session);
    assert_near(&mut session, "all", 0);
    session.run("SELECT taskq.delay_workgroup('w1', '1 day')");
    assert_near(&mut session, "a workgroup is held back", 0);
    session.run("BEGIN; SELECT taskq.insert_task(NULL, 'x'); SELECT taskq.cancel_tasks('{y7}')");
    assert_near(&mut session, "with what this transaction has changed", 0);
    session.run("ROLLBACK");
    let top = "SELECT string_agg(t::text, ',') FROM taskq.top AS t";
    assert!(!session.one::<String>(top).contains('~'));
}

/// How many tasks a query says there are, and how many there are, task by task; of all actions and states.
fn assert_counted(session: &mut Session, case: &str) {
    let said: Vec<String> = session
        .all("SELECT concat_ws(' ', c.action, c.state, c.count) FROM taskq.count_tasks() AS c ORDER BY 1");
    let there: Vec<String> = session.all(
        "SELECT concat_ws(' ', t.action, t.state, count(*)) FROM taskq.tasks AS t GROUP BY t.action, t.state ORDER BY 1",
    );
    assert_eq!(said, there, "{case}");
    assert_near(session, case, 0);
}

/// On wrong code each task that may be ready is looked up in the wide table as long as any workgroup is held back.
#[test]
fn what_a_workgroup_holds_back_costs_as_much_as_the_workgroup_has_tasks() {
    let (_db, [mut session]) = Db::connected();
    fill(&mut session);
    // Parked, gated, and due.
    for (action, arguments) in [
        ("p", "group_id => 'g'"),
        ("q", "workgroup => 'other'"),
        ("d", "workgroup => 'other', delay => '1 hour'"),
    ] {
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_many('{action}', (SELECT array_agg(i::text) FROM generate_series(1, 3000) AS i), {arguments})"
        ));
    }
    session.run("SELECT count(*) FROM taskq.own_tasks('w', 1, '{p}')");
    let later: String = session.one("SELECT (now() + interval '2 hours')::text");
    session.set_now(Some(&later));
    let look = "SELECT sum(number) FROM taskq._live()";
    let before = session.pages(look);
    session.run("SELECT taskq.delay_workgroup('w1', '1 day')");
    session.pages(look);
    let after = session.pages(look);
    assert!(after < before + 2_500, "{before} pages, and {after} with a workgroup that is held back");
    assert_counted(&mut session, "few are held back");
    // With more than are looked at from this side.
    session.run(
        "SELECT count(*) FROM taskq.insert_many('m', (SELECT array_agg(i::text) FROM generate_series(1, 19500) AS i), workgroup => 'w1')",
    );
    assert_counted(&mut session, "nearly twenty thousand");
    session.run(
        "SELECT count(*) FROM taskq.insert_many('m', (SELECT array_agg(i::text) FROM generate_series(1, 1000) AS i), workgroup => 'w1')",
    );
    assert_counted(&mut session, "more than twenty thousand");
    session.run("SET work_mem = '64kB'; SET enable_hashjoin = off");
    assert_counted(&mut session, "with little memory");
}

/// Everything is beyond the bound; so few are counted all the same, where an index leads to them.
#[test]
fn an_action_with_few_tasks_is_counted_in_a_table_of_any_size() {
    let (_db, [mut session]) = Db::connected();
    fill(&mut session);
    count_up_to(&mut session, 6);
    for held_back in ["SELECT", "SELECT taskq.delay_workgroup('w1', '1 day')"] {
        session.run(held_back);
        for (what, about, number, exact) in compare(&mut session) {
            assert!(about >= 0 && (!exact || about == number), "{what}: {about}, {number}");
            if what.ends_with("in-progress") {
                assert!(exact && about > 0, "{what}: {about}, {number}");
            }
        }
    }
    let run = "SELECT count(*) FROM taskq._about_run(taskq._pages('taskq.run')) AS a WHERE NOT a.exact";
    assert_eq!(session.one::<i64>(run), 0);
    let scheduled =
        "SELECT count(*) FROM taskq._about_scheduled(taskq._pages('taskq.scheduled')) AS a WHERE NOT a.exact";
    assert_eq!(session.one::<i64>(scheduled), 0);
}

#[test]
fn of_many_there_is_a_sample_however_they_lie() {
    let (_db, [mut session]) = Db::connected();
    count_up_to(&mut session, 700);
    // In stretches of hundreds of pages, and of a few; with an action of few tasks in between.
    insert(&mut session, "apart", 15_000);
    for _ in 0..50 {
        insert(&mut session, "big", 400);
        insert(&mut session, "mid", 250);
    }
    insert(&mut session, "few", 500);
    insert(&mut session, "big", 100);
    assert_near(&mut session, "ready", 3);
    // Some are in progress, in three ways.
    own(&mut session, 700, "big", "'1 hour'");
    own(&mut session, 300, "mid", "NULL");
    own(&mut session, 40, "few", "'1 hour'");
    own(&mut session, 40, "few", "NULL");
    session.run("SELECT taskq.insert_task(NULL, 'big', priority => 3), taskq.insert_task(NULL, 'mid', priority => -3)");
    own(&mut session, 1, "big", "NULL");
    let in_progress = |session: &mut Session| -> Vec<(String, i64, i64, bool)> {
        compare(session).into_iter().filter(|(what, ..)| what.ends_with("in-progress")).collect()
    };
    assert_near(&mut session, "in progress", 3);
    let progress = in_progress(&mut session);
    assert!(
        progress.len() == 3 && progress.iter().all(|(_, about, number, exact)| about == number && *exact),
        "{progress:?}"
    );
    let marked = "SELECT string_agg(concat_ws(' ', action, btrim(ready, ' █'), btrim(busy)), ', ' ORDER BY action) FROM taskq.top";
    let said: String = session.one(marked);
    assert!(said.contains("big ~") && said.contains(" 701,") && said.contains("few 420 80"), "{said}");
    let page: String = session.one("SELECT taskq.page()");
    assert!(page.contains(">~") && page.contains(">701</td>") && page.contains(">420</td>"));
    let metric: f64 = session.one(
        "SELECT value FROM taskq.metrics_rows() WHERE name = 'taskq_tasks' AND labels = '{\"action\": \"few\", \"state\": \"ready\"}'",
    );
    assert_eq!(metric, 420.0);
    // Half of it is worked off, which leaves empty pages, and then a part is removed here and there.
    perform(&mut session, "apart", 9);
    perform(&mut session, "big", 8);
    assert_near(&mut session, "half of it is done", 2);
    session.run(
        "SELECT taskq.delete_tasks(ARRAY(SELECT t.id FROM taskq.tasks AS t WHERE t.action = 'mid' AND t.state = 'ready' AND t.body::integer % 5 = 0))",
    );
    assert_near(&mut session, "with holes", 2);
    session.run("VACUUM taskq.run");
    insert(&mut session, "apart", 9_000);
    assert_near(&mut session, "where there were holes", 3);
}

#[test]
fn a_look_reads_a_part_of_the_tables() {
    let (_db, [mut session]) = Db::connected();
    // With the statistics of an empty queue.
    session.run("VACUUM ANALYZE");
    insert(&mut session, "big", 60_000);
    insert(&mut session, "few", 10);
    let tasks = json!([{"id": "first", "action": "few"}]);
    session.insert(tasks).unwrap();
    for (action, number, argument) in
        [("below", 20_000, "depends_on => '{first}'"), ("later", 3, "delay => '1 day'")]
    {
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_many('{action}', (SELECT array_agg(i::text) FROM generate_series(1, {number}) AS i), {argument})"
        ));
    }
    count_up_to(&mut session, 150);
    assert!(session.one::<i64>("SELECT taskq._pages('taskq.run')") > 1_500);
    session
        .run("SET jit = on; SET jit_above_cost = 0; SET enable_nestloop = off; SET enable_indexscan = off");
    for look in [
        "SELECT * FROM taskq._about()",
        "SELECT action, ready, blocked FROM taskq.stats",
        "SELECT * FROM taskq.top",
    ] {
        session.run(&format!("EXPLAIN {look}"));
        let plan: serde_json::Value =
            session.one(&format!("EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) {look}"));
        let of = |key: &str| plan[0]["Plan"][key].as_u64().unwrap();
        let read = of("Shared Hit Blocks") + of("Shared Read Blocks");
        // An entry of an index is a page of the table, and `oldest` looks at 2,000 of them, `_pace` at 20,000.
        let most = if look.contains("top") { 60_000 } else { 10_000 };
        assert!(read < most, "{look} reads {read} pages");
    }
    session.run("RESET ALL");
    assert_near(&mut session, "blocked", 2);
}

/// On wrong code "in progress" passes for exact though a task in progress stands behind a hundred priorities.
#[test]
fn a_front_that_was_not_walked_to_its_end_is_not_whole() {
    let (_db, [mut session]) = Db::connected();
    let whole = "SELECT bool_and(f.whole) FROM taskq.action AS a CROSS JOIN taskq._front(a.action_no) AS f WHERE a.name = 'x'";
    session.run("SELECT taskq.insert_task('t' || i, 'x', priority => i) FROM generate_series(1, 99) AS i");
    assert!(session.one::<bool>(whole));
    session.run("SELECT taskq.insert_task('t' || i, 'x', priority => i) FROM generate_series(100, 101) AS i");
    assert!(!session.one::<bool>(whole));
}
