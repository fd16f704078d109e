//! Inserts families, as fast as the run wants them, in every way that there is to insert.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::book::{Deed, Fate, Spec};
use crate::client::{Client, Tx};
use crate::families::{self, Family};
use crate::run::Run;

/// So many open tasks are enough work for all workers.
const BACKLOG: i64 = 30_000;

pub fn work(run: &Arc<Run>, number: u64) {
    let mut client = Client::new(run, &format!("producer{number}"), 100 + number);
    while !run.is_calm() {
        let due = run.elapsed().as_secs().saturating_mul(run.pace) + 2000;
        if run.inserted.load(Ordering::Relaxed) > due || run.open.load(Ordering::Relaxed) > BACKLOG {
            thread::sleep(Duration::from_millis(30));
            continue;
        }
        insert(&mut client);
    }
}

fn insert(client: &mut Client) {
    let family = next(client);
    let (number, tasks) = family;
    let deeds = inserts(&tasks.tasks);
    let how = client.random.below(10);
    // Only clients that make several calls in a transaction may meet another one in a deadlock: the books tell which.
    let kind = if in_parts(&tasks, how) { "insert in parts" } else { "insert" };
    let mut outcome = client.call(kind, deeds.clone(), |tx, _| put(tx, &tasks, how));
    // A producer that does not know asks again: an id that is there by now is refused.
    while outcome.fate == Fate::Lost || outcome.fate == Fate::Refused && outcome.state != "TQ002" {
        if client.run.is_calm() || client.random.chance(30) {
            return;
        }
        outcome = client.call("insert again", deeds.clone(), |tx, _| put(tx, &tasks, 0));
    }
    known(&client.run, number, &tasks);
}

/// The next family, and its number.
pub fn next(client: &mut Client) -> (u64, Family) {
    let number = client.run.families.fetch_add(1, Ordering::Relaxed);
    let recent: Vec<String> = client.run.recent.lock().unwrap().iter().cloned().collect();
    let large = if client.run.seconds < 120 { 600 } else { 6000 };
    (number, families::random(number, &mut client.random, &recent, large))
}

/// Tells the others of a family that is there.
pub fn known(run: &Run, number: u64, family: &Family) {
    run.inserted.fetch_add(family.tasks.len() as u64, Ordering::Relaxed);
    if family.loose {
        let mut loose = run.loose.lock().unwrap();
        loose.push_back((number, family.tasks.len()));
        if loose.len() > 12 {
            loose.pop_front();
        }
    } else {
        let mut recent = run.recent.lock().unwrap();
        let kept = family.tasks.iter().filter(|task| !task.fleeting).take(3);
        recent.extend(kept.map(|task| task.id.clone()));
        while recent.len() > 60 {
            recent.pop_front();
        }
    }
}

pub fn inserts(tasks: &[Spec]) -> Vec<Deed> {
    tasks.iter().cloned().map(Deed::Insert).collect()
}

fn in_parts(family: &Family, how: u64) -> bool {
    how == 0 && !family.alike && family.tasks.len() >= 4
}

/// Inserts a family with one call, or with several in a transaction.
pub fn put(tx: &mut Tx, family: &Family, how: u64) -> Result<(), postgres::Error> {
    const TASKS: &str = "SELECT count(*) FROM taskq.insert_tasks($1)";
    if family.alike {
        let (ids, bodies): (Vec<_>, Vec<_>) = family.tasks.iter().map(|task| (&task.id, &task.body)).unzip();
        let query = "SELECT count(*) FROM taskq.insert_many($1, $2, $3)";
        return tx.query(query, &[&family.tasks[0].action, &bodies, &ids]).map(drop);
    }
    if !in_parts(family, how) {
        return tx.query(TASKS, &[&families::json(&family.tasks)]).map(drop);
    }
    tx.begin()?;
    for part in family.tasks.chunks(family.tasks.len().div_ceil(3)) {
        tx.query(TASKS, &[&families::json(part)])?;
    }
    tx.commit()
}
