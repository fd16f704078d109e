//! The ledger: what clients asked of the queue and what they were told, in files outside of the database.
//!
//! A line is a call, or a transaction of several: when it was sent, when its answer came, and how that went. Each client has
//! a file of its own. A call has a name that no other has; grants carry it as their actor, returns and cancels as their
//! status, so that everything in the database can be traced to the call that did it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Microseconds since 1970. Server and clients go by the same clock, that of the machine.
pub type Time = i64;

pub fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_micros() as Time
}

/// What is known of a call's effects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fate {
    /// The commit was acknowledged: all of it has happened.
    Done,
    /// The server refused it, or it was rolled back, or its COMMIT was never sent: nothing has happened.
    Refused,
    /// The connection broke before the answer came: all of it has happened, or nothing.
    Lost,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub name: String,
    pub kind: String,
    pub sent: Time,
    pub received: Time,
    pub fate: Fate,
    /// Why it was refused or lost.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deeds: Vec<Deed>,
}

/// What a call does, or was to do, to one task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Deed {
    Insert(Spec),
    Grant {
        task: String,
        token: Uuid,
        try_: i32,
        deadline: Time,
    },
    /// `got` is the code that the task got, or the SQLSTATE of a refusal; empty if the answer never came.
    Return {
        task: String,
        token: Uuid,
        code: String,
        got: String,
    },
    /// `owned` is unknown if the answer never came. `lease` is in microseconds.
    Extend {
        task: String,
        token: Uuid,
        lease: Time,
        owned: Option<bool>,
    },
    Cancel {
        task: String,
    },
    /// A client was told that it has ended so.
    Seen {
        task: String,
        code: String,
    },
    /// `run` was made to wait for `after`.
    Edge {
        after: String,
        run: String,
        on: On,
    },
    /// Anything may have happened to any task of this family: replaced, retried, reset, deleted.
    Upset {
        family: u64,
    },
    /// A limit was set; its name says of what.
    Limit {
        of: String,
        most: i64,
    },
}

/// The condition of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum On {
    #[serde(rename = "c")]
    Completed,
    #[serde(rename = "s")]
    Settled,
    #[serde(rename = "a")]
    Aborted,
}

impl On {
    pub fn name(self) -> &'static str {
        match self {
            On::Completed => "completed",
            On::Settled => "settled",
            On::Aborted => "aborted",
        }
    }

    /// Whether an end with this code is the right one.
    pub fn met_by(self, code: &str) -> bool {
        self == On::Settled || self.name() == code
    }
}

/// A task as it was inserted: what the audit has to know of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    pub id: String,
    pub action: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workgroup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tries: Option<i32>,
    #[serde(skip_serializing_if = "is_false")]
    pub spontaneous: bool,
    /// How long it is put off, in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<(String, On)>,
    /// It is not kept once it is settled.
    #[serde(skip_serializing_if = "is_false")]
    pub fleeting: bool,
    /// Dependents of this task, its parent, wait for it as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_of: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// One client's file.
pub struct Book {
    file: BufWriter<File>,
}

impl Book {
    pub fn create(folder: &Path, client: &str) -> Book {
        let file = File::create(folder.join(format!("{client}.calls"))).expect("a file for the ledger");
        Book { file: BufWriter::new(file) }
    }

    /// Writes the call down; the line has left this process when the function comes back.
    pub fn write(&mut self, call: &Call) {
        serde_json::to_writer(&mut self.file, call).expect("a line for the ledger");
        self.file.write_all(b"\n").and_then(|()| self.file.flush()).expect("the ledger is written");
    }
}

/// Hands every line of every file to `take`.
pub fn read(folder: &Path, mut take: impl FnMut(Call)) {
    for entry in fs::read_dir(folder).expect("the ledger's folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "calls") {
            for line in BufReader::new(File::open(&path).expect("a file of the ledger")).lines() {
                let line = line.expect("a line of the ledger");
                take(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")));
            }
        }
    }
}

/// The family of a task: what stands before the first point of its id. Runs of schedules have none.
pub fn family(id: &str) -> Option<u64> {
    id.split_once('.').and_then(|(family, _)| family.parse().ok())
}
