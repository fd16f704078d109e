//! `critical_path`: the chain of dependencies that decides when a task can be done.

use std::collections::{HashMap, HashSet};

use pgrx::datum::Interval;
use pgrx::prelude::*;

use super::walk::{Node, Way, nodes, number, reach};
use crate::error::{Result, or_throw};
use crate::graph::{self, Arc};
use crate::number::TaskNo;
use crate::pg::rows::Rows;

/// `taskq.critical_path(task_id) -> TABLE (step, task_id, action, state, duration)`
#[pg_extern(sql = "")]
fn taskq_critical_path(task_id: Option<&str>) -> Rows<(i32, String, String, String, Option<Interval>)> {
    let path = or_throw(critical_path(task_id));
    let row = |(i, node): (usize, Node)| {
        let duration = (node.duration > 0).then(|| Interval::from_micros(node.duration));
        (i as i32 + 1, node.id, node.action, node.state, duration)
    };
    Rows(path.into_iter().enumerate().map(row).collect())
}

/// The longest chain that ends in the task, by the durations of its tasks ([`Node::duration`]). What has none counts
/// as one microsecond, so that among chains of tasks yet to run the one with most of them is shown.
fn critical_path(task_id: Option<&str>) -> Result<Vec<Node>> {
    let target = number(task_id)?;
    let (found, links) = reach(target, Way::Up, usize::MAX);
    let task_nos: Vec<TaskNo> = found.iter().map(|(n, _)| *n).chain([target]).collect();
    let nodes = nodes(&task_nos);
    let arcs: Vec<Arc> = links.iter().map(|l| (l.after, l.run)).collect();
    // Should a cycle be stored, as through settled tasks, any order will do.
    let order = graph::topological(&arcs).unwrap_or(task_nos);
    let mut before_each: HashMap<TaskNo, Vec<TaskNo>> = HashMap::new();
    for (after, run) in arcs {
        before_each.entry(run).or_default().push(after);
    }
    let weight = |n: TaskNo| nodes.get(&n).map_or(0, |node| node.duration).max(1);
    let mut best: HashMap<TaskNo, (i64, Option<TaskNo>)> = HashMap::new();
    for n in order {
        let before = before_each
            .get(&n)
            .into_iter()
            .flatten()
            .filter_map(|p| best.get(p).map(|(length, _)| (*length, *p)))
            .max();
        let length = before.map_or(0, |(length, _)| length).saturating_add(weight(n));
        best.insert(n, (length, before.map(|(_, p)| p)));
    }
    let mut path = vec![target];
    let mut seen = HashSet::from([target]);
    while let Some((_, Some(before))) = path.last().and_then(|n| best.get(n)) {
        if !seen.insert(*before) {
            break;
        }
        path.push(*before);
    }
    Ok(path.into_iter().rev().filter_map(|n| nodes.get(&n).cloned()).collect())
}
