//! What is due while calls wait: it is done in time, and wakes those that wait for it.

mod after_upkeep;
mod backlogs;
mod deadlines;
mod in_time;
mod nearest;
mod tender;
mod undisturbed;
mod wakes;

use taskq_tests::sleeper;
