//! Which tasks a call is about that does not name them all: the filters of `retry_tasks`, `cancel_tasks`,
//! `delete_tasks` and `update_tasks`.
//!
//! A filter is asked once, before anything is locked (that of an `update_tasks` with ids once more, under the locks). What it finds
//! are numbers, and each is that of one task for ever: the caller's part is checked against these, these are locked, and the call
//! goes by these. What would match by then and was not found is not looked for.

use pgrx::datum::TimestampWithTimeZone;

use crate::error::{Refusal, Result};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::{Given, Statement};
use crate::rights::{self, Doing};
use crate::state::Cause;
use crate::words::words;

/// The condition on a task `t`: $1 to $3 of [`Filters`]. The numbers of the actions are read once, and hashed.
macro_rules! on_tasks {
    () => {
        "($1 IS NULL OR t.id = ANY ($1))
         AND ($2 IS NULL OR t.action_no IN (SELECT a.action_no FROM taskq.action a WHERE a.name = ANY ($2)))
         AND ($3 IS NULL OR t.group_id = ANY ($3))"
    };
}

/// The condition on how it ended, `s`: $5 to $7 of [`Filters`].
macro_rules! on_ends {
    () => {
        "($5 IS NULL OR (s.code = 'a' AND s.cause = ANY ($5)))
         AND ($6 IS NULL OR s.settled_at >= $6)
         AND ($7 IS NULL OR s.settled_at < $7)"
    };
}
pub(super) use {on_ends, on_tasks};

/// What a statement takes that finds what a filter is about, see [`Filter::given`]: ids, actions, groups, $4 the
/// pattern of the status, causes, since and until when they settled, how many at most.
pub(super) type Filters = (
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
    &'static [i8],
    Time,
    Time,
    i32,
);

/// A verb that has all filters, and does its work with them.
macro_rules! filtered {
    ($(#[doc = $doc:literal])* fn $name:ident, $work:expr) => {
        $(#[doc = $doc])*
        #[pg_extern(sql = "")]
        #[allow(clippy::too_many_arguments)]
        fn $name(
            task_ids: Option<Vec<Option<String>>>,
            actions: Option<Vec<Option<String>>>,
            groups: Option<Vec<Option<String>>>,
            status_like: Option<&str>,
            causes: Option<Vec<Option<String>>>,
            settled_since: Option<pgrx::datum::TimestampWithTimeZone>,
            settled_until: Option<pgrx::datum::TimestampWithTimeZone>,
            max_tasks: Option<i32>,
        ) -> i64 {
            use $crate::verbs::filter::{Filter, check_max_tasks, stored_causes, time};
            $crate::rights::for_caller(|| {
                $work(Filter {
                    task_ids,
                    actions,
                    groups,
                    status_like,
                    causes: causes.map(stored_causes).transpose()?,
                    since: settled_since.map(time),
                    until: settled_until.map(time),
                    max_tasks: check_max_tasks(max_tasks)?,
                })
            })
        }
    };
}
pub(super) use filtered;

/// A time that was given.
pub(super) fn time(time: TimestampWithTimeZone) -> Time {
    Time(time.into())
}

/// What is `None` does not filter.
#[derive(Default)]
pub(super) struct Filter<'a> {
    /// Tasks with one of these ids.
    pub(super) task_ids: Option<Vec<Option<String>>>,
    /// Tasks of one of these actions.
    pub(super) actions: Option<Vec<Option<String>>>,
    /// Tasks of one of these groups.
    pub(super) groups: Option<Vec<Option<String>>>,
    /// A pattern as for LIKE, for the status with which they settled, or that was reported last.
    pub(super) status_like: Option<&'a str>,
    /// As `settled.cause` stores them.
    pub(super) causes: Option<Vec<i8>>,
    /// Settled then or later.
    pub(super) since: Option<Time>,
    /// Settled before then.
    pub(super) until: Option<Time>,
    /// So many of them at most.
    pub(super) max_tasks: Option<i32>,
}

impl Filter<'_> {
    /// The same as the arguments of a statement.
    pub(super) fn given(self) -> impl Given<Filters> {
        let Filter { task_ids, actions, groups, status_like, causes, since, until, max_tasks } = self;
        (task_ids, actions, groups, status_like, causes, since, until, max_tasks)
    }

    /// Whether it asks for more of a task than its id.
    pub(super) fn looks_at_tasks(&self) -> bool {
        let Filter { task_ids: _, actions, groups, status_like, causes, since, until, max_tasks: _ } = self;
        actions.is_some()
            || groups.is_some()
            || status_like.is_some()
            || causes.is_some()
            || since.is_some()
            || until.is_some()
    }

    /// Refuses a filter that could be about tasks outside the caller's part, whether it finds any or not: the answer would
    /// reveal what they are like.
    pub(super) fn check(&self, doing: Doing) -> Result<()> {
        fn given(names: &[Option<String>]) -> impl Iterator<Item = &str> {
            names.iter().flatten().map(String::as_str)
        }
        match self {
            Filter { actions: Some(actions), .. } => rights::check_actions(doing, given(actions)),
            Filter { task_ids: Some(ids), .. } => rights::check_named(doing, given(ids)),
            Filter { groups: Some(groups), .. } => {
                let groups: Vec<&str> = given(groups).collect();
                rights::check_found(doing, std::iter::once_with(|| MEMBERS.query(groups)).flatten())
            }
            _ => rights::check_whole_queue(doing),
        }
    }

    /// The ids, if there is nothing else to go by. Without ids and without a condition the call would be about every task: that is
    /// refused, and so is a pattern that ends with a single backslash.
    pub(super) fn only_ids(&self) -> Result<Option<Vec<&str>>> {
        if self.status_like.is_some_and(ends_in_escape) {
            let hint = "A backslash takes the character after it as it is; write two for one.";
            let what = "a pattern that ends with a single backslash";
            return Err(Refusal::not_valid("status_like", what, hint));
        }
        match &self.task_ids {
            None if !self.looks_at_tasks() => Err(Refusal::nothing_asked_for("task_ids")),
            Some(ids) if !self.looks_at_tasks() && self.max_tasks.is_none() => {
                Ok(Some(ids.iter().flatten().map(String::as_str).collect()))
            }
            _ => Ok(None),
        }
    }
}

static MEMBERS: Statement<&[&str], TaskNo> =
    Statement::new(c"SELECT t.task_no FROM taskq.task t WHERE t.group_id = ANY ($1)");

/// Whether a pattern of LIKE ends with an escape character that has nothing to escape.
fn ends_in_escape(pattern: &str) -> bool {
    pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// How many tasks at most.
pub(super) fn check_max_tasks(max_tasks: Option<i32>) -> Result<Option<i32>> {
    match max_tasks {
        Some(max) if max < 0 => {
            Err(Refusal::out_of_range("max_tasks", &max.to_string(), "Ask for 0 tasks or more."))
        }
        other => Ok(other),
    }
}

/// Causes of aborts, by their names.
pub(super) fn stored_causes(names: Vec<Option<String>>) -> Result<Vec<i8>> {
    let known: Vec<&str> = Cause::of_aborts().map(Cause::name).collect();
    let names = words("causes", names, &known)?;
    Ok(names.into_iter().filter_map(Cause::from_name).map(Cause::stored).collect())
}
