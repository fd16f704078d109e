//! `retry_tasks`: which tasks may come back, by ids and by filters. A task whose dependency stays aborted cannot run;
//! asked for by its id that is refused and changes nothing, met by a filter it is passed over.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

use super::states;

/// `a` aborted by its worker, `b` and `c` because of it; `skipped` because `done` completed.
fn failed(session: &mut Session) {
    session
        .insert(json!([
            {"id": "a", "action": "x", "group_id": "g1"}, {"id": "b", "action": "y", "group_id": "g1", "depends_on": ["a"]},
            {"id": "c", "action": "y", "group_id": "g2", "depends_on": ["b"]},
            {"id": "done", "action": "done", "group_id": "g1"},
            {"id": "skipped", "action": "y", "group_id": "g2", "depends_on": [{"id": "done", "condition": "aborted"}]},
            {"id": "other", "action": "x", "group_id": "g2"},
        ]))
        .unwrap();
    let a = session.own_one("x");
    session.give_with("a", a.token, "aborted", "status => 'time-out after 30 s'").unwrap();
    let other = session.own_one("x");
    session.give_with("other", other.token, "aborted", "status => 'no such file'").unwrap();
    session.perform("done", "completed");
    assert_eq!(states(session, ["a", "b", "c", "skipped", "other"]), ["aborted"; 5]);
}

/// Retries with these arguments in a transaction that is rolled back; the ids that came back.
fn came_back(session: &mut Session, arguments: &str) -> Vec<String> {
    session.run("BEGIN");
    let count: i64 = session.one(&format!("SELECT taskq.retry_tasks({arguments})"));
    let back: Vec<String> = session.all("SELECT id FROM taskq.tasks WHERE settled_at IS NULL ORDER BY id");
    session.run("ROLLBACK");
    assert_eq!(back.len() as i64, count, "{arguments}");
    back
}

#[test]
fn a_dependent_asked_for_by_its_id_is_refused_while_its_dependency_stays_lost() {
    let (_db, [mut session]) = Db::connected();
    failed(&mut session);
    for (ids, naming) in
        [("{b}", "b"), ("{c}", "c"), ("{other,c}", "c"), ("{skipped}", "skipped"), ("{a,skipped}", "skipped")]
    {
        let error =
            refused(&mut session, "TQ005", naming, &format!("SELECT taskq.retry_tasks('{ids}')"), &[]);
        let dependency = match naming {
            "b" => "\"a\"",
            "c" => "\"b\"",
            _ => "\"done\"",
        };
        let text = format!("{} {}", error.message(), error.detail().unwrap());
        assert!(text.contains(dependency), "the refusal names the dependency: {text}");
        // A task that has completed cannot be retried: the hint does not lead there.
        let hint = error.hint().unwrap();
        assert_eq!(hint.contains("Retry the task that it depends on"), naming != "skipped", "{hint}");
        assert_eq!(text.contains("skipped: it runs only if \"done\" aborts"), naming == "skipped", "{text}");
    }
    assert_eq!(came_back(&mut session, "'{c,b,a}'"), ["a", "b", "c"], "together they can come back");
}

#[test]
fn unknown_ids_null_and_tasks_that_have_not_aborted_are_left_alone() {
    let (_db, [mut session]) = Db::connected();
    failed(&mut session);
    assert!(came_back(&mut session, "ARRAY['absent', NULL, 'done']").is_empty());
    assert!(came_back(&mut session, "'{}'").is_empty());
    assert_eq!(came_back(&mut session, "ARRAY['absent', NULL, 'done', 'other', 'other']"), ["other"]);
    refused(&mut session, "22004", "task_ids", "SELECT taskq.retry_tasks(NULL)", &[]);
    refused(&mut session, "22004", "task_ids", "SELECT taskq.retry_tasks()", &[]);
}

#[test]
fn filters_apply_together_and_pass_over_tasks_that_cannot_come_back() {
    let (_db, [mut session]) = Db::connected();
    failed(&mut session);
    let cases: [(&str, &[&str]); 11] = [
        ("actions => '{x}'", &["a", "b", "c", "other"]),
        ("actions => '{y}'", &[]),
        ("actions => '{x,y}'", &["a", "b", "c", "other"]),
        ("groups => '{g1}'", &["a", "b", "c"]),
        ("groups => '{g2}'", &["other"]),
        ("groups => '{g2}', actions => '{x}'", &["other"]),
        ("status_like => 'time-out%'", &["a", "b", "c"]),
        ("status_like => '%file', groups => '{g1}'", &[]),
        ("task_ids => '{a,b,other}', groups => '{g2}'", &["other"]),
        ("task_ids => '{b}', actions => '{y}'", &[]),
        ("actions => '{absent}'", &[]),
    ];
    for (arguments, expected) in cases {
        assert_eq!(came_back(&mut session, arguments), expected, "{arguments}");
    }
}

#[test]
fn what_aborted_by_itself_downstream_stays_and_so_does_what_hangs_on_it() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]},
                {"id": "c", "action": "y", "depends_on": ["b"]}]));
    // Cancelled on purpose, before a failed: that is not a's doing.
    session.cancel(&["b"]).unwrap();
    session.perform("x", "aborted");
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{a}')"), 1);
    assert_eq!(states(&mut session, ["a", "b", "c"]), ["ready", "aborted", "aborted"]);
    session.perform("x", "completed");
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{b}')"), 2);
    assert_eq!(states(&mut session, ["b", "c"]), ["ready", "blocked"]);
}

#[test]
fn a_dependency_that_would_close_a_cycle_by_now_is_refused() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]},
                {"id": "c", "action": "z", "depends_on": ["b"]}]));
    session.cancel(&["b"]).unwrap();
    // b and c have ended, so a may wait for c, whatever way it ended.
    session.depend(json!([{"after": "c", "run": "a", "condition": "settled"}])).unwrap();
    assert_eq!(session.state("a"), "ready");
    let error = refused(&mut session, "TQ004", "", "SELECT taskq.retry_tasks('{b}')", &[]);
    assert!(error.detail().unwrap().contains("a -> b -> c -> a"), "{error:?}");
    session.perform("x", "completed");
    // Now a has ended, and waits for no task.
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{b}')"), 2);
}

#[test]
fn a_graph_half_of_which_cannot_come_back_is_sorted_out_quickly() {
    // A chain of 20,000 inserted last first, whose second task has lost two dependencies; only one is retried.
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'x',
                    'depends_on', CASE i WHEN 1 THEN '[]' WHEN 2 THEN '[\"c1\", \"extra\"]' ELSE jsonb_build_array('c' || i - 1) END)
                    ORDER BY i DESC) FROM generate_series(1, 20000) i) || '[{\"id\": \"extra\", \"action\": \"x\"}]');
         SELECT taskq.cancel_tasks('{extra}'); SELECT taskq.cancel_tasks('{c1}');
         SET statement_timeout = '20s'",
    );
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{c1}')"), 1);
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{extra}')"), 20_000);
}
