//! `ancestors`, `descendants` and `critical_path` on random graphs, against the definitions written down naively: sets by
//! transitive closure, depths by the least number of edges, the critical path by trying every chain.

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

/// The greatest weight of a chain that ends in the task, by trying them all.
fn heaviest(graph: &Graph, weight: &[i64], task: usize) -> i64 {
    weight[task] + graph[task].iter().map(|after| heaviest(graph, weight, *after)).max().unwrap_or(0)
}

/// The critical path: ids in order, with seconds.
fn critical_path(session: &mut Session, id: usize) -> Vec<(usize, i64)> {
    let rows = session
        .query(
            "SELECT task_id, COALESCE(EXTRACT(epoch FROM duration), 0)::bigint, step FROM taskq.critical_path($1)",
            &[&id.to_string()],
        )
        .unwrap();
    assert!(
        rows.iter().enumerate().all(|(i, row)| row.get::<_, i32>(2) == i as i32 + 1),
        "steps count from 1"
    );
    rows.iter().map(|row| (row.get::<_, &str>(0).parse().unwrap(), row.get(1))).collect()
}

#[test]
fn the_critical_path_of_a_graph_that_has_run_is_the_chain_that_took_longest() {
    let db = Db::new();
    for seed in 1..=4 {
        let mut session = db.connect();
        let mut random = Random::new(100 + seed);
        let size = 15;
        let graph = random_graph(&mut session, size, size * 2, &mut random);
        // Each runs for some seconds by the queue's clock, which goes on all the time.
        let mut clock = 0;
        let mut weight = vec![0; size];
        loop {
            set_clock(&mut session, clock);
            let held = session.own("w", 1, &["x"]).unwrap();
            let Some(grant) = held.first() else { break };
            let seconds = 1 + random.below(100) as i64;
            clock += seconds;
            set_clock(&mut session, clock);
            let code = *random.pick(&["completed", "aborted"]);
            session.give(&grant.task_id, grant.token, code).unwrap();
            weight[grant.task_id.parse::<usize>().unwrap()] = seconds;
            clock += random.below(50) as i64;
        }
        assert!(weight.iter().all(|seconds| *seconds > 0), "all have run");
        for id in 0..size {
            check_path(&graph, &weight, id, &critical_path(&mut session, id), seed);
        }
        session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
    }
}

fn set_clock(session: &mut Session, seconds: i64) {
    let now: String = session.one(&format!(
        "SELECT ('2030-01-01 00:00:00Z'::timestamptz + make_interval(secs => {seconds}))::text"
    ));
    session.set_now(Some(&now));
}

fn check_path(graph: &Graph, weight: &[i64], id: usize, path: &[(usize, i64)], seed: u64) {
    let case = format!("path of {id}, seed {seed}: {path:?}");
    assert_eq!(path.last().map(|(last, _)| *last), Some(id), "{case}");
    assert!(
        path.windows(2).all(|two| graph[two[1].0].contains(&two[0].0)),
        "a chain of dependencies, {case}"
    );
    assert!(path.iter().all(|(task, seconds)| weight[*task] == *seconds), "{case}");
    assert_eq!(path.iter().map(|(_, seconds)| seconds).sum::<i64>(), heaviest(graph, weight, id), "{case}");
}

#[test]
fn the_critical_path_of_a_graph_that_has_not_run_is_the_chain_with_most_tasks() {
    let (_db, [mut session]) = Db::connected();
    let mut random = Random::new(7);
    let graph = random_graph(&mut session, 20, 40, &mut random);
    for id in 0..20 {
        let path = critical_path(&mut session, id);
        assert_eq!(path.len() as i64, heaviest(&graph, &[1; 20], id));
        check_path(&graph, &[0; 20], id, &path, 7);
    }
}

#[test]
fn a_task_at_work_weighs_what_it_has_taken_so_far() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "1", "action": "slow"}, {"id": "2", "action": "fast"}, {"id": "3", "action": "fast", "depends_on": ["2"]},
               {"id": "4", "action": "end", "depends_on": ["1", "3"]}]),
    );
    assert_eq!(critical_path(&mut session, 4).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 3, 4]);
    set_clock(&mut session, 0);
    session.own_one("slow");
    set_clock(&mut session, 60);
    assert_eq!(critical_path(&mut session, 4), [(1, 60), (4, 0)]);
}

#[test]
fn paths_ask_for_a_task_that_exists() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    for function in ["ancestors", "descendants", "critical_path"] {
        refused(&mut session, "TQ003", "absent", &format!("SELECT * FROM taskq.{function}('absent')"), &[]);
        refused(&mut session, "22004", "task_id", &format!("SELECT * FROM taskq.{function}(NULL)"), &[]);
    }
    for function in ["ancestors", "descendants"] {
        refused(&mut session, "22023", "max_tasks", &format!("SELECT * FROM taskq.{function}('a', -1)"), &[]);
        assert_eq!(session.one::<i64>(&format!("SELECT count(*) FROM taskq.{function}('a')")), 0);
    }
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.critical_path('a') WHERE duration IS NULL"), 1);
}
