//! What a backend knows of actions: their numbers, and what is set for them.
//!
//! A steady worker looks nothing up: its backend keeps what it has read once, until another session changes the
//! tables `action` and `action_setting` ([`TableChanges`] says why it learns of that in time), and for a second at
//! most, in case they are written without the functions of the queue: when a dump is restored, say.
//!
//! **A wake-up may be ahead of the invalidation message of the change that it is for**: both are sent as the
//! transaction ends, the wake-up first. So a call that looks again after a sleep looks everything up anew
//! ([`forget`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use crate::pg::clock::{Time, wall};
use crate::pg::table::look;
use crate::pg::table_changes::TableChanges;
use crate::store::action_setting::{self, Named, action};

static CHANGES: TableChanges<2> = TableChanges::of([&action::TABLE, &action_setting::TABLE]);

/// How long something is kept of which no change is known.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Of how many names something is kept.
const MOST_NAMES: usize = 1_024;

#[derive(Default)]
struct Known {
    /// As of which change.
    version: u64,
    since: Option<Time>,
    by_name: HashMap<String, Rc<Named>>,
    by_number: HashMap<i32, Rc<Named>>,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// What there is of each of the names.
pub(crate) fn named<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Rc<Named>> {
    let version = current();
    let known = |name| KNOWN.with_borrow(|known| known.by_name.get(name).cloned().ok_or(name));
    let known: Vec<Result<Rc<Named>, &str>> = names.map(known).collect();
    if known.iter().all(Result::is_ok) {
        return known.into_iter().flatten().collect();
    }
    look(|look| {
        let read = |name| {
            let named = Rc::new(action_setting::named(look, name));
            KNOWN.with_borrow_mut(|known| known.keep(version, &named));
            named
        };
        known.into_iter().map(|known| known.unwrap_or_else(read)).collect()
    })
}

/// What there is of the name that a number stands for; `None` if there is no such number.
pub(crate) fn of_number(action_no: i32) -> Option<Rc<Named>> {
    current();
    if let Some(known) = KNOWN.with_borrow(|known| known.by_number.get(&action_no).cloned()) {
        return Some(known);
    }
    let name = look(|look| action_setting::name_of(look, action_no))?;
    named(std::iter::once(name.as_str())).pop()
}

/// Has everything looked up anew.
pub(crate) fn forget() {
    KNOWN.take();
}

/// Throws away what is not current any more; returns as of which change the rest is.
fn current() -> u64 {
    let (version, now) = (CHANGES.version(), wall());
    KNOWN.with_borrow_mut(|known| {
        let fresh = |since: Time| since <= now && now <= since + KEPT_FOR;
        if known.version != version || !known.since.is_some_and(fresh) {
            *known = Known { version, since: Some(now), ..Known::default() };
        }
    });
    version
}

impl Known {
    /// Keeps what was read after `version` was asked for, unless something has changed since.
    fn keep(&mut self, version: u64, named: &Rc<Named>) {
        if self.version != version {
            return;
        }
        if self.by_name.len() >= MOST_NAMES {
            self.by_name.clear();
            self.by_number.clear();
        }
        self.by_name.insert(named.name.clone(), named.clone());
        for action_no in &named.action_nos {
            self.by_number.insert(*action_no, named.clone());
        }
    }
}
