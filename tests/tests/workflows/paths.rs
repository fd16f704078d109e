//! `ancestors` and `descendants` on random graphs, against the definitions written down naively: sets by transitive closure,
//! depths by the least number of edges.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use taskq_tests::random::Random;
use taskq_tests::{Db, Session, refused};

use super::index;

/// For each task, those that it runs directly after. Edges lead from lower to higher numbers.
type Graph = Vec<BTreeSet<usize>>;

fn random_graph(session: &mut Session, size: usize, edges: usize, random: &mut Random) -> Graph {
    let mut graph = vec![BTreeSet::new(); size];
    for _ in 0..edges {
        let run = 1 + index(random, size - 1);
        graph[run].insert(index(random, run));
    }
    // Inserted in an order that says nothing, with conditions that do not matter here.
    let mut order: Vec<usize> = (0..size).collect();
    (1..size).rev().for_each(|i| order.swap(i, index(random, i + 1)));
    let tasks: Vec<_> = order
        .into_iter()
        .map(|n| {
            let after: Vec<_> =
                graph[n].iter().map(|a| json!({"id": a.to_string(), "condition": "settled"})).collect();
            json!({"id": n.to_string(), "action": "x", "depends_on": after})
        })
        .collect();
    session.insert(json!(tasks)).unwrap();
    graph
}

/// Least distances from a task along `next`, by relaxing all edges until nothing changes.
fn distances(graph: &Graph, from: usize, up: bool) -> BTreeMap<usize, i32> {
    let mut distances = BTreeMap::from([(from, 0)]);
    for _ in 0..graph.len() {
        for (run, afters) in graph.iter().enumerate() {
            for after in afters {
                let (near, far) = if up { (run, *after) } else { (*after, run) };
                if let Some(distance) = distances.get(&near).map(|d| d + 1) {
                    let least = distances.entry(far).or_insert(distance);
                    *least = distance.min(*least);
                }
            }
        }
    }
    distances.remove(&from);
    distances
}

fn relatives(session: &mut Session, function: &str, id: usize, most: Option<i32>) -> Vec<(usize, i32)> {
    let query = format!("SELECT task_id, depth FROM taskq.{function}($1, max_tasks => $2)");
    let rows = session.query(&query, &[&id.to_string(), &most]).unwrap();
    rows.iter().map(|row| (row.get::<_, &str>(0).parse().unwrap(), row.get(1))).collect()
}

#[test]
fn relatives_are_the_transitive_closure_with_least_distances_nearest_first() {
    let db = Db::new();
    for seed in 1..=6 {
        let mut session = db.connect();
        let mut random = Random::new(seed);
        let size = 10 + index(&mut random, 40);
        let graph = random_graph(&mut session, size, size * 2, &mut random);
        for id in 0..size {
            for (function, up) in [("ancestors", true), ("descendants", false)] {
                let expected = distances(&graph, id, up);
                let found = relatives(&mut session, function, id, None);
                assert!(
                    found.is_sorted_by_key(|(_, depth)| *depth),
                    "{function} of {id}, seed {seed}: {found:?}"
                );
                assert_eq!(found.len(), expected.len(), "each once");
                assert_eq!(
                    found.iter().copied().collect::<BTreeMap<_, _>>(),
                    expected,
                    "{function} of {id}, seed {seed}"
                );
                for most in [0, 1, 5] {
                    let first = relatives(&mut session, function, id, Some(most));
                    assert_eq!(
                        first,
                        found[..found.len().min(most as usize)],
                        "{function} of {id}, the first {most}"
                    );
                }
            }
        }
        session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
    }
}

#[test]
fn a_relative_has_its_action_and_state() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "first"}, {"id": "b", "action": "second", "depends_on": ["a"]},
               {"id": "c", "action": "third", "depends_on": ["b", "a"]}]),
    );
    session.perform("first", "completed");
    let row =
        |of: &str| format!("SELECT concat_ws(' ', task_id, action, state, depth) FROM taskq.{of} ORDER BY 1");
    assert_eq!(session.all::<String>(&row("ancestors('c')")), ["a first completed 1", "b second ready 1"]);
    assert_eq!(session.all::<String>(&row("descendants('a')")), ["b second ready 1", "c third blocked 1"]);
}

#[test]
fn paths_ask_for_a_task_that_exists() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    for function in ["ancestors", "descendants"] {
        refused(&mut session, "TQ003", "absent", &format!("SELECT * FROM taskq.{function}('absent')"), &[]);
        refused(&mut session, "22004", "task_id", &format!("SELECT * FROM taskq.{function}(NULL)"), &[]);
        refused(&mut session, "22023", "max_tasks", &format!("SELECT * FROM taskq.{function}('a', -1)"), &[]);
        assert_eq!(session.one::<i64>(&format!("SELECT count(*) FROM taskq.{function}('a')")), 0);
    }
}
