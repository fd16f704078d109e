//! How long a call does what can be put off, beside what it is for.
//!
//! A call that is cut off by its caller's time-out has done nothing, and the next one begins anew. Where each of them is cut
//! off, by work that none of them has asked for, nobody is ever granted anything again, however many call. How long that work
//! takes is not known before: it depends on who else is at it, and on what else the server has to do. So it is done in
//! small parts, and the clock is asked between them.

use std::time::{Duration, Instant};

use crate::pg::session::statement_time_left;

/// What a call has left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    until: Instant,
}

impl Allowance {
    /// From now on, so long; and a quarter of what is left of the caller's time-out at most.
    pub(crate) fn of(time: Duration) -> Self {
        let time = statement_time_left().map_or(time, |left| time.min(left / 4));
        Allowance { until: Instant::now() + time }
    }

    /// From now on, half of what is left of the caller's time-out, if it has one.
    pub(crate) fn half_of_time_out() -> Option<Self> {
        statement_time_left().map(|left| Allowance { until: Instant::now() + left / 2 })
    }

    pub(crate) fn is_used_up(&self) -> bool {
        Instant::now() >= self.until
    }
}
