//! What a backend knows of actions: their numbers, and what is set for them.
//!
//! A steady worker seldom looks anything up: its backend keeps what it has read until a session changes the tables
//! `action` and `action_setting` ([`TableChanges`] says why it learns of that in time), and for a second at most, in case
//! they are written without the functions of the queue: as when a dump is restored.
//!
//! A call that looks again after a sleep looks everything up anew ([`Event::LookAgain`](crate::memory::Event::LookAgain)). So
//! it does not matter whether the invalidation message of the change that it is woken for has come by then.

use std::rc::Rc;
use std::time::Instant;

use crate::memory::{Belief, Memory, Remembered};
use crate::pg::table::look;
use crate::pg::table_changes::TableChanges;
use crate::store::action_setting::{self, Named, action};

static CHANGES: TableChanges<2> = TableChanges::of([&action::TABLE, &action_setting::TABLE]);

static BY_NAME: Memory<Remembered<String, Rc<Named>>> = Memory::of(Belief::Actions);
static BY_NUMBER: Memory<Remembered<i32, Rc<Named>>> = Memory::of(Belief::ActionNumbers);

/// What there is of each of the names.
pub(crate) fn named<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Rc<Named>> {
    let (version, now) = (CHANGES.version(), Instant::now());
    let known: Vec<Result<Rc<Named>, &str>> = BY_NAME.with(|known| {
        known.as_of(version);
        names.map(|name| known.get_at(name, now).cloned().ok_or(name)).collect()
    });
    if known.iter().all(Result::is_ok) {
        return known.into_iter().flatten().collect();
    }
    look(|look| {
        let read = |name| {
            let named = Rc::new(action_setting::named(look, name));
            keep(version, &named);
            named
        };
        known.into_iter().map(|known| known.unwrap_or_else(read)).collect()
    })
}

/// What there is of the name that a number stands for; `None` if there is no such number.
pub(crate) fn of_number(action_no: i32) -> Option<Rc<Named>> {
    let version = CHANGES.version();
    let known = BY_NUMBER.with(|known| {
        known.as_of(version);
        known.get(&action_no).cloned()
    });
    if known.is_some() {
        return known;
    }
    let name = look(|look| action_setting::name_of(look, action_no))?;
    named(std::iter::once(name.as_str())).pop()
}

/// Keeps what was read after `version` was asked for, unless something has been asked of a later one since.
fn keep(version: u64, named: &Rc<Named>) {
    let is_current = BY_NAME.with(|known| {
        let is_current = known.version() == version;
        if is_current {
            known.note(named.name.clone(), named.clone());
        }
        is_current
    });
    if is_current {
        BY_NUMBER.with(|known| {
            known.as_of(version);
            for action_no in &named.action_nos {
                known.note(*action_no, named.clone());
            }
        });
    }
}
