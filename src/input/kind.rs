//! The kinds of elements that an array of the caller's may have.

use super::keys;
use super::shape::{self, Problem};
use crate::error::Refusal;

/// What the elements of an array are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    /// What a suspended task waits for.
    Awaited,
    Dependency,
    Return,
    /// A signal that is sent.
    Signal,
    Task,
}

impl Element {
    /// What such an element is called in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Element::Awaited | Element::Dependency => "dependency",
            Element::Return => "return",
            Element::Signal => "signal",
            Element::Task => "task",
        }
    }

    /// The keys that such an element may have, for messages about one that is malformed.
    pub(crate) fn keys(self) -> &'static shape::Object {
        match self {
            Element::Awaited => &keys::AWAITED,
            Element::Dependency => &keys::DEPENDENCY,
            Element::Return => &keys::RETURN,
            Element::Signal => &keys::SIGNAL,
            Element::Task => &keys::TASK,
        }
    }

    /// `TQ006`: element `n` (counted from 1) of an array of such is malformed; `None`: the one that the call is about.
    pub(crate) fn malformed(
        self,
        n: impl Into<Option<usize>>,
        id: Option<&str>,
        problem: &Problem,
    ) -> Refusal {
        Refusal::malformed(self.name(), n.into(), id, &problem.what, &problem.hint)
    }
}
