//! `cancel_tasks` and `delete_tasks` with filters instead of ids, or besides them.
//!
//! Why: an operator who has to stop ten thousand tasks of an action has no list of ids. On wrong code a filter is
//! ignored, which cancels or deletes tasks that were not meant.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

/// Tasks of two actions and two groups in every state.
fn fill(db: &Db) -> Session {
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session
        .insert(json!([
            {"id": "ready", "action": "x", "group_id": "g"}, {"id": "later", "action": "x", "delay": "1 day"},
            {"id": "held", "action": "h", "group_id": "g"}, {"id": "blocked", "action": "x", "depends_on": ["held"]},
            {"id": "done", "action": "d", "group_id": "g"}, {"id": "lost", "action": "l"}, {"id": "other", "action": "o"},
            {"id": "again", "action": "a", "group_id": "f"},
        ]))
        .unwrap();
    session.own_one("h");
    session.perform("d", "completed");
    session.set_now(Some("2030-01-01 01:00:00Z"));
    let grant = session.own_one("l");
    session.give_with("lost", grant.token, "aborted", "status => 'disk full'").unwrap();
    let grant = session.own_one("a");
    session
        .give_with("again", grant.token, "pending", "status => 'disk slow', retry_after => '1 day'")
        .unwrap();
    session
}

fn left(session: &mut Session, condition: &str) -> Vec<String> {
    session.all(&format!("SELECT id FROM taskq.tasks WHERE {condition} ORDER BY id"))
}

#[test]
fn cancel_by_action_group_status_and_ids() {
    for (filter, number, cancelled) in [
        ("actions => '{x,h}'", 4, vec!["blocked", "held", "later", "ready"]),
        ("groups => '{g}'", 2, vec!["blocked", "held", "ready"]),
        ("groups => '{g}', actions => '{x}'", 1, vec!["ready"]),
        ("status_like => 'disk%'", 1, vec!["again"]),
        ("'{ready,later,other}', actions => '{x}'", 2, vec!["later", "ready"]),
        ("actions => '{x}', max_tasks => 2", 2, vec!["later", "ready"]),
        ("actions => '{nope}'", 0, vec![]),
        ("actions => '{}'", 0, vec![]),
    ] {
        let db = Db::new();
        let mut session = fill(&db);
        assert_eq!(session.one::<i64>(&format!("SELECT taskq.cancel_tasks({filter})")), number, "{filter}");
        assert_eq!(left(&mut session, "state = 'aborted' AND id <> 'lost'"), cancelled, "{filter}");
    }
}

#[test]
fn delete_by_action_group_status_cause_and_time() {
    for (filter, deleted) in [
        ("actions => '{x,h,o}'", vec!["blocked", "later", "other", "ready"]),
        ("groups => '{g}'", vec!["done", "ready"]),
        ("status_like => 'disk%'", vec!["again", "lost"]),
        ("causes => '{returned}'", vec!["lost"]),
        ("causes => '{timeout}'", vec![]),
        ("settled_until => '2030-01-01 00:30:00Z'", vec!["done"]),
        ("settled_since => '2030-01-01 00:30:00Z'", vec!["lost"]),
        ("'{done,lost,ready}', settled_since => '2000-01-01'", vec!["done", "lost"]),
        ("actions => '{x}', max_tasks => 1", vec!["ready"]),
        ("actions => '{}'", vec![]),
    ] {
        let db = Db::new();
        let mut session = fill(&db);
        let before = left(&mut session, "true");
        let number: i64 = session.one(&format!("SELECT taskq.delete_tasks({filter})"));
        let after = left(&mut session, "true");
        let gone: Vec<&String> = before.iter().filter(|id| !after.contains(id)).collect();
        assert_eq!(gone, deleted.iter().collect::<Vec<_>>(), "{filter}");
        assert_eq!(number as usize, deleted.len(), "{filter}");
    }
}

/// What a list of ids refuses, a filter passes over.
#[test]
fn a_task_in_progress_is_passed_over_by_a_filter_and_refused_by_name() {
    let db = Db::new();
    let mut session = fill(&db);
    refused(&mut session, "TQ005", "held", "SELECT taskq.delete_tasks('{held,ready}')", &[]);
    assert_eq!(session.one::<i64>("SELECT taskq.delete_tasks('{held,ready}', groups => '{g}')"), 1);
    assert_eq!(session.state("held"), "in-progress");
}

#[test]
fn without_anything_nothing_is_meant() {
    let db = Db::new();
    let mut session = fill(&db);
    for call in
        ["cancel_tasks()", "delete_tasks()", "cancel_tasks(status => 'why')", "delete_tasks(max_tasks => 5)"]
    {
        refused(&mut session, "22004", "task_ids", &format!("SELECT taskq.{call}"), &[]);
    }
    refused(
        &mut session,
        "22023",
        "max_tasks",
        "SELECT taskq.cancel_tasks(actions => '{x}', max_tasks => -1)",
        &[],
    );
    refused(&mut session, "22023", "causes", "SELECT taskq.delete_tasks(causes => '{bored}')", &[]);
}

/// What came back to life between the look and the locks is not what the filter was about.
#[test]
fn a_task_that_is_retried_meanwhile_stays() {
    let db = Db::new();
    let (mut open, other, mut watcher) = (fill(&db), db.connect(), db.connect());
    open.run("BEGIN; SELECT taskq.retry_tasks('{lost}')");
    let call = other.background(|s| s.one::<i64>("SELECT taskq.delete_tasks(causes => '{returned}')"));
    call.settle_down(&mut watcher);
    open.run("COMMIT");
    assert_eq!(call.join().1, 0);
    assert_eq!(watcher.state("lost"), "ready");
}
