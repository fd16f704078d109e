//! Arguments that take one of a few words.

use crate::error::{Refusal, Result, required};
use crate::input::near;

/// The word that an argument is. Anything else is refused, with the words that there are and, if there is such, the one that is
/// probably meant.
pub(crate) fn word<'w>(argument: &str, value: Option<&str>, words: &[&'w str]) -> Result<&'w str> {
    let value = required(argument, value)?;
    let known = words.iter().copied().find(|word| *word == value);
    known.ok_or_else(|| Refusal::no_such_word(argument, value, words, near(value, words)))
}

/// The words that the elements of an argument are.
pub(crate) fn words<'w>(
    argument: &str,
    values: Vec<Option<String>>,
    words: &[&'w str],
) -> Result<Vec<&'w str>> {
    values.into_iter().map(|value| word(argument, value.as_deref(), words)).collect()
}

/// The same for an argument whose elements may be NULL, and mean nothing then.
pub(crate) fn given_words<'w>(
    argument: &str,
    mut values: Vec<Option<String>>,
    words: &[&'w str],
) -> Result<Vec<&'w str>> {
    values.retain(Option::is_some);
    self::words(argument, values, words)
}
