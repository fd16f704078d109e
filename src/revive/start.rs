//! The program of all that start tasks over.

use std::collections::{HashMap, HashSet};

use super::downstream::with_downstream;
use super::lost::{Gone, without_lost};
use super::place::{Back, come_back};
use super::suspending::{drop_suspending, drop_unfinished};
use super::{ABORTED, Again, SETTLED, hold, lock_neighbours};
use crate::error::Result;
use crate::insert::{acyclic, cycle_refusal, stored_arcs};
use crate::locks::guard;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::store::{numbers, progress, step};

/// Starts tasks over; how many start over in all.
pub(crate) fn start_over(asked: &[TaskNo], again: Again, now: Time) -> Result<i64> {
    guard();
    let asked = hold(if again.is_retry() { &ABORTED } else { &SETTLED }, asked);
    let all = match again {
        Again::RerunAlone => asked.iter().copied().collect(),
        _ => with_downstream(&asked, again, now)?,
    };
    let asked: HashSet<TaskNo> = asked.into_iter().collect();
    let all = without_lost(all, &asked, again)?;
    if all.is_empty() {
        return Ok(0);
    }
    let mut task_nos: Vec<TaskNo> = all.into_iter().collect();
    task_nos.sort_unstable();
    lock_neighbours(&task_nos);
    let dropped = if again.is_retry() {
        drop_unfinished(&task_nos)
    } else {
        progress::forget(&task_nos);
        let keeps = |task_no: &&TaskNo| again == Again::Rewind && asked.contains(task_no);
        step::forget(&task_nos.iter().filter(|task_no| !keeps(task_no)).copied().collect::<Vec<_>>());
        drop_suspending(&task_nos)
    };
    let back = Back {
        task_nos: &task_nos,
        live_totals: HashMap::new(),
        dropped,
        gone: Gone::Counts,
        dependents: again.dependents(),
    };
    come_back(&back, now);
    // While they were settled, edges may have been added that only now close a cycle.
    acyclic(&stored_arcs(&task_nos)).map_err(|path| cycle_refusal(&path, &numbers::ids(&path)))?;
    Ok(task_nos.len() as i64)
}
