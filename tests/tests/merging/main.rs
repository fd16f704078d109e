//! Flow control: merge keys, and workgroups that are held back.

mod merge;
mod merge_concurrent;
mod merge_many;
mod merge_open;
mod merge_order;
mod why;
mod workgroups;
mod workgroups_back;
mod workgroups_races;

use taskq_tests::flow::{at, call, ids, owned, wait_for_one};
