//! How strongly rows are locked, waiting or not.

use crate::number::TaskNo;
use crate::pg::statement::Statement;

/// `Update`: about to be changed or removed. `KeyShare`: may be granted, extended and counted down, but no other transaction
/// settles it before this one ends. So its settling does not overlook an edge from the task to a new one.
pub(crate) use crate::pg::table::LockStrength;

/// A statement that locks rows of tasks by their numbers, in four ways, and returns them as `R`.
pub(super) struct Lock<R> {
    /// Waits for what others have locked, and locks it against any change.
    pub(super) update: Statement<&'static [TaskNo], R>,
    /// Waits for what others have locked, and locks it against settling.
    pub(super) key_share: Statement<&'static [TaskNo], R>,
    /// As `update`, but skips rows that another transaction has locked in the way of that.
    pub(super) try_update: Statement<&'static [TaskNo], R>,
    /// As `key_share`, but skips rows that another transaction has locked in the way of that.
    pub(super) try_key_share: Statement<&'static [TaskNo], R>,
}

impl<R> Lock<R> {
    /// The statement that locks so strongly; one that is not `waiting` skips what others have locked.
    pub(super) fn statement(
        &self,
        strength: LockStrength,
        waiting: bool,
    ) -> &Statement<&'static [TaskNo], R> {
        match (strength, waiting) {
            (LockStrength::Update, true) => &self.update,
            (LockStrength::KeyShare, true) => &self.key_share,
            (LockStrength::Update, false) => &self.try_update,
            (LockStrength::KeyShare, false) => &self.try_key_share,
        }
    }
}

/// The four forms of a statement over tasks by number.
macro_rules! locking {
    ($sql:expr) => {
        $crate::locks::forms::Lock {
            update: locking!($sql, " FOR UPDATE"),
            key_share: locking!($sql, " FOR KEY SHARE"),
            try_update: locking!($sql, " FOR UPDATE SKIP LOCKED"),
            try_key_share: locking!($sql, " FOR KEY SHARE SKIP LOCKED"),
        }
    };
    ($sql:expr, $clause:literal) => {
        $crate::pg::statement::Statement::new($crate::pg::statement::sql!($sql, $clause))
    };
}
pub(super) use locking;
