//! What a worker owes to its tasks, asked of each of the examples.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskq_tests::{Db, Session, until};

use crate::tools::{Client, Worker};

/// A task that takes some time.
fn task(id: &str, seconds: f64) -> Value {
    json!({"id": id, "action": "checksum", "body": {"text": id, "seconds": seconds}})
}

pub fn until_state(session: &mut Session, id: &str, state: &str) {
    until(&format!("{id} is {state}"), || (session.state(id) == state).then_some(()));
}

/// Ends the backends of the database that belong to workers; how many.
fn terminate_backends(session: &mut Session) -> i64 {
    session.one(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
          WHERE datname = current_database() AND application_name = 'taskq worker'",
    )
}

fn completes_what_it_can_and_aborts_what_it_cannot(client: Client) {
    let (db, [mut session]) = Db::connected();
    // A worker that says when the next try is to come overrides what is set for the action.
    session.run("SELECT taskq.set_action('checksum', backoff => '{\"kind\": \"fixed\", \"initial\": \"10 minutes\"}')");
    let _worker = Worker::start(&db, client, "5");
    let texts = ["plain", "grüße, 世界", "it's \"quoted\" \\ $HOME `ls` %s", "two\nlines"];
    let bodies = texts.map(|text| json!({"id": text, "action": "checksum", "body": {"text": text}}));
    session.insert(json!(bodies)).unwrap();
    session.insert(json!([{"id": "no text", "action": "checksum", "body": {"seconds": 0}}])).unwrap();
    let unreadable = [("no json", json!("{")), ("no object", json!("[]")), ("no body", Value::Null)];
    for (id, body) in &unreadable {
        session.insert(json!([{"id": id, "action": "checksum", "body": body}])).unwrap();
    }
    let failing = json!({"text": "x", "fail": "no answer"});
    session.insert(json!([{"id": "last", "action": "checksum", "body": failing, "max_tries": 1}])).unwrap();
    session.insert(json!([{"id": "again", "action": "checksum", "body": failing, "max_tries": 5}])).unwrap();
    for text in texts {
        until_state(&mut session, text, "completed");
        let expected: String = session
            .query_one("SELECT encode(sha256(convert_to($1, 'UTF8')), 'hex')", &[&text])
            .unwrap()
            .get(0);
        let result = session.task(text).unwrap().result;
        let head: String = text.chars().take(10).collect();
        let mut whole = json!({"sha256": expected, "head": head, "client": client.name()});
        if client == Client::Shell {
            whole.as_object_mut().unwrap().remove("head");
        }
        assert_eq!(result, Some(whole));
    }
    until_state(&mut session, "no text", "aborted");
    assert_eq!(session.task("no text").unwrap().status.as_deref(), Some("the body lacks a text"));
    // No other try would read what this one cannot.
    for (id, _) in unreadable {
        until_state(&mut session, id, "aborted");
        let status = session.task(id).unwrap().status.unwrap();
        assert!(status.starts_with("the body "), "{id}: {status}");
    }
    // A passing failure is for another try; there is none.
    until_state(&mut session, "last", "aborted");
    until_state(&mut session, "again", "scheduled");
    let soon = "SELECT not_before BETWEEN clock_timestamp() + interval '9 minutes' AND clock_timestamp() + interval '10 minutes' \
                  FROM taskq.tasks WHERE id = 'again'";
    assert!(session.one::<bool>(soon), "the action's back-off decides");
}

fn finishes_the_task_in_hand_on_sigterm(client: Client) {
    let (db, [mut session]) = Db::connected();
    // Long enough to be seen in progress on a busy machine.
    session.insert(json!([task("hand", 6.0), task("next", 0.0)])).unwrap();
    let mut worker = Worker::start(&db, client, "10");
    until_state(&mut session, "hand", "in-progress");
    worker.terminate();
    assert!(worker.end().success());
    assert_eq!((session.state("hand"), session.state("next")), ("completed".to_owned(), "ready".to_owned()));
}

fn gives_back_what_takes_too_long_on_sigterm(client: Client) {
    let (db, [mut session]) = Db::connected();
    // A deploy is no failure: not even the last try is used up by it.
    let once =
        json!({"id": "long", "action": "checksum", "body": {"text": "long", "seconds": 300}, "max_tries": 1});
    session.insert(json!([once, {"id": "behind", "action": "x", "depends_on": ["long"]}])).unwrap();
    let mut worker = Worker::start(&db, client, "1");
    until_state(&mut session, "long", "in-progress");
    worker.terminate();
    assert!(worker.end().success());
    assert_eq!(session.state("long"), "ready", "at once, whatever the back-off");
    assert_eq!(session.state("behind"), "blocked");
    assert_eq!(session.one::<i32>("SELECT num_releases FROM taskq.tasks WHERE id = 'long'"), 1);
    assert_eq!(session.own_one("checksum").num_tries, 1);
}

fn stops_on_sigterm_while_it_waits(client: Client) {
    let (db, [mut session]) = Db::connected();
    let mut worker = Worker::start(&db, client, "5");
    session.insert(json!([task("first", 0.0)])).unwrap();
    until_state(&mut session, "first", "completed");
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    worker.terminate();
    assert!(worker.end().success());
    assert!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
    session.insert(json!([task("later", 0.0)])).unwrap();
    assert_eq!(session.own_one("checksum").num_tries, 1, "nothing was granted to one that has stopped");
}

fn survives_the_loss_of_its_backend(client: Client) {
    let (db, [mut session]) = Db::connected();
    let _worker = Worker::start(&db, client, "5");
    until("the worker waits", || (terminate_backends(&mut session) > 0).then_some(()));
    session.insert(json!([task("after", 2.0)])).unwrap();
    until_state(&mut session, "after", "in-progress");
    // The shell's worker holds none while it works.
    terminate_backends(&mut session);
    until_state(&mut session, "after", "completed");
    assert_eq!(session.task("after").unwrap().num_tries, 1);
}

fn keeps_a_task_that_outlasts_its_lease(client: Client) {
    let (db, [mut session]) = Db::with_tasks(json!([task("long", 4.0)]));
    let _worker = Worker::start(&db, client, "5");
    until_state(&mut session, "long", "in-progress");
    until("the task has settled", || {
        assert!(
            session.own("thief", 1, &["checksum"]).unwrap().is_empty(),
            "the lease of 3 seconds has elapsed"
        );
        std::thread::sleep(Duration::from_millis(50));
        (session.state("long") == "completed").then_some(())
    });
    assert_eq!(session.task("long").unwrap().num_tries, 1);
}

fn drops_a_task_that_is_cancelled(client: Client) {
    let (db, [mut session]) = Db::with_tasks(json!([task("dropped", 300.0), task("next", 0.0)]));
    let _worker = Worker::start(&db, client, "5");
    until_state(&mut session, "dropped", "in-progress");
    session.cancel(&["dropped"]).unwrap();
    until_state(&mut session, "next", "completed");
    assert_eq!(session.state("dropped"), "aborted");
}

fn performs_every_action_that_it_has_a_handler_for(client: Client) {
    let (db, [mut session]) = Db::connected();
    let words = json!({"id": "words", "action": "words", "body": {"text": "  one two\n\tthree  "}});
    let wordless = json!({"id": "wordless", "action": "words", "body": {}});
    session.insert(json!([task("sum", 0.0), words, wordless])).unwrap();
    let _worker = Worker::run(&db, client.of(None), "5");
    until_state(&mut session, "sum", "completed");
    until_state(&mut session, "words", "completed");
    assert_eq!(session.task("words").unwrap().result, Some(json!({"words": 3, "client": client.name()})));
    until_state(&mut session, "wordless", "aborted");
    assert_eq!(session.task("wordless").unwrap().status.as_deref(), Some("the body lacks a text"));
}

fn leaves_the_actions_that_it_was_not_started_for(client: Client) {
    let (db, [mut session]) = Db::connected();
    let words = |id: &str| json!({"id": id, "action": "words", "body": {"text": "one"}});
    session.insert(json!([task("sum", 0.0), words("first")])).unwrap();
    let mut worker = Worker::run(&db, client.of(Some("words")), "5");
    until_state(&mut session, "first", "completed");
    session.insert(json!([words("second")])).unwrap();
    until_state(&mut session, "second", "completed");
    assert_eq!(session.state("sum"), "ready");
    worker.terminate();
    assert!(worker.end().success());
    let _worker = Worker::run(&db, client.of(Some("words,checksum")), "5");
    until_state(&mut session, "sum", "completed");
}

fn ends_at_once_where_it_has_no_handler(client: Client) {
    let db = Db::new();
    let mut worker = Worker::run(&db, client.of(Some("checksum,nonsense")), "5");
    assert_eq!(worker.end().code(), Some(2));
    let log = worker.log();
    assert!(log.contains("unknown action") && log.contains("nonsense") && log.contains("words"), "{log}");
}

crate::each_client!(
    Client::ALL;
    completes_what_it_can_and_aborts_what_it_cannot,
    finishes_the_task_in_hand_on_sigterm,
    gives_back_what_takes_too_long_on_sigterm,
    stops_on_sigterm_while_it_waits,
    survives_the_loss_of_its_backend,
    keeps_a_task_that_outlasts_its_lease,
    drops_a_task_that_is_cancelled,
    performs_every_action_that_it_has_a_handler_for,
    leaves_the_actions_that_it_was_not_started_for,
    ends_at_once_where_it_has_no_handler,
);
