//! One return of many.

use std::borrow::Cow;

use pgrx::datum::{Interval, Uuid};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::arrays;
use super::awaited::AwaitedSpec;
use super::read::read;
use crate::error::Result;
use crate::input::intervals::Intervals;
use crate::input::{Element, INTERVAL_HINT, Problem, TaskSpec, interval_problem};
use crate::pg::json::JsonText;

/// A task that is returned, and how it ended.
pub(crate) struct ReturnSpec {
    /// The id of the task; `None`: absent, and no token is good then.
    pub(crate) task_id: Option<String>,
    /// The token of the grant; `None`: absent, or no uuid, which is a token that is not good.
    pub(crate) token: Option<Uuid>,
    /// The code that the task is returned with, not checked yet; `None`: completed.
    pub(crate) status_code: Option<String>,
    /// How long the workgroup of the task is held back at least, from the return on.
    pub(crate) delay_workgroup: Option<Interval>,
    /// The rest.
    pub(crate) said: Said,
}

/// What a return says beside how it ends; what is left out is `None`, or false.
#[derive(Default)]
pub(crate) struct Said {
    /// A text for people.
    pub(crate) status: Option<String>,
    /// What the task leaves to its dependents. Not kept of one that is given back or suspended.
    pub(crate) result: Option<JsonText>,
    /// How long one that goes on later is not granted again.
    pub(crate) retry_after: Option<Interval>,
    /// As they were given: none at all is not the same as no child.
    pub(crate) children: Option<Vec<TaskSpec>>,
    /// What depends on the task waits for the children, too; of one that goes on later, the task itself.
    pub(crate) children_block: bool,
    /// How long the children are held back; with them the dependents of a task that settles.
    pub(crate) delay_children: Option<Interval>,
    /// The try does not count.
    pub(crate) uncounted: bool,
    /// What the task is to wait for before it goes on.
    pub(crate) depends_on: Option<Vec<AwaitedSpec>>,
    /// How long it waits for that and its children at most.
    pub(crate) wait_at_most: Option<Interval>,
}

/// The keys of a return.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReturn<'a> {
    task_id: Option<String>,
    token: Option<String>,
    status_code: Option<String>,
    status: Option<String>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    retry_after: Option<Cow<'a, str>>,
    #[serde(borrow)]
    children: Option<&'a RawValue>,
    children_block: Option<bool>,
    #[serde(borrow)]
    delay_children: Option<Cow<'a, str>>,
    #[serde(borrow)]
    delay_workgroup: Option<Cow<'a, str>>,
    count_try: Option<bool>,
    #[serde(borrow)]
    depends_on: Option<&'a RawValue>,
    #[serde(borrow)]
    wait_at_most: Option<Cow<'a, str>>,
}

/// Reads a return. A token that is no uuid is a bad token, not a malformed element.
pub(in crate::input) fn parse_return(n: usize, json: &str, intervals: &mut Intervals) -> Result<ReturnSpec> {
    let raw: RawReturn = read(Element::Return, n, json)?;
    let task_id = raw.task_id;
    let mut interval = |key: &str, text: Option<Cow<str>>| {
        text.map(|text| {
            intervals.get(&text).filter(|i| interval_problem(*i).is_none()).ok_or_else(|| {
                let what = format!("key \"{key}\" is not an interval from 0 to 1,000 years: \"{text}\"");
                Element::Return.malformed(n, task_id.as_deref(), &Problem::new(what, INTERVAL_HINT))
            })
        })
        .transpose()
    };
    let retry_after = interval("retry_after", raw.retry_after)?;
    let delay_children = interval("delay_children", raw.delay_children)?;
    let delay_workgroup = interval("delay_workgroup", raw.delay_workgroup)?;
    let wait_at_most = interval("wait_at_most", raw.wait_at_most)?;
    let depends_on = raw
        .depends_on
        .map(|list| arrays::parse_awaited(list.get()))
        .transpose()
        .map_err(|refusal| refusal.of_return(n, task_id.as_deref()))?;
    let children = raw
        .children
        .map(|tasks| arrays::parse_children(tasks.get()))
        .transpose()
        .map_err(|refusal| refusal.of_return(n, task_id.as_deref()))?;
    Ok(ReturnSpec {
        token: raw
            .token
            .and_then(|token| uuid::Uuid::parse_str(&token).ok())
            .map(|token| Uuid::from_bytes(token.into_bytes())),
        task_id,
        status_code: raw.status_code,
        delay_workgroup,
        said: Said {
            status: raw.status,
            result: raw.result.map(|value| JsonText(value.get().to_owned())),
            retry_after,
            children,
            children_block: raw.children_block.unwrap_or(false),
            delay_children,
            uncounted: !raw.count_try.unwrap_or(true),
            depends_on,
            wait_at_most,
        },
    })
}
