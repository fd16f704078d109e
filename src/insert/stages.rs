//! The stages of an insertion, each a type: what one has found out or locked, the next relies on, and none can be left out
//! or come too early.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::edges::{self, EdgeSet};
use super::ground::{self, Ground};
use super::new::{Fate, Fates, NewTask};
use super::options::{OnConflict, Options};
use super::pass::{self, Came};
use super::stored::Stored;
use super::unique::Keys;
use super::{cycle, in_the_way, place, replace, rows};
use crate::clock;
use crate::error::{Refusal, Result};
use crate::input::{Element, Problem, TaskSpec};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::rights::{self, Doing};
use crate::store::actions::{self, Interned};
use crate::store::reason::MergeKey;
use crate::store::{merge_key, positions, tally, task};

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

/// What the tasks name is locked, keys and stored tasks; the rows of merge keys are there, and of tasks whose ids were in doubt.
pub(super) struct Grounded {
    tasks: Tasks,
    keys: Keys,
    ground: Ground,
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
    /// order, before any task is changed: see [`locks`](crate::locks).
    pub(super) fn lock(self) -> Result<Grounded> {
        let Numbered(tasks) = self;
        let mut keys = Keys::default();
        if tasks.new.iter().any(|t| t.spec.unique.is_some()) {
            keys = Keys::lock(&tasks.new, tasks.now);
        }
        let ground = ground::reach(&tasks.new, tasks.options, tasks.now, &mut keys)?;
        Ok(Grounded { tasks, keys, ground })
    }
}

impl Grounded {
    /// Finds out which tasks are inserted, and inserts their rows.
    pub(super) fn insert(self) -> Result<Present> {
        let Grounded { mut tasks, mut keys, ground } = self;
        let Ground { mut stored, mut written, there } = ground;
        tasks.leave_out(&there);
        let came = tasks.decide(&mut keys, &stored)?;
        tasks.take_back(&came, &mut written);
        // The keys point to the new tasks before those old ones go that are still there, which would take the rows along.
        keys.point();
        // A call that inserts the id of a task that is being removed waits for the end of that, as for an insertion. So a removed id is
        // taken like a new one: behind all that are new. Once the first is taken, this call waits for no other.
        let replaced: HashSet<&str> = came.replaced.keys().map(String::as_str).collect();
        let missing = tasks.new.iter().filter(|task| !written[task.element]);
        let (later, first) = missing.partition(|task| replaced.contains(task.id.as_str()));
        tasks.insert_rows(first)?;
        if !replaced.is_empty() {
            replace::remove_old(&replaced.into_iter().collect::<Vec<_>>(), &mut stored, tasks.now)?;
            // Tasks that waited for the old ones have heard of their end: they may be somewhere else now.
            stored.refresh()?;
            tasks.insert_rows(later)?;
        }
        tally::inserted(tasks.new.iter().filter_map(|t| t.spec.group.as_deref()), tasks.now);
        Ok(Present { tasks, stored, came })
    }
}

impl Present {
    /// Makes the edges.
    pub(super) fn link(self) -> Result<Linked> {
        let Present { tasks, stored, came } = self;
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
        let twice = if self.options.on_conflict == OnConflict::Skip {
            None
        } else {
            given.find(|id| !seen.insert(id))
        };
        twice.map_or(Ok(()), |id| Err(Refusal::repeated(id)))
    }

    /// Leaves those out whose ids these stored tasks have.
    fn leave_out(&mut self, there: &HashMap<String, TaskNo>) {
        let fates = &mut self.fates;
        self.new.retain(|task| match there.get(&task.id).filter(|_| !task.id_is_new) {
            Some(existing) => {
                fates.set(task.task_no, Fate::Skipped(*existing), &task.id);
                false
            }
            None => true,
        });
    }

    /// Finds out which of the elements are inserted.
    fn decide(&mut self, keys: &mut Keys, stored: &Stored) -> Result<Came> {
        if keys.is_empty() && self.options.on_conflict == OnConflict::Error {
            // All of them.
            return Ok(Came::default());
        }
        let call = pass::Call { now: self.now, options: self.options, stored };
        pass::go(&mut self.new, keys, &mut self.fates, &call)
    }

    /// Takes back what was written for elements that are not inserted, or not as they were.
    fn take_back(&self, came: &Came, written: &mut [bool]) {
        let mut stays = vec![false; written.len()];
        let as_it_was = self.new.iter().filter(|task| !came.put_off.contains(&task.task_no));
        as_it_was.for_each(|task| stays[task.element] = true);
        let back = (0..written.len()).filter(|at| written[*at] && !stays[*at]);
        task::take_back(&back.map(|at| self.elements[at]).collect::<Vec<_>>());
        written.iter_mut().zip(stays).for_each(|(written, stays)| *written &= stays);
        let merged: BTreeSet<MergeKey> = came.out.iter().filter_map(NewTask::merge_key).collect();
        merge_key::tidy(&merged.into_iter().collect::<Vec<_>>());
    }

    /// Inserts the rows of these, whose ids no other transaction can have: they are made up, were written before, or are of tasks that
    /// this call has locked and removed.
    fn insert_rows(&self, tasks: Vec<&NewTask>) -> Result<()> {
        match rows::insert(&tasks, self.now).as_slice() {
            [] => Ok(()),
            [first, more @ ..] => {
                let id = tasks.iter().find(|task| task.element == *first).map_or("", |task| &task.id);
                Err(in_the_way::exists(id, more.len()))
            }
        }
    }

    /// The stored tasks to which dependencies lead that no caller has named.
    fn following(&self, stored: &Stored) -> HashSet<TaskNo> {
        let following = self.new.iter().flat_map(NewTask::references).filter(|reference| reference.follows);
        following.filter_map(|reference| stored.numbers.get(&reference.id).copied()).collect()
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
