//! Parts that are narrowed to some actions: the caller's own doing is, and what follows by itself is not.
//!
//! Why: several services share a queue, and one that is taken over must not reach the tasks of the others. On wrong code a
//! way round is open: by children, by a dependency, by an id, by a group, by a schedule, by SET ROLE, by a function of
//! another owner; or the upkeep that a narrowed worker does for all is refused.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

use super::{Role, assert_allowed, assert_denied};

pub(super) fn narrowed(boss: &mut Session, part: &str, role: &Role, actions: &str) {
    boss.run(&format!("SELECT taskq.grant_{part}('{}', actions => '{actions}')", role.name));
}

/// Every way to have to do with tasks of action `theirs`, as a producer.
pub(super) const PRODUCING: &[&str] = &[
    "SELECT taskq.insert_task('n', 'theirs')",
    r#"SELECT taskq.insert_tasks('[{"action": "ours"}, {"action": "theirs"}]')"#,
    "SELECT taskq.insert_many('theirs', '{b}')",
    "SELECT taskq.insert_many('ours', '{b}', depends_on => '{t1}')",
    "SELECT taskq.insert_many('ours', '{b}', to_signal_after => '{t1}')",
    r#"SELECT taskq.insert_tasks_report('[{"action": "theirs"}]')"#,
    r#"SELECT taskq.insert_tasks('[{"action": "ours", "depends_on": ["t1"]}]')"#,
    r#"SELECT taskq.insert_tasks('[{"action": "ours", "to_signal_after": ["t1"]}]')"#,
    "SELECT taskq.insert_task(NULL, 'ours', depends_on => '{t1}')",
    r#"SELECT taskq.replace_tasks('[{"id": "t1", "action": "ours"}]')"#,
    "SELECT taskq.update_tasks('{t1}', priority => 1)",
    "SELECT taskq.update_tasks('{t1}', priority => 1, if_started => 'skip', actions => '{ours}')",
    "SELECT taskq.update_tasks(actions => '{theirs}', priority => 1)",
    "SELECT taskq.update_tasks(groups => '{g}', priority => 1)",
    "SELECT taskq.cancel_tasks('{o1,t1}')",
    "SELECT taskq.cancel_tasks(actions => '{theirs}')",
    "SELECT taskq.cancel_tasks(groups => '{g}')",
    "SELECT taskq.delete_tasks('{t1}')",
    "SELECT taskq.delete_tasks(actions => '{theirs}')",
    "SELECT taskq.complete_task('t1')",
    "SELECT taskq.retry_tasks('{lost}')",
    "SELECT taskq.retry_tasks(actions => '{theirs}')",
    "SELECT taskq.add_dependencies('{o1}'::text[], '{t1}'::text[])",
    r#"SELECT taskq.add_dependencies('[{"after": "t1", "run": "o1"}]'::jsonb)"#,
    "SELECT taskq.wait_for_task('t1', '0')",
    "CALL taskq.wait_for_tasks('{t1}', '0', NULL)",
    "SELECT taskq.rerun_tasks('{lost}')",
    "SELECT taskq.rewind_task('lost', 'step')",
    "SELECT taskq.pause_group('g')",
    "SELECT taskq.resume_group('g')",
    "SELECT taskq.pause_group('mine')",
    "SELECT taskq.insert_task(NULL, 'ours', group_id => 'g', seed => true)",
    r#"SELECT taskq.insert_tasks('[{"action": "ours", "group_id": "mine"}, {"action": "ours", "group_id": "g", "seed": true}]')"#,
    r#"SELECT taskq.schedule('s', '0 0 1 1 *', '{"action": "theirs"}')"#,
    "SELECT * FROM taskq.tasks",
    "SELECT taskq.set_action('ours', max_tries => 1)",
];

pub(super) const WORKING: &[&str] = &[
    "CALL taskq.wait_for_work('{theirs}', '0', NULL)",
    "SELECT taskq._look_for_work('{theirs}', true)",
    "SELECT taskq._look_for_work('{theirs}', false)",
    "SELECT taskq.own_tasks('w', 1, '{theirs}')",
    "SELECT taskq.own_tasks('w', 1, '{ours,theirs}')",
    "SELECT taskq.return_task('held', '$token')",
    "SELECT taskq.return_tasks('{held}', '{$token}')",
    r#"SELECT taskq.return_tasks('[{"task_id": "held", "token": "$token"}]')"#,
    "SELECT taskq.return_and_own_tasks('w', '{held}', '{$token}', 0, '{ours}')",
    r#"SELECT taskq.return_and_own_tasks('w', '[{"task_id": "held", "token": "$token"}]', 1, '{ours}')"#,
    "SELECT taskq.return_and_own_tasks('w', '[]', 1, '{theirs}')",
    "SELECT taskq.return_and_own_tasks('w', '{}', '{}', 1, '{ours,theirs}')",
    "SELECT taskq.extend_tasks_ownership('w', '{held}', '{$token}', '1 hour')",
    "SELECT taskq.report_status('held', '$token', 'mine')",
    "SELECT taskq.save_step('held', '$token', 'mine')",
];

/// The same with tasks of action `ours`; each must be possible after those before it.
const OURS: &[&str] = &[
    "SELECT taskq.insert_task('n1', 'ours', depends_on => '{o1}', group_id => 'mine')",
    "SELECT taskq.insert_many('ours', '{a,b}', depends_on => '{n1}', on_conflict => 'skip')",
    r#"SELECT taskq.insert_tasks('[{"id": "n2", "action": "ours", "to_signal_after": ["o2"]}]')"#,
    r#"SELECT taskq.replace_tasks('[{"id": "n1", "action": "ours", "group_id": "mine"}]')"#,
    "SELECT taskq.update_tasks('{n1,n2}', priority => 1)",
    "SELECT taskq.update_tasks(groups => '{mine}', actions => '{ours}', priority => 1)",
    "SELECT taskq.update_tasks(groups => '{mine}', priority => 1)",
    "SELECT taskq.add_dependencies('{n1}'::text[], '{n2}'::text[])",
    "SELECT taskq.cancel_group('mine')",
    "SELECT taskq.insert_task(NULL, 'ours', group_id => 'mine', seed => true)",
    "SELECT taskq.retry_tasks('{n1}')",
    "SELECT taskq.rerun_tasks('{n1}')",
    "SELECT taskq.cancel_tasks(actions => '{ours}', max_tasks => 1)",
    "SELECT taskq.delete_tasks('{n2}')",
    "SELECT taskq.wait_for_task('o1', '0')",
    "CALL taskq.wait_for_tasks('{o1}', '0', NULL)",
];

pub(super) fn fill(boss: &mut Session) -> String {
    boss.insert(json!([
        {"id": "o1", "action": "ours"}, {"id": "o2", "action": "ours", "delay": "1 hour"},
        {"id": "lost", "action": "theirs"},
    ]))
    .unwrap();
    boss.perform("theirs", "aborted");
    boss.insert(json!([{"id": "held", "action": "theirs"}])).unwrap();
    let token = boss.own_one("theirs").token.to_string();
    boss.insert(json!([{"id": "t1", "action": "theirs", "group_id": "g"}, {"id": "o3", "action": "ours", "group_id": "g"}]))
        .unwrap();
    token
}

#[test]
fn a_producer_reaches_the_tasks_of_its_actions_only() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
    let token = fill(&mut boss);
    narrowed(&mut boss, "producer", &role, "{ours,else}");
    let mut session = db.connect_as(&role.name);
    for call in PRODUCING.iter().chain(WORKING) {
        assert_denied(&mut session, &call.replace("$token", &token));
    }
    for call in OURS {
        session.run(call);
    }
    assert_eq!(boss.state("t1"), "ready");
}

#[test]
fn a_worker_performs_the_tasks_of_its_actions_only() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
    let token = fill(&mut boss);
    narrowed(&mut boss, "worker", &role, "{ours}");
    let mut session = db.connect_as(&role.name);
    for call in PRODUCING.iter().chain(WORKING) {
        assert_denied(&mut session, &call.replace("$token", &token));
    }
    let grant = session.own_one("ours");
    assert_allowed(
        &mut session,
        "SELECT taskq.return_and_own_tasks('w', '{none}', ARRAY[gen_random_uuid()], 0, '{ours}')",
    );
    session.extend("w", &[(&grant.task_id, grant.token)], "1 hour").unwrap();
    for children in [r#"[{"action": "theirs"}]"#, r#"[{"action": "ours", "depends_on": ["t1"]}]"#] {
        let error = session
            .give_with(&grant.task_id, grant.token, "completed", &format!("children => '{children}'"))
            .unwrap_err();
        assert_eq!(sqlstate(&error), "42501", "{children}");
    }
    session
        .give_with(
            &grant.task_id,
            grant.token,
            "completed",
            r#"children => '[{"id": "child", "action": "ours"}]'"#,
        )
        .unwrap();
    assert_eq!(boss.state("child"), "ready");
    for call in OURS {
        assert_allowed(&mut session, call);
    }
}

/// A task that waits for another waits for its children as well, where the return says so: that follows from a
/// dependency that is there, and is nothing that the worker has named. On wrong code a worker cannot return a task for
/// which others wait.
#[test]
fn what_waits_for_a_task_waits_for_its_children_whatever_its_action() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::with_tasks(json!([
        {"id": "parent", "action": "ours"}, {"id": "after", "action": "theirs", "depends_on": ["parent"]},
        {"id": "other", "action": "theirs", "depends_on": ["parent"]},
    ]));
    narrowed(&mut boss, "worker", &role, "{ours}");
    let mut session = db.connect_as(&role.name);
    let grant = session.own_one("ours");
    let give = |session: &mut Session, children: &str| {
        let with = format!("children_block => true, children => '{children}'");
        session.give_with("parent", grant.token, "completed", &with)
    };
    // Named by itself, it is denied as ever; also for one of several children.
    for children in [
        r#"[{"id": "child", "action": "ours", "to_signal_after": ["after"]}]"#,
        r#"[{"id": "child", "action": "ours"}, {"action": "ours", "to_signal_after": ["other"]}]"#,
        r#"[{"id": "child", "action": "ours", "depends_on": ["after"]}]"#,
    ] {
        assert_eq!(sqlstate(&give(&mut session, children).unwrap_err()), "42501", "{children}");
    }
    give(&mut session, r#"[{"id": "child", "action": "ours"}]"#).unwrap();
    assert_eq!(boss.state("after"), "blocked");
    assert_eq!(session.perform("ours", "completed"), "child");
    assert_eq!([boss.state("after"), boss.state("other")], ["ready", "ready"]);
}

#[test]
fn an_inserter_inserts_and_nothing_else() {
    let (role, wide) = (Role::new("narrow"), Role::new("wide"));
    let (db, [mut boss]) = Db::connected();
    let token = fill(&mut boss);
    narrowed(&mut boss, "inserter", &role, "{ours}");
    boss.run(&format!("SELECT taskq.grant_inserter('{}')", wide.name));
    let mut session = db.connect_as(&role.name);
    for call in PRODUCING.iter().chain(WORKING) {
        assert_denied(&mut session, &call.replace("$token", &token));
    }
    for call in &OURS[..2] {
        session.run(call);
    }
    for call in &OURS[2..] {
        assert_denied(&mut session, call);
    }
    let replace =
        r#"SELECT taskq.insert_tasks_report('[{"id": "new", "action": "ours"}]', on_conflict => 'replace')"#;
    assert_denied(&mut session, replace);
    let mut session = db.connect_as(&wide.name);
    assert_denied(&mut session, replace);
    let (inserting, others) = PRODUCING.split_at(9);
    for call in inserting {
        // Tasks of the queue may be waited for, and not made to wait.
        match call.contains("to_signal_after") {
            true => assert_denied(&mut session, call),
            false => session.run(call),
        }
    }
    for call in others.iter().chain(WORKING) {
        assert_denied(&mut session, &call.replace("$token", &token));
    }
    boss.run(&format!("SELECT taskq.revoke_inserter('{}'); DROP ROLE \"{0}\"", wide.name));
}

/// Dependents, schedules, deadlines: what a call sets off is not its caller's doing.
#[test]
fn what_follows_by_itself_is_not_narrowed() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
    boss.run(r#"SELECT taskq.schedule('s', '* * * * * *', '{"action": "theirs"}')"#);
    boss.insert(json!([
        {"id": "a", "action": "ours"}, {"id": "b", "action": "theirs", "depends_on": ["a"]},
        {"id": "c", "action": "theirs", "spontaneous": true, "depends_on": ["a"]},
        {"id": "late", "action": "theirs", "lease": "1 microsecond", "priority": 1},
    ]))
    .unwrap();
    boss.own_one("theirs");
    narrowed(&mut boss, "worker", &role, "{ours}");
    let mut session = db.connect_as(&role.name);
    session.run("SELECT pg_sleep(1.1)");
    let grant = session.own_one("ours");
    session.complete(&grant);
    assert_eq!([boss.state("b"), boss.state("c")], ["ready", "completed"]);
    let late: Vec<String> = boss.all("SELECT outcome FROM taskq.attempts WHERE task_id = 'late'");
    assert!(late.contains(&"timeout".to_owned()), "its deadline was looked after: {late:?}");
    assert!(
        boss.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id LIKE 's@%'") > 0,
        "the schedule has run"
    );
}

#[test]
fn parts_add_up_by_members_and_by_set_role() {
    let (role, group, free) = (Role::new("narrow"), Role::new("group"), Role::new("free"));
    let (db, [mut boss]) = Db::connected();
    narrowed(&mut boss, "producer", &role, "{a}");
    narrowed(&mut boss, "producer", &group, "{b}");
    boss.run(&format!("SELECT taskq.grant_producer('{}')", free.name));
    let insert = |action: &str| format!("SELECT taskq.insert_task(NULL, '{action}')");
    let mut session = db.connect_as(&role.name);
    session.run(&insert("a"));
    assert_denied(&mut session, &insert("b"));
    // As a member it has what the others have, at once and in a session that has asked before.
    boss.run(&format!("GRANT \"{}\" TO \"{}\"", group.name, role.name));
    session.run(&insert("a"));
    session.run(&insert("b"));
    assert_denied(&mut session, &insert("c"));
    session.run(&format!("SET ROLE \"{}\"", group.name));
    session.run(&insert("b"));
    assert_denied(&mut session, &insert("a"));
    session.run("RESET ROLE");
    boss.run(&format!("GRANT \"{}\" TO \"{}\"", free.name, role.name));
    session.run(&insert("c"));
    boss.run(&format!(
        "REVOKE \"{}\" FROM \"{2}\"; REVOKE \"{1}\" FROM \"{2}\"",
        group.name, free.name, role.name
    ));
    session.run(&insert("a"));
    assert_denied(&mut session, &insert("b"));
    assert_denied(&mut session, &insert("c"));
    // A superuser that has taken a role is that role.
    boss.run(&format!("SET ROLE \"{}\"", role.name));
    assert_denied(&mut boss, &insert("c"));
    boss.run("RESET ROLE");
}

/// The caller is the owner of the function: neither the session's user nor the role that it has set.
#[test]
fn a_function_of_another_owner_has_its_owners_part() {
    let (narrow, powerless, free) = (Role::new("narrow"), Role::new("powerless"), Role::new("free"));
    let (db, [mut boss]) = Db::connected();
    narrowed(&mut boss, "inserter", &narrow, "{a}");
    boss.run(&format!("SELECT taskq.grant_inserter('{}')", free.name));
    boss.run("CREATE SCHEMA api; GRANT USAGE ON SCHEMA api TO PUBLIC");
    for (name, owner) in [("narrow", &narrow), ("free", &free)] {
        boss.run(&format!(
            "CREATE FUNCTION api.{name}(action text) RETURNS text LANGUAGE sql SECURITY DEFINER \
             SET search_path = pg_catalog AS $$ SELECT taskq.insert_task(NULL, action) $$; \
             ALTER FUNCTION api.{name} OWNER TO \"{}\"",
            owner.name
        ));
    }
    for user in [&powerless, &free, &narrow] {
        let mut session = db.connect_as(&user.name);
        session.run("SELECT api.narrow('a')");
        assert_denied(&mut session, "SELECT api.narrow('b')");
        session.run("SELECT api.free('b')");
    }
    let mut session = db.connect_as(&powerless.name);
    assert_denied(&mut session, "SELECT taskq.insert_task(NULL, 'a')");
}

#[test]
fn after_a_refusal_the_session_is_itself_again() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "t1", "action": "theirs"}]));
    narrowed(&mut boss, "producer", &role, "{a}");
    let mut session = db.connect_as(&role.name);
    session.run("BEGIN; SAVEPOINT s");
    assert_denied(&mut session, "SELECT taskq.cancel_tasks('{t1}')");
    session.run("ROLLBACK TO s");
    assert_eq!(session.one::<String>("SELECT current_user::text"), role.name);
    assert_denied(&mut session, "SELECT * FROM taskq.task");
    session.run("ROLLBACK");
    session.run(
        "DO $$ BEGIN PERFORM taskq.insert_task('x', 'theirs'); EXCEPTION WHEN insufficient_privilege THEN \
         PERFORM taskq.insert_task('x', 'a'); END $$",
    );
    assert_eq!(session.one::<String>("SELECT current_user::text"), role.name);
    assert_denied(&mut session, "SELECT * FROM taskq.task");
    assert_eq!(boss.state("x"), "ready");
}

#[test]
fn the_last_grant_holds_and_open_sessions_hear_of_it() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
    let insert = |action: &str| format!("SELECT taskq.insert_task(NULL, '{action}')");
    let mut grant =
        |arguments: &str| boss.run(&format!("SELECT taskq.grant_producer('{}'{arguments})", role.name));
    grant("");
    let mut session = db.connect_as(&role.name);
    session.run(&insert("b"));
    grant(", '{a}'");
    assert_denied(&mut session, &insert("b"));
    assert_denied(&mut session, "SELECT * FROM taskq.tasks");
    grant(", '{b}'");
    session.run(&insert("b"));
    assert_denied(&mut session, &insert("a"));
    grant(", actions => NULL");
    session.run(&insert("a"));
    session.run("SELECT * FROM taskq.tasks");
    boss.run(&format!(
        "SELECT taskq.grant_producer('{0}', '{{a}}'); SELECT taskq.revoke_producer('{0}')",
        role.name
    ));
    assert_denied(&mut session, &insert("a"));
    boss.run(&format!("DROP ROLE \"{}\"", role.name));
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.part_action"), 0);
}

/// Operators make schedules; one whose other part is narrowed makes them for tasks of its actions.
#[test]
fn schedules_of_a_narrowed_role_are_narrowed() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
    boss.run(r#"SELECT taskq.schedule('theirs', '0 0 1 1 *', '{"action": "theirs"}')"#);
    boss.run(&format!("SELECT taskq.grant_operator('{}')", role.name));
    narrowed(&mut boss, "producer", &role, "{ours}");
    let mut session = db.connect_as(&role.name);
    session.run(r#"SELECT taskq.schedule('ours', '0 0 1 1 *', '{"action": "ours"}')"#);
    session.run("SELECT taskq.run_schedule('ours')");
    for call in [
        r#"SELECT taskq.schedule('new', '0 0 1 1 *', '{"action": "theirs"}')"#,
        r#"SELECT taskq.schedule('theirs', '0 0 1 1 *', '{"action": "ours"}')"#,
        "SELECT taskq.run_schedule('theirs')",
        "SELECT taskq.pause_schedule('theirs')",
        "SELECT taskq.unschedule('theirs')",
    ] {
        assert_denied(&mut session, call);
    }
}

#[test]
fn lists_of_actions_that_make_no_sense_are_refused() {
    let role = Role::new("narrow");
    let (_db, [mut boss]) = Db::connected();
    for (code, actions) in [("22023", "'{}'"), ("22023", "'{a,\"\"}'"), ("22004", "ARRAY['a', NULL]")] {
        let call = format!("SELECT taskq.grant_worker('{}', {actions})", role.name);
        taskq_tests::refused(&mut boss, code, "actions", &call, &[]);
    }
}
