//! Locks on the rows of tasks, and the order in which they are waited for ([`order`]).
//!
//! Calls that name tasks lock their live rows here: first those in `run`, then `blocked`, `scheduled` and
//! `parked`, in each by task number. Counting, claims and upkeep pass over live rows that another transaction has locked in their way.

mod courtesy;
mod edges;
mod forms;
mod guard;
mod in_progress;
mod live;
mod order;
pub(crate) mod parked;
mod restart;
mod settled;
pub(crate) mod tables;
pub(crate) mod turnstile;

pub(crate) use edges::{lock_edges, lock_edges_of, try_lock_edges_of};
pub(crate) use forms::LockStrength;
pub(crate) use guard::guard;
pub(crate) use in_progress::{Idle, held, in_progress};
pub(crate) use live::{lock, lock_any, lock_by_id, try_lock};
pub(crate) use order::{Rank, holds, restart_if_possible};
pub(crate) use restart::{restartable, restartable_behind};
pub(crate) use settled::{hold_outcomes, outcomes};
