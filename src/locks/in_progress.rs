//! Which tasks are in progress, before anything is locked.
//!
//! A call that must be refused because a task is in progress looks before it waits for a lock, and is refused if the look shows
//! it. If it locked its rows first, it could wait for the very transaction that has the task in progress, which may go on to
//! return it, and so wait for the call in turn.

use std::collections::HashMap;

use crate::clock;
use crate::error::{Refusal, Result};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;

static FIRST: Statement<&[&str], String> = Statement::new(
    c"SELECT t.id
        FROM pg_catalog.unnest($1) AS u(id)
       CROSS JOIN LATERAL (SELECT t.id, t.task_no FROM taskq.task t WHERE t.id = u.id OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT FROM taskq.run r WHERE r.task_no = t.task_no AND r.nonce <> 0 OFFSET 0) AS r
       LIMIT 1",
);

/// One of the tasks with these ids that is in progress.
pub(crate) fn in_progress(ids: &[&str]) -> Option<String> {
    if ids.is_empty() { None } else { FIRST.first(ids) }
}

static DEADLINE: Statement<&str, Time> = Statement::new(
    c"SELECT r.deadline FROM taskq.run r
       WHERE r.task_no = (SELECT t.task_no FROM taskq.task t WHERE t.id = $1) AND r.nonce <> 0",
);

/// The refusal of what cannot be done with a task in progress. The hint differs for one whose deadline has passed: it
/// may stay in progress for ever, and a caller that waits for its end would wait as long.
pub(crate) fn held(id: &str, what: &str, hint: &str) -> Refusal {
    if DEADLINE.first(id).is_some_and(|deadline| deadline <= clock::now()) {
        let state = "in progress, and its deadline has passed";
        let hint =
            "Cancel it, or let a worker ask for its action: the next own_tasks for that takes it over.";
        return Refusal::state(id, state, what, hint);
    }
    Refusal::state(id, "in progress", what, hint)
}

/// Tasks that may not be in progress, and what is said of one that is.
pub(crate) struct Idle<'a> {
    /// Their ids. One that does not exist is not in progress.
    pub(crate) ids: Vec<&'a str>,
    /// Makes the refusal for the one with this id.
    pub(crate) refusal: fn(&str) -> Refusal,
}

impl Idle<'_> {
    /// Looks without locks.
    pub(crate) fn look(&self) -> Result<()> {
        in_progress(&self.ids).map_or(Ok(()), |id| Err((self.refusal)(&id)))
    }

    /// Its tasks by number, where there are such.
    pub(super) fn by_number(
        &self,
        numbers: &HashMap<String, TaskNo>,
    ) -> impl Iterator<Item = (TaskNo, (&Self, &str))> {
        self.ids.iter().filter_map(move |id| Some((*numbers.get(*id)?, (self, *id))))
    }
}
