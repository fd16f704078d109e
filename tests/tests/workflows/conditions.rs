//! Every condition, said in every way, met with every end. The table of contract section 1 is six lines; a queue gets one
//! of them wrong where an edge is said late (the parent is in progress, or settled already) or where a task ends by
//! something else than its worker's word (cancelled, tries used up, replaced, completed by hand, skipped).

use serde_json::json;
use taskq_tests::{Db, Session};

const CONDITIONS: [&str; 3] = ["completed", "settled", "aborted"];

/// What becomes of a task whose only dependency ends so.
fn expected(condition: &str, end: &str) -> &'static str {
    match (condition, end) {
        ("completed", "aborted") | ("aborted", "completed") => "aborted",
        _ => "ready",
    }
}

/// The ways to say that `run` runs after `after`, by when they are said.
const WAYS: [&str; 9] = [
    "depends_on, together",
    "to_signal_after, together",
    "depends_on, later",
    "to_signal_after, later",
    "add_dependencies",
    "depends_on, in progress",
    "add_dependencies, in progress",
    "depends_on, settled",
    "add_dependencies, settled",
];

#[test]
fn each_condition_holds_however_and_whenever_the_edge_was_said() {
    let (_db, [mut session]) = Db::connected();
    let mut number = 0;
    for way in WAYS {
        for condition in CONDITIONS {
            for end in ["completed", "aborted"] {
                number += 1;
                let (after, run) = (format!("after{number}"), format!("run{number}"));
                say(&mut session, way, &after, &run, condition, end);
                let task = session.task(&run).unwrap();
                let case = format!("{way}, {condition}, {end}");
                assert_eq!(task.state, expected(condition, end), "{case}");
                assert_eq!((task.num_signals, task.total_dependencies), (1, 1), "{case}");
                assert_eq!(task.num_failures, i32::from(end == "aborted"), "{case}");
            }
        }
    }
}

/// Brings the edge about in one of the ways, and the parent to its end.
fn say(session: &mut Session, way: &str, after: &str, run: &str, condition: &str, end: &str) {
    let (how, when) = way.split_once(", ").unwrap_or((way, "later"));
    let parent = json!({"id": after, "action": after});
    let edge = |id: &str| json!([{"id": id, "condition": condition}]);
    let child = match how {
        "depends_on" => json!({"id": run, "action": "child", "depends_on": edge(after)}),
        _ => json!({"id": run, "action": "child"}),
    };
    let signals = json!({"id": after, "action": after, "to_signal_after": edge(run)});
    let added = json!([{"after": after, "run": run, "condition": condition}]);
    match (how, when) {
        ("depends_on", "together") => drop(session.insert(json!([child, parent])).unwrap()),
        ("to_signal_after", "together") => drop(session.insert(json!([signals, child])).unwrap()),
        ("to_signal_after", _) => {
            session.insert(json!([child])).unwrap();
            session.insert(json!([signals])).unwrap();
        }
        _ => drop(session.insert(json!([parent])).unwrap()),
    }
    let late = |session: &mut Session| {
        if how == "depends_on" {
            session.insert(json!([child])).unwrap();
        } else if how == "add_dependencies" {
            session.insert(json!([child])).unwrap();
            let blocking = i64::from(when != "settled");
            assert_eq!(session.depend(added.clone()).unwrap(), blocking, "{way}");
        }
    };
    if when == "later" {
        late(session);
    }
    let grant = session.own_one(after);
    if when == "in progress" {
        late(session);
    }
    if when != "settled" {
        assert_eq!(session.state(run), "blocked", "{way}");
    }
    assert_eq!(session.give(after, grant.token, end).unwrap(), end);
    if when == "settled" {
        late(session);
    }
}

#[test]
fn each_condition_holds_by_whatever_the_parent_ends() {
    let ends: [(&str, &str); 8] = [
        ("cancelled while ready", "SELECT taskq.cancel_tasks('{p}')"),
        (
            "cancelled in progress",
            "SELECT * FROM taskq.own_tasks('w', 1, '{x}'); SELECT taskq.cancel_tasks('{p}')",
        ),
        ("cancelled with its parent", "SELECT taskq.cancel_tasks('{root}')"),
        ("completed by hand", "SELECT taskq.complete_task('p')"),
        ("replaced", "SELECT * FROM taskq.replace_tasks('[{\"id\": \"p\", \"action\": \"x\"}]')"),
        (
            "out of tries",
            "SELECT taskq.return_task(task_id, token, 'pending', retry_after => '0') FROM taskq.own_tasks('w', 1, '{x}')",
        ),
        (
            "late on its last try",
            "SELECT * FROM taskq.own_tasks('w', 1, '{x}', '0'); SELECT * FROM taskq.own_tasks('w', 1, '{x}')",
        ),
        ("spontaneous", "SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 1, '{first}')"),
    ];
    for (name, statements) in ends {
        let (_db, [mut session]) = Db::connected();
        let mut p = json!({"id": "p", "action": "x", "max_tries": 1});
        if name == "cancelled with its parent" {
            p["depends_on"] = json!(["root"]);
        }
        if name == "spontaneous" {
            p["spontaneous"] = json!(true);
            p["depends_on"] = json!([{"id": "first", "condition": "settled"}]);
        }
        let children = CONDITIONS.map(|condition| {
            json!({"id": condition, "action": "y", "depends_on": [{"id": "p", "condition": condition}]})
        });
        session
            .insert(json!([{"id": "root", "action": "root"}, {"id": "first", "action": "first"}, p]))
            .unwrap();
        session.insert(json!(children)).unwrap();
        // Each in a transaction of its own: what is due is done by the call that finds it.
        statements.split("; ").for_each(|statement| session.run(statement));
        let end = if ["completed by hand", "spontaneous"].contains(&name) { "completed" } else { "aborted" };
        for condition in CONDITIONS {
            let task = session.task(condition).unwrap();
            assert_eq!(task.state, expected(condition, end), "{name}, {condition}");
            assert_eq!(task.num_failures, i32::from(end == "aborted"), "{name}, {condition}");
        }
    }
}
