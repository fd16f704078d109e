//! How long a try may last, however often it is extended.

use pgrx::datum::Interval;

use crate::pg::clock::Time;
use crate::store::known_actions;
use crate::store::lease::Left;

/// A performance that was given more time: the deadline that it had, and the one that it has.
pub(crate) struct Extended {
    /// The task, and the deadline that it had.
    pub(crate) left: Left,
    /// The deadline that it has now.
    pub(crate) deadline: Time,
}

/// Until when a try may go on that lasts no longer than its task says, or else its action: up to `deadline`; `None` if that time
/// is over.
pub(crate) fn within_run_time(
    (granted_at, deadline): (Option<Time>, Time),
    longest: Option<Interval>,
    action_no: i32,
    now: Time,
) -> Option<Time> {
    let end = end_of_run_time(granted_at, longest, action_no);
    (end > now).then(|| deadline.min(end))
}

/// When a try ends that lasts as long as its task says, or else its action; infinity if neither does.
fn end_of_run_time(granted_at: Option<Time>, longest: Option<Interval>, action_no: i32) -> Time {
    let of_action = || known_actions::of_number(action_no)?.setting.max_run_time;
    granted_at.zip(longest.or_else(of_action)).map_or(Time::INFINITY, |(from, longest)| from.plus(longest))
}
