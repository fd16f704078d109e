//! The dependencies of tasks that come back, as they are stored.

use crate::locks;
use crate::number::{TaskNo, WaitNo};
use crate::pg::statement::{Statement, sql};
use crate::state::{Condition, Outcome};
use crate::store::dependency::{self, Counts};
use crate::store::settled;

static STANDING: Statement<&[TaskNo], (TaskNo, TaskNo, i8, i8, Option<i8>, WaitNo, i8, bool)> =
    Statement::new(sql!(
    "SELECT d.run_no, d.after_no, d.condition, d.first_condition, s.outcome, d.wait_no, d.counts, d.suspending
        FROM taskq.dependency d
        LEFT JOIN LATERAL (SELECT ",
    settled::outcome!("s"),
    " AS outcome
                             FROM taskq.settled s WHERE s.task_no = d.after_no OFFSET 0) AS s ON true
       WHERE d.run_no = ANY ($1)"
));

/// A dependency that is stored.
pub(super) struct Stored {
    /// The task that waits.
    pub(super) run: TaskNo,
    /// The task that is waited for.
    pub(super) after: TaskNo,
    /// How that has to end.
    pub(super) condition: Condition,
    /// How it had to before suspensions.
    pub(super) first_condition: Condition,
    /// How it has ended, if it has.
    pub(super) outcome: Option<Outcome>,
    /// For which wait it counts, if it does.
    pub(super) wait_no: WaitNo,
    /// What it is to the task that waits.
    pub(super) counts: Counts,
    /// A suspension has added it.
    pub(super) suspending: bool,
}

/// Each dependency of the tasks.
pub(super) fn standing_of(task_nos: &[TaskNo], mut see: impl FnMut(Stored)) {
    let columns = |columns| columns;
    for (run, after, condition, first_condition, outcome, wait_no, counts, suspending) in
        STANDING.map(task_nos, columns)
    {
        see(Stored {
            run,
            after,
            condition: Condition::from_stored(condition),
            first_condition: Condition::from_stored(first_condition),
            outcome: outcome.map(Outcome::from_stored),
            wait_no,
            counts: Counts::from_stored(counts),
            suspending,
        });
    }
}

/// Under which condition an edge is waited for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Under {
    /// That with which it was first made: the task is not suspended for it. It is in no suspension, or in one for others.
    First,
    /// The one that it has: the task is suspended for it, or was.
    ThatOfSuspension,
}

/// What becomes of edges of tasks that start over, or whose dependencies do.
#[derive(Default)]
pub(super) struct Changed {
    waits: (Vec<TaskNo>, Vec<TaskNo>, Vec<WaitNo>, Vec<bool>),
    others: (Vec<TaskNo>, Vec<TaskNo>, Vec<i8>),
}

impl Changed {
    /// `run` waits for `after` again, in this wait.
    pub(super) fn wait(&mut self, after: TaskNo, run: TaskNo, wait_no: WaitNo, under: Under) {
        let (afters, runs, wait_nos, firsts) = &mut self.waits;
        afters.push(after);
        runs.push(run);
        wait_nos.push(wait_no);
        firsts.push(under == Under::First);
    }

    /// The edge counts for no wait any more.
    pub(super) fn count_no_more(&mut self, after: TaskNo, run: TaskNo, counts: Counts) {
        let (afters, runs, all) = &mut self.others;
        afters.push(after);
        runs.push(run);
        all.push(counts.stored());
    }

    /// Writes it to the rows of `dependency`. They are locked first, all of them: of what has settled the caller holds no row, and a
    /// call that replaces it removes its dependencies.
    pub(super) fn store(self) {
        let waits = self.waits.0.iter().zip(&self.waits.1);
        let others = self.others.0.iter().zip(&self.others.1);
        locks::lock_edges(&waits.chain(others).map(|(after, run)| (*after, *run)).collect::<Vec<_>>());
        if !self.waits.0.is_empty() {
            dependency::WAIT_AGAIN.execute(self.waits);
        }
        if !self.others.0.is_empty() {
            dependency::COUNT_NO_MORE.execute(self.others);
        }
    }
}
