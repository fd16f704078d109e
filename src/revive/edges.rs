//! The dependencies of tasks that come back, as they are stored.

use crate::input::Wants;
use crate::number::{FIRST_WAIT, TaskNo, WaitNo};
use crate::pg::session::transaction_number;
use crate::pg::statement::{Statement, sql};
use crate::state::{Condition, Outcome};
use crate::store::{dependency, settled};

static STANDING: Statement<&[TaskNo], (TaskNo, i8, Option<i8>, TaskNo, WaitNo, bool)> = Statement::new(sql!(
    "SELECT d.run_no, d.condition, s.outcome, d.after_no, d.wait_no, d.suspending
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
    /// How it has ended, if it has.
    pub(super) outcome: Option<Outcome>,
    /// For which wait it counts.
    pub(super) wait_no: WaitNo,
    /// A suspension has added it.
    pub(super) suspending: bool,
}

/// Each dependency of the tasks.
pub(super) fn standing_of(task_nos: &[TaskNo], mut see: impl FnMut(Stored)) {
    for (run, condition, outcome, after, wait_no, suspending) in STANDING.map(task_nos, |columns| columns) {
        let condition = Condition::from_stored(condition);
        let outcome = outcome.map(Outcome::from_stored);
        see(Stored { run, after, condition, outcome, wait_no, suspending });
    }
}

/// Edges that count for another wait of their tasks from now on.
#[derive(Default)]
pub(super) struct Renumbered {
    after: Vec<TaskNo>,
    run: Vec<TaskNo>,
    wait_no: Vec<WaitNo>,
}

impl Renumbered {
    /// The number of the wait that a task begins for these open dependencies, which belong to earlier waits. It has a new one where
    /// ends may be on their way to it that count for none: some of its dependencies suffice, or it was suspended.
    pub(super) fn next_wait(&mut self, run: TaskNo, open: &[(TaskNo, WaitNo)], wants: Wants) -> WaitNo {
        if wants.num_required.is_none() && open.iter().all(|(_, wait_no)| *wait_no == FIRST_WAIT) {
            return FIRST_WAIT;
        }
        let wait_no = transaction_number();
        for (after, _) in open {
            self.add(*after, run, wait_no);
        }
        wait_no
    }

    /// The dependency counts for this wait of `run` from now on.
    pub(super) fn add(&mut self, after: TaskNo, run: TaskNo, wait_no: WaitNo) {
        self.after.push(after);
        self.run.push(run);
        self.wait_no.push(wait_no);
    }

    /// Writes it to the rows of `dependency`.
    pub(super) fn store(self) {
        if !self.after.is_empty() {
            dependency::RENUMBER.execute((self.after, self.run, self.wait_no));
        }
    }
}
