//! `rewind_task`: a task forgets a step, and what came after it.

use serde_json::json;
use taskq_tests::session::AT_ONCE;
use taskq_tests::{Db, Grant, Session, refused};

use crate::{counts, rewind, save, states, steps, suspend};

/// Task `a` in progress with the steps `one` to `three`, and `b` after it.
fn three_steps(session: &mut Session) -> Grant {
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]}]))
        .unwrap();
    let grant = session.own_one("a");
    for step in ["one", "two", "three"] {
        save(session, &grant, step, Some(json!(step))).unwrap();
    }
    grant
}

#[test]
fn a_pending_task_just_loses_the_steps() {
    let (_db, [mut session]) = Db::connected();
    let grant = three_steps(&mut session);
    session.give_with("a", grant.token, "pending", "retry_after => '1 hour'").unwrap();
    assert_eq!(rewind(&mut session, "a", "two"), 2);
    assert_eq!(steps(&mut session, "a"), ["1 one 1 \"one\""]);
    let task = session.task("a").unwrap();
    assert_eq!((task.state.as_str(), task.num_tries), ("scheduled", 1), "it is no start");
    session.run("SELECT taskq.update_tasks('{a}', delay => '0')");
    let grant = session.own_one("a");
    save(&mut session, &grant, "two", Some(json!("anew"))).unwrap();
    assert_eq!(steps(&mut session, "a"), ["1 one 1 \"one\"", "2 two 2 \"anew\""]);
}

#[test]
fn a_settled_task_starts_over_with_the_other_steps() {
    for end in ["completed", "aborted"] {
        let (_db, [mut session]) = Db::connected();
        let grant = three_steps(&mut session);
        session.execute("SELECT taskq.report_status('a', $1, checkpoint => '1')", &[&grant.token]).unwrap();
        session.give_with("a", grant.token, end, "result => '1'").unwrap();
        if end == "completed" {
            let b = session.own_one("b");
            save(&mut session, &b, "of b", None).unwrap();
            session.complete(&b);
        }
        assert_eq!(rewind(&mut session, "a", "three"), 1);
        assert_eq!(states(&mut session, ["a", "b"]), ["ready", "blocked"], "{end}");
        assert_eq!(steps(&mut session, "a"), ["1 one 1 \"one\"", "2 two 1 \"two\""]);
        assert!(steps(&mut session, "b").is_empty(), "its dependents start from the beginning");
        let given = "SELECT concat_ws(' ', num_tries, checkpoint, steps) FROM taskq.own_tasks('w', 1, '{a}', with_steps => true)";
        assert_eq!(session.one::<String>(given), "1 {\"one\": \"one\", \"two\": \"two\"}");
    }
}

#[test]
fn what_cannot_be_rewound_is_refused() {
    let (_db, [mut session]) = Db::connected();
    let grant = three_steps(&mut session);
    refused(&mut session, "TQ005", "\"a\"", "SELECT taskq.rewind_task('a', 'one')", &[]);
    refused(&mut session, "TQ005", "\"a\"", "SELECT taskq.rewind_task('a', 'nix')", &[]);
    refused(&mut session, "TQ003", "\"nix\"", "SELECT taskq.rewind_task('nix', 'one')", &[]);
    refused(&mut session, "TQ007", "\"one\"", "SELECT taskq.rewind_task('b', 'one')", &[]);
    refused(&mut session, "22004", "\"task_id\"", "SELECT taskq.rewind_task(NULL, 'one')", &[]);
    refused(&mut session, "22004", "\"step\"", "SELECT taskq.rewind_task('a', NULL)", &[]);
    refused(&mut session, "22023", "\"step\"", "SELECT taskq.rewind_task('a', '')", &[]);
    session.complete(&grant);
    refused(&mut session, "TQ007", "\"nix\"", "SELECT taskq.rewind_task('a', 'nix')", &[]);
    let b = session.own_one("b");
    refused(&mut session, "TQ005", "\"b\"", "SELECT taskq.rewind_task('a', 'one')", &[]);
    session.complete(&b);
    assert_eq!(rewind(&mut session, "a", "one"), 3);
}

#[test]
fn a_suspended_task_is_free_at_once() {
    let (_db, [mut session]) = Db::connected();
    let grant = three_steps(&mut session);
    session.insert(json!([{"id": "s", "action": "s"}, {"id": "t", "action": "t"}])).unwrap();
    session.give_with("a", grant.token, "pending", AT_ONCE).unwrap();
    suspend(&mut session, "a", &["s", "t"]);
    session.perform("s", "aborted");
    assert_eq!(counts(&mut session, "a"), ("blocked".to_owned(), 1, 2, 1));
    assert_eq!(rewind(&mut session, "a", "one"), 3);
    assert_eq!(counts(&mut session, "a"), ("ready".to_owned(), 0, 0, 0));
    // What it has waited for says no more to it.
    session.perform("t", "completed");
    let grant = session.own_one("a");
    assert_eq!((grant.num_tries, grant.num_failures), (2, 0));
    session.complete(&grant);
    assert_eq!(session.state("b"), "ready");
}

#[test]
fn a_suspended_task_that_was_given_a_dependency_meanwhile_waits_for_that() {
    for early in [false, true] {
        let (_db, [mut session]) = Db::connected();
        let grant = three_steps(&mut session);
        session.insert(json!([{"id": "s", "action": "s"}, {"id": "t", "action": "t"}])).unwrap();
        session.give_with("a", grant.token, "pending", AT_ONCE).unwrap();
        suspend(&mut session, "a", &["s"]);
        session.depend_on("t", "a").unwrap();
        if early {
            session.perform("s", "completed");
        }
        assert_eq!(rewind(&mut session, "a", "three"), 1);
        assert_eq!(counts(&mut session, "a"), ("blocked".to_owned(), 0, 1, 0), "early: {early}");
        if !early {
            session.perform("s", "completed");
        }
        assert_eq!(session.state("a"), "blocked");
        session.perform("t", "completed");
        assert_eq!(session.state("a"), "ready");
    }
}

#[test]
fn the_end_of_what_a_suspended_task_waits_for_may_come_beside_it() {
    for (rewind_first, commit) in [(true, true), (true, false), (false, true), (false, false)] {
        let (_db, [mut first, second, mut watcher]) = Db::connected();
        let grant = three_steps(&mut watcher);
        watcher.insert(json!([{"id": "s", "action": "s"}, {"id": "t", "action": "t"}])).unwrap();
        watcher.give_with("a", grant.token, "pending", AT_ONCE).unwrap();
        suspend(&mut watcher, "a", &["s"]);
        watcher.depend_on("t", "a").unwrap();
        let t = watcher.own_one("t");
        first.run("BEGIN");
        let again = t.clone();
        let call = if rewind_first {
            rewind(&mut first, "a", "two");
            second.background(move |session| session.complete(&t))
        } else {
            first.complete(&t);
            second.background(|session| session.run("SELECT taskq.rewind_task('a', 'two')"))
        };
        call.settle_down(&mut watcher);
        first.run(if commit { "COMMIT" } else { "ROLLBACK" });
        call.join();
        if !rewind_first && !commit {
            watcher.complete(&again);
        }
        if rewind_first && !commit {
            assert_eq!(rewind(&mut watcher, "a", "two"), 2);
        }
        assert_eq!(
            counts(&mut watcher, "a"),
            ("ready".to_owned(), 1, 1, 0),
            "rewind first: {rewind_first}, commit: {commit}"
        );
    }
}

#[test]
fn a_task_that_has_gone_on_after_a_suspension_forgets_what_that_has_added() {
    let (_db, [mut session]) = Db::connected();
    let grant = three_steps(&mut session);
    session.insert(json!([{"id": "s", "action": "s"}])).unwrap();
    session.give_with("a", grant.token, "pending", AT_ONCE).unwrap();
    suspend(&mut session, "a", &["s"]);
    session.perform("s", "aborted");
    assert_eq!(counts(&mut session, "a"), ("ready".to_owned(), 1, 1, 1));
    assert_eq!(rewind(&mut session, "a", "two"), 2);
    assert_eq!(counts(&mut session, "a"), ("ready".to_owned(), 0, 0, 0));
}

#[test]
fn a_rolled_back_rewind_has_not_happened() {
    let (_db, [mut session]) = Db::connected();
    let grant = three_steps(&mut session);
    session.complete(&grant);
    session.run("BEGIN");
    assert_eq!(rewind(&mut session, "a", "one"), 3);
    session.run("ROLLBACK");
    assert_eq!((session.state("a").as_str(), steps(&mut session, "a").len()), ("completed", 3));
}
