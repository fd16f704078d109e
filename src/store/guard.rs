//! The guard of the graph: one transaction at a time may close paths through stored tasks.

use super::order;
use crate::pg::statement::Statement;

/// The row lock lasts until the transaction ends. Under REPEATABLE READ a guard that moved since the
/// snapshot is a serialization failure.
static GUARD: Statement<()> = Statement::new(c"UPDATE taskq.graph_guard SET version = version + 1");

/// Makes this transaction the only one that may close cycles through stored tasks. Two calls that only
/// together close a cycle run one after the other, and the second sees what the first has stored.
pub(crate) fn guard() {
    order::before_guard();
    GUARD.execute(());
}
