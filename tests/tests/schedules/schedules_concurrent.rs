//! Schedules under eight sessions, and sleepers that a run wakes.
//!
//! Why: there is no scheduler process, so each session fires; two that do it at once must not insert a run twice, and
//! no call may sleep through one. On wrong code a run is doubled or missing, or a waiter comes back with nothing.

use std::thread;
use std::time::{Duration, Instant};

use taskq_tests::Db;

use crate::{call, owned, wait_for_one};

#[test]
fn eight_sessions_fire_each_run_once() {
    let (db, [mut main]) = Db::connected();
    main.set_now(Some("2030-01-01 00:00:00Z"));
    for name in ["s", "t"] {
        call(
            &mut main,
            &format!(
                "schedule('{name}', '* * * * *', '{{\"action\": \"{name}\"}}', overlap => 'queue', backfill => 'all')"
            ),
        );
    }
    thread::scope(|scope| {
        for worker in 0..8 {
            let mut session = db.connect();
            scope.spawn(move || {
                for minute in 1..60 {
                    session.set_now(Some(&format!("2030-01-01 00:{minute:02}:01Z")));
                    if worker % 2 == 0 {
                        call(&mut session, "maintain()");
                    }
                    for grant in session.own("w", 2, &["s", "t"]).unwrap() {
                        session.complete(&grant);
                    }
                }
            });
        }
    });
    main.set_now(Some("2030-01-01 00:59:30Z"));
    call(&mut main, "maintain()");
    for name in ["s", "t"] {
        let ids: Vec<String> =
            main.all(&format!("SELECT id FROM taskq.tasks WHERE action = '{name}' ORDER BY id"));
        let expected: Vec<String> =
            (1..60).map(|minute| format!("{name}@2030-01-01T00:{minute:02}:00Z")).collect();
        assert_eq!(ids, expected);
    }
    let history = main.one::<i64>("SELECT count(*) FROM taskq.attempts WHERE outcome <> 'completed'");
    assert_eq!(history, 0, "each run was performed once");
}

/// Two deploys that register the same schedule, over and over, beside sessions that insert its runs and own them.
#[test]
fn deploys_beside_runs_lose_none_and_double_none() {
    let (db, [mut main]) = Db::connected();
    main.set_now(Some("2030-01-01 00:00:00Z"));
    let set = "schedule('s', '* * * * *', '{\"action\": \"s\"}', overlap => 'queue', backfill => 'all')";
    call(&mut main, set);
    thread::scope(|scope| {
        for worker in 0..6 {
            let mut session = db.connect();
            scope.spawn(move || {
                for minute in 1..60 {
                    session.set_now(Some(&format!("2030-01-01 00:{minute:02}:01Z")));
                    match worker % 3 {
                        0 => call(&mut session, set),
                        1 => call(&mut session, "maintain()"),
                        _ => {}
                    }
                    for grant in session.own("w", 2, &["s"]).unwrap() {
                        session.complete(&grant);
                    }
                }
            });
        }
    });
    main.set_now(Some("2030-01-01 00:59:30Z"));
    call(&mut main, "maintain()");
    let ids: Vec<String> = main.all("SELECT id FROM taskq.tasks ORDER BY id");
    let expected: Vec<String> = (1..60).map(|minute| format!("s@2030-01-01T00:{minute:02}:00Z")).collect();
    assert_eq!(ids, expected);
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.attempts WHERE outcome <> 'completed'"), 0);
}

/// Two deploys bring other times at once, while a run of the old ones is being inserted.
#[test]
#[ignore = "long"]
fn a_change_of_the_times_beside_a_run_loses_none_and_doubles_none() {
    for round in 0..15 {
        let (db, [mut main]) = Db::connected();
        main.set_now(Some("2030-01-01 00:00:30Z"));
        let policies = "overlap => 'queue', backfill => 'all'";
        call(&mut main, &format!("schedule('s', '* * * * *', '{{\"action\": \"s\"}}', {policies})"));
        let barrier = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            for worker in 0..4 {
                let (mut session, barrier) = (db.connect(), &barrier);
                session.set_now(Some("2030-01-01 00:30:30Z"));
                scope.spawn(move || {
                    barrier.wait();
                    if worker < 2 {
                        let cron = "*/20 * * * *";
                        call(
                            &mut session,
                            &format!("schedule('s', '{cron}', '{{\"action\": \"t\"}}', {policies})"),
                        );
                    } else {
                        for _ in 0..5 {
                            owned(&mut session, 1, &["none"]);
                        }
                    }
                });
            }
        });
        // A session that was inserting when the times changed may have left some.
        main.set_now(Some("2030-01-01 01:00:30Z"));
        for _ in 0..4 {
            call(&mut main, "maintain()");
        }
        let ids: Vec<String> =
            main.all("SELECT substr(id, 14, 5) || ' ' || action FROM taskq.tasks ORDER BY id");
        let mut expected: Vec<String> = (1..=30).map(|minute| format!("00:{minute:02} s")).collect();
        expected.extend(["00:40 t".to_owned(), "01:00 t".to_owned()]);
        assert_eq!(ids, expected, "round {round}");
    }
}

#[test]
fn a_busy_previous_run_delays_a_replacement_and_loses_none() {
    let (db, [mut a, mut b]) = Db::connected();
    for session in [&mut a, &mut b] {
        session.set_now(Some("2030-01-01 00:00:30Z"));
    }
    call(&mut a, "schedule('s', '* * * * *', '{\"action\": \"x\"}', overlap => 'replace')");
    a.set_now(Some("2030-01-01 00:01:01Z"));
    let grant = a.own_one("x");
    a.run("BEGIN");
    a.complete(&grant);
    b.set_now(Some("2030-01-01 00:02:01Z"));
    let looking = b.background(|s| owned(s, 1, &["x"]).len());
    assert_eq!(
        looking.settle_down(&mut db.connect()),
        taskq_tests::Progress::Done,
        "a claim waits for no other"
    );
    let (mut b, _) = looking.join();
    a.run("COMMIT");
    assert_eq!(owned(&mut b, 1, &["x"]), ["s@2030-01-01T00:02:00Z"]);
}

#[test]
fn a_run_whose_dependency_is_locked_comes_with_a_later_call() {
    let (db, [mut a, mut b]) = Db::connected();
    a.run("SELECT taskq.insert_task('gate', 'y'), taskq.insert_task('open', 'z')");
    let grant = a.own_one("y");
    for session in [&mut a, &mut b] {
        session.set_now(Some("2030-01-01 00:00:30Z"));
    }
    call(
        &mut a,
        "schedule('s', '* * * * *', '{\"action\": \"x\", \"depends_on\": [\"gate\"], \"to_signal_after\": [\"open\"]}')",
    );
    a.run("BEGIN");
    a.complete(&grant);
    b.set_now(Some("2030-01-01 00:01:01Z"));
    let looking = b.background(|s| owned(s, 1, &["x"]).len());
    assert_eq!(
        looking.settle_down(&mut db.connect()),
        taskq_tests::Progress::Done,
        "a claim waits for no other"
    );
    let (mut b, none) = looking.join();
    assert_eq!(none, 0);
    a.run("COMMIT");
    assert_eq!(owned(&mut b, 1, &["x"]), ["s@2030-01-01T00:01:00Z"]);
    assert_eq!(b.state("open"), "blocked");
    assert_eq!(b.one::<Option<String>>("SELECT problem FROM taskq.schedules"), None);
}

/// A call waits for no other, in whatever state the run before is; what is to be left out beside it is, at once.
#[test]
fn a_previous_run_that_is_locked_in_any_state_holds_up_no_call() {
    let given_back = "SELECT taskq.return_task(g.task_id, g.token, 'pending', retry_after => '1 day') FROM taskq.own_tasks('w', 1, '{x}') AS g";
    for (table, task, before) in [
        ("run", r#"{"action": "x"}"#, "SELECT 1"),
        ("blocked", r#"{"action": "x", "depends_on": ["gate"]}"#, "SELECT 1"),
        ("scheduled", r#"{"action": "x"}"#, given_back),
        (
            "parked",
            r#"{"action": "x", "group_id": "g"}"#,
            "SELECT taskq.pause_group('g'); SELECT taskq.own_tasks('w', 1, '{x}')",
        ),
    ] {
        let (db, [mut a, mut b]) = Db::connected();
        for session in [&mut a, &mut b] {
            session.set_now(Some("2030-01-01 00:00:30Z"));
        }
        a.run("SELECT taskq.insert_task('gate', 'y')");
        call(&mut a, &format!("schedule('s', '* * * * *', '{task}', overlap => 'skip')"));
        a.set_now(Some("2030-01-01 00:01:01Z"));
        call(&mut a, "maintain()");
        let first = "s@2030-01-01T00:01:00Z";
        a.run(before);
        let there = format!(
            "SELECT count(*) FROM taskq.{table} AS r JOIN taskq.task AS t USING (task_no) WHERE t.id = '{first}'"
        );
        assert_eq!(a.one::<i64>(&there), 1, "{table}");
        a.run(&format!("BEGIN; SELECT taskq.cancel_tasks('{{{first}}}')"));
        b.set_now(Some("2030-01-01 00:02:01Z"));
        let looking = b.background(|s| call(s, "maintain()"));
        assert_eq!(looking.settle_down(&mut db.connect()), taskq_tests::Progress::Done, "{table}");
        drop(looking.join());
        a.run("ROLLBACK");
        let next: String = a.one("SELECT (next_at AT TIME ZONE 'UTC')::text FROM taskq.schedules");
        assert_eq!(next, "2030-01-01 00:03:00", "{table}: its run is left out, not put off");
        assert_eq!(a.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id ~ '^s@'"), 1);
    }
}

/// A call that has passed over the run before, because another was just inserting the next one, hears of its end.
#[test]
fn a_call_that_passed_over_a_run_is_woken_when_it_is_free() {
    let (db, [mut firing, mut watcher]) = Db::connected();
    firing.set_now(Some("2030-01-01 00:00:30Z"));
    call(&mut firing, "schedule('s', '* * * * *', '{\"action\": \"x\"}', overlap => 'queue')");
    firing.set_now(Some("2030-01-01 00:01:01Z"));
    call(&mut firing, "maintain()");
    firing.run("BEGIN");
    firing.set_now(Some("2030-01-01 00:02:01Z"));
    call(&mut firing, "maintain()");
    let waiter = db.connect();
    let pid = waiter.pid();
    let waiting = waiter.background(|s| wait_for_one(s, "x"));
    watcher.until_asleep(pid);
    let start = Instant::now();
    firing.run("COMMIT");
    assert_eq!(waiting.join().1.expect("the run before").task_id, "s@2030-01-01T00:01:00Z");
    assert!(start.elapsed() < Duration::from_secs(3), "it slept on for {:?}", start.elapsed());
}

/// Why: each call looked at the first two hundred that were due, and these stayed so.
#[test]
fn a_run_behind_many_that_are_held_up_comes() {
    let (_db, [mut a, mut b]) = Db::connected();
    a.run("SELECT taskq.insert_task('gate', 'y')");
    let grant = a.own_one("y");
    for session in [&mut a, &mut b] {
        session.set_now(Some("2030-01-01 00:00:30Z"));
    }
    a.run(
        "SELECT taskq.schedule('held up ' || i, '* * * * *', '{\"action\": \"x\", \"depends_on\": [\"gate\"]}')
           FROM generate_series(1, 250) AS i",
    );
    call(&mut a, "schedule('one more', '* * * * *', '{\"action\": \"x\"}')");
    a.run("BEGIN");
    a.complete(&grant);
    b.set_now(Some("2030-01-01 00:01:01Z"));
    // How far one call comes is a matter of time.
    let had = (0..20).find_map(|_| owned(&mut b, 1, &["x"]).pop());
    assert_eq!(had.as_deref(), Some("one more@2030-01-01T00:01:00Z"));
    a.run("COMMIT");
    let rest: usize = (0..20).map(|_| owned(&mut b, 300, &["x"]).len()).sum();
    assert_eq!(rest, 250, "two hundred a call, if there is time for them");
}

/// Many runs that would have had to wait, one after the other in one session: what Postgres keeps of the errors in between
/// must go, or there is no room for more, and the whole server goes down.
#[test]
fn runs_that_had_to_wait_use_up_nothing() {
    let (_db, [mut producer, mut session]) = Db::connected();
    producer.run("BEGIN; SELECT taskq.insert_task('first', 'x', merge_key => 'new')");
    session.set_now(Some("2030-01-01 00:00:30Z"));
    for n in 0..12 {
        let task = r#"{"action": "x", "merge_key": "new"}"#;
        call(&mut session, &format!("schedule('s{n}', '* * * * *', '{task}')"));
    }
    session.set_now(Some("2030-01-01 00:01:01Z"));
    // Each has a fifth of a second; those that were put off are tried again a second later.
    for _ in 0..3 {
        assert_eq!(owned(&mut session, 100, &["x"]).len(), 0);
        thread::sleep(Duration::from_millis(1100));
    }
    producer.run("COMMIT");
    call(&mut session, "maintain()");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id LIKE 's%'"), 12);
}
