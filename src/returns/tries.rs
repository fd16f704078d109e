//! What becomes of a task when a try of it is given back by its worker, is ended by an operator, or passes its deadline.

use std::collections::HashMap;

use crate::flow::actions::{TryLimits, try_limits};
use crate::number::TaskNo;
use crate::settle::Ending;
use crate::state::Cause;
use crate::store::attempts;
use crate::store::live::Live;

/// How a try ends that settles its task only if it was the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryEnd {
    /// Its worker gives the task back.
    GivenBack,
    /// Its worker gives the task back, and the try does not count.
    Released,
    /// An operator takes the task from its worker.
    Revoked,
    /// Its deadline has passed.
    TimedOut,
}

impl TryEnd {
    /// As `attempt.outcome` has it.
    pub(crate) fn outcome(self) -> &'static str {
        match self {
            TryEnd::GivenBack => "pending",
            TryEnd::Released => attempts::RELEASED,
            TryEnd::Revoked => "revoked",
            TryEnd::TimedOut => "timeout",
        }
    }
}

/// Tries whose deadlines have passed: those that another one follows, and the ends of tasks whose last they were.
pub(crate) fn timed_out(tries: Vec<Live>) -> (Vec<Live>, Vec<Ending>) {
    let allowed = Allowed::of(tries.iter().map(|live| (live, TryEnd::TimedOut)));
    let (mut going_on, mut endings) = (Vec::new(), Vec::new());
    for live in tries {
        match allowed.end(&live, TryEnd::TimedOut, None) {
            Some(ending) => endings.push(ending),
            None => going_on.push(live),
        }
    }
    (going_on, endings)
}

/// How many tries tasks may have, as it is asked when some of these end.
pub(super) struct Allowed {
    limits: HashMap<TaskNo, TryLimits>,
    timeouts: HashMap<TaskNo, i32>,
}

impl Allowed {
    /// Of the tasks whose tries end like this.
    pub(super) fn of<'a>(ended: impl Iterator<Item = (&'a Live, TryEnd)>) -> Self {
        let (mut counted, mut timed_out) = (Vec::new(), Vec::new());
        for (live, how) in ended.filter(|(_, how)| *how != TryEnd::Released) {
            counted.push(live.task_no);
            if how == TryEnd::TimedOut {
                timed_out.push(live.task_no);
            }
        }
        let limits = if counted.is_empty() { HashMap::new() } else { try_limits(&counted) };
        // The history has the earlier ones; this one makes one more.
        timed_out
            .retain(|n| limits.get(n).is_some_and(|limit| limit.max_timeouts.is_some_and(|max| max > 1)));
        Allowed { timeouts: attempts::timeouts(&timed_out), limits }
    }

    /// The end of the task, if this try was its last one.
    pub(super) fn end(&self, live: &Live, how: TryEnd, status: Option<&str>) -> Option<Ending> {
        // A try that does not count is never the last.
        let limit = self.limits.get(&live.task_no).filter(|_| how != TryEnd::Released)?;
        let used_up = limit.max_tries.filter(|max| live.tries >= *max);
        let timeouts = || self.timeouts.get(&live.task_no).unwrap_or(&0) + 1;
        let abort = |cause, why: String| Ending::abort(live, cause, Some(status.map_or(why, str::to_owned)));
        match how {
            TryEnd::GivenBack => {
                used_up.map(|max| abort(Cause::Exhausted, format!("all {max} tries are used up")))
            }
            TryEnd::Revoked => used_up.map(|_| abort(Cause::Exhausted, taken_away(live))),
            TryEnd::TimedOut => {
                let over = used_up.is_some() || limit.max_timeouts.is_some_and(|max| timeouts() >= max);
                over.then(|| abort(Cause::Deadline, too_late(live)))
            }
            TryEnd::Released => None,
        }
    }
}

fn too_late(live: &Live) -> String {
    format!("the deadline passed on try {}, and there is no other (actor \"{}\")", live.tries, actor(live))
}

fn taken_away(live: &Live) -> String {
    format!("taken from actor \"{}\" on try {}, and there is no other", actor(live), live.tries)
}

fn actor(live: &Live) -> &str {
    live.actor_id.as_deref().unwrap_or_default()
}
