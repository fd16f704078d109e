//! The guard of the graph: one transaction at a time may close paths through stored tasks.

use super::order;
use crate::store::graph_guard::GUARD;

/// Makes this transaction the only one that may close cycles through stored tasks. Two calls that only
/// together close a cycle run one after the other, and the second sees what the first has stored, or fails with `40001`.
pub(crate) fn guard() {
    order::before_guard();
    GUARD.execute(());
}
