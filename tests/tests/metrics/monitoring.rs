//! The rules and the dashboard of examples/monitoring ask for metrics, labels and values that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use super::exposition::read;

fn example(name: &str) -> String {
    let path = format!("{}/../examples/monitoring/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The labels of each metric, of a queue in which everything occurs that has labels.
fn metrics(session: &mut Session) -> BTreeMap<String, BTreeSet<String>> {
    session.run("SELECT taskq.set_action('x', max_concurrency => 5)");
    session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    session.perform("x", "pending");
    session.perform("x", "completed");
    let text: String = session.one("SELECT taskq.metrics()");
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for key in read(&text).keys() {
        let (name, rest) = key.split_once('{').unwrap_or((key, ""));
        let of = labels.entry(name.to_owned()).or_default();
        of.extend(rest.split(',').filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())));
    }
    labels
}

/// The metrics that an expression names, each with the labels in its braces.
fn named(expression: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("taskq_") {
        rest = &rest[at..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(rest.len());
        let name = rest[..end].to_owned();
        rest = &rest[end..];
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            let (inside, _) = inside.split_once('}').expect("braces are closed");
            labels.extend(
                inside.split(',').map(|pair| pair[..pair.find(['=', '!']).unwrap()].trim().to_owned()),
            );
        }
        found.push((name, labels));
    }
    found
}

/// What stands in `by (…)` and `on (…)`.
fn grouped_by(expression: &str) -> Vec<String> {
    let lists = ["by (", "on ("].into_iter().flat_map(|word| expression.split(word).skip(1));
    lists
        .flat_map(|rest| rest.split(')').next().unwrap().split(','))
        .map(|label| label.trim().to_owned())
        .collect()
}

fn check(expression: &str, known: &BTreeMap<String, BTreeSet<String>>) -> usize {
    let named = named(expression);
    assert!(!named.is_empty(), "no metric of ours: {expression}");
    for (name, labels) in &named {
        let has = known.get(name).unwrap_or_else(|| panic!("there is no {name}: {expression}"));
        for label in labels.iter().chain(&grouped_by(expression)) {
            assert!(has.contains(label), "{name} has no label {label}: {expression}");
        }
    }
    named.len()
}

#[test]
fn the_rules_and_the_dashboard_ask_for_what_there_is() {
    let db = Db::new();
    let known = metrics(&mut db.connect());
    let rules = example("alerts.yml");
    let expressions: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(expressions.len(), rules.matches("- alert:").count());
    let in_rules: usize = expressions.iter().map(|expression| check(expression, &known)).sum();
    assert!(in_rules >= 8, "{in_rules}");

    let dashboard: Value = serde_json::from_str(&example("grafana.json")).unwrap();
    let mut shown = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            check(expression, &known);
            shown.extend(named(expression).into_iter().map(|(name, _)| name));
        }
    }
    let forgotten: Vec<&String> = known.keys().filter(|name| !shown.contains(*name)).collect();
    assert_eq!(forgotten, Vec::<&String>::new(), "each metric is on the dashboard");
}

/// The causes and states in the rules are spelled as the queue spells them.
#[test]
fn values_of_labels_in_the_rules_are_those_there_are() {
    let (_db, [mut session]) = Db::connected();
    let text: String = session.one("SELECT taskq.metrics()");
    let rules = example("alerts.yml");
    let causes = rules.split("cause=~\"").nth(1).unwrap().split('"').next().unwrap();
    for cause in causes.split('|') {
        assert!(text.contains(&format!("taskq_settled_tasks{{cause=\"{cause}\"}}")), "{cause}: {text}");
    }
    let states: BTreeSet<&str> =
        rules.split("state=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(states, BTreeSet::from(["in-progress", "ready"]));
    // That metric counts up to 10,000: above it a rule would never hold.
    let least = rules.split("taskq_expired_tasks >= ").nth(1).unwrap().lines().next().unwrap();
    assert!(least.parse::<u32>().unwrap() <= 10_000, "{least}");
}
