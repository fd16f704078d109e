//! Progress of groups: exact whatever happens, cheap whatever the size, and in the way of no call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

/// `tasks/completed/aborted/progress` of a group, as the view has it.
fn numbers(session: &mut Session, group: &str) -> String {
    let row = session
        .query_opt(
            "SELECT concat_ws('/', tasks, completed, aborted, progress) FROM taskq.groups WHERE group_id = $1",
            &[&group],
        )
        .unwrap();
    row.map_or_else(|| "none".to_owned(), |row| row.get(0))
}

/// The counts per state, from the view and from the tasks themselves.
fn states_agree(session: &mut Session) {
    let off: Vec<String> = session.all(
        "SELECT g::text || ' but ' || x::text FROM taskq.groups AS g FULL JOIN \
           (SELECT group_id, count(*) AS tasks, count(*) FILTER (WHERE state = 'blocked') AS blocked, \
                   count(*) FILTER (WHERE state = 'scheduled') AS scheduled, count(*) FILTER (WHERE state = 'ready') AS ready, \
                   count(*) FILTER (WHERE state = 'in-progress') AS in_progress, \
                   count(*) FILTER (WHERE state = 'completed') AS completed, \
                   count(*) FILTER (WHERE state = 'aborted' AND cause <> 'skipped') AS aborted, \
                   count(*) FILTER (WHERE cause = 'skipped') AS skipped \
              FROM taskq.tasks WHERE group_id IS NOT NULL GROUP BY group_id) AS x USING (group_id) \
          WHERE (g.tasks, g.blocked, g.scheduled, g.ready, g.in_progress, g.completed, g.aborted, g.skipped) \
                IS DISTINCT FROM (x.tasks, x.blocked, x.scheduled, x.ready, x.in_progress, x.completed, x.aborted, x.skipped)",
    );
    assert_eq!(off, [""; 0]);
    assert_eq!(session.broken(), [""; 0]);
}

fn rows(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.group_tally")
}

fn tasks(group: &str, ids: std::ops::Range<usize>) -> Value {
    ids.map(|i| json!({"id": format!("{group}{i}"), "action": "x", "group_id": group})).collect()
}

#[test]
fn every_verb_keeps_the_numbers() {
    let (_db, [mut s]) = Db::with_tasks(tasks("g", 0..6));
    s.insert(json!([{"id": "late", "action": "x", "group_id": "g", "delay": "1 hour"},
                    {"id": "child", "action": "x", "group_id": "g", "depends_on": ["g0"]},
                    {"id": "mark", "action": "x", "group_id": "h", "spontaneous": true, "depends_on": ["g1"]},
                    {"id": "none", "action": "x"}]))
        .unwrap();
    assert_eq!(s.insert_with(tasks("g", 4..8), "on_conflict => 'skip'").unwrap().len(), 2);
    assert_eq!(numbers(&mut s, "g"), "10/0/0/0");
    states_agree(&mut s);
    assert_eq!(s.perform("x", "aborted"), "g0");
    assert_eq!(s.perform("x", "completed"), "g1");
    assert_eq!(numbers(&mut s, "g"), "10/1/2/0.3", "the child of what was aborted aborts as well");
    assert_eq!(numbers(&mut s, "h"), "1/1/0/1", "and the spontaneous one completes");
    s.own_one("x");
    states_agree(&mut s);

    s.run("SELECT taskq.retry_tasks('{g0}')");
    assert_eq!(numbers(&mut s, "g"), "10/1/0/0.1");
    s.cancel(&["g3", "late"]).unwrap();
    assert_eq!(numbers(&mut s, "g"), "10/1/2/0.3");
    // A task that has settled, one that has not, and one in another group give way.
    s.replace(
        json!([{"id": "g1", "action": "x", "group_id": "g"}, {"id": "g4", "action": "x", "group_id": "h"},
                     {"id": "mark", "action": "x"}]),
    )
    .unwrap();
    assert_eq!(numbers(&mut s, "g"), "9/0/2/0.2222222222222222");
    assert_eq!(numbers(&mut s, "h"), "1/0/0/0");
    states_agree(&mut s);
    s.delete(&["g3", "g5"]).unwrap();
    assert_eq!(numbers(&mut s, "g"), "7/0/1/0.14285714285714285");
    s.run("SELECT taskq.reset_group('g')");
    assert_eq!(numbers(&mut s, "g"), "7/0/0/0");
    states_agree(&mut s);

    // What was skipped is counted apart, comes back by a reset, gives way and goes.
    s.insert(json!([{"id": "s0", "action": "s"}, {"id": "s1", "action": "s", "group_id": "s", "depends_on": [{"id": "s0", "condition": "aborted"}]},
                    {"id": "s2", "action": "s", "group_id": "s", "depends_on": ["s1"]}, {"id": "s3", "action": "s", "group_id": "s", "delay": "1 hour"}]))
        .unwrap();
    s.perform("s", "completed");
    assert_eq!(numbers(&mut s, "s"), "3/0/0/0.6666666666666666");
    states_agree(&mut s);
    s.run("SELECT taskq.reset_group('s')");
    states_agree(&mut s);
    s.replace(json!([{"id": "s1", "action": "s", "group_id": "s", "delay": "1 hour"}])).unwrap();
    assert_eq!(numbers(&mut s, "s"), "3/0/0/0.3333333333333333");
    states_agree(&mut s);
    s.run("SELECT taskq.cancel_group('s'); SELECT taskq.delete_tasks(causes => '{skipped}')");
    assert_eq!(numbers(&mut s, "s"), "2/0/2/1");
    states_agree(&mut s);
    s.run("SELECT taskq.delete_group('s')");

    // Many at once, each with an end of its own; and merged by key.
    s.insert(json!([{"id": "k1", "action": "k", "group_id": "k", "merge_key": "k"}, {"id": "k2", "action": "k", "group_id": "k", "merge_key": "k"}]))
        .unwrap();
    s.perform("k", "completed");
    assert_eq!(numbers(&mut s, "k"), "2/2/0/1", "the rider has settled with it");
    let grants = s.own("w", 3, &["x"]).unwrap();
    let returns: Vec<Value> = grants
        .iter()
        .enumerate()
        .map(|(i, g)| {
            json!({"task_id": g.task_id, "token": g.token, "status": i.to_string(),
                             "status_code": if i == 0 { "aborted" } else { "completed" }})
        })
        .collect();
    s.query("SELECT * FROM taskq.return_tasks($1)", &[&Value::from(returns)]).unwrap();
    states_agree(&mut s);

    // Rolled back, nothing has happened.
    let before = numbers(&mut s, "g");
    s.run("BEGIN; SELECT taskq.cancel_group('g'); ROLLBACK");
    s.run("BEGIN; SAVEPOINT a; SELECT taskq.cancel_group('g'); ROLLBACK TO a; COMMIT");
    assert_eq!(numbers(&mut s, "g"), before);

    // Retention takes them away, and the group with them.
    s.run("SET taskq.retention = 0; SELECT taskq.cancel_group('g'); SELECT pg_sleep(0.01)");
    s.run("SET taskq.now = '2100-01-01'; SELECT taskq.maintain(); RESET taskq.now");
    assert_eq!(numbers(&mut s, "g"), "none");
    for group in ["h", "k"] {
        s.run(&format!("SELECT taskq.cancel_group(x) FROM (VALUES ('{group}')) AS v(x) WHERE EXISTS (SELECT FROM taskq.groups WHERE group_id = '{group}')"));
        s.run(&format!("SELECT taskq.delete_group(x) FROM (VALUES ('{group}')) AS v(x) WHERE EXISTS (SELECT FROM taskq.groups WHERE group_id = '{group}')"));
    }
    states_agree(&mut s);
    assert_eq!(rows(&mut s), 0, "nothing is left behind");
}

#[test]
fn rows_are_folded_and_tasks_without_a_group_append_none() {
    let (_db, [mut s]) =
        Db::with_tasks((0..200).map(|i| json!({"id": format!("u{i}"), "action": "x"})).collect());
    for _ in 0..200 {
        s.perform("x", "completed");
    }
    assert_eq!(rows(&mut s), 0);
    s.insert(tasks("g", 0..300)).unwrap();
    for _ in 0..300 {
        s.perform("x", "completed");
    }
    assert_eq!(numbers(&mut s, "g"), "300/300/0/1");
    let left = rows(&mut s);
    assert!(left < 120, "one call in fifty folds: {left}");
    s.run("SELECT taskq.maintain()");
    let left = rows(&mut s);
    assert!(left < 20, "and upkeep does: {left}");
    assert_eq!(numbers(&mut s, "g"), "300/300/0/1");
    // Under REPEATABLE READ no call folds, and nothing is lost.
    s.insert(tasks("g", 300..400)).unwrap();
    for _ in 0..100 {
        s.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
        s.perform("x", "completed");
        s.run("COMMIT");
    }
    assert_eq!(numbers(&mut s, "g"), "400/400/0/1");
    // In time the spans become one.
    s.run("SET taskq.now = '2100-01-01'; SET taskq.retention = -1");
    s.insert(tasks("g", 400..401)).unwrap();
    s.run("SELECT taskq.maintain()");
    assert_eq!(rows(&mut s), 1);
    s.run("RESET taskq.now");
}

#[test]
fn returns_into_one_group_wait_for_no_other_and_each_look_is_consistent() {
    const TASKS: usize = 1200;
    let (db, [mut session]) = Db::with_tasks(tasks("g", 0..TASKS));
    // A session has returned a task and does not commit: no other return waits for it.
    let mut idler = db.connect();
    idler.run("BEGIN");
    idler.perform("x", "completed");
    let done = Arc::new(AtomicBool::new(false));
    let poller = {
        let done = Arc::clone(&done);
        db.connect().background(move |s| {
            let (mut last, mut looks) = (0, 0);
            while !done.load(Ordering::SeqCst) {
                let row = s
                    .query_one("SELECT tasks, completed FROM taskq.groups WHERE group_id = 'g'", &[])
                    .unwrap();
                let (tasks, completed): (i64, i64) = (row.get(0), row.get(1));
                assert_eq!(tasks, TASKS as i64);
                assert!(completed >= last, "{completed} after {last}");
                (last, looks) = (completed, looks + 1);
            }
            looks
        })
    };
    let workers: Vec<_> = (0..4)
        .map(|_| {
            db.connect().background(|s| {
                s.run("SET lock_timeout = '5s'");
                loop {
                    let grants = s.own("w", 2, &["x"]).unwrap();
                    if grants.is_empty() {
                        return;
                    }
                    grants.iter().for_each(|grant| s.complete(grant));
                }
            })
        })
        .collect();
    let upkeep = {
        let done = Arc::clone(&done);
        db.connect().background(move |s| {
            while !done.load(Ordering::SeqCst) {
                s.run("SELECT taskq.maintain()");
            }
        })
    };
    for worker in workers {
        worker.join();
    }
    done.store(true, Ordering::SeqCst);
    upkeep.join();
    assert!(poller.join().1 > 10);
    assert_eq!(numbers(&mut session, "g").split('/').take(2).collect::<Vec<_>>(), ["1200", "1199"]);
    idler.run("COMMIT");
    assert_eq!(numbers(&mut session, "g"), "1200/1200/0/1");
    states_agree(&mut session);
}

#[test]
fn the_end_is_estimated_by_the_pace_of_the_last_minutes() {
    let (_db, [mut s]) = Db::connected();
    let estimate = |s: &mut Session| -> Option<f64> {
        s.one(
            "SELECT extract(epoch FROM estimated_end - taskq.clock())::double precision \
               FROM taskq.groups WHERE group_id = 'g'",
        )
    };
    s.set_now(Some("2030-01-01 00:00:00Z"));
    s.insert(tasks("g", 0..30)).unwrap();
    assert_eq!(estimate(&mut s), None, "nothing has settled");
    for i in 0..10 {
        s.set_now(Some(&format!("2030-01-01 00:{i:02}:00Z")));
        s.perform("x", "completed");
    }
    // Ten in nine minutes, and twenty are left.
    let left = estimate(&mut s).unwrap();
    assert!((900.0..1200.0).contains(&left), "{left}");
    // Faster of late, which is what counts.
    s.set_now(Some("2030-01-01 01:00:00Z"));
    assert_eq!(estimate(&mut s), None, "nothing of late");
    for i in 0..10 {
        s.set_now(Some(&format!("2030-01-01 01:00:{:02}Z", i * 2)));
        s.perform("x", "completed");
    }
    let left = estimate(&mut s).unwrap();
    assert!((10.0..40.0).contains(&left), "ten in twenty seconds: {left}");
    s.set_now(Some("2030-01-01 01:01:00Z"));
    for _ in 0..10 {
        s.perform("x", "completed");
    }
    assert_eq!(estimate(&mut s), None, "all have");
    s.set_now(None);
}
