//! `delete_tasks`, `cancel_tasks` and retention: what goes with a task, what is freed, what is aborted.

mod cancel;
mod delete;
mod filters;
mod retention;
