//! `set_action`: settings as defaults for tasks, and `pause_action`.
//!
//! Why: a default that overrides the task, or a setting that a later call forgets, changes how tasks run, and nothing
//! shows that. On wrong code a deadline, a due time, a code or a row of `taskq.actions` differs.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

use crate::{at, call, owned, tasks};

/// Gives the task of action `x` back and returns after how many seconds it is due.
fn delay_of_give_back(session: &mut Session, second: f64, arguments: &str) -> f64 {
    at(session, second);
    let grant = session.own_one("x");
    session.give_with(&grant.task_id, grant.token, "pending", arguments).unwrap();
    session.one(&format!(
        "SELECT COALESCE((SELECT EXTRACT(epoch FROM not_before - taskq.clock()) FROM taskq.tasks \
         WHERE id = '{}' AND state = 'scheduled'), 0)::float8",
        grant.task_id
    ))
}

#[test]
fn max_tries_is_the_tasks_else_the_actions_also_for_tasks_inserted_before() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "own", "action": "x", "max_tries": 1}, {"id": "default", "action": "x"}]),
    );
    call(&mut session, "set_action('x', max_tries => 2)");
    let tries = |session: &mut Session| {
        let grants = session.own("w", 9, &["x"]).unwrap();
        grants.iter().map(|g| session.give(&g.task_id, g.token, "pending").unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(tries(&mut session), ["aborted", "pending"]);
    assert_eq!(tries(&mut session), ["aborted"]);
}

#[test]
fn retention_of_the_action_is_a_default() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "set_action('x', retention => '1 minute')");
    session
        .insert(
            json!([{"id": "own", "action": "x", "retention": "1 hour"}, {"id": "default", "action": "x"}]),
        )
        .unwrap();
    session.perform("x", "completed");
    session.perform("x", "aborted");
    at(&mut session, 61.0);
    call(&mut session, "maintain()");
    assert_eq!((session.state("own"), session.state("default")), ("completed".to_owned(), "gone".to_owned()));
}

#[test]
fn a_fixed_backoff_delays_each_next_try_alike() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, r#"set_action('x', backoff => '{"kind": "fixed", "initial": "5 seconds"}')"#);
    session.insert(tasks("x", 1)).unwrap();
    for second in [0.0, 100.0, 200.0] {
        assert_eq!(delay_of_give_back(&mut session, second, "status => 'no'"), 5.0);
    }
}

#[test]
fn an_exponential_backoff_doubles_up_to_its_cap_and_nothing_is_owned_before() {
    let (_db, [mut session]) = Db::connected();
    call(
        &mut session,
        r#"set_action('x', backoff => '{"kind": "exponential", "initial": "1 second", "max": "10 seconds"}')"#,
    );
    session.insert(tasks("x", 1)).unwrap();
    for (i, expected) in [1.0, 2.0, 4.0, 8.0, 10.0, 10.0].into_iter().enumerate() {
        let second = 100.0 * i as f64;
        assert_eq!(delay_of_give_back(&mut session, second, "status => 'no'"), expected);
        at(&mut session, second + expected - 0.01);
        assert!(owned(&mut session, 1, &["x"]).is_empty());
    }
}

#[test]
fn jitter_shortens_a_delay_by_no_more_than_its_part_and_differs() {
    let (_db, [mut session]) = Db::connected();
    call(
        &mut session,
        r#"set_action('x', max_tries => 50, backoff => '{"kind": "fixed", "initial": "100 seconds", "jitter": 0.5}')"#,
    );
    session.insert(tasks("x", 1)).unwrap();
    let delays: Vec<f64> =
        (0..40).map(|i| delay_of_give_back(&mut session, 1000.0 * f64::from(i), "status => 'no'")).collect();
    assert!(delays.iter().all(|d| (50.0..=100.0).contains(d)), "{delays:?}");
    assert!(delays.iter().any(|d| *d < 70.0) && delays.iter().any(|d| *d > 80.0), "{delays:?}");
}

#[test]
fn on_timeout_abort_ends_a_task_whose_deadline_passed_and_tells_its_dependents() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "set_action('x', lease => '1 minute', on_timeout => 'abort')");
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]}]))
        .unwrap();
    let grant = session.own_one("x");
    session.give("a", grant.token, "pending").unwrap();
    session.own_one("x");
    at(&mut session, 61.0);
    assert!(owned(&mut session, 1, &["x", "y"]).is_empty());
    assert_eq!((session.state("a"), session.state("b")), ("aborted".to_owned(), "aborted".to_owned()));
    assert!(session.task("a").unwrap().status.unwrap().contains("deadline"));
}

#[test]
fn max_timeouts_counts_over_the_life_of_a_task_wherever_it_has_been() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', lease => '1 minute', max_timeouts => 3)");
    session.run("SET taskq.backoff = ''");
    session
        .insert(json!([{"id": "a", "action": "x", "group_id": "g", "workgroup": "w", "merge_key": "k"}]))
        .unwrap();
    let mut now = 0.0;
    fn miss(session: &mut Session, now: &mut f64) {
        session.own_one("x");
        *now += 61.0;
        at(session, *now);
        call(session, "maintain()");
    }
    at(&mut session, now);
    // After the first it is given back with a delay, and parked under its group.
    miss(&mut session, &mut now);
    assert_eq!(session.state("a"), "in-progress", "its token is good until another is granted");
    let grant = session.own_one("x");
    session.give_with("a", grant.token, "pending", "retry_after => '10 seconds'").unwrap();
    call(&mut session, "pause_group('g')");
    now += 11.0;
    at(&mut session, now);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    call(&mut session, "resume_group('g')");
    // After the second it is held back with its workgroup.
    miss(&mut session, &mut now);
    call(&mut session, "delay_workgroup('w', '5 seconds')");
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    now += 20.0;
    at(&mut session, now);
    miss(&mut session, &mut now);
    assert_eq!(session.state("a"), "aborted", "the third deadline of its life");
    // A retry begins anew, and so does a reset.
    for again in ["retry_tasks('{a}')", "reset_group('g')"] {
        call(&mut session, again);
        for missed in 1..=3 {
            miss(&mut session, &mut now);
            let state = session.state("a");
            assert_eq!(state == "aborted", missed == 3, "{again}, deadline {missed}: {state}");
        }
    }
}

#[test]
fn set_action_keeps_what_is_not_named_and_clear_forgets() {
    let (_db, [mut session]) = Db::connected();
    call(
        &mut session,
        "set_action('x', max_tries => 3, lease => '1 minute', max_concurrency => 4, notify => true)",
    );
    call(
        &mut session,
        "set_action('x', rate_limit => 5, rate_period => '1 hour', max_timeouts => 2, retention => '1 day')",
    );
    call(&mut session, "set_action('x', max_tries => 7, on_timeout => 'abort')");
    const ROW: &str = "SELECT concat_ws(' ', max_tries, lease, max_concurrency, notify, rate_limit, rate_period, \
                       max_timeouts, retention, on_timeout, backoff) FROM taskq.actions WHERE action = 'x'";
    assert_eq!(session.one::<String>(ROW), "7 00:01:00 4 t 5 01:00:00 2 1 day abort");
    call(
        &mut session,
        "set_action('x', clear => '{max_tries,max_concurrency,rate_limit,on_timeout,retention,max_timeouts}')",
    );
    assert_eq!(session.one::<String>(ROW), "00:01:00 t retry");
}

#[test]
fn a_paused_action_is_not_owned_until_it_is_resumed_and_what_is_held_goes_on() {
    let (db, [mut session]) = Db::connected();
    assert!(session.one::<bool>("SELECT taskq.pause_action('x')"), "also before its first task");
    assert!(!session.one::<bool>("SELECT taskq.pause_action('x')"));
    session.insert(tasks("x", 2)).unwrap();
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    assert!(session.one::<bool>("SELECT taskq.resume_action('x')"));
    let grant = session.own_one("x");
    call(&mut session, "pause_action('x')");
    session.complete(&grant);
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    let mut waiter = db.connect();
    let pid = waiter.pid();
    waiter.run("SET statement_timeout = '30s'");
    let waiting = waiter.background(|s| s.own_with("w", 1, &["x"], "wait => '15 seconds'").unwrap().len());
    session.until_asleep(pid);
    call(&mut session, "resume_action('x')");
    assert_eq!(waiting.join().1, 1, "who waited is woken");
}

#[test]
fn wrong_settings_are_refused() {
    let (_db, [mut session]) = Db::connected();
    for (arguments, code, naming) in [
        ("NULL", "22004", "action"),
        ("''", "22023", "action"),
        ("'x', max_tries => 0", "22023", "max_tries"),
        ("'x', max_concurrency => -1", "22023", "max_concurrency"),
        ("'x', rate_limit => 5", "22023", "rate"),
        ("'x', rate_limit => 0, rate_period => '1 s'", "22023", "rate_limit"),
        ("'x', rate_limit => 1, rate_period => '0'", "22023", "rate_period"),
        ("'x', on_timeout => 'maybe'", "22023", "on_timeout"),
        ("'x', lease => '-1 s'", "22023", "lease"),
        ("'x', backoff => '{\"kind\": \"odd\", \"initial\": \"1 s\"}'", "22023", "backoff"),
        ("'x', backoff => '{\"kind\": \"fixed\", \"initial\": \"1 s\", \"jitter\": 2}'", "22023", "backoff"),
        ("'x', clear => '{colour}'", "22023", "clear"),
        ("'x', max_timeouts => 0", "22023", "max_timeouts"),
    ] {
        refused(&mut session, code, naming, &format!("SELECT taskq.set_action({arguments})"), &[]);
    }
    refused(&mut session, "TQ007", "absent", "SELECT taskq.resume_action('absent')", &[]);
    refused(&mut session, "22004", "action", "SELECT taskq.pause_action(NULL)", &[]);
}
