//! `retry_tasks` beside other transactions, on real connections. The dependents that come back wait for dependencies that
//! may be settling at this very moment: if neither sees the other, the signal is lost and they wait for ever. Each race is
//! played in both orders, with commit and with rollback; `check()` at the end of each test sees a wrong counter.

use serde_json::json;
use taskq_tests::{Db, Grant, Progress, Session};

use super::states;

/// `a` has aborted, and `d` with it; `b`, which `d` waits for as well, is in progress.
fn setup(session: &mut Session) -> Grant {
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
                       {"id": "d", "action": "d", "depends_on": ["a", {"id": "b", "condition": "settled"}]},
                       {"id": "handler", "action": "h", "depends_on": [{"id": "a", "condition": "aborted"}]}]))
        .unwrap();
    let b = session.own_one("b");
    session.perform("a", "aborted");
    b
}

const RETRY: &str = "SELECT taskq.retry_tasks('{a}')";

#[test]
fn a_dependency_that_settles_beside_the_retry_is_counted() {
    for (retry_first, commit, end) in [
        (true, true, "completed"),
        (true, true, "aborted"),
        (true, false, "completed"),
        (false, true, "completed"),
        (false, true, "aborted"),
        (false, false, "completed"),
    ] {
        let db = Db::new();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        let b = setup(&mut watcher);
        first.run("BEGIN");
        let again = b.clone();
        let call = if retry_first {
            first.run(RETRY);
            second.background(move |session| drop(session.give("b", b.token, end).unwrap()))
        } else {
            first.give("b", b.token, end).unwrap();
            second.background(|session| session.run(RETRY))
        };
        call.settle_down(&mut watcher);
        first.run(if commit { "COMMIT" } else { "ROLLBACK" });
        call.join();
        let case = format!("retry first: {retry_first}, commit: {commit}, {end}");
        if !commit {
            if retry_first {
                watcher.run(RETRY);
            } else {
                watcher.give("b", again.token, end).unwrap();
            }
        }
        watcher.perform("a", "completed");
        let d = watcher.task("d").unwrap();
        assert_eq!((d.state.as_str(), d.num_signals), ("ready", 2), "{case}");
        assert_eq!(d.num_failures, i32::from(end == "aborted"), "{case}");
    }
}

#[test]
fn a_dependent_that_has_not_heard_of_the_abort_yet_comes_back_with_it() {
    // Its counter is locked by an open return of b, so the abort of a waits to be counted.
    for commit in [true, false] {
        let db = Db::new();
        let (mut open, retrying, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher
            .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"}, {"id": "d", "action": "d", "depends_on": ["a", "b"]},
                           {"id": "e", "action": "e", "depends_on": ["d"]}]))
            .unwrap();
        let b = watcher.own_one("b");
        open.run("BEGIN");
        open.complete(&b);
        watcher.perform("a", "aborted");
        let call = retrying.background(|session| session.run(RETRY));
        call.settle_down(&mut watcher);
        open.run(if commit { "COMMIT" } else { "ROLLBACK" });
        call.join();
        if !commit {
            open.complete(&b);
        }
        assert_eq!(
            states(&mut watcher, ["a", "d", "e"]),
            ["ready", "blocked", "blocked"],
            "commit: {commit}"
        );
        watcher.perform("a", "completed");
        assert_eq!(states(&mut watcher, ["d", "e"]), ["ready", "blocked"]);
    }
}

#[test]
fn of_two_retries_at_once_the_second_finds_nothing_to_do() {
    let db = Db::new();
    let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
    setup(&mut watcher);
    first.run("BEGIN");
    first.run(RETRY);
    let call = second.background(|session| session.one::<i64>(RETRY));
    call.settle_down(&mut watcher);
    first.run("COMMIT");
    assert_eq!(call.join().1, 0);
    assert_eq!(states(&mut watcher, ["a", "d", "handler"]), ["ready", "blocked", "blocked"]);
}

#[test]
fn the_retries_of_two_lost_dependencies_at_once_bring_the_dependent_back() {
    let db = Db::new();
    let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
    watcher
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "d", "action": "d", "depends_on": ["a", "b"]}]))
        .unwrap();
    watcher.perform("x", "aborted");
    watcher.perform("x", "aborted");
    first.run("BEGIN; SELECT taskq.retry_tasks('{a}')");
    let call = second.background(|session| session.one::<i64>("SELECT taskq.retry_tasks('{b}')"));
    call.settle_down(&mut watcher);
    first.run("COMMIT");
    assert_eq!(call.join().1, 2, "b and d");
    assert_eq!(states(&mut watcher, ["a", "b", "d"]), ["ready", "ready", "blocked"]);
}

#[test]
fn a_handler_granted_beside_the_retry_is_either_at_work_or_waits_again() {
    for grant_first in [true, false] {
        let db = Db::new();
        let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
        setup(&mut watcher);
        first.run("BEGIN");
        if grant_first {
            let handler = first.own_one("h");
            let call = second.background(|session| session.run(RETRY));
            call.settle_down(&mut watcher);
            first.run("COMMIT");
            call.join();
            assert_eq!(watcher.state("handler"), "in-progress");
            watcher.complete(&handler);
        } else {
            first.run(RETRY);
            assert!(second.own("w", 1, &["h"]).unwrap().is_empty(), "it is granted to no worker");
            first.run("COMMIT");
            assert_eq!(watcher.state("handler"), "blocked");
        }
        watcher.perform("a", "completed");
        let expected = if grant_first { "completed" } else { "aborted" };
        assert_eq!(watcher.state("handler"), expected);
    }
}

#[test]
fn a_dependent_inserted_beside_the_retry_waits_for_the_retried_task_or_has_lost_it() {
    // Never may it count the abort that is being taken back, and be free while its dependency is alive.
    for retry_first in [true, false] {
        for condition in ["completed", "settled", "aborted"] {
            let db = Db::new();
            let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
            setup(&mut watcher);
            let edge = json!([{"id": "a", "condition": condition}]);
            let late = json!([{"id": "late", "action": "late", "depends_on": edge}]);
            first.run("BEGIN");
            let call = if retry_first {
                first.run(RETRY);
                second.background(move |session| drop(session.insert(late).unwrap()))
            } else {
                first.insert(late).unwrap();
                second.background(|session| session.run(RETRY))
            };
            call.settle_down(&mut watcher);
            first.run("COMMIT");
            call.join();
            let case = format!("{condition}, retry first: {retry_first}");
            let state = watcher.state("late");
            assert!(
                state == "blocked" || (state == "aborted" && condition == "completed"),
                "{case}: {state}"
            );
            watcher.perform("a", "completed");
            let expected = if condition == "aborted" { "aborted" } else { "ready" };
            if state == "blocked" {
                assert_eq!(watcher.state("late"), expected, "{case}");
            }
        }
    }
}

#[test]
fn a_task_deleted_or_replaced_beside_its_retry_is_in_one_place_or_gone() {
    for call in ["taskq.delete_tasks('{a}')", "taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"new\"}]')"]
    {
        for retry_first in [true, false] {
            let db = Db::new();
            let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
            watcher.insert(json!([{"id": "a", "action": "a"}])).unwrap();
            watcher.perform("a", "aborted");
            let removal = format!("SELECT {call}");
            let (now, then) = if retry_first { (RETRY, removal.as_str()) } else { (removal.as_str(), RETRY) };
            first.run("BEGIN");
            first.run(now);
            let then = then.to_owned();
            let waiting = second.background(move |session| session.run(&then));
            waiting.settle_down(&mut watcher);
            first.run("COMMIT");
            waiting.join();
            let case = format!("{call}, retry first: {retry_first}");
            assert!(watcher.broken().is_empty(), "{case}: {:?}", watcher.broken());
            assert!(watcher.own("w", 1, &["a"]).unwrap().is_empty(), "{case}");
            let expected = if call.contains("delete") { "gone" } else { "ready" };
            assert_eq!(watcher.state("a"), expected, "{case}");
        }
    }
}

#[test]
fn retries_beside_workers_that_fail_at_random_end_in_a_sound_graph() {
    // Four workers abort every third time, a fifth connection retries what aborted, until all has completed.
    let db = Db::new();
    let mut session = db.connect();
    let tasks: Vec<_> = (0..300)
        .map(|i: usize| {
            let after: Vec<String> =
                [3, 7, 20].iter().filter_map(|step| i.checked_sub(*step)).map(|n| n.to_string()).collect();
            json!({"id": i.to_string(), "action": "x", "spontaneous": i % 7 == 6, "depends_on": after})
        })
        .collect();
    session.insert(json!(tasks)).unwrap();
    let workers: Vec<_> = (0..4)
        .map(|worker: usize| {
            db.connect().background(move |session| {
                let mut turn = worker;
                let open = "SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'";
                while session.one::<i64>(open) > 0 {
                    for grant in session.own("w", 3, &["x"]).unwrap() {
                        turn += 1;
                        let code = if turn.is_multiple_of(3) { "aborted" } else { "completed" };
                        session.give(&grant.task_id, grant.token, code).expect("no deadlock");
                    }
                }
            })
        })
        .collect();
    taskq_tests::until("all has completed", || {
        session.run("SELECT taskq.retry_tasks(actions => '{x}')");
        let open: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'");
        (open == 0).then_some(())
    });
    workers.into_iter().for_each(|worker| drop(worker.join()));
    let odd: i64 = session
        .one("SELECT count(*) FROM taskq.tasks WHERE num_signals <> total_dependencies OR num_failures <> 0");
    assert_eq!(odd, 0);
}

#[test]
fn a_signal_of_an_earlier_life_is_not_counted_in_the_next() {
    let db = Db::new();
    let (mut open, mut session) = (db.connect(), db.connect());
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
                       {"id": "d", "action": "d", "depends_on": ["a", "b"]}]))
        .unwrap();
    let a = session.own_one("a");
    // d aborts in a transaction that is still open, and has its counter's row locked: b leaves its signal behind. Neither
    // finds anything to count at its commit.
    open.run("BEGIN");
    open.give("a", a.token, "aborted").unwrap();
    session.perform("b", "completed");
    open.run("COMMIT");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.countdown"), 1, "the signal is there still");
    session.run(RETRY);
    // Counting it now, beside what the retry has found out of b, would let d go before a.
    session.run("SELECT taskq.maintain()");
    let d = session.task("d").unwrap();
    assert_eq!((d.state.as_str(), d.num_signals), ("blocked", 1));
    session.perform("a", "completed");
    let d = session.task("d").unwrap();
    assert_eq!((d.state.as_str(), d.num_signals), ("ready", 2));
}

/// On wrong code the call does not see that it has ended `d` itself, by counting what was left for it, and leaves it aborted.
#[test]
fn a_rerun_takes_along_what_ends_while_it_counts() {
    for end in ["ROLLBACK", "COMMIT"] {
        let db = Db::new();
        let (mut holder, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher
            .insert(json!([{"id": "a", "action": "a"}, {"id": "d", "action": "d", "depends_on": ["a"]}]))
            .unwrap();
        holder.run("BEGIN; SELECT taskq.update_tasks('{d}', priority => 1)");
        watcher.perform("a", "aborted");
        let rerun = second.background(|s| s.one::<i64>("SELECT taskq.rerun_tasks('{a}')"));
        assert_eq!(rerun.settle_down(&mut watcher), Progress::Blocked);
        holder.run(end);
        assert_eq!(rerun.join().1, 2, "{end}");
        assert_eq!((watcher.state("a"), watcher.state("d")), ("ready".into(), "blocked".into()), "{end}");
    }
}
