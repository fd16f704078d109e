//! A worker: owns singly and in batches, returns in every way there is, dies and comes back late.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use postgres::{Error, Row};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::book::{Deed, Fate, Spec};
use crate::client::{Client, Outcome, Tx};
use crate::families::{self, FLOW, PLAIN};
use crate::producer;
use crate::run::{Late, Run};

/// A task that this worker holds, as it believes.
#[derive(Clone)]
struct Held {
    task: String,
    token: Uuid,
    action: String,
    body: String,
    /// The call that was granted it.
    actor: String,
}

const BACKLOG: i64 = 6000;

const COLUMNS: &str = "task_id, token, action, body, num_tries, action_deadline";

pub fn work(run: &Arc<Run>, number: u64) {
    let mut worker = Worker { client: Client::new(run, &format!("worker{number}"), 200 + number) };
    while !run.is_over() {
        worker.round();
    }
}

struct Worker {
    client: Client,
}

impl Worker {
    fn round(&mut self) {
        if self.client.random.chance(12) {
            self.return_late();
        }
        // A long backlog is worked off first, mostly.
        let backlog = self.client.run.open.load(Ordering::Relaxed) > BACKLOG && self.client.random.chance(70);
        let actions: Vec<&str> = match self.client.random.below(10) {
            _ if backlog => PLAIN.to_vec(),
            0..5 => PLAIN.to_vec(),
            5..9 => FLOW.to_vec(),
            _ => PLAIN.iter().chain(&FLOW).copied().collect(),
        };
        let flow = actions.contains(&FLOW[0]);
        let most = if flow {
            *self.client.random.pick(&[1, 3, 8])
        } else {
            *self.client.random.pick(&[1, 6, 100, 1000, 2000])
        };
        let most = if backlog { 500 } else { most };
        let (lease, wait) = self.terms();
        let mut held = self.own(&actions, most, lease, wait);
        // Some go on for a while with one call for return and own.
        let mut rounds = self.client.random.below(6);
        while !held.is_empty() && rounds > 0 && self.client.random.chance(60) {
            self.hold(&held);
            held = self.return_and_own(&held, &actions, most, lease);
            rounds -= 1;
        }
        if !held.is_empty() {
            self.hold(&held);
            self.settle(held, lease);
        }
    }

    /// How long a grant lasts, and how long to wait for one, in milliseconds.
    fn terms(&mut self) -> (i64, u64) {
        let lease = match self.client.random.below(100) {
            0..4 => 30,
            4..10 => 400,
            _ => *self.client.random.pick(&[2000, 4000, 6000]),
        };
        (lease, *self.client.random.pick(&[0, 20, 100]))
    }

    fn own(&mut self, actions: &[&str], most: i32, lease: i64, wait: u64) -> Vec<Held> {
        let wait = if wait == 0 { String::new() } else { format!(", wait => '{wait}ms'") };
        let query = format!(
            "SELECT {COLUMNS} FROM taskq.own_tasks($1, $2, $3, lease => '{lease} milliseconds'{wait})"
        );
        let outcome = self.client.call("own", Vec::new(), |tx, name| {
            let rows = tx.query(&query, &[&name, &most, &actions])?;
            Ok(granted(tx, name, &rows))
        });
        outcome.value.unwrap_or_default()
    }

    /// What is held takes time where limits are to be met.
    fn hold(&mut self, held: &[Held]) {
        if held.iter().any(|held| FLOW.contains(&held.action.as_str())) {
            thread::sleep(Duration::from_millis(1 + self.client.random.below(25)));
        }
    }

    fn settle(&mut self, held: Vec<Held>, lease: i64) {
        if self.client.run.is_calm() {
            self.give(held);
            return;
        }
        match self.client.random.below(100) {
            0..4 => self.die(held),
            4..8 if lease < 1000 => {
                thread::sleep(Duration::from_millis(lease as u64 + 10));
                self.give(held);
            }
            8..16 => {
                self.extend(&held);
                self.give(held);
            }
            16..20 => {
                self.report(&held);
                self.give(held);
            }
            20..40 => self.give_with_new_tasks(held),
            _ => self.give(held),
        }
    }

    /// The worker is gone; another one comes with its tokens, later.
    fn die(&mut self, held: Vec<Held>) {
        self.client.run.fault("clients that died between own and return");
        for held in held.into_iter().take(20) {
            self.client.run.bury(Late { task: held.task, token: held.token });
        }
        self.client.vanish();
    }

    fn return_late(&mut self) {
        let some = 1 + self.client.random.below(20) as usize;
        let late: Vec<Late> = {
            let mut all = self.client.run.late.lock().unwrap();
            let some = some.min(all.len());
            all.drain(..some).collect()
        };
        if !late.is_empty() {
            let returns: Vec<_> = late.into_iter().map(|late| (late.task, late.token, "completed")).collect();
            self.return_many(&returns);
        }
    }

    fn extend(&mut self, held: &[Held]) {
        let lease = *self.client.random.pick(&[200, 1500, 5000]);
        let deeds = held
            .iter()
            .map(|held| Deed::Extend {
                task: held.task.clone(),
                token: held.token,
                lease: lease * 1000,
                owned: None,
            })
            .collect();
        let (ids, tokens): (Vec<_>, Vec<_>) = held.iter().map(|held| (&held.task, held.token)).unzip();
        let query =
            format!("SELECT owned FROM taskq.extend_tasks_ownership($1, $2, $3, '{lease} milliseconds')");
        self.client.call("extend", deeds, |tx, _| {
            let rows = tx.query(&query, &[&held[0].actor, &ids, &tokens])?;
            for (deed, row) in tx.deeds.iter_mut().zip(&rows) {
                if let Deed::Extend { owned, .. } = deed {
                    *owned = Some(row.get(0));
                }
            }
            Ok(())
        });
    }

    fn report(&mut self, held: &[Held]) {
        let (task, token) = (&held[0].task, held[0].token);
        let checkpoint = json!({"of": task});
        self.client.call("report", Vec::new(), |tx, _| {
            let query = "SELECT taskq.report_status($1, $2, progress => 0.5, checkpoint => $3)::text";
            tx.query(query, &[task, &token, &checkpoint]).map(drop)
        });
    }

    /// How a try ends.
    fn code(&mut self, held: &Held) -> &'static str {
        let bad = if held.body == "mixed" { 12 } else { 1 };
        match self.client.random.below(200) {
            roll if roll < bad => "aborted",
            roll if roll < bad * 2 => "pending",
            _ => "completed",
        }
    }

    /// Returns all, in one of the ways; what is refused for no fault of its own is tried again, once.
    fn give(&mut self, held: Vec<Held>) {
        let parents = held.iter().any(|held| held.body == "parent");
        if held.len() <= 6 && self.client.random.chance(60) || parents && held.len() <= 40 {
            for one in held {
                self.give_one(&one);
            }
            return;
        }
        let returns: Vec<_> =
            held.iter().map(|held| (held.task.clone(), held.token, self.code(held))).collect();
        let outcome = self.return_many(&returns);
        if outcome.fate != Fate::Done {
            self.return_many(&returns);
        }
    }

    fn give_one(&mut self, held: &Held) {
        let code = self.code(held);
        let deed = intention(&held.task, held.token, code);
        let children =
            if held.body == "parent" && code == "completed" { self.children(held) } else { Vec::new() };
        let block = self.client.random.chance(50);
        let mut deeds = vec![deed];
        deeds.extend(children.iter().cloned().map(|mut child| {
            child.child_of = block.then(|| held.task.clone());
            Deed::Insert(child)
        }));
        for _ in 0..2 {
            let outcome = self
                .client
                .call("return", deeds.clone(), |tx, name| give_one(tx, name, held, code, &children, block));
            if outcome.fate != Fate::Lost && ["", "TQ001", "TQ003"].contains(&outcome.state.as_str()) {
                return;
            }
        }
    }

    fn children(&mut self, held: &Held) -> Vec<Spec> {
        let count = 1 + self.client.random.below(4);
        let child = |number| Spec {
            id: format!("{}/{number}", held.task),
            action: held.action.clone(),
            ..Spec::default()
        };
        (0..count).map(child).collect()
    }

    /// A return and an insertion in one transaction, which may come to nothing: both or neither.
    fn give_with_new_tasks(&mut self, held: Vec<Held>) {
        let (one, others) = held.split_first().expect("the worker holds something");
        let number = self.client.run.families.fetch_add(1, Ordering::Relaxed);
        let family = families::small(number, &mut self.client.random);
        let mut deeds = vec![intention(&one.task, one.token, "completed")];
        deeds.extend(producer::inserts(&family.tasks));
        let undo = self.client.random.chance(25);
        let outcome = self.client.call("return and insert", deeds, |tx, name| {
            tx.begin()?;
            give_one(tx, name, one, "completed", &[], false)?;
            tx.query("SELECT count(*) FROM taskq.insert_tasks($1)", &[&families::json(&family.tasks)])?;
            if undo { tx.roll_back() } else { tx.commit() }
        });
        if outcome.fate == Fate::Done {
            producer::known(&self.client.run, number, &family);
        }
        if undo {
            self.give_one(one);
        }
        if !others.is_empty() {
            self.give(others.to_vec());
        }
    }

    fn return_many(&mut self, returns: &[(String, Uuid, &'static str)]) -> Outcome<()> {
        let deeds = returns.iter().map(|(task, token, code)| intention(task, *token, code)).collect();
        self.client.call("return many", deeds, |tx, name| {
            let query = "SELECT status_code::text, sqlstate FROM taskq.return_tasks($1::jsonb)";
            let rows = tx.query(query, &[&array(returns, name)])?;
            for (deed, row) in tx.deeds.iter_mut().zip(&rows) {
                let (code, state): (Option<String>, Option<String>) = (row.get(0), row.get(1));
                told(deed, code.or(state));
            }
            Ok(())
        })
    }

    fn return_and_own(&mut self, held: &[Held], actions: &[&str], most: i32, lease: i64) -> Vec<Held> {
        let returns: Vec<_> =
            held.iter().map(|held| (held.task.clone(), held.token, self.code(held))).collect();
        let deeds = returns.iter().map(|(task, token, code)| intention(task, *token, code)).collect();
        let query = format!(
            "SELECT {COLUMNS}, sqlstate FROM taskq.return_and_own_tasks($1, $2::jsonb, $3, $4, '{lease} milliseconds')"
        );
        let outcome = self.client.call("return and own", deeds, |tx, name| {
            let rows = tx.query(&query, &[&name, &array(&returns, name), &most, &actions])?;
            let (refused, rows): (Vec<Row>, Vec<Row>) =
                rows.into_iter().partition(|row| row.get::<_, Option<String>>("sqlstate").is_some());
            let mut refused = refused.iter().peekable();
            for deed in &mut tx.deeds {
                // Refusals come in the order given.
                let task = match deed {
                    Deed::Return { task, .. } => task.clone(),
                    _ => continue,
                };
                let state = refused.next_if(|row| row.get::<_, &str>("task_id") == task);
                told(deed, Some(state.map_or_else(|| "accepted".to_owned(), |row| row.get("sqlstate"))));
            }
            Ok(granted(tx, name, &rows))
        });
        match (outcome.fate, outcome.value) {
            (Fate::Done, Some(granted)) => granted,
            _ => {
                self.give(held.to_vec());
                Vec::new()
            }
        }
    }
}

fn intention(task: &str, token: Uuid, code: &str) -> Deed {
    Deed::Return { task: task.to_owned(), token, code: code.to_owned(), got: String::new() }
}

fn told(deed: &mut Deed, what: Option<String>) {
    if let Deed::Return { got, .. } = deed {
        *got = what.unwrap_or_default();
    }
}

fn give_one(
    tx: &mut Tx,
    name: &str,
    held: &Held,
    code: &str,
    children: &[Spec],
    block: bool,
) -> Result<(), Error> {
    let children = (!children.is_empty()).then(|| families::json(children));
    let (retry, delay) = (
        if code == "pending" { "'0'" } else { "NULL" },
        if held.action == "slow" && code == "pending" { "'80 ms'" } else { "NULL" },
    );
    let query = format!(
        "SELECT taskq.return_task($1, $2, $3, $4, children => $5, children_block => $6, retry_after => {retry}, \
                                  delay_workgroup => {delay})::text"
    );
    let block = block && children.is_some();
    let row = tx.query_one(&query, &[&held.task, &held.token, &code, &name, &children, &block])?;
    told(&mut tx.deeds[0], row.get(0));
    Ok(())
}

fn array(returns: &[(String, Uuid, &'static str)], name: &str) -> Value {
    let element = |(task, token, code): &(String, Uuid, &'static str)| {
        let mut element = json!({"task_id": task, "token": token, "status_code": code, "status": name});
        if *code == "pending" {
            element["retry_after"] = json!("0.05 seconds");
        }
        element
    };
    returns.iter().map(element).collect()
}

/// The tasks of a grant; it goes into the ledger.
fn granted(tx: &mut Tx, name: &str, rows: &[Row]) -> Vec<Held> {
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let deadline: chrono::DateTime<chrono::Utc> = row.get("action_deadline");
        let held = Held {
            task: row.get("task_id"),
            token: row.get("token"),
            action: row.get("action"),
            body: row.get::<_, Option<String>>("body").unwrap_or_default(),
            actor: name.to_owned(),
        };
        tx.deeds.push(Deed::Grant {
            task: held.task.clone(),
            token: held.token,
            try_: row.get("num_tries"),
            deadline: deadline.timestamp_micros(),
        });
        all.push(held);
    }
    all
}
