//! Random arrays with unique keys beside random stored tasks come to what the model says ([`unique_model`](crate::unique_model)).

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Session, sqlstate};

use crate::unique_model::{
    ABORTED, BLOCKED, COMPLETED, Call, Element, IN_PROGRESS, Outcome, READY, Refused, SCHEDULED, Slot, Task,
    Unique, World, name, run,
};

const KEYS: [&str; 3] = ["k", "l", "m"];
const STATES: [(&str, i16); 7] = [
    ("blocked", BLOCKED),
    ("scheduled", SCHEDULED),
    ("ready", READY),
    ("in-progress", IN_PROGRESS),
    ("completed", COMPLETED),
    ("aborted", ABORTED),
    ("pending", BLOCKED | SCHEDULED | READY),
];
const CONDITIONS: [&str; 3] = ["completed", "settled", "aborted"];

fn unique(random: &mut Random) -> Unique {
    let on_conflict = *random.pick(&["skip", "skip", "replace", "replace", "error"]);
    let period = random.chance(15);
    let states = match random.below(4) {
        0 | 1 if period => 1 + 2 + 4 + 8 + 16,
        0 | 1 => 1 + 2 + 4 + 8,
        _ => (0..=random.below(3)).fold(0, |all, _| all | random.pick(&STATES).1),
    };
    let key = (*random.pick(&KEYS)).to_owned();
    Unique { key, states, on_conflict, period, max_wait: on_conflict == "replace" && random.chance(30) }
}

/// An id of a stored task, or of none.
fn id(random: &mut Random) -> String {
    if random.chance(40) { format!("s{}", random.below(6)) } else { format!("n{}", random.below(8)) }
}

fn references(random: &mut Random, chance: u64) -> Vec<(String, &'static str)> {
    let mut all: Vec<(String, &str)> = Vec::new();
    while random.chance(chance) {
        let id = id(random);
        if all.iter().all(|(other, _)| *other != id) {
            all.push((id, *random.pick::<&str>(&CONDITIONS)));
        }
    }
    all
}

pub fn array(random: &mut Random, error: u64) -> Vec<Element> {
    let element = |random: &mut Random| Element {
        id: if random.chance(80) { Some(id(random)) } else { None },
        unique: if random.chance(75) { Some(unique(random)) } else { None },
        delay: random.chance(15),
        spontaneous: random.chance(8),
        signal: false,
        depends_on: references(random, 22),
        to_signal_after: references(random, 8),
    };
    let mut all: Vec<Element> = Vec::new();
    for _ in 0..1 + random.below(7) {
        let mut one = element(random);
        one.signal = !one.spontaneous && random.chance(5);
        one.delay &= !one.signal;
        if let Some(unique) =
            one.unique.as_mut().filter(|u| u.on_conflict == "error" && !random.chance(error))
        {
            unique.on_conflict = "skip";
        }
        // Most arrays are to be inserted.
        if !random.chance(error) && all.iter().any(|other| other.id.is_some() && other.id == one.id) {
            one.id = None;
        }
        all.push(one);
    }
    all
}

pub fn as_json(elements: &[Element]) -> Value {
    let one = |element: &Element| {
        let references = |all: &[(String, &str)]| -> Vec<Value> {
            all.iter().map(|(id, condition)| json!({"id": id, "condition": condition})).collect()
        };
        let unique = element.unique.as_ref().map(|unique| {
            let single = STATES[..6].iter().filter(|(_, bit)| unique.states & bit != 0);
            let states: Vec<&str> = single.map(|(name, _)| *name).collect();
            let period = unique.period.then_some("1 hour");
            let max_wait = unique.max_wait.then_some("1 microsecond");
            let all = json!({"key": unique.key, "states": states, "on_conflict": unique.on_conflict, "period": period, "max_wait": max_wait});
            Value::from_iter(all.as_object().unwrap().clone().into_iter().filter(|(_, value)| !value.is_null()))
        });
        json!({
            "id": element.id, "action": "a", "delay": element.delay.then_some("1 hour"), "unique_by": unique,
            "spontaneous": element.spontaneous, "signal": element.signal,
            "depends_on": references(&element.depends_on), "to_signal_after": references(&element.to_signal_after),
        })
    };
    elements.iter().map(one).collect()
}

/// Some tasks in all states, that hold and have held keys; none depends on another of them.
pub fn scene(session: &mut Session, random: &mut Random) {
    session.run("SELECT taskq.insert_task('z', 'z')");
    let mut held = Vec::new();
    for _ in 0..4 + random.below(14) {
        match random.below(8) {
            0..4 => {
                let mut one = array(random, 0).remove(0);
                one.id = Some(format!("s{}", random.below(6)));
                one.to_signal_after.clear();
                one.depends_on = if random.chance(20) { vec![("z".to_owned(), "settled")] } else { vec![] };
                let mode = *random.pick(&["error", "replace", "skip"]);
                // What is refused is not there.
                let call = "SELECT FROM taskq.insert_tasks_report($1, on_conflict => $2)";
                _ = session.query(call, &[&as_json(&[one]), &mode]);
            }
            4 | 5 => held.extend(session.own("w", 1, &["a"]).unwrap()),
            6 => _ = session.cancel(&[&format!("s{}", random.below(6))]),
            _ => {
                if let Some(grant) = held.pop() {
                    let code = *random.pick(&["pending", "completed", "aborted"]);
                    _ = session.give_with(&grant.task_id, grant.token, code, "");
                }
            }
        }
    }
}

/// What is stored, for the model.
fn look(session: &mut Session) -> World {
    let tasks = "SELECT t.id, v.state, t.unique_key, t.unique_states, t.unique_until IS NOT NULL,
                        coalesce(t.unique_until <= taskq.clock(), false), t.task_no
                   FROM taskq.task t JOIN taskq.tasks v ON v.id = t.id";
    let (mut world, mut places) = (World::default(), BTreeMap::new());
    for row in session.query(tasks, &[]).unwrap() {
        let state: String = row.get(1);
        let (_, state) = STATES.iter().find(|(name, _)| *name == state).unwrap();
        let key = row.get::<_, Option<String>>(2).map(|key| (key, row.get(3), row.get(4), row.get(5)));
        places.insert(row.get::<_, i64>(6), world.tasks.len());
        world.tasks.push(Task::stored(row.get(0), *state, key));
    }
    let slots =
        "SELECT key, task_no, behind_no, coalesce(not_before > taskq.clock(), false) FROM taskq.unique_key";
    for row in session.query(slots, &[]).unwrap() {
        let place = |at: usize| row.get::<_, Option<i64>>(at).and_then(|number| places.get(&number).copied());
        let slot = Slot { last: place(1), behind: place(2), put_off: row.get(3), old: true };
        world.slots.insert(row.get(0), slot);
    }
    // Those that wait for a task with their key.
    let edges = "SELECT after_no, run_no FROM taskq.dependency";
    for row in session.query(edges, &[]).unwrap() {
        world.edges.push((places[&row.get(0)], places[&row.get(1)]));
    }
    world
}

/// Ids that were made up, with the names by which the model has them.
pub type Names = BTreeMap<String, String>;

/// What the call says of its elements. The names of what it has made up are added, and begin with this.
pub fn answer(
    session: &mut Session,
    call: &Call,
    begin: &str,
    names: &mut Names,
) -> Result<Vec<String>, String> {
    let query = "SELECT task_id, outcome, existing_id FROM taskq.insert_tasks_report($1, $2, $3)";
    let if_missing = if call.ignore_missing { "ignore" } else { "error" };
    let rows = session
        .query(query, &[&as_json(call.elements), &call.on_conflict, &if_missing])
        .map_err(|error| sqlstate(&error).to_owned())?;
    for (at, row) in rows.iter().enumerate() {
        if call.elements[at].id.is_none() && row.get::<_, &str>(1) != "skipped" {
            names.insert(row.get(0), format!("{begin}{}", name(at, &call.elements[at])));
        }
    }
    let report = |row: &postgres::Row| {
        let existing = row.get::<_, Option<String>>(2).map(|id| named(names, id));
        let words = [named(names, row.get(0)), row.get(1)].into_iter().chain(existing);
        words.collect::<Vec<_>>().join(" ")
    };
    Ok(rows.iter().map(report).collect())
}

fn named(names: &Names, id: String) -> String {
    names.get(&id).cloned().unwrap_or(id)
}

/// What is stored then: tasks (as this expression shows them), dependencies, keys.
pub fn stored(session: &mut Session, names: &Names, task: &str) -> Outcome {
    let rows = session.query(&format!("SELECT id, {task} FROM taskq.tasks"), &[]).unwrap();
    let tasks = rows.iter().map(|row| named(names, row.get(0)) + row.get(1)).collect();
    let rows = session.query("SELECT after, run, condition::text FROM taskq.dependencies", &[]).unwrap();
    let edge = |row: &postgres::Row| {
        format!("{} {} {}", named(names, row.get(0)), row.get::<_, &str>(2), named(names, row.get(1)))
    };
    let edges = rows.iter().map(edge).collect();
    let keys =
        "SELECT k.key, coalesce(t.id, b.id) FROM taskq.unique_key k LEFT JOIN taskq.task t USING (task_no)
                  LEFT JOIN taskq.task b ON b.task_no = k.behind_no WHERE coalesce(t.id, b.id) IS NOT NULL";
    let rows = session.query(keys, &[]).unwrap();
    let keys = rows.iter().map(|row| (row.get(0), named(names, row.get(1)))).collect();
    Outcome { reports: Vec::new(), tasks, edges, keys }
}

/// What the call comes to.
fn outcome(session: &mut Session, call: &Call) -> Result<Outcome, String> {
    let mut names = Names::new();
    let reports = answer(session, call, "", &mut names)?;
    Ok(Outcome { reports, ..stored(session, &names, "''") })
}

fn agree(seed: u64, scenes: u64, arrays: u64) {
    let (db, [mut session]) = Db::connected();
    let (mut random, mut refused) = (Random::new(seed), 0);
    for at in 0..scenes {
        scene(&mut session, &mut random);
        let world = look(&mut session);
        let id = |at: usize| world.tasks[at].id.as_str();
        let before: BTreeSet<String> =
            world.edges.iter().map(|(a, b)| format!("{} settled {}", id(*a), id(*b))).collect();
        for n in 0..arrays {
            let elements = array(&mut random, 6);
            let on_conflict = *random.pick(&["error", "skip", "replace"]);
            let call = Call { elements: &elements, on_conflict, ignore_missing: random.chance(90) };
            // Below a savepoint a call cannot begin anew.
            session.run(if n % 2 == 0 { "BEGIN" } else { "BEGIN; SAVEPOINT s" });
            let (expected, got) = (run(world.clone(), &call), outcome(&mut session, &call));
            let told = || {
                format!(
                    "seed {seed}, scene {at}, array {n}\n{world:#?}\n{} {on_conflict}",
                    as_json(&elements)
                )
            };
            match (expected, got) {
                (Ok(mut expected), Ok(mut got)) => {
                    expected.edges.retain(|edge| !before.contains(edge));
                    got.edges.retain(|edge| !before.contains(edge));
                    assert_eq!(got.reports, expected.reports, "{}", told());
                    assert_eq!(got, expected, "{}", told());
                    if n % 16 == 0 {
                        assert_eq!(session.broken(), Vec::<String>::new(), "{}", told());
                    }
                }
                (Err(Refused(reason)), Err(code)) => {
                    // Which of several reasons is told is not said anywhere.
                    assert!(code.starts_with("TQ00"), "{code} and not {reason}: {}", told());
                    refused += 1;
                }
                (expected, got) => panic!("{got:?} and not {expected:?}: {}", told()),
            }
            session.run("ROLLBACK");
        }
        db.clear();
    }
    assert!(refused * 2 < scenes * arrays, "{refused} of {} are refused", scenes * arrays);
}

#[test]
fn arrays_mean_what_their_elements_mean_one_by_one() {
    thread::scope(|scope| {
        for seed in 1..=2 {
            scope.spawn(move || agree(seed, 40, 30));
        }
    });
}

#[test]
#[ignore = "long"]
fn many_arrays_mean_what_their_elements_mean_one_by_one() {
    thread::scope(|scope| {
        for seed in 11..=12 {
            scope.spawn(move || agree(seed, 100, 50));
        }
    });
}
