//! What a session remembers of the queue: copies of what the tables hold, and hints about it.
//!
//! What it believes, for how long, and what ends that, is in one list: [`beliefs`]. Each memory has one owner, which declares it as a
//! [`Memory`] of a [`Remembered`] (by keys), of a [`Latest`] (of one key only), or of a type that has a rule of its own
//! ([`Remembers`]). All of them are in one variable, so that what makes several of them untrue reaches all ([`happened`]), and a
//! person who looks for a mistake sees them ([`shown`]).
//!
//! What is not here is no belief: what a transaction or a call under way has done so far, counters by which something is done now
//! and then, places where rows lay (a guess that is checked by each use, `pg::table::places`), kept plans and handles of the server.
//! `tests/rules/src/variables.rs` has a list of such variables.

mod beliefs;
pub(crate) mod cost;
mod remembered;
mod rule;
mod session;
#[cfg(test)]
mod tests;

pub(crate) use beliefs::Belief;
pub(crate) use remembered::{Latest, Now, Remembered, Remembers, Shown};
pub(crate) use rule::{Event, Rule};
#[cfg(any(test, feature = "pg_test"))]
pub(crate) use session::forget_all;
pub(crate) use session::{Memory, clock_shows, happened, shown};
