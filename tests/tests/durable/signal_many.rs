//! `signal_tasks`: many signals in one call, all or nothing.

use serde_json::{Value, json};
use taskq_tests::{Db, Progress, Session, refused};

use super::suspended;

fn signal_all(session: &mut Session, signals: &Value) -> i64 {
    session.query_one("SELECT taskq.signal_tasks($1)", &[signals]).unwrap().get(0)
}

#[test]
fn it_does_for_each_what_signal_does_and_counts_the_first() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.now = '2090-01-01 00:00Z'");
    session
        .insert(json!([{"id": "there", "action": "approval", "signal": true}, {"id": "done", "action": "signal", "signal": true},
                       {"id": "late", "action": "signal", "signal": true, "expires_in": "1 hour"},
                       {"id": "after", "action": "x", "depends_on": ["there", "late"]}]))
        .unwrap();
    session.run("SELECT taskq.signal('done', '0'); SET taskq.now = '2090-01-01 02:00Z'");
    let signals = json!([
        {"task_id": "there", "result": {"by": "ann"}, "status": "fine", "action": "ignored"},
        {"task_id": "there", "result": {"by": "bob"}},
        {"task_id": "done", "result": 1}, {"task_id": "late"},
        {"task_id": "early", "result": null, "action": "approval", "retention": "10 minutes"},
        {"task_id": "plain", "status": "s"}, {"task_id": "early", "action": "other"},
    ]);
    assert_eq!(signal_all(&mut session, &signals), 3);
    let ends: Vec<String> = session.all(
        "SELECT concat_ws(' ', id, action, state, cause, status, result::text) FROM taskq.tasks WHERE id <> 'after' ORDER BY id",
    );
    let late = "late signal aborted expired expired: it was not signalled by 2090-01-01 01:00:00Z";
    let expected = ["done signal completed 0", "early approval completed", late, "plain signal completed s"];
    assert_eq!(ends[..4], expected);
    assert_eq!(ends[4], "there approval completed fine {\"by\": \"ann\"}");
    assert_eq!(session.state("after"), "aborted");
    let kept: String = session.one(
        "SELECT (s.expires_at - s.settled_at)::text FROM taskq.settled AS s JOIN taskq.task AS t USING (task_no) WHERE t.id = 'early'",
    );
    assert_eq!(kept, "00:10:00");
    assert_eq!(signal_all(&mut session, &signals), 0, "again");
    assert_eq!(signal_all(&mut session, &json!([])), 0);
}

#[test]
fn one_that_is_wrong_refuses_all() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('s', 'signal', signal => true), taskq.insert_task('ready', 'x'), taskq.insert_task('held', 'h')");
    session.own_one("h");
    for (code, word, element) in [
        ("TQ005", "ready", json!({"task_id": "ready"})),
        ("TQ005", "held", json!({"task_id": "held"})),
        ("TQ006", "task_id", json!({"id": "s"})),
        ("TQ006", "resalt", json!({"task_id": "t", "resalt": 1})),
        ("TQ006", "task_id", json!({"result": 1})),
        ("TQ006", "id", json!({"task_id": ""})),
        ("TQ006", "action", json!({"task_id": "t", "action": ""})),
        ("TQ006", "retention", json!({"task_id": "t", "retention": "-1 day"})),
        ("TQ006", "status", json!({"task_id": "t", "status": 5})),
        ("TQ006", "signal", json!("s")),
    ] {
        let signals = json!([{"task_id": "s"}, {"task_id": "new"}, element]);
        refused(&mut session, code, word, "SELECT taskq.signal_tasks($1)", &[&signals]);
    }
    refused(&mut session, "22004", "signals", "SELECT taskq.signal_tasks(NULL)", &[]);
    refused(&mut session, "22004", "signals", "SELECT taskq.signal_tasks('null')", &[]);
    refused(&mut session, "TQ006", "array", "SELECT taskq.signal_tasks('{\"task_id\": \"s\"}')", &[]);
    assert_eq!(session.state("s"), "blocked");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id IN ('new', 't')"), 0);
}

#[test]
fn of_calls_at_once_each_signal_is_completed_by_one() {
    for commit in [true, false] {
        let (_db, [mut first, second, mut watcher]) = Db::connected();
        watcher.run("SELECT taskq.insert_task('there', 'signal', signal => true)");
        first.run("BEGIN");
        assert!(first.one::<bool>("SELECT taskq.signal('new', '1')"));
        let signals = json!([{"task_id": "new", "result": 2}, {"task_id": "there", "result": 2}, {"task_id": "own", "result": 2}]);
        let second = second.background(move |session| signal_all(session, &signals));
        assert_eq!(second.settle_down(&mut watcher), Progress::Blocked, "it does not guess");
        first.run(if commit { "COMMIT" } else { "ROLLBACK" });
        assert_eq!(second.join().1, if commit { 2 } else { 3 });
        assert_eq!(watcher.task("new").unwrap().result, Some(json!(if commit { 1 } else { 2 })));
    }
}

/// Calls that name the same signals in any order do not meet in a deadlock, and count each once.
#[test]
fn in_any_order_beside_each_other() {
    let (db, [mut watcher]) = Db::connected();
    let counts: Vec<i64> = (0..4)
        .map(|n| {
            db.connect().background(move |session| {
                (0..25)
                    .map(|round| {
                        let mut signals: Vec<Value> = (0..20)
                            .map(|i| json!({"task_id": format!("{round} {}", (i * (n + 3)) % 20)}))
                            .collect();
                        signals.rotate_left(n * 5);
                        signal_all(session, &json!(signals))
                    })
                    .sum::<i64>()
            })
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|call| call.join().1)
        .collect();
    assert_eq!(counts.iter().sum::<i64>(), watcher.one::<i64>("SELECT count(*) FROM taskq.tasks"));
    assert_eq!(watcher.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'"), 0);
}

/// A task waits for so many signals, and gets them in one call: its counter is written once.
fn one_update(signals: usize) {
    let (_db, [mut session]) = Db::connected();
    let awaited: Vec<Value> = (0..=signals).map(|n| json!({"id": n.to_string(), "signal": true})).collect();
    suspended(&mut session, "t", &json!(awaited).to_string());
    session.run("BEGIN");
    let updates = "SELECT n_tup_upd FROM pg_stat_xact_all_tables WHERE relid = 'taskq.blocked'::regclass";
    let before: i64 = session.one(updates);
    let sent: Vec<Value> = (0..signals).map(|n| json!({"task_id": n.to_string()})).collect();
    assert_eq!(signal_all(&mut session, &json!(sent)), signals as i64);
    assert_eq!(session.one::<i64>(updates) - before, 1);
    session.run("COMMIT");
    assert_eq!(session.state("t"), "blocked");
    assert!(super::signal(&mut session, &signals.to_string()));
    assert_eq!(session.state("t"), "ready");
}

#[test]
fn five_thousand_for_one_task_are_one_update() {
    one_update(5_000);
}

#[test]
#[ignore = "long"]
fn a_hundred_thousand_for_one_task_are_one_update() {
    one_update(100_000);
}
