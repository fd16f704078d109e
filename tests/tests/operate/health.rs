//! Each problem has a row, with what to do; where all is well there is none.
//!
//! On wrong code: a quiet alarm, or one that rings for nothing.

use serde_json::json;
use taskq_tests::{Db, Session, until};

/// The problems of a kind: severity, subject and the problem itself.
pub(super) fn problems(session: &mut Session, kind: &str) -> Vec<(String, String, String)> {
    let rows = session
        .query(
            "SELECT severity, coalesce(subject, ''), problem, advice FROM taskq.health() WHERE kind = $1",
            &[&kind],
        )
        .unwrap();
    rows.iter()
        .map(|row| {
            assert!(row.get::<_, String>(3).len() > 20, "an advice is a sentence");
            (row.get(0), row.get(1), row.get(2))
        })
        .collect()
}

/// The one problem of a kind, which is of this severity and about this.
pub(super) fn the_problem(session: &mut Session, kind: &str, severity: &str, subject: &str) -> String {
    let found = problems(session, kind);
    let [(found_severity, found_subject, problem)] = &found[..] else {
        panic!("one problem of kind {kind}, not {found:?}");
    };
    assert_eq!((found_severity.as_str(), found_subject.as_str()), (severity, subject), "{problem}");
    problem.clone()
}

pub(super) fn no_problem(session: &mut Session, case: &str) {
    // Transactions of other databases' tests may be long.
    let found: Vec<String> = session.all(
        "SELECT problem FROM taskq.health() WHERE kind NOT IN ('transaction', 'transaction ids', 'snapshot')",
    );
    assert!(found.is_empty(), "{case}: {found:?}");
}

pub(super) fn set_back(session: &mut Session, by: &str) {
    let now: String = session.one(&format!("SELECT (now() - interval '{by}')::text"));
    session.set_now(Some(&now));
}

#[test]
fn a_queue_at_work_is_well() {
    let (_db, [mut session]) = Db::connected();
    no_problem(&mut session, "an empty queue");
    let tasks = (0..20).map(|n| json!({"id": format!("t{n}"), "action": "x", "max_tries": 3})).collect();
    session.insert(tasks).unwrap();
    for _ in 0..10 {
        session.perform("x", "completed");
    }
    session.perform("x", "aborted");
    session.own_one_with("x", "lease => '1 hour'");
    session.insert(json!([{"id": "later", "action": "y", "delay": "1 hour"}, {"id": "b", "action": "y", "depends_on": ["t19"]}])).unwrap();
    no_problem(&mut session, "a queue at work");
}

#[test]
fn health_shows_deadlines_as_overdue_from_five_seconds_on() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "y"}]),
    );
    set_back(&mut session, "12 seconds");
    session.own_with("late <worker>", 2, &["x"], "lease => '10 seconds'").unwrap();
    session.own_with("prompt", 1, &["y"], "lease => '1 hour'").unwrap();
    session.set_now(None);
    assert_eq!(problems(&mut session, "overdue"), [], "two seconds are no problem");
    session.run(
        "UPDATE taskq.lease SET deadline = deadline - interval '4 seconds' WHERE deadline < now();
                 UPDATE taskq.run SET deadline = deadline - interval '4 seconds' WHERE deadline < now()",
    );
    let problem = the_problem(&mut session, "overdue", "warning", "x");
    assert!(
        problem.contains("2 tasks of action \"x\" are") && problem.contains("late <worker>"),
        "{problem}"
    );
    session.run("SELECT taskq.maintain()");
    assert_eq!(problems(&mut session, "overdue"), []);
}

/// On wrong code a task whose worker died is not seen: without a deadline it is held for ever, and nothing of its
/// action is ready.
#[test]
fn health_shows_what_is_held_without_a_deadline_for_a_day() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.lease = ''");
    set_back(&mut session, "30 hours");
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x"},
                       {"id": "low", "action": "y", "priority": -5}, {"id": "leased", "action": "z"}]))
        .unwrap();
    session.own("dead", 1, &["x"]).unwrap();
    let held = session.own("dead", 1, &["y"]).unwrap().remove(0);
    session.own_one_with("z", "lease => '10 days'");
    set_back(&mut session, "20 hours");
    session.own("alive", 1, &["x"]).unwrap();
    session.set_now(None);
    let of = |session: &mut Session| -> Vec<String> {
        let mut found = problems(session, "unleased");
        found.sort();
        found.into_iter().map(|(severity, _, problem)| format!("{severity}: {problem}")).collect()
    };
    let y = "notice: a task of action \"y\" has been held without a deadline for 30h (actor \"dead\")";
    assert_eq!(
        of(&mut session),
        ["notice: a task of action \"x\" has been held without a deadline for 30h (actor \"dead\")", y]
    );
    let later: String = session.one("SELECT (now() + interval '5 hours')::text");
    session.set_now(Some(&later));
    assert_eq!(
        of(&mut session)[0],
        "notice: 2 tasks of action \"x\" are held without a deadline, the first for 35h (actor \"dead\")"
    );
    session.set_now(None);
    // Behind more than a hundred others of its action, it is found by when it was inserted.
    session.insert((0..150).map(|_| json!({"action": "y"})).collect()).unwrap();
    assert!(of(&mut session).contains(&y.to_owned()));
    session.complete(&held);
    assert!(!of(&mut session).contains(&y.to_owned()));
    // What the advice says.
    let advice: String = session.one("SELECT advice FROM taskq.health() WHERE kind = 'unleased'");
    let call = advice.split(": ").nth(1).and_then(|rest| rest.split_once(')')).unwrap().0.to_owned() + ")";
    assert_eq!(session.one::<i64>(&call), 1, "{call}");
    assert_eq!((of(&mut session).len(), session.state("a").as_str()), (0, "ready"));
}

/// A producer may make an action per task. On wrong code each action is compared with each other one.
#[test]
fn a_look_takes_time_that_grows_with_the_actions_and_not_with_their_square() {
    const EACH: u64 = 400;
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "10 minutes");
    session.insert((0..EACH).map(|n| json!({"action": format!("old {n}")})).collect()).unwrap();
    session.set_now(None);
    session
        .insert((0..EACH).map(|n| json!({"id": format!("t{n}"), "action": format!("new {n}")})).collect())
        .unwrap();
    session.run("SELECT taskq.complete_task(id) FROM taskq.tasks WHERE action LIKE 'new %'");
    assert_eq!(problems(&mut session, "starving").len() as u64, EACH);
    // The query by itself, with the settings of the function.
    let text: String = session.one("SELECT pg_get_function_sqlbody('taskq.health'::regproc)");
    let query = text.trim().trim_start_matches("BEGIN ATOMIC").trim_end_matches("END").trim();
    let settings: Vec<String> =
        session.all("SELECT unnest(proconfig) FROM pg_proc WHERE oid = 'taskq.health'::regproc");
    session.run("BEGIN");
    for setting in settings.iter().filter(|setting| !setting.starts_with("search_path")) {
        session.run(&format!("SET LOCAL {setting}"));
    }
    let plan: serde_json::Value =
        session.one(&format!("EXPLAIN (ANALYZE, TIMING off, FORMAT json) {}", query.trim_end_matches(';')));
    session.run("ROLLBACK");
    let (mut nodes, mut removed) = (vec![&plan[0]["Plan"]], 0);
    while let Some(node) = nodes.pop() {
        for key in ["Rows Removed by Join Filter", "Rows Removed by Filter"] {
            let each = node[key].as_f64().unwrap_or(0.0) * node["Actual Loops"].as_f64().unwrap_or(1.0);
            removed += each as u64;
        }
        nodes.extend(node["Plans"].as_array().into_iter().flatten());
    }
    assert!(
        removed < 50 * EACH,
        "{removed} rows were looked at for nothing, with {EACH} actions of each kind"
    );
}

#[test]
fn health_shows_a_queue_that_grows_and_tasks_that_abort() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "2 minutes");
    session.insert((0..300).map(|_| json!({"action": "x", "max_tries": 1})).collect()).unwrap();
    session.set_now(None);
    session.run("SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 5, '{x}')");
    let problem = the_problem(&mut session, "growing", "warning", "x");
    assert!(problem.contains("60 tasks come and 1 ends"), "{problem}");
    session.run("SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 1, '{x}')");
    session.run("SELECT taskq.return_task(task_id, token, 'aborted') FROM taskq.own_tasks('w', 6, '{x}')");
    let problem = the_problem(&mut session, "growing", "warning", "x");
    assert!(problem.contains("60 tasks come and 2.4 end"), "{problem}");
    let problem = the_problem(&mut session, "aborting", "warning", "x");
    assert!(problem.contains("6 of 12 tasks"), "{problem}");
    // The same from the tallies, and it is worse when nothing completes.
    session.run("SELECT taskq.return_task(task_id, token, 'aborted') FROM taskq.own_tasks('w', 6, '{x}')");
    until("sealed", || {
        session.run("SELECT taskq.maintain(), pg_sleep(0.2)");
        session
            .one::<bool>(
                "SELECT NOT EXISTS (SELECT FROM taskq.settled, taskq.seal WHERE settled_at >= until)",
            )
            .then_some(())
    });
    let problem = the_problem(&mut session, "aborting", "critical", "x");
    assert!(problem.contains("12 of 18 tasks"), "{problem}");
}

#[test]
fn what_is_late_has_a_row_each() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "1 hour");
    session.insert(json!([{"id": "soon", "action": "y", "delay": "10 minutes"}, {"id": "done", "action": "d", "retention": "1 minute"}])).unwrap();
    session.perform("d", "completed");
    session.run("SELECT taskq.schedule('s', '*/10 * * * *', '{\"action\": \"s\"}')");
    session.set_now(None);
    let late = problems(&mut session, "late");
    let subjects: Vec<&str> = late.iter().map(|(_, subject, _)| subject.as_str()).collect();
    assert_eq!(late.len(), 3, "{late:?}");
    for subject in ["schedules", "tasks whose retention is over", "tasks whose time has come"] {
        assert!(subjects.contains(&subject), "{subject} in {late:?}");
    }
    for one in ["a schedule has", "a task whose retention is over has", "a task whose time has come has"] {
        assert!(
            late.iter().any(|(_, _, problem)| problem.starts_with(&format!("{one} been due"))),
            "{one}: {late:?}"
        );
    }
    set_back(&mut session, "1 hour");
    session.insert(json!([{"id": "soon too", "action": "y", "delay": "10 minutes"}])).unwrap();
    session.set_now(None);
    let late = problems(&mut session, "late");
    let two = "2 tasks whose time has come are due and not handled, the first for 50m";
    assert!(late.iter().any(|(_, _, problem)| problem == two), "{late:?}");
    session.run("SELECT taskq.maintain()");
    assert_eq!(problems(&mut session, "late"), []);
    session.run("UPDATE taskq.schedule SET problem = 'action is missing'");
    let problem = the_problem(&mut session, "schedule", "warning", "s");
    assert!(problem.contains("action is missing"), "{problem}");
}

#[test]
fn health_names_the_open_transaction_that_holds_things_up() {
    let (_db, [mut open, mut session]) = Db::connected();
    open.run("SET application_name = 'night report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT taskq.insert_task('a', 'x')");
    let of_it = |session: &mut Session| {
        let pid = open.pid().to_string();
        problems(session, "transaction")
            .into_iter()
            .filter(|(_, subject, _)| *subject == pid)
            .collect::<Vec<_>>()
    };
    assert_eq!(of_it(&mut session), [], "not yet");
    // The threshold is by the server's clock, which no test can set: the same row with a time that has passed.
    let text: String = session.one("SELECT pg_get_functiondef('taskq.health'::regproc)");
    assert!(text.contains("s.xact_start < (n.wall - '00:05:00'::interval)"), "{text}");
    let sooner = text
        .replace("CREATE OR REPLACE FUNCTION taskq.health()", "CREATE FUNCTION public.sooner()")
        .replace("(n.wall - '00:05:00'::interval)", "n.wall");
    session.run(&sooner);
    let found: Vec<String> = session.all(&format!(
        "SELECT concat_ws(' | ', severity, problem, advice) FROM public.sooner() WHERE subject = '{}'",
        open.pid()
    ));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("warning | an idle transaction of")
            && found[0].contains("night report")
            && found[0].contains("pg_terminate_backend"),
        "{found:?}"
    );
}

#[test]
fn health_shows_numbers_that_run_out_and_clocks_that_are_wrong() {
    let (_db, [mut session]) = Db::connected();
    // In which shard is no matter.
    session.run("SELECT taskq.set_shard(4095)");
    assert_eq!(problems(&mut session, "positions"), []);
    session.run("SELECT setval('taskq.position_seq', (3::bigint << 48) + 275000000000000)");
    let problem = the_problem(&mut session, "positions", "critical", "");
    assert!(problem.contains("2 percent"), "{problem}");
    session.run("SELECT setval('taskq.position_seq', 1000000)");
    session.run("SELECT taskq.maintain()");
    session.run("UPDATE taskq.seal SET mark_at = now() + interval '1 hour'");
    let problem = the_problem(&mut session, "clock", "warning", "");
    assert!(problem.contains("put back by 60m"), "{problem}");
    session.run("SELECT taskq.maintain()");
    session.set_now(Some("2001-01-01"));
    the_problem(&mut session, "clock", "notice", "");
    session.set_now(None);
    assert_eq!(problems(&mut session, "clock"), []);
}

/// A forgotten approval is nothing that any other number shows.
#[test]
fn health_tells_of_what_is_suspended_without_a_limit_for_more_than_a_week() {
    let (_db, [mut session]) = Db::connected();
    for (ago, id, limit) in [
        ("8 days", "forgotten", ""),
        ("9 days", "limited", ", wait_at_most => '1 year'"),
        ("6 days", "recent", ""),
    ] {
        set_back(&mut session, ago);
        session.insert(json!([{"id": id, "action": "x"}])).unwrap();
        let grant = session.own_one("x");
        let arguments = format!("depends_on => '[{{\"id\": \"approval\", \"signal\": true}}]'{limit}");
        session.give_with(id, grant.token, "pending", &arguments).unwrap();
    }
    session.set_now(None);
    let problem = the_problem(&mut session, "suspended", "notice", "");
    assert!(problem.starts_with("a task is suspended without a limit for longer than a week"), "{problem}");
    session.run("SELECT taskq.signal('approval')");
    assert_eq!(problems(&mut session, "suspended"), []);
}
