//! Parts that are narrowed to some actions: the caller's own doing is, and what follows by itself is not.
//!
//! Why: several services share a queue, and one that is taken over must not reach the tasks of the others. On wrong code a
//! way round is open: by children, by a dependency, by an id, by a group, by a schedule, by SET ROLE, by a function of
//! another owner; or the upkeep that a narrowed worker does for all is refused.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

use super::{Role, assert_allowed, assert_denied};

fn narrowed(boss: &mut Session, part: &str, role: &Role, actions: &str) {
    boss.run(&format!("SELECT taskq.grant_{part}('{}', actions => '{actions}')", role.name));
}

/// Every way to have to do with tasks of action `theirs`, as a producer.
const PRODUCING: &[&str] = &[
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
    "SELECT taskq.pause_group('g')",
    "SELECT taskq.resume_group('g')",
    "SELECT taskq.cancel_group('g')",
    "SELECT taskq.delete_group('g')",
    "SELECT taskq.retry_group('g')",
    "SELECT taskq.reset_group('g')",
    r#"SELECT taskq.schedule('s', '0 0 1 1 *', '{"action": "theirs"}')"#,
    "SELECT * FROM taskq.tasks",
    "SELECT taskq.set_action('ours', max_tries => 1)",
];

const WORKING: &[&str] = &[
    "CALL taskq.wait_for_work('{theirs}', '0', NULL)",
    "SELECT taskq._look_for_work('{theirs}', true, '{1}')",
    "SELECT taskq._next_due('{theirs}')",
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
];

/// The same with tasks of action `ours`; each must be possible after those before it.
const OURS: &[&str] = &[
    "SELECT taskq.insert_task('n1', 'ours', depends_on => '{o1}', group_id => 'mine')",
    "SELECT taskq.insert_many('ours', '{a,b}', depends_on => '{n1}', on_conflict => 'skip')",
    r#"SELECT taskq.insert_tasks('[{"id": "n2", "action": "ours", "to_signal_after": ["o2"]}]')"#,
    r#"SELECT taskq.replace_tasks('[{"id": "n1", "action": "ours", "group_id": "mine"}]')"#,
    "SELECT taskq.update_tasks('{n1,n2}', priority => 1)",
    "SELECT taskq.add_dependencies('{n1}'::text[], '{n2}'::text[])",
    "SELECT taskq.pause_group('mine')",
    "SELECT taskq.resume_group('mine')",
    "SELECT taskq.cancel_group('mine')",
    "SELECT taskq.retry_tasks('{n1}')",
    "SELECT taskq.cancel_tasks(actions => '{ours}', max_tasks => 1)",
    "SELECT taskq.delete_tasks('{n2}')",
    "SELECT taskq.wait_for_task('o1', '0')",
    "CALL taskq.wait_for_tasks('{o1}', '0', NULL)",
];

fn fill(boss: &mut Session) -> String {
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
    let db = Db::new();
    let mut boss = db.connect();
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
    let db = Db::new();
    let mut boss = db.connect();
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

#[test]
fn an_inserter_inserts_and_nothing_else() {
    let (role, wide) = (Role::new("narrow"), Role::new("wide"));
    let db = Db::new();
    let mut boss = db.connect();
    let token = fill(&mut boss);
    narrowed(&mut boss, "inserter", &role, "{ours}");
    boss.run(&format!("SELECT taskq.grant_inserter('{}')", wide.name));
    let mut session = db.connect_as(&role.name);
    for call in PRODUCING.iter().chain(WORKING) {
        assert_denied(&mut session, &call.replace("$token", &token));
    }
    for call in &OURS[..3] {
        session.run(call);
    }
    for call in &OURS[3..] {
        assert_denied(&mut session, call);
    }
    let replace =
        r#"SELECT taskq.insert_tasks_report('[{"id": "new", "action": "ours"}]', on_conflict => 'replace')"#;
    assert_denied(&mut session, replace);
    let mut session = db.connect_as(&wide.name);
    assert_denied(&mut session, replace);
    for call in &PRODUCING[..9] {
        session.run(call);
    }
    for call in PRODUCING[9..].iter().chain(WORKING) {
        assert_denied(&mut session, &call.replace("$token", &token));
    }
    boss.run(&format!("SELECT taskq.revoke_inserter('{}'); DROP ROLE \"{0}\"", wide.name));
}

/// What a call answers about a task of others is the same whatever has become of that task: it is denied before its state
/// is looked at, and an id that is taken is just that. On wrong code one refusal says who has the task in progress, or a call is
/// denied for live tasks only.
#[test]
fn no_answer_tells_the_state_of_a_task_of_others() {
    let role = Role::new("narrow");
    let db = Db::new();
    let mut boss = db.connect();
    let states = ["ready", "in-progress", "completed", "aborted", "blocked", "scheduled"];
    let end = |boss: &mut Session, code: &str| boss.perform("theirs", code);
    boss.insert(json!([{"id": "t2", "action": "theirs"}, {"id": "t3", "action": "theirs"}])).unwrap();
    assert_eq!([end(&mut boss, "completed"), end(&mut boss, "aborted")], ["t2", "t3"]);
    boss.insert(json!([{"id": "t1", "action": "theirs"}])).unwrap();
    boss.own("ann", 1, &["theirs"]).unwrap();
    boss.insert(json!([
        {"id": "t0", "action": "theirs"}, {"id": "t4", "action": "theirs", "depends_on": ["t0"]},
        {"id": "t5", "action": "theirs", "delay": "1 hour"}, {"id": "o", "action": "ours"},
    ]))
    .unwrap();
    for (n, state) in states.iter().enumerate() {
        assert_eq!(boss.state(&format!("t{n}")), *state);
    }
    let calls = [
        "SELECT taskq.insert_task('$', 'ours')",
        "SELECT taskq.insert_task('$', 'ours', on_conflict => 'skip')",
        "SELECT taskq.insert_many('ours', '{a}', '{$}')",
        "SELECT taskq.insert_task(NULL, 'ours', depends_on => '{$}')",
        "SELECT taskq.insert_task(NULL, 'ours', to_signal_after => '{$}')",
        r#"SELECT taskq.insert_tasks('[{"action": "ours", "to_signal_after": ["$"], "depends_on": ["$"]}]')"#,
        r#"SELECT taskq.insert_tasks('[{"id": "$", "action": "ours"}, {"action": "ours", "depends_on": ["$"]}]', on_conflict => 'skip')"#,
        r#"SELECT taskq.insert_tasks_report('[{"id": "$", "action": "ours"}]', on_conflict => 'replace')"#,
        r#"SELECT taskq.replace_tasks('[{"id": "$", "action": "ours"}]')"#,
        r#"SELECT taskq.replace_tasks('[{"id": "$", "action": "ours", "unique_by": "k"}]')"#,
        "SELECT taskq.update_tasks('{$}', priority => 1)",
        "SELECT taskq.cancel_tasks('{$}')",
        "SELECT taskq.delete_tasks('{$}')",
        "SELECT taskq.complete_task('$')",
        "SELECT taskq.retry_tasks('{$}')",
        "SELECT taskq.add_dependencies('{o}'::text[], '{$}'::text[])",
        "SELECT taskq.add_dependencies('{$}'::text[], '{o}'::text[])",
        "SELECT taskq.wait_for_task('$', '0')",
        "SELECT taskq.return_task('$', gen_random_uuid())",
        "SELECT taskq.report_status('$', gen_random_uuid(), 'x')",
        "SELECT owned FROM taskq.extend_tasks_ownership('w', '{$}', ARRAY[gen_random_uuid()], '1 hour')",
    ];
    for part in ["inserter", "producer", "worker"] {
        narrowed(&mut boss, part, &role, "{ours}");
        let mut session = db.connect_as(&role.name);
        for call in calls {
            let mut answer = |id: &str| {
                session.run("BEGIN");
                let answer = match session.simple_query(&call.replace('$', id)) {
                    Ok(rows) => format!("{rows:?}"),
                    Err(error) => {
                        let error = error.as_db_error().unwrap();
                        format!(
                            "{:?} {} {:?} {:?}",
                            error.code(),
                            error.message(),
                            error.detail(),
                            error.hint()
                        )
                    }
                };
                session.run("ROLLBACK");
                answer.replace(id, "$")
            };
            let first = answer("t0");
            for (n, state) in states.iter().enumerate() {
                assert_eq!(answer(&format!("t{n}")), first, "{part}: {call}, {state}");
            }
        }
        boss.run(&format!("SELECT taskq.revoke_{part}('{}')", role.name));
    }
    // Of its own it is told.
    narrowed(&mut boss, "inserter", &role, "{ours}");
    let error = db.connect_as(&role.name).insert(json!([{"id": "o", "action": "ours"}])).unwrap_err();
    assert_eq!(error.as_db_error().unwrap().detail(), Some("It is ready."));
}

/// Dependents, schedules, deadlines: what a call sets off is not its caller's doing.
#[test]
fn what_follows_by_itself_is_not_narrowed() {
    let role = Role::new("narrow");
    let db = Db::new();
    let mut boss = db.connect();
    boss.run(r#"SELECT taskq.schedule('s', '* * * * * *', '{"action": "theirs"}')"#);
    boss.insert(json!([
        {"id": "a", "action": "ours"}, {"id": "b", "action": "theirs", "depends_on": ["a"]},
        {"id": "c", "action": "theirs", "spontaneous": true, "depends_on": ["a"]},
        {"id": "late", "action": "theirs", "max_duration": "1 microsecond", "priority": 1},
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
    let db = Db::new();
    let mut boss = db.connect();
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

/// Who calls is whose function it is: neither the session's user nor the role that it has set.
#[test]
fn a_function_of_another_owner_has_its_owners_part() {
    let (narrow, nobody, free) = (Role::new("narrow"), Role::new("nobody"), Role::new("free"));
    let db = Db::new();
    let mut boss = db.connect();
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
    for user in [&nobody, &free, &narrow] {
        let mut session = db.connect_as(&user.name);
        session.run("SELECT api.narrow('a')");
        assert_denied(&mut session, "SELECT api.narrow('b')");
        session.run("SELECT api.free('b')");
    }
    let mut session = db.connect_as(&nobody.name);
    assert_denied(&mut session, "SELECT taskq.insert_task(NULL, 'a')");
}

#[test]
fn after_a_refusal_the_session_is_itself_again() {
    let role = Role::new("narrow");
    let db = Db::new();
    let mut boss = db.connect();
    boss.insert(json!([{"id": "t1", "action": "theirs"}])).unwrap();
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
    let db = Db::new();
    let mut boss = db.connect();
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
    let db = Db::new();
    let mut boss = db.connect();
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
    let db = Db::new();
    let mut boss = db.connect();
    for (code, actions) in [("22023", "'{}'"), ("22023", "'{a,\"\"}'"), ("22004", "ARRAY['a', NULL]")] {
        let call = format!("SELECT taskq.grant_worker('{}', {actions})", role.name);
        taskq_tests::refused(&mut boss, code, "actions", &call, &[]);
    }
}

/// A worker of `ours` among the tasks that [`fill`] makes, and the token of `held`.
fn worker_of_ours(db: &Db, role: &Role) -> (Session, Session, String) {
    let mut boss = db.connect();
    let token = fill(&mut boss);
    narrowed(&mut boss, "worker", role, "{ours}");
    (boss, db.connect_as(&role.name), token)
}

#[test]
fn a_number_gets_nobody_more_than_a_name() {
    let role = Role::new("narrow");
    let db = Db::new();
    let (mut boss, mut session, _) = worker_of_ours(&db, &role);
    let task = |boss: &mut Session, id| {
        boss.one::<i64>(&format!("SELECT t.task_no FROM taskq.task AS t WHERE t.id = '{id}'"))
    };
    for id in ["t1", "lost"] {
        let number = task(&mut boss, id);
        assert_denied(&mut session, &format!("SELECT taskq._num_settled('{{{number}}}')"));
    }
    let number = task(&mut boss, "o1");
    assert_eq!(session.one::<i32>(&format!("SELECT taskq._num_settled('{{{number}}}')")), 0);
    boss.run("SELECT taskq.insert_task('soon', 'theirs', delay => '1 second')");
    for (action, denied) in [("theirs", true), ("ours", false)] {
        let number: i32 =
            boss.one(&format!("SELECT a.action_no FROM taskq.action AS a WHERE a.name = '{action}'"));
        let call = format!("SELECT count(*) FROM taskq._left_behind('{{{number}}}')");
        if denied {
            assert_denied(&mut session, &call);
        } else {
            session.run(&call);
        }
    }
}

#[test]
fn a_refusal_tells_nothing_that_the_caller_has_not_said() {
    let role = Role::new("narrow");
    let db = Db::new();
    let (_boss, mut session, token) = worker_of_ours(&db, &role);
    let mut looked_at = 0;
    for call in PRODUCING.iter().chain(WORKING).map(|call| call.replace("$token", &token)) {
        let error = session.batch_execute(&call).unwrap_err();
        let error = error.as_db_error().unwrap();
        let text =
            [Some(error.message()), error.detail(), error.hint()].map(Option::unwrap_or_default).concat();
        for name in ["theirs", "\"t1\"", "\"held\"", "\"lost\""] {
            let said = call.contains(name.trim_matches('"'));
            looked_at += i32::from(!said);
            assert!(said || !text.contains(name), "{call}: {text}");
        }
        if call.contains("cancel_tasks('{o1,t1}')") {
            assert_eq!(error.message(), "permission denied for task \"t1\"");
        }
    }
    assert!(looked_at > 60);
}

#[test]
fn a_token_of_another_task_than_the_one_that_is_named_is_a_bad_one() {
    // Numbers of tasks stand in tokens, and anybody can make one up.
    let role = Role::new("narrow");
    let db = Db::new();
    let (_boss, mut session, token) = worker_of_ours(&db, &role);
    for id in ["o1", "t1"] {
        let error =
            session.batch_execute(&format!("SELECT taskq.return_task('{id}', '{token}')")).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ001", "{id}");
        let detail = error.as_db_error().unwrap().detail().unwrap().to_owned();
        assert_eq!(detail.contains("The task is ready."), id == "o1", "{id}: {detail}");
    }
}

/// Whether a filter fits tells what a task is like: it is asked about what the caller may touch, and nothing else.
#[test]
fn a_filter_is_no_way_to_ask_about_tasks_of_others() {
    let role = Role::new("narrow");
    let db = Db::new();
    let (mut boss, mut session, _) = worker_of_ours(&db, &role);
    for fits in ["%", "nothing like it"] {
        for scope in [
            "task_ids => '{o1,t1}'",
            "actions => '{theirs}'",
            "actions => '{ours,theirs}'",
            "groups => '{g}'",
        ] {
            for verb in ["cancel_tasks", "delete_tasks", "retry_tasks"] {
                assert_denied(
                    &mut session,
                    &format!("SELECT taskq.{verb}({scope}, status_like => '{fits}')"),
                );
            }
        }
        assert_denied(&mut session, &format!("SELECT taskq.cancel_tasks(status_like => '{fits}')"));
    }
    for scope in ["task_ids => '{o1,gone}'", "actions => '{ours}'", "actions => '{ours}', groups => '{g}'"] {
        for verb in ["cancel_tasks", "delete_tasks", "retry_tasks"] {
            session.run(&format!("SELECT taskq.{verb}({scope}, status_like => 'nothing like it')"));
        }
    }
    assert_eq!(session.one::<i64>("SELECT taskq.cancel_tasks(actions => '{ours}', groups => '{g}')"), 1);
    assert_eq!((boss.state("o3"), boss.state("t1")), ("aborted".to_owned(), "ready".to_owned()));
}
