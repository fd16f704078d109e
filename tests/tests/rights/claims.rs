//! Sentences of SECURITY.md, and the table of rights in docs/reference/rights.md, of which no other test is.
//!
//! Why: an administrator who sets a queue up goes by these pages. The end of SECURITY.md says which test holds which
//! sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::json;
use taskq_tests::notifications::notifications;
use taskq_tests::{Db, Session, sqlstate};
use uuid::Uuid;

use super::{PARTS, Role, assert_denied, with_part, without_part};

/// What each part may call, as the table of that page has it; `narrowed` are those rows of which a narrowed part has nothing.
fn table(session: &mut Session) -> (BTreeMap<String, Vec<bool>>, BTreeSet<String>) {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/rights.md")).unwrap();
    let views: Vec<String> = session.all(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'taskq'::regnamespace AND relkind = 'v' AND relname NOT LIKE '\\_%'",
    );
    let (mut may, mut narrowed) = (BTreeMap::new(), BTreeSet::new());
    let rows = page.lines().skip_while(|line| !line.starts_with("| may |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        // What depends on an argument is another test's.
        let what = cells[0].split(", and ").next().unwrap();
        let mut names: Vec<String> = what.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        if what.contains("all views") {
            names.extend(views.iter().cloned());
        }
        for name in names {
            let looks = cells[5] == "yes" && !NARROWED_TOO.contains(&name.as_str());
            if looks || name == "maintain" {
                narrowed.insert(name.clone());
            }
            may.insert(name, cells[1..6].iter().map(|cell| *cell == "yes").collect());
        }
    }
    assert!(may.len() > 60, "only {} rights were found", may.len());
    (may, narrowed)
}

/// Of what monitors have, this is not about all tasks.
const NARROWED_TOO: [&str; 10] = [
    "endings",
    "wait_for_task",
    "wait_for_tasks",
    "task_channel",
    "action_channel",
    "lost_channel",
    "clock",
    "next_times",
    "shard",
    "shard_of",
];

#[test]
fn each_part_may_call_what_the_table_of_rights_says_and_nothing_else() {
    let role = Role::new("part");
    let (db, [mut boss]) = Db::connected();
    let (table, not_narrowed) = table(&mut boss);
    let columns = ["inserter", "producer", "worker", "operator", "monitor"];
    for part in PARTS {
        drop(with_part(&db, &mut boss, &role, part));
        let column = columns.iter().position(|name| *name == part.0).unwrap();
        let rows = boss
            .query(
                "SELECT p.proname::text, has_function_privilege($1, p.oid, 'EXECUTE') FROM pg_proc p \
                  WHERE p.pronamespace = 'taskq'::regnamespace AND p.proname NOT LIKE '\\_%' \
                 UNION ALL SELECT c.relname::text, has_table_privilege($1, c.oid, 'SELECT') FROM pg_class c \
                  WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'v' AND c.relname NOT LIKE '\\_%'",
                &[&role.name],
            )
            .unwrap();
        for row in rows {
            let (name, may): (String, bool) = (row.get(0), row.get(1));
            let mut expected = table.get(&name).is_some_and(|may| may[column]);
            expected &= part.1.is_empty() || !not_narrowed.contains(&name);
            assert_eq!(may, expected, "{part:?}: {name}");
        }
        without_part(&mut boss, &role, part);
    }
}

#[test]
fn tokens_are_hidden_from_all_but_superusers_and_members_of_pg_read_all_data() {
    let (role, reader) = (Role::new("part"), Role::new("reader"));
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = boss.own_one_with("x", "lease => '1 hour'");
    for part in PARTS {
        let mut session = with_part(&db, &mut boss, &role, part);
        for table in ["run", "lease", "task"] {
            assert_denied(&mut session, &format!("SELECT * FROM taskq.{table}"));
            assert_denied(&mut session, &format!("COPY taskq.{table} TO STDOUT"));
        }
        without_part(&mut boss, &role, part);
    }
    boss.run(&format!("GRANT pg_read_all_data TO \"{}\"", reader.name));
    let mut session = db.connect_as(&reader.name);
    for table in ["run", "lease"] {
        assert_eq!(session.one::<i64>(&format!("SELECT count(*) FROM taskq.{table}")), 1, "{table}");
    }
    // And with a token a role that is no worker can do nothing.
    for part in PARTS.into_iter().filter(|(part, _)| *part != "worker") {
        let mut session = with_part(&db, &mut boss, &role, part);
        assert_denied(&mut session, &format!("SELECT taskq.return_task('a', '{}')", grant.token));
        assert_denied(
            &mut session,
            &format!("SELECT taskq.extend_tasks_ownership('w', '{{a}}', '{{{}}}', '1 day')", grant.token),
        );
        without_part(&mut boss, &role, part);
    }
    boss.complete(&grant);
}

/// A whole worker, who may do everything with the task but this.
#[test]
fn without_the_token_no_part_returns_or_extends_what_another_was_granted() {
    let role = Role::new("part");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]));
    let held = boss.own_one_with("x", "lease => '1 hour'");
    let mut session = with_part(&db, &mut boss, &role, ("worker", ""));
    let own = session.own_one("x");
    for token in [Uuid::nil(), Uuid::new_v4(), own.token] {
        let error = session.give(&held.task_id, token, "completed").unwrap_err();
        assert_eq!(sqlstate(&error), "TQ001");
        let extended = session.extend("w", &[(&held.task_id, token)], "1 day").unwrap();
        assert_eq!(extended, [(held.task_id.clone(), false)]);
    }
    boss.complete(&held);
}

#[test]
fn inside_a_part_no_role_is_protected_and_a_list_of_actions_separates() {
    let (one, other) = (Role::new("one"), Role::new("other"));
    let (db, [mut boss]) = Db::connected();
    let mut first = with_part(&db, &mut boss, &one, ("producer", ""));
    let mut second = with_part(&db, &mut boss, &other, ("producer", ""));
    first.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    assert_eq!(second.cancel(&["a"]).unwrap(), 1);
    let mut worker = with_part(&db, &mut boss, &other, ("worker", ""));
    assert_eq!(worker.own_one("x").task_id, "b");
    boss.run(&format!("SELECT taskq.revoke_producer('{}')", other.name));
    boss.run(&format!("SELECT taskq.grant_worker('{}', '{{y}}')", other.name));
    first.insert(json!([{"id": "c", "action": "x"}])).unwrap();
    assert_denied(&mut worker, "SELECT taskq.own_tasks('w', 1, '{x}')");
    assert_denied(&mut worker, "SELECT taskq.cancel_tasks('{c}')");
}

/// A dependency connects a task of others with two of ours.
#[test]
fn a_narrowed_part_sees_tasks_of_others_that_are_connected_with_its_own() {
    let role = Role::new("part");
    let (db, [mut boss]) = Db::connected();
    let chain = json!([
        {"id": "o1", "action": "ours"}, {"id": "theirs", "action": "secret", "depends_on": ["o1"]},
        {"id": "o2", "action": "ours", "depends_on": ["theirs"]},
    ]);
    boss.insert(chain.clone()).unwrap();
    for part in [("producer", ", '{ours}'"), ("worker", ", '{ours}'")] {
        let mut session = with_part(&db, &mut boss, &role, part);
        // A cycle names what is on it.
        let error = session.depend_on("o2", "o1").unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "TQ004");
        assert!(error.detail().unwrap().contains("theirs"), "{error:?}");
        // A status tells the dependency that was lost.
        boss.cancel(&["o1"]).unwrap();
        let status = session.wait("o2", "0").unwrap().unwrap().status.unwrap();
        assert!(status.contains("theirs"), "{status}");
        // What hangs on a task is brought back and deleted with it, and counted.
        assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{o1}')"), 3);
        assert_eq!(session.one::<i64>("SELECT taskq.delete_tasks('{o1}')"), 3);
        boss.insert(chain.clone()).unwrap();
        without_part(&mut boss, &role, part);
    }
}

/// Names of groups are shared; a verb for groups passes over the tasks of others, and whether a group goes on is none of its business.
#[test]
fn a_narrowed_part_changes_nothing_of_others_in_a_group() {
    let role = Role::new("part");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "t", "action": "secret", "group_id": "g"}]));
    let mut session = with_part(&db, &mut boss, &role, ("producer", ", '{ours}'"));
    for verb in ["retry_group", "cancel_group", "reset_group", "delete_group"] {
        assert_eq!(session.one::<i64>(&format!("SELECT taskq.{verb}('g')")), 0, "{verb}");
    }
    assert_eq!(boss.state("t"), "ready");
    for verb in ["pause_group", "resume_group"] {
        assert_denied(&mut session, &format!("SELECT taskq.{verb}('g')"));
        assert_denied(&mut session, &format!("SELECT taskq.{verb}('no such')"));
    }
    for verb in ["retry_group", "cancel_group", "reset_group"] {
        let error = session.batch_execute(&format!("SELECT taskq.{verb}('no such')"));
        assert!(error.is_err_and(|error| sqlstate(&error) == "TQ007"), "{verb}");
    }
}

/// A call that links tasks of the queue in both directions takes the guard of the graph, and has it until its transaction ends.
#[test]
fn a_lock_timeout_bounds_the_wait_for_the_graph_guard_and_work_goes_on() {
    let role = Role::new("part");
    let (db, [mut boss]) = Db::with_tasks(json!([
        {"id": "o1", "action": "ours"}, {"id": "o2", "action": "ours", "delay": "1 hour"},
        {"id": "lost", "action": "secret"}, {"id": "s1", "action": "secret", "delay": "1 hour"},
        {"id": "s2", "action": "secret", "delay": "1 hour"},
    ]));
    boss.cancel(&["lost"]).unwrap();
    let mut session = with_part(&db, &mut boss, &role, ("producer", ", '{ours}'"));
    session
        .run("BEGIN; SELECT taskq.insert_task('x', 'ours', depends_on => '{o1}', to_signal_after => '{o2}')");
    boss.run("SET lock_timeout = '200ms'");
    for call in ["retry_tasks('{lost}')", "add_dependencies('{s1}'::text[], '{s2}'::text[])"] {
        let error = boss.batch_execute(&format!("SELECT taskq.{call}")).unwrap_err();
        assert_eq!(sqlstate(&error), "55P03", "{call}");
    }
    // What is inserted, owned and returned asks for no guard.
    boss.insert(
        json!([{"id": "n1", "action": "secret"}, {"id": "n2", "action": "secret", "depends_on": ["n1"]}]),
    )
    .unwrap();
    boss.perform("secret", "completed");
    boss.perform("secret", "completed");
    session.run("ROLLBACK");
    boss.run("SELECT taskq.retry_tasks('{lost}')");
}

/// NOTIFY has no rights: what is said on a channel is heard by any role, and is no more than id and code.
#[test]
fn a_role_without_a_part_hears_only_ids_and_codes_on_channels() {
    let role = Role::new("powerless");
    let (db, [mut boss]) =
        Db::with_tasks(json!([{"id": "a", "action": "x", "body": "secret", "post_result": true}]));
    let channel: String = boss.one("SELECT taskq.task_channel('a')");
    let mut session = db.connect_as(&role.name);
    session.run(&format!("LISTEN \"{channel}\""));
    let grant = boss.own_one("x");
    boss.give_with("a", grant.token, "completed", "result => '42', status => 'secret'").unwrap();
    let heard = notifications(&mut session, &mut boss);
    assert_eq!(heard, [(channel.clone(), json!({"task_id": "a", "status_code": "completed"}))]);
    // And says what it likes.
    let mut listener = db.connect();
    listener.run(&format!("LISTEN \"{channel}\""));
    session.run(&format!("NOTIFY \"{channel}\", '{{}}'"));
    assert_eq!(notifications(&mut listener, &mut boss), [(channel, json!({}))]);
}

/// A narrowed worker puts off what waits for its own tasks, of whatever action, as it could by not returning them.
#[test]
fn children_put_off_dependents_of_any_action() {
    let role = Role::new("part");
    let (db, [mut boss]) = Db::with_tasks(
        json!([{"id": "o", "action": "ours"}, {"id": "d", "action": "secret", "depends_on": ["o"]}]),
    );
    let mut session = with_part(&db, &mut boss, &role, ("worker", ", '{ours}'"));
    let grant = session.own_one("ours");
    session
        .give_with(
            "o",
            grant.token,
            "completed",
            r#"children => '[{"action": "ours"}]', delay_children => '900 years'"#,
        )
        .unwrap();
    assert_eq!(boss.state("d"), "scheduled");
    let (seen, changed): (bool, i64) = {
        let row = boss
            .query_one(
                "SELECT not_before > now() + interval '800 years' FROM taskq.tasks WHERE id = 'd'",
                &[],
            )
            .unwrap();
        (row.get(0), boss.one("SELECT taskq.update_tasks('{d}', delay => '0')"))
    };
    assert!(seen && changed == 1, "and a role that may change it brings it back");
    assert_eq!(boss.state("d"), "ready");
}

#[test]
fn a_superuser_installs_it() {
    let role = Role::new("owner");
    let db = Db::empty();
    let mut boss = db.connect();
    boss.run(&format!("ALTER DATABASE \"{}\" OWNER TO \"{}\"", db.name(), role.name));
    let error = db.connect_as(&role.name).batch_execute("CREATE EXTENSION taskq").unwrap_err();
    assert_eq!(sqlstate(&error), "42501");
    let trusted = "SELECT bool_or(trusted) OR NOT bool_and(superuser) FROM pg_available_extension_versions WHERE name = 'taskq'";
    assert!(!boss.one::<bool>(trusted));
    boss.run(&format!("ALTER DATABASE \"{}\" OWNER TO CURRENT_USER", db.name()));
}

/// A test that the page names is there.
#[test]
fn the_page_names_tests_that_there_are() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let page = fs::read_to_string(format!("{root}/SECURITY.md")).unwrap();
    let table = page.split("## Which test holds what").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut found = 0;
    for row in rows {
        let tests = row.trim_matches('|').rsplit('|').next().unwrap();
        for name in tests.split('`').skip(1).step_by(2) {
            let parts: Vec<&str> = name.split("::").collect();
            let path = format!("{root}/tests/tests/{}", parts[..parts.len().min(2)].join("/"));
            let there = match parts.get(2) {
                Some(test) => fs::read_to_string(format!("{path}.rs"))
                    .is_ok_and(|text| text.contains(&format!("fn {test}("))),
                None => fs::metadata(&path).is_ok() || fs::metadata(format!("{path}.rs")).is_ok(),
            };
            assert!(there, "SECURITY.md names {name}, which there is not");
            found += 1;
        }
    }
    assert!(found > 40, "only {found} tests were found");
}

/// Bodies in the form of the standard were looked up when they were made.
#[test]
fn whatever_is_looked_up_as_it_runs_has_a_pinned_path() {
    let db = Db::new();
    let open: Vec<String> = db.connect().all(
        "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
          WHERE p.pronamespace = 'taskq'::regnamespace \
            AND (p.prosecdef OR l.lanname = 'plpgsql' OR l.lanname = 'sql' AND p.prosqlbody IS NULL) \
            AND NOT COALESCE('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)",
    );
    assert!(open.is_empty(), "{open:?}");
}
