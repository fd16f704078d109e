//! `forget_action`: a name that is not used any more, such as a misspelt one, goes from the views and the metrics.
//!
//! **Its row in `action` stays**, marked: an insertion that has looked the number up just before may still use it, and
//! insertions do not wait because of names. An insertion that sees the mark does not take the number: the name gets another one then.
//! What was inserted meanwhile is a task like any other, since claims look at all numbers of a name.

use pgrx::prelude::*;

use crate::error::{Refusal, Result, or_throw};
use crate::flow::rates;
use crate::input::check_name;
use crate::pg::statement::Statement;
use crate::store::{action_setting, actions, slot};

static NUMBERS: Statement<&str, i32> = Statement::new(
    c"SELECT a.action_no FROM taskq.action a WHERE a.name = $1 AND NOT a.forgotten
       ORDER BY a.action_no FOR UPDATE",
);
static IS_SET: Statement<&str, bool> =
    Statement::new(c"SELECT true FROM taskq.action_setting s WHERE s.name = $1 FOR UPDATE");

/// May read all tasks: there is no index on their actions, and names are forgotten rarely.
static TASK: Statement<&[i32], String> =
    Statement::planned_each_time(c"SELECT t.id FROM taskq.task t WHERE t.action_no = ANY ($1) LIMIT 1");
static SCHEDULE: Statement<&str, String> = Statement::planned_each_time(
    c"SELECT s.name FROM taskq.schedule s
       WHERE s.task ->> 'action' = $1
       ORDER BY s.name LIMIT 1",
);

/// `taskq.forget_action(action) -> void`
#[pg_extern(sql = "")]
fn taskq_forget_action(action: Option<&str>) {
    or_throw(check_name("action", action).and_then(forget));
}

fn forget(name: &str) -> Result<()> {
    let is_set = IS_SET.first(name).is_some();
    let action_nos: Vec<i32> = NUMBERS.query(name);
    if action_nos.is_empty() && !is_set {
        return Err(Refusal::no_such("action", name));
    }
    if let Some(id) = TASK.first(action_nos.as_slice()) {
        return Err(Refusal::action_in_use(name, &format!("Task \"{id}\" has it.")));
    }
    if let Some(schedule) = SCHEDULE.first(name) {
        return Err(Refusal::action_in_use(name, &format!("Schedule \"{schedule}\" inserts tasks of it.")));
    }
    actions::forget(action_nos);
    action_setting::remove(name);
    rates::fit(name, None, None);
    slot::REMOVE_FREE.execute(name);
    Ok(())
}
