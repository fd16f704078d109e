//! Random operations, done to the queue and to the model, which must agree on every answer and on the whole state.

mod generate;
mod run;

use crate::model::{Code, Edge, Millis, Mode, New};

pub use generate::operations;
pub use run::Pair;

/// One call, or time that passes. Tasks and grants are chosen by number, so that shrinking keeps its meaning.
#[derive(Clone, Debug)]
pub enum Op {
    Insert {
        tasks: Vec<New>,
        mode: Mode,
        ignore_missing: bool,
    },
    Own {
        actor: &'static str,
        max_tasks: i32,
        actions: Vec<String>,
        lease: Option<Millis>,
    },
    /// The grant is one of all that there ever were, so most tokens are stale; `task` swaps the task's id.
    Return {
        grant: usize,
        task: Option<String>,
        code: Code,
        retry_after: Option<Millis>,
        count_try: bool,
    },
    /// `return_tasks`: each pair for itself.
    ReturnMany {
        grants: Vec<usize>,
        code: Code,
    },
    Extend {
        actor: &'static str,
        grants: Vec<usize>,
        lease: Millis,
    },
    Depend(Vec<Edge>),
    Delete(Vec<String>),
    Cancel(Vec<String>),
    /// `release_tasks`, of one actor or of all.
    Release {
        tasks: Vec<String>,
        actor: Option<&'static str>,
    },
    Advance(Millis),
}
