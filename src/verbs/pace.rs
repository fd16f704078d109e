//! How soon a sleeping call looks again without being woken.
//!
//! Wake-ups are to end a sleep. But a wake-up can get lost, and taskq cannot prevent it: Postgres resets a backend's
//! latch where it waits for a lock or for another backend's page, so a wake-up that comes in the middle of a look may be
//! gone by its end. And a look skips what others have locked, and they may release it without a change. Both are mostly
//! over a moment later. So **a short sleep follows first**, and another look. What is still locked then is
//! searched for after twice the time, and so on: nothing stays hidden for much longer than it was locked. Otherwise the
//! long sleeps follow, which double as well, up to that of [`wake::longest_sleep`].
//!
//! Looks cost something, and many calls sleep: at the end of such a sleep a look that can find nothing new, since no transaction of
//! the whole cluster has changed anything since the one before, is left out. A backend whose call for some actions came
//! back empty goes on with the long sleeps where it was, if it calls for the same ones within a second.

use std::time::Duration;

use crate::guc;
use crate::memory::{Belief, Latest, Memory};
use crate::pg::session;
use crate::wake;

/// The first long sleep, as a multiple of the short one.
const FIRST_LONG: u32 = 4;

/// How long the sleeps of a call are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    shortest: Duration,
    longest: Duration,
    /// The next long sleep.
    long: Duration,
    /// The sleep before the last look, if that was a short one or counts as one.
    short: Option<Duration>,
}

impl Pace {
    fn new(shortest: Duration, longest: Duration) -> Self {
        let shortest = shortest.min(longest);
        Pace { shortest, longest, long: (shortest * FIRST_LONG).min(longest), short: None }
    }

    /// That of this server and session.
    pub(super) fn of_session() -> Self {
        Pace::new(guc::shortest_sleep(), wake::longest_sleep())
    }

    /// To be called when a wake-up has ended the sleep: the look that follows counts as the first one.
    pub(super) fn woken(&mut self) {
        self.short = None;
    }

    /// To be called when a look was left out: there is nothing that it could have missed, so a long sleep may follow.
    pub(super) fn left_out(&mut self) {
        self.short = Some(self.shortest);
    }

    /// The sleep after a look, which has `passed_over` something that others held, or not.
    pub(super) fn next(&mut self, passed_over: bool) -> Duration {
        match self.short {
            None => {
                self.short = Some(self.shortest);
                self.shortest
            }
            Some(last) if passed_over => {
                let sleep = (last * 2).min(self.longest);
                self.short = Some(sleep);
                sleep
            }
            Some(_) => {
                let sleep = self.long;
                self.short = None;
                self.long = (sleep * 2).min(self.longest);
                sleep
            }
        }
    }
}

/// Shorter by up to a quarter, by chance: calls that were woken together need not look together for ever.
pub(super) fn staggered(sleep: Duration) -> Duration {
    let chance = (session::random_62_bits() & 0xffff) as u32;
    sleep - sleep / 4 * chance / 0x1_0000
}

/// Whether anything can have changed since a look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quiet(Option<u64>);

impl Quiet {
    /// To be taken before a look.
    pub(super) fn before_look() -> Self {
        Quiet(session::next_transaction_id_if_quiet())
    }

    /// Whether nothing can have changed. What the look did not see was committed, if at all, by a transaction that had
    /// its id by the time of the look or has got it since: there is none of the first kind if this is known at all, and
    /// none of the second while the next id is still the same.
    pub(super) fn still(self) -> bool {
        self.0.is_some_and(|next| next == session::next_transaction_id())
    }
}

/// The pace of a call that has come back empty, for the one that follows: by the actions.
static BEFORE: Memory<Latest<Vec<String>, Pace>> = Memory::of(Belief::Pace);

/// The pace with which a call for these actions begins.
pub(super) fn resume(names: &[String]) -> Pace {
    let fresh = Pace::of_session();
    let before = BEFORE.with(|before| before.take(names));
    before.map_or(fresh, |before| Pace { long: before.long.min(fresh.longest), ..fresh })
}

/// A call for these actions comes back with nothing.
pub(super) fn remember(names: &[String], pace: Pace) {
    BEFORE.with(|before| before.note(names.to_vec(), pace));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace::new(Duration::from_millis(100), Duration::from_secs(30))
    }

    fn sleeps(pace: &mut Pace, passed_over: bool, n: usize) -> Vec<u64> {
        (0..n).map(|_| pace.next(passed_over).as_millis() as u64).collect()
    }

    #[test]
    fn each_look_is_followed_by_a_short_sleep_and_the_long_ones_grow() {
        let all = sleeps(&mut pace(), false, 18);
        assert_eq!(
            all,
            [
                100, 400, 100, 800, 100, 1600, 100, 3200, 100, 6400, 100, 12800, 100, 25600, 100, 30000, 100,
                30000
            ]
        );
    }

    #[test]
    fn what_others_hold_is_looked_for_after_twice_the_time() {
        let mut pace = pace();
        assert_eq!(sleeps(&mut pace, false, 2), [100, 400]);
        assert_eq!(sleeps(&mut pace, true, 5), [100, 200, 400, 800, 1600]);
        assert_eq!(sleeps(&mut pace, false, 2), [800, 100], "free again: on with the long ones");
        assert_eq!(sleeps(&mut pace, true, 12)[8..], [30000; 4], "never longer than the longest");
    }

    #[test]
    fn a_wake_up_makes_the_next_sleep_short_and_no_other() {
        let mut pace = pace();
        sleeps(&mut pace, false, 9);
        pace.woken();
        assert_eq!(sleeps(&mut pace, false, 2), [100, 6400]);
    }

    #[test]
    fn looks_that_are_left_out_are_followed_by_long_sleeps() {
        let mut pace = pace();
        let mut all = Vec::new();
        for _ in 0..4 {
            all.extend(sleeps(&mut pace, false, 1));
            pace.left_out();
        }
        assert_eq!(all, [100, 400, 800, 1600]);
    }

    #[test]
    fn short_is_never_longer_than_long() {
        let mut pace = Pace::new(Duration::from_secs(30), Duration::from_secs(5));
        assert_eq!(sleeps(&mut pace, false, 3), [5000, 5000, 5000]);
        assert_eq!(sleeps(&mut pace, true, 3), [5000, 5000, 5000]);
    }
}
