//! Inserting a run on demand, by `run_schedule`.

use std::time::Duration;

use super::cron::iso_exactly;
use super::fire::problem_of;
use crate::error::{Refusal, Result};
use crate::input::{self, TaskSpec};
use crate::insert::{OnConflict, Options, insert};
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::Statement;
use crate::store::{numbers, schedule};

/// Held until the transaction ends: runs of one schedule are inserted one after the other, this one and those that are due.
static LOCK_SCHEDULE: Statement<&str, JsonText> =
    Statement::new(c"SELECT s.task FROM taskq.schedule s WHERE s.name = $1 FOR UPDATE");

/// Inserts a run now, whatever the run before does; returns its id. For the overlap policy of the next one it is the run
/// before.
pub(crate) fn run_now(name: &str, now: Time) -> Result<String> {
    let task: JsonText = LOCK_SCHEDULE.first(name).ok_or_else(|| Refusal::no_such("schedule", name))?;
    // The time tells it from runs that were due. Two within a microsecond are unlikely, unless the clock stands
    // still.
    let mut time = now;
    let mut id = format!("{name}@{}", iso_exactly(time));
    while !numbers::by_id(&[&id]).is_empty() {
        time = time + Duration::from_micros(1);
        id = format!("{name}@{}", iso_exactly(time));
    }
    let spec = TaskSpec { id: Some(id.clone()), ..input::parse_task(&task.0, "task")? };
    let problem = problem_of(&spec);
    insert(vec![spec], Options { on_conflict: OnConflict::Error, ignore_missing: true })?;
    schedule::NOTE_RUN.execute((name, now, id.as_str(), problem));
    Ok(id)
}
