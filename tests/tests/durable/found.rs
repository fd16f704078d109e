//! Where two mechanisms meet: suspending and some-of-many, children and batches, retries.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::{own_with_results, signal, suspend, suspended, waits_for};

const FOR_S: &str = "depends_on => '[{\"id\": \"s\", \"signal\": true}]'";

/// A task n for which one of d0 and d1 suffices, granted.
fn some_suffice(session: &mut Session) -> taskq_tests::Grant {
    session
        .insert(json!([{"id": "d0", "action": "d0"}, {"id": "d1", "action": "d1"},
                       {"id": "n", "action": "n", "depends_on": ["d0", "d1"], "num_required": 1}]))
        .unwrap();
    session.perform("d0", "completed");
    session.own_one("n")
}

#[test]
fn a_suspended_task_waits_for_all_whatever_has_sufficed_before() {
    let (_db, [mut session]) = Db::connected();
    let grant = some_suffice(&mut session);
    session.insert(json!([{"id": "e", "action": "e"}, {"id": "f", "action": "f"}])).unwrap();
    suspend(&mut session, &grant, FOR_S).unwrap();
    session.perform("f", "completed");
    session.depend(json!([{"after": "e", "run": "n"}, {"after": "f", "run": "n"}])).unwrap();
    session.perform("e", "completed");
    assert_eq!(waits_for(&mut session, "n").unwrap(), ["s"]);
    assert!(signal(&mut session, "s"));
    assert_eq!(session.state("n"), "ready");
}

#[test]
fn deleting_what_it_is_suspended_for_frees_it_whatever_has_sufficed_before() {
    let (_db, [mut session]) = Db::connected();
    let grant = some_suffice(&mut session);
    session.insert(json!([{"id": "d2", "action": "d2"}])).unwrap();
    suspend(&mut session, &grant, "depends_on => '[\"d2\", {\"id\": \"s\", \"signal\": true}]'").unwrap();
    session.delete(&["d2"]).unwrap();
    assert_eq!(waits_for(&mut session, "n").unwrap(), ["s"]);
    session.delete(&["s"]).unwrap();
    assert_eq!(session.state("n"), "ready");
}

#[test]
fn a_child_of_the_same_call_counts_as_well() {
    for (awaited, in_order) in [("w", true), ("w", false), ("n1", true)] {
        let (_db, [mut session]) = Db::with_tasks(
            json!([{"id": "n1", "action": "n"}, {"id": "n2", "action": "n"}, {"id": "w", "action": "w"}]),
        );
        let grants = session.own("x", 2, &["n"]).unwrap();
        let mut returns = vec![
            json!({"task_id": "n1", "token": grants[0].token, "status_code": "pending", "children_block": true,
                   "children": [{"id": "c1", "action": "c", "to_signal_after": ["n2"]}]}),
            json!({"task_id": "n2", "token": grants[1].token, "status_code": "pending", "depends_on": [awaited]}),
        ];
        if !in_order {
            returns.reverse();
        }
        session.query("SELECT * FROM taskq.return_tasks($1)", &[&json!(returns)]).unwrap();
        assert_eq!(session.broken(), Vec::<String>::new());
        session.perform("c", "completed");
        assert_eq!(waits_for(&mut session, "n2").unwrap(), [awaited]);
    }
}

#[test]
fn a_child_that_names_its_parent_is_waited_for_as_it_says() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('n', 'n'), taskq.insert_task('m', 'n')");
    let grants = session.own("w", 2, &["n"]).unwrap();
    let child = "children_block => true, children => '[{\"id\": \"c\", \"action\": \"c\", \"to_signal_after\": [\"n\"]}]'";
    suspend(&mut session, &grants[0], child).unwrap();
    let task = session.task("n").unwrap();
    assert_eq!((task.num_signals, task.total_dependencies), (0, 1));
    let named = "children_block => true, children => '[{\"id\": \"d\", \"action\": \"d\"}]',
                 depends_on => '[{\"id\": \"d\", \"condition\": \"completed\"}]'";
    suspend(&mut session, &grants[1], named).unwrap();
    session.perform("c", "aborted");
    session.perform("d", "aborted");
    assert_eq!((session.state("n"), session.state("m")), ("aborted".to_owned(), "aborted".to_owned()));
}

#[test]
fn what_was_dropped_comes_back_with_a_retry() {
    for retry in [
        "taskq.retry_group('g')",
        "taskq.retry_tasks('{d0,d1}')",
        "taskq.retry_tasks('{d0,d1,n}')",
        "taskq.reset_group('g')",
    ] {
        let (_db, [mut session]) = Db::with_tasks(
            json!([{"id": "d0", "action": "d0", "group_id": "g"}, {"id": "d1", "action": "d1", "group_id": "g"},
                   {"id": "d2", "action": "d2", "group_id": "g"}, {"id": "d3", "action": "d3", "group_id": "g"},
                   {"id": "n", "action": "n", "depends_on": ["d0", "d1", "d2", "d3"], "num_required": 3, "group_id": "g"}]),
        );
        session.perform("d0", "aborted");
        session.perform("d1", "aborted");
        assert_eq!(
            (session.state("n"), session.task("n").unwrap().total_dependencies),
            ("aborted".to_owned(), 2)
        );
        if !retry.contains("reset") {
            session.perform("d2", "completed");
        }
        session.run(&format!("SELECT {retry}"));
        let task = session.task("n").unwrap();
        assert_eq!((task.state.as_str(), task.total_dependencies), ("blocked", 4), "{retry}");
        if retry.contains("reset") {
            session.perform("d2", "completed");
        }
        session.perform("d0", "aborted");
        assert_eq!(session.state("n"), "blocked", "{retry}: it can do without one");
        session.perform("d1", "completed");
        session.perform("d3", "completed");
        assert_eq!(session.state("n"), "ready", "{retry}");
    }
}

#[test]
fn a_retry_with_too_few_dependencies_left_aborts_again() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "d0", "action": "d0"}, {"id": "d1", "action": "d1"}, {"id": "d2", "action": "d2"},
               {"id": "n", "action": "n", "depends_on": ["d0", "d1", "d2"], "num_required": 3}]),
    );
    session.delete(&["d1"]).unwrap();
    assert_eq!(session.state("n"), "aborted");
    session.run("SELECT taskq.retry_tasks('{n}')");
    assert_eq!(
        session.one::<String>("SELECT state || ' ' || cause FROM taskq.tasks WHERE id = 'n'"),
        "aborted dependency"
    );
}

/// It begins anew, and is suspended again if it wants.
#[test]
fn a_retry_ends_a_suspension() {
    let (_db, [mut session]) = Db::connected();
    suspended(&mut session, "a", "[{\"id\": \"got\", \"signal\": true}, {\"id\": \"s\", \"signal\": true}]");
    assert!(signal(&mut session, "got"));
    session.run("SELECT taskq.cancel_tasks('{a}'); SELECT taskq.retry_tasks('{a}')");
    let (grant, results) = own_with_results(&mut session, "work");
    assert_eq!((grant.num_tries, results.as_array().unwrap().len()), (1, 1), "what it has got it keeps");
    assert_eq!(session.delete(&["s"]).unwrap(), 1, "nothing goes with it");
    session.complete(&grant);
}

#[test]
fn two_that_wait_for_each_other_come_back() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "g", "action": "g"}, {"id": "f", "action": "f", "depends_on": ["g"]}]));
    session.cancel(&["f"]).unwrap();
    let g = session.own_one("g");
    assert_eq!(
        suspend(&mut session, &g, "depends_on => '[{\"id\": \"f\", \"condition\": \"completed\"}]'").unwrap(),
        "aborted"
    );
    session.run("SELECT taskq.retry_tasks('{f}')");
    assert_eq!((session.state("f"), session.state("g")), ("blocked".to_owned(), "ready".to_owned()));
}

#[test]
fn failures_go_with_the_end_that_is_taken_back() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "d0", "action": "d0"}, {"id": "n", "action": "n"}]));
    let grant = session.own_one("n");
    suspend(&mut session, &grant, "depends_on => '[\"d0\"]'").unwrap();
    session.perform("d0", "aborted");
    assert_eq!(session.task("n").unwrap().num_failures, 1);
    session.run("SELECT taskq.retry_tasks('{d0}')");
    assert_eq!(session.task("n").unwrap().num_failures, 0);
    let grant = session.own_one("n");
    suspend(&mut session, &grant, "depends_on => '[\"d0\"]'").unwrap();
    session.perform("d0", "completed");
    let (grant, results) = own_with_results(&mut session, "n");
    assert_eq!((grant.num_failures, results[0]["status_code"].as_str()), (0, Some("completed")));
}

#[test]
fn a_dependency_that_is_not_needed_blocks_nothing() {
    let (_db, [mut session]) = Db::connected();
    let grant = some_suffice(&mut session);
    session.give("n", grant.token, "pending").unwrap();
    session.insert(json!([{"id": "e", "action": "e"}])).unwrap();
    assert_eq!(session.depend_on("e", "n").unwrap(), 0);
    assert_eq!(session.state("n"), "ready");
}

#[test]
fn a_reset_takes_back_what_suspensions_have_added() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'x', group_id => 'g')");
    let grant = session.own_one("x");
    suspend(&mut session, &grant, FOR_S).unwrap();
    assert!(signal(&mut session, "s"));
    session.perform("x", "completed");
    session.run("SELECT taskq.reset_group('g')");
    let task = session.task("a").unwrap();
    assert_eq!((task.state.as_str(), task.total_dependencies), ("ready", 0));
}

#[test]
fn what_starts_over_is_not_needed_where_others_suffice() {
    for start_over in ["taskq.rerun_tasks('{a}')", "taskq.reset_group('g')"] {
        let (_db, [mut session]) = Db::with_tasks(
            json!([{"id": "a", "action": "a", "group_id": "g"}, {"id": "b", "action": "b"}, {"id": "c", "action": "c"}]),
        );
        session.run("SELECT taskq.complete_task(x) FROM unnest('{a,b,c}'::text[]) AS x");
        session
            .insert(json!([{"id": "n", "action": "n", "depends_on": ["a", "b", "c"], "num_required": 2}]))
            .unwrap();
        session.run(&format!("SELECT {start_over}"));
        assert_eq!(session.state("n"), "ready", "{start_over}");
        session.cancel(&["a"]).unwrap();
        session.run("SELECT taskq.rerun_tasks('{b}')");
        assert_eq!(
            session.state("n"),
            "blocked",
            "{start_over}: one is missing, and it has gone on without one of the others"
        );
        let why: Vec<String> = session.all("SELECT taskq.why('n')");
        assert_eq!(why[0], "it needs 2 of its 2 dependencies: 1 more");
        session.perform("b", "completed");
        assert_eq!(session.state("n"), "ready", "{start_over}");
    }
}

#[test]
fn what_it_has_gone_on_without_is_no_dependency_when_another_starts_over() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
            {"id": "n", "action": "n", "depends_on": [{"id": "a", "condition": "settled"}, "b"], "num_required": 1}]));
    session.perform("a", "aborted");
    session.perform("b", "completed");
    session.run("SELECT taskq.retry_tasks('{a}')");
    let task = session.task("n").unwrap();
    assert_eq!((task.state.as_str(), task.total_dependencies, task.num_failures), ("blocked", 1, 0));
    session.perform("a", "completed");
    assert_eq!(session.state("n"), "ready");
}

#[test]
fn a_retry_brings_no_suspended_task_back_that_has_lost_another() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "d0", "action": "z"}, {"id": "d1", "action": "z"}]));
    suspended(&mut session, "t", "[\"d1\", {\"id\": \"d0\", \"condition\": \"completed\"}]");
    session.cancel(&["d1"]).unwrap();
    session.cancel(&["d0"]).unwrap();
    assert_eq!(session.state("t"), "aborted");
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{d1}')"), 1);
    assert_eq!(session.state("t"), "aborted");
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{d0}')"), 2);
    assert_eq!(session.state("t"), "ready");
}
