//! The dependencies that an array comes to.

use std::collections::BTreeMap;

use super::{PENDING, Refused, Run};

/// Which runs after which, on which condition.
type Edges = BTreeMap<(usize, usize), &'static str>;

impl Run<'_> {
    pub(super) fn edges(&self) -> Result<Edges, Refused> {
        let mut edges = Edges::new();
        for (at, element) in self.call.elements.iter().enumerate() {
            let Some(own) = self.own[at].filter(|own| self.alive(*own)) else { continue };
            let after = element.depends_on.iter().map(|r| (r, true));
            for ((id, condition), waits) in after.chain(element.to_signal_after.iter().map(|r| (r, false))) {
                let Some(other) = self.other(id, own, waits)? else { continue };
                if other == own {
                    if *id == self.world.tasks[own].id { return Err(Refused("TQ004")) } else { continue }
                }
                let edge = if waits { (other, own) } else { (own, other) };
                if edges.insert(edge, condition).is_some_and(|before| before != *condition) {
                    return Err(Refused("TQ005"));
                }
            }
        }
        self.hand_on(&mut edges)?;
        for (after, own) in self.follows.clone() {
            if self.alive(own) {
                edges.entry((after, own)).or_insert("settled");
            }
        }
        if self.is_circle(&edges) { Err(Refused("TQ004")) } else { Ok(edges) }
    }

    /// What was to run after an element runs after the one that has its place. What that says itself counts, then what the newest says.
    fn hand_on(&self, edges: &mut Edges) -> Result<(), Refused> {
        for (at, element) in self.call.elements.iter().enumerate().rev() {
            let Some(old) = self.own[at].filter(|own| !self.alive(*own)) else { continue };
            let own = self.last(old);
            for (id, condition) in &element.to_signal_after {
                if let Some(other) = self.other(id, own, false)?.filter(|other| *other != own) {
                    edges.entry((own, other)).or_insert(condition);
                }
            }
        }
        Ok(())
    }

    /// The task that a dependency of the task `own` leads to, or comes from; none if it is missing.
    fn other(&self, id: &str, own: usize, waits: bool) -> Result<Option<usize>, Refused> {
        let Some(other) = self.meaning(id, self.call.elements.len()) else {
            return if self.call.ignore_missing { Ok(None) } else { Err(Refused("TQ003")) };
        };
        let task = &self.world.tasks[other];
        if other != own && !waits && task.stored && task.state & PENDING == 0 {
            return Err(Refused("TQ005"));
        }
        Ok(Some(other))
    }

    /// With those of stored tasks that are there.
    fn is_circle(&self, edges: &Edges) -> bool {
        let stored = self.world.edges.iter().filter(|(a, b)| self.alive(*a) && self.alive(*b));
        let mut left: Vec<(usize, usize)> = edges.keys().chain(stored).copied().collect();
        loop {
            let before = left.len();
            let all = left.clone();
            left.retain(|(after, _)| all.iter().any(|(_, run)| run == after));
            if left.len() == before {
                return before > 0;
            }
        }
    }
}
