//! Texts of others in messages.

/// What is wrong with something, as a sentence.
pub(crate) fn sentence(what: &str) -> String {
    let what = shortened(what);
    let mut letters = what.chars();
    letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
}

/// A text from the caller, short enough for a message: 300 characters of it at most.
pub(crate) fn shortened(text: &str) -> String {
    first_of(text, 300)
}

/// So many characters of it.
pub(super) fn first_of(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
