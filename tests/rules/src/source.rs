//! The files of the source as the rules see them.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the source: its room, its path, its lines.
pub(super) struct File {
    /// The folder or file of `src` that it is in.
    pub(super) module: String,
    /// Its own path as a module, from the crate on: `store::live::row`; of a `mod.rs` that of its folder.
    pub(super) name: String,
    /// Its path below `src`.
    pub(super) path: PathBuf,
    /// All that is in it.
    pub(super) text: String,
}

/// All files of `src`, without the other name of lib.rs. Those of tests inside the server are elsewhere.
pub(super) fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the source is there") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let inside = path.strip_prefix(&root).expect("it is below the root").to_path_buf();
                let text = fs::read_to_string(&path).expect("a file can be read");
                let name = name_of(&inside);
                let module = name.split("::").next().unwrap_or_default().to_owned();
                found.push(File { module, name, path: inside, text });
            }
        }
    }
    // Another name of lib.rs, see Cargo.toml.
    found.retain(|file| file.module != "with_tests");
    found
}

/// The module that a file is.
fn name_of(path: &Path) -> String {
    let mut parts: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|part| part == "mod") {
        parts.pop();
    }
    parts.join("::")
}

/// The lines of code with their numbers: no comments.
pub(super) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}
