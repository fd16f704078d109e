//! What is due by time and is no worker's claim: timers, expiry, and the end of a try's run time.

mod expiry;
mod expiry_races;
mod old_snapshot;
mod run_time;
mod timers;
mod workers;

use taskq_tests::sleeper;

use taskq_tests::Session;

/// The state and the cause of each task, in the order of the ids.
fn ends(session: &mut Session) -> Vec<String> {
    session.all("SELECT concat_ws(' ', id, state, cause) FROM taskq.tasks ORDER BY id COLLATE \"C\"")
}

/// What a session does at a time that is set.
fn at(session: &mut Session, now: &str, statements: &str) {
    session.set_now(Some(now));
    session.run(statements);
    session.set_now(None);
}
