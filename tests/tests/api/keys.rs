//! What is refused is named in words that a caller knows: the element, the key, what stands there, and for a key that does
//! not exist the one that is probably meant.
//!
//! A queue that hands on what its JSON library says fails here ("invalid type: map, expected a string"), and so does one
//! that reads an array as an object by the places of the keys.

use serde_json::{Value, json};
use taskq_tests::{Db, refused};

/// Keys that do not exist, and what is meant.
const MEANT: &[(&str, &str)] = &[
    ("key", "merge_key"),
    ("group", "group_id"),
    ("unique", "unique_by"),
    ("max_duration", "lease"),
    ("max_trys", "max_tries"),
    ("maxTries", "max_tries"),
    ("max_attempts", "max_tries"),
    ("dependsOn", "depends_on"),
    ("depend_on", "depends_on"),
    ("payload", "body"),
    ("args", "body"),
    ("acton", "action"),
    ("run_at", "not_before"),
    ("prioritiy", "priority"),
    ("groupId", "group_id"),
    ("mergekey", "merge_key"),
    ("unique_key", "unique_by"),
    ("timeout", "lease"),
    ("retenton", "retention"),
];

#[test]
fn an_unknown_key_names_the_element_and_the_key_that_is_meant() {
    let (_db, [mut session]) = Db::connected();
    for (unknown, meant) in MEANT {
        let tasks = json!([{"id": "good", "action": "x"}, {"id": "bad", "action": "x", *unknown: "1"}]);
        for function in ["insert_tasks", "insert_tasks_report", "replace_tasks"] {
            let error =
                refused(&mut session, "TQ006", unknown, &format!("SELECT taskq.{function}($1)"), &[&tasks]);
            assert!(error.message().contains(&format!("\"{meant}\"")), "{unknown} is {meant}: {error:?}");
            assert!(error.detail().unwrap().contains("element 2 (\"bad\")"), "{error:?}");
            assert!(error.hint().unwrap().contains("\"max_tries\", \"lease\""), "all keys: {error:?}");
        }
    }
    // Nothing is meant by this one, and no near miss is made up.
    let tasks = json!([{"id": "bad", "action": "x", "zork": 1}]);
    let error = refused(&mut session, "TQ006", "zork", "SELECT taskq.insert_tasks($1)", &[&tasks]);
    assert_eq!(error.message(), "malformed task: unknown key \"zork\"");
    let edges = json!([{"aftr": "a", "run": "b"}]);
    let error =
        refused(&mut session, "TQ006", "\"after\"", "SELECT taskq.add_dependencies($1::jsonb)", &[&edges]);
    assert!(error.detail().unwrap().contains("element 1"), "{error:?}");
    let returns = json!([{"task_id": "a", "statuscode": "completed"}]);
    let error =
        refused(&mut session, "TQ006", "status_code", "SELECT taskq.return_tasks($1::jsonb)", &[&returns]);
    assert!(error.detail().unwrap().contains("element 1 (\"a\")"), "{error:?}");
}

/// Malformed tasks and what the message says of them.
fn malformed() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"action": "x", "delay": 5}),
            "key \"delay\" is a number, not an interval as a string, such as \"5 minutes\"",
        ),
        (
            json!({"action": "x", "not_before": 5}),
            "key \"not_before\" is a number, not a timestamp as a string, such as \"2030-01-31 12:00 UTC\"",
        ),
        (json!({"action": {}}), "key \"action\" is an object, not a string"),
        (json!({"id": ["a"], "action": "x"}), "key \"id\" is an array, not a string"),
        (json!({"action": "x", "priority": 1.5}), "key \"priority\" is 1.5, not an integer"),
        (json!({"action": "x", "seed": "yes"}), "key \"seed\" is a string, not true or false"),
        (json!({"action": "x", "depends_on": ["a", 5]}), "key \"depends_on\", entry 2, is a number"),
        (json!({"action": "x", "depends_on": [null]}), "key \"depends_on\", entry 1, is null"),
        (json!({"action": "x", "depends_on": "a"}), "key \"depends_on\" is a string, not an array"),
        (json!({"action": "x", "depends_on": [{"condition": "settled"}]}), "entry 1: key \"id\" is missing"),
        (json!({"action": "x", "backoff": []}), "key \"backoff\": it is an array, not an object"),
        (json!({"action": "x", "depends_on": [["a"]]}), "key \"depends_on\", entry 1, is an array"),
        (
            json!({"action": "x", "to_signal_after": [{"id": "a", "condition": "done"}]}),
            "key \"to_signal_after\", entry 1: key \"condition\" is \"done\", not one of completed, settled, aborted",
        ),
        (json!({"action": "x", "retention": {"abort": "1 d"}}), "key \"retention\": unknown key \"abort\""),
        (json!({"action": "x", "backoff": "1 minute"}), "key \"backoff\": it is a string, not an object"),
        (json!({"action": "x", "backoff": {"kind": "fixed"}}), "key \"backoff\": key \"initial\" is missing"),
        (
            json!({"action": "x", "backoff": {"kind": "exponental", "initial": "1 s"}}),
            "\"exponental\", not one of fixed, exponential",
        ),
        (
            json!({"action": "x", "backoff": {"kind": "fixed", "initial": "1 s", "jitter": "x"}}),
            "key \"jitter\" is a string, not a number",
        ),
        (
            json!({"action": "x", "unique_by": {"period": 5}}),
            "key \"unique_by\": key \"period\" is a number, not an interval as a string, such as \"5 minutes\"",
        ),
        (
            json!({"action": "x", "unique_by": 1}),
            "key \"unique_by\": it is a number, not true, a key, or an object",
        ),
    ]
}

#[test]
fn what_is_wrong_is_said_in_plain_words() {
    let (_db, [mut session]) = Db::connected();
    for (task, says) in malformed() {
        let error = refused(&mut session, "TQ006", "", "SELECT taskq.insert_tasks($1)", &[&json!([task])]);
        assert!(error.message().contains(says), "{task} must say {says}: {}", error.message());
        // The words of the library that reads JSON, and of the language that the queue is written in.
        for word in ["invalid type", "expected ", "map", "sequence", "variant", "f64", "i32", "`", ".."] {
            assert!(!error.message().contains(word), "{word} in {}", error.message());
        }
    }
}

/// Malformed tasks and what the hint says. On wrong code it is the twenty keys of a task, whatever is wrong.
#[test]
fn the_hint_is_about_the_object_or_the_value_in_question() {
    let (_db, [mut session]) = Db::connected();
    let backoff = "The keys of a backoff are \"kind\", \"initial\", \"max\", \"jitter\".";
    let unique = "The keys of unique_by are \"key\", \"period\", \"states\", \"on_conflict\", \"max_wait\".";
    let interval = "Give an interval from 0 to 1,000 years, such as \"5 minutes\".";
    for (key, value, meant, hint) in [
        ("backoff", json!({"kind": "fixed", "initial": "1 s", "maxx": "1 h"}), "\"max\"", backoff),
        ("backoff", json!({"kind": "fixed"}), "\"initial\"", backoff),
        ("backoff", json!("1 minute"), "a string", backoff),
        ("backoff", json!({"kind": "fixed", "initial": "soon"}), "soon", interval),
        (
            "depends_on",
            json!([{"id": "a", "conditon": "settled"}]),
            "\"condition\"",
            "The keys of a reference to a task are \"id\", \"condition\".",
        ),
        (
            "depends_on",
            json!([{"task_id": "a"}]),
            "\"id\"",
            "The keys of a reference to a task are \"id\", \"condition\".",
        ),
        ("unique_by", json!({"keys": "a"}), "\"key\" is probably meant", unique),
        ("unique_by", json!(5), "a number", unique),
        (
            "unique_by",
            json!({"key": "a", "on_conflict": "replac"}),
            "\"replace\" is probably meant",
            "Use one of these words: skip, replace, error.",
        ),
        (
            "unique_by",
            json!({"key": "a", "states": ["redy"]}),
            "\"ready\" is probably meant",
            "Use one of these words: pending, blocked, scheduled, ready, in-progress, completed, aborted.",
        ),
        ("unique_by", json!({"key": "a", "period": "-1 s"}), "negative", interval),
        (
            "retention",
            json!({"complete": "1 d"}),
            "\"completed\"",
            "The keys of a retention are \"completed\", \"aborted\".",
        ),
        ("delay", json!("-1 s"), "negative", interval),
        (
            "max_tries",
            json!(0),
            "less than 1",
            "Give an integer from 1 up, or leave it out for what is set for the action.",
        ),
        ("max_tries", json!("3"), "a string", "Give an integer."),
        ("max_tries", json!(1.5), "1.5", "Give an integer from -2147483648 to 2147483647."),
        ("depends_on", json!([null]), "null", "Leave such an entry out."),
        ("not_before", json!("noon"), "noon", "Give a timestamp, such as \"2030-01-31 12:00 UTC\"."),
        ("seed", json!("yes"), "a string", "Give true or false."),
    ] {
        let tasks = json!([{"action": "x", key: value}]);
        let error = refused(&mut session, "TQ006", meant, "SELECT taskq.insert_tasks($1)", &[&tasks]);
        assert_eq!(error.hint(), Some(hint), "{tasks}");
        if key == "backoff" || key == "unique_by" {
            let query = format!("SELECT taskq.insert_task('a', 'x', {key} => $1)");
            let error = refused(&mut session, "TQ006", meant, &query, &[&value]);
            assert_eq!(error.hint(), Some(hint), "{value} as an argument");
        }
    }
    let both = json!([{"action": "x", "delay": "1 s", "not_before": "2030-01-01"}]);
    let error = refused(&mut session, "TQ006", "both", "SELECT taskq.insert_tasks($1)", &[&both]);
    assert_eq!(error.hint(), Some("Give one of the two."));
    let edges = json!([{"after": "a"}]);
    let error = refused(&mut session, "TQ006", "run", "SELECT taskq.add_dependencies($1::jsonb)", &[&edges]);
    assert_eq!(error.hint(), Some("The keys of a dependency are \"after\", \"run\", \"condition\"."));
}

#[test]
fn the_error_of_a_setting_that_is_no_json_says_so() {
    let (_db, [mut session]) = Db::connected();
    // With the library loaded: without it, a setting is any text.
    session.run("SELECT taskq.clock()");
    for text in ["exponential", "xyz", "30 seconds", "fast", "nope", "{kind: fixed}"] {
        let error =
            refused(&mut session, "22023", "taskq.backoff", &format!("SET taskq.backoff = '{text}'"), &[]);
        assert_eq!(error.detail(), Some("It is not JSON."), "{text}");
    }
    let error = refused(&mut session, "22023", "taskq.backoff", "SET taskq.backoff = '5'", &[]);
    assert!(error.detail().unwrap().starts_with("It is a number, not an object"), "{error:?}");
    session.run("SET taskq.backoff = ' {\"kind\": \"fixed\", \"initial\": \"5 s\"} '");
}

#[test]
fn an_array_is_no_object_by_the_places_of_its_keys() {
    let (_db, [mut session]) = Db::connected();
    // All keys of a task, a dependency and a return in the order in which the queue happens to declare them.
    let task = json!([[
        "seq1",
        "act",
        "body",
        5,
        3,
        null,
        null,
        null,
        [],
        [],
        false,
        false,
        "grp",
        null,
        null,
        null,
        null,
        null,
        false,
        null
    ]]);
    refused(&mut session, "TQ006", "an array", "SELECT taskq.insert_tasks($1)", &[&task]);
    refused(
        &mut session,
        "TQ006",
        "an array",
        "SELECT taskq.add_dependencies($1::jsonb)",
        &[&json!([["a", "b", "settled"]])],
    );
    let returned = json!([["a", null, "completed", null, null, null, null, null, null, null]]);
    refused(&mut session, "TQ006", "an array", "SELECT taskq.return_tasks($1::jsonb)", &[&returned]);
    let backoff = json!([{"action": "x", "backoff": ["fixed", "1 s", null, null]}]);
    refused(&mut session, "TQ006", "an array", "SELECT taskq.insert_tasks($1)", &[&backoff]);
    let unique = json!([{"action": "x", "unique_by": ["k", null, null, null, null]}]);
    refused(&mut session, "TQ006", "an array", "SELECT taskq.insert_tasks($1)", &[&unique]);
    refused(
        &mut session,
        "22023",
        "backoff",
        "SELECT taskq.set_action('x', backoff => '[\"fixed\", \"1 s\", null, null]')",
        &[],
    );
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks"), 0);
}

#[test]
fn the_error_of_json_that_was_encoded_twice_says_so() {
    let (_db, [mut session]) = Db::connected();
    let text = json!(json!([{"id": "a", "action": "x"}]).to_string());
    for call in ["insert_tasks", "replace_tasks", "insert_tasks_report", "add_dependencies", "return_tasks"] {
        let error = refused(&mut session, "TQ006", "", &format!("SELECT taskq.{call}($1::jsonb)"), &[&text]);
        assert!(error.detail().unwrap().contains("a string"), "{error:?}");
        assert!(error.hint().unwrap().contains("twice"), "{error:?}");
    }
}

#[test]
fn the_error_of_one_of_many_returns_says_at_which_place_it_is() {
    let (_db, [mut session]) = Db::connected();
    for (wrong, sqlstate, naming) in [
        (json!({"status_code": "done"}), "22023", "status_code"),
        (json!({"status_code": "pending", "children": [{"action": "x"}]}), "22023", "pending"),
        (json!({"children": [{"action": "x"}, {"acton": "y"}]}), "TQ006", "acton"),
        (json!({"children": {"action": "x"}}), "TQ006", "children"),
    ] {
        let mut returned = wrong.clone();
        returned["task_id"] = json!("second");
        let returns = json!([{"task_id": "first"}, returned]);
        let error =
            refused(&mut session, sqlstate, naming, "SELECT taskq.return_tasks($1::jsonb)", &[&returns]);
        assert!(error.detail().unwrap().contains("return 2 (\"second\")"), "{wrong}: {error:?}");
    }
    // The argument is named that was given.
    let children = "SELECT taskq.return_task('a', gen_random_uuid(), children => '{\"action\": \"x\"}')";
    refused(&mut session, "TQ006", "children", children, &[]);
}

#[test]
fn the_error_of_a_wrong_status_code_lists_the_four_codes() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'x')");
    let grant = session.own_one("x");
    for code in ["done", "in-progress", "", "Completed", "{\"result\": 1}"] {
        let single = "SELECT taskq.return_task('a', $1, $2)";
        let many = "SELECT taskq.return_tasks(ARRAY['a'], ARRAY[$1::uuid], $2)";
        let each = "SELECT taskq.return_tasks(jsonb_build_array(jsonb_build_object('task_id', 'a', 'token', $1::uuid, 'status_code', $2::text)))";
        for query in [single, many, each] {
            let error = refused(&mut session, "22023", "status_code", query, &[&grant.token, &code]);
            let text = format!("{} {}", error.detail().unwrap(), error.hint().unwrap());
            for code in ["pending", "in-progress", "aborted", "completed"] {
                assert!(text.contains(code), "{text} must list {code}");
            }
        }
    }
    session.complete(&grant);
}

/// "Element 1" of a call that has no elements sends to look for an array.
#[test]
fn the_one_task_of_a_call_is_no_element_of_it() {
    let (_db, [mut session]) = Db::connected();
    for (call, detail) in [
        ("insert_task('a', '')", "This is task \"a\"."),
        ("insert_task(NULL, '')", "This is the task that the call is about."),
        ("insert_task('a', 'x', max_tries => 0)", "This is task \"a\"."),
        ("insert_task('a', 'x', metadata => '[]')", "This is task \"a\"."),
        ("insert_task('a', 'x', unique_by => '5')", "This is task \"a\"."),
        ("insert_task('a', 'x', depends_on => '{NULL}')", "This is the task that the call is about."),
        ("schedule('s', '* * * * *', '{}')", "This is the task that the call is about."),
        (
            "schedule('s', '* * * * *', '{\"action\": \"x\", \"id\": \"a\"}')",
            "This is the task that the call is about.",
        ),
        ("schedule('s', '* * * * *', '[]')", "It is an array."),
        ("schedule('s', '* * * * *', '5')", "It is a number."),
        ("insert_many('x', '{a,b}', ARRAY['1', ''])", "This is element 2 (\"\") of the call."),
        ("insert_tasks('[{}]')", "This is element 1 of the call."),
    ] {
        let error = refused(&mut session, "TQ006", "", &format!("SELECT taskq.{call}"), &[]);
        assert_eq!(error.detail(), Some(detail), "{call}");
    }
}

#[test]
fn a_long_id_is_not_repeated() {
    let (_db, [mut session]) = Db::connected();
    let id = "i".repeat(1001);
    for call in [
        "insert_task($1, 'x')",
        "insert_tasks(jsonb_build_array(jsonb_build_object('action', 'x', 'id', $1::text)))",
    ] {
        let error = refused(&mut session, "TQ006", "1001 bytes", &format!("SELECT taskq.{call}"), &[&id]);
        let detail = error.detail().unwrap();
        assert!(detail.len() < 110 && detail.contains("iiii..."), "{detail}");
    }
}

/// An argument of `insert_task` that is no key.
#[test]
fn the_error_of_the_key_retention_aborted_says_where_it_belongs() {
    let (_db, [mut session]) = Db::connected();
    let tasks = json!([{"action": "x", "retention_aborted": "1 day"}]);
    let error =
        refused(&mut session, "TQ006", "retention_aborted", "SELECT taskq.insert_tasks($1)", &[&tasks]);
    assert!(error.message().contains("\"aborted\" in \"retention\""), "{error:?}");
}
