//! The verbs that docs/reference describes. In most files a thin `taskq_…` function takes what SQL passes (its SQL
//! declaration is in `sql/`), and a plain function below does the work; the others have parts of verbs, some of which several share.

mod args;
pub(crate) mod builders;
pub(crate) mod cancel;
pub(crate) mod complete;
mod delay_workgroup;
pub(crate) mod delete;
pub(crate) mod dependencies;
pub(crate) mod extend;
mod filter;
mod forget_action;
mod grants;
mod groups;
pub(crate) mod insert;
mod internal;
mod look;
pub(crate) mod maintain;
mod more_time;
pub(crate) mod own;
mod pace;
mod release;
pub(crate) mod report;
mod rerun;
pub(crate) mod retry;
pub(crate) mod return_;
mod return_and_own;
mod save_step;
mod schedule;
mod set_action;
mod set_group;
mod shard;
mod signal;
pub(crate) mod update;
mod wait_for_task;
mod wait_for_tasks;
mod wait_for_work;
mod waiter;
