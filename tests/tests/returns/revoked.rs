//! `release_tasks`: tasks are taken from actors that are dead.

use serde_json::json;
use taskq_tests::{Db, Progress, Session};

fn release(session: &mut Session, arguments: &str) -> i64 {
    session.one(&format!("SELECT taskq.release_tasks({arguments})"))
}

fn outcomes(session: &mut Session, id: &str) -> Vec<String> {
    let query = "SELECT concat_ws(' ', num_try, outcome, status) FROM taskq.attempts WHERE task_id = $1 ORDER BY started_at";
    session.query(query, &[&id]).unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_task_is_ready_again_and_its_token_void() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x", "priority": -1},
               {"id": "after", "action": "y", "depends_on": ["a"]},
               {"id": "handler", "action": "z", "depends_on": [{"id": "a", "condition": "aborted"}]}]),
    );
    let a = session.own_with("dead", 1, &["x"], "lease => NULL").unwrap().remove(0);
    assert_eq!(release(&mut session, "actors => '{dead}', status => 'its box is gone'"), 1);
    let task = session.task("a").unwrap();
    assert_eq!(
        (task.state.as_str(), task.num_tries, task.status.as_deref()),
        ("ready", 1, Some("its box is gone"))
    );
    assert_eq!((task.actor_id, task.action_deadline), (None, None));
    assert_eq!(outcomes(&mut session, "a"), ["1 revoked its box is gone"]);
    assert_eq!(session.give("a", a.token, "completed").unwrap_err().code().unwrap().code(), "TQ001");
    assert_eq!(session.extend("dead", &[("a", a.token)], "1 hour").unwrap(), [("a".to_owned(), false)]);
    // It has no news for those that wait for it.
    assert_eq!((session.state("after").as_str(), session.state("handler").as_str()), ("blocked", "blocked"));
    let order: Vec<String> = session.own("w", 9, &["x"]).unwrap().into_iter().map(|g| g.task_id).collect();
    assert_eq!(order, ["b", "a", "c"], "at the end of its priority");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.lease"), 1);
}

#[test]
fn a_last_try_aborts_and_counts() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x", "max_tries": 1}, {"id": "b", "action": "x"},
               {"id": "after", "action": "y", "depends_on": ["a"]}, {"id": "c", "action": "x", "max_tries": 1}]),
    );
    session.own("dead", 3, &["x"]).unwrap();
    assert_eq!(release(&mut session, "'{a,b}'"), 2);
    assert_eq!(release(&mut session, "'{c}', status => 'gone'"), 1);
    let ends: Vec<String> =
        session.all("SELECT concat_ws(' ', task_id, cause, status) FROM taskq.dead_ends ORDER BY task_id");
    let taken = "a tries taken from actor \"dead\" on try 1, and there is no other";
    assert_eq!(ends, [taken, "after dependency dependency \"a\" aborted", "c tries gone"]);
    assert_eq!(session.state("b"), "ready");
    assert_eq!(outcomes(&mut session, "a"), [format!("1 revoked {}", &taken["a tries ".len()..])]);
    assert_eq!(outcomes(&mut session, "c"), ["1 revoked gone"]);
    // Also once the task is retried, and its end is history.
    session.run("SELECT taskq.retry_tasks('{a}')");
    assert_eq!(outcomes(&mut session, "a"), [format!("1 revoked {}", &taken["a tries ".len()..])]);
    let grant = session.own("w", 1, &["x"]).unwrap().remove(0);
    session.complete(&grant);
}

#[test]
fn filters_narrow_each_other_and_all_else_is_left_alone() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "x1", "action": "x"}, {"id": "x2", "action": "x"}, {"id": "y1", "action": "y"},
               {"id": "ready", "action": "z"}, {"id": "later", "action": "z", "delay": "1 hour"}]),
    );
    for (actor, action) in [("ann", "x"), ("bob", "x"), ("ann", "y")] {
        session.own(actor, 1, &[action]).unwrap();
    }
    for nothing in [
        "'{ready,later,absent,NULL}'",
        "'{}'",
        "actors => '{}'",
        "actors => '{NULL}'",
        "actors => '{carl}'",
        "actions => '{z,nothing}'",
        "'{x1}', actors => '{bob}'",
        "'{x1}', actions => '{y}'",
        "actors => '{bob}', actions => '{y}'",
    ] {
        assert_eq!(release(&mut session, nothing), 0, "{nothing}");
    }
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.actors"), 3);
    assert_eq!(release(&mut session, "actors => '{ann,carl}', actions => '{x}'"), 1);
    assert_eq!(release(&mut session, "'{x1,x2,x2}', actors => '{ann,bob}', actions => '{x,y}'"), 1);
    assert_eq!(release(&mut session, "actions => '{x,y}'"), 1);
    let states: Vec<String> = session.all("SELECT state FROM taskq.tasks ORDER BY id");
    assert_eq!(states, ["scheduled", "ready", "ready", "ready", "ready"]);
    for all in ["", "status => 'why'", "NULL, NULL, NULL, NULL"] {
        let refused = session.query(&format!("SELECT taskq.release_tasks({all})"), &[]).unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "22004");
    }
}

#[test]
fn what_was_held_with_it_is_free() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('x', max_concurrency => 1, max_per_group => 1, backoff => '{\"kind\": \"fixed\", \"initial\": \"1 hour\"}')");
    let keyed = |id: &str| json!({"id": id, "action": "x", "merge_key": "k", "group_id": "g"});
    session.insert(json!([keyed("a"), keyed("b")])).unwrap();
    let a = session.own_one("x");
    assert_eq!(release(&mut session, "'{b}'"), 0, "no worker has a rider");
    assert_eq!(release(&mut session, "'{a}'"), 1);
    assert_eq!(session.broken(), Vec::<String>::new());
    let next = session.own_one("x");
    assert_ne!(next.token, a.token);
    session.complete(&next);
    assert_eq!((session.state("a").as_str(), session.state("b").as_str()), ("completed", "completed"));
}

/// The last try of a leader: its riders share its end, as when it is given back.
#[test]
fn a_leader_without_another_try_takes_its_riders_along() {
    let (_db, [mut session]) = Db::connected();
    let keyed = |id: &str| json!({"id": id, "action": "x", "merge_key": "k", "max_tries": 1});
    session.insert(json!([keyed("a"), keyed("b")])).unwrap();
    session.own_one("x");
    assert_eq!(release(&mut session, "'{a}'"), 1);
    assert_eq!((session.state("a").as_str(), session.state("b").as_str()), ("aborted", "aborted"));
}

/// A deadline that has passed, looked after or not, leaves the task in the hands of its late actor, until this.
#[test]
fn what_is_overdue_is_taken_from_its_late_actor() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]));
    let a = session.own_one_with("x", "lease => '0'");
    session.run("SELECT taskq.maintain()");
    let b = session.own_with("late", 1, &["x"], "lease => '0'").unwrap().remove(0);
    assert_eq!((b.task_id.as_str(), session.state("a").as_str()), ("b", "in-progress"));
    assert_eq!(release(&mut session, "'{a,b}'"), 2);
    for grant in [&a, &b] {
        let refused = session.give(&grant.task_id, grant.token, "completed").unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "TQ001");
        assert_eq!(session.state(&grant.task_id), "ready");
        assert_eq!(outcomes(&mut session, &grant.task_id), ["1 revoked"]);
    }
}

/// Deadlines that have passed are counted for themselves: this is none.
#[test]
fn it_is_no_timeout() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('x', on_timeout => 'abort')");
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    session.own_one("x");
    assert_eq!(release(&mut session, "'{a}'"), 1);
    assert_eq!(session.state("a"), "ready");
}

#[test]
fn it_waits_for_a_return_that_is_open_and_finds_it_done() {
    let (db, [mut session, mut worker, releasing]) = Db::connected();
    for (code, state) in [("completed", "completed"), ("pending", "ready")] {
        session.replace(json!([{"id": "a", "action": "x"}])).unwrap();
        let a = worker.own_one("x");
        worker.run("BEGIN");
        worker.give("a", a.token, code).unwrap();
        let operator = db.connect();
        let waiting = operator.background(|session| release(session, "actors => '{worker}'"));
        assert_eq!(waiting.settle_down(&mut session), Progress::Blocked);
        worker.run("COMMIT");
        assert_eq!(waiting.join().1, 0);
        assert_eq!(session.state("a"), state);
    }
    // One that is rolled back is none.
    let a = worker.own_one("x");
    worker.run("BEGIN");
    worker.give("a", a.token, "completed").unwrap();
    let waiting = releasing.background(|session| release(session, "'{a}'"));
    assert_eq!(waiting.settle_down(&mut session), Progress::Blocked);
    worker.run("ROLLBACK");
    assert_eq!(waiting.join().1, 1);
}

#[test]
fn an_extension_decides_whose_it_is() {
    let (db, [mut session, mut worker]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let a = worker.own_one("x");
    worker.run("BEGIN");
    worker.extend("heir", &[("a", a.token)], "1 hour").unwrap();
    let waiting = db.connect().background(|session| release(session, "actors => '{worker}'"));
    assert_eq!(waiting.settle_down(&mut session), Progress::Blocked);
    worker.run("COMMIT");
    assert_eq!(waiting.join().1, 0, "another worker has it by now");
    assert_eq!(release(&mut session, "actors => '{heir}'"), 1);
    assert_eq!(worker.extend("heir", &[("a", a.token)], "1 hour").unwrap(), [("a".to_owned(), false)]);
}

#[test]
fn a_return_an_extension_and_a_cancel_wait_for_it_and_come_too_late() {
    let (db, [mut session, mut operator]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let give = |session: &mut Session, token| match session.give("a", token, "completed") {
        Ok(code) => code,
        Err(error) => error.code().unwrap().code().to_owned(),
    };
    for beside in ["return", "extend", "cancel"] {
        let token = session.own_one("x").token;
        operator.run("BEGIN");
        assert_eq!(release(&mut operator, "'{a}'"), 1);
        let waiting = db.connect().background(move |session| match beside {
            "return" => give(session, token),
            "extend" => session.extend("w", &[("a", token)], "1 hour").unwrap()[0].1.to_string(),
            _ => session.cancel(&["a"]).unwrap().to_string(),
        });
        assert_eq!(waiting.settle_down(&mut session), Progress::Blocked);
        operator.run("COMMIT");
        let expected = match beside {
            "return" => "TQ001",
            "extend" => "false",
            _ => "1",
        };
        assert_eq!(waiting.join().1, expected);
    }
    assert_eq!(session.state("a"), "aborted");
}
