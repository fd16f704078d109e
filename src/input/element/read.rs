//! Reading an element with serde.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Result;
use crate::input::kind::Element;

/// A string as it is, anything else as its JSON text.
pub(super) fn text_of(value: &RawValue) -> String {
    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

/// Reads an element; what is refused is named by its place, and by its id where that can be read.
pub(super) fn read<'a, T: Deserialize<'a>>(
    kind: Element,
    n: impl Into<Option<usize>>,
    json: &'a str,
) -> Result<T> {
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

/// How a body that is given as JSON is stored; `None` for JSON null.
pub(in crate::input) fn body_of(json: &str) -> Option<String> {
    serde_json::from_str::<Option<&RawValue>>(json).ok().flatten().map(text_of)
}
