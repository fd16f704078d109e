//! `set_group`: a limit and a weight of a group.

use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, or_throw};
use crate::input::check_name;
use crate::number::TaskNo;
use crate::store::slot::{self, Limit, MOST_SLOTS, backfill};
use crate::store::task_group;
use crate::wake;
use crate::words::given_words;

/// The greatest weight of a group.
const MOST_WEIGHT: i32 = 1000;

/// `taskq.set_group(group_id, max_concurrency, weight, clear) -> void`
///
/// Waits for transactions that have set, paused, resumed or deleted the same group, or set its tasks aside, and, if a
/// limit is set, for those that make slots of it, or return or extend its tasks.
#[pg_extern(sql = "")]
fn taskq_set_group(
    group_id: Option<&str>,
    max_concurrency: Option<i32>,
    weight: Option<i32>,
    clear: Option<Vec<Option<String>>>,
) {
    or_throw((|| {
        let group = check_name("group_id", group_id)?;
        if let Some(limit) = max_concurrency.filter(|limit| !(0..=MOST_SLOTS).contains(limit)) {
            let hint = format!("Give an integer from 0 to {MOST_SLOTS}, or clear the limit to have none.");
            return Err(Refusal::out_of_range("max_concurrency", &limit.to_string(), &hint));
        }
        if let Some(weight) = weight.filter(|weight| !(1..=MOST_WEIGHT).contains(weight)) {
            let hint = format!("Give an integer from 1 to {MOST_WEIGHT}.");
            return Err(Refusal::out_of_range("weight", &weight.to_string(), &hint));
        }
        let clear = given_words("clear", clear.unwrap_or_default(), &["max_concurrency", "weight"])?;
        set_group(group, max_concurrency, weight, clear);
        Ok::<(), Refusal>(())
    })());
}

fn set_group(group: &str, max_concurrency: Option<i32>, weight: Option<i32>, clear: Vec<&str>) {
    task_group::SET.execute((group, max_concurrency, weight, clear));
    task_group::NOTE_STOP.execute((group, clock::now()));
    let limit = Limit::of_group(group);
    if let Some(most) = max_concurrency {
        // Performances that began without the limit get its slots.
        slot::keep_from_making(&limit);
        let held: Vec<TaskNo> =
            backfill::without_slot_in_group(group).into_iter().map(|(task_no, _)| task_no).collect();
        backfill::assign(&limit, most, &held);
    }
    // What was held back by the group may go now, or may not: all calls that wait for its tasks look again.
    for action_no in slot::concerned(&limit) {
        wake::ready_for_all(action_no);
    }
    // Those of its tasks that are in no lane are not asked for: that would be to read the group.
    wake::all_look();
}
