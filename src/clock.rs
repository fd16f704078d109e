//! The queue's clock: the server's, or the one that a test has set with `taskq.now`.

use crate::guc;
use crate::memory;
use crate::pg::clock::{Time, parse_timestamptz, wall};

/// Now, by the queue's clock.
pub(crate) fn now() -> Time {
    let now = guc::fake_now().and_then(|text| parse_timestamptz(&text)).unwrap_or_else(|| wall().by_queue());
    memory::clock_shows(now);
    now
}
