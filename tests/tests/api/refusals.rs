//! Every SQLSTATE of the contract, function by function: the message names the thing, DETAIL and HINT are there,
//! nothing has changed, and the backend lives.

use serde_json::{Value, json};
use taskq_tests::{Db, Grant, Session, refused};
use uuid::Uuid;

/// A task in every state: `ready`, `held`, `blocked` (by `ready`), `done`, `failed`.
fn one_in_every_state(db: &Db) -> (Session, Grant) {
    let mut session = db.connect();
    session.insert(json!([{"id": "done", "action": "x"}, {"id": "failed", "action": "x"}])).unwrap();
    session.perform("x", "completed");
    session.perform("x", "aborted");
    session.insert(json!([{"id": "held", "action": "x"}])).unwrap();
    let grant = session.own_one("x");
    let tasks =
        json!([{"id": "ready", "action": "x"}, {"id": "blocked", "action": "x", "depends_on": ["ready"]}]);
    session.insert(tasks).unwrap();
    (session, grant)
}

#[test]
fn a_wrong_token_is_tq001() {
    let db = Db::new();
    let (mut session, grant) = one_in_every_state(&db);
    let query = "SELECT taskq.return_task($1, $2)";
    for id in ["ready", "held", "blocked", "done", "failed"] {
        refused(&mut session, "TQ001", id, query, &[&id, &Uuid::new_v4()]);
    }
    refused(&mut session, "TQ001", "ready", query, &[&"ready", &grant.token]);
    session.complete(&grant);
    refused(&mut session, "TQ001", "held", query, &[&"held", &grant.token]);
}

#[test]
fn an_id_in_use_is_tq002() {
    let db = Db::new();
    let (mut session, _) = one_in_every_state(&db);
    for id in ["ready", "held", "blocked", "done", "failed"] {
        let tasks = json!([{"id": "new", "action": "x"}, {"id": id, "action": "x"}]);
        refused(&mut session, "TQ002", id, "SELECT taskq.insert_tasks($1)", &[&tasks]);
        refused(&mut session, "TQ002", id, "SELECT taskq.insert_task($1, 'x')", &[&id]);
    }
    let twice = json!([{"id": "twin", "action": "x"}, {"id": "twin", "action": "x"}]);
    refused(&mut session, "TQ002", "twin", "SELECT taskq.insert_tasks($1)", &[&twice]);
    refused(&mut session, "TQ002", "twin", "SELECT taskq.replace_tasks($1)", &[&twice]);
}

#[test]
fn an_unknown_task_is_tq003() {
    let db = Db::new();
    let (mut session, grant) = one_in_every_state(&db);
    refused(&mut session, "TQ003", "absent", "SELECT taskq.return_task('absent', $1)", &[&grant.token]);
    refused(&mut session, "TQ003", "absent", "SELECT * FROM taskq.wait_for_task('absent', '0')", &[]);
    for (after, run) in [("absent", "blocked"), ("ready", "absent")] {
        let arrays = "SELECT taskq.add_dependencies(ARRAY[$1::text], ARRAY[$2::text])";
        refused(&mut session, "TQ003", "absent", arrays, &[&after, &run]);
        let edges = json!([{"after": "ready", "run": "blocked"}, {"after": after, "run": run}]);
        refused(&mut session, "TQ003", "absent", "SELECT taskq.add_dependencies($1::jsonb)", &[&edges]);
    }
    for key in ["depends_on", "to_signal_after"] {
        let tasks = json!([{"id": "new", "action": "x", key: ["absent"]}]);
        refused(&mut session, "TQ003", "absent", "SELECT taskq.insert_tasks($1)", &[&tasks]);
        refused(&mut session, "TQ003", "absent", "SELECT taskq.replace_tasks($1)", &[&tasks]);
    }
}

/// Whether the detail walks through the cycle `first -> ... -> first`, starting anywhere.
fn shows_cycle(detail: &str, cycle: &[&str]) -> bool {
    (0..cycle.len()).any(|start| {
        let mut walk: Vec<&str> = (0..=cycle.len()).map(|i| cycle[(start + i) % cycle.len()]).collect();
        if cycle.len() == 1 {
            walk = vec![cycle[0], cycle[0]];
        }
        detail.contains(&walk.join(" -> "))
    })
}

#[test]
fn a_cycle_is_tq004_and_the_detail_walks_through_it() {
    let db = Db::new();
    let (mut session, _) = one_in_every_state(&db);
    let insert = "SELECT taskq.insert_tasks($1)";
    let cases: [(Value, &[&str]); 4] = [
        (json!([{"id": "a", "action": "x", "depends_on": ["a"]}]), &["a"]),
        (
            json!([{"id": "a", "action": "x", "depends_on": ["b"]}, {"id": "b", "action": "x", "depends_on": ["a"]}]),
            &["a", "b"],
        ),
        (
            // a before b before c before a, said in both ways.
            json!([{"id": "a", "action": "x", "to_signal_after": ["b"], "depends_on": ["c"]},
                   {"id": "b", "action": "x"}, {"id": "c", "action": "x", "depends_on": ["b"]}]),
            &["a", "b", "c"],
        ),
        // Through the stored part: ready before blocked before a before ready.
        (
            json!([{"id": "a", "action": "x", "depends_on": ["blocked"], "to_signal_after": ["ready"]}]),
            &["ready", "blocked", "a"],
        ),
    ];
    for (tasks, cycle) in cases {
        let error = refused(&mut session, "TQ004", "", insert, &[&tasks]);
        let detail = error.detail().unwrap_or_default();
        assert!(shows_cycle(detail, cycle), "{cycle:?} in {detail:?}");
    }
    for (after, run, cycle) in
        [("blocked", "ready", ["ready", "blocked"].as_slice()), ("ready", "ready", &["ready"])]
    {
        let query = "SELECT taskq.add_dependencies(ARRAY[$1::text], ARRAY[$2::text])";
        let error = refused(&mut session, "TQ004", "", query, &[&after, &run]);
        let detail = error.detail().unwrap_or_default();
        assert!(shows_cycle(detail, cycle), "{cycle:?} in {detail:?}");
    }
}

#[test]
fn a_state_that_forbids_it_is_tq005() {
    let db = Db::new();
    let (mut session, _) = one_in_every_state(&db);
    for id in ["held", "done", "failed"] {
        let query = "SELECT taskq.add_dependencies(ARRAY['ready'], ARRAY[$1::text])";
        refused(&mut session, "TQ005", id, query, &[&id]);
        let tasks = json!([{"id": "new", "action": "x", "to_signal_after": [id]}]);
        refused(&mut session, "TQ005", id, "SELECT taskq.insert_tasks($1)", &[&tasks]);
    }
    let other = "SELECT taskq.add_dependencies(ARRAY['ready'], ARRAY['blocked'], 'settled')";
    refused(&mut session, "TQ005", "blocked", other, &[]);
    refused(&mut session, "TQ005", "held", "SELECT taskq.delete_tasks('{ready,held,done}')", &[]);
    let tasks = json!([{"id": "ready", "action": "x"}, {"id": "held", "action": "x"}]);
    refused(&mut session, "TQ005", "held", "SELECT taskq.replace_tasks($1)", &[&tasks]);
}

#[test]
fn a_malformed_task_is_tq006_and_the_message_names_element_and_key() {
    let db = Db::new();
    let (mut session, _) = one_in_every_state(&db);
    let cases = [
        ("action", json!({"id": "bad"})),
        ("action", json!({"id": "bad", "action": ""})),
        ("action", json!({"id": "bad", "action": 5})),
        ("id", json!({"id": "", "action": "x"})),
        ("id", json!({"id": 7, "action": "x"})),
        ("acton", json!({"id": "bad", "action": "x", "acton": "typo"})),
        ("priority", json!({"id": "bad", "action": "x", "priority": "high"})),
        ("priority", json!({"id": "bad", "action": "x", "priority": 1.5})),
        ("priority", json!({"id": "bad", "action": "x", "priority": 99999999999i64})),
        ("max_tries", json!({"id": "bad", "action": "x", "max_tries": 0})),
        ("max_tries", json!({"id": "bad", "action": "x", "max_tries": -1})),
        ("lease", json!({"id": "bad", "action": "x", "lease": "soon"})),
        ("lease", json!({"id": "bad", "action": "x", "lease": "-1 minute"})),
        ("delay", json!({"id": "bad", "action": "x", "delay": "-1 minute"})),
        ("delay", json!({"id": "bad", "action": "x", "delay": []})),
        ("not_before", json!({"id": "bad", "action": "x", "not_before": "the day after"})),
        ("depends_on", json!({"id": "bad", "action": "x", "depends_on": "ready"})),
        ("depends_on", json!({"id": "bad", "action": "x", "depends_on": [5]})),
        (
            "condition",
            json!({"id": "bad", "action": "x", "depends_on": [{"id": "ready", "condition": "maybe"}]}),
        ),
        ("depends_on", json!({"id": "bad", "action": "x", "depends_on": [{"condition": "settled"}]})),
        ("to_signal_after", json!({"id": "bad", "action": "x", "to_signal_after": {"id": "ready"}})),
        ("spontaneous", json!({"id": "bad", "action": "x", "spontaneous": "yes"})),
        ("post_result", json!({"id": "bad", "action": "x", "post_result": 1})),
        ("retention", json!({"id": "bad", "action": "x", "retention": "-1 day"})),
        ("metadata", json!({"id": "bad", "action": "x", "metadata": "text"})),
    ];
    for (key, bad) in cases {
        let tasks = json!([{"id": "good", "action": "x"}, {"id": "fine", "action": "x"}, bad]);
        for function in ["insert_tasks", "replace_tasks"] {
            let error =
                refused(&mut session, "TQ006", "", &format!("SELECT taskq.{function}($1)"), &[&tasks]);
            let text = format!("{} {}", error.message(), error.detail().unwrap_or_default());
            assert!(text.contains(key), "{tasks} must name the key {key}: {text}");
            // The element is known by its place, counted as people or as arrays do, or by its id.
            let element = text.contains('2') || text.contains('3') || text.contains("bad");
            assert!(element, "{tasks} must name the element: {text}");
        }
    }
}

#[test]
fn what_is_no_array_of_objects_is_tq006() {
    let db = Db::new();
    let (mut session, _) = one_in_every_state(&db);
    for tasks in [json!({}), json!("text"), json!(5), json!([5]), json!([null]), json!([["a"]]), json!(null)]
    {
        // A JSON null stands for an absent argument as well.
        let code = if tasks.is_null() { "TQ006|22004" } else { "TQ006" };
        refused(&mut session, code, "", "SELECT taskq.insert_tasks($1)", &[&tasks]);
    }
}

#[test]
fn a_malformed_dependency_or_return_is_refused_too() {
    let db = Db::new();
    let (mut session, _) = one_in_every_state(&db);
    let malformed = [
        json!({}),
        json!([5]),
        json!([{"run": "blocked"}]),
        json!([{"after": "ready", "run": "blocked", "when": 1}]),
    ];
    for edges in malformed {
        refused(&mut session, "TQ006|22023|22004", "", "SELECT taskq.add_dependencies($1::jsonb)", &[&edges]);
    }
    for returns in [json!({}), json!([5]), json!([{"task_id": "held", "code": "completed"}])] {
        refused(&mut session, "TQ006|22023", "", "SELECT * FROM taskq.return_tasks($1::jsonb)", &[&returns]);
    }
}

#[test]
fn hundreds_of_refusals_leave_no_trace_in_the_backend() {
    // Each error unwinds through the extension: what it leaves locked or borrowed shows at the next call.
    let db = Db::new();
    let (mut session, grant) = one_in_every_state(&db);
    for _ in 0..200 {
        assert!(session.give("ready", grant.token, "completed").is_err());
        assert!(session.insert(json!([{"id": "a"}])).is_err());
        assert!(session.insert(json!([{"id": "held", "action": "x"}])).is_err());
        assert!(session.depend_on("blocked", "ready").is_err());
    }
    session.complete(&grant);
    let held: i64 = session.one(
        "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype NOT IN ('relation', 'virtualxid')",
    );
    assert_eq!(held, 0);
}
