//! Every argument of the contract can be given by its name, and what the contract gives a default may be left out.

use taskq_tests::Db;

const CALLS: &[&str] = &[
    "SELECT taskq.insert_task(id => 'a', action => 'x', body => 'text', priority => 1, max_tries => 2, \
     lease => interval '1 minute', not_before => now(), spontaneous => false, post_result => false, \
     retention => interval '1 day', metadata => '{}'::jsonb, group_id => 'g', workgroup => 'w', merge_key => 'k', \
     unique_by => '{\"key\": \"k\"}', seed => false)",
    "SELECT taskq.insert_task(id => 'b', action => 'x', delay => interval '1 minute')",
    "SELECT * FROM taskq.insert_tasks(tasks => '[]')",
    "SELECT * FROM taskq.insert_tasks(tasks => '[]', on_conflict => 'skip')",
    "SELECT * FROM taskq.insert_tasks(tasks => '[]', if_missing => 'ignore')",
    "SELECT * FROM taskq.insert_tasks(tasks => '[]', on_conflict => 'skip', if_missing => 'ignore')",
    "SELECT * FROM taskq.insert_tasks_report(tasks => '[]')",
    "SELECT * FROM taskq.insert_tasks_report(tasks => '[]', on_conflict => 'replace', if_missing => 'ignore')",
    "SELECT * FROM taskq.replace_tasks(tasks => '[]')",
    "SELECT * FROM taskq.replace_tasks(tasks => '[]', if_missing => 'ignore')",
    "SELECT * FROM taskq.own_tasks(actor_id => 'ann', max_tasks => 0, actions => '{x}')",
    "SELECT * FROM taskq.own_tasks(actor_id => 'ann', max_tasks => 0, actions => '{x}', lease => '1 minute')",
    "SELECT * FROM taskq.own_tasks('ann', 0, '{x}', wait => interval '0')",
    "SELECT task_id, owned FROM taskq.extend_tasks_ownership(actor_id => 'ann', task_ids => '{}', tokens => '{}', \
     lease => '1 minute')",
    "SELECT * FROM taskq.return_tasks(task_ids => '{}', tokens => '{}', status_code => 'completed')",
    "SELECT * FROM taskq.return_tasks(task_ids => '{}', tokens => '{}', delay_workgroup => '1 minute')",
    "SELECT * FROM taskq.return_tasks(task_ids => '{}', tokens => '{}', status_code => 'pending', count_try => false)",
    "SELECT * FROM taskq.return_tasks(returns => '[]')",
    "SELECT taskq.release_tasks(task_ids => '{a}', actors => '{ann}', actions => '{x}', status => 'gone')",
    "SELECT taskq.retry_tasks(causes => '{tries}', settled_since => now(), settled_until => now(), max_tasks => 1)",
    "SELECT taskq.rerun_tasks(task_ids => '{absent}', downstream => false)",
    "SELECT * FROM taskq.own_tasks('ann', 0, '{x}', with_results => true, with_steps => true)",
    "SELECT * FROM taskq.wait_for_task(task_id => 'a', timeout => interval '0')",
    "SELECT taskq.add_dependencies(dependencies => '[]')",
    "SELECT taskq.add_dependencies(dependencies => '[]', if_missing => 'ignore')",
    "SELECT taskq.add_dependencies('{}', '{}')",
    "SELECT taskq.add_dependencies('{}', '{}', 'settled')",
    "SELECT taskq.add_dependencies('[]')",
    "SELECT taskq.add_dependencies('[]', if_missing => 'ignore')",
    "SELECT taskq.add_dependencies(after => '{}', run => '{}', condition => 'settled')",
    "SELECT taskq.add_dependencies(after => '{}', run => '{}', if_missing => 'ignore')",
    "SELECT * FROM taskq.return_tasks('{}', '{}', 'aborted'::text)",
    "SELECT * FROM taskq.return_tasks('{}', '{}', 'aborted'::taskq.status_code)",
    "SELECT * FROM taskq.count_tasks(actions => '{x}', ids => '{a}', states => '{ready}')",
    "SELECT taskq.set_action(action => 'x', fair => true, max_per_group => 2)",
    "SELECT taskq.set_group(group_id => 'g', max_concurrency => 2, weight => 3, clear => '{}')",
    "SELECT taskq.cancel_tasks(task_ids => '{absent}', status => 'no longer wanted')",
    "SELECT taskq.delete_tasks(task_ids => '{absent}')",
];

#[test]
fn arguments_can_be_given_by_name() {
    let (_db, [mut session]) = Db::connected();
    for call in CALLS {
        session.query(*call, &[]).unwrap_or_else(|error| panic!("{call}: {error:?}"));
    }
}

#[test]
fn parameters_without_a_type_are_the_arrays_of_add_dependencies() {
    // What drivers send that leave the types to the server. A form that takes texts or JSON there gets the arrays of
    // asyncpg, pgx and postgres.js as what they are not.
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task(id, 'x') FROM unnest('{a,b}'::text[]) AS id");
    let statement = session.prepare("SELECT taskq.add_dependencies($1, $2)").unwrap();
    let types: Vec<&str> = statement.params().iter().map(|type_| type_.name()).collect();
    assert_eq!(types, ["_text", "_text"]);
    let count: i64 = session.query_one(&statement, &[&vec!["a"], &vec!["b"]]).unwrap().get(0);
    assert_eq!(count, 1);
    let statement = session.prepare("SELECT taskq.add_dependencies($1, if_missing => $2)").unwrap();
    let types: Vec<&str> = statement.params().iter().map(|type_| type_.name()).collect();
    assert_eq!(types, ["jsonb", "text"]);
}

#[test]
fn return_task_takes_its_arguments_by_name() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'x')");
    let grant = session.own_one("x");
    let query = "SELECT taskq.return_task(task_id => $1, token => $2, status_code => 'completed', status => 'done', \
                 result => '{\"rows\": 3}')::text";
    let code: String = session.query_one(query, &[&grant.task_id, &grant.token]).unwrap().get(0);
    assert_eq!(code, "completed");
    let task = session.task("a").unwrap();
    assert_eq!(task.status.as_deref(), Some("done"));
    assert_eq!(task.result, Some(serde_json::json!({"rows": 3})));
}

#[test]
fn the_keys_of_insert_task_do_what_they_say() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        r#"SELECT taskq.insert_task('a', 'x', 'words', priority => 7, max_tries => 3, metadata => '{"trace": 1}')"#,
    );
    let task = session.task("a").unwrap();
    assert_eq!((task.body.as_deref(), task.priority, task.max_tries), (Some("words"), 7, Some(3)));
    let metadata: serde_json::Value = session.one("SELECT metadata FROM taskq.tasks WHERE id = 'a'");
    assert_eq!(metadata, serde_json::json!({"trace": 1}));
}

#[test]
fn a_call_needs_no_search_path() {
    // Worker roles often have an empty one; and a schema in front of it must not redirect the queue's own names.
    let (_db, [mut session]) = Db::connected();
    session.run(
        "CREATE SCHEMA hostile; CREATE TABLE hostile.task (x int); CREATE TABLE hostile.tasks (x int); \
         CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'; \
         CREATE FUNCTION hostile.ge(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'; \
         CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.ge); \
         SET search_path = hostile, pg_catalog",
    );
    session
        .insert(
            serde_json::json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "depends_on": ["a"]}]),
        )
        .unwrap();
    assert_eq!(session.perform("x", "completed"), "a");
    session.run("SET search_path = ''");
    assert_eq!(session.perform("x", "completed"), "b");
    assert_eq!(session.wait("b", "0").unwrap().unwrap().status_code, "completed");
}
