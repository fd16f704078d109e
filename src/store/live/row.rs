//! A live row as it was when it was locked.

use crate::pg::clock::Time;
use crate::pg::statement::Row;

/// Where a live task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Blocked { remaining: i32, not_before: Option<Time> },
    Parked,
    Run { nonce: i64 },
    Scheduled { due: Time },
}

/// A live row, locked by this transaction.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) task_no: i64,
    pub(crate) place: Place,
    pub(crate) tries: i32,
    pub(crate) failures: i32,
    pub(crate) dependencies: i32,
    pub(crate) granted_at: Option<Time>,
    /// Of its performance; infinity if there is none.
    pub(crate) deadline: Time,
    pub(crate) actor_id: Option<String>,
    /// Its performance holds a slot.
    pub(crate) limited: bool,
    /// It holds its merge key.
    pub(crate) keyed: bool,
}

impl Live {
    /// Whether some actor's token for it is valid.
    pub(crate) fn in_progress(&self) -> bool {
        matches!(self.place, Place::Run { nonce } if nonce != 0)
    }

    /// How many dependencies have signalled so far.
    pub(crate) fn signals(&self) -> i32 {
        match self.place {
            Place::Blocked { remaining, .. } => self.dependencies - remaining,
            _ => self.dependencies,
        }
    }

    /// A row of `run`, of which the statement has these columns: task_no, tries, failures, dependencies, nonce,
    /// granted_at, actor_id, limited, keyed, deadline.
    pub(crate) fn in_run(row: Row) -> Self {
        Live {
            place: Place::Run { nonce: row.need(5) },
            granted_at: row.get(6),
            actor_id: row.get(7),
            limited: row.need(8),
            keyed: row.need(9),
            deadline: row.need(10),
            ..Live::counted(row)
        }
    }

    /// A row of `blocked`: task_no, tries, failures, dependencies, remaining, not_before.
    pub(crate) fn in_blocked(row: Row) -> Self {
        Live {
            place: Place::Blocked { remaining: row.need(5), not_before: row.get(6) },
            ..Live::counted(row)
        }
    }

    /// A row of `scheduled`: task_no, tries, failures, dependencies, due.
    pub(super) fn in_scheduled(row: Row) -> Self {
        Live { place: Place::Scheduled { due: row.need(5) }, ..Live::counted(row) }
    }

    /// A row of `parked`: task_no, tries, failures, dependencies.
    pub(super) fn in_parked(row: Row) -> Self {
        Live::counted(row)
    }

    /// What the rows of all four tables begin with.
    fn counted(row: Row) -> Self {
        Live {
            task_no: row.need(1),
            place: Place::Parked,
            tries: row.need(2),
            failures: row.need(3),
            dependencies: row.need(4),
            granted_at: None,
            deadline: Time::INFINITY,
            actor_id: None,
            limited: false,
            keyed: false,
        }
    }
}
