//! The views: the columns that the contract names are there, and tokens are nowhere.

use serde_json::json;
use taskq_tests::{Db, Session};

const VIEWS: &[(&str, &[&str])] = &[
    (
        "tasks",
        &[
            "id",
            "action",
            "body",
            "status_code",
            "status",
            "num_tries",
            "max_tries",
            "num_signals",
            "total_dependencies",
            "num_failures",
            "actor_id",
            "action_deadline",
            "result",
            "priority",
            "lease",
            "not_before",
            "spontaneous",
            "post_result",
            "retention",
            "metadata",
            "state",
        ],
    ),
    ("dependencies", &["after", "run", "condition", "settled"]),
    ("actors", &["actor_id", "task_id", "action", "action_deadline", "overdue"]),
    ("stats", &["action"]),
];

fn columns(session: &mut Session, view: &str) -> Vec<String> {
    session.all(&format!(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = 'taskq.{view}'::regclass AND attnum > 0 ORDER BY attnum"
    ))
}

#[test]
fn the_views_have_the_columns_of_the_contract() {
    let (_db, [mut session]) = Db::connected();
    for (view, expected) in VIEWS {
        let got = columns(&mut session, view);
        let missing: Vec<_> =
            expected.iter().filter(|column| !got.iter().any(|name| name == *column)).collect();
        assert!(missing.is_empty(), "taskq.{view} has {got:?}, but not {missing:?}");
    }
    for view in ["dependencies", "actors", "stats"] {
        let expected = VIEWS.iter().find(|(name, _)| *name == view).unwrap().1;
        assert!(
            columns(&mut session, view)
                .starts_with(&expected.iter().map(|c| c.to_string()).collect::<Vec<_>>())
        );
    }
}

#[test]
fn no_view_shows_a_token() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let token = session.own_one("x").token.to_string();
    let views: Vec<String> = session.all(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'taskq'::regnamespace AND relkind IN ('v', 'm')",
    );
    for view in views {
        let rows: Vec<String> = session.all(&format!("SELECT to_jsonb(v)::text FROM taskq.{view} v"));
        assert!(!rows.iter().any(|row| row.contains(&token)), "taskq.{view} shows the token");
    }
}

#[test]
fn actors_shows_each_task_in_progress_its_worker_and_if_it_is_overdue() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x"}]),
    );
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.own_with("slow", 1, &["x"], "lease => '1 minute'").unwrap();
    session.own_with("calm", 1, &["x"], "lease => NULL").unwrap();
    session.set_now(Some("2030-01-01 00:02:00Z"));
    let rows: Vec<String> = session
        .all("SELECT concat_ws(' ', actor_id, task_id, action, overdue) FROM taskq.actors ORDER BY actor_id");
    assert_eq!(rows, ["calm b x f", "slow a x t"]);
}

#[test]
fn dependencies_shows_each_edge_and_whether_it_is_settled() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "x"},
        {"id": "b", "action": "y"},
        {"id": "c", "action": "z", "depends_on": ["a", {"id": "b", "condition": "settled"}]},
    ]));
    session.perform("y", "aborted");
    let rows: Vec<String> = session
        .all("SELECT concat_ws(' ', after, run, condition, settled) FROM taskq.dependencies ORDER BY after");
    assert_eq!(rows, ["a c completed f", "b c settled t"]);
}

#[test]
fn states_follow_the_clock_without_a_call() {
    // A monitoring query must not show a due task as scheduled only because no worker has looked since.
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "later", "action": "x", "delay": "1 hour"}])).unwrap();
    assert_eq!(session.state("later"), "scheduled");
    session.set_now(Some("2030-01-01 00:59:59Z"));
    assert_eq!(session.state("later"), "scheduled");
    session.set_now(Some("2030-01-01 01:00:01Z"));
    assert_eq!(session.state("later"), "ready");
}
