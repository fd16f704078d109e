//! Children: tasks that are inserted in the transaction that settles their parent. (Those for which a task is suspended are inserted
//! in [`suspend`](super::suspend).)

use std::collections::{BTreeMap, HashMap};

use pgrx::datum::Interval;

use super::end::End;
use super::taken::{Code, Returned, take};
use crate::error::Result;
use crate::input::{Reference, TaskSpec, check_interval};
use crate::insert::{OnConflict, Options, insert, lock_for_change};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::settle::{Ending, deltas, propagate_deltas, store_all};
use crate::state::Condition;
use crate::store::live::{Live, Place};
use crate::store::{blocked, numbers};

/// What a return brings along for those that come after.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    tasks: Vec<TaskSpec>,
    /// Blocked dependents of the parent wait for the children, too.
    block: bool,
    /// Neither the children nor the dependents that are still blocked are owned before this is over.
    delay: Option<Interval>,
}

impl Children {
    /// Whether inserting them may close a cycle through stored tasks.
    pub(super) fn needs_guard(&self) -> bool {
        self.block && self.tasks.iter().any(|task| !task.depends_on.is_empty())
    }

    /// `None` if there are no children and nothing to delay.
    pub(crate) fn new(tasks: Vec<TaskSpec>, block: bool, delay: Option<Interval>) -> Result<Option<Self>> {
        check_interval("delay_children", delay)?;
        let any = !tasks.is_empty() || delay.is_some();
        Ok(any.then_some(Children { tasks, block, delay }))
    }

    /// The tasks that are inserted.
    pub(super) fn tasks(&self) -> &[TaskSpec] {
        &self.tasks
    }
}

static DEPENDENTS: Statement<&[TaskNo], (TaskNo, TaskNo, i8)> = Statement::new(
    c"SELECT d.after_no, d.run_no, d.condition FROM taskq.dependency d WHERE d.after_no = ANY ($1) AND d.state = 'w'",
);

/// Settles the tasks whose returns bring children, or a delay for dependents.
///
/// The order within the transaction: the parents' rows are removed (which decides whether the tokens are
/// good), their ends are stored, the children are inserted with their edges to the dependents, and only then
/// the dependents are signalled. So the end of a parent frees none of them in between.
///
/// The dependents that are to wait for the children, or are delayed, are locked after the parents, and what the children
/// name after that: the caller is restartable.
pub(super) fn settle_with(settling: &[Returned<(&End, &Children)>], now: Time) -> Result<Vec<Code>> {
    if settling.is_empty() {
        return Ok(Vec::new());
    }
    let gone = take(settling);
    let good: Vec<(&Returned<(&End, &Children)>, &Live)> =
        settling.iter().filter_map(|one| Some((one, gone.of(one)?))).collect();
    let parents: Vec<(Ending, &Children)> =
        good.iter().map(|(one, live)| (one.how.0.of(live), one.how.1)).collect();
    // Signals go to the dependents there are now: a child that depends on its parent finds it settled.
    let endings: Vec<Ending> = parents.iter().map(|(ending, _)| ending.clone()).collect();
    let (ends, settled_at) = store_all(&endings, now);
    let signals = deltas(&ends);

    let dependents = blocked_dependents(
        parents.iter().filter(|(_, c)| c.block || c.delay.is_some()).map(|(ending, _)| ending.task_no),
    );
    let ids = numbers::ids(&dependents.values().flat_map(BTreeMap::keys).copied().collect::<Vec<_>>());
    let none = BTreeMap::new();
    let mut tasks = Vec::new();
    for (ending, children) in &parents {
        let dependents = dependents.get(&ending.task_no).unwrap_or(&none);
        let due = children.delay.map(|delay| now.plus(delay));
        if let Some(due) = due {
            blocked::POSTPONE.execute((dependents.keys().copied().collect::<Vec<_>>(), due));
        }
        for mut task in children.tasks.iter().cloned() {
            if children.block {
                wait_for_child(&mut task, dependents, &ids);
            }
            task.not_before = task.not_before.max(due);
            tasks.push(task);
        }
    }
    insert(tasks, Options { on_conflict: OnConflict::Error, ignore_missing: false })?;
    propagate_deltas(signals, Some(settled_at), now);
    Ok(good.iter().map(|(one, _)| (one.at, one.how.0.outcome.name())).collect())
}

/// The blocked dependents of each of the tasks, locked, with their conditions. There are no others by then: the rows of the tasks are
/// removed by this call, and a call that makes another task wait for one of them waits for its end.
fn blocked_dependents(parents: impl Iterator<Item = TaskNo>) -> HashMap<TaskNo, BTreeMap<TaskNo, Condition>> {
    let parents: Vec<TaskNo> = parents.collect();
    if parents.is_empty() {
        return HashMap::new();
    }
    let edges: Vec<(TaskNo, TaskNo, Condition)> = DEPENDENTS
        .map(parents, |(after_no, run_no, condition)| (after_no, run_no, Condition::from_stored(condition)));
    let rows: HashMap<TaskNo, Live> =
        lock_for_change(&edges.iter().map(|(_, run, _)| *run).collect::<Vec<_>>());
    let mut dependents: HashMap<TaskNo, BTreeMap<TaskNo, Condition>> = HashMap::new();
    for (after, run, condition) in edges {
        if rows.get(&run).is_some_and(|row| matches!(row.place, Place::Blocked(_))) {
            dependents.entry(after).or_default().insert(run, condition);
        }
    }
    dependents
}

/// Adds edges from a child to those dependents of its parent that it does not name itself. A dependent that needs the parent to complete
/// needs the child to complete; one that only needs it to be over, or to fail, needs the child to be over.
fn wait_for_child(
    child: &mut TaskSpec,
    dependents: &BTreeMap<TaskNo, Condition>,
    ids: &HashMap<TaskNo, String>,
) {
    for (task_no, condition) in dependents {
        let Some(id) = ids.get(task_no) else { continue };
        if child.to_signal_after.iter().any(|r| r.id == *id) {
            continue;
        }
        let condition = match condition {
            Condition::Completed => Condition::Completed,
            Condition::Aborted | Condition::Settled => Condition::Settled,
        };
        child.to_signal_after.push(Reference::following(id.clone(), condition));
    }
}
