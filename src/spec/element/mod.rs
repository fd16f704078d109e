//! One element of a JSON array, read with serde straight from its text.

mod awaited;
mod link;
mod returned;
mod task;

use std::collections::HashMap;

use pgrx::datum::Interval;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Element;
use crate::error::Result;
use crate::pg::clock;
pub(crate) use awaited::AwaitedSpec;
pub(super) use awaited::parse_awaited;
pub(super) use link::parse_dependency;
pub(crate) use returned::ReturnSpec;
pub(super) use returned::parse_return;
pub(super) use task::parse_task;

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

/// How a body that is given as JSON is stored; `None` for JSON null.
pub(super) fn body_of(json: &str) -> Option<String> {
    serde_json::from_str::<Option<&RawValue>>(json).ok().flatten().map(text_of)
}

/// A string as it is, anything else as its JSON text.
fn text_of(value: &RawValue) -> String {
    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

/// Reads an element; what is refused is named by its place and its id.
fn read<'a, T: Deserialize<'a>>(kind: Element, n: impl Into<Option<usize>>, json: &'a str) -> Result<T> {
    kind.keys().read(json).map_err(|problem| {
        #[derive(Deserialize)]
        struct Id {
            #[serde(alias = "task_id")]
            id: Option<String>,
        }
        let id = serde_json::from_str::<Id>(json).ok().and_then(|element| element.id);
        kind.malformed(n, id.as_deref(), &problem)
    })
}

#[cfg(test)]
mod tests {
    use super::awaited::RawAwaited;
    use super::link::RawDependency;
    use super::returned::RawReturn;
    use super::task::RawTask;
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
        agree::<RawAwaited>(&crate::spec::keys::AWAITED);
        agree::<RawReturn>(&crate::spec::keys::RETURN);
        agree::<crate::spec::unique::RawUnique>(&crate::spec::keys::UNIQUE);
        agree::<backoff::RawBackoff>(&BACKOFF);
    }
}
