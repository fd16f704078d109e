//! Signals: tasks that are completed from outside, once, and by a call that may come first.

use serde_json::{Value, json};
use taskq_tests::{Db, Progress, refused};

use super::{signal, suspended};

#[test]
fn the_first_one_wins() {
    let (_db, [mut session]) = Db::connected();
    suspended(&mut session, "t", "[{\"id\": \"s\", \"signal\": true}]");
    assert_eq!(session.own("w", 1, &["signal"]).unwrap().len(), 0, "no worker gets it");
    assert!(session.one::<bool>("SELECT taskq.signal('s', '{\"by\": \"ann\"}', 'fine')"));
    assert!(!session.one::<bool>("SELECT taskq.signal('s', '{\"by\": \"bob\"}')"));
    let task = session.task("s").unwrap();
    assert_eq!(
        (task.status_code.as_str(), task.status.as_deref(), task.result),
        ("completed", Some("fine"), Some(json!({"by": "ann"})))
    );
    assert_eq!(session.state("t"), "ready");
}

#[test]
fn one_that_comes_early_is_kept_and_found() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.retention = '1h'; SELECT taskq.set_action('kept', retention => '2 days')");
    for call in ["'s', '1'", "'k', '1', action => 'kept'", "'r', '1', retention => '10 minutes'"] {
        assert!(session.one::<bool>(&format!("SELECT taskq.signal({call})")), "{call}");
    }
    let kept: Vec<String> = session.all(
        "SELECT t.id || ' ' || date_trunc('minute', s.expires_at - s.settled_at)::text
           FROM taskq.settled AS s JOIN taskq.task AS t USING (task_no) ORDER BY 1",
    );
    assert_eq!(kept, ["k 2 days", "r 00:10:00", "s 1 day"]);
    suspended(&mut session, "t", "[{\"id\": \"s\", \"signal\": true}]");
    assert_eq!(session.state("t"), "ready");
    assert!(!signal(&mut session, "s"), "it is there, and has ended");
}

#[test]
fn its_dependencies_do_not_matter_any_more() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "s", "action": "signal", "signal": true, "depends_on": ["a"]},
               {"id": "u", "action": "signal", "signal": true, "depends_on": [{"id": "a", "condition": "settled"}]},
               {"id": "after", "action": "y", "depends_on": ["s"]}]),
    );
    assert!(signal(&mut session, "s"));
    assert_eq!(session.state("after"), "ready");
    session.perform("x", "aborted");
    assert_eq!((session.state("s"), session.state("u")), ("completed".to_owned(), "blocked".to_owned()));
    let task = session.task("u").unwrap();
    assert_eq!((task.num_signals, task.total_dependencies, task.num_failures), (1, 1, 1));
    assert!(signal(&mut session, "u"));
}

#[test]
fn it_aborts_with_a_lost_dependency_and_by_hand_and_can_be_retried() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "lost", "action": "signal", "signal": true, "depends_on": ["a"]},
               {"id": "cancelled", "action": "signal", "signal": true}, {"id": "by hand", "action": "signal", "signal": true}]),
    );
    session.perform("x", "aborted");
    session.run("SELECT taskq.cancel_tasks('{cancelled}'), taskq.complete_task('by hand', '7')");
    let ends: Vec<String> = session
        .all("SELECT concat_ws(' ', id, state, cause) FROM taskq.tasks WHERE action = 'signal' ORDER BY id");
    assert_eq!(ends, ["by hand completed", "cancelled aborted cancelled", "lost aborted dependency"]);
    assert!(!signal(&mut session, "cancelled"));
    session.run("SELECT taskq.retry_tasks('{cancelled}')");
    assert_eq!(session.state("cancelled"), "blocked");
    assert!(signal(&mut session, "cancelled"));
}

#[test]
fn what_is_no_signal_is_refused() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('ready', 'x'), taskq.insert_task('held', 'h'), taskq.insert_task('done', 'd')");
    session.own_one("h");
    session.perform("d", "completed");
    for id in ["ready", "held", "done"] {
        refused(&mut session, "TQ005", id, &format!("SELECT taskq.signal('{id}')"), &[]);
    }
    refused(&mut session, "22004", "task_id", "SELECT taskq.signal(NULL)", &[]);
    refused(&mut session, "22004|22023", "action", "SELECT taskq.signal('s', action => NULL)", &[]);
    refused(&mut session, "TQ006|22023", "id", "SELECT taskq.signal('')", &[]);
    refused(&mut session, "22023", "retention", "SELECT taskq.signal('s', retention => '-1 day')", &[]);
    for both in ["spontaneous => true", "num_required => 1"] {
        let call = format!("SELECT taskq.insert_task('s', 'signal', signal => true, {both})");
        refused(&mut session, "TQ006", "signal", &call, &[]);
    }
}

#[test]
fn of_two_calls_at_once_one_completes_it() {
    for there in [true, false] {
        for commit in [true, false] {
            let (_db, [mut first, second, mut watcher]) = Db::connected();
            if there {
                watcher.run("SELECT taskq.insert_task('s', 'signal', signal => true)");
            }
            first.run("BEGIN");
            assert!(first.one::<bool>("SELECT taskq.signal('s', '1')"));
            let second = second.background(|s| s.one::<bool>("SELECT taskq.signal('s', '2')"));
            assert_eq!(second.settle_down(&mut watcher), Progress::Blocked, "it does not guess");
            first.run(if commit { "COMMIT" } else { "ROLLBACK" });
            assert_eq!(second.join().1, !commit);
            let result: Option<Value> = watcher.task("s").unwrap().result;
            assert_eq!(result, Some(json!(if commit { 1 } else { 2 })));
        }
    }
}

#[test]
fn it_counts_as_blocked_and_never_as_ready() {
    let (_db, [mut session]) = Db::connected();
    session
        .run("SELECT taskq.insert_task('s' || n, 'signal', signal => true) FROM generate_series(1, 3) AS n");
    let counts: Vec<String> =
        session.all("SELECT action || ' ' || state || ' ' || count FROM taskq.count_tasks()");
    assert_eq!(counts, ["signal blocked 3"]);
    assert_eq!(session.one::<i64>("SELECT ready FROM taskq.stats WHERE action = 'signal'"), 0);
    let why: String = session.one("SELECT taskq.why('s1')");
    assert_eq!(why, "it is a signal: it waits for taskq.signal('s1')");
    session.run("SELECT taskq.replace_tasks('[{\"id\": \"s2\", \"action\": \"signal\", \"signal\": true}]'); SELECT taskq.delete_tasks('{s3}')");
    assert!(signal(&mut session, "s2"));
}

/// Why: to tidy up what has completed took an approval that was still awaited, and all behind it.
#[test]
fn one_that_waits_for_its_word_alone_outlives_its_dependencies() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y"},
            {"id": "met", "action": "signal", "signal": true, "depends_on": ["a"]},
            {"id": "after", "action": "z", "depends_on": ["met"]},
            {"id": "open", "action": "signal", "signal": true, "depends_on": ["b"]},
            {"id": "both", "action": "signal", "signal": true, "depends_on": ["a", "b"]}]));
    session.perform("x", "completed");
    assert_eq!(session.delete(&["a"]).unwrap(), 1);
    assert_eq!(session.task("met").unwrap().total_dependencies, 0);
    assert_eq!(session.delete(&["b"]).unwrap(), 3, "what was still to come takes its dependents along");
    assert!(signal(&mut session, "met"));
    assert_eq!(session.state("after"), "ready");
    // What it has waited for starts over without it, and goes with another one.
    session
        .insert(json!([{"id": "root", "action": "x"}, {"id": "prep", "action": "x", "depends_on": ["root"]},
                       {"id": "ok", "action": "signal", "signal": true, "depends_on": ["prep"]}]))
        .unwrap();
    session.perform("x", "completed");
    session.perform("x", "completed");
    session.run("SELECT taskq.rerun_tasks('{root,prep}', downstream => false)");
    assert_eq!(session.delete(&["root"]).unwrap(), 2, "root and prep");
    assert!(signal(&mut session, "ok"));
}

#[test]
fn one_that_has_expired_is_signalled_no_more() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.now = '2090-01-01 00:00Z'; SELECT taskq.insert_task('s', 'signal', signal => true, expires_in => '1 hour')");
    session.run("SELECT taskq.insert_task('in time', 'signal', signal => true, expires_in => '6 hours')");
    session.run("SET taskq.now = '2090-01-01 05:00Z'");
    assert!(!signal(&mut session, "s"), "no call has looked after it in time");
    assert_eq!(
        session
            .one::<String>("SELECT state || ': ' || cause || ': ' || status FROM taskq.tasks WHERE id = 's'"),
        "aborted: expired: expired: it was not signalled by 2090-01-01 01:00:00Z"
    );
    assert!(signal(&mut session, "in time"));
}

/// On wrong code the word from outside is forgotten when what it had not waited for starts over.
#[test]
fn one_that_came_early_does_not_start_over_with_what_it_had_not_waited_for() {
    for by_hand in [false, true] {
        let (_db, [mut session]) =
            Db::with_tasks(json!([{"id": "met", "action": "x"}, {"id": "open", "action": "y"},
                    {"id": "s", "action": "signal", "signal": true, "depends_on": ["met", "open"]}]));
        session.perform("x", "completed");
        if by_hand {
            session.run("SELECT taskq.complete_task('s')");
        } else {
            assert!(signal(&mut session, "s"));
        }
        assert_eq!(session.all::<String>("SELECT after FROM taskq.dependencies WHERE run = 's'"), ["met"]);
        session.perform("y", "completed");
        assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{open}')"), 1);
        assert_eq!(session.state("s"), "completed");
        session.perform("y", "aborted");
        // It had waited for the other one.
        assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{met,open}')"), 3);
        assert_eq!(session.state("s"), "blocked");
        assert_eq!(session.task("s").unwrap().total_dependencies, 2, "it begins with all of them");
        session.perform("y", "aborted");
        assert_eq!(session.state("s"), "aborted");
    }
}
