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
    pub(crate) task_id: Option<String>,
    pub(crate) token: Option<Uuid>,
    pub(crate) status_code: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) result: Option<JsonText>,
    pub(crate) retry_after: Option<Interval>,
    pub(crate) children: Option<Vec<TaskSpec>>,
    pub(crate) children_block: bool,
    pub(crate) delay_children: Option<Interval>,
    pub(crate) delay_workgroup: Option<Interval>,
    pub(crate) count_try: bool,
    /// What the task is to wait for before it goes on.
    pub(crate) depends_on: Option<Vec<AwaitedSpec>>,
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
        status: raw.status,
        result: raw.result.map(|value| JsonText(value.get().to_owned())),
        retry_after,
        children,
        children_block: raw.children_block.unwrap_or(false),
        delay_children,
        delay_workgroup,
        count_try: raw.count_try.unwrap_or(true),
        depends_on,
        wait_at_most,
    })
}
