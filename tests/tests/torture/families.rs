//! The graph, made while it runs: families of tasks of many shapes, tied to families that came before.
//!
//! Edges lead from older families to younger ones, and within a family from lower to higher numbers, so there is no cycle.
//! The id of a task is its family's number, a point, and its own.

use serde_json::{Value, json};
use taskq_tests::random::Random;

use crate::book::{On, Spec};

/// Actions without limits, where nearly all tasks are.
pub const PLAIN: [&str; 4] = ["p0", "p1", "p2", "p3"];
/// Actions that flow control has a say in.
pub const FLOW: [&str; 6] = ["few", "rate", "turns", "merge", "slow", "beat"];
pub const GROUPS: u64 = 6;
pub const WORKGROUPS: u64 = 3;
/// At most so many of a group at once in the action `turns`.
pub const PER_GROUP: i64 = 2;
/// Grants a second of the action `rate`.
pub const RATE: i64 = 60;

pub struct Family {
    pub tasks: Vec<Spec>,
    /// Its tasks may be replaced, retried, started over, reset and deleted.
    pub loose: bool,
    /// Nothing but ids tells the tasks apart: one call of `insert_many` can insert them.
    pub alike: bool,
}

/// Makes a family of a random shape. `recent` are tasks of older families.
pub fn random(number: u64, random: &mut Random, recent: &[String], large: u64) -> Family {
    match random.below(100) {
        0..40 => alike(number, random, large),
        40..50 => fan(number, random, large),
        50..62 => layers(number, random, recent),
        62..74 => flow(number, random),
        74..80 => parents(number, random),
        80..86 => later(number, random),
        86..95 => loose(number, random),
        _ => fleeting(number, random),
    }
}

/// A few tasks, for the transaction of a return.
pub fn small(number: u64, random: &mut Random) -> Family {
    let mut tasks = many(number, 1 + random.below(4), random);
    if let Some((last, others)) = tasks.split_last_mut() {
        last.after = others.iter().map(|task| (task.id.clone(), On::Settled)).collect();
    }
    Family::of(tasks)
}

impl Family {
    fn of(tasks: Vec<Spec>) -> Family {
        Family { tasks, loose: false, alike: false }
    }
}

fn many(family: u64, count: u64, random: &mut Random) -> Vec<Spec> {
    let action = *random.pick(&PLAIN);
    let task =
        |number| Spec { id: format!("{family}.{number}"), action: action.to_owned(), ..Spec::default() };
    (0..count).map(task).collect()
}

fn condition(random: &mut Random) -> On {
    match random.below(10) {
        0 => On::Aborted,
        1..=5 => On::Settled,
        _ => On::Completed,
    }
}

/// Very many that wait for nothing.
fn alike(family: u64, random: &mut Random, large: u64) -> Family {
    let count = 100 + random.below(large);
    Family { tasks: many(family, count, random), loose: false, alike: true }
}

/// One, then up to thousands after it, then one or two after all of these.
fn fan(family: u64, random: &mut Random, large: u64) -> Family {
    let part = 1 + random.below(8);
    let width = 10 + random.below(large / part);
    let mut tasks = many(family, width + 3, random);
    let on = *random.pick(&[On::Settled, On::Completed]);
    let first = tasks[0].id.clone();
    let middle: Vec<_> = tasks[1..=width as usize].iter().map(|task| task.id.clone()).collect();
    for task in &mut tasks[1..=width as usize] {
        task.after.push((first.clone(), On::Settled));
    }
    for task in &mut tasks[width as usize + 1..] {
        task.after = middle.iter().map(|id| (id.clone(), on)).collect();
        task.spontaneous = random.chance(50);
    }
    Family::of(tasks)
}

/// Diamonds and worse: many short edges, a few long ones, and some from older families; all conditions, some tasks
/// spontaneous, some given back and tried again.
fn layers(family: u64, random: &mut Random, recent: &[String]) -> Family {
    let mut tasks = many(family, 20 + random.below(300), random);
    for number in 0..tasks.len() {
        for _ in 0..random.below(4).min(number as u64) {
            let reach = if random.chance(80) { 25 } else { number as u64 };
            let after = number - 1 - random.below(reach.min(number as u64)) as usize;
            let id = tasks[after].id.clone();
            if tasks[number].after.iter().all(|(other, _)| *other != id) {
                tasks[number].after.push((id, condition(random)));
            }
        }
        if !recent.is_empty() && random.chance(10) {
            tasks[number].after.push((random.pick(recent).clone(), On::Settled));
        }
        let task = &mut tasks[number];
        task.action = (*random.pick(&PLAIN)).to_owned();
        task.priority = random.below(3);
        task.spontaneous = random.chance(12);
        task.body = "mixed".to_owned();
        task.max_tries = random.chance(50).then(|| 1 + random.below(4) as i32);
    }
    Family::of(tasks)
}

/// What flow control has a say in: limits, rates, turns of groups, merge keys, workgroups.
fn flow(family: u64, random: &mut Random) -> Family {
    let mut tasks = many(family, 5 + random.below(40), random);
    for task in &mut tasks {
        task.action = (*random.pick(&FLOW[..5])).to_owned();
        task.body = "mixed".to_owned();
        match task.action.as_str() {
            "turns" => task.group = Some(format!("g{}", random.below(GROUPS))),
            "few" => task.group = random.chance(30).then(|| format!("g{}", random.below(GROUPS))),
            "merge" => task.merge_key = Some(format!("k{}", random.below(8))),
            "slow" => task.workgroup = Some(format!("w{}", random.below(WORKGROUPS))),
            _ => {}
        }
    }
    Family::of(tasks)
}

/// Tasks whose workers insert children with their return, and one that waits for all.
fn parents(family: u64, random: &mut Random) -> Family {
    let mut tasks = many(family, 4 + random.below(30), random);
    let on = *random.pick(&[On::Settled, On::Completed]);
    if let Some((last, parents)) = tasks.split_last_mut() {
        for parent in &mut *parents {
            parent.body = "parent".to_owned();
        }
        last.after = parents.iter().map(|parent| (parent.id.clone(), on)).collect();
    }
    Family::of(tasks)
}

/// Tasks whose time has yet to come.
fn later(family: u64, random: &mut Random) -> Family {
    let mut tasks = many(family, 20 + random.below(200), random);
    for task in &mut tasks {
        task.delay = 1 + random.below(4000);
        task.priority = random.below(2);
    }
    Family::of(tasks)
}

/// What others do everything to that can be done to a task.
fn loose(family: u64, random: &mut Random) -> Family {
    let mut tasks = layers(family, random, &[]).tasks;
    tasks.truncate(60);
    for task in &mut tasks {
        task.group = Some(format!("loose-{family}"));
    }
    Family { tasks, loose: true, alike: false }
}

/// Tasks that are not kept when they have settled.
fn fleeting(family: u64, random: &mut Random) -> Family {
    let mut tasks = many(family, 20 + random.below(200), random);
    for number in 1..tasks.len() {
        tasks[number].fleeting = true;
        if random.chance(30) {
            let id = tasks[number - 1].id.clone();
            tasks[number].after.push((id, On::Settled));
        }
    }
    Family::of(tasks)
}

/// The array for `insert_tasks`.
pub fn json(tasks: &[Spec]) -> Value {
    tasks.iter().map(element).collect()
}

fn element(task: &Spec) -> Value {
    let after: Vec<Value> =
        task.after.iter().map(|(id, on)| json!({"id": id, "condition": on.name()})).collect();
    json!({
        "id": task.id,
        "action": task.action,
        "body": if task.body.is_empty() { Value::Null } else { json!(task.body) },
        "priority": task.priority,
        "group_id": task.group,
        "merge_key": task.merge_key,
        "workgroup": task.workgroup,
        "max_tries": task.max_tries,
        "spontaneous": task.spontaneous,
        "delay": (task.delay > 0).then(|| format!("{} milliseconds", task.delay)),
        "retention": task.fleeting.then_some("0"),
        "depends_on": after,
    })
}
