//! The ends of transactions: what this backend remembers of the one under way, and does when it commits or is rolled back.

pub(crate) mod actors;
pub(crate) mod at_end;
pub(crate) mod before_commit;
mod count;
mod counters;
pub(crate) mod lose;
pub(crate) mod touched;
mod work;
