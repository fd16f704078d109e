//! Returns with children that the queue must refuse, as a whole: the parent is not settled, its token stays good, and no
//! child is there. And returns in batches, where each element brings its own.

use serde_json::json;
use taskq_tests::{Db, Grant, Session, refused};
use uuid::Uuid;

use super::{ready, states};

/// `p` in progress, with `d` after it, and `there`.
fn setup(session: &mut Session) -> Grant {
    session
        .insert(json!([{"id": "p", "action": "parent"}, {"id": "d", "action": "d", "depends_on": ["p"]},
                       {"id": "there", "action": "there"}]))
        .unwrap();
    session.own_one("parent")
}

fn refuse(session: &mut Session, sqlstate: &str, naming: &str, token: Uuid, code: &str, arguments: &str) {
    let query = format!("SELECT taskq.return_task('p', $1, '{code}', {arguments})");
    refused(session, sqlstate, naming, &query, &[&token]);
}

#[test]
fn a_return_for_another_try_brings_no_children_and_no_delay() {
    let (_db, [mut session]) = Db::connected();
    let grant = setup(&mut session);
    for arguments in ["children => '[{\"id\": \"c\", \"action\": \"c\"}]'", "delay_children => '1 hour'"] {
        refuse(&mut session, "22023", "status_code", grant.token, "pending", arguments);
    }
    // No children at all are none.
    assert_eq!(session.give_with("p", grant.token, "pending", "children => '[]'").unwrap(), "pending");
}

#[test]
fn children_that_insert_tasks_would_refuse_refuse_the_return() {
    let (_db, [mut session]) = Db::connected();
    let grant = setup(&mut session);
    let cases = [
        ("TQ006", "action", r#"[{"id": "c"}]"#),
        ("TQ006", "no_such_key", r#"[{"id": "c", "action": "c", "no_such_key": 1}]"#),
        ("TQ006", "children", r#"{"id": "c", "action": "c"}"#),
        ("TQ002", "there", r#"[{"id": "c", "action": "c"}, {"id": "there", "action": "c"}]"#),
        ("TQ002", "p", r#"[{"id": "p", "action": "c"}]"#),
        ("TQ003", "absent", r#"[{"id": "c", "action": "c", "depends_on": ["absent"]}]"#),
        ("TQ005", "p", r#"[{"id": "c", "action": "c", "to_signal_after": ["p"]}]"#),
        (
            "TQ004",
            "",
            r#"[{"id": "c", "action": "c", "depends_on": ["c2"]}, {"id": "c2", "action": "c", "depends_on": ["c"]}]"#,
        ),
    ];
    for (sqlstate, naming, children) in cases {
        let naming = if naming == "children" { "" } else { naming };
        let arguments = format!("children => '{children}', children_block => true");
        refuse(&mut session, sqlstate, naming, grant.token, "completed", &arguments);
    }
    session.complete(&grant);
    assert_eq!(session.state("d"), "ready");
}

#[test]
fn a_child_cannot_wait_for_a_task_that_waits_for_it() {
    let (_db, [mut session]) = Db::connected();
    let grant = setup(&mut session);
    let arguments =
        "children => '[{\"id\": \"c\", \"action\": \"c\", \"depends_on\": [\"d\"]}]', children_block => true";
    let query = format!("SELECT taskq.return_task('p', $1, 'completed', {arguments})");
    let error = refused(&mut session, "TQ004", "", &query, &[&grant.token]);
    assert!(error.detail().unwrap().contains("c -> d -> c"), "{error:?}");
    // Without children_block there is no cycle.
    let arguments = "children => '[{\"id\": \"c\", \"action\": \"c\", \"depends_on\": [\"d\"]}]'";
    session.give_with("p", grant.token, "completed", arguments).unwrap();
    assert_eq!(states(&mut session, ["d", "c"]), ["ready", "blocked"]);
}

#[test]
fn a_bad_token_brings_no_children() {
    let (_db, [mut session]) = Db::connected();
    let grant = setup(&mut session);
    let children = "children => '[{\"id\": \"c\", \"action\": \"c\"}]', children_block => true, delay_children => '1 hour'";
    refuse(&mut session, "TQ001", "p", Uuid::new_v4(), "completed", children);
    session.complete(&grant);
    refuse(&mut session, "TQ001", "p", grant.token, "completed", children);
    assert_eq!(states(&mut session, ["d", "c"]), ["ready", "gone"]);
}

#[test]
fn a_delay_out_of_range_is_refused() {
    let (_db, [mut session]) = Db::connected();
    let grant = setup(&mut session);
    for delay in ["-1 second", "1001 years"] {
        let arguments = format!("delay_children => '{delay}'");
        refuse(&mut session, "22023", "delay_children", grant.token, "completed", &arguments);
    }
}

#[test]
fn in_a_batch_each_return_brings_its_own_children_and_a_bad_token_none() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "p", "action": "parent"}, {"id": "q", "action": "parent"}, {"id": "r", "action": "parent"},
               {"id": "d", "action": "d", "depends_on": ["p", "q", "r"]}]),
    );
    let held = super::hold(&mut session, "parent");
    let child = |id: &str| json!([{"id": id, "action": "child"}]);
    let returns = json!([
        {"task_id": "q", "token": held[1].token, "children": child("q child"), "children_block": true},
        {"task_id": "r", "token": Uuid::new_v4(), "children": child("r child"), "children_block": true},
        {"task_id": "p", "token": held[0].token, "children": child("p child"), "result": 1},
    ]);
    let codes: Vec<Option<String>> = session
        .query("SELECT status_code FROM taskq.return_tasks($1::jsonb)", &[&returns])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(codes, [Some("completed".to_owned()), None, Some("completed".to_owned())]);
    assert_eq!(states(&mut session, ["q child", "r child", "p child"]), ["ready", "gone", "ready"]);
    session.complete(&held[2]);
    assert_eq!(session.state("d"), "blocked", "it waits for q's child");
    assert_eq!(ready(&mut session, "child"), ["p child", "q child"]);
    session.cancel(&["p child"]).unwrap();
    assert_eq!(session.state("d"), "blocked");
    session.cancel(&["q child"]).unwrap();
    assert_eq!(session.state("d"), "aborted");
}

#[test]
fn children_of_two_returns_of_a_batch_may_depend_on_each_other_in_the_order_of_the_call() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "p", "action": "parent"}, {"id": "q", "action": "parent"}]));
    let held = super::hold(&mut session, "parent");
    let returns = json!([
        {"task_id": "p", "token": held[0].token, "children": [{"id": "p child", "action": "child"}]},
        {"task_id": "q", "token": held[1].token,
         "children": [{"id": "q child", "action": "child", "depends_on": ["p child", "q"]}]},
    ]);
    session.execute("SELECT * FROM taskq.return_tasks($1::jsonb)", &[&returns]).unwrap();
    assert_eq!(states(&mut session, ["p child", "q child"]), ["ready", "blocked"]);
}
