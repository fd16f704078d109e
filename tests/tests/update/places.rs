//! What becomes of a task by where it is: ready, in a lane, scheduled, blocked, parked.

use serde_json::json;
use taskq_tests::{Db, Session};

const START: &str = "2030-01-01 00:00:00Z";

fn update(session: &mut Session, arguments: &str) -> i64 {
    session.one(&format!("SELECT taskq.update_tasks({arguments})"))
}

fn order(session: &mut Session, action: &str) -> Vec<String> {
    session.own("w", 100, &[action]).unwrap().into_iter().map(|grant| grant.task_id).collect()
}

fn frozen(db: &Db) -> Session {
    let mut session = db.connect();
    session.set_now(Some(START));
    // What was owned to see the order stays so in the hours that follow.
    session.run("SET taskq.lease = '1 day'");
    session
}

#[test]
fn all_that_is_given_changes_and_nothing_else() {
    let db = Db::new();
    let mut session = frozen(&db);
    session
        .insert(json!([{"id": "a", "action": "x", "body": "old", "metadata": {"n": 1}, "priority": 3, "max_tries": 4,
                        "lease": "5 minutes", "group_id": "g", "retention": "1 day"}]))
        .unwrap();
    let shown = "SELECT concat_ws(' ', body, metadata, priority, max_tries, lease, group_id, retention) FROM taskq.tasks";
    let before: String = session.one(shown);
    assert_eq!(update(&mut session, "'{a}'"), 1);
    assert_eq!(session.one::<String>(shown), before);
    assert_eq!(update(&mut session, "'{a,a}', body => 'new'"), 1);
    assert_eq!(session.one::<String>(shown), before.replace("old", "new"));
    let all = "'{a}', priority => 5, max_tries => 6, lease => '7 minutes', metadata => '{\"n\": 2}'";
    assert_eq!(update(&mut session, all), 1);
    assert_eq!(session.one::<String>(shown), "new {\"n\": 2} 5 6 00:07:00 g 1 day");
    let grant = session.own_one("x");
    let left: f64 =
        session.one("SELECT EXTRACT(epoch FROM action_deadline - taskq.clock())::float8 FROM taskq.tasks");
    assert_eq!((grant.body.as_deref(), left), (Some("new"), 420.0));
}

#[test]
fn what_changes_but_priority_and_time_keeps_its_place() {
    let db = Db::new();
    let mut session = frozen(&db);
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x"}]))
        .unwrap();
    update(&mut session, "'{b,a}', body => 'new', lease => '1 hour', priority => 0");
    assert_eq!(order(&mut session, "x"), ["a", "b", "c"]);
}

#[test]
fn a_new_priority_and_a_time_that_is_now_go_to_the_end_of_their_priority() {
    let db = Db::new();
    let mut session = frozen(&db);
    let tasks: Vec<_> =
        (0..6).map(|i| json!({"id": i.to_string(), "action": "x", "priority": i / 3})).collect();
    session.insert(json!(tasks)).unwrap();
    update(&mut session, "'{4,1}', priority => 1");
    assert_eq!(update(&mut session, "'{3}', delay => '0'"), 1);
    assert_eq!(update(&mut session, &format!("'{{0}}', not_before => '{START}'")), 1);
    assert_eq!(order(&mut session, "x"), ["4", "5", "1", "3", "2", "0"]);
}

#[test]
fn in_the_lanes_of_groups_as_well() {
    let db = Db::new();
    let mut session = frozen(&db);
    session.run("SELECT taskq.set_action('x', max_per_group => 10)");
    let tasks: Vec<_> =
        (0..4).map(|i| json!({"id": i.to_string(), "action": "x", "group_id": "g"})).collect();
    session.insert(json!(tasks)).unwrap();
    update(&mut session, "'{1}', body => 'new'");
    update(&mut session, "'{0}', delay => '0'");
    update(&mut session, "'{3}', priority => 1");
    assert_eq!(order(&mut session, "x"), ["3", "1", "2", "0"]);
}

#[test]
fn a_time_ahead_sets_aside_and_a_time_that_is_now_calls_back() {
    let db = Db::new();
    let mut session = frozen(&db);
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "delay": "1 day"}]))
        .unwrap();
    update(&mut session, "'{a}', delay => '2 hours'");
    update(&mut session, "'{b}', not_before => '2030-01-01 01:00:00Z'");
    let times: Vec<String> =
        session.all("SELECT id || ' ' || state || to_char(not_before AT TIME ZONE 'UTC', ' HH24') FROM taskq.tasks ORDER BY id");
    assert_eq!(times, ["a scheduled 02", "b scheduled 01"]);
    session.set_now(Some("2030-01-01 01:00:00Z"));
    assert_eq!(order(&mut session, "x"), ["b"]);
    update(&mut session, "'{a}', delay => '0'");
    assert_eq!(order(&mut session, "x"), ["a"]);
}

#[test]
fn a_retry_that_waits_is_run_now_with_its_tries() {
    let db = Db::new();
    let mut session = frozen(&db);
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = session.own_one("x");
    session.give_with("a", grant.token, "pending", "retry_after => '1 hour'").unwrap();
    assert!(order(&mut session, "x").is_empty());
    update(&mut session, "'{a}', delay => '0'");
    assert_eq!(session.own_one("x").num_tries, 2);
}

#[test]
fn dependencies_and_dependents_stay_as_they_are() {
    let db = Db::new();
    let mut session = frozen(&db);
    session
        .insert(json!([
            {"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]},
            {"id": "c", "action": "z", "depends_on": [{"id": "b", "condition": "completed"}]},
            {"id": "d", "action": "y"},
        ]))
        .unwrap();
    update(&mut session, "'{a,b,c}', priority => 9, body => 'new'");
    let edges: Vec<String> =
        session.all("SELECT after || run || settled FROM taskq.dependencies ORDER BY after");
    assert_eq!(edges, ["abfalse", "bcfalse"]);
    assert_eq!(session.perform("x", "completed"), "a");
    assert_eq!(order(&mut session, "y"), ["b", "d"], "its new priority counts once it is free");
    assert_eq!(session.state("c"), "blocked");
}

#[test]
fn a_blocked_task_waits_for_its_new_time_or_for_none() {
    let db = Db::new();
    let mut session = frozen(&db);
    session
        .insert(json!([
            {"id": "p", "action": "x"},
            {"id": "later", "action": "y", "depends_on": ["p"]},
            {"id": "now", "action": "y", "depends_on": ["p"], "delay": "1 day"},
        ]))
        .unwrap();
    update(&mut session, "'{later}', delay => '1 hour'");
    update(&mut session, "'{now}', delay => '0'");
    session.perform("x", "completed");
    assert_eq!([session.state("later"), session.state("now")], ["scheduled", "ready"]);
}

#[test]
fn what_delay_children_has_set_is_replaced() {
    let db = Db::new();
    let mut session = frozen(&db);
    session
        .insert(json!([{"id": "p", "action": "x"}, {"id": "q", "action": "q"}, {"id": "d", "action": "y", "depends_on": ["p", "q"]}]))
        .unwrap();
    let grant = session.own_one("x");
    session.give_with("p", grant.token, "completed", "delay_children => '1 day'").unwrap();
    update(&mut session, "'{d}', delay => '0'");
    session.perform("q", "completed");
    assert_eq!(session.state("d"), "ready");
}

#[test]
fn what_is_parked_stays_so_and_comes_back_where_it_belongs() {
    let db = Db::new();
    let mut session = frozen(&db);
    let tasks: Vec<_> =
        (0..5).map(|i| json!({"id": i.to_string(), "action": "x", "group_id": "g"})).collect();
    session.insert(json!(tasks)).unwrap();
    session.run("SELECT taskq.pause_group('g')");
    assert!(order(&mut session, "x").is_empty(), "they are parked now");
    update(&mut session, "'{0}', delay => '0'");
    update(&mut session, "'{3}', priority => 1, body => 'new'");
    update(&mut session, "'{2}', delay => '1 hour'");
    update(&mut session, "'{1}', body => 'new'");
    assert!(order(&mut session, "x").is_empty(), "an update does not undo a pause");
    assert_eq!(session.state("2"), "scheduled");
    session.run("SELECT taskq.resume_group('g')");
    assert_eq!(order(&mut session, "x"), ["3", "1", "4", "0"]);
    session.set_now(Some("2030-01-01 01:00:00Z"));
    assert_eq!(order(&mut session, "x"), ["2"]);
}

#[test]
fn what_rides_on_another_can_be_taken_off_it() {
    let db = Db::new();
    let mut session = frozen(&db);
    let tasks: Vec<_> =
        (0..4).map(|i| json!({"id": i.to_string(), "action": "x", "merge_key": "k"})).collect();
    session.insert(json!(tasks)).unwrap();
    let leader = session.own_one("x");
    update(&mut session, "'{1}', delay => '1 hour'");
    update(&mut session, "'{2}', max_tries => 3, priority => 4");
    update(&mut session, "'{3}', body => 'new'");
    session.complete(&leader);
    assert_eq!(["1", "2", "3"].map(|id| session.state(id)), ["scheduled", "completed", "ready"]);
}

#[test]
fn a_workgroup_that_is_held_back_holds_on() {
    let db = Db::new();
    let mut session = frozen(&db);
    session.insert(json!([{"id": "a", "action": "x", "workgroup": "w"}])).unwrap();
    session.run("SELECT taskq.delay_workgroup('w', '1 hour')");
    assert!(order(&mut session, "x").is_empty());
    update(&mut session, "'{a}', delay => '0'");
    assert!(order(&mut session, "x").is_empty());
    session.set_now(Some("2030-01-01 01:00:00Z"));
    assert_eq!(order(&mut session, "x"), ["a"]);
}

#[test]
#[ignore = "long"]
fn a_hundred_thousand_at_once() {
    let db = Db::new();
    let mut session = frozen(&db);
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 't' || i, 'action', 'x')) \
                                                    FROM generate_series(1, 100000) AS i))",
    );
    let all = "(SELECT array_agg(id) FROM taskq.tasks)";
    assert_eq!(update(&mut session, &format!("{all}, priority => 1, delay => '0'")), 100_000);
    assert_eq!(update(&mut session, &format!("{all}, body => 'new'")), 100_000);
    assert_eq!(session.own_one("x").body.as_deref(), Some("new"));
}
