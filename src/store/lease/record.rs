//! Recording deadlines.

use std::collections::BTreeMap;

use super::{append, tidy};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::token::Base;
use crate::wake;

/// How many tasks one row has at most: so many at most are looked at when the row passes on or its time has come.
const MOST_TASKS: usize = 1000;

/// Remembers the deadlines of tasks granted, extended or parked in place under one base.
pub(crate) fn record(granted: &[(Time, TaskNo)], base: Base) {
    let mut by_deadline: BTreeMap<Time, Vec<TaskNo>> = BTreeMap::new();
    for (deadline, task_no) in granted {
        if *deadline != Time::INFINITY {
            by_deadline.entry(*deadline).or_default().push(*task_no);
        }
    }
    let mut rows = 0;
    for (deadline, task_nos) in by_deadline {
        for some in task_nos.chunks(MOST_TASKS) {
            append(deadline, base, some.to_vec());
            rows += 1;
        }
        wake::timer(deadline);
    }
    if rows > 0 {
        tidy::patrol(rows, base.0);
    }
}
