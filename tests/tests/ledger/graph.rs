//! A random graph: edges only lead from lower to higher numbers, so that there is no cycle.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use taskq_tests::Session;
use taskq_tests::random::Random;

/// One task of the graph.
pub struct Node {
    pub spontaneous: bool,
    pub max_tries: Option<u64>,
    /// What it runs after, and on which condition.
    pub dependencies: BTreeMap<usize, &'static str>,
}

/// The tasks by number.
pub struct Graph {
    pub nodes: Vec<Node>,
}

pub const ACTIONS: [&str; 3] = ["a", "b", "c"];

impl Graph {
    pub fn random(size: usize, seed: u64) -> Graph {
        let mut random = Random::new(seed);
        let nodes = (0..size)
            .map(|number| {
                let mut dependencies = BTreeMap::new();
                // Many short edges make deep parts, a few long ones tie the parts together.
                for _ in 0..random.below(4).min(number as u64) {
                    let reach = if random.chance(80) { 40 } else { number as u64 };
                    let after = number - 1 - random.below(reach.min(number as u64)) as usize;
                    let condition = match random.below(10) {
                        0 => "aborted",
                        1..=6 => "settled",
                        _ => "completed",
                    };
                    dependencies.entry(after).or_insert(condition);
                }
                Node {
                    spontaneous: random.chance(15),
                    max_tries: random.chance(50).then(|| 1 + random.below(4)),
                    dependencies,
                }
            })
            .collect();
        Graph { nodes }
    }

    /// Inserts the tasks in a few calls, the edges said at either end.
    pub fn insert(&self, session: &mut Session) {
        let mut tasks: Vec<Value> =
            self.nodes.iter().enumerate().map(|(number, node)| task(number, node)).collect();
        for (number, node) in self.nodes.iter().enumerate() {
            for (after, condition) in &node.dependencies {
                let same_call = after / 500 == number / 500;
                let (place, key, other) = if same_call && number % 2 == 0 {
                    (*after, "to_signal_after", number)
                } else {
                    (number, "depends_on", *after)
                };
                let edge = json!({"id": other.to_string(), "condition": condition});
                tasks[place][key].as_array_mut().expect("made as an array").push(edge);
            }
        }
        for call in tasks.chunks(500) {
            session.insert(json!(call)).unwrap();
        }
    }
}

fn task(number: usize, node: &Node) -> Value {
    json!({
        "id": number.to_string(),
        "action": ACTIONS[number % ACTIONS.len()],
        "priority": number % 2,
        "max_tries": node.max_tries,
        "spontaneous": node.spontaneous,
        "depends_on": [],
        "to_signal_after": [],
    })
}
