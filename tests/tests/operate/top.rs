//! `top` fits a terminal, has what is stuck first, and the numbers of the other views.

use serde_json::json;
use taskq_tests::{Db, Session};

#[test]
fn what_is_stuck_comes_first_in_a_hundred_columns() {
    let (_db, [mut session]) = Db::connected();
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.top"), 0);
    session.set_now(Some("2026-01-01 12:00:00"));
    let mut tasks: Vec<_> =
        (0..1200).map(|_| json!({"action": "busy with a name that is far too long"})).collect();
    tasks.push(json!({"id": "stuck", "action": "stuck ü"}));
    tasks.push(json!({"id": "after", "action": "idle", "depends_on": ["stuck"]}));
    tasks.push(json!({"id": "later", "action": "idle", "delay": "1 day"}));
    session.insert(tasks.into()).unwrap();
    session.set_now(Some("2026-01-01 12:00:30"));
    session.run("SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 50, '{busy with a name that is far too long}')");
    session.run("SELECT taskq.own_tasks('w', 3, '{busy with a name that is far too long}')");
    session.set_now(Some("2026-01-01 12:01:00"));
    let rows = session.query("SELECT t.action, t.ready, t.busy, t.blocked, t.later, t.oldest, t.in_out, t.wait FROM taskq.top AS t", &[]).unwrap();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| (0..8).map(|i| row.get::<_, String>(i).trim().to_owned()).collect()).collect();
    assert_eq!(rows[0], ["stuck ü", "█       1", "0", "0", "0", "60s", "0.2/0", ""], "{rows:?}");
    assert_eq!(
        rows[1],
        ["busy wit…oo long", "████ 1.1k", "3", "0", "0", "60s", "240/10", "30s/30s"],
        "{rows:?}"
    );
    assert_eq!(rows[2], ["idle", "0", "0", "1", "1", "", "0.4/0", ""], "{rows:?}");
    // What was stopped on purpose is marked, and does not have to be looked at first.
    session.run("SELECT taskq.pause_action('stuck ü'), taskq.pause_action('idle')");
    let stopped = |session: &mut Session| -> Vec<String> {
        session.all("SELECT concat_ws(' ', t.action, btrim(t.oldest)) FROM taskq.top AS t")
    };
    assert_eq!(stopped(&mut session), ["busy wit…oo long 60s", "stuck ü paused", "idle paused"]);
    session.run("SELECT taskq.resume_action('stuck ü'), taskq.set_action('stuck ü', max_concurrency => 0), taskq.resume_action('idle')");
    assert_eq!(stopped(&mut session), ["busy wit…oo long 60s", "idle ", "stuck ü closed"]);
    session.run("SELECT taskq.set_action('stuck ü', max_concurrency => 1)");
    assert_eq!(stopped(&mut session), ["stuck ü 60s", "busy wit…oo long 60s", "idle "]);
    // As psql prints it: the widest of each column, " | " in between, a space on both sides.
    let width: i64 = session.one(
        "SELECT sum(greatest(length(c.key), w.widest)) + 3 * (count(*) - 1) + 2
           FROM (SELECT key, max(length(value)) AS widest FROM taskq.top AS t, jsonb_each_text(to_jsonb(t)) GROUP BY key) AS w
           JOIN (SELECT jsonb_object_keys(to_jsonb(t)) AS key FROM (SELECT * FROM taskq.top LIMIT 1) AS t) AS c USING (key)",
    );
    assert!(width <= 100, "{width} columns");
}

/// On wrong code both are "a-very-long-act…".
#[test]
fn long_names_that_begin_alike_are_shortened_in_the_middle() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"action": "a-very-long-action-name-one"}, {"action": "a-very-long-action-name-two"},
               {"action": "exactly sixteen."}, {"action": "and seventeen, ü."}]),
    );
    let mut names: Vec<String> = session.all("SELECT t.action FROM taskq.top AS t");
    names.sort();
    assert_eq!(names, ["a-very-l…ame-one", "a-very-l…ame-two", "and seve…een, ü.", "exactly sixteen."]);
}

#[test]
fn ages_and_numbers_are_short() {
    let (_db, [mut session]) = Db::connected();
    for (age, word) in [
        ("0", "0ms"),
        ("12 milliseconds", "12ms"),
        ("0.5 seconds", "0.5s"),
        ("9.94 seconds", "9.9s"),
        ("10 seconds", "10s"),
        ("90 seconds", "90s"),
        ("5 minutes", "5m"),
        ("99 minutes", "99m"),
        ("3 hours", "3h"),
        ("2 days", "2d"),
        ("900 days", "900d"),
        ("20 years", "20y"),
        ("-1 second", "0ms"),
    ] {
        assert_eq!(session.one::<String>(&format!("SELECT taskq._age('{age}')")), word, "{age}");
    }
    for (number, word) in [
        ("0", "0"),
        ("2.44", "2.4"),
        ("9.97", "10"),
        ("999", "999"),
        ("999.6", "1.0k"),
        ("9949", "9.9k"),
        ("12345", "12k"),
        ("999400", "999k"),
        ("1e6", "1.0M"),
        ("123e6", "123M"),
        ("1.6e9", "2G"),
    ] {
        assert_eq!(session.one::<String>(&format!("SELECT taskq._short({number})")), word, "{number}");
    }
}
