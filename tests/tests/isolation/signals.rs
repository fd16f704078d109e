//! What of a state is by the order in which signals were counted.
//!
//! A signal to a task that another transaction has locked is counted later, by the next that looks. So a task with two
//! dependencies that end beside each other may be aborted by either, whichever call came first; and what the end of the
//! other would have done to it, one more signal or one more task to wait for, it has or has not. A call that looks sees
//! the one order at one of two such tasks, and the other order at the other, if only one of them was locked.

use std::collections::BTreeSet;

use serde_json::Value;

/// The lines without that.
pub fn without_their_order(state: &str) -> String {
    let lines: Vec<(&str, Value)> = state.lines().map(parsed).collect();
    let aborted: BTreeSet<&str> = lines
        .iter()
        .filter(|(kind, row)| is_aborted(kind, row))
        .filter_map(|(_, row)| row["id"].as_str())
        .collect();
    let kept = state
        .lines()
        .zip(&lines)
        .filter(|(_, (kind, row))| !is_open_edge_of_an_aborted_task(kind, row, &aborted));
    let kept = kept.map(|(line, (kind, row))| match is_aborted(kind, row) {
        true => format!(
            "{kind} {}",
            without(row, &["status", "cause", "num_signals", "num_failures", "total_dependencies"])
        ),
        false => line.to_owned(),
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// What a line is of, and its row; of some there is none.
fn parsed(line: &str) -> (&str, Value) {
    let (kind, row) = line.split_once(' ').unwrap_or((line, ""));
    (kind, serde_json::from_str(row).unwrap_or_default())
}

/// A task that was aborted for the sake of one that it depends on.
fn is_aborted(kind: &str, row: &Value) -> bool {
    let status = row["status"].as_str().unwrap_or_default();
    let of_another = ["dependency ", "skipped: dependency "].iter().any(|why| status.starts_with(why));
    kind == "task" && row["state"] == "aborted" && of_another
}

fn is_open_edge_of_an_aborted_task(kind: &str, row: &Value, aborted: &BTreeSet<&str>) -> bool {
    kind == "dependency"
        && row["settled"] == false
        && row["run"].as_str().is_some_and(|run| aborted.contains(run))
}

fn without(row: &Value, keys: &[&str]) -> Value {
    let mut row = row.clone();
    if let Some(columns) = row.as_object_mut() {
        columns.retain(|key, _| !keys.contains(&key.as_str()));
    }
    row
}
