//! `retry_tasks`: a graph goes on from where it broke. What aborted because of the retried task comes back with it, what has
//! completed is not done again, and in the end everything counts as if nothing had ever gone wrong. A queue that only resets
//! the failed task leaves its dependents dead; one that resets the run does everything twice.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use super::{ready, states, work_off};

/// Two steps in a row, a fan-out of three, a fan-in, an end; and a branch of its own.
fn pipeline(session: &mut Session) {
    session.run(
        "SELECT * FROM taskq.insert_tasks(taskq.parallel(
            taskq.chain(
                '{\"id\": \"fetch\", \"action\": \"fetch\"}', '{\"id\": \"split\", \"action\": \"split\"}',
                '[{\"id\": \"part 1\", \"action\": \"part\", \"max_tries\": 2}, {\"id\": \"part 2\", \"action\": \"part\", \"max_tries\": 2},
                  {\"id\": \"part 3\", \"action\": \"part\", \"max_tries\": 2}]',
                '{\"id\": \"join\", \"action\": \"join\"}', '{\"id\": \"end\", \"action\": \"end\"}'),
            '{\"id\": \"aside\", \"action\": \"aside\", \"depends_on\": [\"split\"]}'))",
    );
}

fn retry(session: &mut Session, ids: &[&str]) -> i64 {
    session.query_one("SELECT taskq.retry_tasks($1)", &[&ids]).unwrap().get(0)
}

#[test]
fn the_graph_goes_on_from_where_it_broke() {
    let (_db, [mut session]) = Db::connected();
    pipeline(&mut session);
    for action in ["fetch", "split"] {
        session.perform(action, "completed");
    }
    let held = super::hold(&mut session, "part");
    session.complete(&held[0]);
    session.give("part 2", held[1].token, "pending").unwrap();
    session.complete(&held[2]);
    let second = session.own_one("part");
    assert_eq!(
        session
            .give_with("part 2", second.token, "pending", "status => 'disk full', retry_after => '0'")
            .unwrap(),
        "aborted"
    );
    assert_eq!(
        states(&mut session, ["part 2", "join", "end", "aside"]),
        ["aborted", "aborted", "aborted", "ready"]
    );

    assert_eq!(retry(&mut session, &["part 2"]), 3);
    assert_eq!(
        states(&mut session, ["part 1", "part 2", "join", "end"]),
        ["completed", "ready", "blocked", "blocked"]
    );
    let part = session.task("part 2").unwrap();
    assert_eq!((part.num_tries, part.max_tries), (0, Some(2)), "it has all its tries again");
    let join = session.task("join").unwrap();
    assert_eq!((join.num_signals, join.num_failures, join.total_dependencies), (2, 0, 3));
    let waves = work_off(&mut session, &["fetch", "split", "part", "join", "end", "aside"]);
    assert_eq!(waves, [vec!["aside", "part 2"], vec!["join"], vec!["end"]], "nothing is done twice");
}

#[test]
fn an_old_token_is_not_good_for_the_retried_task() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "t", "action": "x"}]));
    let old = session.own_one("x");
    session.cancel(&["t"]).unwrap();
    assert_eq!(retry(&mut session, &["t"]), 1);
    assert_eq!(taskq_tests::sqlstate(&session.give("t", old.token, "completed").unwrap_err()), "TQ001");
    let new = session.own_one("x");
    assert_eq!(taskq_tests::sqlstate(&session.give("t", old.token, "completed").unwrap_err()), "TQ001");
    session.complete(&new);
}

#[test]
fn a_checkpoint_outlives_the_abort() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "t", "action": "x"}]));
    let grant = session.own_one("x");
    session
        .execute("SELECT taskq.report_status('t', $1, checkpoint => '{\"line\": 7}')", &[&grant.token])
        .unwrap();
    session.give("t", grant.token, "aborted").unwrap();
    retry(&mut session, &["t"]);
    let line: String = session.one("SELECT checkpoint ->> 'line' FROM taskq.own_tasks('w', 1, '{x}')");
    assert_eq!(line, "7");
}

#[test]
fn a_task_that_was_cancelled_while_blocked_is_blocked_again() {
    let (_db, [mut session]) = Db::connected();
    pipeline(&mut session);
    session.cancel(&["join"]).unwrap();
    assert_eq!(states(&mut session, ["join", "end", "fetch"]), ["aborted", "aborted", "ready"]);
    session.perform("fetch", "completed");
    session.perform("split", "completed");
    session.perform("part", "completed");
    assert_eq!(retry(&mut session, &["join"]), 2);
    let join = session.task("join").unwrap();
    assert_eq!((join.state.as_str(), join.num_signals, join.total_dependencies), ("blocked", 1, 3));
    work_off(&mut session, &["part", "join", "end", "aside"]);
    assert_eq!(session.state("end"), "completed");
}

#[test]
fn siblings_that_run_meanwhile_are_waited_for_and_counted_once() {
    let (_db, [mut session]) = Db::connected();
    pipeline(&mut session);
    session.perform("fetch", "completed");
    session.perform("split", "completed");
    let held = super::hold(&mut session, "part");
    session.give("part 1", held[0].token, "aborted").unwrap();
    // part 2 ends while join is dead, part 3 after it is alive again.
    session.complete(&held[1]);
    assert_eq!(retry(&mut session, &["part 1"]), 3);
    assert_eq!(session.task("join").unwrap().num_signals, 1);
    session.complete(&held[2]);
    assert_eq!(session.task("join").unwrap().num_signals, 2);
    session.perform("part", "completed");
    assert_eq!(ready(&mut session, "join"), ["join"]);
}

#[test]
fn of_two_failed_parents_the_dependent_comes_back_with_the_second() {
    let (_db, [mut session]) = Db::connected();
    pipeline(&mut session);
    session.perform("fetch", "completed");
    session.perform("split", "completed");
    for _ in 0..3 {
        session.perform("part", "aborted");
    }
    assert_eq!(retry(&mut session, &["part 1"]), 1, "join has two more lost dependencies");
    assert_eq!(retry(&mut session, &["part 2"]), 1);
    session.perform("part", "completed");
    session.perform("part", "completed");
    assert_eq!(states(&mut session, ["join", "end"]), ["aborted", "aborted"]);
    assert_eq!(retry(&mut session, &["part 3"]), 3);
    assert_eq!(session.task("join").unwrap().num_signals, 2);
    session.perform("part", "completed");
    assert_eq!(work_off(&mut session, &["join", "end"]).len(), 2);
}

#[test]
fn the_whole_of_a_failed_graph_can_be_named_at_once() {
    let (_db, [mut session]) = Db::connected();
    pipeline(&mut session);
    session.perform("fetch", "aborted");
    let all = ["end", "join", "part 1", "part 2", "part 3", "split", "fetch", "aside"];
    assert_eq!(states(&mut session, all), ["aborted"; 8]);
    assert_eq!(retry(&mut session, &all), 8);
    assert_eq!(states(&mut session, all).iter().filter(|state| *state == "blocked").count(), 7);
    let waves = work_off(&mut session, &["fetch", "split", "part", "join", "end", "aside"]);
    assert_eq!(waves.iter().map(Vec::len).sum::<usize>(), 8);
}

#[test]
fn spontaneous_tasks_come_back_and_pass_again() {
    let (_db, [mut session]) = Db::connected();
    let s = |id: &str, after: &[&str]| -> Value {
        json!({"id": id, "action": "s", "spontaneous": true, "depends_on": after})
    };
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y"}, s("s1", &["a"]), s("s2", &["s1", "b"]),
                       {"id": "end", "action": "end", "depends_on": ["s2", "s1"]}]))
        .unwrap();
    session.perform("x", "aborted");
    assert_eq!(states(&mut session, ["s1", "s2", "end"]), ["aborted"; 3]);
    session.perform("y", "completed");
    assert_eq!(retry(&mut session, &["a"]), 4);
    assert_eq!(states(&mut session, ["a", "s1", "s2", "end"]), ["ready", "blocked", "blocked", "blocked"]);
    session.perform("x", "completed");
    assert_eq!(states(&mut session, ["s1", "s2", "end"]), ["completed", "completed", "ready"]);
}

#[test]
fn a_cancelled_spontaneous_task_with_nothing_left_to_wait_for_completes_by_the_retry() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "s", "action": "s", "spontaneous": true, "depends_on": ["a"]},
               {"id": "t", "action": "s", "spontaneous": true, "depends_on": ["s"]},
               {"id": "end", "action": "end", "depends_on": ["t", "s"]}]),
    );
    session.cancel(&["s"]).unwrap();
    session.perform("x", "completed");
    assert_eq!(states(&mut session, ["s", "t", "end"]), ["aborted"; 3]);
    assert_eq!(retry(&mut session, &["s"]), 3);
    assert_eq!(states(&mut session, ["s", "t", "end"]), ["completed", "completed", "ready"]);
}
