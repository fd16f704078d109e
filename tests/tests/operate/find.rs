//! What a console asks: `find_tasks`, `series`, `failures`, `inbox` and `next_times`.
//!
//! Why: these are asked while something is wrong, of a queue that may be large. On wrong code a page leaves tasks out or has one twice, a
//! state that few tasks are in is not found behind many others, or a look reads the whole queue.

use serde_json::json;
use taskq_tests::{Db, Session};

/// The ids that calls find which go from cursor to cursor, `step` tasks and `looked` rows each.
fn all(session: &mut Session, filter: &str, step: u32, looked: u32) -> Vec<String> {
    let mut before = "NULL".to_owned();
    let mut ids = Vec::new();
    loop {
        let query = format!(
            "SELECT f.cursor, f.task_id FROM taskq.find_tasks(before => {before}, max_tasks => {step}, max_looked => {looked}{filter}) AS f"
        );
        let rows = session.query(&query, &[]).unwrap();
        let Some(last) = rows.last() else { return ids };
        ids.extend(rows.iter().filter_map(|row| row.get::<_, Option<String>>(1)));
        before = format!("'{}'", last.get::<_, String>(0));
    }
}

/// Tasks in each place where tasks are, five of each.
fn in_each_state(session: &mut Session) {
    session.run("SELECT taskq.delay_workgroup('held', '1 day'); SELECT taskq.insert_task('first', 'never', delay => '1 day')");
    for (name, keys) in [
        ("blocked", json!({"depends_on": ["first"]})),
        ("later", json!({"delay": "2 days"})),
        ("held", json!({"workgroup": "held"})),
        ("paused", json!({"group_id": "paused"})),
        ("done", json!({})),
        ("lost", json!({})),
        ("mine", json!({})),
        ("ready", json!({"metadata": {"tenant": "a"}})),
    ] {
        for number in 0..5 {
            let mut task =
                json!({"id": format!("{name} {number}"), "action": name, "body": {"n": number, "of": name}});
            task.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
            session.insert(json!([task])).unwrap();
        }
    }
    session.run("SELECT taskq.pause_group('paused')");
    session.run("SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 5, '{done}')");
    session.run("SELECT taskq.return_task(task_id, token, 'aborted', 'no ' || task_id) FROM taskq.own_tasks('w', 5, '{lost}')");
    session.run("SELECT count(*) FROM taskq.own_tasks('w', 5, '{mine}')");
}

#[test]
fn each_filter_finds_what_the_view_shows() {
    let (_db, [mut session]) = Db::connected();
    in_each_state(&mut session);
    let filters = [
        ("", "true"),
        (", states => '{ready}'", "t.state = 'ready'"),
        (", states => '{scheduled}'", "t.state = 'scheduled'"),
        (", states => '{scheduled,blocked}'", "t.state IN ('scheduled', 'blocked')"),
        (", states => '{in-progress}'", "t.state = 'in-progress'"),
        (", states => '{in-progress,ready}'", "t.state IN ('in-progress', 'ready')"),
        (", states => '{completed}'", "t.state = 'completed'"),
        (", states => '{aborted}', actions => '{lost,ready}'", "t.state = 'aborted'"),
        (", causes => '{returned}'", "t.cause = 'returned'"),
        (", causes => '{timeout}'", "false"),
        (", actions => '{mine,held}'", "t.action IN ('mine', 'held')"),
        (", actions => '{unheard}'", "false"),
        (", groups => '{paused}'", "t.group_id = 'paused'"),
        (", groups => '{paused}', states => '{blocked}'", "false"),
        (", id_prefix => 'l'", "t.id LIKE 'l%'"),
        (", id_prefix => 'l', states => '{scheduled}'", "t.id LIKE 'l%' AND t.state = 'scheduled'"),
        (", status_like => 'no lost %'", "t.status LIKE 'no lost %'"),
        (", body => '{\"n\": 3}'", "t.body_json @> '{\"n\": 3}'"),
        (", metadata => '{\"tenant\": \"a\"}'", "t.metadata @> '{\"tenant\": \"a\"}'"),
        (", inserted_since => now() + '1 hour'", "false"),
        (", inserted_until => now() + '1 hour'", "true"),
    ];
    for (filter, condition) in filters {
        let expected: Vec<String> =
            session.all(&format!("SELECT t.id FROM taskq.tasks AS t WHERE {condition} ORDER BY t.id"));
        for (step, looked) in [(50, 20_000), (1, 20_000), (3, 1), (2, 7), (50, 3)] {
            let mut found = all(&mut session, filter, step, looked);
            found.sort();
            assert_eq!(found, expected, "{filter} by {step} of {looked}");
        }
    }
    // The newest first.
    let found = all(&mut session, "", 7, 20_000);
    let expected: Vec<String> = session
        .all("SELECT t.id FROM taskq.tasks AS v JOIN taskq.task AS t USING (id) ORDER BY t.task_no DESC");
    assert_eq!(found, expected);
}

#[test]
fn what_changes_between_two_cursors_is_found_once() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT count(*) FROM taskq.insert_many('x', array_fill(NULL::text, '{40}'), ARRAY(SELECT 'x ' || i FROM generate_series(1, 40) AS i))");
    let first: String =
        session.one("SELECT min(f.cursor::bigint)::text FROM taskq.find_tasks(max_tasks => 10) AS f");
    session.run("SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 35, '{x}')");
    session.run("SELECT taskq.insert_task('new', 'x')");
    let rest: Vec<String> = session
        .all(&format!("SELECT f.task_id FROM taskq.find_tasks(before => '{first}', max_tasks => 100) AS f"));
    let expected: Vec<String> = (1..=30).rev().map(|i| format!("x {i}")).collect();
    assert_eq!(rest, expected);
}

#[test]
fn bad_arguments_are_refused() {
    let (_db, [mut session]) = Db::connected();
    for (call, code) in [
        ("find_tasks(before => 'x')", "22023"),
        ("find_tasks(before => '-1')", "22023"),
        ("find_tasks(states => '{sleeping}')", "22023"),
        ("find_tasks(max_tasks => 0)", "22023"),
        ("find_tasks(max_looked => NULL)", "22004"),
        ("series('1 second')", "22023"),
        ("series('2 days')", "22023"),
        ("series(NULL)", "22004"),
        ("failures('-1 day')", "22023"),
        ("failures(NULL)", "22004"),
    ] {
        let error = session.query(&format!("SELECT * FROM taskq.{call}"), &[]).unwrap_err();
        let said = error.as_db_error().unwrap();
        assert_eq!(said.code().code(), code, "{call}");
        assert!(said.detail().is_some() && said.hint().is_some(), "{call}");
    }
}

/// The pages that each look reads do not grow with the queue.
#[test]
fn looks_read_a_bounded_part_of_a_large_queue() {
    let looks = [
        "SELECT * FROM taskq.find_tasks(max_looked => 500)",
        "SELECT * FROM taskq.find_tasks(states => '{blocked}', max_looked => 500)",
        "SELECT * FROM taskq.find_tasks(states => '{in-progress}', max_looked => 500)",
        "SELECT * FROM taskq.find_tasks(states => '{aborted}', max_looked => 500)",
        "SELECT * FROM taskq.find_tasks(groups => '{small}', max_looked => 500)",
        "SELECT * FROM taskq.find_tasks(body => '{\"a\": 1}', max_looked => 500)",
        "SELECT * FROM taskq.failures(max_looked => 500)",
        "SELECT * FROM taskq.inbox ORDER BY position LIMIT 25",
    ];
    let (_db, [mut session]) = Db::connected();
    // Up to so many pages what is in progress is read, instead of what leases name.
    session.run("CREATE OR REPLACE FUNCTION taskq._counted_pages() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1");
    let grow = |session: &mut Session, n: u32| {
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_many('done', array_fill('{{}}'::text, '{{{n}}}'))"
        ));
        session.run(&format!(
            "SELECT count(taskq.return_task(task_id, token)) FROM taskq.own_tasks('w', {n}, '{{done}}')"
        ));
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_many('ready', array_fill('{{}}'::text, '{{{n}}}'))"
        ));
    };
    session
        .insert(
            json!([{"id": "a", "action": "few", "group_id": "small", "signal": true}, {"action": "mine"}]),
        )
        .unwrap();
    session.run("SELECT count(*) FROM taskq.own_tasks('w', 1, '{mine}')");
    grow(&mut session, 2000);
    session.run("VACUUM ANALYZE");
    let before: Vec<i64> = looks.iter().map(|look| session.pages(look)).collect();
    grow(&mut session, 20_000);
    session.run("VACUUM ANALYZE");
    for (look, before) in looks.iter().zip(before) {
        let after = session.pages(look);
        // Indexes are a level deeper, and the fill of pages differs.
        assert!(after <= 2 * before + 300, "{look}: {before} pages of a small queue, {after} of a large one");
    }
}

#[test]
fn the_series_counts_each_end_in_its_bucket() {
    let (_db, [mut session]) = Db::connected();
    for (ago, n) in [("26 hours", 1), ("5 hours", 2), ("40 minutes", 3), ("10 minutes", 4)] {
        let now: String =
            session.one(&format!("SELECT (date_trunc('hour', now()) - interval '{ago}')::text"));
        session.set_now(Some(&now));
        session
            .run(&format!("SELECT count(*) FROM taskq.insert_many('x', array_fill(NULL::text, '{{{n}}}'))"));
        session.run(&format!("SELECT taskq.return_task(task_id, token, CASE WHEN '{ago}' = '10 minutes' THEN 'aborted' ELSE 'completed' END) FROM taskq.own_tasks('w', {n}, '{{x}}')"));
    }
    let now: String = session.one("SELECT (date_trunc('hour', now()))::text");
    session.set_now(Some(&now));
    let sums = |session: &mut Session, call: &str| -> String {
        session.one(&format!("SELECT concat_ws(' ', count(*), sum(s.completed), sum(s.aborted), count(s.running_p50)) FROM taskq.series({call}) AS s"))
    };
    assert_eq!(sums(&mut session, ""), "60 3 4 2");
    assert_eq!(sums(&mut session, "'30 minutes'"), "30 0 4 1");
    assert_eq!(sums(&mut session, "'1 day'"), "48 5 4 3");
    assert_eq!(sums(&mut session, "actions => '{y}'"), "60 0 0 0");
    let at: String = session
        .one("SELECT to_char(s.at AT TIME ZONE 'UTC', 'MI') FROM taskq.series() AS s WHERE s.completed = 3");
    assert_eq!(at, "20");
}

#[test]
fn failures_that_differ_in_numbers_are_one() {
    let (_db, [mut session]) = Db::connected();
    for id in ["a 1", "a 2", "a 30", "b"] {
        session.insert(json!([{"id": id, "action": "x"}])).unwrap();
        let said = if id == "b" { "100% _lost_".to_owned() } else { format!("no {id}: code 5") };
        session
            .execute(
                "SELECT taskq.return_task(task_id, token, 'aborted', $1) FROM taskq.own_tasks('w', 1, '{x}')",
                &[&said],
            )
            .unwrap();
    }
    session.insert(json!([{"id": "cancelled", "action": "y"}, {"id": "through it", "action": "y", "depends_on": ["cancelled"]}])).unwrap();
    session.run("SELECT taskq.cancel_tasks('{cancelled}')");
    let rows: Vec<String> = session
        .all("SELECT concat_ws('|', f.action, f.cause, f.status, f.number, f.status_like) FROM taskq.failures() AS f ORDER BY f.number DESC, 1");
    let expected = [
        "x|returned|no a N: code N|3|no a %: code %",
        r"x|returned|N% _lost_|1|%\% \_lost\_",
        "y|cancelled|cancelled|1|cancelled",
    ];
    assert_eq!(rows, expected);
    for (like, number) in [(r"no a %: code %", 3), (r"%\% \_lost\_", 1)] {
        let found: i64 =
            session.query("SELECT count(*) FROM taskq.find_tasks(status_like => $1)", &[&like]).unwrap()[0]
                .get(0);
        assert_eq!(found, number, "{like}");
    }
}

#[test]
fn the_inbox_has_what_has_not_come() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "approve", "action": "ask", "signal": true, "metadata": {"title": "Approve?"}, "expires_in": "1 day"},
        {"id": "later", "action": "ask", "signal": true},
        {"id": "order", "action": "pay", "depends_on": ["approve", "plain"]},
        {"id": "plain", "action": "pay"}]));
    let rows: Vec<String> = session.all(
        "SELECT concat_ws('|', i.task_id, i.action, i.metadata ->> 'title', i.expires_at > now(), i.waited_by::text) FROM taskq.inbox AS i ORDER BY i.position",
    );
    assert_eq!(rows, ["approve|ask|Approve?|t|{order}", "later|ask|{}"]);
    session.run("SELECT taskq.signal('approve')");
    let rows: Vec<String> = session.all("SELECT i.task_id FROM taskq.inbox AS i");
    assert_eq!(rows, ["later"]);
}

#[test]
fn the_next_times_are_those_of_a_schedule() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2026-03-28 12:00:00Z"));
    let times = |session: &mut Session, call: &str| -> Vec<String> {
        session.all(&format!(
            "SELECT to_char(t AT TIME ZONE 'UTC', 'MM-DD HH24:MI') FROM taskq.next_times({call}) AS t"
        ))
    };
    // The clocks of Berlin go forward in between.
    assert_eq!(times(&mut session, "'0 9 * * *', 'Europe/Berlin', 2"), ["03-29 07:00", "03-30 07:00"]);
    assert_eq!(
        times(&mut session, "'30 2 * * *', number => 3"),
        ["03-29 02:30", "03-30 02:30", "03-31 02:30"]
    );
    assert_eq!(times(&mut session, "'0 0 30 2 *'"), [""; 0]);
    let next: String = session.one(
        r#"SELECT to_char(taskq.schedule('s', '0 9 * * *', '{"action": "x"}', 'Europe/Berlin') AT TIME ZONE 'UTC', 'MM-DD HH24:MI')"#,
    );
    assert_eq!(next, "03-29 07:00");
    for (call, code) in [
        ("'soon'", "22023"),
        ("'@daily', 'Mars'", "22023"),
        ("'@daily', number => 0", "22023"),
        ("'@daily', number => 1001", "22023"),
        ("NULL", "22004"),
    ] {
        let error = session.query(&format!("SELECT taskq.next_times({call})"), &[]).unwrap_err();
        assert_eq!(error.as_db_error().unwrap().code().code(), code, "{call}");
    }
}
