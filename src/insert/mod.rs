//! Inserting tasks, whichever verb asks for it.
//!
//! The stages, in this order: find out which ids exist; lock the keys of unique tasks; lock the stored tasks
//! that are referred to; insert the `task` rows; resolve the dependencies; look for cycles; store the edges;
//! put each new task where it belongs; settle those that are settled from the start.

mod cycle;
mod edges;
mod in_the_way;
mod place;
mod replace;
mod rows;
pub(crate) mod unique;

pub(crate) use cycle::{acyclic, refusal as cycle_refusal, stored_arcs};
pub(crate) use edges::{
    Edge, EdgeSet, Stored, Waits, add_waits, block_new, has_begun, may_wait, store as store_edges,
};

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::clock;
use crate::error::{Refusal, Result};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::rights::{self, Doing};
use crate::spec::{TaskSpec, Unique};
use crate::store::actions::{self, Interned};
use crate::store::live::{self, LockStrength};
use crate::store::merge_key::{self, MergeKey};
use crate::store::order::restartable;
use crate::store::{numbers, tally};
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
    /// The call has made up the id: nobody else has it.
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
        named.map(|other| other.id.as_str()).chain(replaced.filter_map(|spec| spec.id.as_deref())),
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
    let elements = specs.len();
    let mut fates = Fates::new();
    if specs.is_empty() {
        return Ok(Inserted { tasks: Vec::new(), fates, elements });
    }
    let now = clock::now();
    let mut tasks = number(specs, options.on_conflict, &mut fates)?;

    if options.on_conflict == OnConflict::Skip {
        // What is there already is named, not inserted; only what appears from now on is found out later.
        let ids: Vec<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
        let existing = numbers::by_id(&ids);
        skip(&mut tasks, &mut fates, |id| existing.contains_key(id));
    }

    // Keys come first in the global order.
    let mut keys = unique::Keys::default();
    if tasks.iter().any(|t| t.spec.unique.is_some()) {
        keys = unique::Keys::lock(&tasks, now);
    }
    let by_id = options.on_conflict == OnConflict::Replace;
    keys.decide_early(&mut tasks, &mut unique::Call { now, by_id, fates: &mut fates })?;
    if tasks.is_empty() {
        return Ok(Inserted { tasks, fates, elements });
    }

    // Everything stored that the call names is locked in one go, in the global order, before anything is
    // changed: see `store::live`.
    let outside = outside_ids(&tasks);
    let watched = keys.watched();
    let namesakes: Vec<&str> = if by_id { tasks.iter().map(|t| t.id.as_str()).collect() } else { Vec::new() };
    let mut stored = edges::lock_stored(&tasks, &outside, &namesakes, &watched)?;
    keys.decide_late(&mut tasks, &stored, &mut unique::Call { now, by_id, fates: &mut fates })?;
    // Rows that were inserted before others could be.
    let mut there = HashSet::new();
    if by_id {
        let namesakes: Vec<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
        for task in &tasks {
            if stored.numbers.contains_key(&task.id) {
                fates.insert(task.element, Fate::Replaced { existing: task.id.clone() });
            }
        }
        there = insert_the_new(&tasks, &stored.numbers.keys().map(String::as_str).collect(), now);
        replace::remove_old(&namesakes, &mut stored, now)?;
        // Tasks that waited for the old ones have heard of their end: they may be somewhere else now.
        stored.refresh()?;
    } else {
        let namesakes = keys.replaced_namesakes(&tasks);
        if !namesakes.is_empty() {
            there = insert_the_new(&tasks, &namesakes.iter().copied().collect(), now);
            replace::remove_old(&namesakes, &mut stored, now)?;
        }
    }
    let mut skipped = Vec::new();
    let mut missing: Vec<&NewTask> = tasks.iter().filter(|t| !there.contains(&t.task_no)).collect();
    loop {
        let refused = rows::insert(&missing, now);
        if refused.is_empty() {
            break;
        }
        match options.on_conflict {
            OnConflict::Error => return Err(in_the_way::exists(&refused[0], refused.len() - 1)),
            OnConflict::Skip => {
                let refused: BTreeSet<String> = refused.into_iter().collect();
                skip(&mut tasks, &mut fates, |id| refused.contains(id));
                skipped = refused.into_iter().collect();
                break;
            }
            OnConflict::Replace => {
                // Somebody inserted these ids since we looked; they are replaced as well.
                let refused: HashSet<&str> = refused.iter().map(String::as_str).collect();
                replace::remove_newcomers(&refused.iter().copied().collect::<Vec<_>>(), now)?;
                missing.retain(|task| refused.contains(task.id.as_str()));
            }
        }
    }
    tally::inserted(tasks.iter().filter_map(|t| t.spec.group.as_deref()), now);
    if !skipped.is_empty() {
        // Others of the call may refer to what was skipped: those are stored tasks now.
        stored.look_up(&skipped.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    // The keys point to the new tasks before the old ones go, which would take the rows along.
    let replaced = keys.take(&tasks);
    if !replaced.is_empty() {
        replace::remove_old(&replaced, &mut stored, now)?;
        stored.refresh()?;
    }

    let keys: BTreeSet<MergeKey> = tasks
        .iter()
        .filter_map(|t| MergeKey::of(&t.spec.action, t.spec.group.as_deref(), t.spec.merge_key.as_deref()))
        .collect();
    if !keys.is_empty() {
        merge_key::make_keys(&keys.into_iter().collect::<Vec<_>>());
    }
    let edges = edges::resolve(&tasks, &mut stored, options.ignore_missing)?;
    // Tasks of the queue at either end. (Those of this call have actions that were looked at above.)
    rights::check_tasks(Doing::Insert, edges.edges.iter().flat_map(|edge| [edge.after, edge.run]))?;
    cycle::check(&tasks, &edges, &stored)?;
    edges::store(&edges);
    edges::block_stored_runs(&edges, &tasks, &stored);
    place::place(&tasks, &edges, &stored, now);
    Ok(Inserted { tasks, fates, elements })
}

/// Inserts the rows of tasks whose ids are new before old ones are removed to make place for the others; returns the numbers
/// of those that it has inserted.
///
/// Who inserts the id of a task that is being removed waits for the end of that, as for an insertion. So a removed id is
/// taken like a new one; and once the first is taken, this call waits for no other, whatever their order.
fn insert_the_new(tasks: &[NewTask], old: &HashSet<&str>, now: Time) -> HashSet<TaskNo> {
    let new: Vec<&NewTask> = tasks.iter().filter(|task| !old.contains(task.id.as_str())).collect();
    if new.is_empty() || new.len() == tasks.len() {
        return HashSet::new();
    }
    // Those that somebody else has inserted by now are refused once more when the others are inserted.
    let refused: HashSet<String> = rows::insert(&new, now).into_iter().collect();
    new.into_iter().filter(|task| !refused.contains(&task.id)).map(|task| task.task_no).collect()
}

/// Leaves out the tasks whose ids exist.
fn skip(tasks: &mut Vec<NewTask>, fates: &mut Fates, exists: impl Fn(&str) -> bool) {
    tasks.retain(|task| {
        let out = exists(&task.id);
        if out {
            fates.insert(task.element, Fate::Skipped { existing: task.id.clone() });
        }
        !out
    });
}

/// Gives every task its number and, where it has none, its id. The number that stands for its action is
/// looked up once: another may be there the next time one looks.
fn number(specs: Vec<TaskSpec>, on_conflict: OnConflict, fates: &mut Fates) -> Result<Vec<NewTask>> {
    let actions = actions::intern(specs.iter().map(|spec| spec.action.as_str()));
    let numbers = numbers::take(specs.len())?;
    let mut seen: HashMap<String, ()> = HashMap::with_capacity(specs.len());
    let mut tasks = Vec::with_capacity(specs.len());
    for (element, (mut spec, task_no)) in specs.into_iter().zip(numbers).enumerate() {
        let id_is_new = spec.id.is_none();
        let id = spec.id.take().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        if seen.insert(id.clone(), ()).is_some() {
            if on_conflict == OnConflict::Skip {
                fates.insert(element, Fate::Skipped { existing: id });
                continue;
            }
            return Err(Refusal::repeated(&id));
        }
        let Interned { action_no, notify, gives_lanes } = actions[&spec.action];
        tasks.push(NewTask { task_no, action_no, notify, gives_lanes, id, id_is_new, element, spec });
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
pub(crate) fn lock_for_change(task_nos: &[TaskNo]) -> HashMap<TaskNo, live::Live> {
    live::lock(task_nos, LockStrength::Update)
}
