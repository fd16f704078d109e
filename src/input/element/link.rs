//! What one task has to do with another: a reference in a task, or a dependency alone.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::read::read;
use crate::error::Result;
use crate::input::checks::name_problem;
use crate::input::keys::DEPENDENCY;
use crate::input::{Element, Reference};
use crate::state::Condition;

/// A reference to a task: an id, or `{"id", "condition"}`.
pub(super) struct RawReference(pub(super) Reference);

impl<'de> Deserialize<'de> for RawReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct ReferenceVisitor;

        impl<'de> Visitor<'de> for ReferenceVisitor {
            type Value = RawReference;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a reference")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> std::result::Result<RawReference, E> {
                Ok(RawReference(Reference::named(id.to_owned(), Condition::default())))
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
                Ok(RawReference(Reference::named(id, condition)))
            }
        }

        deserializer.deserialize_any(ReferenceVisitor)
    }
}

/// A condition, by the names that docs/reference has.
pub(super) struct RawCondition(pub(super) Condition);

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
pub(super) struct RawDependency {
    after: Option<String>,
    run: Option<String>,
    condition: Option<RawCondition>,
}

/// Reads a dependency.
pub(in crate::input) fn parse_dependency(n: usize, json: &str) -> Result<DependencySpec> {
    let raw: RawDependency = read(Element::Dependency, n, json)?;
    let end = |key: &str, id: Option<String>| {
        let id = id.filter(|id| !id.is_empty()).ok_or_else(|| {
            let problem = DEPENDENCY.misses(format!("key \"{key}\" is missing or empty"));
            Element::Dependency.malformed(n, None, &problem)
        })?;
        match name_problem(key, &id) {
            Some(problem) => Err(Element::Dependency.malformed(n, None, &problem)),
            None => Ok(id),
        }
    };
    Ok(DependencySpec {
        after: end("after", raw.after)?,
        run: end("run", raw.run)?,
        condition: raw.condition.map_or(Condition::default(), |c| c.0),
    })
}

/// One element of an array of dependencies: `{"after", "run", "condition"}`.
pub(crate) struct DependencySpec {
    /// The id of the task that is waited for.
    pub(crate) after: String,
    /// The id of the task that waits.
    pub(crate) run: String,
    /// How `after` must end for `run` to run; as completed, if nothing is said.
    pub(crate) condition: Condition,
}
