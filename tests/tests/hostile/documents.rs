//! The JSON that calls take, mutated: keys that are missing, unknown or twice as deep, values of another type or out of range.
//! What is refused is refused as a malformed element is; what is taken leaves a sound queue.

use std::env;

use serde_json::{Map, Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, state_of_all};

use crate::call::{Caller, End, hostile};
use crate::scene;

/// A task with every key.
fn tasks() -> Value {
    json!([{
        "id": "new", "action": "x", "body": {"a": [1, 2]}, "priority": 3, "max_tries": 2, "lease": "1 minute",
        "delay": "1 second", "depends_on": ["ready", {"id": "held", "condition": "settled"}],
        "to_signal_after": [{"id": "blocked"}], "spontaneous": false, "post_result": true, "group_id": "g",
        "workgroup": "w", "merge_key": "m", "seed": true, "unique_by": {"key": "k", "period": "1 hour",
            "states": ["pending", "completed"], "on_conflict": "replace", "max_wait": "1 minute"},
        "backoff": {"kind": "exponential", "initial": "1 second", "max": "1 minute", "jitter": 0.5},
        "retention": {"completed": "1 day", "aborted": "2 days"}, "metadata": {"trace": "1"},
    }, {"id": "second", "action": "y", "depends_on": ["new"], "not_before": "2030-01-01T00:00:00Z", "retention": "1 day",
        "unique_by": true}])
}

fn returns(token: &str) -> Value {
    json!([{
        "task_id": "held", "token": token, "status_code": "completed", "status": "fine", "result": {"a": 1},
        "children": [{"id": "child", "action": "x", "depends_on": ["ready"]}], "children_block": true,
        "delay_children": "1 minute",
    }, {"task_id": "ready", "token": token, "status_code": "pending", "retry_after": "1 minute"}])
}

/// Where a document goes: `$` is its place in the call.
fn calls(token: &str) -> Vec<(String, Value)> {
    let call = |call: &str, document: Value| (call.to_owned(), document);
    vec![
        call("SELECT * FROM taskq.insert_tasks($)", tasks()),
        call("SELECT * FROM taskq.insert_tasks($, 'skip', 'ignore')", tasks()),
        call("SELECT * FROM taskq.insert_tasks_report($, 'replace')", tasks()),
        call("SELECT * FROM taskq.replace_tasks($)", tasks()),
        call("SELECT * FROM taskq.return_tasks($)", returns(token)),
        call("SELECT * FROM taskq.return_and_own_tasks('w', $, 2, '{x}')", returns(token)),
        (format!("SELECT taskq.return_task('held', '{token}', children => $)"), tasks()),
        (format!("SELECT taskq.report_status('held', '{token}', checkpoint => $)"), json!({"a": 1})),
        call(
            "SELECT taskq.add_dependencies($)",
            json!([{"after": "ready", "run": "blocked", "condition": "settled"}, {"after": "held", "run": "scheduled"}]),
        ),
        call("SELECT taskq.chain($, $)", tasks()),
        call("SELECT taskq.parallel($, $)", tasks()),
        call("SELECT taskq.chord($, $)", tasks()),
        call("SELECT taskq.map('x', $)", json!([1, "two", null, {"three": 3}])),
        call("SELECT taskq.insert_task('n', 'x', $)", json!({"a": 1})),
        call("SELECT taskq.insert_task('n', 'x', unique_by => $)", tasks()[0]["unique_by"].clone()),
        call(
            "SELECT taskq.insert_task('n', 'x', backoff => $, metadata => $)",
            tasks()[0]["backoff"].clone(),
        ),
        call("SELECT taskq.insert_many('x', NULL, bodies_json => $)", json!([1, "two", null])),
        call("SELECT taskq.set_action('x', backoff => $)", tasks()[0]["backoff"].clone()),
        call("SELECT taskq.update_tasks('{ready}', metadata => $)", json!({"a": 1})),
        call(
            "SELECT taskq.schedule('t', '* * * * *', $)",
            json!({"action": "x", "priority": 1, "group_id": "g"}),
        ),
        call("SELECT taskq.complete_task('ready', $)", json!({"a": 1})),
    ]
}

/// A value that may be wrong anywhere.
fn value(random: &mut Random) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(9_007_199_254_740_993_i64),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(-0.0),
        json!(""),
        json!(" "),
        json!("x"),
        json!("held"),
        json!("new"),
        json!("-1 second"),
        json!("infinity"),
        json!("1001 years"),
        json!("ö\u{202e}\u{10ffff}"),
        json!("x".repeat(1001)),
        json!("x".repeat(20_000)),
        json!([]),
        json!({}),
        json!([[]]),
        json!([null]),
        json!(["held", "held"]),
        json!({"id": "held"}),
        json!({"id": null}),
        json!({"completed": null}),
        json!("99999-01-01"),
        json!("now"),
    ];
    random.pick(&values).clone()
}

/// One mutation somewhere in the document.
fn mutate(document: &mut Value, random: &mut Random) {
    let deeper = random.chance(70);
    match document {
        Value::Array(elements) if deeper && !elements.is_empty() => {
            let number = random.below(elements.len() as u64) as usize;
            mutate(&mut elements[number], random);
        }
        Value::Object(keys) if deeper && !keys.is_empty() => {
            let names: Vec<String> = keys.keys().cloned().collect();
            let name = random.pick(&names).clone();
            mutate(keys.get_mut(&name).expect("it has it"), random);
        }
        Value::Array(elements) => match random.below(4) {
            0 => elements.push(value(random)),
            1 => elements.extend(elements.clone()),
            2 => elements.clear(),
            _ => *document = value(random),
        },
        Value::Object(keys) => mutate_keys(keys, random),
        other => {
            *other = match random.below(4) {
                0 => json!([other.clone()]),
                1 => json!({"id": other.clone(), "action": other.clone()}),
                2 => (0..500).fold(other.clone(), |inner, _| json!([inner])),
                _ => value(random),
            }
        }
    }
}

fn mutate_keys(keys: &mut Map<String, Value>, random: &mut Random) {
    let names: Vec<String> = keys.keys().cloned().collect();
    let known = [
        "id",
        "action",
        "condition",
        "key",
        "token",
        "task_id",
        "unique_by",
        "not_before",
        "kind",
        "",
        "a\u{1}b",
    ];
    match random.below(4) {
        0 if !names.is_empty() => drop(keys.remove(random.pick(&names).as_str())),
        1 if !names.is_empty() => {
            let moved = keys.remove(random.pick(&names).as_str()).expect("it has it");
            keys.insert((*random.pick(&known)).to_owned(), moved);
        }
        2 => drop(keys.insert("y".repeat(1 + random.below(3000) as usize), value(random))),
        _ => drop(keys.insert((*random.pick(&known)).to_owned(), value(random))),
    }
}

#[test]
fn mutated_documents() {
    let db = Db::new();
    let (mut session, grant) = scene::set(&db);
    let soak: usize = env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("a number"));
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let calls = calls(&grant.token.to_string());
    let before = state_of_all(&mut session);
    for (call, document) in &calls {
        let call = call.replace('$', &literal(document));
        assert!(matches!(hostile(&mut session, &call, Caller::Plain), End::Worked), "as it is: {call}");
    }
    let (mut worked, mut refused) = (0, 0);
    for round in 0..1500 * soak {
        let (call, document) = random.pick(&calls);
        let mut document = document.clone();
        for _ in 0..1 + random.below(3) {
            mutate(&mut document, &mut random);
        }
        let mut call = call.replace('$', &literal(&document));
        if round % 60 == 0 {
            // What was taken is sound within its transaction.
            call += "; DO $$ BEGIN ASSERT (SELECT count(*) FROM taskq.check()) = 0, 'broken'; END $$";
        }
        match hostile(&mut session, &call, Caller::Plain) {
            End::Worked => worked += 1,
            End::Refused(_) => refused += 1,
        }
    }
    println!("{worked} documents were taken, {refused} refused");
    assert!(worked > 100 && refused > 100, "both happen: {worked} and {refused}");
    assert!(before == state_of_all(&mut session), "seed {seed}: something has changed");
}

fn literal(document: &Value) -> String {
    format!("'{}'::jsonb", document.to_string().replace('\'', "''"))
}
