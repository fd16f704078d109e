//! Numbers of tasks and positions, ids and numbers.

use std::collections::HashMap;

use pgrx::pg_sys::Oid;

use super::{decided, run, task};
use crate::error::{Refusal, Result};
use crate::number::{Position, TaskNo};
use crate::pg::named::Named;
use crate::pg::session::{assign_transaction_id, check_for_interrupts};
use crate::pg::statement::Statement;
use crate::pg::table::{self, Look};
use crate::pg::{clock, sequence};
use crate::token;

/// `count` new numbers for tasks, ascending. The transaction has its id before it takes them.
pub(crate) fn take(count: usize) -> Result<Vec<TaskNo>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    assign_transaction_id();
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        check_for_interrupts();
        numbers.push(TaskNo(sequence::next(&POSITIONS)));
    }
    match numbers.last() {
        Some(last) if !token::is_for_tasks(last.0) => Err(Refusal::no_more_numbers(token::shard_of(last.0))),
        _ => Ok(numbers),
    }
}

/// The shard that this queue is: that in whose range the sequence stands.
pub(crate) fn shard() -> i32 {
    token::shard_of(sequence::last_value(&POSITIONS))
}

/// Numbers of tasks and positions come from here.
pub(super) static POSITIONS: Named = Named::new(c"position_seq");

/// The last position that was taken, by whomever.
pub(super) fn last_position() -> Position {
    Position(sequence::last_value(&POSITIONS))
}

/// The file of the sequence of positions.
pub(super) fn file_of_positions() -> Oid {
    sequence::file_of(&POSITIONS)
}

/// What the marks need of a look: how far positions have been taken by now, and up to where everything has ended.
pub(crate) fn look(look: &Look) -> decided::Look {
    decided::Look {
        last_position: last_position(),
        files: (table::file_of(&run::TABLE), file_of_positions()),
        xmin: look.xmin(),
        at: clock::wall(),
    }
}

/// The numbers of those of the ids that are in the queue. Takes no lock that lasts but that of a reader on the table.
pub(crate) fn by_id(ids: &[&str]) -> HashMap<String, TaskNo> {
    if ids.is_empty() {
        return HashMap::new();
    }
    table::look(|look| task::numbers(look, ids))
}

static IDS: Statement<&[TaskNo], (TaskNo, String)> =
    Statement::new(c"SELECT t.task_no, t.id FROM taskq.task t WHERE t.task_no = ANY ($1)");

/// The ids of tasks, by number.
pub(crate) fn ids(task_nos: &[TaskNo]) -> HashMap<TaskNo, String> {
    if task_nos.is_empty() {
        return HashMap::new();
    }
    IDS.query(task_nos).into_iter().collect()
}
