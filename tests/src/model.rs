//! The contract in memory: small and slow, so that it can be seen to be right.
//!
//! Little is stored that can be derived. A task knows its dependencies; whether it is blocked, lost or free, and
//! what it counts, follows from the codes of the tasks that they point to. After a change of these [`Model::ripple`]
//! looks at everything again until nothing moves.
//!
//! Where the contract leaves the queue a choice, the model takes the queue's word: the caller tells it which tasks
//! were granted, and it says whether that was allowed ([`own`]).

mod edges;
mod graph;
mod own;
mod verbs;

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

pub use edges::{Condition, Edge};
pub use own::Granted;
pub use verbs::{Mode, New};

/// A task for the model's own use: an id may be used again, this is not.
type Key = usize;

/// A point in time, or a duration, in milliseconds.
pub type Millis = i64;

/// Either it works, or the queue must refuse with one of these SQLSTATEs.
pub type Expected<T> = Result<T, BTreeSet<&'static str>>;

/// Where a task stands in the line of its priority: somewhere between the two, which are times of the model's own
/// count. The contract does not say in which order the tasks come that one call frees.
type Place = (u64, u64);

/// The four codes of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Pending,
    InProgress,
    Aborted,
    Completed,
}

/// What the model has of the state of a queue.
#[derive(Clone, Debug, Default)]
pub struct Model {
    tasks: BTreeMap<Key, Task>,
    /// The tasks that clients can see.
    ids: BTreeMap<String, Key>,
    now: Millis,
    /// Counts the calls.
    step: u64,
    next_key: Key,
}

/// One task.
#[derive(Clone, Debug)]
pub struct Task {
    pub id: String,
    pub action: String,
    pub priority: i32,
    pub max_tries: Option<i32>,
    pub lease: Option<Millis>,
    pub not_before: Option<Millis>,
    pub spontaneous: bool,
    pub code: Code,
    pub num_tries: i32,
    held: Option<Held>,
    dependencies: Vec<Dependency>,
    past: Past,
    /// Whether a dependency was unsettled when the model last looked.
    blocked: bool,
    place: Place,
}

/// What a task has heard from dependencies that are no longer there.
#[derive(Clone, Debug, Default)]
struct Past {
    signals: i32,
    failures: i32,
    /// Aborted ones that were deleted while the task was blocked: the contract does not say whether they still count.
    doubtful_failures: i32,
}

#[derive(Clone, Debug)]
struct Held {
    token: Uuid,
    actor: String,
    deadline: Option<Millis>,
    /// The try before has ended by its deadline.
    missed_before: bool,
}

#[derive(Clone, Copy, Debug)]
struct Dependency {
    after: Key,
    condition: Condition,
}

/// A row of `taskq.tasks` as the model expects it.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub id: String,
    pub action: String,
    pub status_code: &'static str,
    pub state: &'static str,
    pub priority: i32,
    pub num_tries: i32,
    pub max_tries: Option<i32>,
    /// The actor and the deadline, while in progress.
    pub holder: Option<(String, Option<Millis>)>,
    /// Until the task is settled.
    pub counts: Option<Counts>,
}

/// What a task counts of its dependencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    pub num_signals: i32,
    pub total_dependencies: i32,
    /// The least and the greatest number there may be.
    pub num_failures: (i32, i32),
}

impl Code {
    /// The code's spelling in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Pending => "pending",
            Code::InProgress => "in-progress",
            Code::Aborted => "aborted",
            Code::Completed => "completed",
        }
    }

    fn is_settled(self) -> bool {
        matches!(self, Code::Aborted | Code::Completed)
    }
}

impl Model {
    /// The queue's clock.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Time passes.
    pub fn advance(&mut self, by: Millis) {
        self.step += 1;
        let (before, now) = (self.now, self.now + by);
        self.now = now;
        let passes = |time: Option<Millis>| time.is_some_and(|time| before < time && time <= now);
        let from_now_on = (self.first_place(), u64::MAX);
        for task in self.tasks.values_mut() {
            let due = task.code == Code::Pending && !task.blocked && passes(task.not_before);
            let elapsed = task.held.as_ref().is_some_and(|held| passes(held.deadline));
            if due || elapsed {
                task.place = from_now_on;
            }
        }
    }

    /// What `taskq.tasks` must show, by id.
    pub fn view(&self) -> Vec<View> {
        self.ids.values().map(|key| self.view_of(&self.tasks[key])).collect()
    }

    fn view_of(&self, task: &Task) -> View {
        let state = match task.code {
            Code::Pending if task.blocked => "blocked",
            Code::Pending if task.not_before.is_some_and(|time| time > self.now) => "scheduled",
            Code::Pending => "ready",
            settled_or_held => settled_or_held.as_str(),
        };
        let counts = self.counts_of(task);
        View {
            id: task.id.clone(),
            action: task.action.clone(),
            status_code: task.code.as_str(),
            state,
            priority: task.priority,
            num_tries: task.num_tries,
            max_tries: task.max_tries,
            holder: task.held.as_ref().map(|held| (held.actor.clone(), held.deadline)),
            counts: (!task.code.is_settled()).then_some(counts),
        }
    }

    fn counts_of(&self, task: &Task) -> Counts {
        let count = |counted: fn(Code) -> bool| {
            task.dependencies.iter().filter(|dependency| counted(self.tasks[&dependency.after].code)).count()
                as i32
        };
        let failures = count(|code| code == Code::Aborted) + task.past.failures;
        Counts {
            num_signals: count(Code::is_settled) + task.past.signals,
            total_dependencies: task.dependencies.len() as i32 + task.past.signals,
            num_failures: (failures, failures + task.past.doubtful_failures),
        }
    }

    fn by_id(&self, id: &str) -> Option<&Task> {
        self.ids.get(id).map(|key| &self.tasks[key])
    }

    fn by_id_mut(&mut self, id: &str) -> Option<&mut Task> {
        self.ids.get(id).map(|key| self.tasks.get_mut(key).expect("a visible task exists"))
    }

    /// Settles a task; its dependents hear of it in [`Model::ripple`].
    fn settle(&mut self, key: Key, code: Code) {
        let task = self.tasks.get_mut(&key).expect("a task to settle exists");
        task.code = code;
        task.held = None;
    }

    fn first_place(&self) -> u64 {
        self.step * 1000
    }

    fn last_place(&self) -> u64 {
        self.step * 1000 + 999
    }

    /// The end of the line, to this call.
    fn end_of_line(&self) -> Place {
        (self.first_place(), self.last_place())
    }
}
