//! What says that workers work on an action, and what does not.
//!
//! Why: each end counted as work, what expired as well; what is in progress was looked for among the next hundred tasks alone,
//! and a limit counted as closed at 0 only. On wrong code all workers are dead and `health` is content, or it rings at night for
//! an action that is at work.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::health::{problems, set_back, the_problem};

fn insert(session: &mut Session, action: &str, number: usize, arguments: &str) {
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_many('{action}', array_fill('b'::text, ARRAY[{number}]), {arguments})"
    ));
}

#[test]
fn what_ends_without_a_worker_is_no_work() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "10 minutes");
    session
        .insert(json!([{"id": "old", "action": "x"}, {"id": "short", "action": "x", "expires_in": "1 minute"},
                       {"id": "cancelled", "action": "x"}, {"id": "done", "action": "x"}, {"id": "by hand", "action": "x"}]))
        .unwrap();
    session.set_now(None);
    session.run("SELECT taskq.maintain(); SELECT taskq.cancel_tasks('{cancelled}'); SELECT taskq.complete_task('by hand')");
    assert_eq!(session.one::<String>("SELECT cause FROM taskq.tasks WHERE id = 'short'"), "expired");
    the_problem(&mut session, "starving", "warning", "x");
    session.perform("x", "aborted");
    assert_eq!(problems(&mut session, "starving"), [], "a worker has returned one");
}

/// Behind more than a hundred others of its action, with a deadline and without one, in lanes as well.
#[test]
fn what_is_in_progress_behind_many_others_is_in_hand() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('fair', max_concurrency => 1, fair => true), taskq.set_action('leased', max_concurrency => 1)");
    set_back(&mut session, "3 hours");
    for (action, arguments, held_for) in [
        ("leased", "priority => 0", "'5 hours'"),
        ("fair", "group_id => 'g'", "'5 hours'"),
        ("endless", "priority => 0", "NULL"),
    ] {
        if action == "endless" {
            session.run("SET taskq.lease = ''");
        }
        insert(&mut session, action, 1, arguments);
        session.own_with(action, 1, &[action], &format!("lease => {held_for}")).unwrap();
    }
    set_back(&mut session, "2 hours");
    insert(&mut session, "leased", 150, "priority => 5");
    insert(&mut session, "endless", 150, "priority => 5");
    insert(&mut session, "fair", 150, "priority => 5, group_id => 'h'");
    session.set_now(None);
    assert_eq!(problems(&mut session, "starving"), [], "a worker holds one of each");
    for action in ["leased", "fair", "endless"] {
        session.run(&format!("SELECT taskq.release_tasks(actors => '{{{action}}}')"));
        assert!(
            problems(&mut session, "starving").iter().any(|(_, subject, _)| subject == action),
            "{action}"
        );
    }
}

#[test]
fn what_a_full_group_holds_back_does_not_starve() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_group('g', max_concurrency => 1)");
    set_back(&mut session, "20 minutes");
    session.insert(json!([{"id": "held", "action": "y", "group_id": "g"}])).unwrap();
    let held = session.own_one_with("y", "lease => '1 hour'");
    insert(&mut session, "x", 2, "group_id => 'g'");
    session.set_now(None);
    assert_eq!(problems(&mut session, "starving"), [], "the group is at its limit");
    session.insert(json!([{"action": "x"}])).unwrap();
    assert_eq!(problems(&mut session, "starving"), [], "what may run has just come");
    session.complete(&held);
    the_problem(&mut session, "starving", "warning", "x");
    // A worker that is dead holds the place: another one would get it.
    set_back(&mut session, "15 minutes");
    session.insert(json!([{"id": "dead", "action": "y", "group_id": "g"}])).unwrap();
    session.own_one_with("y", "lease => '1 minute'");
    session.set_now(None);
    assert!(problems(&mut session, "starving").iter().any(|(_, subject, _)| subject == "x"));
}

/// On wrong code an operator looks after another worker than the one whose task has been late for longest.
#[test]
fn an_overdue_action_names_the_actor_that_is_late_for_longest() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "1 hour");
    insert(&mut session, "x", 2, "priority => 0");
    session.own_with("zoe", 1, &["x"], "lease => '5 minutes'").unwrap();
    session.own_with("ann", 1, &["x"], "lease => '20 minutes'").unwrap();
    session.set_now(None);
    let problem = the_problem(&mut session, "overdue", "critical", "x");
    assert!(problem.contains("55m (actor \"zoe\")"), "{problem}");
}
