//! `wait_for_task`, and NOTIFY for those who prefer to listen.

mod notify;
mod sleep;
