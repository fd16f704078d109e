//! Directed graphs of tasks: an order in which all of them can run, or a cycle that forbids it.
//!
//! A chain is as long as a caller makes it, and Postgres' `max_stack_depth` does not count the frames of Rust. So only
//! those of petgraph's algorithms are used that do not recur (`tarjan_scc`, for one, does). Each takes memory in proportion
//! to the number of arcs, and little more time than that.

use crate::number::TaskNo;

use petgraph::algo::{astar, toposort};
use petgraph::graphmap::DiGraphMap;

/// `(after, run)`, by number.
pub(crate) type Arc = (TaskNo, TaskNo);

/// The ends of the arcs, each after all that lead to it; or `Err` with the nodes along a shortest cycle through some
/// node, each once, the least first.
pub(crate) fn topological(arcs: &[Arc]) -> Result<Vec<TaskNo>, Vec<TaskNo>> {
    let graph: DiGraphMap<TaskNo, ()> = DiGraphMap::from_edges(arcs.iter().copied());
    toposort(&graph, None).map_err(|cycle| {
        // What is named lies on a cycle: one search finds the nearest node that leads back to it.
        let start = cycle.node_id();
        let way = astar(&graph, start, |node| graph.contains_edge(node, start), |_| 1, |_| 0);
        let mut path = way.map_or_else(|| vec![start], |(_, path)| path);
        let least = (0..path.len()).min_by_key(|at| path[*at]).unwrap_or_default();
        path.rotate_left(least);
        path
    })
}

#[cfg(test)]
mod tests {
    use super::{TaskNo, topological};

    fn order(arcs: &[(i64, i64)]) -> Result<Vec<i64>, Vec<i64>> {
        let arcs: Vec<_> = arcs.iter().map(|(after, run)| (TaskNo(*after), TaskNo(*run))).collect();
        let numbers = |tasks: Vec<TaskNo>| tasks.into_iter().map(|n| n.0).collect();
        topological(&arcs).map(numbers).map_err(numbers)
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
    fn a_shortest_cycle_is_shown() {
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
        let mut arcs: Vec<(i64, i64)> = (1..LONG).map(|n| (n + 1, n)).collect();
        assert_eq!(order(&arcs).map(|order| order[0]), Ok(LONG));
        arcs.push((1, LONG));
        assert_eq!(order(&arcs).map_err(|cycle| cycle.len()), Err(LONG as usize));
    }

    /// Half a million arcs from one node: the search for the shortest cycle looks at each arc once.
    #[test]
    fn width_costs_no_time() {
        const WIDE: i64 = 500_000;
        let mut arcs: Vec<(i64, i64)> = (2..WIDE).map(|n| (1, n)).collect();
        arcs.extend([(WIDE - 1, WIDE), (WIDE, 1)]);
        assert_eq!(order(&arcs), Err(vec![1, WIDE - 1, WIDE]));
    }
}
