//! Waiting and waking, for work and for a task: every cause wakes, as many as there is work for, at once and not with
//! the slow look; a sleep ends by whatever ends it, and leaves nothing behind. And NOTIFY, for clients that prefer to
//! listen.

mod declared;
mod ends;
mod fan_in;
mod for_task;
mod leaks;
mod leaving;
mod let_go;
mod locked;
mod looks;
mod lost;
mod many;
mod notify;
mod post_result;
mod prepared;
mod several;
mod shown;
mod snapshot;
mod stopped;
mod tables;
mod wakes;
mod without_id;

use taskq_tests::sleeper;
