//! `wait_for_task`, and NOTIFY for those who prefer to listen.

mod declared;
mod notify;
mod sleep;
