//! The server is lost, and another goes on with what it has: a standby that is promoted under load, a base backup and a
//! dump that were taken under load, a recovery to a moment in the middle of it.
//!
//! Workers and producers keep books of what they were told (`books.rs`). Whatever was acknowledged has to be there;
//! what a worker holds is its own as long as its lease says; no other worker's token is good; and what is there can be
//! worked to the end. A queue that keeps something outside of the tables, that gives out positions twice, or that
//! believes what it knew of the server before, fails here.
//!
//! `TASKQ_RECOVER=10` makes the load that many times as long.

mod backups;
mod books;
mod failover;
mod server_upgrade;
mod standby;
mod work;

/// The folder for clusters.
const TMP: &str = env!("CARGO_TARGET_TMPDIR");

/// How many tasks are to be done before something happens, and behind it.
fn much() -> usize {
    let times: usize = std::env::var("TASKQ_RECOVER").map_or(1, |times| times.parse().expect("a number"));
    100 * times
}
