//! What JSON of each kind has to look like, and in plain words what is wrong with some that does not.
//!
//! serde reads what is well-formed, and is fast. What it refuses is read a second time here, without haste, to
//! name the key and what stands there: serde's own words are for programmers of Rust.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::meant::{meant, near};

/// What a JSON value may be. A JSON null under a key stands for an absent key.
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

/// What is wrong with a value, as a clause, and what can be done about it, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The clause that says what is wrong; it follows the name of what it is about.
    pub(crate) what: String,
    /// The sentence that says what can be done.
    pub(crate) hint: String,
}

impl Problem {
    /// A problem in these words.
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Problem { what: what.into(), hint: hint.into() }
    }

    /// The same of a part that has this name.
    pub(crate) fn within(self, name: &str) -> Self {
        Problem { what: format!("{name}{}", self.what), ..self }
    }
}

/// An object and its keys.
#[derive(Debug)]
pub(crate) struct Object {
    /// What has these keys, for a hint.
    pub(crate) name: &'static str,
    /// What it is, with its article.
    pub(crate) what: &'static str,
    /// Its keys, each with what the value may be.
    pub(crate) keys: &'static [(&'static str, Shape)],
    /// Those that may not be absent.
    pub(crate) required: &'static [&'static str],
}

impl Object {
    /// A problem with its keys.
    pub(crate) fn misses(&self, what: impl Into<String>) -> Problem {
        let keys = self.keys.iter().map(|(key, _)| format!("\"{key}\"")).collect::<Vec<_>>().join(", ");
        Problem::new(what, format!("The keys of {} are {keys}.", self.name))
    }

    /// Reads an object; the error says what is wrong with it.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'static self, json: &'a str) -> Result<T, Problem> {
        let json = json.trim();
        // serde takes an array for an object as well, by the places of the keys.
        if json.starts_with('{')
            && let Ok(value) = serde_json::from_str(json)
        {
            return Ok(value);
        }
        // A setting may be any text.
        if serde_json::from_str::<&RawValue>(json).is_err() {
            return Err(self.misses("it is not JSON"));
        }
        Err(self.problem(json).unwrap_or_else(|| self.misses("it cannot be read")))
    }

    fn problem(&'static self, json: &str) -> Option<Problem> {
        if !json.starts_with('{') {
            return Some(self.misses(format!("it is {}, not {}", kind(json), self.what)));
        }
        let values: BTreeMap<String, &RawValue> = match serde_json::from_str(json) {
            Ok(values) => values,
            Err(_) => return Some(self.misses("it cannot be read")),
        };
        let unknown = values.keys().find(|key| self.keys.iter().all(|(known, _)| known != key));
        if let Some(key) = unknown {
            let known: Vec<&str> = self.keys.iter().map(|(known, _)| *known).collect();
            let meant = meant(key, &known).unwrap_or_default();
            return Some(self.misses(format!("unknown key \"{key}\"{meant}")));
        }
        for (key, shape) in self.keys {
            let value = values.get(*key).map_or("null", |value| value.get());
            if value == "null" {
                if self.required.contains(key) {
                    return Some(self.misses(format!("key \"{key}\" is missing")));
                }
            } else if let Some(problem) = shape.problem(value) {
                return Some(problem.within(&format!("key \"{key}\"")));
            }
        }
        None
    }
}

impl Shape {
    /// What is wrong with a value that is not null, to be put behind its name.
    fn problem(&self, json: &str) -> Option<Problem> {
        let wrong = |wanted: &str| {
            Some(Problem::new(format!(" is {}, not {wanted}", kind(json)), format!("Give {wanted}.")))
        };
        match self {
            Shape::Any => None,
            Shape::Boolean if matches!(json, "true" | "false") => None,
            Shape::Boolean => wrong("true or false"),
            Shape::Integer if json.parse::<i32>().is_ok() => None,
            Shape::Integer if kind(json) == "a number" => {
                let wanted = format!("an integer from {} to {}", i32::MIN, i32::MAX);
                Some(Problem::new(format!(" is {json}, not {wanted}"), format!("Give {wanted}.")))
            }
            Shape::Integer => wrong("an integer"),
            Shape::Number if kind(json) == "a number" => None,
            Shape::Number => wrong("a number"),
            Shape::Text | Shape::Written(_) if json.starts_with('"') => None,
            Shape::Text => wrong("a string"),
            Shape::Written(what) => wrong(what),
            Shape::OneOf(names) => match serde_json::from_str::<String>(json) {
                Ok(name) if names.contains(&name.as_str()) => None,
                Ok(name) => Some(not_one_of(" is ", &name, names)),
                Err(_) => wrong(&format!("one of the strings {}", names.join(", "))),
            },
            Shape::List(entry) => {
                let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(json) else {
                    return wrong("an array");
                };
                entries.iter().enumerate().find_map(|(i, value)| {
                    let value = value.get();
                    // An entry of a list cannot be absent.
                    let problem = match value {
                        "null" => Some(Problem::new(" is null", "Leave such an entry out.")),
                        value => entry.problem(value),
                    }?;
                    let comma = if problem.what.starts_with(':') { "" } else { "," };
                    Some(problem.within(&format!(", entry {}{comma}", i + 1)))
                })
            }
            Shape::Object(object) if json.starts_with('{') => {
                object.problem(json).map(|problem| problem.within(": "))
            }
            Shape::Object(object) => wrong(object.what),
            Shape::Either(what, shapes) => {
                // The one of the same kind tells more than that none fits.
                let problems: Vec<Option<Problem>> = shapes.iter().map(|shape| shape.problem(json)).collect();
                if problems.iter().any(Option::is_none) {
                    return None;
                }
                let inside = problems.into_iter().flatten().find(|problem| problem.what.starts_with(": "));
                inside.or_else(|| wrong(what))
            }
        }
    }
}

/// A word that is none of those there are: what stands before it, and the one that is probably meant.
pub(crate) fn not_one_of(before: &str, word: &str, words: &[&str]) -> Problem {
    let meant = near(word, words).map(|n| format!(": \"{n}\" is probably meant")).unwrap_or_default();
    let words = words.join(", ");
    Problem::new(
        format!("{before}\"{word}\", not one of {words}{meant}"),
        format!("Use one of these words: {words}."),
    )
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
