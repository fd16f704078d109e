//! NULLs and empty arrays: either they mean something, or they are refused; they never crash or pass for done.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

/// Where a NULL may not be.
const REFUSED: &[(&str, &str)] = &[
    ("22004", "SELECT taskq.insert_tasks(NULL)"),
    ("22004", "SELECT taskq.insert_tasks_report(NULL)"),
    ("22004", "SELECT taskq.insert_tasks_report('[]', on_conflict => NULL)"),
    ("22004", "SELECT taskq.insert_tasks_report('[]', if_missing => NULL)"),
    ("22004", "SELECT taskq.replace_tasks(NULL)"),
    ("22004", "SELECT * FROM taskq.own_tasks(NULL, 1, '{x}')"),
    ("22004", "SELECT * FROM taskq.own_tasks('ann', NULL, '{x}')"),
    ("22004", "SELECT * FROM taskq.own_tasks('ann', 1, NULL)"),
    ("22004", "SELECT task_id, owned FROM taskq.extend_tasks_ownership(NULL, '{}', '{}', '1 minute')"),
    ("22004", "SELECT taskq.stop_waiting(NULL)"),
    ("22004", "SELECT taskq.signal_tasks(NULL)"),
    ("22004", "SELECT task_id, owned FROM taskq.extend_tasks_ownership('ann', NULL, '{}', '1 minute')"),
    ("22004", "SELECT task_id, owned FROM taskq.extend_tasks_ownership('ann', '{}', NULL, '1 minute')"),
    ("22004", "SELECT taskq.return_task(NULL, gen_random_uuid())"),
    ("22004|TQ001", "SELECT taskq.return_task('ready', NULL)"),
    ("22004", "SELECT taskq.return_task('ready', gen_random_uuid(), NULL)"),
    ("22004", "SELECT * FROM taskq.return_tasks(NULL, '{}')"),
    ("22004", "SELECT * FROM taskq.return_tasks('{}', NULL)"),
    ("22004", "SELECT * FROM taskq.return_tasks('{}', '{}', NULL)"),
    ("22004", "SELECT * FROM taskq.return_tasks(NULL::jsonb)"),
    ("22004", "SELECT * FROM taskq.wait_for_task(NULL)"),
    ("22004", "SELECT * FROM taskq.wait_for_task('ready', NULL)"),
    ("22004", "SELECT taskq.add_dependencies(NULL::jsonb)"),
    ("22004", "SELECT taskq.add_dependencies(NULL::text[], '{}'::text[])"),
    ("22004", "SELECT taskq.add_dependencies('{}'::text[], NULL::text[])"),
    ("22004", "SELECT taskq.add_dependencies('{ready}'::text[], '{blocked}'::text[], NULL)"),
    ("22004", "SELECT taskq.add_dependencies(ARRAY[NULL], ARRAY['blocked'])"),
    ("22004", "SELECT taskq.add_dependencies(ARRAY['ready'], ARRAY[NULL])"),
    ("22004", "SELECT taskq.delete_tasks(NULL)"),
    ("22004", "SELECT taskq.cancel_tasks(NULL)"),
    ("22004", "SELECT taskq.release_tasks(NULL, status => 'why')"),
    ("TQ006", "SELECT taskq.insert_task('a', NULL)"),
];

/// Calls that have nothing to do, and how many rows they give.
const NOTHING_TO_DO: &[(&str, usize)] = &[
    ("SELECT taskq.insert_tasks('[]')", 0),
    ("SELECT taskq.insert_tasks_report('[]')", 0),
    ("SELECT taskq.replace_tasks('[]')", 0),
    ("SELECT taskq.own_tasks('ann', 5, '{}')", 0),
    ("SELECT taskq.own_tasks('ann', 0, '{x}')", 0),
    ("SELECT taskq.own_tasks('ann', 5, '{unheard of}')", 0),
    ("SELECT taskq.extend_tasks_ownership('ann', '{}', '{}', '1 minute')", 0),
    ("SELECT taskq.extend_tasks_ownership('ann', ARRAY[NULL], ARRAY[NULL]::uuid[], '1 minute')", 1),
    ("SELECT taskq.return_tasks('{}', '{}')", 0),
    ("SELECT taskq.return_tasks(ARRAY[NULL], ARRAY[NULL]::uuid[])", 1),
    ("SELECT taskq.return_tasks('[]'::jsonb)", 0),
    ("SELECT taskq.return_and_own_tasks('ann', '[]', 5, '{unheard of}')", 0),
    ("SELECT taskq.return_and_own_tasks('ann', '{}', '{}', 5, '{unheard of}')", 0),
    ("SELECT taskq.return_and_own_tasks('ann', ARRAY[NULL], ARRAY[NULL]::uuid[], 0, '{}')", 1),
    ("SELECT taskq.count_tasks(actions => '{}')", 0),
];

/// Calls that count what they did: nothing.
const NONE_COUNTED: &[&str] = &[
    "SELECT taskq.add_dependencies('[]'::jsonb)",
    "SELECT taskq.add_dependencies('{}'::text[], '{}'::text[])",
    "SELECT taskq.delete_tasks('{}')",
    "SELECT taskq.delete_tasks(ARRAY[NULL]::text[])",
    "SELECT taskq.delete_tasks('{absent}')",
    "SELECT taskq.cancel_tasks('{}')",
    "SELECT taskq.cancel_tasks(ARRAY[NULL]::text[])",
    "SELECT taskq.cancel_tasks('{absent}')",
];

fn a_few_tasks(db: &Db) -> Session {
    let mut session = db.connect();
    let tasks =
        json!([{"id": "ready", "action": "x"}, {"id": "blocked", "action": "x", "depends_on": ["ready"]}]);
    session.insert(tasks).unwrap();
    session
}

#[test]
fn a_null_is_refused_where_it_may_not_be() {
    let db = Db::new();
    let mut session = a_few_tasks(&db);
    for (code, query) in REFUSED {
        refused(&mut session, code, "", query, &[]);
    }
}

#[test]
fn bodies_that_are_missing_may_come_in_two_ways() {
    let (_db, [mut session]) = Db::connected();
    let error = refused(&mut session, "22004", "bodies", "SELECT taskq.insert_many('x', NULL)", &[]);
    assert!(error.detail().unwrap().contains("\"bodies_json\""), "{error:?}");
}

#[test]
fn empty_input_is_no_error_and_does_nothing() {
    let db = Db::new();
    let mut session = a_few_tasks(&db);
    let before = session.tasks();
    for (query, expected) in NOTHING_TO_DO {
        let rows = session.query(*query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        assert_eq!(rows.len(), *expected, "{query}");
    }
    for query in NONE_COUNTED {
        assert_eq!(session.one::<i64>(query), 0, "{query}");
    }
    assert_eq!(session.tasks(), before);
}

#[test]
fn a_null_among_the_actions_matches_nothing() {
    let db = Db::new();
    let mut session = a_few_tasks(&db);
    let query = "SELECT task_id FROM taskq.own_tasks('ann', 5, ARRAY[NULL, 'x', NULL])";
    match session.query(query, &[]) {
        Ok(rows) => assert_eq!(rows.len(), 1),
        Err(error) => assert_eq!(taskq_tests::sqlstate(&error), "22004"),
    }
}

/// Every argument that is a jsonb and may not be left out.
const REQUIRED_JSON: &[(&str, &str)] = &[
    ("tasks", "SELECT taskq.insert_tasks('null')"),
    ("tasks", "SELECT taskq.insert_tasks_report('null')"),
    ("tasks", "SELECT taskq.replace_tasks('null')"),
    ("bodies", "SELECT taskq.insert_many('x', NULL, bodies_json => 'null')"),
    ("returns", "SELECT taskq.return_tasks('null'::jsonb)"),
    ("returns", "SELECT taskq.return_and_own_tasks('ann', 'null'::jsonb, 1, '{x}')"),
    ("dependencies", "SELECT taskq.add_dependencies('null'::jsonb)"),
    ("header", "SELECT taskq.chord('null', '[]')"),
    ("callback", "SELECT taskq.chord('[]', 'null')"),
    ("bodies", "SELECT taskq.map('x', 'null')"),
    ("task", "SELECT taskq.schedule('s', '* * * * *', 'null')"),
];

#[test]
fn json_null_is_null_in_an_argument() {
    let db = Db::new();
    let mut session = a_few_tasks(&db);
    for (argument, query) in REQUIRED_JSON {
        refused(&mut session, "22004", &format!("\"{argument}\""), query, &[]);
    }
    let none = "metadata => 'null', backoff => 'null', unique_by => 'null'";
    session.run(&format!("SELECT taskq.insert_task('one', 'one', {none})"));
    session.run(&format!("SELECT taskq.insert_task('json', 'json', 'null'::jsonb, {none})"));
    session.run(&format!("SELECT taskq.insert_many('many', '{{a,b}}', bodies_json => 'null', {none})"));
    let columns = "num_nulls(metadata, backoff, unique_key)";
    let nulls: Vec<i32> =
        session.all(&format!("SELECT {columns} FROM taskq.tasks WHERE action ~ 'one|json|many'"));
    assert_eq!(nulls, [3, 3, 3, 3]);
    assert_eq!(session.task("json").unwrap().body, None);
    // What is left out keeps what was.
    session.run("SELECT taskq.update_tasks('{one}', metadata => '{\"a\": 1}'), taskq.update_tasks('{one}', metadata => 'null', priority => 1)");
    assert_eq!(
        session.one::<String>("SELECT metadata::text FROM taskq.tasks WHERE id = 'one'"),
        "{\"a\": 1}"
    );
    session.run("SELECT taskq.set_action('one', backoff => '{\"kind\": \"fixed\", \"initial\": \"1 s\"}')");
    session.run("SELECT taskq.set_action('one', backoff => 'null')");
    assert_eq!(
        session.one::<i64>("SELECT count(*) FROM taskq.actions WHERE action = 'one' AND backoff IS NOT NULL"),
        1
    );
    let grant = session.own_one("one");
    let call = |session: &mut Session, call: &str| {
        session.query(&format!("SELECT taskq.{call}"), &[&grant.task_id, &grant.token]).unwrap();
    };
    call(&mut session, "report_status($1, $2, checkpoint => '5')");
    call(&mut session, "report_status($1, $2, checkpoint => 'null', status => 'half')");
    assert_eq!(session.one::<String>("SELECT checkpoint::text FROM taskq.progress"), "5");
    call(&mut session, "return_task($1, $2, result => 'null', children => 'null')");
    session.run("SELECT taskq.complete_task('ready', result => 'null')");
    let results = "SELECT count(*) FROM taskq.tasks WHERE state = 'completed' AND result IS NULL";
    assert_eq!(session.one::<i64>(results), 2);
    let grant = session.own_one("json");
    session
        .query(
            "SELECT taskq.return_tasks(ARRAY[$1::text], ARRAY[$2::uuid], result => 'null')",
            &[&grant.task_id, &grant.token],
        )
        .unwrap();
    assert_eq!(session.one::<i64>(results), 3);
}

#[test]
fn a_json_null_means_absent() {
    let (_db, [mut session]) = Db::connected();
    let keys = [
        "id",
        "body",
        "priority",
        "max_tries",
        "lease",
        "not_before",
        "delay",
        "depends_on",
        "to_signal_after",
        "spontaneous",
        "post_result",
        "retention",
        "metadata",
    ];
    let mut task = json!({"action": "x"});
    for key in keys {
        task[key] = json!(null);
    }
    let ids = session.insert(json!([task])).unwrap();
    let task = session.task(&ids[0]).unwrap();
    assert_eq!((task.body, task.priority, task.max_tries, task.state.as_str()), (None, 0, None, "ready"));
}
