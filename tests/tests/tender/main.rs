//! What becomes due while calls sleep is done in time by a worker that they have called, whatever stands before it. It wakes those that have
//! a use for it, and disturbs no other.

mod after_upkeep;
mod backlogs;
mod deadlines;
mod each;
mod in_time;
mod nearest;
mod tender;
mod undisturbed;
mod wakes;

use taskq_tests::sleeper;
