//! The stages of an insertion, each a type: what one has found out or locked, the next relies on, and none can be left out
//! or come too early.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::edges::{self, EdgeSet};
use super::new::{Fate, Fates, NewTask};
use super::options::{OnConflict, Options};
use super::pass::{self, Came};
use super::stored::{Stored, lock_stored};
use super::unique::Keys;
use super::{cycle, in_the_way, place, replace, rows};
use crate::clock;
use crate::error::{Refusal, Result};
use crate::input::{Element, Problem, TaskSpec};
use crate::locks;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::rights::{self, Doing};
use crate::store::actions::{self, Interned};
use crate::store::reason::MergeKey;
use crate::store::{merge_key, numbers, positions, tally, task};

/// The tasks of a call, with what has become of those that are not simply inserted.
struct Tasks {
    /// Those that are inserted, in the order of the call.
    new: Vec<NewTask>,
    /// The number of each element, in the order of the call.
    elements: Vec<TaskNo>,
    fates: Fates,
    options: Options,
    now: Time,
}

/// Each task has its number and its id.
pub(super) struct Numbered(Tasks);

/// What the tasks name is locked: keys, and stored tasks. With `on_conflict => 'skip'` those are left out whose ids are there.
pub(super) struct Locked {
    tasks: Tasks,
    keys: Keys,
    stored: Stored,
}

/// It is known which tasks are inserted; their rows are there, and what they replace has gone.
pub(super) struct Present {
    tasks: Tasks,
    stored: Stored,
    came: Came,
}

/// What a call has come to.
pub(super) struct Inserted {
    /// The tasks inserted, in the order of the call.
    pub(super) tasks: Vec<NewTask>,
    /// The numbers of all elements, in the same order.
    pub(super) elements: Vec<TaskNo>,
    /// What became of those that are not simply inserted.
    pub(super) fates: Fates,
    /// Who stands for whom.
    pub(super) came: Came,
}

/// The edges are stored, and those stored tasks that are to wait for new ones wait.
pub(super) struct Linked {
    tasks: Tasks,
    stored: Stored,
    edges: EdgeSet,
    came: Came,
}

impl Numbered {
    /// Numbers the tasks. An id that stands twice is refused, unless the call skips such. Locks no task.
    pub(super) fn new(specs: Vec<TaskSpec>, options: Options) -> Result<Self> {
        let (new, elements, fates) = Default::default();
        let mut tasks = Tasks { new, elements, fates, options, now: clock::now() };
        if !specs.is_empty() {
            tasks.number(specs)?;
        }
        Ok(Numbered(tasks))
    }

    /// Keys come first in the global order. Then everything stored that the call names is locked in one go, in the global
    /// order, before any task is changed: see [`locks`].
    pub(super) fn lock(self) -> Result<Locked> {
        let Numbered(mut tasks) = self;
        let mut keys = Keys::default();
        if tasks.new.iter().any(|t| t.spec.unique.is_some()) {
            keys = Keys::lock(&tasks.new, tasks.now);
        }
        tasks.leave_out_stored(&keys);
        keys.are_asked_for(&tasks.new, tasks.replaces(), tasks.now);
        let replaced: Vec<&str> = match tasks.replaces() {
            true => tasks.new.iter().map(|t| t.id.as_str()).collect(),
            false => Vec::new(),
        };
        let stored =
            lock_stored(&tasks.new, &keys.stand_ins(&tasks.new), &replaced, &keys.watched(tasks.now))?;
        if tasks.fates.names.values().any(|id| stored.has_lost(id)) {
            // It was removed since: it is to be inserted after all.
            locks::restart_if_possible();
        }
        keys.are_locked(&stored, tasks.now);
        Ok(Locked { tasks, keys, stored })
    }
}

impl Locked {
    /// Finds out which tasks are inserted, and inserts their rows.
    pub(super) fn insert(self) -> Result<Present> {
        let Locked { mut tasks, mut keys, mut stored } = self;
        let (came, written) = tasks.decide(&mut keys, &mut stored)?;
        // The keys point to the new tasks before those old ones go that are still there, which would take the rows along.
        keys.point();
        // A call that inserts the id of a task that is being removed waits for the end of that, as for an insertion. So a removed id is
        // taken like a new one: behind all that are new. Once the first is taken, this call waits for no other.
        let replaced: HashSet<&str> = came.replaced.keys().map(String::as_str).collect();
        let missing = tasks.new.iter().filter(|task| !written.contains(&task.task_no));
        let (later, first) = missing.partition(|task| replaced.contains(task.id.as_str()));
        tasks.insert_rows(first, &mut stored)?;
        if !replaced.is_empty() {
            replace::remove_old(&replaced.into_iter().collect::<Vec<_>>(), &mut stored, tasks.now)?;
            // Tasks that waited for the old ones have heard of their end: they may be somewhere else now.
            stored.refresh()?;
            tasks.insert_rows(later, &mut stored)?;
        }
        tasks.look_for_others(&came.out, &mut stored)?;
        tally::inserted(tasks.new.iter().filter_map(|t| t.spec.group.as_deref()), tasks.now);
        Ok(Present { tasks, stored, came })
    }
}

impl Present {
    /// Makes the rows of merge keys, and the edges.
    pub(super) fn link(self) -> Result<Linked> {
        let Present { tasks, stored, came } = self;
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
        let edges = edges::resolve(&tasks.new, &came, &stored, tasks.options.ignore_missing)?;
        // Tasks of the queue at either end. (Those of this call have actions that were checked before.) What follows from
        // these no caller has named; one that a caller has named as well was checked by its id before anything was locked.
        let mut follows = tasks.following(&stored);
        follows.extend(came.follows.iter().map(|(after, _)| *after));
        let ends = edges.edges.iter().flat_map(|edge| [edge.after, edge.run]);
        rights::check_tasks(Doing::Insert, ends.filter(|end| !follows.contains(end)))?;
        cycle::check(&tasks.new, &edges, &stored)?;
        check_required(&tasks.new, &edges)?;
        edges::store(&edges, &stored.live);
        edges::block_stored_runs(&edges, &tasks.new, &stored, tasks.now);
        Ok(Linked { tasks, stored, edges, came })
    }
}

impl Linked {
    /// Puts each task where it belongs, and settles those that are settled from the start.
    pub(super) fn place(self) -> Result<Inserted> {
        let Linked { tasks, stored, edges, came } = self;
        place::place(&tasks.new, &edges, &stored, tasks.now);
        let Tasks { new, elements, fates, .. } = tasks;
        Ok(Inserted { tasks: new, elements, fates, came })
    }
}

impl Tasks {
    /// Gives every task its number and, where it has none, its id. The number that stands for its action is
    /// looked up once: another may be there the next time one looks.
    fn number(&mut self, specs: Vec<TaskSpec>) -> Result<()> {
        let actions = actions::intern(specs.iter().map(|spec| spec.action.as_str()));
        let numbers = positions::take(specs.len())?;
        self.new.reserve(specs.len());
        for (element, (mut spec, task_no)) in specs.into_iter().zip(numbers).enumerate() {
            let id_is_new = spec.id.is_none();
            let id = spec.id.take().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
            let Interned { action_no, notify, gives_lanes, expires_in } = actions[&spec.action];
            if !spec.spontaneous {
                // What the queue completes is granted to no worker: it expires if it says so, and not as its action does.
                spec.expires_at = spec.expires_at.or_else(|| Some(self.now.plus(expires_in?)));
            }
            self.new.push(NewTask { task_no, action_no, notify, gives_lanes, id, id_is_new, element, spec });
        }
        self.elements.extend(self.new.iter().map(|task| task.task_no));
        // Of those that were given: a new id is like no other.
        let mut given = self.new.iter().filter(|task| !task.id_is_new).map(|task| task.id.as_str());
        let mut seen: HashSet<&str> = HashSet::new();
        let twice = if self.skips() { None } else { given.find(|id| !seen.insert(id)) };
        twice.map_or(Ok(()), |id| Err(Refusal::repeated(id)))
    }

    /// With `on_conflict => 'skip'`: what is there already is named, not inserted; only what appears from now on is found out later. So is
    /// whether a task is still there whose place another element may take by its key.
    fn leave_out_stored(&mut self, keys: &Keys) {
        if !self.skips() {
            return;
        }
        let given = self.new.iter().filter(|task| !task.id_is_new);
        let existing = numbers::by_id(&given.map(|task| task.id.as_str()).collect::<Vec<_>>());
        let open = keys.replaceable(self.now);
        let fates = &mut self.fates;
        self.new.retain(|task| match existing.get(&task.id) {
            Some(existing) if !open.contains_key(&task.id) => {
                fates.set(task.task_no, Fate::Skipped(*existing), &task.id);
                false
            }
            _ => true,
        });
    }

    /// Finds out which of the elements are inserted. Returns also the numbers of those whose rows are written by now.
    fn decide(&mut self, keys: &mut Keys, stored: &mut Stored) -> Result<(Came, HashSet<TaskNo>)> {
        if keys.is_empty() && self.options.on_conflict == OnConflict::Error {
            // All of them.
            return Ok(Default::default());
        }
        let mut written = HashSet::new();
        let mut taken = if self.replaces() { stored.numbers.clone() } else { keys.replaceable(self.now) };
        if self.skips() {
            let others = self.try_ids(keys, &taken, &mut written);
            let named = self.referred(&others);
            if !named.is_empty() {
                // Others of the call refer to what is skipped: those are stored tasks now.
                stored.look_up(&named)?;
            }
            taken.extend(others);
        }
        let call = pass::Call { now: self.now, options: self.options, taken, stored };
        let came = pass::go(&mut self.new, keys, &mut self.fates, &call)?;
        let is_in: HashSet<TaskNo> = match written.is_empty() {
            true => HashSet::new(),
            false => self.new.iter().map(|task| task.task_no).collect(),
        };
        let stays = |task_no: &TaskNo| is_in.contains(task_no) && !came.put_off.contains(task_no);
        let back: Vec<TaskNo> = written.iter().filter(|task_no| !stays(task_no)).copied().collect();
        task::take_back(&back);
        written.retain(|task_no| stays(task_no));
        Ok((came, written))
    }

    /// Inserts the rows of the tasks whose ids may turn out to be taken, those that may be inserted; adds their numbers to `written`.
    /// Returns the ids of elements that stored tasks have, with the numbers of these, without those that were known.
    fn try_ids(
        &self,
        keys: &Keys,
        known: &HashMap<String, TaskNo>,
        written: &mut HashSet<TaskNo>,
    ) -> HashMap<String, TaskNo> {
        let (mut tried, mut kept_out): (Vec<&NewTask>, Vec<&str>) = Default::default();
        let mut seen: HashSet<&str> = HashSet::new();
        for task in &self.new {
            if keys.keep_out(task, self.now) {
                kept_out.push(&task.id);
            } else if task.id_is_new && task.spec.unique.is_none()
                || !task.id_is_new && !known.contains_key(&task.id) && seen.insert(&task.id)
            {
                tried.push(task);
            }
        }
        let mut taken = HashMap::new();
        while !tried.is_empty() {
            let refused = rows::insert(&tried, self.now);
            let refused: HashSet<&str> = refused.iter().map(String::as_str).collect();
            written.extend(tried.iter().filter(|t| !refused.contains(t.id.as_str())).map(|t| t.task_no));
            let found = numbers::by_id(&refused.iter().copied().collect::<Vec<_>>());
            // One that has gone again is in the way no more.
            tried.retain(|task| refused.contains(task.id.as_str()) && !found.contains_key(&task.id));
            taken.extend(found);
        }
        // As of now, when this call waits for no other id any more.
        kept_out.retain(|id| !known.contains_key(*id) && !seen.contains(id));
        taken.extend(numbers::by_id(&kept_out));
        taken
    }

    /// Those of the ids that dependencies name. A call without dependencies need not be restartable; so it must not lock what it has no
    /// use for.
    fn referred<'a>(&self, ids: &'a HashMap<String, TaskNo>) -> Vec<&'a str> {
        if ids.is_empty() {
            return Vec::new();
        }
        let named: HashSet<&str> =
            self.new.iter().flat_map(NewTask::references).map(|reference| reference.id.as_str()).collect();
        ids.keys().map(String::as_str).filter(|id| named.contains(id)).collect()
    }

    /// Inserts the rows of these.
    fn insert_rows(&self, mut missing: Vec<&NewTask>, stored: &mut Stored) -> Result<()> {
        loop {
            let refused = rows::insert(&missing, self.now);
            if refused.is_empty() {
                return Ok(());
            }
            if !self.replaces() {
                return Err(in_the_way::exists(&refused[0], refused.len() - 1));
            }
            // Another transaction has inserted them since the call looked: those are replaced as well.
            let ids: HashSet<&str> = refused.iter().map(String::as_str).collect();
            replace::remove_newcomers(&ids.iter().copied().collect::<Vec<_>>(), self.now)?;
            // As for those that were there: what waited for them has heard of their end.
            stored.refresh()?;
            missing.retain(|task| ids.contains(task.id.as_str()));
        }
    }

    /// Looks for tasks with these ids of elements that have no rows, which would have been refused, or have taken the places of these. This
    /// call waits for no other id any more.
    fn look_for_others(&self, ids: &[String], stored: &mut Stored) -> Result<()> {
        let others = numbers::by_id(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        let ids: Vec<&str> = others.keys().map(String::as_str).collect();
        match ids.first() {
            None => Ok(()),
            Some(id) if !self.replaces() => Err(in_the_way::exists(id, ids.len() - 1)),
            Some(_) => {
                replace::remove_newcomers(&ids, self.now)?;
                stored.refresh()
            }
        }
    }

    /// The stored tasks to which dependencies lead that no caller has named.
    fn following(&self, stored: &Stored) -> HashSet<TaskNo> {
        let following = self.new.iter().flat_map(NewTask::references).filter(|reference| reference.follows);
        following.filter_map(|reference| stored.numbers.get(&reference.id).copied()).collect()
    }

    /// Whether tasks with the same ids give way.
    fn replaces(&self) -> bool {
        self.options.on_conflict == OnConflict::Replace
    }

    /// Whether tasks are left out whose ids are there.
    fn skips(&self) -> bool {
        self.options.on_conflict == OnConflict::Skip
    }
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
