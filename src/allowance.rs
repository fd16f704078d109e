//! How long a call that may be cut off does work that can be put off, beside its own.
//!
//! A call that is cut off by its caller's time-out has done nothing, and the next one begins anew. If each of them is cut off
//! by work that none of them has asked for, no call is ever granted anything again. How long that work takes is not known
//! before: it depends on what other sessions and the server are doing. So it is done in small parts, and the clock is read
//! between them.
//!
//! A call without a time-out does as much as other limits allow.

use std::time::{Duration, Instant};

use crate::pg::session::statement_time_left;

/// What a call has left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// `None`: as long as it takes.
    until: Option<Instant>,
}

impl Allowance {
    /// From now on, a quarter of what is left of the caller's time-out.
    pub(crate) fn quarter_of_time_out() -> Self {
        Allowance { until: statement_time_left().map(|left| Instant::now() + left / 4) }
    }

    /// Half of it.
    pub(crate) fn half_of_time_out() -> Self {
        Allowance { until: statement_time_left().map(|left| Instant::now() + left / 2) }
    }

    /// The same, but no longer than this.
    pub(crate) fn at_most(self, time: Duration) -> Self {
        let most = Instant::now() + time;
        Allowance { until: Some(self.until.map_or(most, |until| until.min(most))) }
    }

    /// How much is left; `None`: any amount.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Whether nothing is left of it; never so without a time-out, unless [`Allowance::at_most`] has bounded it.
    pub(crate) fn is_used_up(&self) -> bool {
        !self.has_room_for(Duration::ZERO)
    }

    /// Whether so much is left of it.
    pub(crate) fn has_room_for(&self, time: Duration) -> bool {
        self.until.is_none_or(|until| Instant::now() + time < until)
    }
}
