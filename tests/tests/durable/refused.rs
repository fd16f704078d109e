//! What suspending refuses, and that it changes nothing then: the task is still held.

use serde_json::json;
use taskq_tests::{Db, refused};

use super::suspend;

#[test]
fn what_cannot_be_waited_for_is_refused() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "t", "action": "work"}, {"id": "after", "action": "y", "depends_on": ["t"]},
               {"id": "last", "action": "y", "depends_on": ["after"]}, {"id": "free", "action": "z"}]),
    );
    let grant = session.own_one("work");
    let token = grant.token;
    let call = |arguments: &str| format!("SELECT taskq.return_task('t', $1, {arguments})");
    for (code, naming, arguments) in [
        ("TQ003", "nothing", "'pending', depends_on => '[\"nothing\"]'"),
        ("TQ004", "\"t\"", "'pending', depends_on => '[\"t\"]'"),
        ("TQ004", "after", "'pending', depends_on => '[\"free\", \"last\"]'"),
        (
            "TQ004",
            "child",
            "'pending', children => '[{\"id\": \"child\", \"action\": \"c\", \"depends_on\": [\"t\"]}]', children_block => true",
        ),
        ("TQ006", "key \"signl\"", "'pending', depends_on => '[{\"id\": \"s\", \"signl\": true}]'"),
        ("TQ006", "key \"action\"", "'pending', depends_on => '[{\"id\": \"s\", \"action\": \"x\"}]'"),
        ("TQ006", "\"id\"", "'pending', depends_on => '[{\"signal\": true}]'"),
        (
            "TQ006",
            "both",
            "'pending', depends_on => '[{\"id\": \"s\", \"signal\": true, \"expires_in\": \"1 h\", \"expires_at\": \"2031-01-01\"}]'",
        ),
        ("TQ006|22023", "depends_on", "'pending', depends_on => '{\"id\": \"s\"}'"),
        ("22023", "wait_at_most", "'pending', wait_at_most => '1 hour'"),
        ("22023", "wait_at_most", "'pending', depends_on => '[]', wait_at_most => '-1 hour'"),
        ("22023", "depends_on", "'completed', depends_on => '[]'"),
        ("22023", "wait_at_most", "'aborted', wait_at_most => '1 hour'"),
        ("22023", "children", "'pending', children => '[{\"action\": \"c\"}]'"),
        ("22023", "children", "'pending', depends_on => '[]', delay_children => '1 hour'"),
        (
            "TQ005",
            "free",
            "'pending', depends_on => '[\"free\", {\"id\": \"free\", \"condition\": \"completed\"}]'",
        ),
    ] {
        refused(&mut session, code, naming, &call(arguments), &[&token]);
        assert_eq!(session.state("t"), "in-progress", "{arguments}");
    }
    // A batch is refused as a whole.
    let returns =
        json!([{"task_id": "t", "token": token, "status_code": "pending", "depends_on": ["nothing"]}]);
    refused(&mut session, "TQ003", "nothing", "SELECT * FROM taskq.return_tasks($1)", &[&returns]);
    suspend(&mut session, &grant, "depends_on => '[\"free\"]'").unwrap();
}

#[test]
fn a_signal_in_an_element_is_for_suspending_only() {
    let (_db, [mut session]) = Db::connected();
    let tasks = json!([{"id": "t", "action": "x", "depends_on": [{"id": "s", "signal": true}]}]);
    refused(&mut session, "TQ006", "signal", "SELECT taskq.insert_tasks($1)", &[&tasks]);
}
