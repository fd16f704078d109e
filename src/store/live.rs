//! The live rows of tasks, whichever table they are in: what they are, changing their numbers, and removing them.

use std::collections::BTreeMap;

use crate::ends::lose::lose;
use crate::number::TaskNo;
use crate::store::run::changes;
use crate::store::{blocked, countdown, lease, parked, scheduled, slot};
use crate::wake;

pub(crate) use crate::store::live_row::{Counter, Live, Place};

/// Removes live rows that this transaction has locked for a change.
pub(crate) fn remove<'a>(rows: impl IntoIterator<Item = &'a Live>) {
    let (mut run, mut blocked, mut scheduled) = (Vec::new(), Vec::new(), Vec::new());
    let mut parked = Vec::new();
    let mut performed = Vec::new();
    for row in rows {
        match row.place {
            Place::Run { .. } => {
                run.push(row.task_no);
                performed.push(row);
                wake::gone(row.task_no);
            }
            Place::Blocked(_) => blocked.push(row.task_no),
            Place::Parked => parked.push(row.task_no),
            Place::Scheduled { .. } => scheduled.push(row.task_no),
        }
    }
    for (statement, task_nos) in [
        (&changes::REMOVE, &run),
        (&blocked::REMOVE, &blocked),
        (&countdown::FORGET, &blocked),
        (&scheduled::REMOVE, &scheduled),
        (&parked::REMOVE, &parked),
    ] {
        if !task_nos.is_empty() {
            statement.execute(task_nos.as_slice());
        }
    }
    let_go(performed.iter().copied());
    // Those that hold one of them learn of it by the commit. (Returns and deadlines do not come through here.)
    let held = performed.iter().filter(|row| row.in_progress());
    lose(held.filter_map(|row| row.actor_id.as_deref()));
}

/// Adds to the numbers of tasks that wait for nothing: so many dependencies, so many of them failed.
pub(crate) fn add<'a>(rows: impl Iterator<Item = (&'a Live, i32, i32)>) {
    let (mut run, mut scheduled, mut parked): (Added, Added, Added) = Default::default();
    for (row, all, failed) in rows.filter(|(_, all, failed)| (*all, *failed) != (0, 0)) {
        let added = match row.place {
            Place::Blocked(_) => continue,
            Place::Parked => &mut parked,
            Place::Run { .. } => &mut run,
            Place::Scheduled { .. } => &mut scheduled,
        };
        added.entry((all, failed)).or_default().push(row.task_no);
    }
    for (statement, added) in
        [(&changes::RECOUNT, run), (&scheduled::RECOUNT, scheduled), (&parked::RECOUNT, parked)]
    {
        for ((all, failed), task_nos) in added {
            statement.execute((task_nos, all, failed));
        }
    }
}

/// Tasks by what is added to their numbers.
type Added = BTreeMap<(i32, i32), Vec<TaskNo>>;

/// Gives up what performances have held whose rows are removed from `run`: their leases and slots.
pub(crate) fn let_go<'a>(performed: impl Iterator<Item = &'a Live> + Clone) {
    lease::leave_removed(performed.clone());
    slot::release(performed);
}
