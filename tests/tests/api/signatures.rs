//! Result columns: names, order and types. Read from the server's description of each statement, as a driver does.

use taskq_tests::{Db, Session};

type Columns = &'static [(&'static str, &'static str)];

/// The contract allows more columns behind these. A domain goes over the wire as the type that it is made of.
const RESULTS: &[(&str, Columns)] = &[
    ("SELECT taskq.insert_task('a', 'x') AS value", &[("value", "text")]),
    ("SELECT taskq.insert_task('a', 'x', 'body') AS value", &[("value", "text")]),
    ("SELECT taskq.insert_tasks('[]') AS value", &[("value", "text")]),
    ("SELECT taskq.insert_many('x', '{}') AS value", &[("value", "text")]),
    ("SELECT taskq.replace_tasks('[]') AS value", &[("value", "text")]),
    (
        "SELECT * FROM taskq.insert_tasks_report('[]')",
        &[("task_id", "text"), ("outcome", "text"), ("existing_id", "text")],
    ),
    (
        "SELECT * FROM taskq.own_tasks('actor', 1, '{x}')",
        &[
            ("task_id", "text"),
            ("token", "uuid"),
            ("action", "text"),
            ("body", "text"),
            ("num_tries", "int4"),
            ("num_failures", "int4"),
            ("action_deadline", "timestamptz"),
        ],
    ),
    (
        "SELECT task_id, owned FROM taskq.extend_tasks_ownership('actor', '{}', '{}', '1 minute')",
        &[("task_id", "text"), ("owned", "bool")],
    ),
    ("SELECT taskq.return_task('a', gen_random_uuid()) AS value", &[("value", "text")]),
    (
        "SELECT * FROM taskq.return_tasks('{}', '{}')",
        &[("task_id", "text"), ("status_code", "text"), ("sqlstate", "text")],
    ),
    (
        "SELECT * FROM taskq.return_tasks('[]'::jsonb)",
        &[("task_id", "text"), ("status_code", "text"), ("sqlstate", "text")],
    ),
    (
        "SELECT * FROM taskq.wait_for_task('a')",
        &[
            ("task_id", "text"),
            ("status_code", "text"),
            ("status", "text"),
            ("result", "jsonb"),
            ("settled_at", "timestamptz"),
        ],
    ),
    ("SELECT taskq.add_dependencies('[]'::jsonb) AS value", &[("value", "int8")]),
    ("SELECT taskq.add_dependencies('{}'::text[], '{}'::text[]) AS value", &[("value", "int8")]),
    ("SELECT taskq.delete_tasks('{}') AS value", &[("value", "int8")]),
    ("SELECT taskq.cancel_tasks('{}') AS value", &[("value", "int8")]),
    ("SELECT taskq.release_tasks('{}') AS value", &[("value", "int8")]),
    ("SELECT taskq.task_channel('a') AS value", &[("value", "text")]),
    ("SELECT taskq.lost_channel('ann') AS value", &[("value", "text")]),
    ("SELECT taskq.signal_tasks('[]') AS value", &[("value", "int8")]),
    ("SELECT taskq.stop_waiting('ann') AS value", &[("value", "int8")]),
    ("SELECT * FROM taskq.count_tasks()", &[("action", "text"), ("state", "text"), ("count", "int8")]),
];

fn columns(session: &mut Session, query: &str) -> Vec<(String, String)> {
    let statement = session.prepare(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let column = |column: &postgres::Column| (column.name().to_owned(), column.type_().name().to_owned());
    statement.columns().iter().map(column).collect()
}

#[test]
fn results_have_the_columns_of_the_contract_in_its_order() {
    let (_db, [mut session]) = Db::connected();
    for (query, expected) in RESULTS {
        let got = columns(&mut session, query);
        let expected: Vec<_> =
            expected.iter().map(|(name, type_)| (name.to_string(), type_.to_string())).collect();
        assert!(got.starts_with(&expected), "{query} gives {got:?}, but must begin with {expected:?}");
    }
}

#[test]
fn the_codes_are_spelled_as_in_the_contract() {
    let (_db, [mut session]) = Db::connected();
    let types = [
        ("status_code", ["pending", "in-progress", "aborted", "completed"].as_slice()),
        ("dependency_condition", &["completed", "settled", "aborted"]),
    ];
    for (name, values) in types {
        for value in values {
            assert_eq!(session.one::<String>(&format!("SELECT '{value}'::taskq.{name}::text")), *value);
        }
        for value in ["", "Pending", "in_progress", "done", "failed"] {
            assert!(session.batch_execute(&format!("SELECT '{value}'::taskq.{name}")).is_err(), "{value}");
        }
    }
    let query =
        "SELECT pg_typeof(status_code)::text FROM taskq.return_tasks(ARRAY[NULL], ARRAY[NULL]::uuid[])";
    assert_eq!(session.one::<String>(query), "taskq.status_code");
    assert_eq!(
        session.one::<String>(
            "SELECT pg_typeof(status_code)::text FROM taskq.tasks RIGHT JOIN (SELECT) x ON true"
        ),
        "taskq.status_code"
    );
}

#[test]
fn numbers_and_codes_take_the_types_that_drivers_send() {
    // A float is a double precision in Python, Java and JavaScript; a code is a string, and no domain that a driver
    // would have to know.
    let (_db, [mut session]) = Db::connected();
    for (query, expected) in [
        (
            "SELECT taskq.report_status($1, $2, $3, $4, $5)",
            ["text", "uuid", "text", "float8", "jsonb"].as_slice(),
        ),
        ("SELECT taskq.return_task($1, $2, $3)", &["text", "uuid", "text"]),
        ("SELECT * FROM taskq.return_tasks($1, $2, $3)", &["_text", "_uuid", "text"]),
        ("SELECT progress FROM taskq.tasks WHERE progress = $1", &["float8"]),
    ] {
        let statement = session.prepare(query).unwrap();
        let types: Vec<&str> = statement.params().iter().map(|type_| type_.name()).collect();
        assert_eq!(types, expected, "{query}");
    }
}

#[test]
fn nothing_is_strict() {
    // A strict function answers a NULL argument with NULL: the caller believes that something was done.
    let db = Db::new();
    let strict: Vec<String> = db.connect().all(
        "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e' \
         WHERE p.pronamespace = 'taskq'::regnamespace AND p.proisstrict \
         AND p.provolatile = 'v' AND p.proname NOT LIKE '\\_%'",
    );
    assert!(strict.is_empty(), "{strict:?}");
}

#[test]
fn every_function_type_and_view_has_a_comment() {
    let db = Db::new();
    let silent: Vec<String> = db.connect().all(
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'taskq'::regnamespace \
         AND p.proname NOT LIKE '\\_%' AND obj_description(p.oid, 'pg_proc') IS NULL \
         UNION ALL SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'taskq'::regnamespace \
         AND c.relkind = 'v' AND obj_description(c.oid, 'pg_class') IS NULL",
    );
    assert!(silent.is_empty(), "{silent:?}");
}
