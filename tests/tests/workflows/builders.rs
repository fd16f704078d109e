//! `chain`, `parallel`, `chord` and `map`: the arrays that they yield. Values must come out as they went in (a builder that
//! parses numbers turns 1.10 into 1.1 and long integers into floats), ids must be generated where they are missing and only
//! there, and dependencies that the tasks have already must stay and count for what is an entry and what an exit.

use std::collections::HashSet;

use serde_json::Value;
use taskq_tests::{Db, Session, refused};

/// The edges of an array of tasks as `after > run`, sorted; ids are those given.
fn edges(session: &mut Session, expression: &str) -> Vec<String> {
    let mut edges: Vec<String> = session.all(&format!(
        "SELECT COALESCE(d ->> 'id', d #>> '{{}}') || ' > ' || (t ->> 'id')
           FROM jsonb_array_elements({expression}) AS t, jsonb_array_elements(t -> 'depends_on') AS d"
    ));
    edges.sort();
    edges
}

fn task(id: &str) -> String {
    format!("'{{\"id\": \"{id}\", \"action\": \"x\"}}'::jsonb")
}

fn built(session: &mut Session, expression: &str) -> Vec<Value> {
    let built: Value = session.one(&format!("SELECT {expression}"));
    built.as_array().expect("builders yield arrays").clone()
}

#[test]
fn a_chain_links_each_block_with_the_one_before_it() {
    let (_db, [mut session]) = Db::connected();
    let [a, b, c] = ["a", "b", "c"].map(task);
    assert_eq!(edges(&mut session, &format!("taskq.chain({a}, {b}, {c})")), ["a > b", "b > c"]);
    assert_eq!(edges(&mut session, &format!("taskq.parallel({a}, {b}, {c})")), [""; 0]);
    assert_eq!(
        edges(&mut session, &format!("taskq.chord(taskq.parallel({a}, {b}), {c})")),
        ["a > c", "b > c"]
    );
    assert_eq!(
        edges(&mut session, &format!("taskq.chord({a}, taskq.parallel({b}, {c}))")),
        ["a > b", "a > c"]
    );
    let array = format!("taskq.chain(VARIADIC ARRAY[{a}, {b}, {c}])");
    assert_eq!(edges(&mut session, &array), ["a > b", "b > c"]);
    // An array of tasks is a block of tasks side by side, however it was made.
    assert_eq!(
        edges(&mut session, &format!("taskq.chain(jsonb_build_array({a}, {b}), {c})")),
        ["a > c", "b > c"]
    );
}

#[test]
fn builders_nest_three_deep_and_deeper() {
    let (_db, [mut session]) = Db::connected();
    let [a, b, c, d, e, f, g] = ["a", "b", "c", "d", "e", "f", "g"].map(task);
    // a, then (b then (c | d) then e) beside f, then g.
    let inner = format!("taskq.chain({b}, taskq.parallel({c}, {d}), {e})");
    let outer = format!("taskq.chain({a}, taskq.parallel({inner}, {f}), {g})");
    let expected = ["a > b", "a > f", "b > c", "b > d", "c > e", "d > e", "e > g", "f > g"];
    assert_eq!(edges(&mut session, &outer), expected);
    let mut deep = a;
    for n in 0..40 {
        deep = format!("taskq.chain(taskq.parallel({deep}), {})", task(&format!("t{n:02}")));
    }
    assert_eq!(edges(&mut session, &deep).len(), 40);
}

#[test]
fn a_chord_of_chords_waits_for_the_callbacks_of_the_inner_ones() {
    let (_db, [mut session]) = Db::connected();
    let [a, b, c, d, e, f, g] = ["a", "b", "c", "d", "e", "f", "g"].map(task);
    let first = format!("taskq.chord(taskq.parallel({a}, {b}), {c})");
    let second = format!("taskq.chord(taskq.parallel({d}, {e}), {f})");
    let both = format!("taskq.chord(taskq.parallel({first}, {second}), {g})");
    assert_eq!(edges(&mut session, &both), ["a > c", "b > c", "c > g", "d > f", "e > f", "f > g"]);
}

#[test]
fn a_chain_of_groups_links_all_members_with_all() {
    let (_db, [mut session]) = Db::connected();
    let group = |ids: [&str; 2]| format!("taskq.parallel({}, {})", task(ids[0]), task(ids[1]));
    let chain = format!("taskq.chain({}, {}, {})", group(["a", "b"]), group(["c", "d"]), group(["e", "f"]));
    let expected = ["a > c", "a > d", "b > c", "b > d", "c > e", "c > f", "d > e", "d > f"];
    assert_eq!(edges(&mut session, &chain), expected);
}

#[test]
fn empty_blocks_are_passed_over() {
    let (_db, [mut session]) = Db::connected();
    let [a, b] = ["a", "b"].map(task);
    for chain in [
        format!("taskq.chain({a}, '[]', {b})"),
        format!("taskq.chain('[]', {a}, taskq.parallel('[]', '[]'), {b}, '[]')"),
        format!("taskq.chain({a}, taskq.chain('[]'), taskq.map('x', '[]'), {b})"),
    ] {
        assert_eq!(edges(&mut session, &chain), ["a > b"], "{chain}");
    }
    for nothing in [
        "taskq.chain('[]')",
        "taskq.chain(VARIADIC '{}')",
        "taskq.parallel('[]', '[]')",
        "taskq.chord('[]', '[]')",
        "taskq.map('x', '[]')",
    ] {
        assert!(built(&mut session, nothing).is_empty(), "{nothing}");
        assert!(session.all::<String>(&format!("SELECT * FROM taskq.insert_tasks({nothing})")).is_empty());
    }
    assert_eq!(built(&mut session, &format!("taskq.chord('[]', {a})")).len(), 1);
}

#[test]
fn tasks_without_an_id_get_one_and_the_others_keep_theirs() {
    let (_db, [mut session]) = Db::connected();
    let built = built(
        &mut session,
        "taskq.chain('{\"action\": \"a\"}', '[{\"action\": \"b\", \"id\": null}, {\"action\": \"b\", \"id\": \"mine\"}]', taskq.map('c', '[1, 2, 3]'))",
    );
    let ids: HashSet<&str> = built.iter().map(|task| task["id"].as_str().expect("each has an id")).collect();
    assert_eq!((built.len(), ids.len()), (6, 6), "the ids differ");
    assert!(ids.contains("mine"));
    for id in ids.into_iter().filter(|id| *id != "mine") {
        assert_eq!(id.parse::<uuid::Uuid>().unwrap().get_version_num(), 7, "{id}");
    }
    // The same expression yields other ids the next time, so it can be inserted again.
    session.run("SELECT * FROM taskq.insert_tasks(taskq.map('c', '[1]')); SELECT * FROM taskq.insert_tasks(taskq.map('c', '[1]'))");
}

#[test]
fn values_pass_through_unchanged() {
    let (_db, [mut session]) = Db::connected();
    let bodies = [
        "1.10",
        "12345678901234567890123456789012345678901234567890",
        "-0.00000000000000000001",
        "null",
        "true",
        "\"1.10\"",
        r#""a \"quoted\" \\ text, ü and \u0001""#,
        r#"{"a": [1.0, {"b": []}], "b": 100000000000000000000.00}"#,
        "[]",
        "\"\"",
    ];
    for body in bodies {
        // jsonb itself is the measure of what is unchanged.
        for expression in [
            format!("taskq.map('x', jsonb_build_array($${body}$$::jsonb))"),
            format!(
                "taskq.chain(taskq.parallel(jsonb_build_object('action', 'x', 'body', $${body}$$::jsonb)), '[]')"
            ),
        ] {
            let same: bool = session.one(&format!(
                "SELECT t -> 'body' = b AND (t -> 'body')::text = b::text
                   FROM (SELECT $${body}$$::jsonb AS b) AS given, jsonb_array_elements({expression}) AS t"
            ));
            assert!(same, "{expression}");
        }
    }
    // All other keys, too; what they mean is for the insert to say.
    let keys = r#"{"id": "k", "action": "x", "priority": -3, "max_tries": 5, "delay": "1 hour", "metadata": {"n": 2.50},
                   "spontaneous": false, "no such key": [1.0], "to_signal_after": ["z"]}"#;
    let same: bool = session.one(&format!(
        "SELECT (t - 'depends_on')::text = $${keys}$$::jsonb::text AND t -> 'depends_on' = '[\"a\"]'
           FROM jsonb_array_elements(taskq.chain({}, $${keys}$$)) WITH ORDINALITY AS e(t, n) WHERE n = 2",
        task("a")
    ));
    assert!(same);
}

#[test]
fn map_is_in_the_order_of_the_bodies() {
    let (_db, [mut session]) = Db::connected();
    let bodies: Vec<String> = session.all(
        "SELECT t ->> 'body' FROM jsonb_array_elements(taskq.map('x', (SELECT jsonb_agg(i) FROM generate_series(1, 5000) i)))
                                  WITH ORDINALITY AS e(t, n) ORDER BY n",
    );
    assert_eq!(bodies, (1..=5000).map(|i| i.to_string()).collect::<Vec<_>>());
}

#[test]
fn dependencies_that_are_there_stay_and_decide_on_entries_and_exits() {
    let (_db, [mut session]) = Db::connected();
    let before = task("before");
    // Within the block: b after a, and c before b; so a and c are entries, b is the exit.
    let block = r#"'[{"id": "a", "action": "x"}, {"id": "b", "action": "x", "depends_on": [{"id": "a", "condition": "settled"}]},
                     {"id": "c", "action": "x", "to_signal_after": ["b"]}]'::jsonb"#;
    let after = task("after");
    let chain = format!("taskq.chain({before}, {block}, {after})");
    assert_eq!(edges(&mut session, &chain), ["a > b", "b > after", "before > a", "before > c"]);
    // A reference out of the block makes nothing less of an entry; and it stays.
    let outside = r#"'{"id": "o", "action": "x", "depends_on": ["elsewhere"]}'::jsonb"#;
    assert_eq!(
        edges(&mut session, &format!("taskq.chain({before}, {outside})")),
        ["before > o", "elsewhere > o"]
    );
    // Said already, with another condition: that stands.
    let said =
        r#"'{"id": "s", "action": "x", "depends_on": [{"id": "before", "condition": "settled"}]}'::jsonb"#;
    let condition: String = session.one(&format!(
        "SELECT jsonb_path_query_first(taskq.chain({before}, {said}), '$[1].depends_on') #>> '{{0,condition}}'"
    ));
    assert_eq!(condition, "settled");
    assert_eq!(edges(&mut session, &format!("taskq.chain({before}, {said})")), ["before > s"]);
}

#[test]
fn what_is_no_block_is_refused() {
    let (_db, [mut session]) = Db::connected();
    let cases = [
        ("22004", "blocks", "taskq.chain(VARIADIC NULL)"),
        ("22004", "header", "taskq.chord(NULL, '{}')"),
        ("22004", "callback", "taskq.chord('{}', NULL)"),
        ("22004", "action", "taskq.map(NULL, '[]')"),
        ("22004", "bodies", "taskq.map('x', NULL)"),
        ("22023", "bodies", "taskq.map('x', '{\"a\": 1}')"),
        ("TQ006", "block", "taskq.chain('{\"action\": \"a\"}', NULL)"),
        ("TQ006", "block", "taskq.chain('3')"),
        ("TQ006", "block", "taskq.parallel('[\"a\"]')"),
        ("TQ006", "block", "taskq.chord('\"a\"', '{\"action\": \"a\"}')"),
        (
            "TQ006",
            "depends_on",
            "taskq.chain('{\"action\": \"a\"}', '{\"action\": \"b\", \"depends_on\": \"a\"}')",
        ),
        ("TQ006", "id", "taskq.chain('{\"action\": \"a\", \"id\": 5}', '{\"action\": \"b\"}')"),
    ];
    for (sqlstate, naming, expression) in cases {
        refused(&mut session, sqlstate, naming, &format!("SELECT {expression}"), &[]);
    }
    // A repeated id is for the insert to refuse.
    let twice =
        format!("SELECT * FROM taskq.insert_tasks(taskq.parallel({}, {}))", task("same"), task("same"));
    refused(&mut session, "TQ002", "same", &twice, &[]);
}
