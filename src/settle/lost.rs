//! Dependencies that were lost, and what a task aborts with because of them.
//!
//! A task that aborts only because of what was not needed (see [`Signal::Lost`]) is skipped. Of several that are lost
//! when it aborts, in whatever order, the first that has failed decides.

use crate::number::TaskNo;
use crate::state::{Cause, Condition, Outcome, Signal};

/// The status of a task for which some of its dependencies suffice, and which has no longer so many.
pub(crate) const TOO_FEW: &str = "too few dependencies are left of those that it needs";

/// A dependency that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The task that was waited for.
    pub(crate) after: TaskNo,
    condition: Condition,
    outcome: Outcome,
}

impl Lost {
    /// The dependency on this condition on a task that has ended like this, if it is lost by that.
    pub(crate) fn of(after: TaskNo, condition: Condition, outcome: Outcome) -> Option<Self> {
        let lost = matches!(condition.signal(outcome), Signal::Lost { .. });
        lost.then_some(Lost { after, condition, outcome })
    }

    /// Whether nothing has failed there.
    pub(crate) fn skipped(self) -> bool {
        self.condition.signal(self.outcome) == Signal::Lost { skipped: true }
    }

    /// Of two that were lost, the one that decides: the first, unless only the other has failed.
    pub(crate) fn decides(before: Option<Self>, lost: Self) -> Self {
        before.filter(|before| !before.skipped() || lost.skipped()).unwrap_or(lost)
    }

    /// The cause with which the task that waits aborts.
    pub(crate) fn cause(self) -> Cause {
        Cause::of_lost(self.skipped())
    }

    /// The status with which the task that waits aborts; `id` is that of the other.
    pub(crate) fn status(self, id: &str) -> String {
        match self.outcome {
            Outcome::Aborted => format!("dependency \"{id}\" aborted"),
            Outcome::Completed => format!("skipped: dependency \"{id}\" completed"),
            Outcome::Skipped => format!("skipped: dependency \"{id}\" was skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_failed_decides_in_any_order() {
        let lost = |n, outcome| Lost::of(TaskNo(n), Condition::Completed, outcome).unwrap();
        let not_needed = Lost::of(TaskNo(1), Condition::Aborted, Outcome::Completed).unwrap();
        let (skipped, failed) = (lost(2, Outcome::Skipped), lost(3, Outcome::Aborted));
        for order in
            [[not_needed, skipped, failed], [failed, not_needed, skipped], [skipped, failed, not_needed]]
        {
            let decides = order.into_iter().fold(None, |before, next| Some(Lost::decides(before, next)));
            assert_eq!(decides, Some(failed));
        }
        assert_eq!(Lost::decides(Some(not_needed), skipped), not_needed);
        assert_eq!((failed.cause(), not_needed.cause()), (Cause::Dependency, Cause::Skipped));
        assert_eq!(Lost::of(TaskNo(1), Condition::Aborted, Outcome::Skipped), None);
        assert_eq!(Lost::of(TaskNo(1), Condition::Settled, Outcome::Aborted), None);
    }
}
