//! Children: tasks that are born in the transaction that settles their parent.

use std::collections::{BTreeMap, HashMap};

use pgrx::datum::Interval;
use pgrx::pg_sys::{INT8ARRAYOID, INT8OID, TIMESTAMPTZOID};

use super::{Codes, Entry, Return, take};
use crate::error::Result;
use crate::insert::{OnConflict, Options, guard, insert, lock_for_change};
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, args};
use crate::settle::{Ending, deltas, propagate_deltas, store_all};
use crate::spec::{Reference, TaskSpec, check_interval};
use crate::state::{Cause, Condition};
use crate::store::live::{Live, Place};
use crate::store::numbers;
use crate::token::Token;

/// What a return brings along for those that come after.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    tasks: Vec<TaskSpec>,
    /// Dependents of the parent wait for the children, too.
    block: bool,
    /// Neither the children nor the dependents are owned before this is over.
    delay: Option<Interval>,
}

impl Children {
    /// `None` if there are no children and nothing to delay.
    pub(crate) fn new(tasks: Vec<TaskSpec>, block: bool, delay: Option<Interval>) -> Result<Option<Self>> {
        check_interval("delay_children", delay)?;
        let any = !tasks.is_empty() || delay.is_some();
        Ok(any.then_some(Children { tasks, block, delay }))
    }
}

static DEPENDENTS: Statement =
    Statement::new(c"SELECT d.run_no, d.condition FROM taskq.dependency d WHERE d.after_no = $1", &[INT8OID]);
static POSTPONE: Statement = Statement::new(
    c"UPDATE taskq.blocked b SET not_before = GREATEST(b.not_before, $2) WHERE b.task_no = ANY ($1)",
    &[INT8ARRAYOID, TIMESTAMPTZOID],
);

/// Settles one task whose return brings children.
///
/// The order within the transaction: the parent's row is removed (which decides whether the token is
/// good), its end is stored, the children are inserted with their edges to the dependents, and only then
/// the dependents are signalled. None of them can be free in between.
///
/// The dependents that are to wait for the children are locked, waiting for whoever holds one: they come
/// after the parent in the global order (`run` before `blocked`).
pub(super) fn settle_with(
    (i, token): (usize, Token),
    returns: &[Entry],
    now: Time,
    codes: &mut Codes,
) -> Result<()> {
    let Return::Settle { outcome, status, result, children: Some(children) } = &returns[i].2 else {
        return Ok(());
    };
    let mut tasks = children.tasks.clone();
    if children.block && tasks.iter().any(|t| !t.depends_on.is_empty()) {
        // Children that depend on stored tasks and block stored tasks may close a cycle; the guard comes
        // first in the global order.
        guard();
    }
    let gone = take(&[(i, token)]);
    let Some(live) = gone.get(&token.task_no).filter(|l| l.place == Place::Run { nonce: token.nonce }) else {
        return Ok(());
    };
    codes.insert(i, outcome.name());
    let ending = Ending {
        outcome: *outcome,
        result: result.clone(),
        ..Ending::abort(live, Cause::Worker, status.clone())
    };
    // Signals go to the dependents there are now: a child that depends on its parent finds it settled.
    let signals = deltas(&store_all(&[ending], now));

    let due = children.delay.map(|delay| now.plus(delay));
    if children.block || due.is_some() {
        let dependents = blocked_dependents(token.task_no);
        if let Some(due) = due {
            let task_nos: Vec<i64> = dependents.keys().copied().collect();
            POSTPONE.execute(args![task_nos, due]);
        }
        if children.block {
            let ids = numbers::ids(&dependents.keys().copied().collect::<Vec<_>>());
            for task in &mut tasks {
                wait_for_child(task, &dependents, &ids);
            }
        }
    }
    for task in &mut tasks {
        task.not_before = task.not_before.max(due);
    }
    insert(tasks, Options { on_conflict: OnConflict::Error, ignore_missing: false })?;
    propagate_deltas(signals, now);
    Ok(())
}

/// The blocked dependents of a task, locked, with their conditions.
fn blocked_dependents(task_no: i64) -> BTreeMap<i64, Condition> {
    let edges: BTreeMap<i64, Condition> = DEPENDENTS
        .query(args![task_no], |row| (row.need(1), Condition::from_stored(row.need(2))))
        .into_iter()
        .collect();
    let rows: HashMap<i64, Live> = lock_for_change(&edges.keys().copied().collect::<Vec<_>>());
    edges
        .into_iter()
        .filter(|(n, _)| rows.get(n).is_some_and(|row| matches!(row.place, Place::Blocked { .. })))
        .collect()
}

/// Adds edges from a child to the dependents of its parent. Who needs the parent to complete needs the
/// child to complete; who only needs it to be over, or to fail, needs the child to be over.
fn wait_for_child(child: &mut TaskSpec, dependents: &BTreeMap<i64, Condition>, ids: &HashMap<i64, String>) {
    for (task_no, condition) in dependents {
        let Some(id) = ids.get(task_no) else { continue };
        if child.to_signal_after.iter().any(|r| r.id == *id) {
            continue;
        }
        let condition = match condition {
            Condition::Completed => Condition::Completed,
            Condition::Aborted | Condition::Settled => Condition::Settled,
        };
        child.to_signal_after.push(Reference { id: id.clone(), condition });
    }
}
