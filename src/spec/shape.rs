//! What JSON of each kind has to look like, and in plain words what is wrong with some that does not.
//!
//! serde reads what is well-formed, and is fast. What it refuses is read a second time here, without haste, to
//! name the key and what stands there: serde's own words are for programmers of Rust.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::meant::{meant, near};

/// What a JSON value may be. A JSON null stands for an absent key and fits everything.
#[derive(Debug)]
pub(crate) enum Shape {
    Any,
    Boolean,
    /// An integer of 32 bits.
    Integer,
    List(&'static Shape),
    Number,
    Object(&'static Object),
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// Any of the shapes; the text says what they are together.
    Either(&'static str, &'static [Shape]),
    Text,
    /// A string of which there is more to say: what it is, with its article.
    Written(&'static str),
}

/// An object and its keys.
#[derive(Debug)]
pub(crate) struct Object {
    /// What it is, with its article.
    pub(crate) what: &'static str,
    pub(crate) keys: &'static [(&'static str, Shape)],
    /// Those that may not be absent.
    pub(crate) required: &'static [&'static str],
    /// Names that people give to some of the keys.
    pub(crate) otherwise: &'static [(&'static str, &'static str)],
}

impl Object {
    /// Its keys, for a hint.
    pub(crate) fn names(&self) -> String {
        self.keys.iter().map(|(key, _)| format!("\"{key}\"")).collect::<Vec<_>>().join(", ")
    }

    /// Reads an object; the error says what is wrong with it.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'static self, json: &'a str) -> Result<T, String> {
        // serde takes an array for an object as well, by the places of the keys.
        if json.starts_with('{')
            && let Ok(value) = serde_json::from_str(json)
        {
            return Ok(value);
        }
        Err(self.problem(json).unwrap_or_else(|| "it cannot be read".to_owned()))
    }

    fn problem(&'static self, json: &str) -> Option<String> {
        if !json.starts_with('{') {
            return Some(format!("it is {}, not {}", kind(json), self.what));
        }
        let values: BTreeMap<String, &RawValue> = match serde_json::from_str(json) {
            Ok(values) => values,
            Err(_) => return Some("it cannot be read".to_owned()),
        };
        let unknown = values.keys().find(|key| self.keys.iter().all(|(known, _)| known != key));
        if let Some(key) = unknown {
            let known: Vec<&str> = self.keys.iter().map(|(known, _)| *known).collect();
            let meant = meant(key, &known, self.otherwise).unwrap_or_default();
            return Some(format!("unknown key \"{key}\"{meant}"));
        }
        for (key, shape) in self.keys {
            let value = values.get(*key).map_or("null", |value| value.get());
            if value == "null" {
                if self.required.contains(key) {
                    return Some(format!("key \"{key}\" is missing"));
                }
            } else if let Some(problem) = shape.problem(value) {
                return Some(format!("key \"{key}\"{problem}"));
            }
        }
        None
    }
}

impl Shape {
    /// What is wrong with a value that is not null, to be put behind its name.
    fn problem(&self, json: &str) -> Option<String> {
        let wrong = |wanted: &str| Some(format!(" is {}, not {wanted}", kind(json)));
        match self {
            Shape::Any => None,
            Shape::Boolean if matches!(json, "true" | "false") => None,
            Shape::Boolean => wrong("true or false"),
            Shape::Integer if json.parse::<i32>().is_ok() => None,
            Shape::Integer if kind(json) == "a number" => {
                Some(format!(" is {json}, not an integer from {} to {}", i32::MIN, i32::MAX))
            }
            Shape::Integer => wrong("an integer"),
            Shape::Number if kind(json) == "a number" => None,
            Shape::Number => wrong("a number"),
            Shape::Text | Shape::Written(_) if json.starts_with('"') => None,
            Shape::Text => wrong("a string"),
            Shape::Written(what) => wrong(what),
            Shape::OneOf(names) => match serde_json::from_str::<String>(json) {
                Ok(name) if names.contains(&name.as_str()) => None,
                Ok(name) => {
                    let meant = near(&name, names).map(|n| format!(": \"{n}\" is probably meant"));
                    let names = names.join(", ");
                    Some(format!(" is \"{name}\", not one of {names}{}", meant.unwrap_or_default()))
                }
                Err(_) => wrong(&format!("one of the strings {}", names.join(", "))),
            },
            Shape::List(entry) => {
                let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(json) else {
                    return wrong("an array");
                };
                entries.iter().enumerate().find_map(|(i, value)| {
                    let value = value.get();
                    // An entry of a list cannot be absent.
                    let problem =
                        if value == "null" { Some(" is null".to_owned()) } else { entry.problem(value) };
                    Some(format!(", entry {},{}", i + 1, problem?).replace(",:", ":"))
                })
            }
            Shape::Object(object) if json.starts_with('{') => {
                object.problem(json).map(|problem| format!(": {problem}"))
            }
            Shape::Object(object) => wrong(object.what),
            Shape::Either(what, shapes) => {
                // The one of the same kind tells more than that none fits.
                let problems: Vec<Option<String>> = shapes.iter().map(|shape| shape.problem(json)).collect();
                if problems.iter().any(Option::is_none) {
                    return None;
                }
                let inside = problems.into_iter().flatten().find(|problem| problem.starts_with(": "));
                inside.or_else(|| wrong(what))
            }
        }
    }
}

/// What a JSON text is, with its article.
pub(crate) fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static INNER: Object = Object {
        what: "an inner object",
        keys: &[("id", Shape::Text), ("how", Shape::OneOf(&["this", "that"]))],
        required: &["id"],
        otherwise: &[],
    };
    static OUTER: Object = Object {
        what: "an object with the keys of a test",
        keys: &[
            ("number", Shape::Integer),
            ("flag", Shape::Boolean),
            ("part", Shape::Number),
            ("wait", Shape::Written("a time as a string")),
            ("body", Shape::Any),
            (
                "list",
                Shape::List(&Shape::Either("an id or an object", &[Shape::Text, Shape::Object(&INNER)])),
            ),
            ("inner", Shape::Object(&INNER)),
        ],
        required: &[],
        otherwise: &[("count", "number")],
    };

    #[test]
    fn what_is_wrong_is_said_with_the_key() {
        for (json, problem) in [
            (r#"[1, true]"#, "it is an array, not an object with the keys of a test"),
            (r#""text""#, "it is a string, not an object with the keys of a test"),
            (r#"{"number": "5"}"#, "key \"number\" is a string, not an integer"),
            (r#"{"number": 1.5}"#, "key \"number\" is 1.5, not an integer from -2147483648 to 2147483647"),
            (r#"{"flag": 1}"#, "key \"flag\" is a number, not true or false"),
            (r#"{"part": "half"}"#, "key \"part\" is a string, not a number"),
            (r#"{"wait": 5}"#, "key \"wait\" is a number, not a time as a string"),
            (r#"{"list": "a"}"#, "key \"list\" is a string, not an array"),
            (r#"{"list": ["a", 5]}"#, "key \"list\", entry 2, is a number, not an id or an object"),
            (r#"{"list": [null]}"#, "key \"list\", entry 1, is null"),
            (r#"{"list": [{"how": "this"}]}"#, "key \"list\", entry 1: key \"id\" is missing"),
            (
                r#"{"list": [{"id": "a", "how": "so"}]}"#,
                "key \"list\", entry 1: key \"how\" is \"so\", not one of this, that",
            ),
            (r#"{"inner": {"id": 5}}"#, "key \"inner\": key \"id\" is a number, not a string"),
            (r#"{"inner": []}"#, "key \"inner\" is an array, not an inner object"),
            (r#"{"count": 1}"#, "unknown key \"count\": \"number\" is probably meant"),
            (
                r#"{"inner": {"id": "a", "hwo": 1}}"#,
                "key \"inner\": unknown key \"hwo\": \"how\" is probably meant",
            ),
            (r#"{"entirely": 1}"#, "unknown key \"entirely\""),
        ] {
            assert_eq!(OUTER.problem(json).as_deref(), Some(problem), "{json}");
        }
    }

    #[test]
    fn nothing_is_wrong_with_what_fits() {
        for json in [
            "{}",
            r#"{"number": null, "flag": null, "list": null, "inner": null}"#,
            r#"{"number": -5, "flag": false, "part": 1e-3, "wait": "5", "body": [[]], "inner": {"id": "a", "how": null}}"#,
            r#"{"list": ["a", {"id": "a", "how": "that"}]}"#,
        ] {
            assert_eq!(OUTER.problem(json), None, "{json}");
        }
    }
}
