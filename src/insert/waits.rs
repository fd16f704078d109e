//! What the dependencies of a task amount to.

use crate::input::Wants;
use crate::number::TaskNo;
use crate::settle::Lost;
use crate::state::{Condition, Outcome};

/// Dependencies of a task, counted: all those of a new one, or what changes for a stored one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waits {
    /// Dependencies that have not settled.
    pub(crate) unsettled: i32,
    /// Dependencies in all, settled or not.
    pub(crate) all: i32,
    /// Settled ones that aborted.
    pub(crate) failed: i32,
    /// Settled ones that ended the wrong way.
    pub(crate) lost: i32,
}

/// What the dependencies of a task amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Too many of them have ended the wrong way.
    Lost,
    /// It has what it needs.
    Free,
    /// So many have to end as they should, and of so many it can do without: see `blocked`.
    Waiting { remaining: i32, spare: i32 },
}

impl Waits {
    /// What they amount to for a task.
    pub(crate) fn standing(self, wants: Wants) -> Standing {
        if wants.signal {
            return match self.lost {
                0 => Standing::Waiting { remaining: self.unsettled + 1, spare: -1 },
                _ => Standing::Lost,
            };
        }
        let required = wants.num_required.unwrap_or(self.all);
        let remaining = required - (self.all - self.unsettled - self.lost);
        let spare = self.all - required - self.lost;
        match (remaining, spare) {
            (_, ..0) => Standing::Lost,
            (..1, _) => Standing::Free,
            _ => Standing::Waiting { remaining, spare },
        }
    }

    /// Counts a dependency on this condition, of those that are there in all: on a task that has ended like this, if it
    /// has. It is returned if it is lost.
    pub(crate) fn count(
        &mut self,
        after: TaskNo,
        condition: Condition,
        end: Option<Outcome>,
    ) -> Option<Lost> {
        let Some(outcome) = end else {
            self.unsettled += 1;
            return None;
        };
        self.failed += i32::from(outcome.is_abort());
        let lost = Lost::of(after, condition, outcome);
        self.lost += i32::from(lost.is_some());
        lost
    }
}
