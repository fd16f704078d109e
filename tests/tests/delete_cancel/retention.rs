//! Retention: a settled task is kept for as long as it says, then removed by the queue itself, and nothing goes with it.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, sqlstate, until};

/// A worker looks for work, a few times: the work per call may be bounded.
fn a_worker_calls(session: &mut Session) {
    for _ in 0..5 {
        session.own("other", 1, &["unrelated"]).unwrap();
    }
}

fn left(session: &mut Session) -> Vec<String> {
    session.all("SELECT id FROM taskq.tasks ORDER BY id")
}

#[test]
fn each_task_goes_when_its_own_time_is_over_and_the_others_by_default_after_a_week() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let tasks = json!([
        {"id": "hour", "action": "x", "retention": "1 hour"}, {"id": "month", "action": "x", "retention": "30 days"},
        {"id": "week", "action": "x"}, {"id": "week too", "action": "x"}, {"id": "open", "action": "y", "retention": "0"},
    ]);
    session.insert(tasks).unwrap();
    for code in ["completed", "completed", "completed", "aborted"] {
        session.perform("x", code);
    }
    for (now, expected) in [
        ("2030-01-01 00:59:59Z", vec!["hour", "month", "open", "week", "week too"]),
        ("2030-01-01 01:01:01Z", vec!["month", "open", "week", "week too"]),
        ("2030-01-07 23:59:59Z", vec!["month", "open", "week", "week too"]),
        ("2030-01-08 00:01:01Z", vec!["month", "open"]),
        ("2030-01-31 00:01:01Z", vec!["open"]),
    ] {
        session.set_now(Some(now));
        a_worker_calls(&mut session);
        assert_eq!(left(&mut session), expected, "at {now}");
    }
}

#[test]
fn the_setting_is_the_default_and_minus_one_is_for_ever() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "minute", "action": "x"}, {"id": "for ever", "action": "x"}])).unwrap();
    session.run("SET taskq.retention = '1min'");
    session.perform("x", "completed");
    session.run("SET taskq.retention = -1");
    session.perform("x", "completed");
    session.run("RESET taskq.retention");
    session.set_now(Some("2130-01-01 00:00:00Z"));
    a_worker_calls(&mut session);
    assert_eq!(left(&mut session), ["for ever"]);
}

/// At the higher levels of isolation a row that another session has removed since the snapshot fails with `40001`: no
/// reason to lose a grant, when it is the row of a task whose retention was over. (The trigger stands for the moment,
/// which is short.)
#[test]
fn a_grant_does_not_fail_for_what_others_have_removed_meanwhile() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "old", "action": "x", "retention": "0"}]));
    session.cancel(&["old"]).unwrap();
    session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    session.run(
        "CREATE FUNCTION public.faster() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE 'another was faster' USING ERRCODE = TG_ARGV[0]; END $$;
         CREATE TRIGGER faster BEFORE DELETE ON taskq.settled FOR EACH ROW EXECUTE FUNCTION public.faster('40001')",
    );
    for level in ["repeatable read", "serializable"] {
        session.run(&format!("SET default_transaction_isolation = '{level}'"));
        let grant = session.own_one("x");
        assert_eq!(left(&mut session), ["a", "b", "old"], "{level}: what was done of the removal is undone");
        session.give(&grant.task_id, grant.token, "pending").unwrap();
    }
    // Other errors are none that a call may keep to itself.
    session.run(
        "DROP TRIGGER faster ON taskq.settled;
         CREATE TRIGGER faster BEFORE DELETE ON taskq.settled FOR EACH ROW EXECUTE FUNCTION public.faster('22012')",
    );
    assert_eq!(sqlstate(&session.own("w", 1, &["x"]).unwrap_err()), "22012");
    session.run("DROP TRIGGER faster ON taskq.settled");
    // A session that was cut off in a step leaves the next ones to the worker of the database, which may have failed as well and waits
    // before it comes again.
    until("the removal goes on", || {
        a_worker_calls(&mut session);
        (left(&mut session) == ["a", "b"]).then_some(())
    });
}

/// Tasks whose retention is said in all ways there are: those whose id ends in `c` complete, the others abort.
const KEPT: [(&str, &str, &str, &str); 17] = [
    ("plain c", "plain", "null", "00:10:00"),
    ("plain a", "plain", "null", "00:20:00"),
    ("both c", "both", "null", "03:00:00"),
    ("both a", "both", "null", "04:00:00"),
    ("one c", "one", "null", "05:00:00"),
    ("one a", "one", "null", "05:00:00"),
    ("failed c", "failed", "null", "00:10:00"),
    ("failed a", "failed", "null", "06:00:00"),
    ("own c", "both", "\"1 day\"", "1 day"),
    ("own a", "both", "\"1 day\"", "1 day"),
    ("object c", "both", r#"{"completed": "2 days", "aborted": "3 days"}"#, "2 days"),
    ("object a", "both", r#"{"completed": "2 days", "aborted": "3 days"}"#, "3 days"),
    ("half c", "both", r#"{"aborted": "4 days"}"#, "03:00:00"),
    ("half a", "both", r#"{"completed": "4 days"}"#, "04:00:00"),
    ("empty a", "plain", "{}", "00:20:00"),
    ("null a", "both", r#"{"aborted": null}"#, "04:00:00"),
    ("zero a", "both", r#"{"completed": "1 day", "aborted": "0"}"#, "00:00:00"),
];

#[test]
fn aborted_tasks_may_have_a_retention_of_their_own() {
    for many in [false, true] {
        let (_db, [mut session]) = Db::connected();
        session.set_now(Some("2030-01-01 00:00:00Z"));
        session.run(
            "SET taskq.retention = '10min'; SET taskq.retention_aborted = '20min'; \
             SELECT taskq.set_action('both', retention => '3 hours', retention_aborted => '4 hours'); \
             SELECT taskq.set_action('one', retention => '5 hours'); \
             SELECT taskq.set_action('failed', retention_aborted => '6 hours')",
        );
        let tasks: Vec<Value> = KEPT
            .iter()
            .map(|(id, action, retention, _)| {
                json!({"id": id, "action": action, "retention": serde_json::from_str::<Value>(retention).unwrap()})
            })
            .collect();
        session.insert(json!(tasks)).unwrap();
        let returns: Vec<Value> = session
            .own("w", 99, &["plain", "both", "one", "failed"])
            .unwrap()
            .iter()
            .map(|grant| {
                let code = if grant.task_id.ends_with('a') { "aborted" } else { "completed" };
                json!({"task_id": grant.task_id, "token": grant.token, "status_code": code, "status": grant.task_id})
            })
            .collect();
        // One at a time they end alike, together each in its own way: two statements.
        let calls: Vec<Value> =
            if many { vec![json!(returns)] } else { returns.into_iter().map(|one| json!([one])).collect() };
        for call in calls {
            session.query("SELECT * FROM taskq.return_tasks($1::jsonb)", &[&call]).unwrap();
        }
        for (id, _, _, kept) in KEPT {
            let query = "SELECT (s.expires_at - s.settled_at)::text FROM taskq.settled s JOIN taskq.task USING (task_no) \
                         WHERE id = $1";
            let found: String = session.query_one(query, &[&id]).unwrap().get(0);
            assert_eq!(found, kept, "{id}, many {many}");
        }
        // The views show what was said.
        let shown =
            "SELECT concat_ws(' ', retention, retention_aborted) FROM taskq.tasks WHERE id = 'object a'";
        assert_eq!(session.one::<String>(shown), "2 days 3 days");
        let shown =
            "SELECT concat_ws(' ', retention, retention_aborted) FROM taskq.actions WHERE action = 'both'";
        assert_eq!(session.one::<String>(shown), "03:00:00 04:00:00");
    }
}

#[test]
fn what_is_said_of_aborted_tasks_can_be_unsaid() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.retention = '10min'");
    let kept = |session: &mut Session, call: &str| -> String {
        session.run(call);
        session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        session.perform("x", "aborted");
        let kept = session.one("SELECT (expires_at - settled_at)::text FROM taskq.settled");
        session.delete(&["a"]).unwrap();
        kept
    };
    assert_eq!(kept(&mut session, "SET taskq.retention_aborted = 0"), "00:00:00");
    assert_eq!(kept(&mut session, "SET taskq.retention_aborted = -2"), "00:10:00");
    assert_eq!(kept(&mut session, "SELECT taskq.set_action('x', retention_aborted => '1 hour')"), "01:00:00");
    assert_eq!(kept(&mut session, "SELECT taskq.set_action('x', retention => '2 hours')"), "01:00:00");
    assert_eq!(
        kept(&mut session, "SELECT taskq.set_action('x', clear => '{retention_aborted}')"),
        "02:00:00"
    );
    session.run(
        "SELECT taskq.insert_task('t', 'x', retention => '1 minute', retention_aborted => '2 minutes'), \
                taskq.insert_task('u', 'x', retention => '1 minute')",
    );
    session.cancel(&["t", "u"]).unwrap();
    let query = "SELECT id || ' ' || (s.expires_at - s.settled_at) FROM taskq.settled AS s JOIN taskq.task USING (task_no) ORDER BY 1";
    assert_eq!(session.all::<String>(query), ["t 00:02:00", "u 00:01:00"]);
    session.run("SET taskq.retention_aborted = -1; SELECT taskq.insert_task('v', 'y')");
    session.cancel(&["v"]).unwrap();
    assert!(session.one::<bool>("SELECT bool_or(expires_at = 'infinity') FROM taskq.settled"));
    for retention in [
        json!("soon"),
        json!(5),
        json!({"completed": "soon"}),
        json!({"failed": "1 day"}),
        json!({"aborted": "-1 day"}),
    ] {
        let task = json!([{"id": "w", "action": "x", "retention": retention}]);
        assert_eq!(sqlstate(&session.insert(task).unwrap_err()), "TQ006");
    }
}

#[test]
fn removal_frees_and_deletes_nothing_else() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let settled = json!({"id": "failed", "condition": "settled"});
    let tasks = json!([
        {"id": "done", "action": "x"}, {"id": "failed", "action": "x"}, {"id": "gate", "action": "g"},
        {"id": "child", "action": "y", "depends_on": ["done", settled, "gate"]},
        {"id": "other", "action": "y", "depends_on": ["done", "gate"]},
    ]);
    session.insert(tasks).unwrap();
    session.perform("x", "completed");
    session.perform("x", "aborted");
    session.set_now(Some("2030-02-01 00:00:00Z"));
    a_worker_calls(&mut session);
    assert_eq!(left(&mut session), ["child", "gate", "other"]);
    assert_eq!(["child", "other"].map(|id| session.state(id)), ["blocked", "blocked"]);
    session.run("BEGIN");
    assert_eq!(session.delete(&["gate"]).unwrap(), 1, "each has dependencies that are settled");
    assert_eq!(["child", "other"].map(|id| session.state(id)), ["ready", "ready"]);
    session.run("ROLLBACK");
    session.perform("g", "completed");
    assert_eq!(session.own_one("y").num_failures, 1, "what it has heard it does not forget");
}

#[test]
fn an_id_is_free_again_when_its_task_is_gone() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    session.perform("x", "completed");
    assert_eq!(sqlstate(&session.insert(json!([{"id": "a", "action": "x"}])).unwrap_err()), "TQ002");
    session.set_now(Some("2030-02-01 00:00:00Z"));
    a_worker_calls(&mut session);
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_eq!(session.own_one("x").num_tries, 1);
}

#[test]
fn a_dependency_on_a_task_that_goes_at_the_same_time_leaves_nothing_broken() {
    let db = Db::new();
    // The edge counts at once or its target is gone; an edge to nowhere would be found by taskq.check().
    for how in ["SELECT taskq.maintain()", "SELECT taskq.delete_tasks('{done}')"] {
        for edge_first in [true, false] {
            db.clear();
            let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
            watcher
                .insert(
                    json!([{"id": "done", "action": "x", "retention": "0"}, {"id": "run", "action": "y"}]),
                )
                .unwrap();
            watcher.perform("x", "completed");
            let new = json!([{"id": "new", "action": "y", "depends_on": ["done"]}]);
            first.run("BEGIN");
            if edge_first {
                first.depend_on("done", "run").unwrap();
                first.insert(new).unwrap();
                let call = second.background(move |session| session.run(how));
                call.settle_down(&mut watcher);
                first.run("COMMIT");
                call.join();
            } else {
                first.run(how);
                let call =
                    second.background(move |session| (session.depend_on("done", "run"), session.insert(new)));
                call.settle_down(&mut watcher);
                first.run("COMMIT");
                let (edge, insert) = call.join().1;
                for refused in [edge.err(), insert.err()].iter().flatten() {
                    assert_eq!(sqlstate(refused), "TQ003");
                }
            }
            assert_eq!(watcher.state("run"), "ready", "{how}, edge first: {edge_first}");
        }
    }
}

/// A task whose dependents are just being deleted stays until that transaction ends. The others go meanwhile, also
/// those that come after many of that kind.
#[test]
fn cleanup_goes_past_tasks_whose_dependents_are_just_being_deleted() {
    let (_db, [mut session, mut open]) = Db::connected();
    for from in [&mut session, &mut open] {
        from.set_now(Some("2030-01-01 00:00:00Z"));
    }
    session.run("SELECT count(*) FROM taskq.insert_many('first', array_fill('b'::text, '{250}'), ids => ARRAY(SELECT 'first ' || i FROM generate_series(1, 250) AS i), retention => '1 hour')");
    session.run(
        "SELECT taskq.insert_task('after ' || i, 'never', depends_on => ARRAY['first ' || i]) FROM generate_series(1, 250) AS i",
    );
    session.run("SELECT count(*) FROM taskq.insert_many('second', array_fill('b'::text, '{900}'), retention => '2 hours')");
    for action in ["first", "second"] {
        session.run(&format!(
            "SELECT count(*) FROM (SELECT array_agg(o.task_id) AS ids, array_agg(o.token) AS tokens
                                     FROM taskq.own_tasks('w', 1000, '{{{action}}}') AS o) AS o, taskq.return_tasks(o.ids, o.tokens)"
        ));
    }
    open.run(
        "BEGIN; SELECT taskq.delete_tasks(ARRAY(SELECT 'after ' || i FROM generate_series(1, 250) AS i))",
    );
    session.set_now(Some("2030-01-02 00:00:00Z"));
    session.run("SELECT taskq.maintain()");
    let left = |session: &mut Session| {
        session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE action <> 'never'")
    };
    assert_eq!(left(&mut session), 250, "those whose dependents are being deleted");
    open.run("COMMIT");
    session.run("SELECT taskq.maintain()");
    assert_eq!(left(&mut session), 0);
}

/// Why: 200 a call, whatever time it had: four workers that wait ten seconds each took four minutes for 20,000, and their ids stayed
/// taken.
#[test]
fn a_call_that_has_waited_for_nothing_removes_more() {
    let (db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, '{5000}'), retention => '0');
         SELECT count(*) FROM (SELECT array_agg(o.task_id) AS ids, array_agg(o.token) AS tokens
                                 FROM taskq.own_tasks('w', 5000, '{x}') AS o) AS o, taskq.return_tasks(o.ids, o.tokens)",
    );
    let mut idle = db.connect();
    for _ in 0..10 {
        assert!(idle.own_with("w", 1, &["x"], "wait => '2 seconds'").unwrap().is_empty());
        if session.one::<i64>("SELECT count(*) FROM taskq.tasks") == 0 {
            return;
        }
    }
    panic!("{} tasks are left", session.one::<i64>("SELECT count(*) FROM taskq.tasks"));
}
