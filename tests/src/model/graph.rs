//! What follows from the dependencies.

use std::collections::{BTreeMap, BTreeSet};

use super::{Code, Condition, Dependency, Key, Model, Task};

impl Model {
    /// Lets every task hear of what its dependencies did, until nothing moves any more.
    pub(super) fn ripple(&mut self) {
        while let Some((key, code)) = self.next_to_settle() {
            self.settle(key, code);
        }
        let end = self.end_of_line();
        let free: Vec<Key> = self
            .pending()
            .filter(|(_, task)| task.blocked != self.is_blocked(task))
            .map(|(key, _)| key)
            .collect();
        for key in free {
            let blocked = self.is_blocked(&self.tasks[&key]);
            let task = self.tasks.get_mut(&key).expect("listed above");
            task.blocked = blocked;
            task.place = end;
        }
    }

    /// A pending task that ends without a worker: it has lost a dependency, or it is spontaneous and nothing blocks it.
    fn next_to_settle(&self) -> Option<(Key, Code)> {
        self.pending().find_map(|(key, task)| {
            if task.dependencies.iter().any(|dependency| self.is_lost(dependency)) {
                Some((key, Code::Aborted))
            } else if task.spontaneous && !self.is_blocked(task) {
                Some((key, Code::Completed))
            } else {
                None
            }
        })
    }

    fn is_lost(&self, dependency: &Dependency) -> bool {
        matches!(
            (self.tasks[&dependency.after].code, dependency.condition),
            (Code::Aborted, Condition::Completed) | (Code::Completed, Condition::Aborted)
        )
    }

    pub(super) fn is_blocked(&self, task: &Task) -> bool {
        task.dependencies.iter().any(|dependency| !self.tasks[&dependency.after].code.is_settled())
    }

    fn pending(&self) -> impl Iterator<Item = (Key, &Task)> {
        self.tasks.iter().filter(|(_, task)| task.code == Code::Pending).map(|(key, task)| (*key, task))
    }

    /// Whether some unsettled task waits for itself.
    pub(super) fn has_cycle(&self) -> bool {
        self.has_cycle_among(self.pending().map(|(key, _)| key).collect())
    }

    /// Whether the edges close a cycle, whatever has become of the tasks.
    pub(super) fn has_cycle_among_all(&self) -> bool {
        self.has_cycle_among(self.tasks.keys().copied().collect())
    }

    fn has_cycle_among(&self, mut waiting: BTreeSet<Key>) -> bool {
        // Take away every task that waits for none of the others; a task that stays is in a cycle or behind one.
        loop {
            let free: Vec<Key> = waiting
                .iter()
                .copied()
                .filter(|key| {
                    self.tasks[key].dependencies.iter().all(|dependency| !waiting.contains(&dependency.after))
                })
                .collect();
            if free.is_empty() {
                return !waiting.is_empty();
            }
            waiting.retain(|key| !free.contains(key));
        }
    }

    /// Removes tasks, then every dependent that was blocked and has no dependency left, and so on; how many went.
    pub(super) fn remove(&mut self, mut keys: Vec<Key>) -> i64 {
        let mut removed = 0;
        while !keys.is_empty() {
            removed += keys.len() as i64;
            self.forget(&keys, |task| task.blocked);
            keys = self
                .pending()
                .filter(|(_, task)| task.blocked && !task.has_dependencies())
                .map(|(key, _)| key)
                .collect();
        }
        self.ripple();
        removed
    }

    /// Takes tasks away. Their dependents keep what they have heard, except where the edge goes as well.
    pub(super) fn forget(&mut self, keys: &[Key], edge_goes: fn(&Task) -> bool) {
        let codes: BTreeMap<Key, Code> = keys.iter().map(|key| (*key, self.tasks[key].code)).collect();
        for key in keys {
            let task = self.tasks.remove(key).expect("a task to remove exists");
            self.ids.remove(&task.id);
        }
        for task in self.tasks.values_mut() {
            let edge_goes = edge_goes(task);
            for code in task.dependencies.iter().filter_map(|dependency| codes.get(&dependency.after)) {
                let failed = i32::from(*code == Code::Aborted);
                if edge_goes {
                    task.past.doubtful_failures += failed;
                } else {
                    task.past.signals += 1;
                    task.past.failures += failed;
                }
            }
            task.dependencies.retain(|dependency| !codes.contains_key(&dependency.after));
        }
    }
}

impl Task {
    /// One that has settled and is gone counts as well.
    fn has_dependencies(&self) -> bool {
        !self.dependencies.is_empty() || self.past.signals > 0
    }
}
