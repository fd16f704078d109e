//! The table `dependency`: which task runs after which.

use crate::number::{TaskNo, WaitNo};
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, record, sql};
use crate::pg::table::{self, Index, Key, Number as _, look, table};
use crate::state::Condition;

table!(c"dependency":
    AFTER_NO: TaskNo,
    RUN_NO: TaskNo,
    WAIT_NO: WaitNo,
    CONDITION: i8,
    STATE: i8,
    SUSPENDING: bool,
);

/// By after_no, run_no.
static BY_AFTER: Index = Index::of_mostly_empty(&TABLE, c"dependency_pkey");

/// "`run` runs after `after`."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The task that is waited for.
    pub(crate) after: TaskNo,
    /// The task that waits.
    pub(crate) run: TaskNo,
    /// How `after` must end for `run` to run.
    pub(crate) condition: Condition,
}

/// `state` of an edge whose end counts, or has counted. The task has gone on without the others (`d`): they are no dependencies of its
/// until it starts over.
const COUNTS: i8 = b'w' as i8;

/// The end that has counted for an edge, named `d`, as a query of its code. What has settled after the time-out of a suspended task has not
/// been counted (see [`apply`](crate::settle::apply)): it is open to that.
macro_rules! counted_end {
    () => {
        "SELECT s.code FROM taskq.settled s
          WHERE s.task_no = d.after_no
            AND NOT EXISTS (SELECT FROM taskq.blocked b
                             WHERE b.task_no = d.run_no AND b.since IS NOT NULL AND b.until < s.settled_at OFFSET 0)
         OFFSET 0"
    };
}
pub(crate) use counted_end;

/// An edge, and for which wait of the task that waits it counts.
pub(crate) type Waiting = (Edge, WaitNo);

/// What waits for these tasks, which have just ended.
///
/// To be called after the tasks' live rows were removed: the snapshot is taken here, and a transaction that added an
/// edge to one of them held its row, so that edge is committed and seen.
pub(crate) fn waiting_for(task_nos: &[TaskNo]) -> Vec<Waiting> {
    let mut task_nos = task_nos.to_vec();
    task_nos.sort_unstable();
    look(|look| {
        look.scan(&BY_AFTER, |edges| {
            let mut found = Vec::new();
            // One walk for all that have been inserted one after the other: nothing lies in between.
            for some in task_nos.chunk_by(|one, next| one.distance(*next) <= 1) {
                check_for_interrupts();
                edges.start(&[Key::at_least(1, some[0]), Key::at_most(1, some[some.len() - 1])]);
                while let Some(edge) = edges.next() {
                    if edge.get(STATE) != COUNTS {
                        continue;
                    }
                    let condition = Condition::from_stored(edge.get(CONDITION));
                    let wait_no = edge.get(WAIT_NO);
                    found.push((
                        Edge { after: edge.get(AFTER_NO), run: edge.get(RUN_NO), condition },
                        wait_no,
                    ));
                }
            }
            found
        })
    })
}

/// Inserts edges that are not there. `suspending`: they belong to a suspension.
pub(crate) fn insert(edges: impl Iterator<Item = Waiting>, suspending: bool) {
    table::insert(&TABLE, |into| {
        for (edge, wait_no) in edges {
            check_for_interrupts();
            into.row(|| {
                [
                    AFTER_NO.to(edge.after),
                    RUN_NO.to(edge.run),
                    WAIT_NO.to(wait_no),
                    CONDITION.to(edge.condition.stored()),
                    STATE.to(COUNTS),
                    SUSPENDING.to(suspending),
                ]
            });
        }
    });
}

/// These edges are waited for in these waits. The caller holds both ends, or the edges.
///
/// The second column is compared twice, so that the index by both is used: where a task has ten thousand dependencies, the one by
/// `run_no` would be gone through for each of them. A comparison of rows would not do: such a scan goes on to the last edge of
/// `after_no`.
pub(crate) static WAIT_AGAIN: Statement<(&[TaskNo], &[TaskNo], &[WaitNo])> = Statement::new(
    c"UPDATE taskq.dependency d SET wait_no = u.wait_no, state = 'w'
        FROM unnest($1, $2, $3) AS u(after_no, run_no, wait_no)
       WHERE d.after_no = u.after_no AND d.run_no >= u.run_no AND d.run_no <= u.run_no
         AND NOT (d.wait_no = u.wait_no AND d.state = 'w')",
);

/// The tasks go on without these edges. The caller holds them.
pub(crate) static DROP: Statement<(&[TaskNo], &[TaskNo])> = Statement::new(
    c"UPDATE taskq.dependency d SET state = 'd' FROM unnest($1, $2) AS u(after_no, run_no)
       WHERE d.after_no = u.after_no AND d.run_no >= u.run_no AND d.run_no <= u.run_no",
);

/// The tasks go on without those of their dependencies that are open and that no suspension has added. The caller holds both ends.
pub(crate) static DROP_OWN_OPEN: Statement<&[TaskNo]> = Statement::new(sql!(
    "UPDATE taskq.dependency d SET state = 'd'
       WHERE d.run_no = ANY ($1) AND d.state = 'w' AND NOT d.suspending AND NOT EXISTS (",
    counted_end!(),
    ")"
));

/// Removes these edges. The caller holds them.
pub(crate) static REMOVE: Statement<(&[TaskNo], &[TaskNo])> = Statement::new(
    c"DELETE FROM taskq.dependency d USING unnest($1, $2) AS u(after_no, run_no)
       WHERE d.after_no = u.after_no AND d.run_no >= u.run_no AND d.run_no <= u.run_no",
);

/// Removes those of these edges without which their tasks have gone on. The caller holds both ends.
pub(crate) static REMOVE_DROPPED: Statement<(&[TaskNo], &[TaskNo])> = Statement::new(
    c"DELETE FROM taskq.dependency d USING unnest($1, $2) AS u(after_no, run_no)
       WHERE d.after_no = u.after_no AND d.run_no >= u.run_no AND d.run_no <= u.run_no
         AND d.state = 'd'",
);

/// What a task that goes on without its open dependencies loses: one of those, or an end that was left for it and not counted yet.
pub(crate) enum Loss {
    Open,
    Left { wait_no: WaitNo, failed: i32, lost: i32, skipped: i32, lost_status: Option<String> },
}

record! {
/// A row of [`DROP_OPEN`].
struct Dropped {
    run: TaskNo,
    wait_no: Option<WaitNo>,
    failed: i32,
    lost: i32,
    skipped: i32,
    lost_status: Option<String>,
}
}

/// Drops the open dependencies of tasks that go on without them. What a suspension has added is removed, the others are only marked
/// (`d`). Nothing is waited for: what another transaction has locked is left to that.
///
/// The countdown rows of the tasks are taken in the same statement, and so in the same snapshot: what has ended in it has been counted,
/// or has left a row that is seen here.
static DROP_OPEN: Statement<&[TaskNo], Dropped> = Statement::new(sql!(
    "WITH open AS MATERIALIZED (
        SELECT d.ctid, d.suspending FROM taskq.dependency d
         WHERE d.run_no = ANY ($1) AND d.state = 'w'
           AND NOT EXISTS (",
    counted_end!(),
    ")
           FOR UPDATE SKIP LOCKED),
      gone AS (
        DELETE FROM taskq.dependency d
         WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM open AS o WHERE o.suspending)) RETURNING d.run_no),
      kept AS (
        UPDATE taskq.dependency d SET state = 'd'
         WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM open AS o WHERE NOT o.suspending)) RETURNING d.run_no),
      left_over AS (
        DELETE FROM taskq.countdown s WHERE s.run_no = ANY ($1)
        RETURNING s.run_no, s.wait_no, s.failed, s.lost, s.skipped, s.lost_status)
      SELECT g.run_no, NULL::integer, 0, 0, 0, NULL::text FROM gone AS g
      UNION ALL SELECT k.run_no, NULL, 0, 0, 0, NULL FROM kept AS k
      UNION ALL SELECT s.run_no, s.wait_no, s.failed, s.lost, s.skipped, s.lost_status FROM left_over AS s"
));

/// Does that; whose each loss is.
pub(crate) fn drop_open(runs: Vec<TaskNo>) -> Vec<(TaskNo, Loss)> {
    let loss = |dropped: Dropped| {
        let Dropped { run, wait_no, failed, lost, skipped, lost_status } = dropped;
        let loss =
            wait_no.map_or(Loss::Open, |wait_no| Loss::Left { wait_no, failed, lost, skipped, lost_status });
        (run, loss)
    };
    DROP_OPEN.query(runs).into_iter().map(loss).collect()
}

/// Removes what these tasks were suspended for and have not got: what is open, what was lost, and what is among them; the task after
/// which, the one that runs. (`= ANY ($1)` would compare each row with all of the list, since the condition is none of the index.)
pub(crate) static DROP_UNFINISHED: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"DELETE FROM taskq.dependency d
       WHERE d.run_no = ANY ($1) AND d.suspending
         AND (d.after_no IN (SELECT u.task_no FROM unnest($1) AS u(task_no))
              OR NOT EXISTS (SELECT FROM taskq.settled s
                              WHERE s.task_no = d.after_no AND (d.condition = 's' OR d.condition = s.code) OFFSET 0))
      RETURNING d.after_no, d.run_no",
);

/// Removes what suspensions of these tasks have added; the task after which, the one that runs.
pub(crate) static DROP_SUSPENDING: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"DELETE FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.suspending RETURNING d.after_no, d.run_no",
);

/// Removes the dependencies on these tasks.
pub(crate) static REMOVE_AFTER: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.after_no = ANY ($1)");

/// Removes the dependencies that these tasks have.
pub(crate) static REMOVE_RUN: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.run_no = ANY ($1)");
