//! Which file uses which: the paths that a file names, followed to the files in which their items stand.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{File, code};

/// A use of one file by another: their modules, and the line of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    /// The module that uses the other, as [`File::name`].
    pub(super) from: String,
    /// The module in which the item stands that it uses, as [`File::name`].
    pub(super) to: String,
    /// The line of the use, from 1.
    pub(super) line: usize,
}

/// A path as a file names it.
struct Named {
    line: usize,
    /// The name that it has here, if it is imported.
    imported: Option<String>,
    /// It is imported for others only.
    handed_on: bool,
    path: Vec<String>,
}

/// The uses between the files, those of tests aside.
pub(super) fn uses(files: &[File]) -> Vec<Use> {
    let house = House::new(files);
    let mut found = Vec::new();
    for (name, paths) in &house.named {
        for named in paths.iter().filter(|named| !named.handed_on) {
            let Some(to) = house.follow(name, &named.path, 0) else { continue };
            // A file that imports the module that it is in itself means something in there, and that is named where it is used.
            let own = to.is_module && (to.module == *name || name.starts_with(&format!("{}::", to.module)));
            if !own && to.module != *name {
                found.push(Use { from: name.clone(), to: to.module, line: named.line });
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Where a path leads.
struct Found {
    module: String,
    /// To the module itself, and not to an item of it.
    is_module: bool,
}

struct House {
    modules: BTreeSet<String>,
    named: BTreeMap<String, Vec<Named>>,
    /// What each module imports, also from itself for others: the name, and the path of it.
    imports: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl House {
    fn new(files: &[File]) -> House {
        let mut house = House { modules: BTreeSet::new(), named: BTreeMap::new(), imports: BTreeMap::new() };
        for file in files.iter().filter(|file| !is_test(&file.name)) {
            house.modules.insert(file.name.clone());
            let paths = paths(&file.text);
            let imports = paths.iter().filter_map(|p| p.imported.clone().map(|name| (name, p.path.clone())));
            house.imports.insert(file.name.clone(), imports.collect());
            house.named.insert(file.name.clone(), paths);
        }
        house
    }

    /// The file in which the item of a path stands that `from` names, unless it is of another crate.
    fn follow(&self, from: &str, path: &[String], depth: usize) -> Option<Found> {
        let (mut module, mut rest) = self.begin(from, path, depth)?;
        loop {
            let Some(next) = rest.first() else { return Some(Found { module, is_module: true }) };
            let child = join(&module, next);
            if self.modules.contains(&child) {
                module = child;
                rest.remove(0);
                continue;
            }
            // Handed on from elsewhere, it may be a module again.
            return match self.imports.get(&module).and_then(|imports| imports.get(next)) {
                // A macro is handed on by its own name.
                Some(path) if depth < 9 && path != std::slice::from_ref(next) => {
                    let path: Vec<String> = path.iter().cloned().chain(rest.drain(1..)).collect();
                    self.follow(&module, &path, depth + 1)
                }
                _ => Some(Found { module, is_module: false }),
            };
        }
    }

    /// The module at which a path begins, and what is left of the path.
    fn begin(&self, from: &str, path: &[String], depth: usize) -> Option<(String, Vec<String>)> {
        let mut module = from.to_owned();
        let first = path.first()?;
        let mut rest = path.to_vec();
        match first.as_str() {
            "crate" => {
                module.clear();
                rest.remove(0);
            }
            "self" => drop(rest.remove(0)),
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    module = module.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_owned());
                    rest.remove(0);
                }
            }
            child if self.modules.contains(&join(from, child)) => {}
            alias => {
                let path = self.imports.get(from)?.get(alias).filter(|path| path[0] != alias && depth < 9)?;
                let path: Vec<String> = path.iter().cloned().chain(rest.drain(1..)).collect();
                return self.begin(from, &path, depth + 1);
            }
        }
        Some((module, rest))
    }
}

/// Files of tests are above all that they test.
fn is_test(name: &str) -> bool {
    name.ends_with("::tests") || name == "pg_test"
}

fn join(module: &str, child: &str) -> String {
    if module.is_empty() { child.to_owned() } else { format!("{module}::{child}") }
}

/// Words and signs of a text with their lines: names, `::`, and single characters.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let end = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    for (number, line) in code(&text[..end]) {
        let line = line.split("// ").next().unwrap_or_default();
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                c if c.is_alphanumeric() || c == '_' => {
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
                }
                ':' if rest.starts_with("::") => 2,
                c => c.len_utf8(),
            };
            if !first.is_whitespace() {
                found.push((number, rest[..length].to_owned()));
            }
            rest = &rest[length..];
        }
    }
    found
}

/// The paths that a text names: imported ones, and others of two segments or more.
fn paths(text: &str) -> Vec<Named> {
    let words = words(text);
    let word = |at: usize| words.get(at).map_or("", |(_, word)| word.as_str());
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let line = words[at].0;
        // Not the word in a text.
        if word(at) == "use" && (at == 0 || [";", "{", "}", "]", ")", "pub"].contains(&word(at - 1))) {
            let (begin, first) = (at, found.len());
            at = imported(&words, at + 1, &[], &mut found);
            if begin > 0 && [")", "pub"].contains(&word(begin - 1)) {
                let used = |name| {
                    let elsewhere = (0..begin).chain(at..words.len());
                    elsewhere.into_iter().any(|i| word(i) == name && (i == 0 || word(i - 1) != "mod"))
                };
                for named in &mut found[first..] {
                    named.handed_on = !named.imported.as_ref().is_some_and(used);
                }
            }
        } else if is_name(word(at)) && word(at + 1) == "::" {
            let mut path = vec![word(at).to_owned()];
            while word(at + 1) == "::" && is_name(word(at + 2)) {
                path.push(word(at + 2).to_owned());
                at += 2;
            }
            found.push(Named { line, imported: None, handed_on: false, path });
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads what stands behind `use`, or in its braces, from here on. Returns where it ends.
fn imported(words: &[(usize, String)], from: usize, before: &[String], found: &mut Vec<Named>) -> usize {
    let word = |at: usize| words.get(at).map_or("", |(_, word)| word.as_str());
    let mut at = from;
    let mut path = before.to_vec();
    while at < words.len() {
        match word(at) {
            "{" => {
                at += 1;
                while at < words.len() && !["}", ";"].contains(&word(at)) {
                    at = imported(words, at, &path, found);
                    at += usize::from(word(at) == ",");
                }
                at += 1;
                return at;
            }
            "," | ";" | "}" | "as" => break,
            "::" => {}
            part => path.push(part.to_owned()),
        }
        at += 1;
    }
    let line = words[at - 1].0;
    if path.last().is_some_and(|part| part == "self") {
        path.pop();
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if word(at) == "as" {
        name = word(at + 1).to_owned();
        at += 2;
    }
    found.push(Named { line, imported: Some(name), handed_on: false, path });
    at
}

#[test]
fn uses_are_followed_to_where_items_stand() {
    let file = |name: &str, text: &str| File {
        module: name.split("::").next().unwrap_or_default().to_owned(),
        name: name.to_owned(),
        path: name.into(),
        text: text.to_owned(),
    };
    let found = uses(&[
        file("a", "mod b;\nmod c;\npub(crate) use b::{Item, item};\npub(super) use c as other;"),
        file("a::b", "use super::c;\nfn item() { c::f() }\nmacro_rules! m { () => {} }\npub(crate) use m;"),
        file("a::c", "// use super::b;\nuse crate::z::g;\nfn f() { g() }"),
        file("z", "use crate::a::{Item as I, other::f, b::m};\nfn g() { crate::a::item(); }"),
    ]);
    let found: Vec<(&str, &str, usize)> =
        found.iter().map(|one| (one.from.as_str(), one.to.as_str(), one.line)).collect();
    assert_eq!(
        found,
        [
            ("a::b", "a::c", 1),
            ("a::b", "a::c", 2),
            ("a::c", "z", 2),
            ("z", "a::b", 1),
            ("z", "a::b", 2),
            ("z", "a::c", 1)
        ]
    );
}
