//! `add_dependencies`: what it refuses and counts, and its race with the return of `after`. An edge that is added while
//! `after` settles must either see it settled or be seen by its settling; a queue that does neither strands `run`.

use serde_json::json;
use taskq_tests::{Db, Grant, Progress, Session, sqlstate};

use super::commit_both;

/// `after` in progress and `run` ready.
fn two_tasks(session: &mut Session) -> Grant {
    session.insert(json!([{"id": "after", "action": "x"}, {"id": "run", "action": "y"}])).unwrap();
    session.own_one("x")
}

#[test]
fn an_edge_blocks_counts_and_is_harmless_twice() {
    let db = Db::new();
    let mut session = db.connect();
    let grant = two_tasks(&mut session);
    session.insert(json!([{"id": "done", "action": "z"}])).unwrap();
    session.perform("z", "completed");
    let edges =
        json!([{"after": "after", "run": "run"}, {"after": "done", "run": "run", "condition": "settled"}]);
    assert_eq!(session.depend(edges.clone()).unwrap(), 1, "one of the two blocks");
    let expected = ("blocked", 1, 2);
    let task = session.task("run").unwrap();
    assert_eq!((task.state.as_str(), task.num_signals, task.total_dependencies), expected);
    session.depend(edges).unwrap();
    let task = session.task("run").unwrap();
    assert_eq!((task.state.as_str(), task.num_signals, task.total_dependencies), expected);
    session.complete(&grant);
    assert_eq!(session.own_one("y").task_id, "run");
}

#[test]
fn the_array_form_takes_pairs_and_one_condition() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y"}, {"id": "c", "action": "y"}]))
        .unwrap();
    let query = "SELECT taskq.add_dependencies(ARRAY['a', 'a'], ARRAY['b', 'c'], 'aborted')";
    assert_eq!(session.one::<i64>(query), 2);
    session.perform("x", "aborted");
    assert_eq!(session.own("w", 5, &["y"]).unwrap().len(), 2);
}

#[test]
fn an_after_that_is_settled_counts_at_once() {
    let db = Db::new();
    let mut session = db.connect();
    for (code, condition, expected) in [
        ("completed", "completed", "ready"),
        ("completed", "aborted", "aborted"),
        ("aborted", "completed", "aborted"),
        ("aborted", "settled", "ready"),
        ("aborted", "aborted", "ready"),
    ] {
        let (after, run) = (format!("a {code} {condition}"), format!("r {code} {condition}"));
        let tasks = json!([
            {"id": after, "action": "x"}, {"id": run, "action": "y"},
            {"id": format!("{run} child"), "action": "z", "depends_on": [run]},
        ]);
        session.insert(tasks).unwrap();
        session.perform("x", code);
        let edge = json!([{"after": after, "run": run, "condition": condition}]);
        assert_eq!(session.depend(edge).unwrap(), 0);
        assert_eq!(session.state(&run), expected, "{run}");
        let child = if expected == "aborted" { "aborted" } else { "blocked" };
        assert_eq!(session.state(&format!("{run} child")), child);
    }
}

#[test]
fn an_unknown_id_is_ignored_on_request() {
    let db = Db::new();
    let mut session = db.connect();
    two_tasks(&mut session);
    let query = "SELECT taskq.add_dependencies('[{\"after\": \"absent\", \"run\": \"run\"}, \
                 {\"after\": \"after\", \"run\": \"none\"}, {\"after\": \"after\", \"run\": \"run\"}]'::jsonb, \
                 if_missing => 'ignore')";
    assert_eq!(session.one::<i64>(query), 1);
    assert_eq!(session.task("run").unwrap().total_dependencies, 1);
}

#[test]
fn one_refused_edge_adds_none() {
    let db = Db::new();
    let mut session = db.connect();
    two_tasks(&mut session);
    session.insert(json!([{"id": "free", "action": "z"}])).unwrap();
    let edges = json!([{"after": "free", "run": "run"}, {"after": "run", "run": "after"}]);
    assert_eq!(sqlstate(&session.depend(edges).unwrap_err()), "TQ005");
    assert_eq!(session.state("run"), "ready");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.dependencies"), 0);
}

#[test]
fn a_retry_after_outlives_a_dependency_added_meanwhile() {
    let db = Db::new();
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "run", "action": "y"}, {"id": "after", "action": "x"}])).unwrap();
    let grant = session.own_one("y");
    session.give_with("run", grant.token, "pending", "retry_after => '1 hour'").unwrap();
    session.depend_on("after", "run").unwrap();
    assert_eq!(session.state("run"), "blocked");
    session.perform("x", "completed");
    assert_eq!(session.state("run"), "scheduled");
    session.set_now(Some("2030-01-01 01:00:01Z"));
    assert_eq!(session.own_one("y").num_tries, 2);
}

#[test]
fn a_return_of_after_in_an_open_transaction_is_not_missed() {
    let db = Db::new();
    for (code, ends) in [("completed", "ready"), ("aborted", "aborted")] {
        for edge_commits_first in [false, true] {
            db.clear();
            let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
            let grant = two_tasks(&mut watcher);
            first.run("BEGIN");
            first.give("after", grant.token, code).unwrap();
            second.run("BEGIN");
            let second = second.background(|session| session.depend_on("after", "run").unwrap());
            commit_both(first, second, edge_commits_first, &mut watcher);
            assert_eq!(watcher.state("after"), code);
            let granted = watcher.own("w", 1, &["y"]).unwrap();
            assert_eq!(granted.len(), usize::from(ends == "ready"), "run is {}", watcher.state("run"));
        }
    }
}

#[test]
fn an_edge_in_an_open_transaction_hears_of_the_return() {
    let db = Db::new();
    for (code, ends) in [("completed", "ready"), ("aborted", "aborted")] {
        for return_commits_first in [false, true] {
            db.clear();
            let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
            let grant = two_tasks(&mut watcher);
            first.run("BEGIN");
            first.depend_on("after", "run").unwrap();
            second.run("BEGIN");
            let second = second.background(move |session| session.give("after", grant.token, code).unwrap());
            commit_both(first, second, return_commits_first, &mut watcher);
            let granted = watcher.own("w", 1, &["y"]).unwrap();
            assert_eq!(granted.len(), usize::from(ends == "ready"), "run is {}", watcher.state("run"));
            assert_eq!(watcher.task("run").unwrap().total_dependencies, 1);
        }
    }
}

#[test]
fn a_rollback_of_either_leaves_the_other() {
    let db = Db::new();
    for rolled_back in ["edge", "return"] {
        db.clear();
        let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
        let grant = two_tasks(&mut watcher);
        let token = grant.token;
        first.run("BEGIN");
        second.run("BEGIN");
        if rolled_back == "edge" {
            first.depend_on("after", "run").unwrap();
            let call = second.background(move |session| session.give("after", token, "aborted").unwrap());
            call.settle_down(&mut watcher);
            first.run("ROLLBACK");
            call.join().0.run("COMMIT");
            assert_eq!(watcher.state("run"), "ready");
        } else {
            first.give("after", token, "aborted").unwrap();
            let call = second.background(|session| session.depend_on("after", "run").unwrap());
            call.settle_down(&mut watcher);
            first.run("ROLLBACK");
            call.join().0.run("COMMIT");
            assert_eq!(watcher.state("run"), "blocked");
            watcher.complete(&grant);
            assert_eq!(watcher.own_one("y").task_id, "run");
        }
    }
}

#[test]
fn an_edge_and_a_grant_of_run_cannot_both_pass() {
    let db = Db::new();
    // Either the grant comes first, then the edge is refused; or the edge, then the task is not granted.
    for edge_first in [false, true] {
        db.clear();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        two_tasks(&mut watcher);
        first.run("BEGIN");
        if edge_first {
            first.depend_on("after", "run").unwrap();
            let call = second.background(|session| session.own("w", 1, &["y"]).unwrap().len());
            assert_eq!(call.join().1, 0);
            first.run("COMMIT");
        } else {
            first.own_one("y");
            let call = second.background(|session| session.depend_on("after", "run"));
            call.settle_down(&mut watcher);
            first.run("COMMIT");
            assert_eq!(sqlstate(&call.join().1.unwrap_err()), "TQ005");
        }
    }
}

#[test]
fn an_insert_with_edges_races_with_the_return_as_well() {
    let db = Db::new();
    for code in ["completed", "aborted"] {
        for insert_first in [false, true] {
            db.clear();
            let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
            let grant = two_tasks(&mut watcher);
            let new = json!([
                {"id": "new", "action": "n", "depends_on": ["after"], "to_signal_after": ["run"]},
                {"id": "mark", "action": "s", "spontaneous": true, "depends_on": [{"id": "after", "condition": "settled"}]},
            ]);
            first.run("BEGIN");
            second.run("BEGIN");
            if insert_first {
                first.insert(new).unwrap();
                let second =
                    second.background(move |session| session.give("after", grant.token, code).unwrap());
                commit_both(first, second, true, &mut watcher);
            } else {
                first.give("after", grant.token, code).unwrap();
                let second = second.background(move |session| session.insert(new).unwrap());
                commit_both(first, second, true, &mut watcher);
            }
            let granted = watcher.own("w", 1, &["n"]).unwrap();
            assert_eq!(granted.len(), usize::from(code == "completed"), "new is {}", watcher.state("new"));
            let run = if code == "completed" { "blocked" } else { "aborted" };
            assert_eq!([watcher.state("run"), watcher.state("mark")], [run, "completed"]);
        }
    }
}

/// A task is inserted after one that another session is just granting or extending. Neither minds the other; but then
/// both versions of the row have to be held, or the return finds the newer one free, and no edge.
#[test]
fn an_edge_to_a_task_that_is_just_being_granted_holds_off_its_return() {
    let db = Db::new();
    for extended in [false, true] {
        db.clear();
        let (mut worker, mut linker, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher.insert(json!([{"id": "after", "action": "x"}])).unwrap();
        let before = extended.then(|| worker.own_one_with("x", "lease => '1 hour'"));
        worker.run("BEGIN");
        let grant = before.unwrap_or_else(|| worker.own_one_with("x", "lease => '1 hour'"));
        if extended {
            worker.extend("w", &[("after", grant.token)], "2 hours").unwrap();
        }
        linker.run("BEGIN");
        linker.insert(json!([{"id": "child", "action": "y", "depends_on": ["after"]}])).unwrap();
        worker.run("COMMIT");
        let returned = worker.background(move |session| session.complete(&grant));
        assert_eq!(returned.settle_down(&mut watcher), Progress::Blocked, "extended: {extended}");
        linker.run("COMMIT");
        returned.join();
        assert_eq!(watcher.state("child"), "ready");
        assert_eq!(watcher.broken(), [""; 0]);
    }
}
