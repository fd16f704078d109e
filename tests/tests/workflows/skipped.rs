//! What was not needed is skipped: it has aborted, and nothing has failed.
//!
//! On wrong code: a run in which all is well looks red, and its error handlers, which never ran, push the real failures
//! off every list.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

fn causes<const N: usize>(session: &mut Session, ids: [&str; N]) -> [String; N] {
    ids.map(|id| {
        session
            .query_one("SELECT concat_ws(' ', state, cause) FROM taskq.tasks WHERE id = $1", &[&id])
            .unwrap()
            .get(0)
    })
}

/// Tasks after `p`, with the condition that it aborts, and what runs after the first of them on each condition.
fn handlers() -> serde_json::Value {
    json!([
        {"id": "undo", "action": "y", "group_id": "g", "depends_on": [{"id": "p", "condition": "aborted"}]},
        {"id": "then", "action": "y", "group_id": "g", "depends_on": ["undo"]},
        {"id": "and then", "action": "y", "group_id": "g", "depends_on": ["then"]},
        {"id": "tidy", "action": "y", "group_id": "g", "depends_on": [{"id": "undo", "condition": "settled"}]},
        {"id": "instead", "action": "y", "group_id": "g", "depends_on": [{"id": "undo", "condition": "aborted"}]},
        {"id": "not instead", "action": "y", "group_id": "g", "depends_on": [{"id": "tidy", "condition": "aborted"}]},
    ])
}

const ALL: [&str; 6] = ["undo", "then", "and then", "tidy", "instead", "not instead"];

#[test]
fn what_was_not_needed_is_skipped_with_all_that_wanted_it_done() {
    let (_db, [mut session]) = Db::connected();
    for settled in [false, true] {
        session.insert(json!([{"id": "p", "action": "x", "group_id": "g"}])).unwrap();
        if settled {
            session.perform("x", "completed");
            session.insert(handlers()).unwrap();
        } else {
            session.insert(handlers()).unwrap();
            session.perform("x", "completed");
        }
        let [skipped, ready, blocked] = ["aborted skipped", "ready", "blocked"];
        assert_eq!(causes(&mut session, ALL), [skipped, skipped, skipped, ready, ready, blocked]);
        let statuses = ["undo", "then"].map(|id| session.task(id).unwrap().status.unwrap());
        assert_eq!(
            statuses,
            ["skipped: dependency \"p\" completed", "skipped: dependency \"undo\" was skipped"]
        );
        // For who waits for its end, whatever it is, it has aborted.
        for id in ["tidy", "instead"] {
            assert_eq!(session.task(id).unwrap().num_failures, 1, "{id}");
        }
        assert_eq!(session.wait("undo", "0").unwrap().unwrap().status_code, "aborted");
        assert_eq!(session.broken(), [""; 0]);
        session.run("SELECT taskq.delete_group('g')");
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.group_tally"), 0, "nothing is left behind");
    }
}

#[test]
fn a_failure_is_no_skip() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "p", "action": "x"}]));
    session.insert(handlers()).unwrap();
    session.perform("x", "aborted");
    assert_eq!(causes(&mut session, ["p", "undo"]), ["aborted returned", "ready"]);
    session.cancel(&["undo"]).unwrap();
    let failed = "aborted dependency";
    assert_eq!(causes(&mut session, ALL), ["aborted cancelled", failed, failed, "ready", "ready", "blocked"]);
    let statuses = ["then", "and then"].map(|id| session.task(id).unwrap().status.unwrap());
    assert_eq!(statuses, ["dependency \"undo\" aborted", "dependency \"then\" aborted"]);
    session.insert(json!([{"id": "late", "action": "z", "depends_on": ["then"]}])).unwrap();
    assert_eq!(causes(&mut session, ["late"]), [failed]);
}

/// Of several that are lost when it aborts one that has failed decides, whatever their order.
#[test]
fn a_failure_decides_over_skips_that_come_with_it() {
    let (_db, [mut session]) = Db::connected();
    for (n, order) in [["well", "ill"], ["ill", "well"]].into_iter().enumerate() {
        let [well, ill] = ["well", "ill"].map(|name| format!("{name} {n}"));
        let names: Vec<&str> =
            order.iter().map(|name| if *name == "well" { &*well } else { &*ill }).collect();
        let parents: Vec<_> = names.iter().map(|id| json!({"id": id, "action": "x"})).collect();
        session.insert(parents.into()).unwrap();
        let after = |id: &str| json!({"id": id, "condition": if id.starts_with("well") { "aborted" } else { "completed" }});
        let after: Vec<_> = names.iter().map(|id| after(id)).collect();
        let child = |id: &str| json!({"id": format!("{id} {n}"), "action": "y", "depends_on": after});
        session.insert(json!([child("waits")])).unwrap();
        session.run(
            "SELECT * FROM taskq.return_tasks((SELECT jsonb_agg(jsonb_build_object('task_id', task_id, 'token', token,
                 'status_code', CASE WHEN task_id LIKE 'ill%' THEN 'aborted' ELSE 'completed' END))
               FROM taskq.own_tasks('w', 2, '{x}')))"
        );
        session.insert(json!([child("comes late"), {"id": format!("linked {n}"), "action": "y"}])).unwrap();
        let edges: Vec<_> = after
            .iter()
            .map(|a| json!({"after": a["id"], "run": format!("linked {n}"), "condition": a["condition"]}))
            .collect();
        session.depend(edges.into()).unwrap();
        for id in ["waits", "comes late", "linked"] {
            let task = session.task(&format!("{id} {n}")).unwrap();
            assert_eq!(task.status, Some(format!("dependency \"{ill}\" aborted")), "{id}, {order:?}");
            assert_eq!(causes(&mut session, [&task.id]), ["aborted dependency"], "{id}, {order:?}");
        }
    }
}

/// The cause is that of the moment at which it aborts.
#[test]
fn what_is_lost_later_changes_nothing() {
    let (_db, [mut session]) = Db::connected();
    for first in ["well", "ill"] {
        session
            .insert(json!([{"id": "well", "action": "well"}, {"id": "ill", "action": "ill"},
                {"id": "child", "action": "y",
                 "depends_on": [{"id": "well", "condition": "aborted"}, "ill"]}]))
            .unwrap();
        let second = if first == "well" { "ill" } else { "well" };
        for action in [first, second] {
            session.perform(action, if action == "well" { "completed" } else { "aborted" });
        }
        let expected = if first == "well" { "aborted skipped" } else { "aborted dependency" };
        assert_eq!(causes(&mut session, ["child"]), [expected]);
        session.delete(&["well", "ill", "child"]).unwrap();
    }
}

/// Signals that found the counter busy tell the same.
#[test]
fn signals_that_were_left_are_counted_as_what_they_are() {
    let (db, [mut holder, mut other, mut third]) = Db::connected();
    for (ends, expected) in [
        (vec!["well"], "aborted skipped"),
        (vec!["ill"], "aborted dependency"),
        (vec!["well", "ill"], "aborted dependency"),
        (vec!["ill", "well"], "aborted dependency"),
    ] {
        holder
            .insert(json!([{"id": "well", "action": "well"}, {"id": "ill", "action": "ill"}, {"id": "held", "action": "held"},
                {"id": "child", "action": "y",
                 "depends_on": ["held", {"id": "well", "condition": "aborted"}, "ill"]}]))
            .unwrap();
        // It has the counter as long as it is open; what the others leave meanwhile it counts at its end.
        holder.run("BEGIN");
        holder.perform("held", "completed");
        for (name, session) in ends.iter().zip([&mut other, &mut third]) {
            session.perform(name, if *name == "well" { "completed" } else { "aborted" });
        }
        let left: i64 = other.one("SELECT count(*) FROM taskq.countdown");
        assert_eq!(left, ends.len() as i64, "the counter was busy");
        holder.run("COMMIT");
        other.run("SELECT taskq.maintain()");
        assert_eq!(causes(&mut other, ["child"]), [expected], "{ends:?}");
        let status = other.task("child").unwrap().status.unwrap();
        assert_eq!(status.starts_with("skipped"), expected.ends_with("skipped"), "{status}");
        assert_eq!(other.broken(), [""; 0]);
        db.clear();
    }
}

/// Nothing that is skipped comes back by itself, and what is placed anew is skipped anew.
#[test]
fn a_reset_skips_again_and_a_retry_of_what_was_skipped_is_refused() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "p", "action": "x"}]));
    session.insert(handlers()).unwrap();
    session.perform("x", "completed");
    for (id, why) in [("undo", "runs only if \"p\" aborts"), ("then", "since \"undo\" was")] {
        let error = session.query("SELECT taskq.retry_tasks($1)", &[&vec![id]]).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ005");
        let error = error.as_db_error().unwrap();
        assert!(
            error.message().contains("skipped") && error.message().contains(why)
                || error.detail().is_some_and(|detail| detail.contains(why)),
            "{error:?}"
        );
        assert!(error.hint().unwrap().contains("nothing to retry"), "{error:?}");
    }
    assert_eq!(session.one::<i64>("SELECT taskq.retry_group('g')"), 0);
    let before = causes(&mut session, ALL);
    session.run("SELECT taskq.reset_group('g')");
    assert_eq!(causes(&mut session, ALL), before);
    assert_eq!(session.broken(), [""; 0]);
    assert_eq!(session.one::<i64>("SELECT taskq.delete_tasks(causes => '{skipped}')"), 3);
}

#[test]
fn it_is_no_failure_wherever_one_looks() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "p", "action": "x", "group_id": "g"}, {"id": "bad", "action": "bad", "group_id": "g"}]),
    );
    session.insert(handlers()).unwrap();
    session.perform("x", "completed");
    session.perform("bad", "aborted");
    assert_eq!(session.all::<String>("SELECT task_id FROM taskq.dead_ends"), ["bad"]);
    let group = "SELECT concat_ws(' ', tasks, completed, aborted, skipped, ready, blocked, progress) FROM taskq.groups";
    assert_eq!(session.one::<String>(group), "8 1 1 3 2 1 0.625");
    let stats = "SELECT concat_ws(' ', action, completed, aborted, skipped) FROM taskq.stats ORDER BY action";
    assert_eq!(session.all::<String>(stats), ["bad 0 1 0", "x 1 0 0", "y 0 0 3"]);
    let metrics: String = session.one("SELECT taskq.metrics()");
    for line in [
        "taskq_tasks{action=\"y\",state=\"aborted\"} 0",
        "taskq_tasks{action=\"y\",state=\"skipped\"} 3",
        "taskq_tasks{action=\"bad\",state=\"aborted\"} 1",
        "taskq_settled_tasks{cause=\"skipped\"} 3",
        "taskq_settled_tasks{cause=\"dependency\"} 0",
        "taskq_ended_tasks_total{action=\"y\",cause=\"skipped\",outcome=\"skipped\"} 3",
    ] {
        assert!(metrics.lines().any(|have| have == line), "{line} in {metrics}");
    }
    // Its state is what it was.
    let counted = "SELECT concat_ws(' ', action, count) FROM taskq.count_tasks(states => '{aborted}')";
    assert_eq!(session.all::<String>(counted), ["bad 1", "y 3"]);
    let why: Vec<String> = session.all("SELECT * FROM taskq.why('then')");
    assert!(why[0].contains("as skipped") && why[1].contains("\"undo\" was skipped"), "{why:?}");
    for format in ["text", "dot", "mermaid"] {
        let picture: String = session.one(&format!("SELECT taskq.graph('g', '{format}')"));
        let lines = |word: &str| {
            let tasks = picture.lines().filter(|line| !line.contains("classDef"));
            tasks.filter(|line| line.replace("if aborted", "").contains(word)).count()
        };
        assert_eq!(lines("skipped"), 3, "{format}: {picture}");
    }
    assert_eq!(
        session.one::<String>("SELECT state FROM taskq.descendants('p') WHERE task_id = 'undo'"),
        "aborted"
    );
}
