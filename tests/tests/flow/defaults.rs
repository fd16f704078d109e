//! What holds for tasks and actions of which nothing is said: the settings `taskq.max_tries`, `taskq.backoff` and
//! `taskq.lease`, as shipped and as set; and how much of the history is kept.
//!
//! Why: a task that always fails must neither be tried hundreds of times a second nor for ever, by default. On wrong
//! code such a task is ready at once, is tried once more, or leaves a row for each try.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

use crate::{at, call, owned, tasks};

/// Owns the next task of action `x` and gives it back without a word of when; after how many seconds it is due.
fn delay_of_give_back(session: &mut Session, second: f64) -> f64 {
    at(session, second);
    let grant = session.own_one("x");
    assert_eq!(
        session.give_with(&grant.task_id, grant.token, "pending", "status => 'no'").unwrap(),
        "pending"
    );
    session.one(&format!(
        "SELECT COALESCE((SELECT EXTRACT(epoch FROM not_before - taskq.clock()) FROM taskq.tasks \
         WHERE id = '{}' AND state = 'scheduled'), 0)::float8",
        grant.task_id
    ))
}

/// Tries the task of action `x` over and over until it aborts; how often it was tried.
fn tries_until_aborted(session: &mut Session, most: i32) -> i32 {
    for number in 1..=most {
        let grant = session.own_one("x");
        assert_eq!(grant.num_tries, number);
        if session.give(&grant.task_id, grant.token, "pending").unwrap() == "aborted" {
            return number;
        }
    }
    0
}

#[test]
fn as_shipped_a_task_that_fails_waits_twice_as_long_each_time_up_to_ten_minutes() {
    let (_db, [mut session]) = Db::with_tasks(tasks("x", 1));
    for (n, most) in
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 600.0, 600.0].into_iter().enumerate()
    {
        let delay = delay_of_give_back(&mut session, 1_000.0 * n as f64);
        assert!((0.9 * most - 0.001..=most).contains(&delay), "{delay} after try {}", n + 1);
    }
}

#[test]
fn the_setting_is_below_the_action_which_is_below_the_task() {
    let (_db, [mut session]) = Db::connected();
    session.run(r#"SET taskq.backoff = '{"kind": "fixed", "initial": "3 seconds"}'"#);
    session.insert(tasks("x", 1)).unwrap();
    assert_eq!(delay_of_give_back(&mut session, 0.0), 3.0);
    call(&mut session, r#"set_action('x', backoff => '{"kind": "fixed", "initial": "5 seconds"}')"#);
    assert_eq!(delay_of_give_back(&mut session, 100.0), 5.0);
    call(&mut session, r#"set_action('x', backoff => '{"kind": "fixed", "initial": "0"}')"#);
    assert_eq!(delay_of_give_back(&mut session, 200.0), 0.0, "an action that wants none has none");
    session.cancel(&["x1"]).unwrap();
    session
        .insert(json!([{"id": "a", "action": "x", "backoff": {"kind": "fixed", "initial": "7 seconds"}}]))
        .unwrap();
    assert_eq!(delay_of_give_back(&mut session, 300.0), 7.0);
    call(&mut session, "set_action('x', clear => '{backoff}')");
    session.run("SET taskq.backoff = ''");
    session.cancel(&["a"]).unwrap();
    session.insert(json!([{"id": "b", "action": "x"}])).unwrap();
    assert_eq!(delay_of_give_back(&mut session, 400.0), 0.0);
}

#[test]
fn batches_wait_for_the_backoff_too() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session.insert(tasks("x", 4)).unwrap();
    session.run(
        "WITH held AS MATERIALIZED (SELECT * FROM taskq.own_tasks('w', 2, '{x}')) \
         SELECT taskq.return_tasks(array_agg(task_id), array_agg(token), 'pending') FROM held",
    );
    session.run(
        "WITH held AS MATERIALIZED (SELECT * FROM taskq.own_tasks('w', 2, '{x}')) \
         SELECT taskq.return_tasks(jsonb_agg(jsonb_build_object('task_id', task_id, 'token', token, \
                'status_code', 'pending', 'retry_after', CASE task_id WHEN 'x4' THEN '0' END))) FROM held",
    );
    let states: Vec<String> = session.all("SELECT id || ' ' || state FROM taskq.tasks ORDER BY id");
    assert_eq!(states, ["x1 scheduled", "x2 scheduled", "x3 scheduled", "x4 ready"]);
}

#[test]
fn as_shipped_a_task_is_tried_25_times() {
    let (_db, [mut session]) = Db::with_tasks(tasks("x", 1));
    assert_eq!(tries_until_aborted(&mut session, 30), 25);
    let why: Vec<String> = session.all("SELECT * FROM taskq.why('x1')");
    assert!(why.iter().any(|reason| reason.contains("25 of 25")), "{why:?}");
}

#[test]
fn the_25th_deadline_aborts() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.backoff = ''");
    session.insert(tasks("x", 1)).unwrap();
    for n in 0..25 {
        at(&mut session, 100.0 * f64::from(n));
        session.own_one_with("x", "lease => '1 minute'");
    }
    at(&mut session, 10_000.0);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    assert_eq!(session.state("x1"), "aborted");
}

#[test]
fn max_tries_of_the_setting_is_below_the_action_which_is_below_the_task() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.max_tries = 2");
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_eq!(tries_until_aborted(&mut session, 5), 2);
    call(&mut session, "set_action('x', max_tries => 3)");
    session.insert(json!([{"id": "b", "action": "x"}])).unwrap();
    assert_eq!(tries_until_aborted(&mut session, 5), 3);
    session.insert(json!([{"id": "c", "action": "x", "max_tries": 4}])).unwrap();
    assert_eq!(tries_until_aborted(&mut session, 5), 4);
    call(&mut session, "set_action('x', clear => '{max_tries}')");
    session.run("SET taskq.max_tries = -1");
    session.insert(json!([{"id": "d", "action": "x"}])).unwrap();
    assert_eq!(tries_until_aborted(&mut session, 60), 0, "without a limit it is never aborted");
}

#[test]
fn lease_of_the_setting_is_below_all_others() {
    let (_db, [mut session]) = Db::connected();
    let minutes = |session: &mut Session, arguments: &str| -> Option<f64> {
        at(session, 0.0);
        session
            .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "lease": "4 minutes"}]))
            .unwrap();
        let grants = session.own_with("w", 1, &["x"], arguments).unwrap();
        let deadline: Option<f64> = session
            .query_one("SELECT EXTRACT(epoch FROM action_deadline - taskq.clock())::float8 / 60 FROM taskq.tasks WHERE id = 'a'", &[])
            .unwrap()
            .get(0);
        assert_eq!(grants[0].task_id, "a");
        session.own_with("w", 1, &["x"], arguments).unwrap();
        let of_task: f64 = session.one("SELECT EXTRACT(epoch FROM action_deadline - taskq.clock())::float8 / 60 FROM taskq.tasks WHERE id = 'b'");
        assert_eq!(of_task, if arguments.contains("lease") { 1.0 } else { 4.0 });
        session.cancel(&["a", "b"]).unwrap();
        session.delete(&["a", "b"]).unwrap();
        deadline
    };
    let none = "with_results => false";
    assert_eq!(minutes(&mut session, none), Some(60.0), "as shipped");
    session.run("SET taskq.lease = ''");
    assert_eq!(minutes(&mut session, none), None, "for ever");
    session.run("SET taskq.lease = '2 minutes'");
    assert_eq!(minutes(&mut session, none), Some(2.0));
    call(&mut session, "set_action('x', lease => '3 minutes')");
    assert_eq!(minutes(&mut session, none), Some(3.0));
    assert_eq!(minutes(&mut session, "lease => '1 minute'"), Some(1.0));
}

#[test]
fn a_setting_of_the_database_holds_in_new_connections() {
    let db = Db::new();
    db.connect().run(&format!(
        "ALTER DATABASE \"{0}\" SET taskq.max_tries = 1; ALTER DATABASE \"{0}\" SET taskq.lease = '2 hours'",
        db.name()
    ));
    let mut session = db.connect();
    session.insert(tasks("x", 1)).unwrap();
    let grant = session.own_one("x");
    let lasts = "SELECT action_deadline > now() + interval '110 minutes' FROM taskq.tasks WHERE id = 'x1'";
    assert!(session.one::<bool>(lasts));
    assert_eq!(session.give("x1", grant.token, "pending").unwrap(), "aborted");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.clock()");
    for (name, value) in [
        ("max_tries", "0"),
        ("max_tries", "-2"),
        ("backoff", "soon"),
        ("backoff", r#"{"kind": "exponential"}"#),
        ("backoff", r#"{"kind": "linear", "initial": "1 second"}"#),
        ("backoff", r#"{"kind": "fixed", "initial": "1 second", "jitter": 2}"#),
        ("lease", "-1 second"),
        ("lease", "a while"),
        ("lease", "2000 years"),
    ] {
        let error = session.query(&format!("SET taskq.{name} = '{value}'"), &[]).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{name} {value}");
        assert!(error.message().contains(&format!("taskq.{name}")), "{error:?}");
    }
    let kept: String = session.one("SHOW taskq.max_tries");
    assert_eq!(kept, "25");
    refused(
        &mut session,
        "22023",
        "retry_after",
        "SELECT taskq.return_task('x', gen_random_uuid(), 'pending', retry_after => interval '-1 s')",
        &[],
    );
}

fn kept(session: &mut Session) -> (i64, i32, i32) {
    let row =
        session.query_one("SELECT count(*), min(num_try), max(num_try) FROM taskq.attempts", &[]).unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[test]
fn the_last_hundred_tries_are_kept() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.max_tries = -1");
    session.insert(tasks("x", 1)).unwrap();
    session.insert(tasks("other", 1)).unwrap();
    session.perform("other", "pending");
    assert_eq!(tries_until_aborted(&mut session, 250), 0);
    let of_x: Vec<i32> =
        session.all("SELECT num_try FROM taskq.attempts WHERE task_id = 'x1' ORDER BY num_try");
    assert_eq!(of_x, (151..=250).collect::<Vec<_>>());
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.attempts WHERE task_id = 'other1'"), 1);
}

#[test]
fn what_was_before_retries_is_bounded_too() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.max_tries = 40");
    session.insert(tasks("x", 1)).unwrap();
    for _ in 0..6 {
        assert_eq!(tries_until_aborted(&mut session, 41), 40);
        session.run("SELECT taskq.retry_tasks('{x1}')");
    }
    assert_eq!(kept(&mut session).0, 100);
    session.run("SET taskq.max_tries = -1");
    assert_eq!(tries_until_aborted(&mut session, 101), 0);
    assert_eq!(kept(&mut session), (100, 2, 101), "those of the last retry, and no others");
}

#[test]
fn deadlines_are_counted_although_their_rows_are_gone() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.max_tries = -1");
    call(&mut session, "set_action('x', max_timeouts => 130)");
    session.insert(tasks("x", 1)).unwrap();
    let mut second = 0.0;
    for n in 1..=130 {
        assert_eq!(session.state("x1"), "ready", "before deadline {n}");
        session.own_one_with("x", "lease => '1 second'");
        second += 2.0;
        at(&mut session, second);
        call(&mut session, "maintain()");
        if n < 130 {
            // Tries that are given back push the rows of deadlines out.
            let grant = session.own_one("x");
            session.give("x1", grant.token, "pending").unwrap();
        }
    }
    assert_eq!(session.state("x1"), "aborted");
}
