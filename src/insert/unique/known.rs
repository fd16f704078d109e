//! What is known of a key, and what an element that has it comes to.

use std::collections::HashSet;

use crate::error::{Refusal, Result};
use crate::input::{OnHeld, States, TaskSpec};
use crate::insert::in_the_way;
use crate::insert::new::NewTask;
use crate::insert::stored::Stored;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::rights;
use crate::state::Outcome;
use crate::store::live::Place;
use crate::store::unique_key::Key;

/// A task with a key: a stored one, or an element of the call that is in.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::insert) struct Holder {
    /// The number of the task.
    pub(in crate::insert) task_no: TaskNo,
    /// The id of the task.
    pub(in crate::insert) id: String,
    /// The end of its period; `None` if it has none.
    pub(in crate::insert) until: Option<Time>,
    /// The states in which it holds the key.
    pub(in crate::insert) states: States,
    /// The state that it was in when it was looked up, or locked; of an element that it will be in. Several: one of these.
    pub(in crate::insert) state: States,
    /// Its workgroup is held back: it is not ready, whatever its row says.
    pub(in crate::insert) held_back: bool,
    /// It has a merge key, and may share the end of another task.
    pub(in crate::insert) may_ride: bool,
    /// It is locked for a change: what is stored of it then counts.
    pub(in crate::insert) locked: bool,
    /// It is an element of the call.
    pub(in crate::insert) in_call: bool,
}

impl Holder {
    /// Whether it holds the key now.
    pub(super) fn holds(&self, now: Time) -> bool {
        self.state.meet(self.states) && self.until.is_none_or(|until| now < until)
    }

    /// Whether it is pending.
    pub(in crate::insert) fn is_pending(&self) -> bool {
        self.state.meet(States::PENDING)
    }

    /// Whether a task that is left out for its sake counts on its not having begun yet.
    pub(super) fn is_relied_upon(&self) -> bool {
        self.is_pending() && !self.states.meet(States::IN_PROGRESS)
    }

    /// As its locked row shows it; `None` if the task is gone.
    ///
    /// A rider has begun with its leader: what it would do is being done, by a worker that may have seen an older state.
    pub(super) fn locked(self, stored: &Stored, riding: &HashSet<TaskNo>, now: Time) -> Option<Self> {
        if stored.numbers.get(&self.id) != Some(&self.task_no) {
            return None;
        }
        let state = match (stored.live.get(&self.task_no), stored.outcomes.get(&self.task_no)) {
            (Some(row), _) => match row.place {
                Place::Run { .. } if row.in_progress() => States::IN_PROGRESS,
                _ if riding.contains(&self.task_no) => States::IN_PROGRESS,
                Place::Blocked(_) => States::BLOCKED,
                Place::Scheduled { due, .. } if due > now => States::SCHEDULED,
                _ if self.held_back => States::SCHEDULED,
                _ => States::READY,
            },
            (None, Some(Outcome::Completed)) => States::COMPLETED,
            (None, Some(Outcome::Aborted | Outcome::Skipped)) => States::ABORTED,
            (None, None) => return None,
        };
        Some(Holder { state, ..self })
    }
}

/// What is known of one key of the call: at first what is stored, and with each element that takes it what that makes of it.
pub(super) struct Known {
    /// Where the stored row points to; the number of an element if the call has made the row.
    pub(super) points_to: TaskNo,
    /// The task that was inserted with it last, if there still is one.
    pub(super) holder: Option<Holder>,
    /// The one before it, which had begun when that was inserted.
    pub(super) behind: Option<Holder>,
    /// When the first of those that have replaced each other was inserted.
    pub(super) since: Time,
    /// The end of the period of the one before.
    pub(super) not_before: Option<Time>,
    /// Some element takes the place of the task that holds it.
    pub(super) replacing: bool,
    /// A task with it has the id of an element, and may give way to that.
    pub(super) by_id: bool,
    /// A dependency of the call names an element that has it.
    pub(super) named: bool,
}

/// What becomes of an element that asks for its key.
pub(in crate::insert) enum Verdict {
    /// It is left out for the sake of this task.
    Out(Holder),
    /// It has the key.
    In(Turn),
}

/// How an element has got its key.
pub(in crate::insert) struct Turn {
    /// The tasks whose places it takes.
    pub(in crate::insert) replaced: Vec<Holder>,
    /// The one with this key that it comes after, which had begun.
    pub(in crate::insert) behind: Option<Holder>,
    /// It is not granted before the end of the period of that task.
    pub(in crate::insert) not_before: Option<Time>,
    /// When the first of those that replaced each other was inserted; now, if it replaces none.
    pub(in crate::insert) since: Time,
}

impl Known {
    /// A key whose row points to this task, of which nothing else is known yet.
    pub(super) fn new(points_to: TaskNo, since: Time, not_before: Option<Time>) -> Self {
        let (holder, behind) = (None, None);
        Known { points_to, holder, behind, since, not_before, replacing: false, by_id: false, named: false }
    }

    /// The tasks with the key.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.holder.iter().chain(&self.behind)
    }

    /// The key is asked for by an element for whose id the task `gives_way`. What is `gone` by now has no key.
    pub(super) fn ask(
        &self,
        key: &Key,
        task: &NewTask,
        gives_way: Option<TaskNo>,
        gone: impl Fn(TaskNo) -> bool,
        now: Time,
    ) -> Result<Verdict> {
        let on_conflict = task.spec.unique.as_ref().map(|unique| unique.on_conflict).unwrap_or_default();
        let is_namesake = |holder: &&Holder| Some(holder.task_no) == gives_way;
        let is_there = |holder: &&Holder| !is_namesake(holder) && !gone(holder.task_no);
        let behind = self.behind.as_ref().filter(is_there);
        let holds = |holder: &&Holder| holder.holds(now);
        // The new form of a task that waits takes over all that comes with its key.
        let last = self.holder.as_ref().filter(holds);
        if let Some(namesake) = last.filter(is_namesake).filter(|namesake| namesake.is_pending()) {
            return Ok(Verdict::In(self.in_place_of(namesake, behind, on_conflict)));
        }
        let Some(holder) = last.filter(is_there).or(behind.filter(holds)) else {
            let turn = Turn { replaced: Vec::new(), behind: None, not_before: None, since: now };
            return Ok(Verdict::In(turn));
        };
        match on_conflict {
            OnHeld::Error if holder.in_call => {
                Err(Refusal::key_held(&key.0, &key.1, &holder.id, "It is another element of this call."))
            }
            OnHeld::Error => Err(in_the_way::key_held(&key.0, &key.1, &holder.id)),
            OnHeld::Skip => Ok(Verdict::Out(holder.clone())),
            OnHeld::Replace if holder.is_pending() => {
                if !holder.in_call {
                    rights::check_replacing()?;
                }
                Ok(Verdict::In(self.in_place_of(holder, behind, on_conflict)))
            }
            OnHeld::Replace => {
                let (behind, not_before) = (Some(holder.clone()), holder.until);
                Ok(Verdict::In(Turn { replaced: Vec::new(), behind, not_before, since: now }))
            }
        }
    }

    /// The turn of an element that takes the place of the pending task that holds the key; with `"replace"` also that of
    /// the one before, if it is pending again.
    fn in_place_of(&self, holder: &Holder, behind: Option<&Holder>, on_conflict: OnHeld) -> Turn {
        let before = behind.filter(|before| before.task_no != holder.task_no);
        let both = before.filter(|before| on_conflict == OnHeld::Replace && before.is_pending());
        // The one before may have ended in a state in which it does not hold the key. Then its period holds up nothing.
        let counts = before.is_some_and(|before| before.state.meet(before.states));
        Turn {
            replaced: std::iter::once(holder).chain(both).cloned().collect(),
            behind: before.filter(|_| both.is_none()).cloned(),
            not_before: self.not_before.filter(|_| counts),
            since: self.since,
        }
    }
}

/// The key of a task, if it is unique.
pub(super) fn key_of(spec: &TaskSpec) -> Option<Key> {
    spec.unique.as_ref().map(|unique| (spec.action.clone(), unique.key.clone()))
}
