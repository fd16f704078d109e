//! `return_task`, `return_tasks` and `return_and_own_tasks`: what the task becomes, and that one bad pair spoils neither
//! the call nor the others.

mod and_own;
mod and_own_beside;
mod batch;
mod revoked;
mod single;
mod uncounted;
