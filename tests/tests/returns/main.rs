//! `return_task` and `return_tasks`: what the task becomes, and that one bad pair spoils neither the call nor the
//! others.

mod batch;
mod conditions;
mod single;
