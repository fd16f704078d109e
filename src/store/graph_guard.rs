//! The table `graph_guard`, of one row.

use crate::pg::statement::Statement;

/// The row lock lasts until the transaction ends, or a subtransaction that is rolled back. Under REPEATABLE READ a guard
/// that moved since the snapshot is a serialization failure.
pub(crate) static GUARD: Statement<()> =
    Statement::new(c"UPDATE taskq.graph_guard SET version = version + 1");
