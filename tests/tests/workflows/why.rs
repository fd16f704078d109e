//! `why`: the reason for every state, in words that name the tasks, times and actors concerned. The wording may change; that
//! each fact is in it may not. A reason that is missing sends an operator to the tables.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

fn why(session: &mut Session, id: &str) -> Vec<String> {
    session.query("SELECT * FROM taskq.why($1)", &[&id]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// Asserts that one of the reasons contains all of these words.
fn tells(session: &mut Session, id: &str, words: &[&str]) {
    let reasons = why(session, id);
    let told = reasons.iter().any(|reason| words.iter().all(|word| reason.contains(word)));
    assert!(told, "why({id}) tells of {words:?}: {reasons:#?}");
}

#[test]
fn a_blocked_task_names_its_open_dependencies_with_condition_state_and_holder() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "ready", "action": "r"}, {"id": "held", "action": "h"}, {"id": "leased", "action": "l"},
        {"id": "later", "action": "x", "delay": "1 day"}, {"id": "blocked", "action": "x", "depends_on": ["ready"]},
        {"id": "done", "action": "d"},
        {"id": "t", "action": "x", "depends_on": ["ready", {"id": "held", "condition": "settled"},
            {"id": "leased", "condition": "aborted"}, "later", "blocked", "done"]},
    ]));
    session.own("ann", 1, &["h"]).unwrap();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.run("SET timezone = 'UTC'");
    session.own_with("bob", 1, &["l"], "lease => '5 minutes'").unwrap();
    session.set_now(None);
    session.perform("d", "completed");
    tells(&mut session, "t", &["\"ready\"", "completed", "ready"]);
    tells(&mut session, "t", &["\"held\"", "settled", "in-progress", "\"ann\""]);
    tells(&mut session, "t", &["\"leased\"", "aborted", "in-progress", "\"bob\"", "2030-01-01 00:05:00"]);
    tells(&mut session, "t", &["\"later\"", "scheduled"]);
    tells(&mut session, "t", &["\"blocked\"", "blocked"]);
    assert_eq!(why(&mut session, "t").len(), 5, "and nothing of what has settled");
}

#[test]
fn a_wide_fan_in_names_the_first_and_counts_the_rest() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks(taskq.chord(
            (SELECT jsonb_agg(jsonb_build_object('id', 'p' || i, 'action', 'p')) FROM generate_series(1, 5000) i),
            '{\"id\": \"t\", \"action\": \"x\"}'))",
    );
    let reasons = why(&mut session, "t");
    assert!(reasons.len() <= 25, "{} reasons", reasons.len());
    tells(&mut session, "t", &["\"p1\""]);
    tells(&mut session, "t", &[&(5000 - (reasons.len() - 1)).to_string(), "more"]);
}

#[test]
fn why_names_a_time_that_lies_ahead_in_every_state() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET timezone = 'UTC'");
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session
        .insert(json!([{"id": "own time", "action": "x", "not_before": "2030-01-01 01:00:00Z"}, {"id": "back", "action": "y"},
                       {"id": "both", "action": "x", "depends_on": ["back"], "not_before": "2030-01-01 03:00:00Z"}]))
        .unwrap();
    let grant = session.own_one("y");
    session
        .give_with("back", grant.token, "pending", "retry_after => '2 hours', status => 'no route'")
        .unwrap();
    tells(&mut session, "own time", &["2030-01-01 01:00:00"]);
    tells(&mut session, "back", &["2030-01-01 02:00:00"]);
    tells(&mut session, "both", &["2030-01-01 03:00:00"]);
    tells(&mut session, "both", &["\"back\"", "scheduled"]);
    // Once the time has come it is no reason any more, also before the next claim.
    session.set_now(Some("2030-01-01 01:00:01Z"));
    assert_eq!(session.state("own time"), "ready");
    assert!(!why(&mut session, "own time").iter().any(|reason| reason.contains("not to be owned before")));
}

#[test]
fn why_names_what_is_before_a_ready_task_and_the_last_grant_of_its_action() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "first", "action": "x"}, {"id": "second", "action": "x"}, {"id": "urgent", "action": "x", "priority": 5},
               {"id": "t", "action": "x"}, {"id": "lonely", "action": "not asked for"}]),
    );
    tells(&mut session, "t", &["ready", "3 before it"]);
    tells(&mut session, "urgent", &["ready", "0 before it"]);
    tells(&mut session, "lonely", &["no recent grant", "\"not asked for\""]);
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.run("SET timezone = 'UTC'");
    session.own("w", 1, &["x"]).unwrap();
    tells(&mut session, "t", &["last grant", "\"x\"", "2030-01-01 00:00:00"]);
}

#[test]
fn a_task_given_back_tells_after_which_try_and_what_was_said() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "t", "action": "x", "max_tries": 3}]));
    let grant = session.own_one("x");
    session
        .give_with("t", grant.token, "pending", "status => 'connection reset', retry_after => '0'")
        .unwrap();
    tells(&mut session, "t", &["1 of 3", "connection reset"]);
}

#[test]
fn a_task_in_progress_tells_its_actor_and_its_deadline() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET timezone = 'UTC'");
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "held", "action": "x"}, {"id": "leased", "action": "y"}])).unwrap();
    session.run("SET taskq.lease = ''");
    session.own("ann", 1, &["x"]).unwrap();
    session.own_with("bob", 1, &["y"], "lease => '1 hour'").unwrap();
    tells(&mut session, "held", &["\"ann\"", "2030-01-01 00:00:00", "without a deadline"]);
    tells(&mut session, "leased", &["\"bob\"", "until 2030-01-01 01:00:00"]);
    session.set_now(Some("2030-01-01 01:00:01Z"));
    tells(&mut session, "leased", &["\"bob\"", "deadline passed at 2030-01-01 01:00:00"]);
}

#[test]
fn why_says_when_and_how_a_settled_task_ended_and_its_cause() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET timezone = 'UTC'");
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session
        .insert(json!([
            {"id": "done", "action": "d"}, {"id": "failed", "action": "f", "max_tries": 1}, {"id": "cancelled", "action": "c"},
            {"id": "dependent", "action": "x", "depends_on": ["done", "failed", "cancelled"]},
            {"id": "skipped", "action": "x", "depends_on": [{"id": "done", "condition": "aborted"}]},
        ]))
        .unwrap();
    session.perform("d", "completed");
    let grant = session.own_one("f");
    session
        .give_with("failed", grant.token, "pending", "status => 'exit code 2', retry_after => '0'")
        .unwrap();
    session.run("SELECT taskq.cancel_tasks('{cancelled}', 'out of budget')");
    tells(&mut session, "done", &["completed at 2030-01-01 00:00:00"]);
    tells(&mut session, "failed", &["aborted at 2030-01-01 00:00:00", "exit code 2"]);
    tells(&mut session, "failed", &["no tries", "1 of 1"]);
    tells(&mut session, "cancelled", &["aborted", "out of budget"]);
    tells(&mut session, "dependent", &["\"failed\"", "was aborted", "completed"]);
    tells(&mut session, "dependent", &["\"cancelled\"", "was aborted"]);
    tells(&mut session, "skipped", &["\"done\"", "completed", "aborted"]);
    assert!(!why(&mut session, "dependent").iter().any(|reason| reason.contains("\"done\"")));
}

#[test]
fn why_asks_for_a_task_that_exists() {
    let (_db, [mut session]) = Db::connected();
    refused(&mut session, "TQ003", "absent", "SELECT taskq.why('absent')", &[]);
    refused(&mut session, "22004", "task_id", "SELECT taskq.why(NULL)", &[]);
}

/// An operator who asks about the last task of a chain wants to know which one failed, not that the one before was
/// lost, too.
#[test]
fn a_lost_task_names_what_it_began_with() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "root", "action": "r"}, {"id": "b", "action": "x", "depends_on": ["root"]},
        {"id": "c", "action": "x", "depends_on": ["b"]}, {"id": "d", "action": "x", "depends_on": ["c"]},
    ]));
    let grant = session.own_one("r");
    session
        .execute(
            "SELECT taskq.return_task($1, $2, 'aborted', 'no such bucket')",
            &[&grant.task_id, &grant.token],
        )
        .unwrap();
    for id in ["c", "d"] {
        tells(&mut session, id, &["began with \"root\"", "aborted", "no such bucket"]);
    }
    for id in ["root", "b"] {
        assert!(!why(&mut session, id).iter().any(|reason| reason.contains("began with")), "{id}");
    }
}

/// On wrong code one asks again at each step of a long line.
#[test]
fn a_blocked_task_tells_what_stands_at_the_end_of_the_line() {
    let (_db, [mut session]) = Db::connected();
    let tasks = (1..=30).map(|n| {
        let before = if n > 1 { json!([format!("t{}", n - 1)]) } else { json!([]) };
        json!({"id": format!("t{n}"), "action": if n == 1 { "first" } else { "x" }, "depends_on": before})
    });
    session.insert(tasks.collect()).unwrap();
    tells(&mut session, "t30", &["comes down to", "\"t1\"", "ready"]);
    assert!(
        !why(&mut session, "t2").iter().any(|reason| reason.contains("comes down to")),
        "it is named already"
    );
    session.own("ann", 1, &["first"]).unwrap();
    tells(&mut session, "t30", &["comes down to", "\"t1\"", "in-progress", "ann"]);
    session.run("SELECT taskq.insert_task('s', 'y', signal => true), taskq.insert_task('u', 'y', depends_on => '{s}'),
                        taskq.insert_task('v', 'y', depends_on => '{u}')");
    tells(&mut session, "v", &["comes down to", "\"s\"", "a signal that has not come"]);
}

#[test]
fn a_dead_end_names_what_it_began_with() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]}, {"id": "c", "action": "y", "depends_on": ["b"]}]),
    );
    session.perform("x", "aborted");
    let roots: String =
        session.one("SELECT string_agg(task_id || ' ' || root, ', ' ORDER BY task_id) FROM taskq.dead_ends");
    assert_eq!(roots, "a a, b a, c a");
    tells(&mut session, "c", &["it began with \"a\""]);
}
