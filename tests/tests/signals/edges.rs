//! `add_dependencies`: what it refuses and counts, and its race with the return of `after`. An edge that is added while
//! `after` settles must either see it settled or be seen by its settling; a queue that does neither strands `run`.

use serde_json::json;
use taskq_tests::{Db, Grant, Progress, Session, sqlstate};

/// `after` in progress and `run` ready.
fn two_tasks(session: &mut Session) -> Grant {
    session.insert(json!([{"id": "after", "action": "x"}, {"id": "run", "action": "y"}])).unwrap();
    session.own_one("x")
}

#[test]
fn the_array_form_takes_pairs_and_one_condition() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y"}, {"id": "c", "action": "y"}]),
    );
    let query = "SELECT taskq.add_dependencies(ARRAY['a', 'a'], ARRAY['b', 'c'], 'aborted')";
    assert_eq!(session.one::<i64>(query), 2);
    session.perform("x", "aborted");
    assert_eq!(session.own("w", 5, &["y"]).unwrap().len(), 2);
}

#[test]
fn an_unknown_id_is_ignored_on_request() {
    let (_db, [mut session]) = Db::connected();
    two_tasks(&mut session);
    let query = "SELECT taskq.add_dependencies('[{\"after\": \"absent\", \"run\": \"run\"}, \
                 {\"after\": \"after\", \"run\": \"none\"}, {\"after\": \"after\", \"run\": \"run\"}]'::jsonb, \
                 if_missing => 'ignore')";
    assert_eq!(session.one::<i64>(query), 1);
    assert_eq!(session.task("run").unwrap().total_dependencies, 1);
}

#[test]
fn one_refused_edge_adds_none() {
    let (_db, [mut session]) = Db::connected();
    two_tasks(&mut session);
    session.insert(json!([{"id": "free", "action": "z"}])).unwrap();
    let edges = json!([{"after": "free", "run": "run"}, {"after": "run", "run": "after"}]);
    assert_eq!(sqlstate(&session.depend(edges).unwrap_err()), "TQ005");
    assert_eq!(session.state("run"), "ready");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.dependencies"), 0);
}

#[test]
fn a_retry_after_outlives_a_dependency_added_meanwhile() {
    let (_db, [mut session]) = Db::connected();
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
