//! `add_dependencies`: edges between tasks that are in the queue already.

use std::collections::{BTreeMap, HashMap, HashSet};

use pgrx::datum::AnyElement;
use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::input::{self, DependencySpec};
use crate::insert::{
    EdgeSet, Waits, acyclic, add_waits, cycle_refusal, has_begun, lock_for_change, may_wait,
    parse_if_missing, store_edges, stored_arcs,
};
use crate::locks::{self, Idle, LockStrength, guard, restartable};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::rights::{self, Doing};
use crate::settle::{Ending, Lost, fold, settle};
use crate::state::{Condition, Outcome};
use crate::store::dependency::{self, Edge};
use crate::store::live::{self, Live};
use crate::store::{numbers, task};
use crate::verbs::insert::json;
use crate::words::word;

/// `taskq.add_dependencies(dependencies jsonb, named_only, if_missing text) -> bigint`
#[pg_extern(sql = "")]
fn taskq_add_dependencies_json(
    dependencies: Option<AnyElement>,
    _named_only: Option<AnyElement>,
    if_missing: Option<&str>,
) -> i64 {
    rights::for_caller(|| {
        let ignore_missing = parse_if_missing(if_missing)?;
        let dependencies = input::parse_dependencies(&json("dependencies", dependencies)?)?;
        restartable(|| add(&dependencies, ignore_missing))
    })
}

/// `taskq.add_dependencies(after text[], run text[], condition text, if_missing text) -> bigint`
#[pg_extern(sql = "")]
fn taskq_add_dependencies(
    after: Option<Vec<Option<String>>>,
    run: Option<Vec<Option<String>>>,
    condition: Option<&str>,
    if_missing: Option<&str>,
) -> i64 {
    rights::for_caller(|| {
        let (after, run) = (required("after", after)?, required("run", run)?);
        let condition = word("condition", condition, &Condition::names())?;
        let condition = Condition::parse(condition).unwrap_or_default();
        let ignore_missing = parse_if_missing(if_missing)?;
        if after.len() != run.len() {
            return Err(Refusal::argument(
                "arguments \"after\" and \"run\" differ in length",
                &format!("\"after\" has {} elements, \"run\" {}.", after.len(), run.len()),
                "Give one element of \"run\" for each element of \"after\".",
            ));
        }
        let dependencies = after
            .into_iter()
            .zip(run)
            .map(|(after, run)| {
                Ok(DependencySpec { after: required("after", after)?, run: required("run", run)?, condition })
            })
            .collect::<Result<Vec<_>>>()?;
        restartable(|| add(&dependencies, ignore_missing))
    })
}

/// The stored edges of these tasks, with their conditions. What a task went on without is no dependency any more.
static STORED: Statement<&[TaskNo], (TaskNo, TaskNo, i8)> = Statement::new(
    c"SELECT d.after_no, d.run_no, d.condition FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.state = 'w'",
);

/// Adds the edges and returns how many of those asked for block their task now.
///
/// Takes the graph guard (two calls that only together close a cycle run one after the other), then the
/// rows of both ends in the global order. As `after` is locked, it either has settled, and counts at once,
/// or settles later and finds the edge, in another transaction only once this one has ended.
fn add(dependencies: &[DependencySpec], ignore_missing: bool) -> Result<i64> {
    if dependencies.is_empty() {
        return Ok(0);
    }
    let ids: Vec<&str> = dependencies.iter().flat_map(|d| [d.after.as_str(), d.run.as_str()]).collect();
    let known = numbers::by_id(&ids);
    let runs = dependencies.iter().filter_map(|d| known.get(&d.run).copied());
    rights::check_tasks(Doing::Change, runs)?;
    // A dependency that is left out, or refused for that, says nothing of the task that would have to wait.
    let complete = |d: &&DependencySpec| known.contains_key(&d.after) && known.contains_key(&d.run);
    let missing = || dependencies.iter().find(|d| !complete(d));
    if let Some(d) = missing().filter(|_| !ignore_missing) {
        let (id, of) = if known.contains_key(&d.after) { (&d.run, &d.after) } else { (&d.after, &d.run) };
        return Err(Refusal::dependency_missing(id, of));
    }
    let idle = Idle {
        ids: dependencies.iter().filter(complete).map(|d| d.run.as_str()).collect(),
        refusal: has_begun,
    };
    idle.look()?;
    guard();
    let now = clock::now();
    let lock =
        || locks::lock_any(&ids, std::slice::from_ref(&idle), LockStrength::Update, LockStrength::KeyShare);
    let (numbers, rows, outcomes) = fold::locked(lock, |(_, rows, _)| rows)?;
    rights::check_tasks(Doing::Change, numbers.values().copied())?;
    let find =
        |id: &str| numbers.get(id).copied().filter(|n| rows.contains_key(n) || outcomes.contains_key(n));
    let asked = ask(dependencies, ignore_missing, find, &rows)?;

    let names: HashMap<TaskNo, String> = numbers.iter().map(|(id, n)| (*n, id.clone())).collect();
    let runs: Vec<TaskNo> = asked.edges.iter().map(|e| e.run).collect();
    let some_suffice = task::with_num_required(&runs);
    // A task for which some suffice, and that waits for nothing, goes on without what is new.
    let has_enough = |run: &TaskNo| {
        some_suffice.contains_key(run) && rows.get(run).is_some_and(|row| row.counter().is_none())
    };
    let blocks = |edge: &Edge| !outcomes.contains_key(&edge.after) && !has_enough(&edge.run);
    let new = not_stored(&asked, &names)?;
    check_cycles(new.edges.iter().map(|edge| (edge.after, edge.run)).collect(), &names)?;
    // Those without which a task has gone on are stored anew.
    let (after, run): (Vec<TaskNo>, Vec<TaskNo>) = new.edges.iter().map(|e| (e.after, e.run)).unzip();
    dependency::REMOVE_DROPPED.execute((after, run));
    store_edges(&new, &rows);

    let (waits, mut lost) = waits_of(&new, &outcomes);
    add_waits(&waits, &rows, now);
    // A suspended task needs all that it waits for.
    let is_suspended = |run: &TaskNo| {
        let counter = rows.get(run).and_then(Live::counter);
        counter.is_some_and(|counter| counter.since.is_some())
    };
    lost.retain(|run, _| !some_suffice.contains_key(run) || is_suspended(run));
    abort_lost(&lost, &names, now);
    Ok(asked.edges.iter().filter(|edge| blocks(edge)).count() as i64)
}

/// The edges that are asked for, each once. `find`: the number of a task that is there.
fn ask(
    dependencies: &[DependencySpec],
    ignore_missing: bool,
    find: impl Fn(&str) -> Option<TaskNo>,
    rows: &HashMap<TaskNo, Live>,
) -> Result<EdgeSet> {
    let mut asked = EdgeSet::default();
    for d in dependencies {
        let (after, run) = match (find(&d.after), find(&d.run)) {
            (Some(after), Some(run)) => (after, run),
            _ if ignore_missing => continue,
            (None, _) => return Err(Refusal::dependency_missing(&d.after, &d.run)),
            (_, None) => return Err(Refusal::dependency_missing(&d.run, &d.after)),
        };
        if after == run {
            return Err(Refusal::cycle(&[d.after.clone(), d.run.clone()]));
        }
        may_wait(&d.run, run, rows)?;
        asked
            .add(Edge { after, run, condition: d.condition })
            .map_err(|has| Refusal::two_conditions(&d.after, &d.run, has.name(), d.condition.name()))?;
    }
    Ok(asked)
}

/// What tasks have to wait for by new edges, and what some have lost by them.
fn waits_of(
    new: &EdgeSet,
    outcomes: &HashMap<TaskNo, Outcome>,
) -> (BTreeMap<TaskNo, Waits>, BTreeMap<TaskNo, Lost>) {
    let mut waits: BTreeMap<TaskNo, Waits> = BTreeMap::new();
    let mut lost: BTreeMap<TaskNo, Lost> = BTreeMap::new();
    for edge in &new.edges {
        let wait = waits.entry(edge.run).or_default();
        wait.all += 1;
        let outcome = outcomes.get(&edge.after).copied();
        if let Some(one) = wait.count(edge.after, edge.condition, outcome) {
            lost.insert(edge.run, Lost::decides(lost.get(&edge.run).copied(), one));
        }
    }
    (waits, lost)
}

/// The edges that are not stored. One that is stored with another condition is refused.
fn not_stored(asked: &EdgeSet, names: &HashMap<TaskNo, String>) -> Result<EdgeSet> {
    let runs: Vec<TaskNo> = asked.edges.iter().map(|e| e.run).collect::<HashSet<_>>().into_iter().collect();
    let stored =
        STORED.map(runs, |(after, run, condition)| ((after, run), Condition::from_stored(condition)));
    let stored: HashMap<(TaskNo, TaskNo), Condition> = stored.into_iter().collect();
    let mut new = EdgeSet::default();
    for edge in &asked.edges {
        match stored.get(&(edge.after, edge.run)) {
            Some(has) if *has != edge.condition => {
                return Err(Refusal::other_condition(
                    &names[&edge.after],
                    &names[&edge.run],
                    has.name(),
                    edge.condition.name(),
                ));
            }
            Some(_) => {}
            None => {
                let _ = new.add(*edge);
            }
        }
    }
    Ok(new)
}

fn check_cycles(mut arcs: Vec<(TaskNo, TaskNo)>, names: &HashMap<TaskNo, String>) -> Result<()> {
    let runs: Vec<TaskNo> = arcs.iter().map(|(_, run)| *run).collect();
    arcs.extend(stored_arcs(&runs));
    acyclic(&arcs).map_err(|path| {
        let mut ids = names.clone();
        ids.extend(numbers::ids(&path));
        cycle_refusal(&path, &ids)
    })
}

/// Aborts tasks one of whose new dependencies is lost already.
fn abort_lost(lost: &BTreeMap<TaskNo, Lost>, names: &HashMap<TaskNo, String>, now: Time) {
    if lost.is_empty() {
        return;
    }
    let task_nos: Vec<TaskNo> = lost.keys().copied().collect();
    let rows = lock_for_change(&task_nos);
    live::remove(rows.values());
    settle(
        lost.iter()
            .filter_map(|(n, lost)| {
                Some(Ending::abort(rows.get(n)?, lost.cause(), Some(lost.status(&names[&lost.after]))))
            })
            .collect(),
        now,
    );
}
