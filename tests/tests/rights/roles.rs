//! What each part may do.

use serde_json::json;
use taskq_tests::Db;

use super::{Role, assert_allowed, assert_denied};

const PRODUCE: &[&str] = &[
    "SELECT taskq.insert_task(NULL, 'y')",
    r#"SELECT taskq.insert_tasks('[{"action": "y"}]')"#,
    "SELECT taskq.insert_many('y', '{body}')",
    r#"SELECT taskq.replace_tasks('[{"id": "again", "action": "y"}]')"#,
    "SELECT taskq.add_dependencies('[]'::jsonb)",
    "SELECT taskq.add_dependencies('{}'::text[], '{}'::text[])",
    "SELECT taskq.wait_for_task('again', '0')",
    "SELECT taskq.task_channel('again')",
    "SELECT taskq.cancel_tasks('{again}')",
    "SELECT taskq.delete_tasks('{again}')",
    "SELECT taskq.retry_tasks('{again}')",
];

const OPERATE: &[&str] = &[
    "SELECT taskq.set_action('y', max_tries => 3)",
    "SELECT taskq.pause_action('y')",
    "SELECT taskq.resume_action('y')",
    "SELECT taskq.forget_action('z')",
    "SELECT taskq.set_group('g', max_concurrency => 2)",
    "SELECT taskq.delay_workgroup('w', '0')",
    "SELECT taskq.release_tasks('{again}')",
    r#"SELECT taskq.schedule('s', '0 0 1 1 *', '{"action": "y"}')"#,
    "SELECT taskq.pause_schedule('s')",
    "SELECT taskq.resume_schedule('s')",
    "SELECT taskq.run_schedule('s')",
    "SELECT taskq.unschedule('s')",
    "SELECT taskq.set_shard(1)",
];

const WORK: &[&str] = &[
    "SELECT taskq.own_tasks('w', 1, '{z}')",
    "SELECT taskq.extend_tasks_ownership('w', '{}', '{}', '1 minute')",
    "SELECT taskq.return_task('absent', gen_random_uuid())",
    "SELECT taskq.return_tasks('{}', '{}')",
    "SELECT taskq.return_tasks('[]'::jsonb)",
    "SELECT taskq.return_and_own_tasks('w', '{}', '{}', 1, '{z}')",
    "SELECT taskq.return_and_own_tasks('w', '[]', 1, '{z}')",
];

const MONITOR: &[&str] = &[
    "SELECT * FROM taskq.tasks",
    "SELECT * FROM taskq.dependencies",
    "SELECT * FROM taskq.stats",
    "SELECT * FROM taskq.actors",
    "SELECT * FROM taskq.count_tasks()",
    "SELECT * FROM taskq.top",
    "SELECT * FROM taskq.health()",
    "SELECT taskq.metrics()",
    "SELECT * FROM taskq.metrics_rows()",
    "SELECT taskq.page()",
    "SELECT * FROM taskq.check()",
];

#[test]
fn a_worker_can_work() {
    let role = Role::new("worker");
    let (db, [mut boss]) = Db::with_tasks(json!([
        {"id": "a", "action": "x"}, {"id": "b", "action": "x", "depends_on": ["a"]},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": ["b"]},
    ]));
    boss.run(&format!("SELECT taskq.grant_worker('{}')", role.name));
    let mut worker = db.connect_as(&role.name);
    for id in ["a", "b"] {
        let grant = worker.own("w", 1, &["x"]).unwrap().remove(0);
        assert_eq!(grant.task_id, id);
        assert_eq!(worker.extend("w", &[(id, grant.token)], "1 hour").unwrap(), [(id.to_owned(), true)]);
        worker.complete(&grant);
    }
    assert_eq!(boss.state("mark"), "completed");
    for call in WORK {
        assert_allowed(&mut worker, call);
    }
    assert!(worker.own_with("w", 1, &["x"], "wait => '10 milliseconds'").unwrap().is_empty());
}

#[test]
fn a_producer_can_produce_and_not_work() {
    let role = Role::new("producer");
    let (db, [mut boss]) = Db::connected();
    boss.run(&format!("SELECT taskq.grant_producer('{}')", role.name));
    let mut producer = db.connect_as(&role.name);
    producer
        .insert(json!([{"id": "a", "action": "x", "post_result": true}, {"id": "b", "action": "x"}]))
        .unwrap();
    assert_eq!(producer.depend_on("a", "b").unwrap(), 1);
    boss.perform("x", "completed");
    assert_eq!(producer.wait("a", "0").unwrap().unwrap().status_code, "completed");
    for call in PRODUCE {
        assert_allowed(&mut producer, call);
    }
    for call in WORK[..2].iter().chain(OPERATE) {
        assert_denied(&mut producer, call);
    }
}

#[test]
fn an_operator_administers_and_neither_inserts_nor_works() {
    let role = Role::new("operator");
    let (db, [mut boss]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "group_id": "g"}]));
    boss.run(&format!("SELECT taskq.grant_operator('{}')", role.name));
    let mut operator = db.connect_as(&role.name);
    for call in OPERATE.iter().chain(MONITOR).chain(&PRODUCE[4..]) {
        assert_allowed(&mut operator, call);
    }
    for call in
        ["maintain()", "update_tasks('{a}', priority => 1)", "cancel_group('g')", "metrics()", "check()"]
    {
        operator.run(&format!("SELECT taskq.{call}"));
    }
    for call in PRODUCE[..4].iter().chain(WORK) {
        assert_denied(&mut operator, call);
    }
    boss.run(&format!("SELECT taskq.revoke_operator('{}')", role.name));
    for call in OPERATE.iter().chain(MONITOR) {
        assert_denied(&mut operator, call);
    }
    boss.run(&format!("DROP ROLE \"{}\"", role.name));
}

#[test]
fn a_role_that_may_read_the_tasks_may_read_results() {
    let role = Role::new("reader");
    let (db, [mut boss]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]}]));
    let grant = boss.own_one("x");
    boss.give_with("a", grant.token, "completed", "result => '42'").unwrap();
    for part in ["producer", "worker", "operator", "monitor"] {
        boss.run(&format!("SELECT taskq.grant_{part}('{}')", role.name));
        let mut session = db.connect_as(&role.name);
        let result: serde_json::Value = session.one("SELECT result FROM taskq.dependency_results('b')");
        assert_eq!(result, json!(42), "{part}");
        boss.run(&format!("SELECT taskq.revoke_{part}('{}')", role.name));
    }
}

#[test]
fn a_monitor_can_look_and_do_nothing() {
    let role = Role::new("monitor");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    boss.run(&format!("SELECT taskq.grant_monitor('{}')", role.name));
    let mut monitor = db.connect_as(&role.name);
    for call in MONITOR {
        monitor.run(call);
    }
    assert_eq!(monitor.task("a").unwrap().state, "ready");
    for call in WORK.iter().chain(OPERATE).chain(&PRODUCE[..6]).chain(&PRODUCE[8..]) {
        assert_denied(&mut monitor, call);
    }
}

#[test]
fn the_parts_add_up_and_revoking_takes_each_back() {
    let role = Role::new("all");
    let (db, [mut boss]) = Db::connected();
    for part in ["worker", "producer", "monitor"] {
        // Twice is as good as once.
        boss.run(&format!("SELECT taskq.grant_{part}('{0}'); SELECT taskq.grant_{part}('{0}')", role.name));
    }
    let mut session = db.connect_as(&role.name);
    for call in PRODUCE.iter().chain(WORK).chain(MONITOR) {
        assert_allowed(&mut session, call);
    }
    boss.run(&format!("SELECT taskq.revoke_worker('{0}'); SELECT taskq.revoke_worker('{0}')", role.name));
    for call in &WORK[..2] {
        assert_denied(&mut session, call);
    }
    for call in PRODUCE.iter().chain(MONITOR) {
        assert_allowed(&mut session, call);
    }
    boss.run(&format!("SELECT taskq.revoke_producer('{0}'); SELECT taskq.revoke_monitor('{0}')", role.name));
    for call in PRODUCE.iter().chain(WORK).chain(MONITOR) {
        assert_denied(&mut session, call);
    }
    // What is left of a right would keep the role from being dropped.
    boss.run(&format!("DROP ROLE \"{}\"", role.name));
}

/// Drivers send a text, `current_user` is a name, and people write what they write after GRANT.
#[test]
fn a_role_is_named_as_it_is_or_as_in_sql() {
    let role = Role::new("Odd Name; --");
    let (db, [mut boss]) = Db::connected();
    let quoted: String = boss.one(&format!("SELECT quote_ident('{}')", role.name));
    for name in [&role.name, &quoted] {
        boss.query("SELECT taskq.grant_worker($1)", &[name]).unwrap();
        assert!(db.connect_as(&role.name).own("w", 1, &["x"]).unwrap().is_empty());
        boss.query("SELECT taskq.revoke_worker(rolname) FROM pg_roles WHERE rolname = $1", &[&role.name])
            .unwrap();
        assert_denied(&mut db.connect_as(&role.name), "SELECT taskq.own_tasks('w', 1, '{x}')");
    }
}

#[test]
fn of_two_roles_that_differ_in_case_the_one_with_this_very_name_is_meant() {
    let lower = Role::new("twin");
    let upper = Role { name: lower.name.to_uppercase() };
    let (db, [mut boss]) = Db::connected();
    boss.run(&format!("CREATE ROLE \"{}\" LOGIN", upper.name));
    let call = "SELECT taskq.own_tasks('w', 1, '{x}')";
    boss.query("SELECT taskq.grant_worker($1)", &[&upper.name]).unwrap();
    assert_allowed(&mut db.connect_as(&upper.name), call);
    assert_denied(&mut db.connect_as(&lower.name), call);
    boss.query("SELECT taskq.revoke_worker($1)", &[&upper.name]).unwrap();
    boss.run(&format!("DROP ROLE \"{}\"", upper.name));
    // Without the one, this is another way to write the other.
    boss.query("SELECT taskq.grant_worker($1)", &[&upper.name]).unwrap();
    assert_allowed(&mut db.connect_as(&lower.name), call);
}
