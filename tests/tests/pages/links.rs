//! A reader finds every page, and no link leads nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{ROOT, pages_below, read};

const INDEX: &str = "docs/README.md";

/// Where a page links to, as paths from the repository's root, with the anchor if there is one. Links to other sites, and
/// what looks like a link in a block of code, are left out.
fn links(page: &str) -> Vec<(String, Option<String>)> {
    let folder = Path::new(page).parent().unwrap();
    let mut links = Vec::new();
    for target in prose(&read(page)).split("](").skip(1) {
        let target = target.split(')').next().unwrap();
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) =
            target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
        let path = if path.is_empty() { page.to_owned() } else { normal(&folder.join(path)) };
        links.push((path, anchor.map(str::to_owned)));
    }
    links
}

/// The text without blocks of code.
fn prose(page: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in page.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if !inside {
            prose.extend([line, "\n"]);
        }
    }
    prose
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.to_str().unwrap().split('/') {
        match part {
            "" | "." => {}
            ".." => {
                assert!(parts.pop().is_some(), "{} leads out of the repository", path.display());
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a page, as GitHub makes them of its headings: small letters, spaces as hyphens, no other signs; the second
/// of a name has a number.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut times = BTreeMap::<String, usize>::new();
    let mut anchors = BTreeSet::new();
    for line in prose(&read(page)).lines().filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim();
        let sign = |c: char| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        };
        // A link in a heading counts with its text.
        let heading = heading.split("](").next().unwrap();
        let name: String = heading.to_lowercase().chars().filter_map(sign).collect();
        let n = times.entry(name.clone()).or_default();
        anchors.insert(if *n == 0 { name } else { format!("{name}-{n}") });
        *n += 1;
    }
    anchors
}

/// The pages of the repository that a reader may read.
fn pages() -> Vec<String> {
    let root = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(str::to_owned);
    [root.to_vec(), pages_below("docs"), pages_below("examples")].concat()
}

#[test]
fn every_link_leads_to_a_page_and_a_heading_that_are_there() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for page in pages() {
        for (target, anchor) in links(&page) {
            seen += 1;
            if !Path::new(ROOT).join(&target).exists() {
                broken.push(format!("{page}: there is no {target}"));
            } else if let Some(anchor) = anchor.filter(|anchor| !anchors(&target).contains(anchor)) {
                broken.push(format!("{page}: {target} has no #{anchor}"));
            }
        }
    }
    assert!(seen > 100, "only {seen} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The form of llmstxt.org: a title, a summary, and lists of links with what each is about.
#[test]
fn the_list_for_language_models_has_its_form_and_leads_to_pages() {
    let list = "docs/llms.txt";
    let text = read(list);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines[0].starts_with("# ") && lines[1].starts_with("> "), "a title and a summary: {lines:?}");
    let (first, _) = text.split_once("\n## ").expect("sections");
    assert_eq!(text.matches("\n# ").count(), 0, "one title");
    assert!(!first.contains("]("), "links stand in sections");
    for line in &lines[3..] {
        assert!(line.starts_with("## ") || line.starts_with("- ["), "a section, or a link: {line}");
    }
    let links = links(list);
    assert!(links.len() >= 20, "{links:?}");
    for (page, _) in links {
        assert!(page.ends_with(".md") && Path::new(ROOT).join(&page).exists(), "there is no {page}");
    }
}

#[test]
fn every_page_is_two_clicks_from_the_index() {
    assert!(links("README.md").iter().any(|(page, _)| page == INDEX), "README.md links to the index");
    let mut found = BTreeSet::from([INDEX.to_owned()]);
    for _ in 0..2 {
        let next: Vec<String> = found
            .iter()
            .filter(|page| page.ends_with(".md"))
            .flat_map(|page| links(page))
            .map(|link| link.0)
            .collect();
        found.extend(next);
    }
    let lost: Vec<String> = pages_below("docs").into_iter().filter(|page| !found.contains(page)).collect();
    assert!(lost.is_empty(), "no link leads to {lost:?}");
}
