//! The stages of an insertion, each a type: what one has found out or locked, the next relies on, and none can be left out
//! or come too early.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::edges::{self, EdgeSet};
use super::new::{Fate, Fates, Inserted, NewTask};
use super::options::{OnConflict, Options};
use super::stored::{Stored, lock_stored};
use super::{cycle, in_the_way, place, replace, rows, unique};
use crate::clock;
use crate::error::{Refusal, Result};
use crate::input::{Element, Problem, TaskSpec};
use crate::locks;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::rights::{self, Doing};
use crate::store::actions::{self, Interned};
use crate::store::reason::MergeKey;
use crate::store::{merge_key, numbers, positions, tally};

/// The tasks of a call, with what has become of those that are not simply inserted.
struct Tasks {
    /// Those that are inserted, in the order of the call.
    new: Vec<NewTask>,
    fates: Fates,
    elements: usize,
    options: Options,
    now: Time,
}

/// Each task has its number and its id. With `on_conflict => 'skip'` those are left out whose ids are there.
pub(super) struct Numbered(Tasks);

/// What the tasks name is locked: keys, and stored tasks. Of those with a unique key the ones are left out that their keys leave out.
pub(super) struct Locked {
    tasks: Tasks,
    keys: unique::Keys,
    stored: Stored,
}

/// The rows of the tasks are there, and what they replace has gone.
pub(super) struct Present {
    tasks: Tasks,
    stored: Stored,
}

/// The edges are stored, and those stored tasks that are to wait for new ones wait.
pub(super) struct Linked {
    tasks: Tasks,
    stored: Stored,
    edges: EdgeSet,
}

impl Numbered {
    /// Numbers the tasks, and leaves out what is to be skipped. An id that stands twice is refused, unless
    /// the call skips such. Locks no task.
    pub(super) fn new(specs: Vec<TaskSpec>, options: Options) -> Result<Self> {
        let (elements, now) = (specs.len(), clock::now());
        let mut tasks = Tasks { new: Vec::new(), fates: Fates::new(), elements, options, now };
        if elements > 0 {
            tasks.number(specs)?;
        }
        if options.on_conflict == OnConflict::Skip {
            // What is there already is named, not inserted; only what appears from now on is found out later.
            let ids: Vec<&str> = tasks.new.iter().map(|t| t.id.as_str()).collect();
            let existing = numbers::by_id(&ids);
            tasks.skip(|id| existing.contains_key(id));
        }
        Ok(Numbered(tasks))
    }

    /// Keys come first in the global order. Then everything stored that the call names is locked in one go, in the global
    /// order, before any task is changed: see [`locks`].
    pub(super) fn lock(self) -> Result<Locked> {
        let Numbered(mut tasks) = self;
        let mut keys = unique::Keys::default();
        if tasks.new.iter().any(|t| t.spec.unique.is_some()) {
            keys = unique::Keys::lock(&tasks.new, tasks.now);
        }
        let (new, mut call) = tasks.unique();
        keys.decide_early(new, &mut call)?;
        if tasks.new.is_empty() {
            // Whose keys they are does not matter any more.
            keys = unique::Keys::default();
        }
        let replaced: Vec<&str> = match tasks.replaces() {
            true => tasks.new.iter().map(|t| t.id.as_str()).collect(),
            false => Vec::new(),
        };
        let stored = lock_stored(&tasks.new, &outside_ids(&tasks.new), &replaced, &keys.watched())?;
        if tasks.skipped().any(|id| stored.has_lost(id)) {
            // It was removed since: it is to be inserted after all.
            locks::restart_if_possible();
        }
        let (new, mut call) = tasks.unique();
        keys.decide_late(new, &stored, &mut call)?;
        let replaced = keys.replaced();
        let stays_out = |id: &&str| replaced.contains(id) && !tasks.new.iter().any(|task| task.id == *id);
        if let Some(id) = tasks.skipped().find(stays_out) {
            return Err(Refusal::skipped_and_replaced(id));
        }
        Ok(Locked { tasks, keys, stored })
    }
}

impl Locked {
    /// Inserts the rows of the tasks.
    pub(super) fn insert(self) -> Result<Present> {
        let Locked { mut tasks, keys, mut stored } = self;
        let there = make_place(&mut tasks, &keys, &mut stored)?;
        let skipped = insert_rows(&mut tasks, &there, &mut stored)?;
        tally::inserted(tasks.new.iter().filter_map(|t| t.spec.group.as_deref()), tasks.now);
        let referred = tasks.referred(&skipped);
        if !referred.is_empty() {
            // Others of the call refer to what was skipped: those are stored tasks now.
            stored.look_up(&referred)?;
        }
        // The keys point to the new tasks before those old ones go that are still there, which would take the rows along.
        let replaced = keys.take(&tasks.new);
        if !replaced.is_empty() {
            replace::remove_old(&replaced, &mut stored, tasks.now)?;
            stored.refresh()?;
        }
        Ok(Present { tasks, stored })
    }
}

impl Present {
    /// Makes the rows of merge keys, and the edges.
    pub(super) fn link(self) -> Result<Linked> {
        let Present { tasks, mut stored } = self;
        let keys: BTreeSet<MergeKey> = tasks
            .new
            .iter()
            .filter_map(|t| {
                MergeKey::of(&t.spec.action, t.spec.group.as_deref(), t.spec.merge_key.as_deref())
            })
            .collect();
        if !keys.is_empty() {
            merge_key::make_keys(&keys.into_iter().collect::<Vec<_>>());
        }
        let edges = edges::resolve(&tasks.new, &mut stored, tasks.options.ignore_missing)?;
        // Tasks of the queue at either end. (Those of this call have actions that were checked before.) What follows by
        // itself no caller has named; one that a caller has named as well was checked by its id before anything was locked.
        let follows = tasks.following(&stored);
        let ends = edges.edges.iter().flat_map(|edge| [edge.after, edge.run]);
        rights::check_tasks(Doing::Insert, ends.filter(|end| !follows.contains(end)))?;
        cycle::check(&tasks.new, &edges, &stored)?;
        check_required(&tasks.new, &edges)?;
        edges::store(&edges, &stored.live);
        edges::block_stored_runs(&edges, &tasks.new, &stored, tasks.now);
        Ok(Linked { tasks, stored, edges })
    }
}

impl Linked {
    /// Puts each task where it belongs, and settles those that are settled from the start.
    pub(super) fn place(self) -> Result<Inserted> {
        let Linked { tasks, stored, edges } = self;
        place::place(&tasks.new, &edges, &stored, tasks.now);
        Ok(Inserted { tasks: tasks.new, fates: tasks.fates, elements: tasks.elements })
    }
}

impl Tasks {
    /// Gives every task its number and, where it has none, its id. The number that stands for its action is
    /// looked up once: another may be there the next time one looks.
    fn number(&mut self, specs: Vec<TaskSpec>) -> Result<()> {
        let actions = actions::intern(specs.iter().map(|spec| spec.action.as_str()));
        let numbers = positions::take(specs.len())?;
        // Of those that were given: a new id is like no other.
        let mut seen: HashSet<String> = HashSet::new();
        self.new.reserve(specs.len());
        for (element, (mut spec, task_no)) in specs.into_iter().zip(numbers).enumerate() {
            let id_is_new = spec.id.is_none();
            let id = spec.id.take().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
            if !id_is_new && !seen.insert(id.clone()) {
                if self.options.on_conflict == OnConflict::Skip {
                    self.fates.insert(element, Fate::Skipped { existing: id });
                    continue;
                }
                return Err(Refusal::repeated(&id));
            }
            let Interned { action_no, notify, gives_lanes, expires_in } = actions[&spec.action];
            if !spec.spontaneous {
                // What completes by itself is granted to no worker: it expires if it says so, and not as its action does.
                spec.expires_at = spec.expires_at.or_else(|| Some(self.now.plus(expires_in?)));
            }
            self.new.push(NewTask { task_no, action_no, notify, gives_lanes, id, id_is_new, element, spec });
        }
        Ok(())
    }

    /// Leaves out the tasks whose ids exist.
    fn skip(&mut self, exists: impl Fn(&str) -> bool) {
        let fates = &mut self.fates;
        self.new.retain(|task| {
            let out = exists(&task.id);
            if out {
                fates.insert(task.element, Fate::Skipped { existing: task.id.clone() });
            }
            !out
        });
    }

    /// The ids of the tasks for whose sake others are left out.
    fn skipped(&self) -> impl Iterator<Item = &str> {
        self.fates.values().filter_map(|fate| match fate {
            Fate::Skipped { existing } => Some(existing.as_str()),
            _ => None,
        })
    }

    /// Those of the ids that dependencies name. A call without dependencies need not be restartable; so it must not lock what it has no
    /// use for.
    fn referred<'a>(&self, ids: &'a [String]) -> Vec<&'a str> {
        if ids.is_empty() {
            return Vec::new();
        }
        let references =
            self.new.iter().flat_map(|t| t.spec.depends_on.iter().chain(&t.spec.to_signal_after));
        let named: HashSet<&str> = references.map(|reference| reference.id.as_str()).collect();
        ids.iter().map(String::as_str).filter(|id| named.contains(id)).collect()
    }

    /// The stored tasks to which dependencies lead that no caller has named.
    fn following(&self, stored: &Stored) -> HashSet<TaskNo> {
        let references =
            self.new.iter().flat_map(|t| t.spec.depends_on.iter().chain(&t.spec.to_signal_after));
        let following = references.filter(|reference| reference.follows);
        following.filter_map(|reference| stored.numbers.get(&reference.id).copied()).collect()
    }

    /// Whether tasks with the same ids give way.
    fn replaces(&self) -> bool {
        self.options.on_conflict == OnConflict::Replace
    }

    /// The tasks, and what the decision about their unique keys needs of the call.
    fn unique(&mut self) -> (&mut Vec<NewTask>, unique::Call<'_>) {
        let (by_id, skips) = (self.replaces(), self.options.on_conflict == OnConflict::Skip);
        (&mut self.new, unique::Call { now: self.now, by_id, skips, fates: &mut self.fates })
    }
}

/// Removes those that are replaced and have the ids of new tasks. Returns the new tasks whose rows had to be inserted before.
fn make_place(tasks: &mut Tasks, keys: &unique::Keys, stored: &mut Stored) -> Result<HashSet<TaskNo>> {
    if tasks.replaces() {
        for task in &tasks.new {
            if stored.numbers.contains_key(&task.id) {
                tasks.fates.insert(task.element, Fate::Replaced { existing: task.id.clone() });
            }
        }
        let namesakes: Vec<&str> = tasks.new.iter().map(|t| t.id.as_str()).collect();
        let there = insert_the_new(tasks, &stored.numbers.keys().map(String::as_str).collect());
        replace::remove_old(&namesakes, stored, tasks.now)?;
        // Tasks that waited for the old ones have heard of their end: they may be somewhere else now.
        stored.refresh()?;
        return Ok(there);
    }
    let namesakes = keys.replaced_namesakes(&tasks.new);
    if namesakes.is_empty() {
        return Ok(HashSet::new());
    }
    let there = insert_the_new(tasks, &namesakes.iter().copied().collect());
    replace::remove_old(&namesakes, stored, tasks.now)?;
    // As above: among them may be one that is replaced for its key.
    stored.refresh()?;
    Ok(there)
}

/// Inserts the rows of tasks whose ids are new before old ones are removed to make place for the others; returns the numbers
/// of those that it has inserted.
///
/// A call that inserts the id of a task that is being removed waits for the end of that, as for an insertion. So a removed id is
/// taken like a new one; and once the first is taken, this call as a rule waits for no other, whatever their order.
fn insert_the_new(tasks: &Tasks, old: &HashSet<&str>) -> HashSet<TaskNo> {
    let new: Vec<&NewTask> = tasks.new.iter().filter(|task| !old.contains(task.id.as_str())).collect();
    if new.is_empty() || new.len() == tasks.new.len() {
        return HashSet::new();
    }
    // Those that another transaction has inserted by now are refused once more when the others are inserted.
    let refused: HashSet<String> = rows::insert(&new, tasks.now).into_iter().collect();
    new.into_iter().filter(|task| !refused.contains(&task.id)).map(|task| task.task_no).collect()
}

/// Inserts the rows that are not there yet. Returns the ids that another transaction has inserted since the call looked,
/// and that are skipped for that.
fn insert_rows(tasks: &mut Tasks, there: &HashSet<TaskNo>, stored: &mut Stored) -> Result<Vec<String>> {
    let mut missing: Vec<&NewTask> = tasks.new.iter().filter(|t| !there.contains(&t.task_no)).collect();
    loop {
        let refused = rows::insert(&missing, tasks.now);
        if refused.is_empty() {
            return Ok(Vec::new());
        }
        match tasks.options.on_conflict {
            OnConflict::Error => return Err(in_the_way::exists(&refused[0], refused.len() - 1)),
            OnConflict::Skip => {
                let ids: HashSet<&str> = refused.iter().map(String::as_str).collect();
                if tasks.new.iter().any(|task| task.spec.unique.is_some() && ids.contains(task.id.as_str())) {
                    // Another element may have been left out for its sake.
                    locks::restart_if_possible();
                }
                tasks.skip(|id| ids.contains(id));
                return Ok(refused);
            }
            OnConflict::Replace => {
                // Those are replaced as well.
                let ids: HashSet<&str> = refused.iter().map(String::as_str).collect();
                replace::remove_newcomers(&ids.iter().copied().collect::<Vec<_>>(), tasks.now)?;
                // As in `make_place`: what waited for them has heard of their end.
                stored.refresh()?;
                missing.retain(|task| ids.contains(task.id.as_str()));
            }
        }
    }
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

/// Refuses tasks that need more of their dependencies than they have.
fn check_required(tasks: &[NewTask], edges: &EdgeSet) -> Result<()> {
    let needs_some = || tasks.iter().filter_map(|task| Some((task, task.spec.num_required?)));
    if needs_some().next().is_none() {
        return Ok(());
    }
    let mut dependencies: HashMap<TaskNo, i32> = HashMap::new();
    for edge in &edges.edges {
        *dependencies.entry(edge.run).or_default() += 1;
    }
    for (task, required) in needs_some() {
        let has = dependencies.get(&task.task_no).copied().unwrap_or(0);
        if required > has {
            let problem = Problem::new(
                format!("key \"num_required\" is {required}, and the task has {has} dependencies"),
                "Give a number from 1 to that of its dependencies, or leave it out: then it needs all.",
            );
            return Err(Element::Task.malformed(task.element + 1, Some(&task.id), &problem));
        }
    }
    Ok(())
}
