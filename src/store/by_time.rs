//! What is due by time, whichever actions a call asks for: where each kind of it stands, in the order of time.
//!
//! Timers, tasks that are suspended until a time, and tasks that expire. Any call that looks for what is due looks for
//! these: so each kind has an index by time alone, of which the look asks for the first entry.

use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::table::Look;
use crate::store::{blocked, expiry, scheduled};

/// For each kind: expiry, suspension, timers.
pub(crate) const KINDS: usize = 3;
/// Something of each kind, in this order.
pub(crate) type Each<T> = [T; KINDS];

/// Of each kind, from a time on, the first time that has passed.
pub(crate) fn first_due(look: &Look, from: &Each<Time>, now: Time) -> Each<Option<Time>> {
    [
        expiry::first_due(look, from[0], now),
        blocked::first_until(look, from[1], now),
        scheduled::first_timer(look, from[2], now),
    ]
}

static NEXT_OF_EACH_KIND: Statement<(Time, &[Time]), Option<Time>> = Statement::new(
    c"SELECT LEAST((SELECT e.due FROM taskq.expiry e WHERE e.due > $1 AND e.due >= ($2)[1] ORDER BY e.due LIMIT 1),
                   (SELECT b.until FROM taskq.blocked b
                     WHERE b.since IS NOT NULL AND b.until > $1 AND b.until >= ($2)[2] ORDER BY b.until LIMIT 1),
                   (SELECT s.due FROM taskq.scheduled s
                     WHERE s.timer AND s.due > $1 AND s.due >= ($2)[3] ORDER BY s.due LIMIT 1))",
);

/// When the next of any kind is due after a time. What is before `from` is passed over.
pub(crate) fn next_after(time: Time, from: &Each<Time>) -> Option<Time> {
    NEXT_OF_EACH_KIND.first((time, from.as_slice())).flatten()
}
