//! Workgroups: `delay_workgroup` and `return_task(delay_workgroup =>)` hold back every task of one, in any group.
//!
//! Why: after a 429 no worker may knock again before the time, and once it is over (or shortened) nothing may be left
//! behind. On wrong code a task comes before its time, or stays away after it.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

use crate::{at, call, owned};

/// Tasks of workgroup `api` in two groups and none, of two actions, and one of another workgroup.
pub(super) fn api(db: &Db) -> Session {
    let mut session = db.connect();
    at(&mut session, 0.0);
    // Hours pass, and what it owns meanwhile is not to come back.
    session.run("SET taskq.lease = '1 day'");
    session
        .insert(json!([
            {"id": "a", "action": "x", "workgroup": "api", "group_id": "g"}, {"id": "b", "action": "y", "workgroup": "api", "group_id": "h"},
            {"id": "c", "action": "x", "workgroup": "api"}, {"id": "other", "action": "x", "workgroup": "mail"},
        ]))
        .unwrap();
    session
}

pub(super) const ACTIONS: [&str; 2] = ["x", "y"];

#[test]
fn a_delayed_workgroup_is_held_back_over_groups_and_actions_and_others_are_not() {
    let db = Db::new();
    let mut session = api(&db);
    let until: String =
        session.one("SELECT (taskq.delay_workgroup('api', '1 minute') - taskq.clock())::text");
    assert_eq!(until, "00:01:00");
    assert_eq!(owned(&mut session, 9, &ACTIONS), ["other"]);
    session.insert(json!([{"id": "new", "action": "y", "workgroup": "api"}])).unwrap();
    assert!(owned(&mut session, 9, &ACTIONS).is_empty());
    assert!(session.one::<bool>("SELECT held_back FROM taskq.workgroups WHERE workgroup = 'api'"));
    at(&mut session, 59.9);
    assert!(owned(&mut session, 9, &ACTIONS).is_empty());
    at(&mut session, 60.1);
    let mut all = owned(&mut session, 9, &ACTIONS);
    all.sort();
    assert_eq!(all, ["a", "b", "c", "new"]);
}

#[test]
fn a_unique_key_of_the_ready_is_free_while_its_workgroup_is_held_back() {
    let db = Db::new();
    let mut session = api(&db);
    let task = |id: &str, states: &str| {
        json!([{"id": id, "action": "u", "workgroup": "api",
                "unique_by": {"key": states, "states": [states], "on_conflict": "skip"}}])
    };
    for states in ["ready", "scheduled"] {
        assert_eq!(session.insert(task(states, states)).unwrap(), [states]);
    }
    let insert =
        |session: &mut Session, id: &str, states: &str| !session.insert(task(id, states)).unwrap().is_empty();
    let held = |session: &mut Session| -> Vec<String> {
        session.all("SELECT key FROM taskq.unique_keys WHERE held ORDER BY key")
    };
    assert_eq!(held(&mut session), ["ready"]);
    assert!(!insert(&mut session, "r2", "ready"));
    call(&mut session, "delay_workgroup('api', '1 minute')");
    // What the view tells is what an insertion goes by.
    assert_eq!(held(&mut session), ["scheduled"]);
    assert!(!insert(&mut session, "s2", "scheduled"));
    assert!(insert(&mut session, "r2", "ready"));
}

#[test]
fn what_is_held_back_is_scheduled_from_the_start_wherever_one_looks() {
    // A claim moves tasks aside when it meets them; there is no claim here.
    let db = Db::new();
    let mut session = api(&db);
    session
        .insert(json!([
            {"id": "soon", "action": "y", "workgroup": "api", "group_id": "g", "delay": "1 second", "unique_by": "soon"},
            {"id": "paused", "action": "p", "workgroup": "api", "group_id": "p", "unique_by": "paused"},
            {"id": "blocked", "action": "y", "workgroup": "api", "group_id": "g", "depends_on": ["other"],
             "unique_by": "blocked"},
        ]))
        .unwrap();
    let held = session.own_one("x");
    assert_eq!(held.task_id, "a");
    call(&mut session, "pause_group('p')");
    assert!(owned(&mut session, 9, &["p"]).is_empty(), "it is parked under its group now");
    call(&mut session, "delay_workgroup('api', '1 minute')");
    at(&mut session, 2.0);
    let look = |session: &mut Session| {
        let states: Vec<String> =
            session.all("SELECT id || ' ' || state FROM taskq.tasks ORDER BY id COLLATE \"C\"");
        let counted: Vec<String> = session.all(
            "SELECT concat_ws(' ', c.action, c.state, c.count) FROM taskq.count_tasks() AS c ORDER BY c.action, c.state",
        );
        let stats: Vec<String> = session.all(
            "SELECT concat_ws(' ', action, blocked, scheduled, ready, in_progress, oldest_ready IS NULL) \
               FROM taskq.stats ORDER BY action",
        );
        let groups: Vec<String> = session.all(
            "SELECT concat_ws(' ', group_id, blocked, scheduled, ready, in_progress) FROM taskq.groups ORDER BY 1",
        );
        let metrics: String = session.one("SELECT taskq.metrics()");
        let mut numbers: Vec<String> = metrics
            .lines()
            .filter(|line| line.starts_with("taskq_tasks{") || line.starts_with("taskq_oldest_ready"))
            .filter(|line| !line.ends_with(" 0.0") && !line.ends_with(" 0"))
            .map(|line| line.split('{').nth(1).unwrap_or_default().to_owned())
            .collect();
        numbers.sort();
        let elsewhere: Vec<String> = session.all(
            "SELECT t.id || ' ' || p.state FROM taskq.tasks AS t \
              CROSS JOIN LATERAL (SELECT split_part(x.line, ') ', 2) AS state FROM regexp_split_to_table(taskq.graph(t.id), '\\n') AS x(line) \
               WHERE ltrim(x.line) LIKE t.id || ' (%') AS p \
              ORDER BY t.id COLLATE \"C\"",
        );
        assert_eq!(elsewhere, states, "what walks over graphs knows the same states");
        let keys: Vec<String> = session.all(
            "SELECT k.task_id || ' ' || k.state FROM taskq.unique_keys AS k JOIN taskq.tasks AS t ON t.id = k.task_id \
              WHERE k.held AND k.state = t.state ORDER BY 1",
        );
        assert_eq!(keys.len(), 3, "keys are held by tasks in the same states: {keys:?}");
        (states, counted, stats, groups, numbers)
    };
    let (states, counted, stats, groups, numbers) = look(&mut session);
    assert_eq!(
        states,
        [
            "a in-progress",
            "b scheduled",
            "blocked blocked",
            "c scheduled",
            "other ready",
            "paused scheduled",
            "soon scheduled"
        ]
    );
    assert_eq!(
        counted,
        ["p scheduled 1", "x in-progress 1", "x ready 1", "x scheduled 1", "y blocked 1", "y scheduled 2"]
    );
    assert_eq!(stats, ["p 0 1 0 0 t", "x 0 1 1 1 f", "y 1 2 0 0 t"]);
    assert_eq!(groups, ["g 1 1 0 1", "h 0 1 0 0", "p 0 1 0 0"]);
    assert_eq!(numbers.len(), 7, "six kinds of tasks, and the age of one ready: {numbers:#?}");
    let why: Vec<String> = session.all("SELECT taskq.why('b')");
    assert!(why[0].contains("its workgroup \"api\" is held back until"), "{why:?}");
    assert!(session.one::<bool>(
        "SELECT not_before = taskq.clock() + interval '58 seconds' FROM taskq.tasks WHERE id = 'b'"
    ));
    // When its time is over everything is ready, again without a claim.
    at(&mut session, 61.0);
    let (states, _, stats, groups, _) = look(&mut session);
    assert_eq!(
        states,
        [
            "a in-progress",
            "b ready",
            "blocked blocked",
            "c ready",
            "other ready",
            "paused ready",
            "soon ready"
        ]
    );
    assert_eq!(stats, ["p 0 0 1 0 f", "x 0 0 2 1 f", "y 1 0 2 0 f"]);
    assert_eq!(groups, ["g 1 0 1 1", "h 0 0 1 0", "p 0 0 1 0"]);
}

#[test]
fn the_name_need_not_exist_before() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "delay_workgroup('api', '1 minute')");
    session.insert(json!([{"id": "a", "action": "x", "workgroup": "api"}])).unwrap();
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    at(&mut session, 61.0);
    assert_eq!(owned(&mut session, 9, &["x"]), ["a"]);
}

#[test]
fn a_longer_delay_replaces_a_shorter_one() {
    let db = Db::new();
    let mut session = api(&db);
    call(&mut session, "delay_workgroup('api', '1 minute')");
    assert_eq!(owned(&mut session, 9, &ACTIONS), ["other"]);
    at(&mut session, 30.0);
    call(&mut session, "delay_workgroup('api', '1 hour')");
    at(&mut session, 61.0);
    assert!(owned(&mut session, 9, &ACTIONS).is_empty());
    at(&mut session, 3631.0);
    assert_eq!(owned(&mut session, 9, &ACTIONS).len(), 3);
}

#[test]
fn a_shorter_delay_replaces_a_longer_one_also_for_tasks_held_back() {
    let db = Db::new();
    let mut session = api(&db);
    call(&mut session, "delay_workgroup('api', '1 hour')");
    assert_eq!(owned(&mut session, 9, &ACTIONS), ["other"]);
    call(&mut session, "delay_workgroup('api', '1 minute')");
    at(&mut session, 61.0);
    assert_eq!(owned(&mut session, 9, &ACTIONS).len(), 3);
}

#[test]
fn a_delay_that_was_lengthened_and_then_shortened_ends_when_it_said_last() {
    let db = Db::new();
    let mut session = api(&db);
    call(&mut session, "delay_workgroup('api', '1 hour')");
    assert_eq!(owned(&mut session, 9, &ACTIONS), ["other"]);
    call(&mut session, "delay_workgroup('api', '2 hours')");
    call(&mut session, "delay_workgroup('api', '1 minute')");
    at(&mut session, 61.0);
    assert_eq!(owned(&mut session, 9, &ACTIONS).len(), 3);
}

#[test]
fn a_return_delays_the_workgroup_of_its_task_and_never_shortens() {
    let db = Db::new();
    let mut session = api(&db);
    let first = session.own_one("x");
    let second = session.own_one("y");
    let third = session.own_one("x");
    assert_eq!([&first.task_id, &second.task_id, &third.task_id], ["a", "b", "c"]);
    session
        .give_with("a", first.token, "pending", "delay_workgroup => '10 minutes', retry_after => '0'")
        .unwrap();
    session
        .give_with("b", second.token, "pending", "delay_workgroup => '1 minute', retry_after => '0'")
        .unwrap();
    session.complete(&third);
    at(&mut session, 599.0);
    assert_eq!(owned(&mut session, 9, &ACTIONS), ["other"]);
    at(&mut session, 601.0);
    assert_eq!(owned(&mut session, 9, &ACTIONS).len(), 2);
}

#[test]
fn returns_of_many_delay_the_workgroups_of_those_that_they_work_for() {
    let db = Db::new();
    let mut session = api(&db);
    let grants = session.own("w", 9, &ACTIONS).unwrap();
    let token = |id: &str| grants.iter().find(|grant| grant.task_id == id).unwrap().token;
    let returns = json!([
        {"task_id": "a", "token": token("a"), "status_code": "pending", "delay_workgroup": "1 minute"},
        {"task_id": "b", "token": token("b"), "status_code": "pending", "delay_workgroup": "10 minutes"},
        {"task_id": "c", "token": token("c"), "status_code": "pending", "delay_workgroup": "5 minutes"},
        {"task_id": "other", "token": token("a"), "status_code": "pending", "delay_workgroup": "1 hour"},
    ]);
    session.query("SELECT * FROM taskq.return_tasks($1::jsonb)", &[&returns]).unwrap();
    let held_back = "SELECT concat_ws(' ', workgroup, not_before - taskq.clock()) FROM taskq.workgroups \
                     WHERE not_before IS NOT NULL ORDER BY 1";
    assert_eq!(session.all::<String>(held_back), ["api 00:10:00"], "a bad token delays nothing");
    // All alike.
    let query = "SELECT * FROM taskq.return_tasks($1, $2, 'pending', delay_workgroup => '2 hours')";
    session.query(query, &[&vec!["other", "a"], &vec![token("other"), token("b")]]).unwrap();
    assert_eq!(session.all::<String>(held_back), ["api 00:10:00", "mail 02:00:00"]);
    // A task without a workgroup has none to delay.
    session.insert(json!([{"id": "plain", "action": "z"}])).unwrap();
    let grant = session.own_one("z");
    let returns = json!([{"task_id": "plain", "token": grant.token, "delay_workgroup": "1 minute"}]);
    refused(
        &mut session,
        "22023",
        "delay_workgroup",
        "SELECT * FROM taskq.return_tasks($1::jsonb)",
        &[&returns],
    );
    let returns = json!([{"task_id": "plain", "token": grant.token, "delay_workgroup": "-1 minute"}]);
    refused(
        &mut session,
        "TQ006",
        "delay_workgroup",
        "SELECT * FROM taskq.return_tasks($1::jsonb)",
        &[&returns],
    );
    session.complete(&grant);
}

#[test]
fn returns_that_delay_the_same_workgroups_in_any_order_do_not_deadlock() {
    let db = Db::new();
    let tasks: serde_json::Value = (0..240)
        .map(|i| json!({"id": format!("t{i}"), "action": "x", "workgroup": format!("w{}", i % 8)}))
        .collect();
    let mut main = db.connect();
    main.insert(tasks).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut session = db.connect();
            scope.spawn(move || {
                for round in 0..15 {
                    let mut grants = session.own("w", 4, &["x"]).unwrap();
                    if round % 2 == 0 {
                        grants.reverse();
                    }
                    let returns: serde_json::Value = grants
                        .iter()
                        .map(|g| json!({"task_id": g.task_id, "token": g.token, "delay_workgroup": "0"}))
                        .collect();
                    session.query("SELECT * FROM taskq.return_tasks($1::jsonb)", &[&returns]).unwrap();
                }
            });
        }
    });
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.workgroups WHERE not_before IS NOT NULL"), 8);
}

#[test]
fn what_is_in_progress_goes_on_and_a_tasks_own_time_stays() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session
        .insert(json!([{"id": "a", "action": "x", "workgroup": "api"}, {"id": "b", "action": "x", "workgroup": "api", "delay": "1 hour"}]))
        .unwrap();
    let held = session.own_one("x");
    call(&mut session, "delay_workgroup('api', '1 minute')");
    session.complete(&held);
    at(&mut session, 61.0);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    at(&mut session, 3601.0);
    assert_eq!(owned(&mut session, 1, &["x"]), ["b"]);
}

#[test]
fn a_late_return_still_works_when_only_a_held_back_claim_met_the_task() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session.insert(json!([{"id": "a", "action": "x", "workgroup": "api"}])).unwrap();
    let late = session.own_one_with("x", "lease => '1 minute'");
    call(&mut session, "delay_workgroup('api', '1 hour')");
    at(&mut session, 61.0);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    session.complete(&late);
}

#[test]
fn wrong_arguments_are_refused() {
    let db = Db::new();
    let mut session = api(&db);
    for (arguments, code, naming) in [
        ("NULL, '1 s'", "22004", "workgroup"),
        ("'api', NULL", "22004", "delay"),
        ("'api', '-1 s'", "22023", "delay"),
        ("'', '1 s'", "22023", "workgroup"),
    ] {
        refused(&mut session, code, naming, &format!("SELECT taskq.delay_workgroup({arguments})"), &[]);
    }
}
