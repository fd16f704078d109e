//! The table `scheduled`: tasks that nothing blocks but their time.

use crate::pg::clock::Time;
use crate::pg::table::{Index, Key, Look, table};

table!(c"scheduled":
    TASK_NO: i64,
    DUE: Time,
    ACTION_NO: i32,
    TRIES: i32,
    FAILURES: i32,
    DEPENDENCIES: i32,
    HELD_BACK: bool,
);

/// By action_no, due.
static BY_TIME: Index = Index::new(&TABLE, c"scheduled_due_idx");

/// Of each action, from a time on, the first due time that has passed.
pub(crate) fn first_due(look: &Look, of: impl Iterator<Item = (i32, Time)>, now: Time) -> Vec<Option<Time>> {
    look.scan(&BY_TIME, |rows| {
        of.map(|(action_no, from)| {
            let keys = [Key::eq(1, action_no), Key::at_least(2, from), Key::at_most(2, now)];
            rows.first(&keys, |row| row.get(DUE))
        })
        .collect()
    })
}
