//! What the database says in the end: tasks, dependencies, tries. It is kept in a file, so that it can be audited again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::book::{On, Time};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Task {
    pub id: String,
    pub code: String,
    pub status: Option<String>,
    pub tries: i64,
    pub signals: i64,
    pub dependencies: i64,
    pub failures: i64,
    pub inserted: Time,
    pub settled: Option<Time>,
    pub merged_into: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Edge {
    pub after: String,
    pub run: String,
    pub on: On,
    pub settled: bool,
}

/// A try, as `taskq.attempts` has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Try {
    pub task: String,
    pub number: i32,
    pub actor: String,
    pub started: Time,
    pub ended: Option<Time>,
    pub outcome: String,
    pub status: Option<String>,
}

#[derive(Default)]
pub struct State {
    pub tasks: HashMap<String, Task>,
    pub edges: Vec<Edge>,
    pub tries: Vec<Try>,
}

const TASKS: &str = "SELECT json_build_object('id', id, 'code', status_code, 'status', status, 'tries', num_tries, 'signals', num_signals, \
     'dependencies', total_dependencies, 'failures', num_failures, 'inserted', (extract(epoch FROM inserted_at) * 1000000)::bigint, \
     'settled', (extract(epoch FROM settled_at) * 1000000)::bigint, 'merged_into', merged_into)::text FROM taskq.tasks";
const EDGES: &str = "SELECT json_build_object('after', after, 'run', run, 'on', left(condition, 1), 'settled', settled)::text FROM taskq.dependencies";
const TRIES: &str = "SELECT json_build_object('task', task_id, 'number', num_try, 'actor', actor_id, 'outcome', outcome, 'status', status, \
     'started', (extract(epoch FROM started_at) * 1000000)::bigint, 'ended', (extract(epoch FROM ended_at) * 1000000)::bigint)::text \
     FROM taskq.attempts";

impl State {
    pub fn load(client: &mut postgres::Client) -> State {
        let mut state = State::default();
        client.batch_execute("SET statement_timeout = 0; SET jit = off").expect("settings");
        let mut read = |query: &str, take: &mut dyn FnMut(&str)| {
            let text = client.simple_query(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
            for message in text {
                if let postgres::SimpleQueryMessage::Row(row) = message {
                    take(row.get(0).expect("a row"));
                }
            }
        };
        let parsed = "the server writes JSON";
        read(TASKS, &mut |line| state.put_task(serde_json::from_str(line).expect(parsed)));
        read(EDGES, &mut |line| state.edges.push(serde_json::from_str(line).expect(parsed)));
        read(TRIES, &mut |line| state.tries.push(serde_json::from_str(line).expect(parsed)));
        state
    }

    pub fn put_task(&mut self, task: Task) {
        self.tasks.insert(task.id.clone(), task);
    }

    pub fn save(&self, folder: &Path) {
        let mut file = BufWriter::new(File::create(folder.join("state")).expect("a file for the state"));
        let mut put =
            |kind: &str, value: Value| writeln!(file, "{kind}{value}").expect("the state is written");
        self.tasks.values().for_each(|task| put("t", serde_json::to_value(task).expect("a task")));
        self.edges.iter().for_each(|edge| put("e", serde_json::to_value(edge).expect("an edge")));
        self.tries.iter().for_each(|one| put("y", serde_json::to_value(one).expect("a try")));
    }

    pub fn read(folder: &Path) -> State {
        let mut state = State::default();
        let file = File::open(folder.join("state")).expect("the file of the state");
        for line in BufReader::new(file).lines() {
            let line = line.expect("a line of the state");
            let parsed = "a line of the state";
            match line.split_at(1) {
                ("t", task) => state.put_task(serde_json::from_str(task).expect(parsed)),
                ("e", edge) => state.edges.push(serde_json::from_str(edge).expect(parsed)),
                (_, one) => state.tries.push(serde_json::from_str(one).expect(parsed)),
            }
        }
        state
    }
}
