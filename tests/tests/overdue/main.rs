//! What is due while calls wait is done in time, whatever stands before it, and disturbs none that has no use for it.

mod backlogs;
mod in_time;
mod nearest;
mod undisturbed;

use taskq_tests::sleeper;
