//! Merge by key, step by step: of the tasks that share a key, an action and a group one runs, those that were ready share its end,
//! and later ones run after it.
//!
//! Why: "tested with waves of duplicates from an unfinished night before". A rider that is forgotten blocks its dependents
//! for ever; one that runs as well does the work twice. On wrong code a task of the key is granted too early, or stays.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, sqlstate};

use crate::{at, call, keyed, owned};

fn keys(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.merge_key")
}

#[test]
fn riders_get_code_status_and_result_and_signal_their_dependents() {
    for (code, then) in [("completed", "ready"), ("aborted", "aborted")] {
        let (_db, [mut session]) = Db::with_tasks(keyed(&["a", "b", "c"]));
        session.insert(json!([{"id": "after b", "action": "y", "depends_on": ["b"]}])).unwrap();
        let leader = session.own("w", 9, &["x"]).unwrap();
        assert_eq!(leader.len(), 1);
        assert_eq!(leader[0].task_id, "a");
        assert!(owned(&mut session, 9, &["x"]).is_empty());
        session.give_with("a", leader[0].token, code, "status => 'said', result => '[7]'").unwrap();
        for id in ["a", "b", "c"] {
            let task = session.task(id).unwrap();
            assert_eq!((task.state.as_str(), task.status.as_deref()), (code, Some("said")), "{id}");
            assert_eq!(task.result, Some(json!([7])), "{id}");
            assert_eq!(task.num_tries, i32::from(id == "a"), "{id}");
        }
        assert_eq!(session.state("after b"), then);
    }
}

#[test]
fn one_inserted_or_freed_later_runs_after_it() {
    let (_db, [mut session]) = Db::with_tasks(keyed(&["a"]));
    session
        .insert(json!([{"id": "gate", "action": "y"}, {"id": "freed", "action": "x", "merge_key": "k", "depends_on": ["gate"]}]))
        .unwrap();
    let leader = session.own_one("x");
    session.insert(keyed(&["later"])).unwrap();
    session.perform("y", "completed");
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    session.complete(&leader);
    assert_eq!((session.state("later"), session.state("freed")), ("ready".to_owned(), "ready".to_owned()));
    let second = session.own("w", 9, &["x"]).unwrap();
    assert_eq!(second.len(), 1, "both were ready: one leads and one rides");
    session.complete(&second[0]);
    assert_eq!(
        (session.state("later"), session.state("freed")),
        ("completed".to_owned(), "completed".to_owned())
    );
}

#[test]
fn keys_of_actions_of_groups_and_of_none_are_separate() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "none", "action": "x", "merge_key": "k"}, {"id": "g1", "action": "x", "merge_key": "k", "group_id": "g"},
        {"id": "g2", "action": "y", "merge_key": "k", "group_id": "g"}, {"id": "h", "action": "x", "merge_key": "k", "group_id": "h"},
        {"id": "other", "action": "x", "merge_key": "l"}, {"id": "plain", "action": "x"},
    ]));
    assert_eq!(
        owned(&mut session, 9, &["x", "y"]),
        ["none", "g1", "g2", "h", "other", "plain"],
        "g2 shares key and group with g1, and not its action"
    );
}

#[test]
fn a_merge_key_is_busy_in_its_own_action_and_group_only() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x", "merge_key": "k", "group_id": "g"}]));
    session.own_one("x");
    session
        .insert(json!([
            {"id": "same", "action": "x", "merge_key": "k", "group_id": "g"}, {"id": "none", "action": "x", "merge_key": "k"},
            {"id": "group", "action": "x", "merge_key": "k", "group_id": "h"},
            {"id": "action", "action": "y", "merge_key": "k", "group_id": "g"},
            {"id": "key", "action": "x", "merge_key": "l", "group_id": "g"},
        ]))
        .unwrap();
    assert_eq!(owned(&mut session, 9, &["x", "y"]), ["none", "group", "action", "key"]);
}

#[test]
fn a_leader_that_comes_back_frees_its_riders_and_its_key() {
    let (_db, [mut session]) = Db::with_tasks(keyed(&["a", "b"]));
    let leader = session.own_one("x");
    session.give("a", leader.token, "pending").unwrap();
    assert!(session.broken().is_empty());
    let second = session.own("w", 9, &["x"]).unwrap();
    assert_eq!(second.len(), 1);
    session.complete(&second[0]);
    assert_eq!((session.state("a"), session.state("b")), ("completed".to_owned(), "completed".to_owned()));
}

#[test]
fn a_leader_whose_deadline_passed_frees_them_and_its_last_try_ends_them() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session.insert(keyed(&["a", "b"])).unwrap();
    let late = session.own_one_with("x", "lease => '1 minute'");
    at(&mut session, 61.0);
    let second = session.own("w", 9, &["x"]).unwrap();
    assert_eq!(second.len(), 1);
    let held = session.extend("late", &[("a", late.token)], "1 hour").unwrap()[0].1;
    assert!(!held, "another task with the key runs");
    session.complete(&second[0]);
    // The one whose token is still good need not ride; then it runs again.
    session.own("w", 9, &["x"]).unwrap().iter().for_each(|grant| session.complete(grant));
    assert_eq!((session.state("a"), session.state("b")), ("completed".to_owned(), "completed".to_owned()));
    session.insert(json!([{"id": "c", "action": "z", "merge_key": "z", "max_tries": 1}, {"id": "d", "action": "z", "merge_key": "z"}])).unwrap();
    session.own_one_with("z", "lease => '1 minute'");
    at(&mut session, 200.0);
    assert!(owned(&mut session, 9, &["z"]).is_empty());
    assert_eq!((session.state("c"), session.state("d")), ("aborted".to_owned(), "aborted".to_owned()));
}

#[test]
fn a_task_whose_deadline_passed_rides_and_its_old_token_is_void() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session.insert(keyed(&["a"])).unwrap();
    let late = session.own_one_with("x", "lease => '1 minute'");
    session.insert(json!([{"id": "b", "action": "x", "merge_key": "k", "priority": 5}])).unwrap();
    at(&mut session, 61.0);
    let next = session.own_one("x");
    assert_eq!(next.task_id, "b");
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    assert_eq!(sqlstate(&session.give("a", late.token, "completed").unwrap_err()), "TQ001");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.actors"), 1, "no worker has it any more");
    session.give_with("b", next.token, "completed", "result => '7'").unwrap();
    let task = session.task("a").unwrap();
    assert_eq!((task.state.as_str(), task.result, task.num_tries), ("completed", Some(json!(7)), 1));
}

#[test]
fn cancelling_the_leader_aborts_its_riders_and_not_later_ones() {
    let (_db, [mut session]) = Db::with_tasks(keyed(&["a", "b"]));
    let leader = session.own_one("x");
    session.insert(keyed(&["later"])).unwrap();
    session.cancel(&["a"]).unwrap();
    assert_eq!(sqlstate(&session.give("a", leader.token, "completed").unwrap_err()), "TQ001");
    assert_eq!((session.state("a"), session.state("b")), ("aborted".to_owned(), "aborted".to_owned()));
    assert_eq!(owned(&mut session, 9, &["x"]), ["later"]);
}

#[test]
fn riders_and_parked_ones_can_be_cancelled_deleted_replaced_and_made_to_wait() {
    let (_db, [mut session]) = Db::with_tasks(keyed(&["a", "cancelled", "deleted", "replaced", "waits"]));
    session.insert(json!([{"id": "gate", "action": "y"}])).unwrap();
    let leader = session.own_one("x");
    session.insert(keyed(&["p cancelled", "p deleted", "p replaced", "p waits"])).unwrap();
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    assert_eq!(session.cancel(&["cancelled", "p cancelled"]).unwrap(), 2);
    assert_eq!(session.delete(&["deleted", "p deleted"]).unwrap(), 2);
    session.replace(json!([{"id": "replaced", "action": "n"}, {"id": "p replaced", "action": "n"}])).unwrap();
    assert_eq!(session.depend_on("gate", "waits").unwrap(), 1);
    assert_eq!(session.depend_on("gate", "p waits").unwrap(), 1);
    assert!(session.broken().is_empty(), "{:?}", session.broken());
    session.complete(&leader);
    let states =
        ["cancelled", "deleted", "replaced", "waits", "p cancelled", "p deleted", "p replaced", "p waits"]
            .map(|id| session.state(id));
    assert_eq!(states, ["aborted", "gone", "ready", "blocked", "aborted", "gone", "ready", "blocked"]);
    session.perform("y", "completed");
    let second = session.own("w", 9, &["x"]).unwrap();
    assert_eq!(second.len(), 1);
    session.complete(&second[0]);
    assert_eq!(
        (session.state("waits"), session.state("p waits")),
        ("completed".to_owned(), "completed".to_owned())
    );
}

#[test]
fn waves_of_duplicates_run_once_a_wave() {
    let (_db, [mut session]) = Db::connected();
    let mut performances = 0;
    let mut held = None;
    for wave in 0..6 {
        let tasks: Value = (0..50)
            .map(|i| json!({"id": format!("w{wave} {i}"), "action": "x", "merge_key": "nightly"}))
            .collect();
        session.insert(tasks).unwrap();
        // The night before is not finished when the next wave comes.
        if let Some(grant) = held.take() {
            session.complete(&grant);
        }
        let grants = session.own("w", 100, &["x"]).unwrap();
        assert_eq!(grants.len(), 1, "wave {wave}");
        performances += 1;
        held = grants.into_iter().next();
    }
    session.complete(&held.unwrap());
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    let completed: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'");
    assert_eq!((completed, performances), (300, 6));
}

#[test]
fn a_key_in_a_paused_group_comes_back_with_the_group() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x", "merge_key": "k", "group_id": "g"}, {"id": "b", "action": "x", "merge_key": "k", "group_id": "g"}]),
    );
    let leader = session.own_one("x");
    call(&mut session, "pause_group('g')");
    session.insert(json!([{"id": "c", "action": "x", "merge_key": "k", "group_id": "g"}])).unwrap();
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    session.complete(&leader);
    assert!(owned(&mut session, 9, &["x"]).is_empty());
    call(&mut session, "resume_group('g')");
    assert_eq!(owned(&mut session, 9, &["x"]), ["c"]);
}

#[test]
fn a_leader_and_its_riders_need_one_place_of_a_limited_action() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 2)");
    session.insert(keyed(&["a", "b", "c"])).unwrap();
    session.insert(json!([{"id": "plain", "action": "x"}])).unwrap();
    assert_eq!(owned(&mut session, 9, &["x"]), ["a", "plain"]);
}

#[test]
fn nothing_is_kept_of_a_key_whose_tasks_are_gone() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session.insert(json!([{"id": "a", "action": "x", "merge_key": "k", "retention": "1 s"}, {"id": "b", "action": "x", "merge_key": "l"}])).unwrap();
    assert_eq!(keys(&mut session), 2);
    session.perform("x", "completed");
    session.delete(&["b"]).unwrap();
    at(&mut session, 10.0);
    call(&mut session, "maintain()");
    assert_eq!(session.state("a"), "gone");
    assert_eq!(keys(&mut session), 0);
}

#[test]
fn nor_is_it_while_other_groups_and_actions_have_tasks_with_the_same_key() {
    // Else the row of each key that was ever used would stay, as long as one like it is in use somewhere.
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "plain", "action": "x", "merge_key": "k"},
        {"id": "grouped", "action": "x", "merge_key": "k", "group_id": "g"},
        {"id": "other", "action": "y", "merge_key": "k"},
        {"id": "key", "action": "x", "merge_key": "l"},
    ]));
    assert_eq!(keys(&mut session), 4);
    for (deleted, left) in [("plain", 3), ("grouped", 2), ("key", 1), ("other", 0)] {
        session.delete(&[deleted]).unwrap();
        assert_eq!(keys(&mut session), left, "without {deleted}");
    }
}

/// Why: it ended with a run that had begun before, and no worker was ever given what it had been changed to.
#[test]
fn a_rider_with_another_body_runs_after_its_leader() {
    for held in [false, true] {
        let (_db, [mut session, mut other]) = Db::with_tasks(keyed(&["a", "b", "c", "d", "e"]));
        session.run("SELECT taskq.update_tasks('{c}', priority => -1)");
        if held {
            // These are parked in place.
            other.run("BEGIN");
            for id in ["b", "c", "d", "e"] {
                other
                    .insert(json!([{"id": format!("after {id}"), "action": "y", "depends_on": [id]}]))
                    .unwrap();
            }
        }
        let leader = session.own("w", 9, &["x"]).unwrap();
        assert_eq!(leader.len(), 1);
        other.run("COMMIT");
        session.run("SELECT taskq.update_tasks('{b}', body => 'new'), taskq.update_tasks('{c}', body => 'newer'), taskq.update_tasks('{e}', metadata => '{}'), taskq.update_tasks('{d}', max_tries => 3)");
        assert!(owned(&mut session, 9, &["x"]).is_empty());
        session.complete(&leader[0]);
        for (id, state) in
            [("a", "completed"), ("b", "ready"), ("c", "ready"), ("d", "completed"), ("e", "completed")]
        {
            assert_eq!(session.state(id), state, "{id}");
        }
        let next = session.own("w", 9, &["x"]).unwrap();
        assert_eq!((next.len(), next[0].task_id.as_str(), next[0].body.as_deref()), (1, "b", Some("new")));
        session.complete(&next[0]);
        assert_eq!(session.state("c"), "completed", "it rides on the one that began later");
    }
}

/// Why: of those that are parked in place one got off by another priority, or by a time that is now, and of the others none.
#[test]
fn a_rider_with_another_priority_rides_on_and_one_that_is_put_off_does_not() {
    for end in ["completed", "pending"] {
        for held in [false, true] {
            let (_db, [mut session, mut other]) = Db::with_tasks(keyed(&["a", "b", "c", "d"]));
            if held {
                other.run("BEGIN");
                for id in ["b", "c", "d"] {
                    other
                        .insert(json!([{"id": format!("after {id}"), "action": "y", "depends_on": [id]}]))
                        .unwrap();
                }
            }
            let leader = session.own("w", 9, &["x"]).unwrap();
            other.run("COMMIT");
            session.run("SELECT taskq.update_tasks('{b}', delay => '0'), taskq.update_tasks('{c}', priority => 5), taskq.update_tasks('{d}', delay => '1 hour')");
            assert!(owned(&mut session, 9, &["x"]).is_empty());
            session.give("a", leader[0].token, end).unwrap();
            let states = ["b", "c", "d"].map(|id| session.state(id));
            if end == "completed" {
                assert_eq!(states, ["completed", "completed", "scheduled"], "held: {held}");
            } else {
                assert_eq!(states, ["ready", "ready", "scheduled"], "held: {held}");
                assert_eq!(owned(&mut session, 1, &["x"]), ["c"], "by its priority; held: {held}");
            }
        }
    }
}
