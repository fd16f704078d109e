//! Returns of tasks that go on later: each is given back until other tasks have ended, or a time is over.
//!
//! **Where the task is.** Its row moves from `run` to `blocked`, with a number for the waits that begin with this call. From then on it is
//! a task that waits, for whatever ends, cancels, deletes or explains such. It has given up its token, lease, slots and merge key.
//!
//! **Locks.** The call is restartable (`locks::order`). It removes the rows of `run`, which decides whether the tokens are good. Then it
//! holds all that the tasks are to wait for, as an insertion does: each of those has settled, and counts at once, or settles later and finds
//! the edge, in another transaction only after this one's commit.
//!
//! **Cycles.** A cycle needs a way out of the suspended task. The call has removed its row: before this commit no edge of another call
//! can begin there, and a call that adds one later sees what is stored here. So the guard of the graph is asked for only where some task
//! depends on a suspended one already, children that the call inserts included.

use std::collections::{BTreeMap, HashMap, HashSet};

use pgrx::datum::Interval;

use super::taken::{Code, Returned, take};
use crate::error::{Refusal, Result};
use crate::input::{AwaitedSpec, TaskSpec, check_interval};
use crate::insert::{
    EdgeSet, OnConflict, Options, Report, Waits, acyclic, cycle_refusal, insert, insert_reporting,
    stored_arcs,
};
use crate::locks::{self, LockStrength, guard};
use crate::number::{TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;
use crate::rights::{self, Doing};
use crate::settle::merge_keys;
use crate::settle::{Ending, Lost, settle};
use crate::state::{Condition, Outcome};
use crate::store::dependency::{self, Counts, Edge};
use crate::store::freed::Freed;
use crate::store::live::{self, Counter, Live, Place};
use crate::store::{blocked, expiry, numbers, positions, progress, ready, task};
use crate::wake;

/// What a task is to wait for before it goes on.
#[derive(Clone, Debug)]
pub(crate) struct Suspension {
    /// A text for people, which is shown until the next one; `None`: the one before stays.
    pub(super) status: Option<String>,
    /// Nor is it granted again before this is over.
    pub(super) retry_after: Option<Interval>,
    /// The tasks that it waits for besides its children; signals among them may have to be inserted.
    pub(super) awaited: Vec<AwaitedSpec>,
    /// Tasks that are inserted, and waited for.
    pub(super) children: Vec<TaskSpec>,
    /// The children are not granted before this is over.
    pub(super) delay_children: Option<Interval>,
    /// It is to wait no longer than this.
    pub(super) wait_at_most: Option<Interval>,
}

impl Suspension {
    /// Checks what the types do not say.
    pub(super) fn checked(self) -> Result<Self> {
        check_interval("wait_at_most", self.wait_at_most)?;
        Ok(self)
    }

    /// All that the call may insert for it.
    pub(super) fn inserted(&self) -> impl Iterator<Item = &TaskSpec> {
        self.children.iter().chain(self.awaited.iter().filter_map(|one| one.signal.as_deref()))
    }
}

/// A task that is being suspended: where it stands in the call, the performance that has ended, and for what it waits.
struct One<'a> {
    at: usize,
    live: Live,
    how: &'a Suspension,
    waits: Waits,
    lost: Option<Lost>,
}

/// Suspends the tasks.
pub(super) fn suspend(suspending: &[Returned<&Suspension>], now: Time) -> Result<Vec<Code>> {
    if suspending.is_empty() {
        return Ok(Vec::new());
    }
    // Positions may be taken below: the transaction needs its id before.
    assign_transaction_id();
    let gone = take(suspending);
    let good = suspending.iter().filter_map(|one| Some((one, gone.of(one)?)));
    let mut tasks: Vec<One> = good
        .map(|(one, live)| One {
            at: one.at,
            live: live.clone(),
            how: one.how,
            waits: Waits::default(),
            lost: None,
        })
        .collect();
    let wait_no = positions::new_wait();
    block(&tasks, wait_no, now);
    let children = insert_children(&tasks, now)?;
    insert_signals(&tasks)?;
    let ended = ended_by_children(&tasks, &children);
    link(&mut tasks, &children, &ended, wait_no)?;
    let codes = go_on_or_wait(&tasks, now);
    leave(&tasks);
    Ok(codes)
}

/// Moves the tasks to `blocked`, where they are found while the call goes on. The one that they count until then stands for the call.
fn block(tasks: &[One], wait_no: WaitNo, now: Time) {
    blocked::insert(tasks.iter().map(|one| blocked::New {
        failures: one.live.failures,
        dependencies: one.live.dependencies,
        // The try that has ended does not count.
        tries: one.live.tries - 1,
        until: one.until(now),
        ..blocked::New::of(one.live.task_no, None, one.counter(1, wait_no, now))
    }));
    if let Some(first) = tasks.iter().filter_map(|one| one.until(now)).min() {
        wake::due(first);
    }
}

impl One<'_> {
    fn until(&self, now: Time) -> Option<Time> {
        self.how.wait_at_most.map(|most| now.plus(most))
    }

    fn not_before(&self, now: Time) -> Option<Time> {
        self.how.retry_after.map(|after| now.plus(after))
    }

    fn counter(&self, remaining: i32, wait_no: WaitNo, now: Time) -> Counter {
        Counter { remaining, spare: 0, not_before: self.not_before(now), wait_no, since: Some(now) }
    }
}

/// Inserts the children of each, and returns their ids, without those that a unique key leaves out.
fn insert_children(tasks: &[One], now: Time) -> Result<Vec<Vec<String>>> {
    let mut specs = Vec::new();
    for one in tasks {
        let due = one.how.delay_children.map(|delay| now.plus(delay));
        let delayed = |child: &TaskSpec| TaskSpec { not_before: child.not_before.max(due), ..child.clone() };
        specs.extend(one.how.children.iter().map(delayed));
    }
    let options = Options { on_conflict: OnConflict::Error, ignore_missing: false };
    let mut reports = insert_reporting(specs, options)?.into_iter();
    let of_one = |one: &One| {
        let children = reports.by_ref().take(one.how.children.len());
        children.filter(Report::is_inserted).map(|child| child.id).collect()
    };
    Ok(tasks.iter().map(of_one).collect())
}

/// Inserts the signals that are not there. Of two calls that insert the same one, the second finds that of the first,
/// if that commits.
fn insert_signals(tasks: &[One]) -> Result<()> {
    let wanted = || tasks.iter().flat_map(|one| one.how.awaited.iter().map(move |awaited| (one, awaited)));
    let ids: Vec<&str> = wanted().filter(|(_, a)| a.signal.is_some()).map(|(_, a)| a.id.as_str()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let there = numbers::by_id(&ids);
    let groups = task::groups(&tasks.iter().map(|one| one.live.task_no).collect::<Vec<_>>());
    let specs = wanted()
        .filter(|(_, awaited)| !there.contains_key(&awaited.id))
        .filter_map(|(one, awaited)| {
            let mut spec = awaited.signal.as_deref()?.clone();
            spec.group = spec.group.or_else(|| groups.get(&one.live.task_no).cloned());
            Some(spec)
        })
        .collect();
    insert(specs, Options { on_conflict: OnConflict::Skip, ignore_missing: false })?;
    Ok(())
}

static STORED: Statement<&[TaskNo], (TaskNo, TaskNo, WaitNo, i8, i8)> = Statement::new(
    c"SELECT d.after_no, d.run_no, d.wait_no, d.counts, d.condition FROM taskq.dependency d WHERE d.run_no = ANY ($1)",
);
static WAITING: Statement<&[TaskNo]> =
    Statement::new(c"SELECT FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.counts = 'w' LIMIT 1");
static DEPENDENTS: Statement<&[TaskNo]> =
    Statement::new(c"SELECT FROM taskq.dependency d WHERE d.after_no = ANY ($1) LIMIT 1");

/// Those of the tasks that children have ended which the call has inserted: a lost one that the task has to wait for. Such a task
/// waits for nothing any more.
fn ended_by_children(tasks: &[One], children: &[Vec<String>]) -> HashSet<TaskNo> {
    if children.iter().all(Vec::is_empty) {
        return HashSet::new();
    }
    let mut ended: HashSet<TaskNo> = tasks.iter().map(|one| one.live.task_no).collect();
    let task_nos: Vec<TaskNo> = ended.iter().copied().collect();
    for task_no in locks::lock(&task_nos, LockStrength::Update).keys() {
        ended.remove(task_no);
    }
    ended
}

/// Holds what the tasks are to wait for, and stores the edges.
fn link(tasks: &mut [One], children: &[Vec<String>], ended: &HashSet<TaskNo>, wait_no: WaitNo) -> Result<()> {
    // What is said of a child by name comes before what is meant by waiting for all of them.
    let awaited = |one: &One, children: &[String]| -> Vec<(String, Condition)> {
        if ended.contains(&one.live.task_no) {
            return Vec::new();
        }
        let named: Vec<(String, Condition)> =
            one.how.awaited.iter().map(|awaited| (awaited.id.clone(), awaited.condition)).collect();
        let others = children.iter().filter(|id| named.iter().all(|(name, _)| name != *id));
        let others: Vec<(String, Condition)> = others.map(|id| (id.clone(), Condition::Settled)).collect();
        named.into_iter().chain(others).collect()
    };
    let awaited: Vec<Vec<(String, Condition)>> =
        tasks.iter().zip(children).map(|(one, children)| awaited(one, children)).collect();
    let ids: Vec<&str> = awaited.iter().flatten().map(|(id, _)| id.as_str()).collect();
    rights::check_named(Doing::Insert, ids.iter().copied())?;
    let (numbers, rows, outcomes) =
        locks::lock_any(&ids, &[], LockStrength::KeyShare, LockStrength::KeyShare)?;
    let find =
        |id: &str| numbers.get(id).copied().filter(|n| rows.contains_key(n) || outcomes.contains_key(n));
    let mut edges = EdgeSet::default();
    for (one, awaited) in tasks.iter().zip(&awaited) {
        let run = one.live.task_no;
        let name = || numbers::ids(&[run]).remove(&run).unwrap_or_default();
        for (id, condition) in awaited {
            let missing = || {
                let hint = "Insert it first, leave it out, or add \"signal\": true if it is a signal that may not be there yet.";
                Refusal::dependency_missing(id, &name()).with_hint(hint)
            };
            let after = find(id).ok_or_else(missing)?;
            if after == run {
                return Err(Refusal::cycle(&[id.clone(), id.clone()]));
            }
            edges
                .add(Edge { after, run, condition: *condition })
                .map_err(|has| Refusal::two_conditions(id, &name(), has.name(), condition.name()))?;
        }
    }
    count(tasks, &edges, &outcomes, wait_no);
    check_cycles(tasks, &edges, &outcomes)
}

/// Counts what has ended, and stores the edges for this wait: new ones, and such as were there before.
fn count(tasks: &mut [One], edges: &EdgeSet, outcomes: &HashMap<TaskNo, Outcome>, wait_no: WaitNo) {
    let runs: Vec<TaskNo> = tasks.iter().map(|one| one.live.task_no).collect();
    let stored: HashMap<(TaskNo, TaskNo), (WaitNo, Counts, Condition)> = STORED
        .map(runs, |(after, run, wait_no, counts, condition)| {
            let (counts, condition) = (Counts::from_stored(counts), Condition::from_stored(condition));
            ((after, run), (wait_no, counts, condition))
        })
        .into_iter()
        .collect();
    let (mut new, mut again): (Vec<Edge>, Vec<Edge>) = Default::default();
    let mut of_each: BTreeMap<TaskNo, &mut One> =
        tasks.iter_mut().map(|one| (one.live.task_no, one)).collect();
    for edge in &edges.edges {
        let Some(one) = of_each.get_mut(&edge.run) else { continue };
        let outcome = outcomes.get(&edge.after).copied();
        if let Some((stored, counts, condition)) = stored.get(&(edge.after, edge.run)).copied() {
            if counts == Counts::ForItsWait && stored == wait_no {
                // A child has said so itself.
                continue;
            }
            if counts != Counts::Dropped {
                // What has ended was counted when it did, whatever the condition was.
                if counts != Counts::ForItsWait || outcome.is_none() {
                    one.waits.unsettled += i32::from(outcome.is_none());
                    let has_failed = outcome.is_some_and(|outcome| outcome.is_abort());
                    one.waits.failed += i32::from(has_failed) - i32::from(counts.has_kept_failure(condition));
                }
                let unmet = outcome.and_then(|outcome| Lost::of(edge.after, edge.condition, outcome));
                let condition = if unmet.is_some() { Condition::Settled } else { edge.condition };
                again.push(Edge { condition, ..*edge });
                continue;
            }
            // It went on without it: that is a new one now.
            again.push(*edge);
        } else {
            new.push(*edge);
        }
        one.waits.all += 1;
        if let Some(lost) = one.waits.count(edge.after, edge.condition, outcome) {
            one.lost = Some(Lost::decides(one.lost, lost));
        }
    }
    new.sort_unstable_by_key(|edge| (edge.after, edge.run));
    dependency::insert(new.into_iter().map(|edge| (edge, wait_no)), true);
    if !again.is_empty() {
        let (after, run): (Vec<TaskNo>, Vec<TaskNo>) = again.iter().map(|e| (e.after, e.run)).unzip();
        let conditions: Vec<i8> = again.iter().map(|edge| edge.condition.stored()).collect();
        dependency::WAIT_UNDER.execute((after, run, conditions, wait_no));
    }
}

fn check_cycles(tasks: &[One], edges: &EdgeSet, outcomes: &HashMap<TaskNo, Outcome>) -> Result<()> {
    let runs: Vec<TaskNo> = tasks.iter().map(|one| one.live.task_no).collect();
    // What has ended blocks nothing any more.
    let open = edges.edges.iter().filter(|edge| !outcomes.contains_key(&edge.after));
    let mut arcs: Vec<(TaskNo, TaskNo)> = open.map(|edge| (edge.after, edge.run)).collect();
    if arcs.is_empty() || DEPENDENTS.execute(runs.as_slice()) == 0 {
        return Ok(());
    }
    guard();
    // What waits for nothing itself, as most children and signals, is on no cycle: the tasks behind those of the call, which may be
    // many, need not be looked at.
    // What is read here is all that counts. A call that could close a cycle with this one stores its edge under the guard, and has
    // committed by now. A suspension of one of these has had its row locked for a change, and this call has waited for that to hold it.
    if WAITING.execute(arcs.iter().map(|(after, _)| *after).collect::<Vec<_>>()) == 0 {
        return Ok(());
    }
    arcs.extend(stored_arcs(&runs));
    acyclic(&arcs).map_err(|path| cycle_refusal(&path, &numbers::ids(&path)))
}

/// Lets those wait that have to; those that have nothing to wait for go on at once, or abort.
///
/// The rows are the call's. Their counters have what others of the call have added: a child may signal any task.
fn go_on_or_wait(tasks: &[One], now: Time) -> Vec<Code> {
    let (mut freed, mut endings, mut over, mut codes) = (vec![], vec![], vec![], vec![]);
    let rows =
        locks::lock(&tasks.iter().map(|one| one.live.task_no).collect::<Vec<_>>(), LockStrength::Update);
    for one in tasks {
        let row = rows.get(&one.live.task_no);
        // A child of the call may have ended it: one that is lost, and that it has to wait for.
        let aborts = one.lost.is_some() || row.is_none();
        codes.push((one.at, if aborts { Outcome::Aborted.name() } else { "pending" }));
        let Some(row) = row else { continue };
        let mut row = row.clone();
        let Place::Blocked(mut counter) = row.place else { continue };
        // Less the one that has stood for the call.
        counter.remaining += one.waits.unsettled - 1;
        row.place = Place::Blocked(counter);
        row.failures += one.waits.failed;
        row.dependencies += one.waits.all;
        if let Some(lost) = one.lost {
            let status = lost.status(numbers::ids(&[lost.after]).get(&lost.after).map_or("", String::as_str));
            endings.push(Ending::abort(&row, lost.cause(), Some(status)));
        } else if counter.remaining == 0 {
            freed.push(Freed { not_before: counter.not_before, ..row.freed() });
        } else {
            blocked::SET.execute((row.task_no, counter.remaining, row.failures, row.dependencies));
            continue;
        }
        over.push(row);
    }
    live::remove(&over);
    ready::release(freed, now);
    settle(endings, now);
    codes
}

/// What the performances leave: what was said of the tasks, and their merge keys, which come last in the order of locks. One that was
/// granted does not expire any more.
fn leave(tasks: &[One]) {
    let (told, statuses): (Vec<TaskNo>, Vec<String>) =
        tasks.iter().filter_map(|one| Some((one.live.task_no, one.how.status.clone()?))).unzip();
    if !told.is_empty() {
        progress::SET_STATUS.execute((told, statuses));
    }
    expiry::forget(&tasks.iter().map(|one| one.live.task_no).collect::<Vec<_>>());
    merge_keys::given_back(tasks.iter().map(|one| &one.live));
}
