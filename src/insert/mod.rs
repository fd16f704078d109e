//! Inserting tasks, whichever verb asks for it.
//!
//! The [`stages`], in this order: number the tasks; lock the keys of unique tasks and the stored tasks that are named, and insert the
//! `task` rows whose ids may turn out to be taken, until nothing that the call goes by changes any more ([`ground`]); go through the
//! elements ([`pass`]), insert the other rows, and remove what they replace; resolve the dependencies, look for cycles and store the
//! edges; put each new task where it belongs, and settle those that are settled from the start.

mod cycle;
mod edges;
mod ground;
pub(crate) mod in_the_way;
mod new;
mod options;
mod pass;
mod place;
mod replace;
mod rows;
mod stages;
mod stored;
pub(crate) mod unique;
mod waits;

pub(crate) use cycle::{acyclic, refusal as cycle_refusal, stored_arcs};
pub(crate) use edges::{EdgeSet, add_waits, block, may_wait, store as store_edges};
pub(crate) use new::Report;
pub(crate) use options::{OnConflict, Options, parse_if_missing};
pub(crate) use stored::has_begun;
pub(crate) use waits::{Standing, Waits};

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::error::Result;
use crate::input::{TaskSpec, Unique};
use crate::locks::{self, LockStrength, restartable_behind};
use crate::number::TaskNo;
use crate::rights::{self, Doing};
use crate::store::{live, task};
use new::Fate;
use stages::Inserted;

/// Inserts the tasks and returns the ids of those inserted, in the order given.
pub(crate) fn insert(specs: Vec<TaskSpec>, options: Options) -> Result<Vec<String>> {
    Ok(insert_all(specs, options)?.tasks.into_iter().map(|t| t.id).collect())
}

/// Inserts the tasks, in one go or as often as the locks make it necessary.
///
/// Keys come first in the global order, and a call that begins anew locks what it has seen before anything else:
/// so the keys of one that may do so are locked before that, each time.
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
    let groups: BTreeSet<&str> =
        specs.iter().filter(|spec| spec.seed).filter_map(|spec| spec.group.as_deref()).collect();
    if specs.iter().any(|spec| spec.seed) {
        rights::check_seeding(groups.into_iter().flat_map(task::of_group))?;
    }
    if options.on_conflict == OnConflict::Replace {
        // Whether those with a unique key are replaced at all is not known yet.
        let plain = specs.iter().filter(|spec| spec.unique.is_none());
        let ids = plain.filter_map(|spec| spec.id.as_deref()).collect();
        locks::Idle { ids, refusal: stored::is_replaced }.look()?;
    }
    let unique = specs.iter().filter_map(|spec| spec.unique.as_deref()).any(Unique::locks_holder);
    if !unique && !locks_stored(&specs, options) {
        return run(specs, options);
    }
    let keys = unique::of(specs.iter());
    restartable_behind(|| unique::lock_ahead(&keys), || run(specs.clone(), options))
}

/// Whether the call may lock rows of stored tasks, those aside that hold its unique keys, or come to wait for an id behind others.
fn locks_stored(specs: &[TaskSpec], options: Options) -> bool {
    if options.on_conflict == OnConflict::Replace {
        return true;
    }
    let ids: HashSet<&str> = specs.iter().filter_map(|spec| spec.id.as_deref()).collect();
    // What is skipped is a stored task, too.
    let skips = options.on_conflict == OnConflict::Skip;
    // And so may be what an element is left out for.
    let keys = specs.iter().any(|spec| spec.unique.is_some());
    let may_go = skips || keys;
    // If that has gone by the time the others are inserted, the element is inserted behind them.
    may_go && ids.len() > 1
        || specs
            .iter()
            .flat_map(|spec| spec.depends_on.iter().chain(&spec.to_signal_after))
            .any(|reference| may_go || !ids.contains(reference.id.as_str()))
}

/// Inserts the tasks and returns what became of each, in the order given.
pub(crate) fn insert_reporting(specs: Vec<TaskSpec>, options: Options) -> Result<Vec<Report>> {
    let Inserted { tasks, elements, fates, came } = insert_all(specs, options)?;
    let ids: HashMap<TaskNo, String> = tasks.into_iter().map(|task| (task.task_no, task.id)).collect();
    let report = |element: TaskNo| {
        let (outcome, existing) = match fates.of.get(&element) {
            None => ("inserted", None),
            Some(Fate::After(other)) => ("inserted", Some(*other)),
            Some(Fate::Replaced(other)) => ("replaced", Some(*other)),
            // In the end.
            Some(Fate::Skipped(other)) => ("skipped", Some(came.last(*other))),
        };
        let existing = existing.and_then(|other| ids.get(&other).or(fates.names.get(&other))).cloned();
        let id = ids.get(&element).or(existing.as_ref()).cloned().unwrap_or_default();
        Report { id, outcome, existing }
    };
    Ok(elements.into_iter().map(report).collect())
}

fn run(specs: Vec<TaskSpec>, options: Options) -> Result<Inserted> {
    stages::Numbered::new(specs, options)?.lock()?.insert()?.link()?.place()
}

/// Locks live rows for a change; a thin name for the other verbs.
pub(crate) fn lock_for_change(task_nos: &[TaskNo]) -> HashMap<TaskNo, live::Live> {
    locks::lock(task_nos, LockStrength::Update)
}
