//! The live rows of tasks, whichever table they are in: what they are, and removing them.

use crate::store::run::changes;
use crate::store::{blocked, lease, parked, scheduled, signal, slot};
use crate::wake;

pub(crate) use crate::store::live_row::{Counter, Live, Place};

/// Removes live rows that this transaction has locked for a change.
pub(crate) fn remove<'a>(rows: impl IntoIterator<Item = &'a Live>) {
    let (mut run, mut blocked, mut scheduled) = (Vec::new(), Vec::new(), Vec::new());
    let mut parked = Vec::new();
    let mut limited = Vec::new();
    let mut performed = Vec::new();
    for row in rows {
        if row.limited {
            limited.push(row.task_no);
        }
        match row.place {
            Place::Run { .. } => {
                run.push(row.task_no);
                performed.push(row);
                wake::gone(row.task_no);
                if row.in_progress() {
                    wake::let_go(row.task_no);
                }
            }
            Place::Blocked(_) => blocked.push(row.task_no),
            Place::Parked => parked.push(row.task_no),
            Place::Scheduled { .. } => scheduled.push(row.task_no),
        }
    }
    for (statement, task_nos) in [
        (&changes::REMOVE, &run),
        (&blocked::REMOVE, &blocked),
        (&signal::FORGET, &blocked),
        (&scheduled::REMOVE, &scheduled),
        (&parked::REMOVE, &parked),
    ] {
        if !task_nos.is_empty() {
            statement.execute(task_nos.as_slice());
        }
    }
    slot::release(&limited);
    lease::leave_removed(performed);
}
