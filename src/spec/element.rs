//! One element of a JSON array, read with serde straight from its text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use pgrx::datum::{Interval, Uuid};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{DependencySpec, Element, Reference, TaskSpec, interval_problem, unique};
use crate::error::Result;
use crate::pg::clock::{self, Time};
use crate::pg::json::JsonText;
use crate::state::Condition;

/// Intervals by their text: the input function runs once for each text of a call.
#[derive(Default)]
pub(super) struct Intervals(HashMap<String, Option<Interval>>);

impl Intervals {
    pub(super) fn get(&mut self, text: &str) -> Option<Interval> {
        if let Some(interval) = self.0.get(text) {
            return *interval;
        }
        let interval = clock::parse_interval(text);
        self.0.insert(text.to_owned(), interval);
        interval
    }
}

/// The keys of a task; [`super::keys::TASK`] is the same for whoever has to be told.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTask<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    action: Option<Cow<'a, str>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    priority: Option<i32>,
    max_tries: Option<i32>,
    #[serde(borrow)]
    max_duration: Option<Cow<'a, str>>,
    #[serde(borrow)]
    not_before: Option<Cow<'a, str>>,
    #[serde(borrow)]
    delay: Option<Cow<'a, str>>,
    depends_on: Option<Vec<RawReference>>,
    to_signal_after: Option<Vec<RawReference>>,
    spontaneous: Option<bool>,
    post_result: Option<bool>,
    #[serde(borrow)]
    group_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    retention: Option<RawRetention<'a>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    backoff: Option<&'a RawValue>,
    #[serde(borrow)]
    workgroup: Option<Cow<'a, str>>,
    #[serde(borrow)]
    merge_key: Option<Cow<'a, str>>,
    seed: Option<bool>,
    #[serde(borrow)]
    unique_by: Option<&'a RawValue>,
}

/// Reads a task.
pub(super) fn parse(n: usize, json: &str, intervals: &mut Intervals, now: Time) -> Result<TaskSpec> {
    let raw: RawTask = read(Element::Task, n, json)?;
    let id = raw.id.map(Cow::into_owned);
    let refuse = |what: String| Element::Task.malformed(n, id.as_deref(), &what);
    let mut interval = |key: &str, text: Option<Cow<str>>| match text {
        None => Ok(None),
        Some(text) => match intervals.get(&text) {
            None => Err(refuse(format!("key \"{key}\" is not an interval: \"{text}\""))),
            Some(interval) => match interval_problem(interval) {
                Some(problem) => Err(refuse(format!("key \"{key}\" is {problem}"))),
                None => Ok(Some(interval)),
            },
        },
    };
    let max_duration = interval("max_duration", raw.max_duration)?;
    let (completed, aborted) = match raw.retention {
        None => (None, None),
        Some(RawRetention { completed, aborted }) => (completed, aborted),
    };
    let retention = interval("retention", completed)?;
    let retention_aborted = interval("retention", aborted)?;
    let delay = interval("delay", raw.delay)?;
    let not_before = match (raw.not_before, delay) {
        (Some(_), Some(_)) => return Err(refuse("both \"not_before\" and \"delay\" are given".to_owned())),
        (Some(text), None) => Some(
            clock::parse_timestamptz(&text)
                .ok_or_else(|| refuse(format!("key \"not_before\" is not a timestamp: \"{text}\"")))?,
        ),
        (None, delay) => delay.map(|delay| now.plus(delay)),
    };
    let metadata = match raw.metadata {
        Some(value) if !value.get().starts_with('{') => {
            return Err(refuse("key \"metadata\" is not a JSON object".to_owned()));
        }
        other => other.map(|value| JsonText(value.get().to_owned())),
    };
    let action = raw.action.ok_or_else(|| refuse("key \"action\" is missing".to_owned()))?.into_owned();
    let references =
        |list: Option<Vec<RawReference>>| list.unwrap_or_default().into_iter().map(|r| r.0).collect();
    let body = raw.body.map(text_of);
    let unique = match raw.unique_by {
        Some(value) => unique::parse(value.get(), body.as_deref(), intervals)
            .map_err(|what| refuse(format!("key \"unique_by\": {what}")))?,
        None => None,
    };
    TaskSpec {
        id: id.clone(),
        action,
        body,
        priority: raw.priority.unwrap_or(0),
        max_tries: raw.max_tries,
        max_duration,
        not_before,
        depends_on: references(raw.depends_on),
        to_signal_after: references(raw.to_signal_after),
        spontaneous: raw.spontaneous.unwrap_or(false),
        post_result: raw.post_result.unwrap_or(false),
        group: raw.group_id.map(Cow::into_owned),
        retention,
        retention_aborted,
        metadata,
        backoff: raw.backoff.map(|value| JsonText(value.get().to_owned())),
        workgroup: raw.workgroup.map(Cow::into_owned),
        merge_key: raw.merge_key.map(Cow::into_owned),
        seed: raw.seed.unwrap_or(false),
        unique: unique.map(Box::new),
    }
    .checked(n)
}

/// How long a task is kept: an interval, or one for each outcome.
struct RawRetention<'a> {
    completed: Option<Cow<'a, str>>,
    aborted: Option<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawRetention<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct RetentionVisitor;

        impl<'de> Visitor<'de> for RetentionVisitor {
            type Value = RawRetention<'de>;

            // Never seen: what is refused is explained by its shape.
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a retention")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
                let both = Some(Cow::Owned(text.to_owned()));
                Ok(RawRetention { completed: both.clone(), aborted: both })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let (mut completed, mut aborted) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "completed" => completed = map.next_value::<Option<String>>()?.map(Cow::Owned),
                        "aborted" => aborted = map.next_value::<Option<String>>()?.map(Cow::Owned),
                        other => return Err(de::Error::unknown_field(other, &["completed", "aborted"])),
                    }
                }
                Ok(RawRetention { completed, aborted })
            }
        }

        deserializer.deserialize_any(RetentionVisitor)
    }
}

/// How a body that is given as JSON is stored; `None` for JSON null.
pub(super) fn body_of(json: &str) -> Option<String> {
    serde_json::from_str::<Option<&RawValue>>(json).ok().flatten().map(text_of)
}

/// A string as it is, anything else as its JSON text.
fn text_of(value: &RawValue) -> String {
    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

/// Reads an element; what is refused is named by its place and its id.
fn read<'a, T: Deserialize<'a>>(kind: Element, n: usize, json: &'a str) -> Result<T> {
    kind.keys().read(json).map_err(|what| {
        #[derive(Deserialize)]
        struct Id {
            #[serde(alias = "task_id")]
            id: Option<String>,
        }
        let id = serde_json::from_str::<Id>(json).ok().and_then(|element| element.id);
        kind.malformed(n, id.as_deref(), &what)
    })
}

/// A reference to a task: an id, or `{"id", "condition"}`.
struct RawReference(Reference);

impl<'de> Deserialize<'de> for RawReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct ReferenceVisitor;

        impl<'de> Visitor<'de> for ReferenceVisitor {
            type Value = RawReference;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a reference")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> std::result::Result<RawReference, E> {
                Ok(RawReference(Reference { id: id.to_owned(), condition: Condition::default() }))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<RawReference, A::Error> {
                let (mut id, mut condition) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "id" => id = map.next_value::<Option<String>>()?,
                        "condition" => condition = map.next_value::<Option<RawCondition>>()?,
                        other => return Err(de::Error::unknown_field(other, &["id", "condition"])),
                    }
                }
                let id = id.ok_or_else(|| de::Error::missing_field("id"))?;
                let condition = condition.map_or(Condition::default(), |c| c.0);
                Ok(RawReference(Reference { id, condition }))
            }
        }

        deserializer.deserialize_any(ReferenceVisitor)
    }
}

/// A condition, by the names that docs/reference.md has.
struct RawCondition(Condition);

impl<'de> Deserialize<'de> for RawCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        Condition::parse(&name)
            .map(RawCondition)
            .ok_or_else(|| de::Error::unknown_variant(&name, &["completed", "settled", "aborted"]))
    }
}

/// The keys of a dependency.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDependency {
    after: Option<String>,
    run: Option<String>,
    condition: Option<RawCondition>,
}

/// Reads a dependency.
pub(super) fn parse_dependency(n: usize, json: &str) -> Result<DependencySpec> {
    let raw: RawDependency = read(Element::Dependency, n, json)?;
    let end = |key: &str, id: Option<String>| {
        id.filter(|id| !id.is_empty()).ok_or_else(|| {
            let what = format!("key \"{key}\" is missing or empty");
            Element::Dependency.malformed(n, None, &what)
        })
    };
    Ok(DependencySpec {
        after: end("after", raw.after)?,
        run: end("run", raw.run)?,
        condition: raw.condition.map_or(Condition::default(), |c| c.0),
    })
}

/// One return of many.
pub(crate) struct ReturnSpec {
    pub(crate) task_id: Option<String>,
    pub(crate) token: Option<Uuid>,
    pub(crate) status_code: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) result: Option<JsonText>,
    pub(crate) retry_after: Option<Interval>,
    pub(crate) children: Vec<TaskSpec>,
    pub(crate) children_block: bool,
    pub(crate) delay_children: Option<Interval>,
    pub(crate) delay_workgroup: Option<Interval>,
}

/// The keys of a return.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReturn<'a> {
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
}

/// Reads a return. A token that is no uuid is a bad token, not a malformed element.
pub(super) fn parse_return(n: usize, json: &str, intervals: &mut Intervals) -> Result<ReturnSpec> {
    let raw: RawReturn = read(Element::Return, n, json)?;
    let task_id = raw.task_id;
    let mut interval = |key: &str, text: Option<Cow<str>>| {
        text.map(|text| {
            intervals.get(&text).filter(|i| interval_problem(*i).is_none()).ok_or_else(|| {
                let what = format!("key \"{key}\" is not an interval from 0 to 1,000 years: \"{text}\"");
                Element::Return.malformed(n, task_id.as_deref(), &what)
            })
        })
        .transpose()
    };
    let retry_after = interval("retry_after", raw.retry_after)?;
    let delay_children = interval("delay_children", raw.delay_children)?;
    let delay_workgroup = interval("delay_workgroup", raw.delay_workgroup)?;
    let children = raw
        .children
        .map_or(Ok(Vec::new()), |tasks| super::parse_children(tasks.get()))
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::backoff;
    use crate::spec::keys::BACKOFF;
    use crate::spec::shape::Object;

    /// The keys that serde knows, from its complaint about one that it does not.
    fn known<'a, T: Deserialize<'a>>() -> Vec<String> {
        let error = serde_json::from_str::<T>(r#"{"no such key": 1}"#).err().unwrap().to_string();
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    fn agree<'a, T: Deserialize<'a>>(object: &Object) {
        let mut read = known::<T>();
        let mut told: Vec<String> = object.keys.iter().map(|(key, _)| (*key).to_owned()).collect();
        read.sort();
        told.sort();
        assert_eq!(read, told, "{}", object.what);
        for (name, key) in object.otherwise {
            assert!(told.contains(&(*key).to_owned()) && !told.contains(&(*name).to_owned()), "{name}");
        }
    }

    #[test]
    fn the_keys_that_are_read_are_those_that_are_told() {
        agree::<RawTask>(&crate::spec::keys::TASK);
        agree::<RawDependency>(&crate::spec::keys::DEPENDENCY);
        agree::<RawReturn>(&crate::spec::keys::RETURN);
        agree::<unique::RawUnique>(&crate::spec::keys::UNIQUE);
        agree::<backoff::RawBackoff>(&BACKOFF);
    }
}
