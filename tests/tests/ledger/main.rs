//! Several workers on a random graph, with random outcomes, tasks given back, leases that run out, workers that come
//! too late, and random cancels. Each worker keeps a ledger of what the queue told it; in the end the ledgers must agree
//! with the queue, and nothing may be stuck.

mod audit;
mod graph;
mod worker;

use std::sync::Arc;
use std::{env, process};

use taskq_tests::{Db, until};

use graph::Graph;
use worker::{Ledger, Worker};

const WORKERS: u64 = 6;

fn run(tasks: usize, seed: u64) {
    let db = Db::new();
    let mut session = db.connect();
    let graph = Arc::new(Graph::random(tasks, seed));
    graph.insert(&mut session);
    let ledger = Arc::new(Ledger::default());
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (graph, ledger) = (Arc::clone(&graph), Arc::clone(&ledger));
            db.connect().background(move |session| Worker::new(number, seed, graph, ledger).work(session))
        })
        .collect();
    // Patience of its own: the workers stop when the queue has nothing open any more.
    for worker in workers {
        worker.join();
    }
    until("every task is settled", || {
        session.own("auditor", 0, &[]).unwrap();
        (session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')")
            == 0)
            .then_some(())
    });
    audit::compare(&mut session, &graph, &ledger);
}

#[test]
fn a_random_graph_ends_as_the_ledger_says() {
    run(2500, 1);
}

#[test]
fn another_random_graph_ends_as_the_ledger_says() {
    let soak =
        env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("TASKQ_TEST_SOAK is a number"));
    for round in 0..soak {
        // A seed of its own each time; the failing one is in the output.
        let seed = u64::from(process::id()) + 100_000 * round;
        println!("seed {seed}");
        run(1500, seed);
    }
}
