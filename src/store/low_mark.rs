//! The table `low_mark`: where the claims of a backend begin, for others to begin there.
//!
//! Marks are kept in memory (`claim::marks`). One that has moved far is written down here once in a while, by a call that grants
//! something, so that a new backend need not scan all that is dead. What is written holds for every backend and for ever, as
//! long as positions are what they were: so a row says in which files that is, and how far they had come. And it is good for
//! some minutes only: a backend that lives for longer finds out by itself whether it still holds.
//!
//! No call waits here. There is no key: two that write the same at the same moment write two rows, and a later one removes
//! both. Rows are few, and dead ones as well: one is written for thousands of positions.

use std::time::Duration;

use crate::number::Position;
use crate::pg::clock::Wall;
use crate::pg::statement::Statement;
use crate::pg::table::{Index, Key, Look, table};
use crate::store::decided;

table!(c"low_mark":
    ACTION_NO: i32,
    PRIORITY: i32,
    POSITION: Position,
    LAST_POSITION: Position,
    RUN_FILE: i64,
    SEQUENCE_FILE: i64,
    WALKED_AT: Wall,
);

/// By action_no.
static BY_ACTION: Index = Index::of_mostly_empty(&TABLE, c"low_mark_action_idx");

/// How long a mark is good for others since the way to it was walked.
const GOOD_FOR: Duration = Duration::from_secs(600);

/// Before this position there is nothing to be had of this action and priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowMark {
    /// The number that stands for the action.
    pub(crate) action_no: i32,
    /// The priority that the mark is for.
    pub(crate) priority: i32,
    /// The position before which nothing is.
    pub(crate) position: Position,
    /// When a claim has last searched that far from the beginning.
    pub(crate) walked_at: Wall,
}

/// The marks of these actions that are still good. `at`: what was read after the look had its snapshot.
pub(crate) fn of(look: &Look, at: &decided::Look, action_nos: &[i32]) -> Vec<LowMark> {
    let (run, sequence) = files(at);
    let mut found = Vec::new();
    look.scan(&BY_ACTION, |marks| {
        for action_no in action_nos {
            marks.start(&[Key::eq(1, *action_no)]);
            while let Some(row) = marks.next() {
                let walked_at = row.get(WALKED_AT);
                if (row.get(RUN_FILE), row.get(SEQUENCE_FILE)) == (run, sequence)
                    && row.get(LAST_POSITION) <= at.last_position
                    && walked_at <= at.at
                    && at.at < walked_at + GOOD_FOR
                {
                    let (priority, position) = (row.get(PRIORITY), row.get(POSITION));
                    found.push(LowMark { action_no: *action_no, priority, position, walked_at });
                }
            }
        }
    });
    found
}

fn files(at: &decided::Look) -> (i64, i64) {
    (i64::from(at.files.0.to_u32()), i64::from(at.files.1.to_u32()))
}

/// Also removes those of the action that it makes useless, and those that are good no more ($8), as far as no other
/// transaction has them.
static WRITE: Statement<(i32, i32, Position, Position, i64, i64, Wall, Wall)> = Statement::new(
    c"WITH old AS MATERIALIZED (
        SELECT m.ctid FROM taskq.low_mark m
         WHERE m.action_no = $1 AND (m.priority = $2 OR m.walked_at < $8)
           FOR UPDATE SKIP LOCKED),
      gone AS (
        DELETE FROM taskq.low_mark d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM old AS o)))
      INSERT INTO taskq.low_mark (action_no, priority, position, last_position, run_file, sequence_file, walked_at)
      VALUES ($1, $2, $3, $4, $5, $6, $7)",
);

/// Writes a mark down. Under READ COMMITTED only: else a row that was removed meanwhile would be an error.
pub(crate) fn write(mark: &LowMark, at: &decided::Look) {
    let (run, sequence) = files(at);
    let LowMark { action_no, priority, position, walked_at } = *mark;
    let last_position = at.last_position;
    WRITE.execute((action_no, priority, position, last_position, run, sequence, walked_at, at.at - GOOD_FOR));
}
