//! What an insertion that replaces, by the id or the unique key of a new task, does to the tasks that give way: they end as aborted
//! unless they have settled before, calls that wait for them get their end, and they go.

use std::collections::HashMap;

use super::stored::{Stored, is_replaced};
use crate::error::Result;
use crate::locks;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::rights::{self, Doing};
use crate::settle::{Ending, settle};
use crate::state::{Cause, Outcome};
use crate::store::live::{self, Live};
use crate::store::traces::Traces;
use crate::store::{attempts, dependency, progress, settled, step};

/// How long the end of a replaced task is kept at least, for calls that wait for it.
const EPITAPH_SECONDS: f64 = 3600.0;

/// Removes the tasks with these ids, whose rows, live or settled, the call has locked for a change with the others it
/// names: a transaction that is adding an edge to one of them that has settled holds that row.
pub(crate) fn remove_old(ids: &[&str], stored: &mut Stored, now: Time) -> Result<()> {
    let old: Vec<(String, TaskNo, Option<Live>)> = ids
        .iter()
        .filter_map(|id| stored.forget(id).map(|(number, live)| ((*id).to_owned(), number, live)))
        .collect();
    remove(old, now)
}

fn remove(old: Vec<(String, TaskNo, Option<Live>)>, now: Time) -> Result<()> {
    if old.is_empty() {
        return Ok(());
    }
    rights::check_tasks(Doing::Insert, old.iter().map(|(_, number, _)| *number))?;
    if let Some((id, ..)) = old.iter().find(|(_, _, live)| live.as_ref().is_some_and(Live::in_progress)) {
        return Err(is_replaced(id));
    }
    live::remove(old.iter().filter_map(|(_, _, live)| live.as_ref()));
    let ends = ends_of(&old);
    let endings = old
        .iter()
        .filter_map(|(_, _, live)| live.as_ref())
        .map(|live| Ending::abort(live, Cause::Replaced, Some("replaced".to_owned())))
        .collect();
    settle(endings, now);
    let task_nos: Vec<TaskNo> = old.iter().map(|(_, number, _)| *number).collect();
    locks::lock_edges_of(&task_nos);
    dependency::REMOVE_AFTER.execute(task_nos.as_slice());
    dependency::REMOVE_RUN.execute(task_nos.as_slice());
    progress::forget(&task_nos);
    attempts::forget(&task_nos);
    step::forget(&task_nos);
    let mut traces = Traces::default();
    traces.by_removing(&task_nos, &ends);
    traces.count_out(now);
    settled::KEEP_EPITAPHS.execute((task_nos, now, pgrx::datum::Interval::from_seconds(EPITAPH_SECONDS)));
    Ok(())
}

/// How each of the tasks will have ended: as aborted, unless it had before.
fn ends_of(old: &[(String, TaskNo, Option<Live>)]) -> HashMap<TaskNo, Outcome> {
    let ended: Vec<TaskNo> =
        old.iter().filter(|(_, _, live)| live.is_none()).map(|(_, number, _)| *number).collect();
    let mut ends = if ended.is_empty() { HashMap::new() } else { locks::outcomes(&ended) };
    for (_, number, _) in old.iter().filter(|(_, _, live)| live.is_some()) {
        ends.insert(*number, Outcome::Aborted);
    }
    ends
}
