//! Tasks for which some of their dependencies suffice.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, refused};

use super::suspend;

/// Tasks a, b, c, each of an action of its own name; and q, which needs so many of them.
fn quorum(session: &mut Session, required: i32, condition: &str) {
    let depends_on: Vec<Value> =
        ["a", "b", "c"].iter().map(|id| json!({"id": id, "condition": condition})).collect();
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"}, {"id": "c", "action": "c"},
                       {"id": "q", "action": "q", "depends_on": depends_on, "num_required": required}]))
        .unwrap();
}

fn dependencies(session: &mut Session) -> Vec<String> {
    session.all("SELECT after FROM taskq.dependencies WHERE run = 'q' ORDER BY 1")
}

#[test]
fn it_is_freed_by_so_many_and_goes_on_without_the_others() {
    let (_db, [mut session]) = Db::connected();
    quorum(&mut session, 2, "completed");
    let why: Vec<String> = session.all("SELECT taskq.why('q')");
    assert_eq!(why[0], "it needs 2 of its 3 dependencies: 2 more");
    session.perform("a", "completed");
    assert_eq!((session.state("q"), session.task("q").unwrap().num_signals), ("blocked".to_owned(), 1));
    session.perform("c", "completed");
    assert_eq!(session.state("q"), "ready");
    assert_eq!(dependencies(&mut session), ["a", "c"]);
    // What it does not need any more does nothing to it.
    session.perform("b", "aborted");
    let task = session.task("q").unwrap();
    assert_eq!(
        (task.state.as_str(), task.total_dependencies, task.num_signals, task.num_failures),
        ("ready", 2, 2, 0)
    );
}

#[test]
fn it_aborts_as_soon_as_too_many_are_lost() {
    let (_db, [mut session]) = Db::connected();
    quorum(&mut session, 2, "completed");
    session.perform("a", "aborted");
    assert_eq!((session.state("q"), session.task("q").unwrap().num_signals), ("blocked".to_owned(), 1));
    session.perform("b", "aborted");
    let task = session.task("q").unwrap();
    assert_eq!((task.state.as_str(), task.status.as_deref()), ("aborted", Some("dependency \"b\" aborted")));
    assert_eq!(dependencies(&mut session), ["a", "b"], "what is open is dropped");
    assert_eq!(session.one::<String>("SELECT cause FROM taskq.tasks WHERE id = 'q'"), "dependency");
}

#[test]
fn what_has_ended_before_counts() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"}]));
    session.perform("a", "completed");
    session
        .insert(json!([{"id": "q", "action": "q", "depends_on": ["a", "b"], "num_required": 1},
                       {"id": "r", "action": "r", "depends_on": ["a", "b"], "num_required": 1, "spontaneous": true}]))
        .unwrap();
    assert_eq!((session.state("q"), session.state("r")), ("ready".to_owned(), "completed".to_owned()));
    assert_eq!(dependencies(&mut session), ["a"]);
}

#[test]
fn num_required_counts_edges_from_the_other_end_but_not_ignored_ones() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "q", "action": "q", "depends_on": ["a"], "num_required": 2},
                {"id": "a", "action": "a"}, {"id": "b", "action": "b", "to_signal_after": ["q"]}]));
    session.perform("a", "completed");
    session.perform("b", "completed");
    assert_eq!(session.state("q"), "ready");
    let tasks = json!([{"id": "p", "action": "q", "depends_on": ["a", "nothing"], "num_required": 2}]);
    refused(
        &mut session,
        "TQ006",
        "num_required",
        "SELECT taskq.insert_tasks($1, if_missing => 'ignore')",
        &[&tasks],
    );
    for number in [0, -1] {
        let tasks = json!([{"id": "p", "action": "q", "depends_on": ["a"], "num_required": number}]);
        refused(&mut session, "TQ006", "num_required", "SELECT taskq.insert_tasks($1)", &[&tasks]);
    }
}

#[test]
fn more_dependencies_leave_the_number_as_it_is() {
    let (_db, [mut session]) = Db::connected();
    quorum(&mut session, 2, "completed");
    session.insert(json!([{"id": "d", "action": "d"}, {"id": "lost", "action": "lost"}])).unwrap();
    session.perform("d", "completed");
    session.perform("lost", "aborted");
    // One that has ended counts, one that is lost is one of those that it can do without.
    session.depend(json!([{"after": "d", "run": "q"}, {"after": "lost", "run": "q"}])).unwrap();
    let task = session.task("q").unwrap();
    assert_eq!(
        (task.state.as_str(), task.total_dependencies, task.num_signals, task.num_failures),
        ("blocked", 5, 2, 1)
    );
    session.insert(json!([{"id": "e", "action": "e", "to_signal_after": ["q"]}])).unwrap();
    session.perform("e", "completed");
    assert_eq!(session.state("q"), "ready");
    // It has what it needs: one more is nothing to wait for.
    session.insert(json!([{"id": "f", "action": "f"}])).unwrap();
    session.depend_on("f", "q").unwrap();
    assert_eq!(session.state("q"), "ready");
}

#[test]
fn a_deletion_that_leaves_too_few_aborts_it() {
    let (_db, [mut session]) = Db::connected();
    quorum(&mut session, 2, "completed");
    session.delete(&["a"]).unwrap();
    assert_eq!(session.state("q"), "blocked");
    session.delete(&["b"]).unwrap();
    assert_eq!(
        session.one::<String>("SELECT state || ' ' || cause FROM taskq.tasks WHERE id = 'q'"),
        "aborted dependency"
    );
    let (_db, [mut session]) = Db::connected();
    quorum(&mut session, 1, "completed");
    assert_eq!(session.delete(&["a", "b", "c"]).unwrap(), 4, "one without any dependency goes, too");
}

#[test]
fn a_retry_waits_for_what_is_left() {
    let (_db, [mut session]) = Db::connected();
    quorum(&mut session, 2, "completed");
    session.perform("a", "aborted");
    session.perform("b", "aborted");
    session.run("SELECT taskq.retry_tasks('{a,b}')");
    assert_eq!(session.state("q"), "blocked", "it comes back with those that it lost");
    session.perform("a", "completed");
    session.perform("b", "completed");
    assert_eq!(session.state("q"), "ready");
    // Started over when it has long gone on, it waits for that one again.
    let (_db, [mut session]) = Db::connected();
    quorum(&mut session, 1, "settled");
    session.perform("b", "aborted");
    assert_eq!(session.state("q"), "ready");
    session.run("SELECT taskq.retry_tasks('{b}')");
    assert_eq!(session.state("q"), "blocked");
    session.perform("b", "completed");
    assert_eq!((session.state("q"), session.task("q").unwrap().num_failures), ("ready".to_owned(), 0));
}

#[test]
fn a_timer_among_them_is_a_time_limit() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "s", "action": "signal", "signal": true},
            {"id": "limit", "action": "timer", "spontaneous": true, "delay": "1 hour"},
            {"id": "q", "action": "q", "depends_on": [{"id": "s", "condition": "settled"}, "limit"], "num_required": 1}]));
    assert_eq!((session.state("q"), session.state("limit")), ("blocked".to_owned(), "scheduled".to_owned()));
    session.run("SET taskq.now = '2090-01-01'; SELECT taskq.maintain()");
    assert_eq!((session.state("limit"), session.state("q")), ("completed".to_owned(), "ready".to_owned()));
    assert_eq!(dependencies(&mut session), ["limit"]);
}

/// Why: whether what is lost was added before or after it was lost decided on the task.
#[test]
fn a_suspended_one_needs_also_what_is_added_to_it() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "x", "action": "x"}, {"id": "a", "action": "a"},
            {"id": "before", "action": "work", "depends_on": ["a"], "num_required": 1},
            {"id": "later", "action": "work", "depends_on": ["a"], "num_required": 1}]));
    session.perform("a", "completed");
    for grant in session.own("w", 2, &["work"]).unwrap() {
        suspend(&mut session, &grant, "depends_on => '[{\"id\": \"s\", \"signal\": true}]'").unwrap();
    }
    session.run("SELECT taskq.add_dependencies('{x}', '{before}')");
    session.cancel(&["x"]).unwrap();
    session.run("SELECT taskq.add_dependencies('{x}', '{later}')");
    assert_eq!(
        (session.state("before"), session.state("later")),
        ("aborted".to_owned(), "aborted".to_owned())
    );
}
