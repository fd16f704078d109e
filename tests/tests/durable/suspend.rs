//! Suspending: for what a task waits, what it has given up meanwhile, and how it goes on.

use serde_json::json;
use taskq_tests::{Db, sqlstate};

use super::{own_with_results, signal, suspend, suspended, waits_for};

#[test]
fn it_goes_on_when_all_have_ended_and_the_try_does_not_count() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "t", "action": "work"}]),
    );
    let grant = session.own_one("work");
    assert_eq!(suspend(&mut session, &grant, "depends_on => '[\"a\", \"b\"]'").unwrap(), "pending");
    let task = session.task("t").unwrap();
    assert_eq!((task.state.as_str(), task.num_tries, task.action_deadline), ("blocked", 0, None));
    assert_eq!(waits_for(&mut session, "t"), Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.attempts"), 0, "it is no try");
    // The token is good for nothing any more.
    let error = session.give("t", grant.token, "completed").unwrap_err();
    assert_eq!(sqlstate(&error), "TQ001");
    session.perform("x", "completed");
    assert_eq!(waits_for(&mut session, "t"), Some(vec!["b".to_owned()]));
    session.perform("x", "aborted");
    assert_eq!(waits_for(&mut session, "t"), None);
    let (again, results) = own_with_results(&mut session, "work");
    assert_eq!((again.num_tries, again.num_failures), (1, 1));
    assert_ne!(again.token, grant.token);
    let codes: Vec<&str> =
        results.as_array().unwrap().iter().map(|r| r["status_code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["completed", "aborted"]);
    session.complete(&again);
}

#[test]
fn what_has_ended_counts_at_once_and_an_empty_list_is_over_at_once() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "done", "action": "x"},
            {"id": "t", "action": "work", "depends_on": [{"id": "done", "condition": "aborted"}]}]));
    session.perform("x", "aborted");
    let grant = session.own_one("work");
    // It depended on this one before, on another condition than the one that suspending means.
    for awaited in ["[\"done\"]", "[{\"id\": \"done\", \"condition\": \"completed\"}]", "[]"] {
        let grant = if awaited == "[\"done\"]" { grant.clone() } else { session.own_one("work") };
        assert_eq!(suspend(&mut session, &grant, &format!("depends_on => '{awaited}'")).unwrap(), "pending");
        assert_eq!(session.state("t"), "ready", "{awaited}");
    }
    let task = session.task("t").unwrap();
    assert_eq!((task.num_tries, task.total_dependencies, task.num_failures), (0, 1, 1));
}

#[test]
fn a_condition_that_is_lost_aborts_it_at_once_or_later() {
    for lost_before in [true, false] {
        let (_db, [mut session]) =
            Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "t", "action": "work"},
                    {"id": "after", "action": "y", "depends_on": ["t"]}]));
        let grant = session.own_one("work");
        if lost_before {
            session.perform("x", "aborted");
        }
        let code =
            suspend(&mut session, &grant, "depends_on => '[{\"id\": \"a\", \"condition\": \"completed\"}]'");
        assert_eq!(code.unwrap(), if lost_before { "aborted" } else { "pending" });
        if !lost_before {
            session.perform("x", "aborted");
        }
        let causes: Vec<String> =
            session.all("SELECT id || ' ' || cause FROM taskq.tasks WHERE id <> 'a' ORDER BY 1");
        assert_eq!(causes, ["after dependency", "t dependency"]);
    }
}

#[test]
fn children_are_waited_for_alone_and_beside_others() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('other', 'x'), taskq.insert_task('t', 'work')");
    let grant = session.own_one("work");
    let children = "children_block => true, children => '[{\"id\": \"c\", \"action\": \"child\"},
        {\"id\": \"d\", \"action\": \"child\", \"depends_on\": [\"c\"]}]'";
    suspend(&mut session, &grant, &format!("depends_on => '[\"other\"]', {children}")).unwrap();
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["c", "d", "other"]);
    session.perform("child", "aborted");
    // One that aborts, and what aborts with it, are over.
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["other"]);
    session.perform("x", "completed");
    let grant = session.own_one("work");
    assert_eq!(grant.num_failures, 2);
    suspend(&mut session, &grant, "children => '[{\"id\": \"e\", \"action\": \"late\"}]', children_block => true, delay_children => '1 hour'")
        .unwrap();
    assert_eq!((session.state("t"), session.state("e")), ("blocked".to_owned(), "scheduled".to_owned()));
    session.run("SELECT taskq.update_tasks('{e}', delay => '0')");
    session.perform("late", "completed");
    // No child at all is something to wait for that is over at once, and no try that failed.
    let grant = session.own_one("work");
    suspend(&mut session, &grant, "children => '[]', children_block => true").unwrap();
    assert_eq!(session.state("t"), "ready");
    assert_eq!(session.task("t").unwrap().num_tries, 0);
}

#[test]
fn a_signal_that_is_missing_is_inserted_and_one_that_is_there_is_waited_for() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'work', group_id => 'g'), taskq.insert_task('u', 'work')");
    for id in ["t", "u"] {
        let grant = session.own_one("work");
        assert_eq!(grant.task_id, id);
        suspend(
            &mut session,
            &grant,
            "depends_on => '[{\"id\": \"s\", \"signal\": true}, {\"id\": \"other\", \"signal\": true,
            \"action\": \"approval\", \"group_id\": \"h\"}]'",
        )
        .unwrap();
    }
    let signals: Vec<String> = session
        .all("SELECT concat_ws(' ', id, action, group_id, state) FROM taskq.tasks WHERE id IN ('s', 'other') ORDER BY id");
    assert_eq!(signals, ["other approval h blocked", "s signal g blocked"]);
    assert!(signal(&mut session, "s") && signal(&mut session, "other"));
    assert_eq!((session.state("t"), session.state("u")), ("ready".to_owned(), "ready".to_owned()));
    // An ordinary task of that name is an ordinary dependency.
    session.run("SELECT taskq.insert_task('plain', 'x')");
    let grant = session.own_one("work");
    suspend(&mut session, &grant, "depends_on => '[{\"id\": \"plain\", \"signal\": true}]'").unwrap();
    session.perform("x", "completed");
    assert_eq!(session.state(&grant.task_id), "ready");
}

#[test]
fn results_of_earlier_suspensions_come_again() {
    let (_db, [mut session]) = Db::connected();
    suspended(&mut session, "t", "[{\"id\": \"one\", \"signal\": true}]");
    session.run("SELECT taskq.signal('one', '1')");
    let grant = session.own_one("work");
    suspend(&mut session, &grant, "depends_on => '[{\"id\": \"two\", \"signal\": true}]'").unwrap();
    session.run("SELECT taskq.signal('two', '2', 'said')");
    let (grant, results) = own_with_results(&mut session, "work");
    let told: Vec<String> =
        results.as_array().unwrap().iter().map(|r| format!("{} {}", r["task_id"], r["result"])).collect();
    assert_eq!(told, ["\"one\" 1", "\"two\" 2"]);
    // A try that fails counts, and the next one gets the same.
    session.give("t", grant.token, "pending").unwrap();
    let (grant, results) = own_with_results(&mut session, "work");
    assert_eq!((grant.num_tries, results.as_array().unwrap().len()), (2, 2));
}

#[test]
fn it_is_not_owned_before_retry_after() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'work')");
    let grant = session.own_one("work");
    suspend(
        &mut session,
        &grant,
        "depends_on => '[{\"id\": \"s\", \"signal\": true}]', retry_after => '1 hour', status => 'half way'",
    )
    .unwrap();
    assert!(signal(&mut session, "s"));
    assert_eq!(session.state("t"), "scheduled");
    assert_eq!(session.task("t").unwrap().status.as_deref(), Some("half way"));
}

#[test]
fn the_batch_forms_suspend_as_well() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "work"}, {"id": "b", "action": "work"}, {"id": "c", "action": "work"}, {"id": "d", "action": "work"}]),
    );
    let grants = session.own("w", 3, &["work"]).unwrap();
    // One waits for another that the same call ends, and one for a task that the same call gives back.
    let returns = json!([
        {"task_id": "a", "token": grants[0].token},
        {"task_id": "b", "token": grants[1].token, "status_code": "pending", "depends_on": ["a", {"id": "s", "signal": true}],
         "wait_at_most": "2 days"},
        {"task_id": "c", "token": grants[2].token, "status_code": "pending", "children_block": true, "children": [{"id": "child", "action": "child"}]},
    ]);
    let granted: Vec<String> = session
        .query("SELECT task_id FROM taskq.return_and_own_tasks('w', $1, 5, '{work,child}')", &[&returns])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(granted, ["d", "child"]);
    assert_eq!(waits_for(&mut session, "b").unwrap(), ["s"]);
    assert_eq!(waits_for(&mut session, "c").unwrap(), ["child"]);
    assert!(session.one::<bool>(
        "SELECT until BETWEEN now() + '47 hours' AND now() + '49 hours' FROM taskq.waits WHERE task_id = 'b'"
    ));
}

/// Each level waits for the one below, by no other means than the first.
#[test]
fn children_of_children_are_waited_for_level_by_level() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('0', 'work')");
    for level in 0..5 {
        let grant = session.own_one("work");
        assert_eq!(grant.task_id, level.to_string());
        let child = format!(
            "children_block => true, children => '[{{\"id\": \"{}\", \"action\": \"work\"}}]'",
            level + 1
        );
        assert_eq!(suspend(&mut session, &grant, &child).unwrap(), "pending");
    }
    for level in (0..=5).rev() {
        let grant = session.own_one("work");
        assert_eq!((grant.task_id.as_str(), grant.num_tries), (level.to_string().as_str(), 1));
        assert!(session.own("w", 9, &["work"]).unwrap().is_empty(), "only the deepest is free");
        session.complete(&grant);
    }
}
