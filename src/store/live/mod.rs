//! Locking and removing the live rows of tasks: those in `run`, `blocked`, `scheduled` and `parked`.
//!
//! Calls that name tasks lock their live rows here, in the order that [`super::order`] has: first `run`, then `blocked`,
//! `scheduled` and `parked`, in each by task number. Signals, claims and upkeep take theirs with SKIP LOCKED and wait
//! for no other transaction.

mod courtesy;
mod edges;
mod forms;
mod in_progress;
mod lock;
mod remove;
mod row;
mod settled;

pub(crate) use edges::{lock_edges, lock_edges_of, try_lock_edges_of};
pub(crate) use forms::LockStrength;
pub(crate) use in_progress::{Idle, held, in_progress};
pub(crate) use lock::{lock, lock_any, lock_by_id, try_lock};
pub(crate) use remove::remove;
pub(crate) use row::{Counter, InRun, Live, Place, in_run};
pub(crate) use settled::{hold_outcomes, outcomes};
