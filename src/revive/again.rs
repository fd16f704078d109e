//! Dependents of tasks that start over: what had ended is waited for again, or is no dependency of theirs any more.

use std::collections::{HashMap, HashSet};

use crate::insert::lock_for_change;
use crate::locks;
use crate::number::{FIRST_WAIT, TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, record, sql};
use crate::recount::{self, Recount};
use crate::settle::fold;
use crate::store::dependency::{self, counted_end};
use crate::store::live::Live;
use crate::store::{positions, task};

/// What becomes of live dependents that had counted the end of a task which starts over. One that is in progress goes on in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// They wait again. One that a suspension has made wait for it does so if it is still in that suspension.
    Wait,
    /// Those wait again whose own dependency it is: what a suspension has added is not downstream.
    WaitForTheirOwn,
    /// They keep what they have counted.
    Stay,
}

record! {
/// An end that a dependent has counted.
struct Counted {
    after: TaskNo,
    run: TaskNo,
    wait_no: WaitNo,
    suspending: bool,
    /// It ended as it should.
    met: bool,
    /// The dependent has ended after it had what it needs.
    was_freed: bool,
}
}

static COUNTED: Statement<&[TaskNo], Counted> = Statement::new(sql!(
    "SELECT d.after_no, d.run_no, d.wait_no, d.suspending, d.condition IN ('s', s.code),
             EXISTS (SELECT FROM taskq.settled r
                      WHERE r.task_no = d.run_no AND (r.granted_at IS NOT NULL OR r.code = 'c') OFFSET 0)
        FROM (SELECT d.after_no, d.run_no, d.wait_no, d.suspending, d.condition FROM taskq.dependency d
               WHERE d.after_no = ANY ($1) AND d.state = 'w' OFFSET 0) AS d
       CROSS JOIN LATERAL (",
    counted_end!(),
    ") AS s"
));

/// What becomes of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The dependent waits again.
    Waits,
    /// It is suspended, and needs only what it has had of those of which some suffice: it goes on without this one.
    Dropped,
    /// The dependent keeps what it has counted, and is tied to the other no more.
    Cut,
    /// It has served a suspension that is over, or one that goes on without it: the dependent has never had it.
    Forgotten,
    /// The dependent has settled. If it starts over as well, later, the dependency counts for it.
    Stays,
}

impl Counted {
    fn fate(&self, row: Option<&Live>, dependents: Dependents, some_suffice: bool) -> Fate {
        let Some(row) = row else {
            let cut = dependents == Dependents::Stay && self.was_freed;
            return if cut { Fate::Cut } else { Fate::Stays };
        };
        let is_waited_for = match dependents {
            _ if row.in_progress() => false,
            Dependents::Stay => false,
            Dependents::WaitForTheirOwn => !self.suspending,
            Dependents::Wait => {
                let of_this_wait = row.counter().is_some_and(|counter| counter.wait_no == self.wait_no);
                !self.suspending || (of_this_wait && is_suspended(row))
            }
        };
        match is_waited_for {
            false if self.suspending && dependents != Dependents::Stay => Fate::Forgotten,
            false => Fate::Cut,
            true if is_suspended(row) && some_suffice && !self.suspending && !self.met => Fate::Dropped,
            true => Fate::Waits,
        }
    }
}

/// Dependents that are to be counted anew once the tasks have no ends any more.
pub(super) struct Reopened {
    recount: Recount,
    rows: Vec<Live>,
    waits: HashMap<TaskNo, WaitNo>,
}

/// Opens the dependencies of others on tasks that had settled and start over, before their ends are removed. The caller has locked the
/// tasks and their neighbours.
pub(super) fn reopen(task_nos: &[TaskNo], dependents: Dependents, now: Time) -> Reopened {
    let own: HashSet<TaskNo> = task_nos.iter().copied().collect();
    let mut edges = COUNTED.query(task_nos);
    edges.retain(|edge| !own.contains(&edge.run));
    let mut reopened = Reopened { recount: Recount::default(), rows: Vec::new(), waits: HashMap::new() };
    if edges.is_empty() {
        return reopened;
    }
    let runs: Vec<TaskNo> = edges.iter().map(|edge| edge.run).collect();
    // What they have not counted yet is counted first: one may end by it.
    lock_for_change(&runs);
    fold::of(&runs, now);
    let mut rows = lock_for_change(&runs);
    let some_suffice = task::with_num_required(&runs);
    let fates = edges.into_iter().map(|edge| {
        let fate = edge.fate(rows.get(&edge.run), dependents, some_suffice.contains_key(&edge.run));
        (edge, fate)
    });
    let mut fates: Vec<(Counted, Fate)> = fates.filter(|(_, fate)| *fate != Fate::Stays).collect();
    let pair = |edge: &Counted| (edge.after, edge.run);
    locks::lock_edges(&fates.iter().map(|(edge, _)| pair(edge)).collect::<Vec<_>>());
    let changed = fates.iter().filter(|(_, fate)| *fate != Fate::Cut).map(|(edge, _)| edge.run);
    let changed: HashSet<TaskNo> = changed.collect();
    rows.retain(|run, _| changed.contains(run));
    let with = |fates: &[(Counted, Fate)], fate: Fate| -> Vec<(TaskNo, TaskNo)> {
        fates.iter().filter(|(_, one)| *one == fate).map(|(edge, _)| pair(edge)).collect()
    };
    let cut = with(&fates, Fate::Cut);
    if !cut.is_empty() {
        // Before their tasks are looked at: what is not stored any more is kept.
        dependency::REMOVE.execute(cut.into_iter().unzip::<_, _, Vec<_>, Vec<_>>());
    }
    reopened.recount.before(rows.values());
    spare(&mut fates, &reopened.recount, |run| some_suffice.contains_key(&run) && is_suspended(&rows[&run]));
    let (again, dropped) = (with(&fates, Fate::Waits), with(&fates, Fate::Dropped));
    let forgotten = with(&fates, Fate::Forgotten);
    if !forgotten.is_empty() {
        dependency::REMOVE.execute(forgotten.into_iter().unzip::<_, _, Vec<_>, Vec<_>>());
    }
    if !dropped.is_empty() {
        dependency::DROP.execute(dropped.into_iter().unzip::<_, _, Vec<_>, Vec<_>>());
    }
    for (run, row) in &rows {
        reopened.waits.insert(*run, wait_of(row, some_suffice.contains_key(run)));
    }
    if !again.is_empty() {
        let wait_nos: Vec<WaitNo> = again.iter().map(|(_, run)| reopened.waits[run]).collect();
        let (after, run): (Vec<TaskNo>, Vec<TaskNo>) = again.into_iter().unzip();
        dependency::WAIT_AGAIN.execute((after, run, wait_nos));
    }
    reopened.rows = rows.into_values().collect();
    reopened
}

/// Suspended tasks that have enough of those of which some suffice go on without these. The others wait for those that they had.
fn spare(fates: &mut [(Counted, Fate)], recount: &Recount, is_asked: impl Fn(TaskNo) -> bool) {
    let is_own = |edge: &Counted, fate: Fate| fate == Fate::Waits && !edge.suspending && is_asked(edge.run);
    let mut had: HashMap<TaskNo, i32> = HashMap::new();
    for (edge, _) in fates.iter().filter(|(edge, fate)| is_own(edge, *fate)) {
        *had.entry(edge.run).or_default() += 1;
    }
    for (edge, fate) in fates.iter_mut() {
        if is_own(edge, *fate) && recount.can_do_without(edge.run, had[&edge.run]) {
            *fate = Fate::Dropped;
        }
    }
}

fn is_suspended(row: &Live) -> bool {
    row.counter().is_some_and(|counter| counter.since.is_some())
}

/// In which of its waits a task is, or will be. Where it has gone on without some of its dependencies, ends of these may be on their way
/// to its last wait: that takes a new number.
fn wait_of(row: &Live, some_suffice: bool) -> WaitNo {
    match row.counter() {
        Some(counter) => counter.wait_no,
        None if some_suffice => positions::new_wait(),
        None => FIRST_WAIT,
    }
}

impl Reopened {
    /// Counts the dependents, now that the tasks have no ends.
    pub(super) fn count(mut self, now: Time) {
        if !self.rows.is_empty() {
            recount::store(self.recount.after(self.rows), &self.waits, now);
        }
    }
}
