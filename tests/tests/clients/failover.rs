//! Workers go on when a standby takes over: all of them know one address, behind which the primary dies, the standby answers
//! before it is promoted, and then is the primary.
//!
//! A worker that takes the answer of a standby (25006) for an answer of the queue ends with the task in hand, or without
//! one: its `after` is never done. One that keeps its connection to what was a primary does no more than that either.

use std::time::Duration;

use serde_json::json;
use taskq_tests::{Cluster, Session, until};

use crate::gate::Gate;
use crate::tools::{Client, Worker};
use crate::workers::until_state;

const TMP: &str = env!("CARGO_TARGET_TMPDIR");

fn database(client: Client) -> String {
    format!("failover_{client:?}").to_lowercase()
}

fn insert(session: &mut Session, id: &str, seconds: f64) {
    let body = json!({"text": id, "seconds": seconds});
    session.insert(json!([{"id": id, "action": "checksum", "body": body}])).unwrap();
}

#[test]
fn every_worker_goes_on_when_a_standby_takes_over() {
    let primary = Cluster::start(TMP, "clients_primary", &[]);
    let mut admin = primary.connect_to("template1");
    let databases: Vec<String> = Client::ALL.into_iter().map(database).collect();
    for name in &databases {
        admin.run(&format!("CREATE DATABASE {name} TEMPLATE postgres"));
    }
    let standby = Cluster::standby(TMP, "clients_standby", &primary, &[]);
    let gate = Gate::to(primary.socket());
    let mut workers: Vec<Worker> = Client::ALL
        .into_iter()
        .map(|client| {
            let mut command = client.command();
            gate.show(&mut command);
            command.env("PGUSER", "postgres");
            Worker::run_in(&database(client), command, "5")
        })
        .collect();
    // All of them have come up, which takes some longer than others.
    for name in &databases {
        insert(&mut primary.connect_to(name), "before", 0.0);
    }
    for name in &databases {
        until_state(&mut primary.connect_to(name), "before", "completed");
    }
    for name in &databases {
        insert(&mut primary.connect_to(name), "during", 20.0);
    }
    for name in &databases {
        // On a machine that is very busy some may be done before others have begun.
        let mut session = primary.connect_to(name);
        let begun = ["in-progress".to_owned(), "completed".to_owned()];
        until(&format!("{name} has begun"), || begun.contains(&session.state("during")).then_some(()));
    }
    let written: String = admin.one("SELECT pg_current_wal_flush_lsn()::text");
    let mut other = standby.connect();
    let arrived = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
    until("the standby has all of it", || other.one::<bool>(&arrived).then_some(()));

    primary.kill();
    gate.lead(Some(standby.socket()));
    // Heartbeats, and waiting calls, are refused for a while.
    std::thread::sleep(Duration::from_secs(4));
    other.run("SELECT pg_promote()");
    for name in &databases {
        let mut session = standby.connect_to(name);
        insert(&mut session, "after", 0.0);
        until_state(&mut session, "during", "completed");
        assert_eq!(session.task("during").unwrap().num_tries, 1, "{name}: it was kept all the time");
        until_state(&mut session, "after", "completed");
    }
    for (worker, name) in workers.iter_mut().zip(&databases) {
        worker.terminate();
        assert!(worker.end().success(), "{name}: {}", worker.log());
    }
}
