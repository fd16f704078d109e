//! How much of what a task waits for no transaction has sent yet: neither counted nor left in `countdown`, be it by a
//! transaction that is still open.

use std::collections::HashMap;

use crate::number::TaskNo;
use crate::pg::uncommitted::Table;

/// With the columns `run_no`, `wait_no`, `satisfied`, `failed`, `lost`, `lost_status`, `skipped`.
static COUNTDOWN: Table = Table { schema: c"taskq", name: c"countdown", index: c"countdown_run_idx" };
/// With `task_no` and `remaining` as its first columns.
static BLOCKED: Table = Table { schema: c"taskq", name: c"blocked", index: c"blocked_pkey" };

/// How many rows of a task there may be in `countdown` before they are tidied away.
const PILE: usize = 64;

/// What there is to do for tasks that wait.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Those for which nothing is unsent, or a loss was sent: to be counted as soon as possible.
    pub(super) all_sent: Vec<TaskNo>,
    /// Those for which there are so many rows that they are worth counting before.
    pub(super) piled_up: Vec<TaskNo>,
}

/// The countdown rows of one task.
#[derive(Clone, Copy, Default)]
struct Sent {
    rows: usize,
    ends: i64,
    lost: bool,
}

/// Looks at the countdown rows of these tasks as they will be if every open transaction commits.
///
/// Never takes something for unsent that was sent before the look began. Rows are read before counters: one that is counted
/// in between is subtracted twice. Of a counter that another transaction is changing the lower version is taken; a row that
/// this transaction is removing is in the count of its version. A counter that is changed while this looks may be missed if the
/// change is committed by then, as though the task did not wait any more: the transaction that changed it looks after its
/// change, sees the rows that are left by then, and asks for the signs of those that look now ([`super::commit`]).
pub(super) fn look(task_nos: &[TaskNo]) -> Found {
    let mut sent: HashMap<TaskNo, Sent> = HashMap::new();
    COUNTDOWN.each(task_nos.iter().map(|n| n.0), [3, 5], |task_no, [satisfied, lost], doomed| {
        if !doomed {
            let sent = sent.entry(TaskNo(task_no)).or_default();
            sent.rows += 1;
            sent.ends += i64::from(satisfied) + i64::from(lost);
            sent.lost |= lost > 0;
        }
    });
    let mut found = Found::default();
    if sent.is_empty() {
        // A counter in the table has something left to count.
        return found;
    }
    let mut waiting: Vec<TaskNo> = sent.keys().copied().collect();
    waiting.sort_unstable();
    let mut remaining: HashMap<TaskNo, i64> = HashMap::new();
    BLOCKED.each(waiting.iter().map(|n| n.0), [2], |task_no, [left], _| {
        let lowest = remaining.entry(TaskNo(task_no)).or_insert(i64::MAX);
        *lowest = i64::from(left).min(*lowest);
    });
    // A task without a counter does not wait any more.
    for (task_no, left) in waiting.iter().filter_map(|n| Some((*n, *remaining.get(n)?))) {
        let sent = sent[&task_no];
        if sent.lost || left <= sent.ends {
            found.all_sent.push(task_no);
        } else if sent.rows >= PILE {
            found.piled_up.push(task_no);
        }
    }
    found
}
