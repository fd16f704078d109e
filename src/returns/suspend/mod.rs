//! Returns of tasks that go on later: each is given back until other tasks have ended, or a time is over.
//!
//! **Where the task is.** Its row moves from `run` to `blocked`, with a number for the waits that begin with this call. From then on it is
//! a task that waits, for whatever ends, cancels, deletes or explains such. It has given up its token, lease, slots and merge key.
//!
//! **Locks.** The call is restartable (`locks::order`). It removes the rows of `run`, which decides whether the tokens are good. Then it
//! holds all that the tasks are to wait for, as an insertion does: each of those has settled, and counts at once, or settles later and finds
//! the edge, in another transaction only after this one's commit.
//!
//! **Cycles.** A cycle needs a way out of the suspended task. The call has removed its row: before this commit no edge of another call
//! can begin there, and a call that adds one later sees what is stored here. So the guard of the graph is asked for only where some task
//! depends on a suspended one already, children that the call inserts included.

mod meets;
mod said;
mod stored;

pub(crate) use said::Suspension;

use super::taken::{Code, Returned, take};
use crate::error::Result;
use crate::insert::Waits;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::store::positions;
use meets::{check_cycles, ended_by_children, hold};
use said::{One, insert_children, insert_signals};
use stored::{block, go_on_or_wait, leave, link};

/// Suspends the tasks.
pub(super) fn suspend(suspending: &[Returned<&Suspension>], now: Time) -> Result<Vec<Code>> {
    if suspending.is_empty() {
        return Ok(Vec::new());
    }
    // Positions may be taken below: the transaction needs its id before.
    assign_transaction_id();
    let gone = take(suspending);
    let good = suspending.iter().filter_map(|one| Some((one, gone.of(one)?)));
    let mut tasks: Vec<One> = good
        .map(|(one, live)| One {
            at: one.at,
            live: live.clone(),
            how: one.how,
            waits: Waits::default(),
            lost: None,
        })
        .collect();
    let wait_no = positions::new_wait();
    block(&tasks, wait_no, now);
    let children = insert_children(&tasks, now)?;
    insert_signals(&tasks)?;
    let ended = ended_by_children(&tasks, &children);
    let (edges, outcomes) = hold(&tasks, &children, &ended)?;
    link(&mut tasks, &edges, &outcomes, wait_no);
    check_cycles(&tasks, &edges, &outcomes)?;
    let codes = go_on_or_wait(&tasks, now);
    leave(&tasks);
    Ok(codes)
}
