//! A result that is no JSON, or none that the server can store, ends its task and nothing else.
//!
//! A worker that lets the error out of its loop ends with the task in hand; the next one is granted it when the lease is
//! over, and ends as well, and so on through all of them: such a task fails here, and the one behind it is never done.

use serde_json::json;
use taskq_tests::Db;

use crate::tools::{Client, Worker, each_client, shell_that_writes};
use crate::workers::until_state;

/// A JSON text in a string that PostgreSQL cannot take for jsonb: the body comes through, the result does not.
const NUL: &str = r#"{"text": "a\u0000b"}"#;

fn is_aborted_with_a_status_and_the_next_one_is_done(client: Client) {
    let (db, [mut session]) = Db::connected();
    // The shell's reads its body with psql, which has no such text either; its work is changed instead.
    let nul = if client == Client::Shell { r#"{"text": "a"}"# } else { NUL };
    let tasks = json!([
        {"id": "nul", "action": "checksum", "body": nul}, {"id": "next", "action": "checksum", "body": {"text": "fine"}},
    ]);
    session.insert(tasks).unwrap();
    let mut worker = match client {
        Client::Shell => Worker::run(&db, shell_that_writes("printf 'no json'", "no_json.sh"), "5"),
        // All of them in one batch, for those that return in batches.
        client if Client::POOLS.contains(&client) => Worker::run(&db, client.pool(10), "5"),
        client => Worker::start(&db, client, "5"),
    };
    until_state(&mut session, "nul", "aborted");
    let nul = session.task("nul").unwrap();
    assert_eq!(nul.num_tries, 1);
    assert!(nul.status.as_deref().is_some_and(|status| status.contains("its result")), "{:?}", nul.status);
    // The shell's has no JSON for any task.
    until_state(&mut session, "next", if client == Client::Shell { "aborted" } else { "completed" });
    worker.terminate();
    assert!(worker.end().success(), "it was alive all the time");
}

#[test]
fn that_the_server_refuses() {
    each_client("refused_results", &Client::ALL, is_aborted_with_a_status_and_the_next_one_is_done);
}
