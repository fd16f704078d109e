//! Signals in parts that are narrowed to some actions: who sends one, and who makes one by suspending a task.

use serde_json::json;
use taskq_tests::{Db, sqlstate};

use super::narrowed::narrowed;
use super::{Role, assert_allowed, assert_denied};

/// A signal is of an action as any other task.
#[test]
fn signals_are_sent_and_made_by_those_whose_actions_they_are() {
    let roles = [Role::new("approver"), Role::new("orderer"), Role::new("both")];
    let (db, [mut boss]) = Db::connected();
    narrowed(&mut boss, "producer", &roles[0], "{approval}");
    narrowed(&mut boss, "worker", &roles[1], "{order}");
    narrowed(&mut boss, "worker", &roles[2], "{order,approval}");
    boss.insert(json!([{"id": "ours", "action": "approval", "signal": true}, {"id": "theirs", "action": "signal", "signal": true},
                       {"action": "order"}, {"action": "order"}]))
        .unwrap();
    let [mut approver, mut orderer, mut both] = roles.each_ref().map(|role| db.connect_as(&role.name));
    assert_denied(&mut approver, "SELECT taskq.signal('theirs')");
    assert_denied(&mut approver, "SELECT taskq.signal('early')");
    assert_allowed(&mut approver, "SELECT taskq.signal('ours')");
    assert_allowed(&mut approver, "SELECT taskq.signal('early', action => 'approval')");
    for denied in [r#"{"task_id": "theirs"}"#, r#"{"task_id": "unborn"}"#] {
        let many =
            format!(r#"SELECT taskq.signal_tasks('[{{"task_id": "new", "action": "approval"}}, {denied}]')"#);
        assert_denied(&mut approver, &many);
    }
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id IN ('new', 'unborn')"), 0);
    assert_allowed(
        &mut approver,
        r#"SELECT taskq.signal_tasks('[{"task_id": "many", "action": "approval"}]')"#,
    );
    let held = orderer.own_one("order");
    for awaited in [
        r#"{"id": "theirs"}"#,
        r#"{"id": "new", "signal": true}"#,
        r#"{"id": "new", "signal": true, "action": "approval"}"#,
    ] {
        let arguments = format!("depends_on => '[{awaited}]'");
        let refused = orderer.give_with(&held.task_id, held.token, "pending", &arguments).unwrap_err();
        assert_eq!(sqlstate(&refused), "42501", "{awaited}");
    }
    let held = both.own_one("order");
    let arguments = r#"depends_on => '[{"id": "new", "signal": true, "action": "approval"}]'"#;
    assert_eq!(both.give_with(&held.task_id, held.token, "pending", arguments).unwrap(), "pending");
    assert_eq!(boss.state("new"), "blocked");
}
