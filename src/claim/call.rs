//! What a call asks for, and what it is granted.

use std::cell::{Cell, OnceCell};
use std::time::Duration;

use pgrx::datum::Interval;

use super::may_run::{Asked, Entry, Taking};
use crate::clock;
use crate::flow::actions::Action;
use crate::number::{Lane, Position, TaskNo};
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::random_62_bits;
use crate::store::expiry;
use crate::token::{Base, Nonce};

/// What a call asks for.
#[derive(Clone)]
pub(crate) struct Request {
    /// The name that the worker gives itself. Empty in a trial.
    pub(crate) actor_id: String,
    /// How many tasks it is granted at most.
    pub(crate) max_tasks: usize,
    /// The names of the actions that it asks for. Empty in a trial that is given its actions.
    pub(crate) actions: Vec<String>,
    /// For how long it asks to hold the tasks; `None`: what each task, its action or the setting says.
    pub(crate) lease: Option<Interval>,
    /// Which entries it takes.
    pub(crate) taking: Taking,
    /// Whether it only wants to know: what it is granted is rolled back.
    pub(crate) trial: bool,
}

impl Request {
    /// One that wants to know, for one task of any action that is given with it.
    pub(crate) fn trial(taking: Taking) -> Self {
        Request {
            actor_id: String::new(),
            max_tasks: 1,
            actions: Vec::new(),
            lease: None,
            taking,
            trial: true,
        }
    }
}

/// A task that a call is granted.
pub(crate) struct Grant {
    /// The number of the task.
    pub(crate) task_no: TaskNo,
    /// The secret part of the token that the worker gets.
    pub(crate) nonce: Nonce,
    /// The id by which callers know the task.
    pub(crate) id: String,
    /// The name of its action.
    pub(crate) action: String,
    /// The parameters of the task; `None`: it has none.
    pub(crate) body: Option<String>,
    /// What is noted beside the body, as a JSON object.
    pub(crate) metadata: Option<JsonText>,
    /// What an earlier try has saved by `report_status`; `None`: nothing.
    pub(crate) checkpoint: Option<JsonText>,
    /// What its dependencies left, as a JSON array; `None`: too large, or the caller has not asked for it.
    pub(crate) results: Option<JsonText>,
    /// Its saved steps, as a JSON object from name to result; `None`: too large, or not asked for.
    pub(crate) steps: Option<JsonText>,
    /// One of the two was asked for, and is too large.
    pub(crate) incomplete: bool,
    /// Tries so far, this one included.
    pub(crate) tries: i32,
    /// How many of its dependencies have aborted.
    pub(crate) failures: i32,
    /// When the lease ends; infinity: never.
    pub(crate) deadline: Time,
    /// Higher ones are granted first.
    pub(crate) priority: i32,
    /// Where it stood among the entries of its priority.
    pub(crate) position: Position,
    /// The number that stands for its action in the narrow tables.
    pub(super) action_no: i32,
    /// The lane from which it was taken; [`Lane::NONE`]: none.
    pub(super) lane: Lane,
    /// How many dependencies it has in all.
    pub(super) dependencies: i32,
    /// It has a group, a workgroup or a merge key, so the gates are asked before the grant stands.
    pub(super) gated: bool,
    /// Its deadline had passed, and the actor that had it could still return it.
    pub(super) overdue: bool,
    /// Its group, for the gates; `None`: it has none.
    pub(super) group_id: Option<String>,
    /// Its workgroup, for the gates; `None`: it has none.
    pub(super) workgroup: Option<String>,
    /// Its merge key, for the gates; `None`: it has none.
    pub(super) merge_key: Option<String>,
}

/// A call that claims: what it asks for, and by what it goes.
pub(super) struct Call<'a> {
    /// What the caller asks for.
    pub(super) request: &'a Request,
    /// In ascending order of their numbers.
    pub(super) actions: &'a [Action],
    /// Random, new for each claim: the nonces of all its grants are made of it.
    pub(super) base: Base,
    /// When it began to look.
    pub(super) now: Time,
    /// What it has asked about entries before it takes them.
    pub(super) asked: Asked,
    /// Some tasks may have expired that upkeep has not come to.
    expiring: bool,
    /// From when its grants count, and when the last one was.
    granted_at: Cell<Option<(Time, Time)>>,
    /// What the setting says of how long a grant lasts, once it is asked.
    pub(super) lease: OnceCell<Option<Interval>>,
}

/// Grants that follow each other sooner than this count from the same moment: those for the same duration have one deadline, and
/// share a row in `lease`.
const PAUSE: Duration = Duration::from_millis(100);

impl<'a> Call<'a> {
    /// A call that has granted nothing yet. `actions` are in ascending order of their numbers.
    pub(super) fn new(request: &'a Request, actions: &'a [Action], now: Time) -> Self {
        Call {
            request,
            actions,
            base: Base(random_62_bits()),
            now,
            asked: Asked::new(request.taking, now),
            expiring: expiry::may_be_due(now),
            granted_at: Cell::default(),
            lease: OnceCell::new(),
        }
    }

    /// The time of a grant, from which its deadline counts: what the call has walked over by then may have taken long.
    pub(super) fn time_of_grant(&self) -> Time {
        let now = clock::now();
        let from = match self.granted_at.get() {
            Some((from, last)) if now < last + PAUSE => from,
            _ => now,
        };
        self.granted_at.set(Some((from, now)));
        from
    }

    /// Whether this entry has expired, and upkeep has not come to it. A grant is what keeps a task from that.
    pub(super) fn has_expired(&self, task_no: TaskNo, tries: i32) -> bool {
        self.expiring && tries == 0 && expiry::is_over(task_no, self.now)
    }

    /// Whether it takes this entry. `gated`: it has a group, a workgroup or a merge key.
    pub(super) fn takes(&self, task_no: TaskNo, action_no: i32, lane: Lane, gated: bool) -> bool {
        let entry = || Entry { task_no, action: self.action(action_no), in_lane: lane != Lane::NONE };
        !self.asked.is_choosy() || self.asked.takes(entry(), gated)
    }

    /// The action of this number; `None` if the call does not ask for it.
    pub(super) fn action(&self, action_no: i32) -> Option<&Action> {
        let at = self.actions.binary_search_by_key(&action_no, |a| a.action_no).ok()?;
        Some(&self.actions[at])
    }
}
