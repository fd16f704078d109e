//! `reset_group`: back to the start, with seeds or without, whatever state the tasks are in.
//!
//! Why: FEATURES 3.2 lists what never worked elsewhere; a reset that leaves a token valid lets a worker of the old round
//! settle a task of the new one. On wrong code a state, a count or an old token survives the reset.

use serde_json::json;
use taskq_tests::{Db, refused, sqlstate};

use crate::{call, count, owned};

#[test]
fn without_seeds_all_tasks_start_again_and_old_tokens_are_void() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a", "group_id": "g"}, {"id": "b", "action": "b", "group_id": "g", "depends_on": ["a"]},
        {"id": "c", "action": "c", "group_id": "g", "depends_on": ["b"]}, {"id": "f", "action": "f", "group_id": "g", "max_tries": 1},
        {"id": "after f", "action": "n", "group_id": "g", "depends_on": ["f"]},
    ]));
    let a = session.own_one("a");
    session.give_with("a", a.token, "completed", "result => '7', status => 'fine'").unwrap();
    let b = session.own_one("b");
    session.run(&format!("SELECT taskq.report_status('b', '{}', 'half', 0.5, '{{\"at\": 5}}')", b.token));
    session.perform("f", "aborted");
    assert_eq!(session.state("after f"), "aborted");
    assert_eq!(count(&mut session, "reset_group('g')"), 5);
    assert_eq!(sqlstate(&session.give("b", b.token, "completed").unwrap_err()), "TQ001");
    assert_eq!(sqlstate(&session.give("a", a.token, "completed").unwrap_err()), "TQ001");
    assert_eq!(session.extend("w", &[("b", b.token)], "1 hour").unwrap(), [("b".to_owned(), false)]);
    for (id, state) in
        [("a", "ready"), ("b", "blocked"), ("c", "blocked"), ("f", "ready"), ("after f", "blocked")]
    {
        let task = session.task(id).unwrap();
        assert_eq!((task.state.as_str(), task.num_tries, task.num_signals), (state, 0, 0), "{id}");
        assert_eq!((task.result, task.status, task.num_failures), (None, None, 0), "{id}");
    }
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.attempts"), 0);
    session.perform("a", "completed");
    let checkpoint: Option<String> =
        session.one("SELECT checkpoint::text FROM taskq.own_tasks('w', 1, '{b}')");
    assert_eq!(checkpoint, None);
}

#[test]
fn with_seeds_only_they_stay() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "seed", "action": "s", "group_id": "g", "seed": true}, {"id": "two", "action": "t", "group_id": "g", "seed": true, "depends_on": ["seed"]},
        {"id": "made", "action": "m", "group_id": "g", "depends_on": ["seed"]},
    ]));
    let seed = session.own_one("s");
    session
        .give_with(
            "seed",
            seed.token,
            "completed",
            "children => '[{\"id\": \"child\", \"action\": \"m\", \"group_id\": \"g\"}]'",
        )
        .unwrap();
    let grants = session.own("w", 9, &["t", "m"]).unwrap();
    assert_eq!(grants.len(), 3);
    call(&mut session, "reset_group('g')");
    assert_eq!((session.state("seed"), session.state("two")), ("ready".to_owned(), "blocked".to_owned()));
    assert_eq!((session.state("made"), session.state("child")), ("gone".to_owned(), "gone".to_owned()));
    for grant in &grants {
        let error = session.give(&grant.task_id, grant.token, "completed").unwrap_err();
        assert!(["TQ001", "TQ003"].contains(&sqlstate(&error)), "{error:?}");
    }
    session.perform("s", "completed");
    assert_eq!(owned(&mut session, 9, &["t"]), ["two"]);
}

#[test]
fn live_dependents_outside_wait_again() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a", "group_id": "g"}, {"id": "b", "action": "b", "group_id": "g"},
        {"id": "out", "action": "o", "depends_on": ["a", "b"]}, {"id": "held", "action": "h", "depends_on": ["a"]},
    ]));
    session.perform("a", "completed");
    let held = session.own_one("h");
    session.perform("b", "completed");
    assert_eq!(session.state("out"), "ready");
    call(&mut session, "reset_group('g')");
    let out = session.task("out").unwrap();
    assert_eq!((out.state.as_str(), out.num_signals, out.total_dependencies), ("blocked", 0, 2));
    session.complete(&held);
    session.perform("a", "completed");
    assert_eq!(session.state("out"), "blocked");
    session.perform("b", "completed");
    assert_eq!(owned(&mut session, 1, &["o"]), ["out"]);
}

/// The dependency has done its work: it must not signal a second time, when the task has come to wait for another.
#[test]
fn a_dependent_outside_that_is_in_progress_loses_the_dependency() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a", "group_id": "g"}, {"id": "held", "action": "h", "depends_on": ["a"]},
        {"id": "later", "action": "l"},
    ]));
    session.perform("a", "completed");
    let held = session.own_one("h");
    call(&mut session, "reset_group('g')");
    assert_eq!(session.broken(), Vec::<String>::new());
    session.give(&held.task_id, held.token, "pending").unwrap();
    session.depend_on("later", "held").unwrap();
    session.perform("a", "completed");
    assert_eq!(session.state("held"), "blocked", "\"later\" has still to run");
    session.perform("l", "completed");
    assert_ne!(session.state("held"), "blocked");
}

#[test]
fn a_reset_frees_slots_and_keys() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 1)");
    session
        .insert(json!([
            {"id": "a", "action": "x", "group_id": "g", "merge_key": "k"}, {"id": "b", "action": "x", "group_id": "g", "merge_key": "k"},
        ]))
        .unwrap();
    for _ in 0..3 {
        assert_eq!(owned(&mut session, 1, &["x"]).len(), 1);
        assert!(owned(&mut session, 1, &["x"]).is_empty());
        assert_eq!(count(&mut session, "reset_group('g')"), 2);
        assert!(session.broken().is_empty(), "{:?}", session.broken());
    }
    session.perform("x", "completed");
    assert_eq!((session.state("a"), session.state("b")), ("completed".to_owned(), "completed".to_owned()));
    assert_eq!(count(&mut session, "reset_group('g')"), 2);
    assert_eq!((session.state("a"), session.state("b")), ("ready".to_owned(), "ready".to_owned()));
}

#[test]
fn a_paused_group_stays_paused_over_a_reset() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x", "group_id": "g"}]));
    call(&mut session, "pause_group('g')");
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    call(&mut session, "reset_group('g')");
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    call(&mut session, "resume_group('g')");
    assert_eq!(owned(&mut session, 1, &["x"]), ["a"]);
}

#[test]
fn a_reset_is_one_transaction() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x", "group_id": "g"}]));
    let grant = session.own_one("x");
    session.run("BEGIN; SELECT taskq.reset_group('g'); ROLLBACK");
    session.complete(&grant);
    refused(&mut session, "TQ007", "h", "SELECT taskq.reset_group('h')", &[]);
}

/// A task that loses its last dependency by a deletion is deleted as a rule. A seed stays, by whatever it has waited for what goes.
#[test]
fn a_seed_that_waits_for_what_goes_stays() {
    for condition in ["completed", "settled", "aborted"] {
        let (_db, [mut session]) = Db::with_tasks(json!([
            {"id": "goes", "action": "g", "group_id": "g"}, {"id": "other", "action": "o"},
            {"id": "out", "action": "o", "depends_on": [{"id": "goes", "condition": condition}]},
            {"id": "seed", "action": "s", "group_id": "g", "seed": true, "depends_on": [{"id": "goes", "condition": condition}]},
            {"id": "last", "action": "s", "group_id": "g", "seed": true, "depends_on": ["out"]},
            {"id": "mile", "action": "s", "group_id": "g", "seed": true, "spontaneous": true, "depends_on": ["goes", "seed"]},
            {"id": "waits", "action": "s", "group_id": "g", "seed": true, "depends_on": ["goes", "other"]},
            {"id": "rides", "action": "s", "group_id": "g", "seed": true, "merge_key": "k"},
            {"id": "along", "action": "s", "group_id": "g", "merge_key": "k"},
        ]));
        assert_eq!(count(&mut session, "reset_group('g')"), 7);
        assert_eq!(session.broken(), Vec::<String>::new());
        for (id, state, dependencies) in [
            ("goes", "gone", 0),
            ("out", "gone", 0),
            ("along", "gone", 0),
            ("seed", "ready", 0),
            ("last", "ready", 0),
            ("mile", "blocked", 1),
            ("waits", "blocked", 1),
            ("rides", "ready", 0),
        ] {
            assert_eq!(session.state(id), state, "{id}, {condition}");
            if let Some(task) = session.task(id) {
                assert_eq!((task.total_dependencies, task.num_signals), (dependencies, 0), "{id}");
            }
        }
        let mut free = owned(&mut session, 9, &["s"]);
        free.sort();
        assert_eq!(free, ["last", "rides", "seed"]);
    }
}
