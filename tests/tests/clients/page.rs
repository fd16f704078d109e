//! What docs/clients.md shows is what the tests run: each block of code below a comment with the name of a file is a
//! part of that file, word for word.

use std::fs;
use std::path::Path;

#[test]
fn the_page_shows_the_programs_that_are_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/clients.md")).unwrap();
    let mut shown = 0;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let file = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let Some(file) = file else {
            assert!(!line.starts_with("```") || harmless(line), "a block of code from nowhere: {line}");
            continue;
        };
        assert!(lines.next().unwrap().starts_with("```"), "a block of code follows {line}");
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let program = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let program: Vec<&str> = program.lines().collect();
        assert!(block.len() > 3, "{file}: {block:?}");
        assert!(
            program.windows(block.len()).any(|window| window == block),
            "docs/clients.md shows what is not in {file}:\n{}",
            block.join("\n")
        );
        shown += 1;
    }
    assert!(shown >= 12, "only {shown} blocks");
}

#[test]
fn the_tested_programs_are_compiled_as_the_page_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/clients.md")).unwrap();
    let setup = fs::read_to_string(root.join("examples/clients/setup.sh")).unwrap();
    for compiler in ["go build ", "javac "] {
        let line = page.lines().find(|line| line.contains(compiler)).expect("a command that compiles");
        let command = line.rsplit("&& ").next().unwrap();
        assert!(setup.contains(command), "examples/clients/setup.sh does something else than {command}");
    }
}

/// Settings, commands, and the end of such a block.
fn harmless(fence: &str) -> bool {
    ["```ini", "```sh", "```"].contains(&fence)
}
