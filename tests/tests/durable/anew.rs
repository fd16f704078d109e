//! Tasks for which some of their dependencies suffice, when they or what they depend on start over.

use serde_json::json;
use taskq_tests::{Db, Progress, Session};

use super::{signal, suspend, waits_for};

const FOR_S: &str = "depends_on => '[{\"id\": \"s\", \"signal\": true}]'";

/// Tasks a, b, c, each of an action of its own name; and t, which needs so many of these.
fn insert(session: &mut Session, depends_on: &[&str], required: i32) {
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"}, {"id": "c", "action": "c"},
                       {"id": "t", "action": "t", "depends_on": depends_on, "num_required": required}]))
        .unwrap();
}

fn why(session: &mut Session) -> String {
    session.all::<String>("SELECT taskq.why('t')").remove(0)
}

/// On wrong code the task counts the third one as open, whose end has looked for it already, and waits for ever.
#[test]
fn a_task_waits_for_none_without_which_it_went_on_and_that_ends_meanwhile() {
    for start_over in ["taskq.rerun_tasks('{a}')", "taskq.reset_group('g')"] {
        let (_db, [mut first, second, mut session]) = Db::connected();
        session
            .insert(json!([{"id": "a", "action": "a", "group_id": "g"}, {"id": "b", "action": "b"}, {"id": "c", "action": "c"},
                           {"id": "t", "action": "t", "depends_on": ["a", "b", "c"], "num_required": 2}]))
            .unwrap();
        session.perform("a", "completed");
        session.perform("b", "completed");
        let c = first.own_one("c");
        first.run("BEGIN");
        first.complete(&c);
        let sql = format!("SELECT {start_over}");
        let second = second.background(move |s| s.run(&sql));
        assert_ne!(second.settle_down(&mut session), Progress::Blocked, "{start_over}");
        first.run("COMMIT");
        second.join();
        assert_eq!(why(&mut session), "it needs 2 of its 2 dependencies: 1 more", "{start_over}");
        session.perform("a", "completed");
        assert_eq!(session.state("t"), "ready", "{start_over}");
    }
}

#[test]
fn a_reset_puts_a_seed_before_those_of_its_dependencies_that_are_left() {
    for (a_is_seed, ends) in [(true, &["a"][..]), (false, &["a", "t"][..])] {
        let (_db, [mut session]) = Db::with_tasks(
            json!([{"id": "a", "action": "a", "group_id": "g", "seed": a_is_seed},
                   {"id": "b", "action": "b", "group_id": "g", "seed": !a_is_seed},
                   {"id": "t", "action": "t", "group_id": "g", "seed": true, "depends_on": ["a", "b"], "num_required": 1}]),
        );
        for id in ends {
            session.perform(id, "completed");
        }
        session.run("SELECT taskq.reset_group('g')");
        let task = session.task("t").unwrap();
        assert_eq!((task.state.as_str(), task.total_dependencies), ("blocked", 1));
        session.perform(if a_is_seed { "a" } else { "b" }, "completed");
        assert_eq!(session.state("t"), "ready");
    }
}

#[test]
fn what_is_gone_counts_only_for_a_task_that_had_enough() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a", "b"], 1);
    session.cancel(&["t"]).unwrap();
    session.delete(&["b"]).unwrap();
    session.run("SELECT taskq.retry_tasks('{t}')");
    assert_eq!(session.state("t"), "blocked", "one that never ended was deleted");

    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a", "b"], 1);
    session.run("SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"a\"}]')");
    session.cancel(&["t"]).unwrap();
    session.run("SELECT taskq.retry_tasks('{t}')");
    assert_eq!(session.state("t"), "blocked", "one was lost when it was replaced");

    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a", "b", "c"], 1);
    session.perform("a", "aborted");
    session.perform("b", "completed");
    session.delete(&["a"]).unwrap();
    session.run("SELECT taskq.rerun_tasks('{b}')");
    assert_eq!(
        session.state("t"),
        "blocked",
        "one that was lost is gone, and the one that it had starts over"
    );

    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a", "b"], 1);
    session.perform("a", "completed");
    session.perform("t", "aborted");
    session.delete(&["a"]).unwrap();
    session.run("SELECT taskq.retry_tasks('{t}')");
    assert_eq!(session.state("t"), "ready", "it had one, which is gone");
}

#[test]
fn what_a_suspension_has_added_is_none_of_those_of_which_some_suffice() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "a"},
            {"id": "t", "action": "t", "depends_on": [{"id": "a", "condition": "settled"}], "num_required": 1}]));
    session.perform("a", "aborted");
    let grant = session.own_one("t");
    suspend(&mut session, &grant, FOR_S).unwrap();
    assert!(signal(&mut session, "s"));
    session.run("SELECT taskq.rerun_tasks('{a}')");
    assert_eq!(session.state("t"), "blocked");
    session.cancel(&["t"]).unwrap();
    session.run("SELECT taskq.retry_tasks('{t}')");
    assert_eq!(session.state("t"), "blocked");
    session.perform("a", "aborted");
    let task = session.task("t").unwrap();
    assert_eq!((task.state.as_str(), task.num_failures), ("ready", 1));
}

#[test]
fn a_suspended_task_waits_for_no_more_of_them_than_it_had() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a", "b"], 1);
    session.perform("a", "aborted");
    session.perform("b", "completed");
    let grant = session.own_one("t");
    suspend(&mut session, &grant, FOR_S).unwrap();
    session.run("SELECT taskq.rerun_tasks('{a}')");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["s"]);
    session.perform("a", "aborted");
    session.run("SELECT taskq.rerun_tasks('{b}')");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["b", "s"], "that was the one that it had");
    assert!(signal(&mut session, "s"));
    assert_eq!(session.state("t"), "blocked");
    session.perform("b", "completed");
    assert_eq!(session.state("t"), "ready");
}

#[test]
fn what_a_task_in_progress_went_on_without_may_start_over() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a", "b"], 1);
    session.perform("a", "completed");
    let grant = session.own_one("t");
    session.perform("b", "completed");
    assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{b}')"), 1);
    session.complete(&grant);
}

#[test]
fn a_task_keeps_what_it_has_counted_of_one_when_another_starts_over() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a", "b"], 2);
    session.perform("a", "completed");
    session.perform("b", "completed");
    session.run("SELECT taskq.rerun_tasks('{a}', false)");
    session.run("SELECT taskq.rerun_tasks('{b}')");
    session.perform("b", "completed");
    assert_eq!(session.state("t"), "ready");
}

#[test]
fn a_suspended_task_may_be_given_again_what_it_went_on_without() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a", "b"], 1);
    session.perform("a", "completed");
    let grant = session.own_one("t");
    suspend(&mut session, &grant, FOR_S).unwrap();
    assert_eq!(session.depend_on("b", "t").unwrap(), 1);
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["b", "s"]);
    assert!(signal(&mut session, "s"));
    session.perform("b", "completed");
    assert_eq!(session.state("t"), "ready");
}

#[test]
fn a_rewound_task_goes_on_with_those_that_it_had() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, &["a"], 1);
    session.perform("a", "completed");
    let grant = session.own_one("t");
    session.run(&format!("SELECT taskq.save_step('t', '{}', 'x', '1')", grant.token));
    suspend(&mut session, &grant, FOR_S).unwrap();
    session.depend_on("c", "t").unwrap();
    session.run("SELECT taskq.rewind_task('t', 'x')");
    assert_eq!(session.state("t"), "ready");
    session.perform("c", "aborted");
    assert_eq!(session.state("t"), "ready");
}

/// On wrong code each of these is looked for among all dependencies of the task.
#[test]
fn some_of_very_many_start_over_without_reading_all_for_each() {
    let (_db, [mut session]) = Db::connected();
    // By these statistics a task has one dependency.
    session.run("SELECT taskq.insert_tasks(jsonb_agg(x)) FROM generate_series(1, 300) AS n, LATERAL (VALUES (jsonb_build_object('id', 'o' || n, 'action', 'o')), (jsonb_build_object('action', 'n', 'depends_on', jsonb_build_array('o' || n)))) AS v (x)");
    session.run("VACUUM ANALYZE taskq.dependency");
    session.run("SELECT taskq.insert_tasks(jsonb_agg(jsonb_build_object('id', 'm' || n, 'action', 'm'))) FROM generate_series(1, 3000) AS n");
    session.run("SELECT taskq.complete_task('m' || n) FROM generate_series(1, 3000) AS n");
    session.run("SELECT taskq.insert_tasks(jsonb_build_array(jsonb_build_object('id', 't', 'action', 't', 'num_required', 1, 'depends_on', jsonb_agg('m' || n)))) FROM generate_series(1, 3000) AS n");
    session.run("BEGIN");
    assert_eq!(
        session.one::<i64>("SELECT taskq.rerun_tasks(array_agg('m' || n)) FROM generate_series(1, 50) AS n"),
        50
    );
    let read: i64 = session.one(
        "SELECT idx_tup_fetch FROM pg_stat_xact_user_tables WHERE schemaname = 'taskq' AND relname = 'dependency'",
    );
    session.run("COMMIT");
    assert!(read < 30_000, "{read} dependencies were read");
    assert_eq!(session.state("t"), "ready");
}
