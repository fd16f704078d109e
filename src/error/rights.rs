//! What the caller's role may not do.

use std::collections::BTreeSet;

use super::Refusal;
use super::text::shortened;

impl Refusal {
    /// `42501`: the role may do this with tasks of other actions only than one that the call names.
    pub(crate) fn other_action(action: &str, allowed: &BTreeSet<String>) -> Self {
        let what = format!("tasks of action \"{}\"", shortened(action));
        Refusal::not_allowed(&what, allowed, "this action")
    }

    /// `42501`: the same of a task that the call names. Of which action it is is none of the role's business.
    pub(crate) fn other_task(id: &str, allowed: &BTreeSet<String>) -> Self {
        Refusal::not_allowed(&format!("task \"{}\"", shortened(id)), allowed, "its action")
    }

    /// `42501`: the same of tasks that the call does not name.
    pub(crate) fn other_tasks(allowed: &BTreeSet<String>) -> Self {
        Refusal::not_allowed("tasks of other actions", allowed, "these")
    }

    fn not_allowed(what: &str, allowed: &BTreeSet<String>, missing: &str) -> Self {
        const SHOWN: usize = 10;
        let names: Vec<String> =
            allowed.iter().take(SHOWN).map(|name| format!("\"{}\"", shortened(name))).collect();
        let more = if allowed.len() > SHOWN {
            format!(" and {} more", allowed.len() - SHOWN)
        } else {
            String::new()
        };
        let detail = if names.is_empty() {
            "The role may do this with tasks of no action any more.".to_owned()
        } else {
            format!("The role may do this with tasks of {}{more}.", names.join(", "))
        };
        Refusal::new(
            "42501",
            format!("permission denied for {what}"),
            detail,
            &format!("Ask the administrator of the queue to name {missing}, too, when the part is granted."),
        )
    }

    /// `42501`: what the call does would concern tasks of any action, and the role's part is narrowed.
    pub(crate) fn concerns_all(what: &str, hint: &str) -> Self {
        Refusal::new(
            "42501",
            format!("permission denied to {what}"),
            "Tasks of any action may have this name, and the role's part is narrowed to some.".to_owned(),
            hint,
        )
    }

    /// `42501`: the right to call the function was taken back while the call slept.
    pub(crate) fn taken_back(function: &str) -> Self {
        Refusal::new(
            "42501",
            format!("permission denied for function {function}"),
            "The right was taken back while the call waited.".to_owned(),
            "Ask the administrator of the queue for the part again, or end the session.",
        )
    }

    /// `42501`: the role may insert tasks, and not do this with those there are.
    pub(crate) fn only_inserts(what: &str, hint: &str) -> Self {
        Refusal::new(
            "42501",
            format!("permission denied to {what}"),
            "The role may insert tasks, and do nothing with those there are.".to_owned(),
            hint,
        )
    }
}
