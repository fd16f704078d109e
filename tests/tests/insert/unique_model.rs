//! A model of what an array with unique keys means: its elements one by one, in their order (contract, 3a). It knows nothing of locks,
//! trials and rows.

use std::collections::{BTreeMap, BTreeSet};

mod edges;

/// Bits of states, as the queue stores them.
pub const BLOCKED: i16 = 1;
pub const SCHEDULED: i16 = 2;
pub const READY: i16 = 4;
pub const IN_PROGRESS: i16 = 8;
pub const COMPLETED: i16 = 16;
pub const ABORTED: i16 = 32;
const PENDING: i16 = BLOCKED | SCHEDULED | READY;

/// A unique key as an element gives it.
#[derive(Clone, Debug)]
pub struct Unique {
    pub key: String,
    pub states: i16,
    pub on_conflict: &'static str,
    /// It has a period, which is not over in this call.
    pub period: bool,
    /// With a delay: it is put off until just after the first of those that replaced each other.
    pub max_wait: bool,
}

#[derive(Clone, Debug)]
pub struct Element {
    pub id: Option<String>,
    pub unique: Option<Unique>,
    pub delay: bool,
    pub spontaneous: bool,
    pub signal: bool,
    /// With their conditions.
    pub depends_on: Vec<(String, &'static str)>,
    pub to_signal_after: Vec<(String, &'static str)>,
}

/// A task, stored or of the array.
#[derive(Clone, Debug)]
pub struct Task {
    pub id: String,
    pub state: i16,
    /// Its key, the states in which it holds it, whether it has a period, and whether that is over.
    pub key: Option<(String, i16, bool, bool)>,
    /// The one that has taken its place.
    pub successor: Option<usize>,
    stored: bool,
}

impl Task {
    pub fn stored(id: String, state: i16, key: Option<(String, i16, bool, bool)>) -> Task {
        Task { id, state, key, successor: None, stored: true }
    }

    fn holds(&self) -> bool {
        self.key.as_ref().is_some_and(|(_, states, _, over)| self.state & states != 0 && !over)
    }
}

/// Who was inserted with a key.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    pub last: Option<usize>,
    pub behind: Option<usize>,
    /// What comes next in its place is not owned before a time that lies ahead.
    pub put_off: bool,
    /// The first of those that replaced each other was inserted before this call.
    pub old: bool,
}

#[derive(Clone, Debug, Default)]
pub struct World {
    pub tasks: Vec<Task>,
    pub slots: BTreeMap<String, Slot>,
    /// Dependencies of stored tasks that wait.
    pub edges: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    In,
    After(usize),
    Replaced(usize),
    Skipped(usize),
}

/// What a call comes to.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// For each element: the task, what became of it, and the other one.
    pub reports: Vec<String>,
    pub tasks: BTreeSet<String>,
    /// Those that a new task is part of.
    pub edges: BTreeSet<String>,
    /// Where the keys point to.
    pub keys: BTreeMap<String, String>,
}

/// The call is refused.
#[derive(Debug)]
pub struct Refused(pub &'static str);

pub struct Call<'a> {
    pub elements: &'a [Element],
    pub on_conflict: &'static str,
    pub ignore_missing: bool,
}

struct Run<'a> {
    call: &'a Call<'a>,
    world: World,
    fates: Vec<Fate>,
    /// The task of each element that was inserted, be it only for a while.
    own: Vec<Option<usize>>,
    follows: Vec<(usize, usize)>,
}

/// The id of an element, or what stands for one that is made up.
pub fn name(at: usize, element: &Element) -> String {
    element.id.clone().unwrap_or(format!("generated {at}"))
}

pub fn run(world: World, call: &Call) -> Result<Outcome, Refused> {
    let mut run = Run { call, world, fates: vec![], own: vec![], follows: vec![] };
    if call.on_conflict != "skip" {
        let ids: Vec<&String> = call.elements.iter().filter_map(|e| e.id.as_ref()).collect();
        if ids.iter().collect::<BTreeSet<_>>().len() < ids.len() {
            return Err(Refused("TQ002"));
        }
    }
    for (at, element) in call.elements.iter().enumerate() {
        run.own.push(None);
        let fate = run.apply(at, element)?;
        run.fates.push(fate);
    }
    run.finish()
}

impl Run<'_> {
    fn alive(&self, at: usize) -> bool {
        self.world.tasks[at].successor.is_none()
    }

    fn with_id(&self, id: &str) -> Option<usize> {
        (0..self.world.tasks.len()).find(|at| self.world.tasks[*at].id == id && self.alive(*at))
    }

    /// Who holds the key, if `without` is gone.
    fn holder(&self, key: &str, without: Option<usize>) -> Option<usize> {
        let slot = self.world.slots.get(key)?;
        let free = |at: &usize| self.alive(*at) && Some(*at) != without && self.world.tasks[*at].holds();
        slot.last.filter(free).or(slot.behind.filter(free))
    }

    fn apply(&mut self, at: usize, element: &Element) -> Result<Fate, Refused> {
        let id = name(at, element);
        let existing = self.with_id(&id);
        if let (Some(existing), "skip") = (existing, self.call.on_conflict) {
            return Ok(Fate::Skipped(existing));
        }
        let by_id = existing.filter(|_| self.call.on_conflict == "replace");
        let Some(unique) = &element.unique else {
            if existing.is_some() && by_id.is_none() {
                return Err(Refused("TQ002"));
            }
            let own = self.insert(at, element, None, false, false);
            return self.in_place(by_id, own).map(|()| by_id.map_or(Fate::In, Fate::Replaced));
        };
        let slot = self.world.slots.get(&unique.key).cloned().unwrap_or_default();
        let pending = |run: &Self, at: usize| run.world.tasks[at].state & PENDING != 0;
        let heir = by_id
            .filter(|old| slot.last == Some(*old) && pending(self, *old) && self.world.tasks[*old].holds());
        let holder = heir.or_else(|| self.holder(&unique.key, by_id));
        let takes = holder
            .is_some_and(|holder| heir.is_some() || unique.on_conflict == "replace" && pending(self, holder));
        if let (Some(holder), false) = (holder, takes)
            && unique.on_conflict != "replace"
        {
            if unique.on_conflict == "error" || existing.is_some() && by_id.is_none() {
                return Err(Refused("TQ002"));
            }
            return Ok(Fate::Skipped(holder));
        }
        let behind = slot.behind.filter(|b| self.alive(*b) && Some(*b) != by_id && Some(*b) != holder);
        let (mut replaced, mut next) = self.turn(unique, &slot, holder, takes, behind);
        if existing.is_some_and(|existing| by_id.is_none() && !replaced.contains(&existing)) {
            return Err(Refused("TQ002"));
        }
        let follows = next.behind.filter(|b| self.world.tasks[*b].state == IN_PROGRESS);
        let delayed = element.delay && !(unique.max_wait && next.old);
        let own = self.insert(at, element, Some(unique), follows.is_some(), delayed || next.put_off);
        self.follows.extend(follows.map(|follows| (follows, own)));
        let fate = self.fate(next.behind, &replaced, own);
        replaced.extend(by_id.filter(|by_id| !replaced.contains(by_id)));
        for old in replaced {
            self.in_place(Some(old), own)?;
        }
        next.last = Some(own);
        self.world.slots.insert(unique.key.clone(), next);
        Ok(by_id.map_or(fate, Fate::Replaced))
    }

    /// Whose places are taken, and what there is of the key then.
    fn turn(
        &self,
        unique: &Unique,
        slot: &Slot,
        holder: Option<usize>,
        takes: bool,
        behind: Option<usize>,
    ) -> (Vec<usize>, Slot) {
        let (mut replaced, mut next) = (vec![], Slot::default());
        match holder {
            Some(holder) if takes => {
                replaced.push(holder);
                next = Slot { last: None, behind, put_off: false, old: slot.old };
                if let Some(before) = behind {
                    let (_, states, ..) = self.world.tasks[before].key.clone().unwrap_or_default();
                    next.put_off = slot.put_off && self.world.tasks[before].state & states != 0;
                    if unique.on_conflict == "replace" && self.world.tasks[before].state & PENDING != 0 {
                        replaced.push(before);
                        next.behind = None;
                    }
                }
            }
            Some(holder) => {
                next.behind = Some(holder);
                next.put_off = self.world.tasks[holder].key.as_ref().is_some_and(|(.., period, _)| *period);
            }
            None => {}
        }
        (replaced, next)
    }

    fn fate(&mut self, behind: Option<usize>, replaced: &[usize], own: usize) -> Fate {
        // Of those that it replaces the first stored one is told, if need be by way of elements.
        let mut fate = behind.map_or(Fate::In, Fate::After);
        for old in replaced.iter().rev() {
            let its = self.own.iter().position(|own| *own == Some(*old));
            match its {
                None => fate = Fate::Replaced(*old),
                Some(its) => {
                    if let Fate::Replaced(of) = self.fates[its] {
                        fate = Fate::Replaced(of);
                    }
                    self.fates[its] = Fate::Skipped(own);
                }
            }
        }
        fate
    }

    fn in_place(&mut self, old: Option<usize>, own: usize) -> Result<(), Refused> {
        let Some(old) = old else { return Ok(()) };
        if self.world.tasks[old].stored && self.world.tasks[old].state == IN_PROGRESS {
            return Err(Refused("TQ005"));
        }
        self.world.tasks[old].successor = Some(own);
        Ok(())
    }

    fn insert(
        &mut self,
        at: usize,
        e: &Element,
        unique: Option<&Unique>,
        follows: bool,
        later: bool,
    ) -> usize {
        let later = if unique.is_some() { later } else { e.delay };
        let state = self.state(at, e, follows, later);
        let key = unique.map(|u| (u.key.clone(), u.states, u.period, false));
        self.world.tasks.push(Task { id: name(at, e), state, key, successor: None, stored: false });
        self.own[at] = Some(self.world.tasks.len() - 1);
        self.world.tasks.len() - 1
    }

    /// The state that it is in at first. (Nothing here has `num_required`, a group or a workgroup.)
    fn state(&self, at: usize, element: &Element, follows: bool, later: bool) -> i16 {
        // By an element that is in, be it for a while, or that is not left out for its id if nothing changes.
        let comes = |n: usize, e: &Element| match n < at {
            true => self.own[n].is_some(),
            false => {
                self.call.on_conflict != "skip" || e.id.as_ref().is_none_or(|id| self.with_id(id).is_none())
            }
        };
        let names = |e: &Element| e.to_signal_after.iter().any(|(id, _)| *id == name(at, element));
        let named = self.call.elements.iter().enumerate().any(|(n, e)| names(e) && comes(n, e));
        let (mut waits, mut lost) = (follows || named || element.signal, false);
        for (id, condition) in &element.depends_on {
            let has_id = |e: &Element| e.id.as_ref() == Some(id);
            let (before, behind) = self.call.elements.split_at(at);
            let there = self.call.on_conflict == "skip" && self.with_id(id).is_some();
            let is_later = !before.iter().any(has_id) && behind.iter().any(has_id) && !there;
            let Some(other) = self.meaning(id, at).filter(|_| !is_later) else {
                waits |= is_later || !self.call.ignore_missing;
                continue;
            };
            match (self.world.tasks[other].state, *condition) {
                (COMPLETED, "aborted") | (ABORTED, "completed") => lost = true,
                (COMPLETED | ABORTED, _) => {}
                _ => waits = true,
            }
        }
        match (lost, waits, later) {
            (true, ..) => ABORTED,
            (_, true, _) => BLOCKED,
            (.., true) => SCHEDULED,
            _ if element.spontaneous => COMPLETED,
            _ => READY,
        }
    }

    fn last(&self, mut at: usize) -> usize {
        while let Some(next) = self.world.tasks[at].successor {
            at = next;
        }
        at
    }

    /// What an id means, going by the first so many elements.
    fn meaning(&self, id: &str, elements: usize) -> Option<usize> {
        let of = || (0..elements).filter(|at| self.call.elements[*at].id.as_deref() == Some(id));
        let inserted = of().filter_map(|at| self.own[at]).find(|own| self.alive(*own));
        let first = || {
            of().find_map(|at| match self.fates[at] {
                Fate::Skipped(other) => Some(self.own[at].unwrap_or(other)),
                _ => self.own[at],
            })
        };
        let stored = || {
            (0..self.world.tasks.len())
                .find(|at| self.world.tasks[*at].id == id && self.world.tasks[*at].stored)
        };
        inserted.or_else(first).or_else(stored).map(|at| self.last(at))
    }

    fn finish(self) -> Result<Outcome, Refused> {
        let edges = self.edges()?;
        let id = |at: usize| self.world.tasks[at].id.clone();
        let report = |at: usize| {
            let own = || name(at, &self.call.elements[at]);
            match self.fates[at] {
                Fate::In => format!("{} inserted", own()),
                Fate::After(other) => format!("{} inserted {}", own(), id(other)),
                Fate::Replaced(other) => format!("{} replaced {}", own(), id(other)),
                Fate::Skipped(other) => format!("{0} skipped {0}", id(self.last(other))),
            }
        };
        let reports = (0..self.call.elements.len()).map(report).collect();
        let edges =
            edges.iter().map(|((a, b), condition)| format!("{} {condition} {}", id(*a), id(*b))).collect();
        let living = |at: &usize| self.alive(*at);
        let tasks = (0..self.world.tasks.len()).filter(living).map(id).collect();
        let held = |slot: &Slot| slot.last.filter(living).or(slot.behind.filter(living)).map(id);
        let keys = self.world.slots.iter().filter_map(|(k, s)| Some((k.clone(), held(s)?))).collect();
        Ok(Outcome { reports, tasks, edges, keys })
    }
}
