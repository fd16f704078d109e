//! Measurements of waiting and waking, each printed as rows of a markdown table. `benches/waiting.sh` runs them all.
//!
//! The server is found by `PGHOST`, `PGPORT` and `PGUSER`; the database is `PGDATABASE`, with taskq in it and nothing else.

mod idle;
mod latency;
mod leaks;
mod server;
mod stress;

use std::env;
use std::process::exit;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |n: usize| arguments.get(n).and_then(|text| text.parse::<u64>().ok());
    match (arguments.first().map(String::as_str), number(1), number(2)) {
        (Some("latency"), Some(waiters), Some(rounds)) => latency::run(waiters as usize, rounds as usize),
        (Some("idle"), Some(sleepers), Some(seconds)) => {
            let Some(beside) = idle::Beside::named(arguments.get(3).map(String::as_str)) else { usage() };
            idle::run(sleepers as usize, seconds, &beside)
        }
        (Some("stress"), Some(seconds), _) => stress::run(seconds),
        (Some("leaks"), Some(waits), _) => leaks::run(waits),
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!(
        "usage: latency WAITERS ROUNDS | idle SLEEPERS SECONDS [leases | schedule | paused] | stress SECONDS | leaks WAITS"
    );
    exit(2);
}
