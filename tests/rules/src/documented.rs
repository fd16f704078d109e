//! What other modules can use has a doc line: an item says what it is or does, a field what it holds.

use super::source::files;

/// Whether a line makes an item or a field that other modules can use. What is only handed on has its doc line where it
/// stands; a module says what it is in its file.
fn is_visible(line: &str) -> bool {
    let Some(behind) = line.trim_start().strip_prefix("pub") else { return false };
    let behind = match behind.strip_prefix('(') {
        Some(inside) => inside.split_once(')').map_or("", |(_, behind)| behind),
        None => behind,
    };
    // Else it is a name that begins so.
    behind.strip_prefix(' ').is_some_and(|what| !what.starts_with("use ") && !what.starts_with("mod "))
}

/// Whether what comes after these lines has a doc line. Attributes and comments may stand in between.
fn is_documented(before: &[&str]) -> bool {
    let mut in_attribute = false;
    for line in before.iter().rev().map(|line| line.trim()) {
        if line.starts_with("///") {
            return true;
        }
        if line.starts_with("#[") || line == ")]" {
            in_attribute = line == ")]";
        } else if !in_attribute && !line.starts_with("//") {
            return false;
        }
    }
    false
}

/// The numbers of the lines that make something visible, and of those among them without a doc line.
fn look(text: &str) -> (Vec<usize>, Vec<usize>) {
    let lines: Vec<&str> = text.lines().collect();
    let visible: Vec<usize> = (0..lines.len()).filter(|at| is_visible(lines[*at])).collect();
    let bare = visible.iter().copied().filter(|at| !is_documented(&lines[..*at]));
    (visible.iter().map(|at| at + 1).collect(), bare.map(|at| at + 1).collect())
}

#[test]
fn what_others_can_use_has_a_doc_line() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for file in files() {
        let (visible, bare) = look(&file.text);
        looked_at += visible.len();
        let lines: Vec<&str> = file.text.lines().collect();
        wrong.extend(
            bare.iter()
                .map(|number| format!("src/{}:{number}: {}", file.path.display(), lines[number - 1].trim())),
        );
    }
    assert!(wrong.is_empty(), "these say nothing of what they are:\n{}", wrong.join("\n"));
    assert!(looked_at > 2_000, "only {looked_at} items and fields were found");
}

#[test]
fn missing_doc_lines_are_seen() {
    let text = [
        "pub(crate) mod a;",
        "pub(super) use a::b;",
        "/// A thing.",
        "#[derive(Clone)]",
        "pub(crate) struct Thing {",
        "    pub(super) bare: i32,",
        "    /// Of it.",
        "    #[allow(",
        "        dead_code,",
        "    )]",
        "    // For a reason.",
        "    pub(in crate::a) told: i32,",
        "    private: i32,",
        "    public: i32,",
        "}",
        "",
        "pub fn also_bare() {}",
    ];
    assert_eq!(look(&text.join("\n")), (vec![5, 6, 12, 17], vec![6, 17]));
}
