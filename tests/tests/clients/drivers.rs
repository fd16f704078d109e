//! What docs/clients.md says of drivers is so: which types need a cast, how JSON is passed, where the SQLSTATE is.
//!
//! A function whose arguments take other types than drivers send, or that has a twin which takes their arguments first,
//! fails here.

use std::path::PathBuf;
use std::process::Command;

use taskq_tests::Db;

use crate::tools::installed;

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/drivers")).join(name)
}

fn is_fine(mut command: Command) {
    let db = Db::new();
    let output = command.env("PGDATABASE", db.name()).output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out == "fine\n", "{command:?}: {out}\n{errors}");
}

#[test]
fn of_python() {
    let mut command = Command::new(installed("python/bin/python"));
    command.arg(file("python_drivers.py"));
    is_fine(command);
}

#[test]
fn of_node() {
    let mut command = Command::new("node");
    command.arg(file("node_drivers.js")).env("NODE_PATH", installed("node/node_modules"));
    is_fine(command);
}
