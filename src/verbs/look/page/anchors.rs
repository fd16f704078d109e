//! Links from one part of the page to another.

use std::collections::HashMap;

use super::html::short;

/// How many characters of a name a table shows at most.
pub(super) const NAME: usize = 80;

/// Where actions and tasks stand that other parts name.
#[derive(Default)]
pub(super) struct Anchors {
    /// The place of an action in the table of actions.
    pub(super) actions: HashMap<String, usize>,
    /// The number of a task in the graph.
    pub(super) tasks: HashMap<String, i64>,
}

impl Anchors {
    /// A task's id, with a link to its box if the graph has it.
    pub(super) fn task(&self, id: &str) -> String {
        link("t", self.tasks.get(id), id)
    }

    /// The name of an action, with a link to its row.
    pub(super) fn action(&self, name: &str) -> String {
        link("a", self.actions.get(name), name)
    }
}

fn link<N: std::fmt::Display>(kind: &str, number: Option<N>, name: &str) -> String {
    match number {
        Some(number) => format!("<a href=\"#{kind}{number}\">{}</a>", short(name, NAME)),
        None => short(name, NAME),
    }
}

#[cfg(test)]
mod tests {
    use super::Anchors;

    #[test]
    fn what_is_named_elsewhere_is_linked() {
        let mut anchors = Anchors::default();
        anchors.actions.insert("<x>".to_owned(), 3);
        anchors.tasks.insert("<x>".to_owned(), 9);
        assert_eq!(anchors.action("<x>"), "<a href=\"#a3\">&lt;x&gt;</a>");
        assert_eq!(anchors.task("<x>"), "<a href=\"#t9\">&lt;x&gt;</a>");
        assert_eq!(anchors.task("<y>"), "&lt;y&gt;");
    }
}
