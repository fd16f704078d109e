//! A strict reader of the OpenMetrics text format: what the specification forbids makes a test fail.

use std::collections::{BTreeMap, BTreeSet};

/// The value of each series, by its name and labels as in `name{a="x",b="y"}`; labels sorted, values unescaped.
pub type Series = BTreeMap<String, f64>;

/// Reads a whole exposition; panics where it is not well-formed.
pub fn read(text: &str) -> Series {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    assert!(!body.contains("# EOF"), "# EOF comes once");
    let mut series = Series::new();
    let mut families = BTreeSet::new();
    let mut family: Option<Family> = None;
    for line in body.split_terminator('\n') {
        assert!(!line.is_empty(), "no empty lines");
        assert!(!line.starts_with(' ') && !line.ends_with(' '), "no blanks around a line: {line:?}");
        if let Some(words) = line.strip_prefix("# ") {
            let mut words = words.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("three words: {line}"));
            let (keyword, name, rest) = (word(), word(), word());
            if family.as_ref().is_none_or(|f| f.name != name) {
                assert!(families.insert(name.to_owned()), "the family {name} is in one piece");
                assert!(is_name(name), "{name}");
                family = Some(Family { name: name.to_owned(), ..Family::default() });
            }
            let family = family.as_mut().unwrap();
            assert!(!family.has_samples, "what is said of {name} comes before its samples");
            let said = match keyword {
                "HELP" => &mut family.help,
                "TYPE" => &mut family.kind,
                "UNIT" => &mut family.unit,
                _ => panic!("unknown keyword: {line}"),
            };
            assert!(said.replace(rest.to_owned()).is_none(), "said once: {line}");
        } else {
            assert!(!line.starts_with('#'), "a comment: {line}");
            let family = family.as_mut().expect("a family before its samples");
            family.has_samples = true;
            let (key, value) = sample(line, family);
            assert!(series.insert(key, value).is_none(), "each series comes once: {line}");
        }
    }
    series
}

#[derive(Default)]
struct Family {
    name: String,
    help: Option<String>,
    kind: Option<String>,
    unit: Option<String>,
    has_samples: bool,
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && ["_total", "_created", "_count", "_sum", "_bucket", "_info"].iter().all(|end| !name.ends_with(end))
}

fn sample(line: &str, family: &Family) -> (String, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("a name and a value: {line}"));
    let (name, rest) = line.split_at(end);
    let kind = family.kind.as_deref().unwrap_or_else(|| panic!("{name} has a type"));
    assert!(family.help.as_ref().is_some_and(|help| !help.is_empty()), "{name} is explained");
    match kind {
        "gauge" => assert_eq!(name, family.name),
        "counter" => assert_eq!(name, format!("{}_total", family.name)),
        other => panic!("a type that is not expected: {other}"),
    }
    if let Some(unit) = &family.unit {
        assert!(family.name.ends_with(&format!("_{unit}")), "{name} ends with its unit {unit}");
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest, line),
        None => (BTreeMap::new(), rest),
    };
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("one blank before the value: {line}"));
    assert!(value.chars().all(|c| c.is_ascii_digit() || "+-.e".contains(c)), "a number: {line}");
    let value: f64 = value.parse().unwrap_or_else(|_| panic!("a number: {line}"));
    assert!(kind != "counter" || value >= 0.0, "{line}");
    let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    let key = if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) };
    (key, value)
}

/// Labels up to the closing brace, and what comes behind it.
fn labels<'a>(mut rest: &'a str, line: &str) -> (BTreeMap<String, String>, &'a str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, behind) = rest.split_once("=\"").unwrap_or_else(|| panic!("name=\"value\": {line}"));
        assert!(is_name(name), "a label's name: {name:?} in {line}");
        let mut value = String::new();
        let mut chars = behind.char_indices();
        let end = loop {
            match chars.next().unwrap_or_else(|| panic!("the value ends: {line}")) {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, c @ ('\\' | '"'))) => c,
                    other => panic!("an escape that there is not: {other:?} in {line}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "each label comes once: {line}");
        match behind[end + 1..].split_at(1) {
            (",", behind) => rest = behind,
            ("}", behind) => return (labels, behind),
            _ => panic!("a comma or the brace: {line}"),
        }
    }
}
