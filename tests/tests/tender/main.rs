//! What becomes due while calls sleep is done by a worker that they have called, and wakes those that have a use for it.

mod after_upkeep;
mod deadlines;
mod each;
mod tender;
mod wakes;

use taskq_tests::sleeper;
