//! The one variable that has all memories of this session, and how each owner gets at its own.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::time::Instant;

use super::beliefs::{Belief, RULES};
use super::remembered::{Now, Remembers, Shown};
use super::rule::Event;
use crate::pg::clock::{Time, wall};
use crate::pg::session;

/// What this session remembers.
struct Session {
    /// The time that the queue's clock has shown last.
    latest: Cell<Time>,
    /// By belief; made when it is used first.
    memories: [RefCell<Option<Box<dyn Remembers>>>; RULES.len()],
}

thread_local! {
    static SESSION: Session = const {
        Session { latest: Cell::new(Time::BEGINNING), memories: [const { RefCell::new(None) }; RULES.len()] }
    };
}

/// A memory, for its owner: a static, of the one type that this belief has.
pub(crate) struct Memory<M> {
    belief: Belief,
    of: PhantomData<fn() -> M>,
}

impl<M: Remembers> Memory<M> {
    /// The memory for this belief.
    pub(crate) const fn of(belief: Belief) -> Self {
        Memory { belief, of: PhantomData }
    }

    /// Reads or changes it. What is called within must not lead back to it.
    pub(crate) fn with<R>(&self, what: impl FnOnce(&mut M) -> R) -> R {
        let number = self.belief as usize;
        SESSION.with(|session| {
            let mut memory = session.memories[number].borrow_mut();
            let memory = memory.get_or_insert_with(|| Box::new(M::new(&RULES[number])));
            let memory: &mut dyn Any = &mut **memory;
            match memory.downcast_mut() {
                Some(memory) => what(memory),
                None => unreachable!("{:?} has one owner", self.belief),
            }
        })
    }

    /// Has it remember what this call has seen; not in a transaction that has an id, where the rule says so: what that has changed
    /// itself may come back with a savepoint.
    pub(crate) fn learn(&self, what: impl FnOnce(&mut M)) {
        if !RULES[self.belief as usize].of_committed || !session::has_transaction_id() {
            self.with(what);
        }
    }
}

/// Something has happened that makes memories untrue: those end that name it in their rules.
pub(crate) fn happened(event: Event) {
    forget(|belief| RULES[belief].ends_with.contains(&event));
}

/// Forgets everything: what is believed is found out anew.
#[cfg(any(test, feature = "pg_test"))]
pub(crate) fn forget_all() {
    forget(|_| true);
}

fn forget(which: impl Fn(usize) -> bool) {
    SESSION.with(|session| {
        for (number, memory) in session.memories.iter().enumerate() {
            if which(number)
                && let Some(memory) = memory.borrow_mut().as_mut()
            {
                memory.forget();
            }
        }
    });
}

/// The queue's clock shows this time. Memories end here that need it to go on, if it goes back: a test has set it, or the server's
/// has been.
pub(crate) fn clock_shows(now: Time) {
    let is_earlier = SESSION.with(|session| now < session.latest.replace(now));
    if is_earlier {
        happened(Event::ClockBack);
    }
}

/// The name of each memory that was used, and what it holds.
pub(crate) fn shown() -> Vec<(&'static str, Shown)> {
    SESSION.with(|session| {
        let now = Now { instant: Instant::now(), wall: wall() };
        let used = RULES.iter().zip(&session.memories);
        used.filter_map(|(rule, memory)| Some((rule.name, memory.borrow().as_ref()?.shown(now)))).collect()
    })
}
