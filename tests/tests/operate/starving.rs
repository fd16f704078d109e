//! Actions for which no worker asks.

use serde_json::json;
use taskq_tests::sleeper::{Sleeper, Way};
use taskq_tests::{Db, Session};

use super::health::{problems, set_back, the_problem};

#[test]
fn an_action_without_a_claim_starves() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "10 minutes");
    session
        .insert((0..5).map(|n| json!({"id": format!("t{n}"), "action": "x", "group_id": "g"})).collect())
        .unwrap();
    session.set_now(None);
    let problem = the_problem(&mut session, "starving", "warning", "x");
    assert!(problem.contains("10m"), "{problem}");
    session.run("SELECT taskq.pause_action('x')");
    assert_eq!(problems(&mut session, "starving"), [], "paused on purpose");
    session.run("SELECT taskq.resume_action('x')");
    let grant = session.own_one("x");
    assert_eq!(problems(&mut session, "starving"), [], "one is in hand");
    session.complete(&grant);
    assert_eq!(problems(&mut session, "starving"), [], "one has ended just now");
    session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks WHERE state = 'completed'");
    // Also where groups take turns, in lanes.
    session.run("SELECT taskq.set_action('z', fair => true)");
    set_back(&mut session, "2 hours");
    session.insert(json!([{"action": "z", "group_id": "a"}])).unwrap();
    session.set_now(None);
    let starving = problems(&mut session, "starving");
    assert!(
        starving
            .iter()
            .any(|(severity, subject, _)| (severity.as_str(), subject.as_str()) == ("critical", "z")),
        "{starving:?}"
    );
}

/// On wrong code the commonest of all outages, that the workers have died, hides behind the tasks that they held.
#[test]
fn an_action_whose_workers_have_died_starves() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "20 minutes");
    session.insert((0..50).map(|n| json!({"id": format!("t{n}"), "action": "x"})).collect()).unwrap();
    session.own_with("dead", 2, &["x"], "lease => '1 minute'").unwrap();
    session.set_now(None);
    the_problem(&mut session, "overdue", "critical", "x");
    the_problem(&mut session, "starving", "warning", "x");
    let alive = session.own_with("alive", 1, &["x"], "lease => '1 minute'").unwrap();
    assert_eq!(problems(&mut session, "starving"), [], "one is in hand");
    session.complete(&alive[0]);
}

/// Also an action of which the workers held all there was, and one whose places they held.
#[test]
fn after_all_workers_have_died_every_action_starves() {
    let (db, [mut session]) = Db::connected();
    set_back(&mut session, "40 minutes");
    session.run("SELECT taskq.set_action('fair', fair => true), taskq.set_action('full', max_concurrency => 2), taskq.set_action('keyed', max_per_group => 1)");
    let actions = ["plain", "fair", "full", "keyed", "retried", "held"];
    for action in actions {
        let tasks = (0..6).map(
            |n| json!({"id": format!("{action} {n}"), "action": action, "group_id": format!("g{}", n % 2)}),
        );
        session.insert(tasks.collect()).unwrap();
    }
    for action in actions {
        let most = if action == "held" { 6 } else { 2 };
        assert_eq!(
            session.own_with("dead", most, &[action], "lease => '20 minutes'").unwrap().len(),
            most as usize
        );
    }
    let grant = session.own_one_with("retried", "lease => '20 minutes'");
    session.give(&grant.task_id, grant.token, "pending").unwrap();
    set_back(&mut session, "25 minutes");
    assert_eq!(problems(&mut session, "starving"), [], "they work");
    session.set_now(None);
    let starving: Vec<String> = problems(&mut session, "starving")
        .into_iter()
        .map(|(severity, subject, problem)| {
            assert!(severity == "warning" && problem.ends_with("and no call waits for tasks"), "{problem}");
            subject
        })
        .collect();
    let mut sorted = actions.to_vec();
    sorted.sort_unstable();
    let mut found = starving.clone();
    found.sort_unstable();
    assert_eq!(found, sorted);
    // Of those that are waited for it tells how many calls ask.
    let way =
        Way { name: "own_tasks", call: "SELECT taskq.own_tasks('w', 1, '{other}', wait => '60 seconds')" };
    session.run("SELECT taskq.pause_action('plain')");
    let sleeper = Sleeper::start(&db, &mut session, way);
    let all = problems(&mut session, "starving");
    assert!(
        all.iter().all(|(_, _, problem)| problem.ends_with(
            "and no waiting call asks for it: of 1 waiting call none asks for one that has tasks"
        )),
        "{all:?}"
    );
    session.run(&format!("SELECT pg_terminate_backend({})", sleeper.pid()));
    sleeper.fails();
}

#[test]
fn what_its_group_is_closed_to_does_not_starve() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "10 minutes");
    session.insert(json!([{"action": "x", "group_id": "g"}, {"action": "x", "group_id": "h"}])).unwrap();
    session.set_now(None);
    session.run("SELECT taskq.set_group('g', 0)");
    the_problem(&mut session, "starving", "warning", "x");
    session.run("SELECT taskq.set_group('h', 0)");
    assert_eq!(problems(&mut session, "starving"), [], "no worker is to own it");
    session.run("SELECT taskq.set_group('g', 1)");
    the_problem(&mut session, "starving", "warning", "x");
}

/// Wrong code asks an operator to start workers for what the operator has held back.
#[test]
fn what_a_group_a_workgroup_or_a_rate_holds_back_does_not_starve() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "10 minutes");
    session
        .insert(json!([{"action": "x", "group_id": "g"}, {"action": "y", "workgroup": "w"},
                       {"action": "z"}, {"action": "z"}]))
        .unwrap();
    session.run("SELECT taskq.set_action('z', rate_limit => 1, rate_period => '1 day')");
    let grant = session.own_one("z");
    session.complete(&grant);
    session.set_now(None);
    for action in ["x", "y", "z"] {
        let (hold, free) = match action {
            "x" => ("SELECT taskq.pause_group('g')", "SELECT taskq.resume_group('g')"),
            "y" => ("SELECT taskq.delay_workgroup('w', '1 hour')", "SELECT taskq.delay_workgroup('w', '0')"),
            _ => ("SELECT 1", "SELECT taskq.set_action('z', clear => '{rate_limit}')"),
        };
        let starves = |session: &mut Session| {
            problems(session, "starving").iter().any(|(_, subject, _)| subject == action)
        };
        session.run(hold);
        assert!(!starves(&mut session), "{action} is held back");
        session.run(free);
        assert!(starves(&mut session), "{action} may go");
    }
}
