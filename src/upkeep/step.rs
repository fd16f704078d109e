//! A step of upkeep.

/// How many rows of a kind one step handles when its transaction does not stay open.
pub(crate) const STEP: i32 = 200;

/// What one step did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// There was something to do.
    pub(crate) done: bool,
    /// There may be more.
    pub(crate) more: bool,
}
