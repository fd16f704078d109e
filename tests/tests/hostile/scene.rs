//! A queue with a task in every state, for calls to meet.

use serde_json::json;
use taskq_tests::{Db, Grant, Session};

/// `ready`, `held` (in group `g`), `blocked` by it, `scheduled`, `done`, `failed`; a schedule, settings, a workgroup.
pub fn set(db: &Db) -> (Session, Grant) {
    let mut session = db.connect();
    session.insert(json!([{"id": "done", "action": "x"}, {"id": "failed", "action": "x"}])).unwrap();
    session.perform("x", "completed");
    session.perform("x", "aborted");
    session.insert(json!([{"id": "held", "action": "x", "group_id": "g"}])).unwrap();
    let grant = session.own_one_with("x", "lease => '1 hour'");
    let tasks = json!([
        {"id": "ready", "action": "x", "unique_by": "key", "body": "{\"a\": 1}"},
        {"id": "blocked", "action": "y", "depends_on": ["held", "done"], "group_id": "g"},
        {"id": "scheduled", "action": "x", "delay": "1 day", "workgroup": "w", "merge_key": "m"},
    ]);
    session.insert(tasks).unwrap();
    session.run("SELECT taskq.set_action('x', max_concurrency => 5), taskq.set_group('g', weight => 2)");
    session.run("SELECT taskq.schedule('s', '0 0 1 1 *', '{\"action\": \"x\"}')");
    (session, grant)
}
