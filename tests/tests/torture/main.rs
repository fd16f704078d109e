//! Torture: a large random graph, made while it runs, by many clients, while everything goes wrong at random.
//!
//! Backends are cancelled, terminated and killed with SIGKILL, the server is stopped with `-m immediate` and killed as a
//! whole, clients die between own and return and come back late, statements and locks time out, transactions stay open,
//! tables are rewritten and indexes rebuilt, limits change. Every client writes down outside the database what it asked and
//! what it was told ([`book`]); in the end the books and the database must agree ([`audit`]), task by task and call by call.
//!
//! `make torture SECONDS_TORTURE=2700 TASKQ_TORTURE_SEED=7` is the long form; a short one runs with all other tests.
//! (`TASKQ_TORTURE_PACE` is how many tasks a second are inserted at most.) On failure the ledger and the final state stay,
//! and `TASKQ_TORTURE_AUDIT=folder` audits them again. That the audit finds what the server has lost is seen with
//! `TASKQ_TORTURE_SETTINGS='synchronous_commit=off wal_writer_delay=10s'`: it has to fail.

mod audit;
mod book;
mod client;
mod families;
mod producer;
mod report;
mod run;
mod saboteur;
mod stage;
mod state;
mod torment;
mod upheaval;
mod waiter;
mod watchers;
mod worker;

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use book::now;
use run::Run;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number: {value}")))
}

#[test]
fn the_books_agree_after_the_torture() {
    if let Ok(folder) = env::var("TASKQ_TORTURE_AUDIT") {
        let found = audit::audit_folder(&PathBuf::from(folder));
        assert!(found.is_empty(), "{found:#?}");
        return;
    }
    let long = number("SECONDS_TORTURE");
    let seconds = long.unwrap_or(20);
    let seed = number("TASKQ_TORTURE_SEED").unwrap_or_else(|| now() as u64 % 1_000_000);
    println!("torture: seed {seed}, {seconds} s (SECONDS_TORTURE={seconds} TASKQ_TORTURE_SEED={seed})");
    let stage = stage::Stage::set(if long.is_some() { "torture-long" } else { "torture" });
    let pace = number("TASKQ_TORTURE_PACE").unwrap_or(450);
    let run = Arc::new(Run::new(stage.config(), stage.folder(), seed, seconds, pace));
    stage.perform(&run);
    let state = state::State::load(&mut client::connect(&run, "auditor", "lock_timeout=0"));
    state.save(&run.folder);
    let mut found = run.seen.lock().unwrap().clone();
    found.extend(stage.left_behind(&run));
    found.extend(audit::audit_folder(&run.folder));
    let report = report::report(&run, &state);
    println!("{report}");
    std::fs::write(run.folder.join("report.txt"), &report).expect("the report is written");
    let few: Vec<_> = found.iter().take(40).collect();
    assert!(
        found.is_empty(),
        "seed {seed}, {} findings, books in {}: {few:#?}",
        found.len(),
        run.folder.display()
    );
}
