//! Inside a folder, too, uses go one way.
//!
//! A folder's entries are its files, `mod.rs` among them, and its sub-folders. There has to be an order of them from the
//! bottom up in which each uses only those below it: no circles. The order is
//! not written down; it is enough that there is one. A use is a path that leads to a file, through whatever hands its item on:
//! a `pub use` in a `mod.rs` is none.
//!
//! What is moved when this fails: that which both need goes to a file below both.

use std::collections::{BTreeMap, BTreeSet};

use super::source::files;
use super::uses::{Use, uses};

/// What uses what, and one place of that.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// Uses within a room: by both files.
fn between_files(uses: &[Use]) -> Graph {
    let mut graph = Graph::new();
    for one in uses.iter().filter(|one| room(&one.from) == room(&one.to)) {
        add(&mut graph, &one.from, &one.to, one);
    }
    graph
}

/// Uses within a room, by folder: what two files have in common, and in which of its entries each is.
fn between_entries(uses: &[Use]) -> BTreeMap<String, Graph> {
    let mut folders: BTreeMap<String, Graph> = BTreeMap::new();
    for one in uses.iter().filter(|one| room(&one.from) == room(&one.to)) {
        let (from, to): (Vec<&str>, Vec<&str>) =
            (one.from.split("::").collect(), one.to.split("::").collect());
        let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let entry = |path: &[&str]| path.get(same).map_or("mod", |name| *name).to_owned();
        add(folders.entry(from[..same].join("::")).or_default(), &entry(&from), &entry(&to), one);
    }
    folders
}

fn add(graph: &mut Graph, from: &str, to: &str, one: &Use) {
    let place = format!("{} uses {} in line {}", one.from, one.to, one.line);
    graph.entry(from.to_owned()).or_default().entry(to.to_owned()).or_insert(place);
}

fn room(name: &str) -> &str {
    name.split("::").next().unwrap_or_default()
}

/// A circle, as the uses that it is made of, if there is one.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    // What uses nothing of the rest is not in a circle: it is taken away until there is no such thing.
    let mut rest: BTreeSet<&str> = graph.keys().map(String::as_str).collect();
    loop {
        let before = rest.len();
        let all = rest.clone();
        rest.retain(|name| graph[*name].keys().any(|to| all.contains(to.as_str())));
        if rest.len() == before {
            break;
        }
    }
    // From anywhere in the rest a walk comes back to where it has been.
    let mut path: Vec<&str> = vec![rest.first()?];
    loop {
        let next = graph[*path.last()?].keys().find(|to| rest.contains(to.as_str()))?;
        if let Some(begin) = path.iter().position(|name| name == next) {
            path.drain(..begin);
            path.push(next);
            return Some(path.windows(2).map(|pair| graph[pair[0]][pair[1]].clone()).collect());
        }
        path.push(next);
    }
}

#[test]
fn files_of_a_folder_use_one_another_in_one_direction() {
    let uses = uses(&files());
    let graph = between_files(&uses);
    let looked_at: usize = graph.values().map(BTreeMap::len).sum();
    assert_eq!(circle(&graph), None, "these files use one another in a circle");
    assert!(looked_at > 400, "only {looked_at} uses between files were found");
}

#[test]
fn entries_of_a_folder_use_one_another_in_one_direction() {
    let uses = uses(&files());
    let folders = between_entries(&uses);
    for (folder, graph) in &folders {
        assert_eq!(circle(graph), None, "these entries of src/{folder} use one another in a circle");
    }
    assert!(folders.len() > 25, "only {} folders were found", folders.len());
}

#[test]
fn circles_are_seen() {
    let one = |from: &str, to: &str| Use { from: from.to_owned(), to: to.to_owned(), line: 1 };
    let straight = [one("a::b", "a::c"), one("a::b::x", "a::c"), one("a::c", "a"), one("b", "a::b")];
    assert_eq!(circle(&between_files(&straight)), None);
    let back = [one("a::b", "a::c"), one("a::c", "a::d"), one("a::d", "a::b")];
    assert_eq!(circle(&between_files(&back)).map(|circle| circle.len()), Some(3));
    // Up from a sub-folder: no circle of files, but one of entries.
    let up = [one("a::b", "a::c"), one("a::c", "a::b::x")];
    assert_eq!(circle(&between_files(&up)), None);
    assert_eq!(circle(&between_entries(&up)["a"]).map(|circle| circle.len()), Some(2));
}
