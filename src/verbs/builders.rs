//! `chain`, `parallel`, `chord` and `map`: arrays for `insert_tasks`, built from tasks, from bodies and from each other.
//!
//! A *block* is a task or an array of tasks. Its entries are the tasks that wait for no task in it, its exits those
//! that no task in it waits for. Builders only ever add dependencies between exits and entries; tasks without
//! an id get one, so that they can be referred to. Values other than ids and dependencies pass through as the
//! text they are.

use std::collections::{BTreeMap, HashSet};

use pgrx::datum::AnyElement;
use pgrx::prelude::*;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::error::{Refusal, Result, or_throw, required};
use crate::input::{self, Element, Problem};
use crate::pg::json::JsonText;
use crate::pg::session::check_for_interrupts;
use crate::verbs::insert::json;

/// `taskq._chain(blocks jsonb) -> jsonb`, the body of `taskq.chain(VARIADIC blocks jsonb[])`
#[pg_extern(sql = "")]
fn taskq_chain(blocks: Option<AnyElement>) -> Option<AnyElement> {
    or_throw(parse_blocks(blocks).and_then(chain).and_then(|block| render(&block)))
}

/// `taskq._parallel(blocks jsonb) -> jsonb`, the body of `taskq.parallel(VARIADIC blocks jsonb[])`
#[pg_extern(sql = "")]
fn taskq_parallel(blocks: Option<AnyElement>) -> Option<AnyElement> {
    or_throw(parse_blocks(blocks).and_then(|blocks| render(&blocks.concat())))
}

/// `taskq.chord(header jsonb, callback jsonb) -> jsonb`
#[pg_extern(sql = "")]
fn taskq_chord(header: Option<AnyElement>, callback: Option<AnyElement>) -> Option<AnyElement> {
    or_throw((|| {
        let header = parse_block(1, &json("header", header)?)?;
        let callback = parse_block(2, &json("callback", callback)?)?;
        render(&chain(vec![header, callback])?)
    })())
}

/// `taskq.map(action text, bodies jsonb) -> jsonb`
#[pg_extern(sql = "")]
fn taskq_map(action: Option<&str>, bodies: Option<AnyElement>) -> Option<AnyElement> {
    or_throw((|| {
        let action = required("action", action)?;
        let bodies = json("bodies", bodies)?;
        let tasks: Vec<Task> = input::bodies("bodies", &bodies)?
            .into_iter()
            .map(|body| {
                let mut task = Task::new();
                task.insert("id".to_owned(), raw(&new_id()));
                task.insert("action".to_owned(), raw(&action));
                task.insert("body".to_owned(), body.to_owned());
                task
            })
            .collect();
        render(&tasks)
    })())
}

/// The keys of a task with their values as they were written.
type Task = BTreeMap<String, Box<RawValue>>;

fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

fn raw<T: serde::Serialize>(value: &T) -> Box<RawValue> {
    // Texts and arrays of values that were JSON before cannot fail to be JSON.
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn parse_blocks(blocks: Option<AnyElement>) -> Result<Vec<Vec<Task>>> {
    let text = json("blocks", blocks)?;
    let blocks: Vec<&RawValue> = serde_json::from_str(&text).map_err(|_| not_a_block(1))?;
    blocks.iter().enumerate().map(|(i, block)| parse_block(i + 1, block.get())).collect()
}

/// A task, or an array of tasks. Each gets an id if it has none.
fn parse_block(n: usize, json: &str) -> Result<Vec<Task>> {
    let mut tasks: Vec<Task> = if json.starts_with('{') {
        vec![serde_json::from_str(json).map_err(|_| not_a_block(n))?]
    } else {
        serde_json::from_str(json).map_err(|_| not_a_block(n))?
    };
    for task in &mut tasks {
        match task.get("id").map(|id| serde_json::from_str::<Option<String>>(id.get())) {
            Some(Err(_)) => {
                let hint = "Give a string, or leave it out to have one made.";
                return Err(Element::Task.malformed(
                    n,
                    None,
                    &Problem::new("key \"id\" is not a string", hint),
                ));
            }
            Some(Ok(Some(_))) => {}
            Some(Ok(None)) | None => {
                task.insert("id".to_owned(), raw(&new_id()));
            }
        }
        for key in ["depends_on", "to_signal_after"] {
            references(task, key).map_err(|()| {
                let wanted = "an array of ids or of {\"id\", \"condition\"}";
                let problem =
                    Problem::new(format!("key \"{key}\" is not {wanted}"), format!("Give {wanted}."));
                Element::Task.malformed(n, id_of(task).as_deref(), &problem)
            })?;
        }
    }
    Ok(tasks)
}

fn not_a_block(n: usize) -> Refusal {
    let what = "a block is a task (a JSON object) or an array of tasks";
    Element::Task.malformed(n, None, &Problem::new(what, "Give each block as one of the two."))
}

fn id_of(task: &Task) -> Option<String> {
    serde_json::from_str::<Option<String>>(task.get("id")?.get()).ok().flatten()
}

/// The ids that a key of a task refers to.
fn references(task: &Task, key: &str) -> std::result::Result<Vec<String>, ()> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Reference {
        Id(String),
        Object { id: String },
    }
    let Some(list) = task.get(key) else { return Ok(Vec::new()) };
    let list: Option<Vec<Reference>> = serde_json::from_str(list.get()).map_err(|_| ())?;
    Ok(list
        .unwrap_or_default()
        .into_iter()
        .map(|reference| match reference {
            Reference::Id(id) | Reference::Object { id } => id,
        })
        .collect())
}

/// The same of a task whose block was read: its lists have been found to be right.
fn referred(task: &Task, key: &str) -> Vec<String> {
    references(task, key).unwrap_or_default()
}

/// Ids of the tasks of a block that wait for no task in it, and of those that no task in it waits for.
fn ends(block: &[Task]) -> (HashSet<String>, Vec<String>) {
    let ids: Vec<String> = block.iter().filter_map(id_of).collect();
    let inside: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let (mut waits, mut waited_for) = (HashSet::new(), HashSet::new());
    for (task, id) in block.iter().zip(&ids) {
        for other in referred(task, "depends_on").into_iter().filter(|o| inside.contains(o.as_str())) {
            waits.insert(id.clone());
            waited_for.insert(other);
        }
        for other in referred(task, "to_signal_after").into_iter().filter(|o| inside.contains(o.as_str())) {
            waited_for.insert(id.clone());
            waits.insert(other);
        }
    }
    let entries = ids.iter().filter(|id| !waits.contains(*id)).cloned().collect();
    let exits = ids.iter().filter(|id| !waited_for.contains(*id)).cloned().collect();
    (entries, exits)
}

/// How many dependencies a call adds at most, and how many bytes their ids may have together. Between two blocks each entry of the
/// second waits for each exit of the first: two short arguments can make a product that no memory holds.
const MOST_ADDED: usize = 1_000_000;
const MOST_ADDED_BYTES: usize = 100_000_000;

/// Each block after the one before it: its entries wait for the exits of that. Empty blocks are passed over.
fn chain(blocks: Vec<Vec<Task>>) -> Result<Vec<Task>> {
    let mut all: Vec<Task> = Vec::new();
    let mut before: Vec<String> = Vec::new();
    let (mut added, mut bytes) = (0_usize, 0_usize);
    for mut block in blocks.into_iter().filter(|block| !block.is_empty()) {
        check_for_interrupts();
        let (entries, exits) = ends(&block);
        if !before.is_empty() {
            let length: usize = before.iter().map(String::len).sum();
            added = added.saturating_add(before.len().saturating_mul(entries.len()));
            bytes = bytes.saturating_add(length.saturating_mul(entries.len()));
            if added > MOST_ADDED || bytes > MOST_ADDED_BYTES {
                return Err(too_many(before.len(), entries.len()));
            }
            for task in &mut block {
                check_for_interrupts();
                if id_of(task).is_some_and(|id| entries.contains(&id)) {
                    add_dependencies(task, &before);
                }
            }
        }
        before = exits;
        all.extend(block);
    }
    Ok(all)
}

fn too_many(exits: usize, entries: usize) -> Refusal {
    Refusal::too_large(
        "too many dependencies between two blocks",
        &format!(
            "Each of {entries} tasks would wait for each of {exits}; a call adds {MOST_ADDED} dependencies, with ids of \
             {MOST_ADDED_BYTES} bytes, at most."
        ),
        "Put a block of one spontaneous task between the two: it waits for all of the first, and all of the second for it.",
    )
}

fn add_dependencies(task: &mut Task, after: &[String]) {
    let named: HashSet<String> = referred(task, "depends_on").into_iter().collect();
    let mut list: Vec<Box<RawValue>> = task
        .get("depends_on")
        .and_then(|list| serde_json::from_str::<Option<_>>(list.get()).ok().flatten())
        .unwrap_or_default();
    list.extend(after.iter().filter(|id| !named.contains(*id)).map(raw));
    task.insert("depends_on".to_owned(), raw(&list));
}

fn render(block: &[Task]) -> Result<Option<AnyElement>> {
    let text = serde_json::to_string(block).map_err(|_| not_a_block(1))?;
    Ok(JsonText(text).into_result())
}
