//! How rows are locked: for a change or held, waiting or not.

use crate::number::TaskNo;
use crate::pg::statement::Statement;

/// How firmly rows are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Firmness {
    /// FOR UPDATE: about to be changed or removed.
    Change,
    /// FOR KEY SHARE: may be granted, extended and counted down, but cannot settle before this
    /// transaction ends. An edge from the task to a new one is then never overlooked by its settling.
    Hold,
}

/// A statement that locks rows of tasks by their numbers, in four ways, and returns them as `R`.
pub(super) struct Lock<R> {
    pub(super) change: Statement<&'static [TaskNo], R>,
    pub(super) hold: Statement<&'static [TaskNo], R>,
    /// The same without waiting: rows that somebody else has locked are left out.
    pub(super) try_change: Statement<&'static [TaskNo], R>,
    pub(super) try_hold: Statement<&'static [TaskNo], R>,
}

impl<R> Lock<R> {
    pub(super) fn statement(&self, firmness: Firmness, waiting: bool) -> &Statement<&'static [TaskNo], R> {
        match (firmness, waiting) {
            (Firmness::Change, true) => &self.change,
            (Firmness::Hold, true) => &self.hold,
            (Firmness::Change, false) => &self.try_change,
            (Firmness::Hold, false) => &self.try_hold,
        }
    }
}

/// The four forms of a statement over tasks by number.
macro_rules! locking {
    ($sql:literal) => {
        $crate::store::live::forms::Lock {
            change: locking!($sql, " FOR UPDATE"),
            hold: locking!($sql, " FOR KEY SHARE"),
            try_change: locking!($sql, " FOR UPDATE SKIP LOCKED"),
            try_hold: locking!($sql, " FOR KEY SHARE SKIP LOCKED"),
        }
    };
    ($sql:literal, $clause:literal) => {
        $crate::pg::statement::Statement::new($crate::pg::statement::sql!($sql, $clause))
    };
}
pub(super) use locking;
