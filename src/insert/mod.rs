//! Inserting tasks, whichever verb asks for it.
//!
//! The stages, in this order: find out which ids exist; lock the stored tasks that are referred to;
//! insert the `task` rows; resolve the dependencies; look for cycles; store the edges; put each new task
//! where it belongs; settle those that are settled from the start.

mod cycle;
mod edges;
mod place;
mod rows;

pub(crate) use cycle::{acyclic, guard, refusal as cycle_refusal, stored_arcs};
pub(crate) use edges::{Edge, EdgeSet, Stored, Waits, add_waits, block_new, may_wait, store as store_edges};

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::claim::merge;
use crate::error::{Refusal, Result};
use crate::pg::clock;
use crate::spec::TaskSpec;
use crate::store::actions::{self, Interned};
use crate::store::live::{self, Firmness};
use crate::store::order::{self, Rank, restartable};
use crate::store::{numbers, tally};
use crate::verbs::replace;

/// What happens to a task whose id exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    Error,
    Replace,
    Skip,
}

/// How a call wants its conflicts handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) on_conflict: OnConflict,
    /// Dependencies on tasks that do not exist are left out instead of refused.
    pub(crate) ignore_missing: bool,
}

impl Options {
    /// From the texts of the arguments.
    pub(crate) fn parse(on_conflict: &str, if_missing: &str) -> Result<Self> {
        let on_conflict = match on_conflict {
            "error" => OnConflict::Error,
            "skip" => OnConflict::Skip,
            other => return Err(Refusal::out_of_range("on_conflict", other, "Use 'error' or 'skip'.")),
        };
        Ok(Options { on_conflict, ignore_missing: parse_if_missing(if_missing)? })
    }
}

/// Whether `if_missing` says to ignore.
pub(crate) fn parse_if_missing(if_missing: &str) -> Result<bool> {
    match if_missing {
        "error" => Ok(false),
        "ignore" => Ok(true),
        other => Err(Refusal::out_of_range("if_missing", other, "Use 'error' or 'ignore'.")),
    }
}

/// A task that this call inserts.
pub(crate) struct NewTask {
    pub(crate) task_no: i64,
    pub(crate) action_no: i32,
    /// Whether its action is set to `notify`.
    pub(crate) notify: bool,
    pub(crate) id: String,
    pub(crate) spec: TaskSpec,
}

/// Inserts the tasks and returns the ids of those inserted, in the order given.
pub(crate) fn insert(specs: Vec<TaskSpec>, options: Options) -> Result<Vec<String>> {
    if !locks_stored(&specs, options) {
        return insert_once(specs, options);
    }
    restartable(|| insert_once(specs.clone(), options))
}

/// Whether the call may lock rows of stored tasks.
fn locks_stored(specs: &[TaskSpec], options: Options) -> bool {
    if options.on_conflict == OnConflict::Replace {
        return true;
    }
    let ids: HashSet<&str> = specs.iter().filter_map(|spec| spec.id.as_deref()).collect();
    // What is skipped is a stored task, too.
    let skips = options.on_conflict == OnConflict::Skip;
    specs
        .iter()
        .flat_map(|spec| spec.depends_on.iter().chain(&spec.to_signal_after))
        .any(|reference| skips || !ids.contains(reference.id.as_str()))
}

fn insert_once(specs: Vec<TaskSpec>, options: Options) -> Result<Vec<String>> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let now = clock::now();
    let mut tasks = number(specs, options.on_conflict)?;

    if options.on_conflict == OnConflict::Skip {
        // What is there already is named, not inserted; only what appears from now on is found out later.
        let ids: Vec<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
        let existing = numbers::by_id(&ids);
        tasks.retain(|t| !existing.contains_key(&t.id));
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
    }

    // Everything stored that the call names is locked in one go, in the global order, before anything is
    // changed: see `store::live`.
    let outside = outside_ids(&tasks);
    let replaced: Vec<&str> = match options.on_conflict {
        OnConflict::Replace => tasks.iter().map(|t| t.id.as_str()).collect(),
        _ => Vec::new(),
    };
    let mut stored = edges::lock_stored(&tasks, &outside, &replaced);
    let mut skipped = Vec::new();
    if options.on_conflict == OnConflict::Replace {
        replace::remove_old(&replaced, &mut stored, now)?;
        // Tasks that waited for the old ones have heard of their end: they may be somewhere else now.
        stored.refresh();
    }
    loop {
        let refused = rows::insert(&tasks, now);
        order::holds(Rank::Ids);
        if refused.is_empty() {
            break;
        }
        match options.on_conflict {
            OnConflict::Error => return Err(Refusal::exists(&refused[0], refused.len() - 1)),
            OnConflict::Skip => {
                let refused: BTreeSet<String> = refused.into_iter().collect();
                let (left_out, kept) = tasks.into_iter().partition(|t| refused.contains(&t.id));
                tasks = kept;
                skipped = left_out;
                break;
            }
            OnConflict::Replace => {
                // Somebody inserted these ids since we looked; they are replaced as well.
                let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
                replace::remove_newcomers(&refused, now)?;
            }
        }
    }
    tally::inserted(tasks.iter().filter_map(|t| t.spec.group.as_deref()), now);
    if !skipped.is_empty() {
        // Others of the call may refer to what was skipped: those are stored tasks now.
        let known: Vec<&str> = skipped.iter().map(|t: &NewTask| t.id.as_str()).collect();
        stored.look_up(&known);
    }

    let keys: BTreeSet<(String, String)> = tasks
        .iter()
        .filter_map(|t| Some((t.spec.group.clone().unwrap_or_default(), t.spec.key.clone()?)))
        .collect();
    if !keys.is_empty() {
        merge::make_keys(&keys.into_iter().collect::<Vec<_>>());
    }
    let edges = edges::resolve(&tasks, &mut stored, options.ignore_missing)?;
    cycle::check(&tasks, &edges, &stored)?;
    edges::store(&edges);
    edges::block_stored_runs(&edges, &tasks, &stored);
    place::place(&tasks, &edges, &stored, now);
    Ok(tasks.into_iter().map(|t| t.id).collect())
}

/// Gives every task its number and, where it has none, its id. The number that stands for its action is
/// looked up once: another may be there the next time one looks.
fn number(specs: Vec<TaskSpec>, on_conflict: OnConflict) -> Result<Vec<NewTask>> {
    let actions = actions::intern(specs.iter().map(|spec| spec.action.as_str()));
    let numbers = numbers::take(specs.len());
    let mut seen: HashMap<String, ()> = HashMap::with_capacity(specs.len());
    let mut tasks = Vec::with_capacity(specs.len());
    for (mut spec, task_no) in specs.into_iter().zip(numbers) {
        let id = spec.id.take().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        if seen.insert(id.clone(), ()).is_some() {
            if on_conflict == OnConflict::Skip {
                continue;
            }
            return Err(Refusal::repeated(&id));
        }
        let Interned { action_no, notify } = actions[&spec.action];
        tasks.push(NewTask { task_no, action_no, notify, id, spec });
    }
    Ok(tasks)
}

/// Ids that the tasks' dependencies name and that are not in the call itself.
fn outside_ids(tasks: &[NewTask]) -> Vec<String> {
    let inside: HashSet<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
    let mut outside: BTreeSet<&str> = BTreeSet::new();
    for task in tasks {
        for reference in task.spec.depends_on.iter().chain(&task.spec.to_signal_after) {
            if !inside.contains(reference.id.as_str()) {
                outside.insert(&reference.id);
            }
        }
    }
    outside.into_iter().map(str::to_owned).collect()
}

/// Locks live rows for a change; a thin name for the other verbs.
pub(crate) fn lock_for_change(task_nos: &[i64]) -> HashMap<i64, live::Live> {
    live::lock(task_nos, Firmness::Change)
}
