//! Granting tasks: which the queue may grant, and in which order.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Code, Held, Key, Millis, Model, Task};

/// What the settings say as shipped, without the jitter.
const MAX_TRIES: i32 = 25;
const LEASE: Millis = 3_600_000;
const FIRST_DELAY: Millis = 1_000;
const LONGEST_DELAY: Millis = 600_000;

/// What the queue granted.
#[derive(Clone, Debug)]
pub struct Granted {
    pub task_id: String,
    pub token: Uuid,
    pub num_tries: i32,
    pub num_failures: i32,
    pub deadline: Option<Millis>,
}

impl Model {
    /// Checks the grants of one `own_tasks` call and takes them over; an error says what is wrong with them.
    pub fn own(
        &mut self,
        actor: &str,
        max_tasks: usize,
        actions: &[String],
        lease: Option<Millis>,
        granted: &[Granted],
    ) -> Result<(), String> {
        self.step += 1;
        let freed_now = self.abort_exhausted();
        let listed = |task: &Task| actions.contains(&task.action);
        let candidates: Vec<Key> = self
            .ids
            .values()
            .copied()
            .filter(|key| listed(&self.tasks[key]) && self.is_grantable(&self.tasks[key]))
            .collect();
        // What this call itself has freed may be granted at once, or by the next call.
        let certain = candidates.iter().filter(|key| !freed_now.contains(key)).count();
        if granted.len() > max_tasks || granted.len() < certain.min(max_tasks) {
            return Err(format!("{} granted of {certain} that must be, at most {max_tasks}", granted.len()));
        }
        let keys: Vec<Key> =
            granted.iter().filter_map(|grant| self.ids.get(&grant.task_id).copied()).collect();
        if let Some(stray) =
            granted.iter().find(|g| !self.ids.get(&g.task_id).is_some_and(|key| candidates.contains(key)))
        {
            return Err(format!("{} may not be granted", stray.task_id));
        }
        self.check_order(
            &keys,
            candidates.iter().filter(|key| !keys.contains(key) && !freed_now.contains(key)),
        )?;
        let last_place = self.last_place();
        for key in candidates {
            let task = self.tasks.get_mut(&key).expect("a candidate exists");
            task.place.1 = task.place.1.min(last_place);
        }
        keys.iter().zip(granted).try_for_each(|(key, grant)| self.grant(*key, actor, lease, grant))
    }

    fn is_grantable(&self, task: &Task) -> bool {
        match task.code {
            Code::Pending => !task.blocked && task.not_before.is_none_or(|time| time <= self.now),
            Code::InProgress => self.is_elapsed(task) && !self.backs_off(task),
            Code::Aborted | Code::Completed => false,
        }
    }

    fn is_elapsed(&self, task: &Task) -> bool {
        task.held.as_ref().and_then(|held| held.deadline).is_some_and(|deadline| deadline <= self.now)
    }

    /// From the second deadline in a row on the back-off counts, from the deadline.
    fn backs_off(&self, task: &Task) -> bool {
        let over = |held: &Held| held.deadline.is_some_and(|at| at + task.backoff() <= self.now);
        task.held.as_ref().is_some_and(|held| held.missed_before && !over(held))
    }

    /// Aborts every task whose last allowed try has run out of time; the tasks that this made ready.
    fn abort_exhausted(&mut self) -> BTreeSet<Key> {
        let blocked: BTreeSet<Key> =
            self.ids.values().copied().filter(|key| self.tasks[key].blocked).collect();
        let exhausted: Vec<Key> = self
            .ids
            .values()
            .copied()
            .filter(|key| self.is_elapsed(&self.tasks[key]) && self.tasks[key].is_exhausted())
            .collect();
        for key in exhausted {
            self.settle(key, Code::Aborted);
        }
        self.ripple();
        blocked.into_iter().filter(|key| !self.tasks[key].blocked).collect()
    }

    /// No task overtakes another: neither within the call, nor one that was left out.
    fn check_order<'a>(
        &self,
        granted: &[Key],
        left_out: impl Iterator<Item = &'a Key>,
    ) -> Result<(), String> {
        for (i, first) in granted.iter().enumerate() {
            for second in &granted[i + 1..] {
                self.check_pair(&self.tasks[first], &self.tasks[second])?;
            }
        }
        for key in left_out {
            for first in granted {
                self.check_pair(&self.tasks[first], &self.tasks[key])?;
            }
        }
        Ok(())
    }

    fn check_pair(&self, first: &Task, second: &Task) -> Result<(), String> {
        let in_order = first.priority > second.priority
            || (first.priority == second.priority && first.place.0 <= second.place.1);
        if in_order { Ok(()) } else { Err(format!("{} was granted before {}", first.id, second.id)) }
    }

    fn grant(&mut self, key: Key, actor: &str, lease: Option<Millis>, grant: &Granted) -> Result<(), String> {
        let now = self.now;
        let failures = self.counts_of(&self.tasks[&key]).num_failures;
        let task = self.tasks.get_mut(&key).expect("a candidate exists");
        task.num_tries += 1;
        let missed_before = task.code == Code::InProgress;
        task.code = Code::InProgress;
        let deadline = Some(now + lease.or(task.lease).unwrap_or(LEASE));
        task.held = Some(Held { token: grant.token, actor: actor.to_owned(), deadline, missed_before });
        let right_failures = (failures.0..=failures.1).contains(&grant.num_failures);
        if right_failures && (task.num_tries, deadline) == (grant.num_tries, grant.deadline) {
            Ok(())
        } else {
            let expected = (task.num_tries, failures, deadline);
            Err(format!("tries, failures and deadline must be {expected:?} in {grant:?}"))
        }
    }
}

impl Task {
    /// How long it waits for its next try, if the worker does not say.
    pub(super) fn backoff(&self) -> Millis {
        FIRST_DELAY.saturating_mul(1 << (self.num_tries - 1).clamp(0, 30)).min(LONGEST_DELAY)
    }

    /// Whether no try is left.
    pub(super) fn is_exhausted(&self) -> bool {
        self.num_tries >= self.max_tries.unwrap_or(MAX_TRIES)
    }
}
