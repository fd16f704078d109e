//! Whole graphs against a naive oracle. What becomes of a task depends only on the graph and on how the tasks that run
//! end: not on the order of work, nor on when an edge was said. A wrong count, a signal that is lost or counted twice, or
//! an abort that stops on its way gives some task another fate than the recursion of ten lines below.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Session, Task};

use super::index;

struct Node {
    /// How it ends if it runs.
    end: &'static str,
    spontaneous: bool,
    dependencies: BTreeMap<usize, &'static str>,
}

/// `completed` or `aborted`, and whether it ran.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fate {
    end: &'static str,
    ran: bool,
    failures: i32,
}

/// Edges lead from lower to higher numbers, so that one pass decides.
fn fates(nodes: &[Node]) -> Vec<Fate> {
    let mut fates: Vec<Fate> = Vec::new();
    for node in nodes {
        let ends = || node.dependencies.iter().map(|(after, condition)| (fates[*after].end, *condition));
        let lost = ends().any(|(end, condition)| condition != "settled" && end != condition);
        let failures = ends().filter(|(end, _)| *end == "aborted").count() as i32;
        let end = if lost { "aborted" } else { node.end };
        fates.push(Fate { end, ran: !lost, failures });
    }
    fates
}

fn check(tasks: &BTreeMap<String, Task>, prefix: &str, nodes: &[Node], case: &str) {
    for (number, fate) in fates(nodes).into_iter().enumerate() {
        let task = &tasks[&format!("{prefix}{number}")];
        assert_eq!(task.state, fate.end, "{case}, task {number}");
        let tries = i32::from(fate.ran && !nodes[number].spontaneous);
        assert_eq!(task.num_tries, tries, "{case}, task {number}");
        if fate.ran {
            assert_eq!(task.num_failures, fate.failures, "{case}, task {number}");
            assert_eq!(task.num_signals, nodes[number].dependencies.len() as i32, "{case}, task {number}");
        }
    }
}

fn by_id(session: &mut Session) -> BTreeMap<String, Task> {
    session.tasks().into_iter().map(|task| (task.id.clone(), task)).collect()
}

fn task(prefix: &str, number: usize, node: &Node, dependencies: &[(usize, &str)]) -> Value {
    let id = format!("{prefix}{number}");
    let depends_on: Vec<Value> = dependencies
        .iter()
        .map(|(after, condition)| json!({"id": format!("{prefix}{after}"), "condition": condition}))
        .collect();
    json!({"id": id, "action": id, "spontaneous": node.spontaneous, "depends_on": depends_on})
}

/// Top, two sides, bottom: four conditions, and the ends of the three that make a difference.
fn diamond(case: usize) -> [Node; 4] {
    const CONDITIONS: [&str; 3] = ["completed", "settled", "aborted"];
    const ENDS: [&str; 2] = ["completed", "aborted"];
    let condition = |place: u32| CONDITIONS[case / 3_usize.pow(place) % 3];
    let end = |place: u32| ENDS[case / 81 / 2_usize.pow(place) % 2];
    let node = |end, dependencies: &[(usize, &'static str)]| Node {
        end,
        spontaneous: false,
        dependencies: dependencies.iter().copied().collect(),
    };
    [
        node(end(0), &[]),
        node(end(1), &[(0, condition(0))]),
        node(end(2), &[(0, condition(1))]),
        node("completed", &[(1, condition(2)), (2, condition(3))]),
    ]
}

#[test]
fn every_diamond_ends_as_its_conditions_say() {
    const CASES: usize = 81 * 8;
    let (_db, [mut session]) = Db::connected();
    let mut tasks = Vec::new();
    for case in 0..CASES {
        for (number, node) in diamond(case).iter().enumerate() {
            let dependencies: Vec<_> = node.dependencies.iter().map(|(a, c)| (*a, *c)).collect();
            let mut task = task(&format!("{case} "), number, node, &dependencies);
            task["action"] = json!("x");
            tasks.push(task);
        }
    }
    session.insert(json!(tasks)).unwrap();
    loop {
        let grants = session.own("w", 1000, &["x"]).unwrap();
        if grants.is_empty() {
            break;
        }
        for grant in grants {
            let (case, number) = grant.task_id.split_once(' ').unwrap();
            let node = &diamond(case.parse().unwrap())[number.parse::<usize>().unwrap()];
            session.give(&grant.task_id, grant.token, node.end).unwrap();
        }
    }
    let tasks = by_id(&mut session);
    for case in 0..CASES {
        check(&tasks, &format!("{case} "), &diamond(case), &format!("diamond {case}"));
    }
}

#[test]
fn random_graphs_whose_edges_are_said_while_they_run_end_as_if_all_had_been_said_before() {
    let (_db, [mut session]) = Db::connected();
    for seed in 1..=12 {
        let mut random = Random::new(seed);
        let nodes: Vec<Node> = (0..50).map(|number| random_node(number, &mut random)).collect();
        let prefix = format!("{seed} ");
        let unsaid = insert_some(&mut session, &prefix, &nodes, &mut random);
        run(&mut session, &prefix, &nodes, unsaid, &mut random);
        check(&by_id(&mut session), &prefix, &nodes, &format!("seed {seed}"));
        assert!(session.broken().is_empty());
    }
}

fn random_node(number: usize, random: &mut Random) -> Node {
    let spontaneous = random.chance(20);
    let mut dependencies = BTreeMap::new();
    for _ in 0..index(random, 4).min(number) {
        let condition = random.pick(&["completed", "completed", "settled", "settled", "settled", "aborted"]);
        dependencies.entry(index(random, number)).or_insert(*condition);
    }
    let end = if spontaneous || random.chance(70) { "completed" } else { "aborted" };
    Node { end, spontaneous, dependencies }
}

/// Inserts the tasks with about half of their edges, and says which edges are left. A spontaneous task would not wait
/// for the rest.
fn insert_some(
    session: &mut Session,
    prefix: &str,
    nodes: &[Node],
    random: &mut Random,
) -> Vec<(usize, usize, &'static str)> {
    let mut unsaid = Vec::new();
    let mut tasks = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let mut said = Vec::new();
        for (after, condition) in &node.dependencies {
            if node.spontaneous || random.chance(50) {
                said.push((*after, *condition));
            } else {
                unsaid.push((*after, number, *condition));
            }
        }
        tasks.push(task(prefix, number, node, &said));
    }
    session.insert(json!(tasks)).unwrap();
    unsaid
}

/// Says the other edges and works, in random order. A task is worked on once all its edges are said.
fn run(
    session: &mut Session,
    prefix: &str,
    nodes: &[Node],
    mut unsaid: Vec<(usize, usize, &'static str)>,
    random: &mut Random,
) {
    loop {
        if !unsaid.is_empty() && random.chance(40) {
            let (after, run, condition) = unsaid.swap_remove(index(random, unsaid.len()));
            let (after, run) = (format!("{prefix}{after}"), format!("{prefix}{run}"));
            // One that has lost a dependency meanwhile cannot wait for more.
            if session.state(&run) != "aborted" {
                session.depend(json!([{"after": after, "run": run, "condition": condition}])).unwrap();
            }
        }
        let complete = |number: usize| !unsaid.iter().any(|(_, run, _)| *run == number);
        let actions: Vec<String> =
            (0..nodes.len()).filter(|n| complete(*n)).map(|n| format!("{prefix}{n}")).collect();
        let actions: Vec<&str> = actions.iter().map(String::as_str).collect();
        let grants = session.own("w", 1 + random.below(3) as i32, &actions).unwrap();
        if grants.is_empty() && unsaid.is_empty() {
            return;
        }
        for grant in grants {
            let number: usize = grant.task_id[prefix.len()..].parse().unwrap();
            session.give(&grant.task_id, grant.token, nodes[number].end).unwrap();
        }
    }
}
