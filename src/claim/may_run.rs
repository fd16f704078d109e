//! Whether an entry may run, asked before it is taken.
//!
//! A claim takes what comes next, finds out what may not run by the [gates](super::gates), and moves it out of the way of other
//! claims, once. A waiting call can keep nothing that it has moved, since its transaction lasts as long as its sleep. So it asks
//! first: entries whose group is paused, whose workgroup is held back or whose merge key is busy, and such as belong into a lane
//! and are not in it yet, it leaves where they are, without a lock and without a write. What commits may
//! move them: any claim of [`Taking::All`], and (`upkeep::parking`) one of [`Taking::Parkable`], which takes nothing else.
//!
//! The answer is a hint: the gates ask again under locks once an entry is taken. A transaction that ends a reason wakes the calls
//! that wait for the actions of such entries, moved or not.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use super::reasons;
use crate::allowance::Allowance;
use crate::flow::actions::Action;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::table::look;
use crate::store::reason::MergeKey;
use crate::store::task::{self, GROUP_ID, MERGE_KEY, WORKGROUP};

/// Which entries a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// All that come next: those that may not run are moved out of the way.
    All,
    /// Those that may run. The others stay where they are.
    Free,
    /// Those that may not, to be moved out of the way, up to the first that may.
    Parkable,
}

/// For how long a claim asks at most: longer than that, entries that may be held back count as held back. What it has taken by then
/// is enough.
const MOST_TIME_TO_ASK: Duration = Duration::from_millis(500);

/// What a claim has asked and heard.
pub(super) struct Asked {
    taking: Taking,
    now: Time,
    /// For asking, and for going past what is held back.
    time: Cell<Option<(Allowance, Allowance)>>,
    groups: RefCell<HashMap<String, Group>>,
    /// Until when each is held back; `None`: it is not.
    workgroups: RefCell<HashMap<String, Option<Time>>>,
    keys: RefCell<HashMap<MergeKey, bool>>,
    /// The claim has come to an entry that is held back.
    met: Cell<bool>,
    /// When time ends the first of the reasons.
    until: Cell<Option<Time>>,
    /// The claim has come to an entry that may run, and takes none of those ([`Taking::Parkable`]).
    free: Cell<bool>,
    /// The caller's time-out leaves no more time for going past entries.
    over: Cell<bool>,
}

/// What is set for a group.
#[derive(Clone, Copy, Default)]
struct Group {
    paused: bool,
    limited: bool,
}

/// What the claim knows of an entry before it takes it.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    /// The number of the task.
    pub(super) task_no: TaskNo,
    /// Its action, as the claim knows it; `None`: the claim does not ask for it.
    pub(super) action: Option<&'a Action>,
    /// It is in a lane, or will be once it is ready.
    pub(super) in_lane: bool,
}

impl Asked {
    /// A claim that has asked nothing yet.
    pub(super) fn new(taking: Taking, now: Time) -> Self {
        Asked {
            taking,
            now,
            time: Cell::default(),
            groups: RefCell::default(),
            workgroups: RefCell::default(),
            keys: RefCell::default(),
            met: Cell::new(false),
            until: Cell::default(),
            free: Cell::new(false),
            over: Cell::new(false),
        }
    }

    /// Whether the claim asks at all.
    pub(super) fn is_choosy(&self) -> bool {
        self.taking != Taking::All
    }

    /// Whether an entry was met that counts as held back.
    pub(super) fn has_met(&self) -> bool {
        self.met.get()
    }

    /// When time ends the first of the reasons that were met.
    pub(super) fn until(&self) -> Option<Time> {
        self.until.get()
    }

    /// Whether the claim has come to an entry that may run, and takes none of those.
    pub(super) fn has_met_free(&self) -> bool {
        self.free.get()
    }

    /// Whether the claim is to end with what it has. `or_asks_no_more`: also if it takes nothing from here on about which it has to ask.
    pub(super) fn is_over(&self, or_asks_no_more: bool) -> bool {
        let is_used_up = || self.time.get().is_some_and(|(asking, _)| asking.is_used_up());
        self.free.get() || self.over.get() || or_asks_no_more && self.taking == Taking::Free && is_used_up()
    }

    /// Whether the claim takes this entry. `gated`: it has a group, a workgroup or a merge key.
    pub(super) fn takes(&self, entry: Entry, gated: bool) -> bool {
        match self.taking {
            Taking::All => true,
            Taking::Free => !gated || !self.holds(entry),
            Taking::Parkable => {
                let held = gated && self.holds(entry);
                self.free.set(self.free.get() || !held);
                held
            }
        }
    }

    fn holds(&self, entry: Entry) -> bool {
        let (asking, walking) = self.time.get().unwrap_or_else(|| {
            let walking = Allowance::half_of_time_out();
            let time = (walking.at_most(MOST_TIME_TO_ASK), walking);
            self.time.set(Some(time));
            time
        });
        let held = asking.is_used_up() || self.is_held(entry);
        self.over.set(self.over.get() || walking.is_used_up());
        if held {
            self.met.set(true);
        }
        held
    }

    /// Asks in the order in which the gates ask.
    fn is_held(&self, entry: Entry) -> bool {
        let names = look(|look| {
            task::each(look, [entry.task_no].into_iter(), |_, task| {
                (task.get(GROUP_ID), task.get(WORKGROUP), task.get(MERGE_KEY))
            })
        });
        let Some((group, workgroup, merge_key)) = names.into_iter().flatten().next() else { return false };
        let action = entry.action.map_or("", |action| action.named.name.as_str());
        let key = MergeKey::of(action, group.as_deref(), merge_key.as_deref());
        if group.is_some_and(|group| self.holds_group(group, entry)) {
            return true;
        }
        let until = workgroup.and_then(|w| {
            known(&self.workgroups, w, |name| {
                let held_back = reasons::held_back(&[name.as_str()], self.now);
                held_back.into_iter().next().map(|(_, until)| until)
            })
        });
        if let Some(until) = until {
            self.until.set(self.until.get().into_iter().chain([until]).min());
            return true;
        }
        key.is_some_and(|key| known(&self.keys, key, reasons::is_busy))
    }

    fn holds_group(&self, group: String, entry: Entry) -> bool {
        let group = known(&self.groups, group, |group| {
            let set = reasons::groups(&[group.as_str()]).into_iter().next();
            set.map(|(_, paused, limited)| Group { paused, limited }).unwrap_or_default()
        });
        let has_lane = group.limited || entry.action.is_some_and(|action| action.gives_lanes());
        group.paused || has_lane && !entry.in_lane
    }
}

/// What was heard of a name or a key before, or is asked now.
fn known<K: Eq + Hash, V: Copy>(heard: &RefCell<HashMap<K, V>>, name: K, ask: impl FnOnce(&K) -> V) -> V {
    if let Some(answer) = heard.borrow().get(&name) {
        return *answer;
    }
    let answer = ask(&name);
    heard.borrow_mut().insert(name, answer);
    answer
}

/// Those of the tasks, which are given with their actions and not ready yet, that nothing but limits keeps from running, by what a
/// look can tell in the time that there is for asking. Whether an action is paused is not asked: the caller leaves the tasks of such out.
pub(crate) fn free<'a>(tasks: impl Iterator<Item = (TaskNo, &'a Action)>, now: Time) -> Vec<TaskNo> {
    let asked = Asked::new(Taking::Free, now);
    let is_free = |(task_no, action): &(TaskNo, &'a Action)| {
        asked.takes(Entry { task_no: *task_no, action: Some(action), in_lane: true }, true)
    };
    tasks.filter(is_free).map(|(task_no, _)| task_no).collect()
}
