//! Directed graphs of tasks: an order in which all of them can run, or a cycle that forbids it.
//!
//! Without recursion: a chain is as long as a caller makes it, and Postgres' `max_stack_depth` does not count the
//! frames of Rust. Everything here takes time and memory in proportion to the number of arcs.

use std::collections::VecDeque;

/// `(after, run)`, by number.
pub(crate) type Arc = (i64, i64);

/// After how many steps the caller is asked whether to go on.
const STEPS: usize = 4_096;

/// The ends of the arcs, each after all that lead to it; or `Err` with the nodes along one of the shortest cycles
/// through some node, each once. `tick` is called now and then, and may raise an error.
pub(crate) fn topological(arcs: &[Arc], tick: fn()) -> Result<Vec<i64>, Vec<i64>> {
    let graph = Graph::new(arcs, tick);
    let mut waits = graph.arcs_to_each();
    let mut order: Vec<usize> = (0..graph.nodes.len()).filter(|node| waits[*node] == 0).collect();
    let mut done = 0;
    while let Some(node) = order.get(done).copied() {
        every(done, tick);
        done += 1;
        for next in graph.next(node) {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                order.push(*next);
            }
        }
    }
    let named = |nodes: Vec<usize>| nodes.into_iter().map(|node| graph.nodes[node]).collect();
    if order.len() == graph.nodes.len() {
        return Ok(named(order));
    }
    // What is left over is on a cycle or behind one.
    let on_cycle = least_on_some_cycle(&graph, &waits, tick);
    Err(named(shortest_cycle(&graph, on_cycle, tick)))
}

fn every(step: usize, tick: fn()) {
    if step.is_multiple_of(STEPS) {
        tick();
    }
}

/// Nodes by their places in the order of their numbers, and where the arcs of each lead.
struct Graph {
    nodes: Vec<i64>,
    /// The arcs of node `n` are `to[first[n]..first[n + 1]]`.
    first: Vec<usize>,
    to: Vec<usize>,
}

impl Graph {
    fn new(arcs: &[Arc], tick: fn()) -> Self {
        let mut nodes: Vec<i64> = arcs.iter().flat_map(|(after, run)| [*after, *run]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let place = |number: &i64| nodes.binary_search(number).unwrap_or_default();
        let mut placed: Vec<(usize, usize)> = Vec::with_capacity(arcs.len());
        for (step, (after, run)) in arcs.iter().enumerate() {
            every(step, tick);
            placed.push((place(after), place(run)));
        }
        placed.sort_unstable();
        let first =
            (0..=nodes.len()).map(|node| placed.partition_point(|(after, _)| *after < node)).collect();
        Graph { nodes, first, to: placed.into_iter().map(|(_, run)| run).collect() }
    }

    fn next(&self, node: usize) -> &[usize] {
        &self.to[self.first[node]..self.first[node + 1]]
    }

    fn arcs_to_each(&self) -> Vec<usize> {
        let mut arcs = vec![0; self.nodes.len()];
        for node in &self.to {
            arcs[*node] += 1;
        }
        arcs
    }
}

/// The least node of a cycle. Every node that is left over has an arc from another such node: going back along
/// these comes round to where it has been.
fn least_on_some_cycle(graph: &Graph, waits: &[usize], tick: fn()) -> usize {
    let mut before: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    for node in (0..graph.nodes.len()).filter(|node| waits[*node] > 0) {
        every(node, tick);
        for next in graph.next(node) {
            before[*next] = Some(node);
        }
    }
    let mut at = waits.iter().position(|arcs| *arcs > 0).unwrap_or_default();
    let mut seen = vec![false; graph.nodes.len()];
    while !std::mem::replace(&mut seen[at], true) {
        at = before[at].unwrap_or(at);
    }
    let (round, mut least) = (at, at);
    loop {
        at = before[at].unwrap_or(round);
        least = least.min(at);
        if at == round {
            return least;
        }
    }
}

/// A shortest way from a node that is on a cycle back to itself.
fn shortest_cycle(graph: &Graph, start: usize, tick: fn()) -> Vec<usize> {
    let mut came_from: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    let mut queue = VecDeque::from([start]);
    let mut step = 0;
    while let Some(node) = queue.pop_front().filter(|_| came_from[start].is_none()) {
        every(step, tick);
        step += 1;
        for next in graph.next(node) {
            if came_from[*next].is_none() {
                came_from[*next] = Some(node);
                queue.push_back(*next);
            }
        }
    }
    let mut path = vec![start];
    let mut at = came_from[start];
    while let Some(node) = at.filter(|node| *node != start) {
        path.push(node);
        at = came_from[node];
    }
    path[1..].reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::{Arc, topological};

    fn order(arcs: &[Arc]) -> Result<Vec<i64>, Vec<i64>> {
        topological(arcs, || {})
    }

    #[test]
    fn each_node_comes_after_all_that_lead_to_it() {
        assert_eq!(order(&[]), Ok(vec![]));
        assert_eq!(order(&[(3, 2), (2, 1), (3, 1)]), Ok(vec![3, 2, 1]));
        assert_eq!(order(&[(5, 1), (5, 1), (4, 5)]), Ok(vec![4, 5, 1]));
    }

    #[test]
    fn a_cycle_is_shown_along_its_arcs() {
        assert_eq!(order(&[(1, 2), (2, 1)]), Err(vec![1, 2]));
        assert_eq!(order(&[(5, 9), (9, 7), (7, 5), (1, 5), (7, 2)]), Err(vec![5, 9, 7]));
        assert_eq!(order(&[(4, 4)]), Err(vec![4]));
    }

    #[test]
    fn the_shortest_cycle_through_the_least_node_is_shown() {
        assert_eq!(order(&[(1, 2), (2, 3), (3, 4), (4, 1), (3, 1)]), Err(vec![1, 2, 3]));
    }

    #[test]
    fn what_lies_between_and_behind_cycles_is_no_part_of_them() {
        assert_eq!(order(&[(8, 9), (9, 8), (9, 1), (1, 6), (6, 7), (7, 6), (7, 2)]), Err(vec![8, 9]));
    }

    /// A thread of a test has a stack of 2 MB: a recursion of so many levels would not get far.
    #[test]
    fn length_costs_no_stack() {
        const LONG: i64 = 300_000;
        let mut arcs: Vec<Arc> = (1..LONG).map(|n| (n + 1, n)).collect();
        assert_eq!(order(&arcs).map(|order| order[0]), Ok(LONG));
        arcs.push((1, LONG));
        assert_eq!(order(&arcs).map_err(|cycle| cycle.len()), Err(LONG as usize));
    }

    /// Half a million arcs from one node: the search for the shortest cycle looks at each arc once.
    #[test]
    fn width_costs_no_time() {
        const WIDE: i64 = 500_000;
        let mut arcs: Vec<Arc> = (2..WIDE).map(|n| (1, n)).collect();
        arcs.extend([(WIDE - 1, WIDE), (WIDE, 1)]);
        assert_eq!(order(&arcs), Err(vec![1, WIDE - 1, WIDE]));
    }
}
