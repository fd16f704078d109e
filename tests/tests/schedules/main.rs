//! Flow control: schedules.

mod schedules;
mod schedules_again;
mod schedules_concurrent;
mod schedules_paused;

use taskq_tests::flow::{call, owned, wait_for_one};
