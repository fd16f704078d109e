//! The worker in Python that docs/worker.md shows is a worker: it performs what is there.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use serde_json::json;
use taskq_tests::{Db, until};

use super::{page::blocks, python, read};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn the_first_worker_performs_tasks() {
    let program = blocks(&read("docs/worker.md")).into_iter().find(|block| block.kind == "python");
    let db = Db::new();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.py", db.name()));
    fs::write(&file, program.expect("a worker in Python").text).unwrap();
    let mut command = Command::new(python().join("python"));
    let _worker = Running(command.arg(&file).env("PGDATABASE", db.name()).spawn().unwrap());
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "measure", "body": "hello"}, {"id": "b", "action": "weigh"}]))
        .unwrap();
    until("both are done", || {
        (session.state("a") == "completed" && session.state("b") == "completed").then_some(())
    });
    let result = session.task("a").unwrap().result;
    fs::remove_file(&file).unwrap();
    assert_eq!(result, Some(json!({"length": 5})));
}
