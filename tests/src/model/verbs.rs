//! Other operations of the contract.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Code, Dependency, Edge, Expected, Key, Millis, Model, Past, Task};

/// A task to insert.
#[derive(Clone, Debug)]
pub struct New {
    pub id: String,
    pub action: String,
    pub priority: i32,
    pub max_tries: Option<i32>,
    pub lease: Option<Millis>,
    pub delay: Option<Millis>,
    pub spontaneous: bool,
    /// Edges that name this task at either end.
    pub edges: Vec<Edge>,
}

/// What becomes of an id that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Refuse,
    Skip,
    Replace,
}

fn refuse<T>(codes: impl IntoIterator<Item = &'static str>) -> Expected<T> {
    Err(codes.into_iter().collect())
}

impl Model {
    /// `insert_tasks` and `replace_tasks`; the ids that it must return.
    pub fn insert(&mut self, new: &[New], mode: Mode, ignore_missing: bool) -> Expected<Vec<String>> {
        let mut after = self.clone();
        after.step += 1;
        let ids = after.insert_or_spoil(new, mode, ignore_missing)?;
        *self = after;
        Ok(ids)
    }

    /// Inserts, or refuses and leaves a state that is of no use.
    fn insert_or_spoil(&mut self, new: &[New], mode: Mode, ignore_missing: bool) -> Expected<Vec<String>> {
        let mut errors = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut inserted: Vec<&New> = Vec::new();
        for task in new {
            let repeated = !seen.insert(task.id.clone());
            match self.by_id(&task.id).map(|task| task.code) {
                Some(_) if mode == Mode::Skip => continue,
                _ if repeated && mode == Mode::Skip => continue,
                _ if repeated => drop(errors.insert("TQ002")),
                Some(_) if mode == Mode::Refuse => drop(errors.insert("TQ002")),
                Some(Code::InProgress) => drop(errors.insert("TQ005")),
                _ => {}
            }
            inserted.push(task);
        }
        // The old ones first, all at once: a task that waited for them hears of an abort.
        let old: BTreeSet<Key> = inserted.iter().filter_map(|task| self.ids.get(&task.id).copied()).collect();
        let old: Vec<Key> = old.into_iter().collect();
        for key in &old {
            if !self.tasks[key].code.is_settled() {
                self.settle(*key, Code::Aborted);
            }
        }
        self.ripple();
        self.forget(&old, |_| false);
        for (position, task) in inserted.iter().enumerate() {
            self.add_task(task, position as u64);
        }
        let fresh: BTreeSet<Key> = inserted.iter().map(|task| self.ids[&task.id]).collect();
        let edges: Vec<Edge> = inserted.iter().flat_map(|task| task.edges.clone()).collect();
        if let Err(codes) = self.link(&edges, ignore_missing, &fresh) {
            errors.extend(codes);
        }
        if !errors.is_empty() {
            return refuse(errors);
        }
        self.ripple();
        Ok(inserted.iter().map(|task| task.id.clone()).collect())
    }

    fn add_task(&mut self, new: &New, position: u64) {
        let place = self.first_place() + position;
        let key = self.next_key;
        self.next_key += 1;
        self.ids.insert(new.id.clone(), key);
        let task = Task {
            id: new.id.clone(),
            action: new.action.clone(),
            priority: new.priority,
            max_tries: new.max_tries,
            lease: new.lease,
            not_before: new.delay.map(|delay| self.now + delay),
            spontaneous: new.spontaneous,
            code: Code::Pending,
            num_tries: 0,
            held: None,
            dependencies: Vec::new(),
            past: Past::default(),
            blocked: false,
            place: (place, place),
        };
        self.tasks.insert(key, task);
    }

    /// `add_dependencies`; the least and the greatest number that it may return.
    ///
    /// The contract has it count those that now block. It does not say whether one that was there before counts, or
    /// one whose `run` is lost by another in the same call.
    pub fn depend(&mut self, edges: &[Edge]) -> Expected<(i64, i64)> {
        let mut after = self.clone();
        after.step += 1;
        let pairs_before = after.pairs();
        after.link(edges, false, &BTreeSet::new())?;
        after.ripple();
        let pairs: BTreeSet<(Key, Key)> =
            edges.iter().map(|edge| (after.ids[&edge.after], after.ids[&edge.run])).collect();
        let unsettled = |model: &Model, key: &Key| !model.tasks[key].code.is_settled();
        let new = pairs.difference(&pairs_before);
        let least = new.filter(|(a, r)| unsettled(&after, a) && unsettled(&after, r)).count() as i64;
        let most = edges.iter().filter(|edge| unsettled(self, &self.ids[&edge.after])).count() as i64;
        *self = after;
        Ok((least, most))
    }

    fn pairs(&self) -> BTreeSet<(Key, Key)> {
        let pairs =
            self.tasks.iter().flat_map(|(run, task)| task.dependencies.iter().map(|d| (d.after, *run)));
        pairs.collect()
    }

    /// Adds edges without looking at what follows from them.
    fn link(&mut self, edges: &[Edge], ignore_missing: bool, fresh: &BTreeSet<Key>) -> Expected<()> {
        let last_place = self.last_place();
        let mut errors = BTreeSet::new();
        for edge in edges {
            let (Some(&after), Some(&run)) = (self.ids.get(&edge.after), self.ids.get(&edge.run)) else {
                if !ignore_missing {
                    errors.insert("TQ003");
                }
                continue;
            };
            if self.tasks[&run].code != Code::Pending {
                errors.insert("TQ005");
            }
            match self.tasks[&run].dependencies.iter().find(|dependency| dependency.after == after) {
                Some(old) if old.condition == edge.condition => {}
                // Within one array the task contradicts itself; the contract names no code for that.
                Some(_) => {
                    errors.extend(if fresh.contains(&run) { ["TQ005", "TQ006"] } else { ["TQ005"; 2] })
                }
                None => {
                    let task = self.tasks.get_mut(&run).expect("looked up above");
                    task.dependencies.push(Dependency { after, condition: edge.condition });
                    // If the call itself frees the task again, the queue may say that it never left the line, or
                    // that it comes back to the end.
                    task.place.1 = last_place;
                }
            }
        }
        // A call that is refused anyway may be refused for a cycle that only stands on paper.
        if self.has_cycle() || (!errors.is_empty() && self.has_cycle_among_all()) {
            errors.insert("TQ004");
        }
        if errors.is_empty() { Ok(()) } else { refuse(errors) }
    }

    /// `return_task`; the code that the task really gets.
    pub fn give(
        &mut self,
        id: &str,
        token: Uuid,
        code: Code,
        retry_after: Option<Millis>,
        count_try: bool,
    ) -> Expected<Code> {
        self.step += 1;
        let (now, end) = (self.now, self.end_of_line());
        let mut errors = BTreeSet::new();
        if code == Code::InProgress || !count_try && code != Code::Pending {
            errors.insert("22023");
        }
        match self.by_id(id) {
            None => drop(errors.insert("TQ003")),
            Some(task) if !task.is_held_under(token) => drop(errors.insert("TQ001")),
            Some(_) => {}
        }
        if !errors.is_empty() {
            return refuse(errors);
        }
        let key = self.ids[id];
        let task = self.tasks.get_mut(&key).expect("looked up above");
        if code == Code::Pending && (!count_try || !task.is_exhausted()) {
            let backoff = if count_try { task.backoff() } else { 0 };
            task.num_tries -= i32::from(!count_try);
            task.code = Code::Pending;
            task.held = None;
            task.place = end;
            task.not_before = Some(now + retry_after.unwrap_or(backoff));
            return Ok(Code::Pending);
        }
        let settled = if code == Code::Pending { Code::Aborted } else { code };
        self.settle(key, settled);
        self.ripple();
        Ok(settled)
    }

    /// `release_tasks`; how many were in progress, in the hands of this actor if one is named.
    pub fn release(&mut self, ids: &[String], actor: Option<&str>) -> i64 {
        self.step += 1;
        let (now, end) = (self.now, self.end_of_line());
        let keys: BTreeSet<Key> = ids.iter().filter_map(|id| self.ids.get(id).copied()).collect();
        let mut released = 0;
        for key in keys {
            let task = self.tasks.get_mut(&key).expect("looked up above");
            let Some(held) = &task.held else { continue };
            if actor.is_some_and(|actor| held.actor != actor) {
                continue;
            }
            released += 1;
            if task.is_exhausted() {
                self.settle(key, Code::Aborted);
                continue;
            }
            task.code = Code::Pending;
            task.held = None;
            task.place = end;
            task.not_before = Some(now);
        }
        self.ripple();
        released
    }

    /// `extend_tasks_ownership` for one pair; whether it is owned.
    pub fn extend(&mut self, actor: &str, id: &str, token: Uuid, lease: Millis) -> bool {
        self.step += 1;
        let now = self.now;
        let Some(task) = self.by_id_mut(id).filter(|task| task.is_held_under(token)) else { return false };
        let held = task.held.as_mut().expect("it is held");
        held.actor = actor.to_owned();
        held.deadline = Some(now + lease);
        true
    }

    /// `delete_tasks`; how many go.
    pub fn delete(&mut self, ids: &[String]) -> Expected<i64> {
        self.step += 1;
        let keys: BTreeSet<Key> = ids.iter().filter_map(|id| self.ids.get(id).copied()).collect();
        if keys.iter().any(|key| self.tasks[key].code == Code::InProgress) {
            return refuse(["TQ005"]);
        }
        Ok(self.remove(keys.into_iter().collect()))
    }

    /// `cancel_tasks`; how many of the list were not settled.
    pub fn cancel(&mut self, ids: &[String]) -> i64 {
        self.step += 1;
        let keys: BTreeSet<Key> = ids.iter().filter_map(|id| self.ids.get(id).copied()).collect();
        let open: Vec<Key> = keys.into_iter().filter(|key| !self.tasks[key].code.is_settled()).collect();
        for key in &open {
            self.settle(*key, Code::Aborted);
        }
        self.ripple();
        open.len() as i64
    }
}

impl Task {
    fn is_held_under(&self, token: Uuid) -> bool {
        self.held.as_ref().is_some_and(|held| held.token == token)
    }
}
