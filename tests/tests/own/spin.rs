//! Entries that may not run: no worker spins on them, none comes back for them, and a waiting call is in no other's
//! way.
//!
//! Why: a task whose worker died in a group that was paused made every idle worker of the action call again some
//! thousand times a second, and a worker that stops at "nothing" ended because a claim had moved something out of its
//! way. On wrong code a waiting call comes back empty before its time, positions are used up while nothing happens, a
//! late return finds its token gone, the history names an actor that has never had the task, or a resume waits for a
//! sleeper.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskq_tests::{Background, Db, Grant, Progress, Session, sqlstate, until};

fn positions(session: &mut Session) -> i64 {
    session.one("SELECT last_value FROM taskq.position_seq")
}

/// Waits for so many seconds and is granted nothing: the call takes its time, and nothing is moved about meanwhile.
fn waits_without_a_grant(session: &mut Session, seconds: f64, why: &str) {
    let (before, began) = (positions(session), Instant::now());
    let wait = format!("wait => '{seconds} seconds'");
    let grants = session.own_with("bob", 5, &["x"], &wait).unwrap();
    assert!(grants.is_empty(), "{why}: {grants:?}");
    assert!(began.elapsed() >= Duration::from_secs_f64(seconds - 0.05), "{why}: it came back early");
    let used = positions(session) - before;
    assert!(used < 20, "{why}: {used} positions were used");
}

fn sleeper(db: &Db, watcher: &mut Session, n: i32) -> Background<Vec<Grant>> {
    let call = db.connect().background(move |s| s.own_with("w", n, &["x"], "wait => '120 seconds'").unwrap());
    watcher.until_asleep(call.pid());
    call
}

/// Alice's actor asks for another hour.
fn extend(session: &mut Session, grant: &Grant) -> bool {
    let call =
        "SELECT owned FROM taskq.extend_tasks_ownership('alice', ARRAY[$1::text], ARRAY[$2::uuid], '1 hour')";
    session.query_one(call, &[&grant.task_id, &grant.token]).unwrap().get(0)
}

fn ids(grants: &[Grant]) -> Vec<&str> {
    grants.iter().map(|grant| grant.task_id.as_str()).collect()
}

const HOLDS: [(&str, &str, &str); 2] = [
    ("group", "SELECT taskq.pause_group('g')", "SELECT taskq.resume_group('g')"),
    (
        "workgroup",
        "SELECT taskq.delay_workgroup('w', '1 hour')",
        "SELECT taskq.delay_workgroup('w', '0 seconds')",
    ),
];

/// Task a of alice's with a deadline that has passed, and what holds it back since before.
fn overdue(db: &Db, hold: &str) -> (Session, Grant) {
    let mut session = db.connect();
    // The worker that a sleeping call starts would end the try before that call sets it aside.
    session.run("SET taskq.background_worker = off");
    session.insert(json!([{"id": "a", "action": "x", "group_id": "g", "workgroup": "w"}])).unwrap();
    let had = session.own_with("alice", 1, &["x"], "lease => '0.2 seconds'").unwrap().remove(0);
    session.run(hold);
    std::thread::sleep(Duration::from_millis(250));
    (session, had)
}

#[test]
fn an_overdue_task_that_may_not_run_stays_its_actors_and_no_worker_spins() {
    for (what, hold, release) in HOLDS {
        let db = Db::new();
        let (mut session, _) = overdue(&db, hold);
        waits_without_a_grant(&mut session, 1.2, what);
        waits_without_a_grant(&mut session, 0.5, what);
        let actor: String = session.one("SELECT actor_id FROM taskq.actors WHERE task_id = 'a' AND overdue");
        assert_eq!(actor, "alice", "{what}: bob was never granted it");
        assert!(session.broken().is_empty(), "{what}: {:?}", session.broken());
        assert_eq!(session.all::<String>("SELECT outcome FROM taskq.attempts"), ["timeout"], "{what}");
        let call = sleeper(&db, &mut session, 5);
        session.run(release);
        let (_, grants) = call.join();
        assert_eq!((ids(&grants), grants[0].num_tries), (vec!["a"], 2), "{what}");
        let tries: Vec<String> = session
            .all("SELECT num_try || ' ' || actor_id || ' ' || outcome FROM taskq.attempts ORDER BY num_try");
        assert_eq!(tries[0], "1 alice timeout", "{what}: {tries:?}");
        assert_eq!(tries.len(), 2, "{what}: {tries:?}");
    }
}

#[test]
fn a_late_return_and_a_late_extension_work_while_the_task_is_parked() {
    for (what, hold, release) in HOLDS {
        for verb in ["return", "extend", "give back", "report"] {
            let db = Db::new();
            let (mut session, had) = overdue(&db, hold);
            waits_without_a_grant(&mut session, 0.1, what);
            let aside = "SELECT count(*) FROM taskq.run WHERE aside IS NOT NULL AND NOT grantable";
            assert_eq!(session.one::<i64>(aside), 1, "{what}");
            match verb {
                "return" => {
                    session.give("a", had.token, "completed").unwrap();
                    let end = "SELECT status_code::text || ' ' || actor_id FROM taskq.tasks WHERE id = 'a'";
                    assert_eq!(session.one::<String>(end), "completed alice");
                    session.run(release);
                }
                "give back" => {
                    session.give_with("a", had.token, "pending", "retry_after => '0'").unwrap();
                    waits_without_a_grant(&mut session, 0.1, "given back");
                    session.run(release);
                    assert_eq!(session.own("bob", 5, &["x"]).unwrap().len(), 1, "{what}");
                }
                "extend" => {
                    assert!(extend(&mut session, &had), "{what}");
                    session.run(release);
                    assert!(session.own("bob", 5, &["x"]).unwrap().is_empty(), "{what}: alice has it again");
                    session.complete(&had);
                }
                _ => {
                    session.execute("SELECT taskq.report_status('a', $1, 'late')", &[&had.token]).unwrap();
                    session.run(release);
                    assert_eq!(session.own("bob", 5, &["x"]).unwrap().len(), 1, "{what}");
                    let error = session.give("a", had.token, "completed").unwrap_err();
                    assert_eq!(sqlstate(&error), "TQ001", "{what}: bob has it now");
                }
            }
        }
    }
}

#[test]
fn an_overdue_task_that_only_met_a_busy_key_stays_its_actors() {
    let (db, [mut session]) = Db::connected();
    let keyed = |id: &str| json!({"id": id, "action": "x", "merge_key": "k"});
    session.insert(json!([keyed("a")])).unwrap();
    let a = session.own_with("alice", 1, &["x"], "lease => '0.2 seconds'").unwrap().remove(0);
    std::thread::sleep(Duration::from_millis(250));
    session.run("SELECT taskq.maintain()");
    // Held again by its actor, with the key, after another has been inserted: that one meets a busy key.
    assert!(extend(&mut session, &a));
    session.insert(json!([keyed("b")])).unwrap();
    waits_without_a_grant(&mut session, 0.6, "the key is busy");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.parked WHERE kind = 'k'"), 1);
    let call = sleeper(&db, &mut session, 5);
    session.complete(&a);
    assert_eq!(ids(&call.join().1), ["b"]);
}

#[test]
fn a_waiting_call_comes_back_with_something_or_when_its_time_is_up() {
    for (what, hold, release) in HOLDS.into_iter().chain([("key", "", "")]) {
        let (db, [mut session]) = Db::connected();
        let task =
            |id: &str| json!({"id": id, "action": "x", "group_id": "g", "workgroup": "w", "merge_key": "k"});
        let leader = (what == "key").then(|| {
            session.insert(json!([task("leader")])).unwrap();
            session.own_one("x")
        });
        session.insert(json!([task("a")])).unwrap();
        if leader.is_none() {
            session.run(hold);
        }
        let call = sleeper(&db, &mut session, 5);
        for n in 0..5 {
            session.insert(json!([task(&format!("later {n}"))])).unwrap();
            session.until_asleep(call.pid());
        }
        match leader {
            Some(leader) => session.complete(&leader),
            None => session.run(release),
        }
        let (_, grants) = call.join();
        // Which of them leads depends on which were moved out of the way meanwhile.
        assert_eq!(grants.len(), 1, "{what}: one leads, the others ride");
        session.complete(&grants[0]);
        let left: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'");
        assert_eq!(left, 0, "{what}");
    }
}

#[test]
fn a_sleeper_holds_neither_rows_nor_a_transaction_id_for_what_came_while_it_slept() {
    let (db, [mut session]) = Db::connected();
    let task = |id: &str| json!({"id": id, "action": "x", "group_id": "g"});
    session.insert(json!([task("a")])).unwrap();
    session.run("SELECT taskq.pause_group('g')");
    assert!(session.own("w", 5, &["x"]).unwrap().is_empty());
    let call = sleeper(&db, &mut session, 5);
    for n in 0..20 {
        session.insert(json!([task(&format!("later {n}"))])).unwrap();
    }
    session.until_asleep(call.pid());
    let xid = format!("SELECT backend_xid::text FROM pg_stat_activity WHERE pid = {}", call.pid());
    until("it sleeps without an id", || session.one::<Option<String>>(&xid).is_none().then_some(()));
    // A call that changes the group or the tasks waits for the process that moves entries, at most.
    let mut change = db.connect();
    change.run("SET lock_timeout = '30s'");
    change.run("SELECT taskq.cancel_tasks('{later 3}'); SELECT taskq.resume_group('g')");
    assert!(!call.join().1.is_empty());
}

#[test]
fn what_a_first_look_moved_can_be_changed_while_the_call_sleeps() {
    for (what, hold, release) in HOLDS {
        let (db, [mut session]) = Db::connected();
        let tasks: Value = (0..50)
            .map(|n| json!({"id": format!("t{n}"), "action": "x", "group_id": "g", "workgroup": "w"}))
            .collect();
        session.insert(tasks).unwrap();
        session.run(hold);
        let call = sleeper(&db, &mut session, 5);
        let mut change = db.connect();
        change.run("SET lock_timeout = '30s'");
        change.run("SELECT taskq.cancel_tasks('{t1,t2}')");
        change.run(release);
        // A process that moves entries may have some of them in hand, which are passed over.
        let grants = call.join().1;
        let granted = ids(&grants);
        assert!(!granted.is_empty(), "{what}");
        assert!(!granted.contains(&"t1") && !granted.contains(&"t2"), "{what}: {granted:?}");
    }
}

#[test]
#[ignore = "long"]
fn what_stands_behind_a_large_backlog_that_may_not_run_is_found() {
    let (_db, [mut session]) = Db::connected();
    let insert = "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object(
                  'id', 'p' || n, 'action', 'x', 'group_id', 'g')) FROM generate_series(1, 45000) AS n))";
    assert_eq!(session.one::<i64>(insert), 45_000);
    session.insert(json!([{"id": "behind", "action": "x"}])).unwrap();
    session.run("SELECT taskq.pause_group('g')");
    let began = Instant::now();
    let grants = session.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap();
    assert_eq!(ids(&grants), ["behind"]);
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    // Bit by bit the calls that end empty have moved all of it.
    until("it is out of the way", || {
        session.own_with("w", 1, &["x"], "wait => '0.05 seconds'").unwrap();
        (session.one::<i64>("SELECT count(*) FROM taskq.parked") == 45_000).then_some(())
    });
}

#[test]
fn a_steady_stream_into_a_paused_group_costs_a_sleeper_the_same_for_each() {
    let (db, [mut session]) = Db::connected();
    let insert = |session: &mut Session, from: i32, to: i32| {
        let insert = format!(
            "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object(
             'id', 'p' || n, 'action', 'x', 'group_id', 'g')) FROM generate_series({from}, {to}) AS n))"
        );
        session.one::<i64>(&insert);
    };
    session.insert(json!([{"id": "first", "action": "x", "group_id": "g"}])).unwrap();
    session.run("SELECT taskq.pause_group('g')");
    let call = db.connect().background(|s| {
        // It has met such tasks before: it reads before it takes.
        assert!(s.own_with("w", 1, &["x"], "wait => '0.05 seconds'").unwrap().is_empty());
        s.own_with("w", 1, &["x"], "wait => '240 seconds'").unwrap()
    });
    until("the first call is over", || {
        (session.one::<i64>("SELECT count(*) FROM taskq.parked") == 1).then_some(())
    });
    session.until_asleep(call.pid());
    insert(&mut session, 1, 30_000);
    session.until_asleep(call.pid());
    let began = Instant::now();
    for n in 0..60 {
        insert(&mut session, 40_000 + n, 40_000 + n);
        session.until_asleep(call.pid());
    }
    let with_many = began.elapsed();
    // Reading all 30,000 again for each of them takes many times as long.
    assert!(with_many < Duration::from_secs(20), "{with_many:?}");
    session.run("SELECT taskq.resume_group('g')");
    assert_eq!(call.join().1.len(), 1);
}

#[test]
fn a_new_name_and_a_resumed_action_are_looked_at_from_the_beginning() {
    let (db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x", "group_id": "g"}, {"id": "b", "action": "y"}]));
    session.run("SELECT taskq.pause_group('g'), taskq.pause_action('y')");
    for (what, release) in
        [("y", "SELECT taskq.resume_action('y')"), ("new", "SELECT taskq.insert_task('c', 'new')")]
    {
        let call = db
            .connect()
            .background(|s| s.own_with("w", 1, &["x", "y", "new"], "wait => '120 seconds'").unwrap());
        session.until_asleep(call.pid());
        for n in 0..10 {
            session.insert(json!([{"id": format!("{what} {n}"), "action": "x", "group_id": "g"}])).unwrap();
        }
        session.until_asleep(call.pid());
        session.run(release);
        assert_eq!(call.join().1.len(), 1, "{what}");
    }
}

#[test]
fn a_waiting_call_in_a_block_and_under_a_savepoint_keeps_nothing_back() {
    for prologue in ["BEGIN", "BEGIN; SAVEPOINT s"] {
        let (db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x", "group_id": "g"}]));
        session.run("SELECT taskq.pause_group('g')");
        let call = db.connect().background(move |s| {
            s.run(prologue);
            let grants = s.own_with("w", 5, &["x"], "wait => '120 seconds'").unwrap();
            s.run("COMMIT");
            grants
        });
        session.until_asleep(call.pid());
        let change = db.connect().background(|s| s.run("SELECT taskq.resume_group('g')"));
        assert_eq!(change.settle_down(&mut session), Progress::Done, "{prologue}");
        assert_eq!(ids(&call.join().1), ["a"], "{prologue}");
    }
}

/// Whether a paused group's tasks may run is known when the resume has committed; until then a look moves them to the end of
/// their priority, and finds them there again.
#[test]
fn no_worker_spins_on_tasks_of_a_group_that_is_being_resumed() {
    const TASKS: i64 = 50;
    let (db, [mut boss, mut session]) = Db::connected();
    let tasks: Value = (0..TASKS).map(|_| json!({"action": "x", "group_id": "g"})).collect();
    boss.insert(tasks).unwrap();
    boss.run("SELECT taskq.pause_group('g')");
    boss.run("BEGIN; SELECT taskq.resume_group('g')");
    for call in [
        "CALL taskq.wait_for_work('{x}', '3 seconds', NULL)",
        "SELECT taskq.own_tasks('w', 1, '{x}', wait => '3 seconds')",
    ] {
        let (before, began) = (positions(&mut session), Instant::now());
        session.run("SET taskq.shortest_sleep = '100ms'");
        session.run(call);
        assert!(began.elapsed() > Duration::from_millis(2900), "{call}: it came back early");
        let looks = (positions(&mut session) - before) / TASKS;
        assert!(looks < 60, "{call}: it looked {looks} times");
    }
    let waiting = db.connect().background(|s| s.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap());
    session.until_asleep(waiting.pid());
    boss.run("COMMIT");
    let committed = Instant::now();
    assert_eq!(waiting.join().1.len(), 1);
    assert!(committed.elapsed() < Duration::from_secs(2), "woken by the resume");
}

/// A claim gets past a large paused group while another transaction changes its row, and comes to what stands behind
/// it.
#[test]
fn a_backlog_of_a_group_that_is_being_changed_is_passed_in_one_go() {
    let (_db, [mut boss, mut session]) = Db::connected();
    boss.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg('{\"action\": \"x\", \"group_id\": \"g\"}'::jsonb)
                                                    FROM generate_series(1, 15000)));
         SELECT taskq.insert_task('free', 'x')",
    );
    boss.run("SELECT taskq.pause_group('g')");
    boss.run("BEGIN; SELECT taskq.set_group('g', weight => 2)");
    // Met one by one they take many minutes.
    session.run("SET statement_timeout = '40s'");
    assert_eq!(ids(&session.own("w", 1, &["x"]).unwrap()), ["free"]);
    boss.run("COMMIT");
    boss.run("SELECT taskq.resume_group('g')");
    let got = until("those that were held back", || session.own("w", 1, &["x"]).unwrap().pop());
    assert_ne!(got.task_id, "free");
}
