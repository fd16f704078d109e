//! Flow control: merge keys, and workgroups that are held back.

mod merge;
mod merge_concurrent;
mod merge_many;
mod merge_open;
mod merge_order;
mod seen;
mod workgroups;
mod workgroups_back;
mod workgroups_races;

use serde_json::{Value, json};
use taskq_tests::flow::{at, call, ids, owned};

/// Tasks with these ids, of the action `x`, which share a key.
fn keyed(ids: &[&str]) -> Value {
    ids.iter().map(|id| json!({"id": id, "action": "x", "merge_key": "k"})).collect()
}
