//! Inserting tasks, whichever verb asks for it.
//!
//! The [`stages`], in this order: number the tasks, and leave out those that are there; lock the keys of unique tasks and the
//! stored tasks that are named; insert the `task` rows; resolve the dependencies, look for cycles and store the edges; put
//! each new task where it belongs, and settle those that are settled from the start.

mod cycle;
mod edges;
pub(crate) mod in_the_way;
mod place;
mod replace;
mod rows;
mod stages;
pub(crate) mod unique;
mod waits;

pub(crate) use cycle::{acyclic, refusal as cycle_refusal, stored_arcs};
pub(crate) use edges::{EdgeSet, Stored, add_waits, has_begun, may_wait, next_wait, store as store_edges};
pub(crate) use waits::{Standing, Waits};

use std::collections::{HashMap, HashSet};

use crate::clock;
use crate::error::Result;
use crate::number::TaskNo;
use crate::rights::{self, Doing};
use crate::spec::{TaskSpec, Unique};
use crate::store::live::{self, LockStrength};
use crate::store::order::restartable;
use crate::words::word;

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
    pub(crate) fn parse(on_conflict: Option<&str>, if_missing: Option<&str>) -> Result<Self> {
        let on_conflict = match word("on_conflict", on_conflict, &["error", "skip"])? {
            "skip" => OnConflict::Skip,
            _ => OnConflict::Error,
        };
        Ok(Options { on_conflict, ignore_missing: parse_if_missing(if_missing)? })
    }
}

/// Whether `if_missing` says to ignore.
pub(crate) fn parse_if_missing(if_missing: Option<&str>) -> Result<bool> {
    Ok(word("if_missing", if_missing, &["error", "ignore"])? == "ignore")
}

/// A task that this call inserts.
pub(crate) struct NewTask {
    pub(crate) task_no: TaskNo,
    pub(crate) action_no: i32,
    /// Whether its action is set to `notify`.
    pub(crate) notify: bool,
    /// Whether its action puts every task that has a group into the lane of that.
    gives_lanes: bool,
    pub(crate) id: String,
    /// The call has made up the id: no other task has it.
    id_is_new: bool,
    /// Its place in the call, from 0.
    element: usize,
    pub(crate) spec: TaskSpec,
}

/// What became of an element that was not simply inserted.
#[derive(Clone, Debug)]
enum Fate {
    /// It comes after the task that holds its key.
    After { existing: String },
    /// It took the place of another task.
    Replaced { existing: String },
    /// It was left out, for the sake of this task.
    Skipped { existing: String },
}

/// Fates by the places of elements in the call.
type Fates = HashMap<usize, Fate>;

/// What a call has come to.
struct Inserted {
    /// The tasks inserted, in the order of the call.
    tasks: Vec<NewTask>,
    fates: Fates,
    elements: usize,
}

/// What became of one element of a call.
pub(crate) struct Report {
    /// The task that does its work.
    pub(crate) id: String,
    pub(crate) outcome: &'static str,
    /// The task that was there before.
    pub(crate) existing: Option<String>,
}

/// Inserts the tasks and returns the ids of those inserted, in the order given.
pub(crate) fn insert(specs: Vec<TaskSpec>, options: Options) -> Result<Vec<String>> {
    Ok(insert_all(specs, options)?.tasks.into_iter().map(|t| t.id).collect())
}

/// Inserts the tasks, in one go or as often as the locks make it necessary.
///
/// Keys come first in the global order, and a call that begins anew locks what it has seen before anything else:
/// so the keys of one that may do so are locked before it begins.
fn insert_all(specs: Vec<TaskSpec>, options: Options) -> Result<Inserted> {
    rights::check_actions(Doing::Insert, specs.iter().map(|spec| spec.action.as_str()))?;
    let named = specs.iter().flat_map(|spec| spec.depends_on.iter().chain(&spec.to_signal_after));
    let replaced = specs.iter().filter(|_| options.on_conflict == OnConflict::Replace);
    rights::check_named(
        Doing::Insert,
        named
            .filter(|other| !other.follows)
            .map(|other| other.id.as_str())
            .chain(replaced.filter_map(|spec| spec.id.as_deref())),
    )?;
    if options.on_conflict == OnConflict::Replace {
        // Whether those with a unique key are replaced at all is not known yet.
        let plain = specs.iter().filter(|spec| spec.unique.is_none());
        let ids = plain.filter_map(|spec| spec.id.as_deref()).collect();
        live::Idle { ids, refusal: replace::refusal }.look()?;
    }
    let unique = specs.iter().filter_map(|spec| spec.unique.as_deref()).any(Unique::locks_holder);
    if !unique && !locks_stored(&specs, options) {
        return run(specs, options);
    }
    let keys = unique::lock_keys(specs.iter(), clock::now());
    let inserted = restartable(|| run(specs.clone(), options))?;
    unique::unlock(&keys);
    Ok(inserted)
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

/// Inserts the tasks and returns what became of each, in the order given.
pub(crate) fn insert_reporting(specs: Vec<TaskSpec>, options: Options) -> Result<Vec<Report>> {
    let Inserted { tasks, mut fates, elements } = insert_all(specs, options)?;
    let mut ids: HashMap<usize, String> = tasks.into_iter().map(|t| (t.element, t.id)).collect();
    Ok((0..elements)
        .map(|element| {
            let (outcome, existing) = match fates.remove(&element) {
                None => ("inserted", None),
                Some(Fate::After { existing }) => ("inserted", Some(existing)),
                Some(Fate::Replaced { existing }) => ("replaced", Some(existing)),
                Some(Fate::Skipped { existing }) => ("skipped", Some(existing)),
            };
            let id = ids.remove(&element).or_else(|| existing.clone()).unwrap_or_default();
            Report { id, outcome, existing }
        })
        .collect())
}

fn run(specs: Vec<TaskSpec>, options: Options) -> Result<Inserted> {
    stages::Numbered::new(specs, options)?.lock()?.insert()?.link()?.place()
}

/// Locks live rows for a change; a thin name for the other verbs.
pub(crate) fn lock_for_change(task_nos: &[TaskNo]) -> HashMap<TaskNo, live::Live> {
    live::lock(task_nos, LockStrength::Update)
}
