//! What was found out at some cost is good for a while.
//!
//! Some questions need a scan along an index: is anything due, which groups are full. Under a snapshot that a session
//! holds for long, these scans pass all dead entries, and grow. Where the answer need not be exact to the moment, it is
//! kept for a while that is in proportion to what it has cost, up to [`LONGEST_MEMORY`]: so up to that such a scan takes one or two
//! hundredths of a backend's time. What costs little is asked each time.

use std::time::Duration;

/// What reads no more pages than this, beyond those that its answer takes, costs little.
const CHEAP_PAGES: u64 = 32;

/// How long an answer is good for, for each page: a page of dead rows takes some 15 microseconds to look through.
const PER_PAGE: Duration = Duration::from_millis(1);

/// How long at most.
const LONGEST_MEMORY: Duration = Duration::from_secs(30);

/// How long an answer is good for that took so many pages, where `few` more would be cheap; `None` if it was cheap.
pub(crate) fn lasts(pages: u64, few: usize) -> Option<Duration> {
    let too_many = pages > CHEAP_PAGES.saturating_add(few as u64);
    too_many.then(|| PER_PAGE.saturating_mul(u32::try_from(pages).unwrap_or(u32::MAX)).min(LONGEST_MEMORY))
}

#[cfg(test)]
mod tests {
    use super::{Duration, lasts};

    #[test]
    fn an_answer_lasts_in_proportion_to_its_cost() {
        assert_eq!(lasts(32, 0), None);
        assert_eq!(lasts(33, 0), Some(Duration::from_millis(33)));
        assert_eq!(lasts(1_032, 1_000), None, "the answer itself is long");
        assert_eq!(lasts(u64::MAX, usize::MAX), None);
        assert_eq!(lasts(u64::MAX, 0), Some(Duration::from_secs(30)));
    }
}
