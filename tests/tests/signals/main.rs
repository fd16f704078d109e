//! Signals between transactions: no dependency is counted twice or lost, whichever commits first; no deadlocks; nothing
//! survives a rollback.

mod cycles;
mod edges;
mod full_lock_table;
mod last_parents;
mod later_calls;
mod milestones;
mod prepared;
mod prompt;
mod read_only;
mod recounted;
mod repeatable_read;
mod rolled_back_holder;
mod savepoints;
mod shared_children;
mod starvation;
mod uncounted;
mod undone;
mod vacuum_full;
mod volume;

use taskq_tests::{Background, Progress, Session};

/// Commits two transactions that may block each other, in the wanted order as far as the locks allow it.
///
/// `first` is open with its work done; `second` is at work in the background, inside a transaction block.
fn commit_both<T>(
    mut first: Session,
    second: Background<T>,
    second_commits_first: bool,
    watcher: &mut Session,
) -> T {
    if second_commits_first && second.settle_down(watcher) == Progress::Done {
        let (mut session, outcome) = second.join();
        session.run("COMMIT");
        first.run("COMMIT");
        return outcome;
    }
    second.settle_down(watcher);
    first.run("COMMIT");
    let (mut session, outcome) = second.join();
    session.run("COMMIT");
    outcome
}
