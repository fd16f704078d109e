//! Inserters insert tasks, and do nothing with those there are: they neither make them wait or end, nor replace them, nor hear
//! how they stand.
//!
//! Why: it is the part of what is trusted least. On wrong code a web server that is taken over blocks the whole queue with one
//! call, aborts tasks by a dependency that is lost, replaces what others have inserted with a key, or learns who performs what.

use serde_json::json;
use taskq_tests::{Db, Session, refused, state_of_all};

use super::{Role, assert_denied, with_part, without_part};

const PARTS: [(&str, &str); 2] = [("inserter", ""), ("inserter", ", '{ours}'")];

/// Tasks of action `ours` in every state, `t0` to `t5`.
fn fill(boss: &mut Session) {
    boss.insert(json!([{"id": "t2", "action": "ours"}, {"id": "t3", "action": "ours"}])).unwrap();
    assert_eq!([boss.perform("ours", "completed"), boss.perform("ours", "aborted")], ["t2", "t3"]);
    boss.insert(json!([{"id": "t1", "action": "ours"}])).unwrap();
    boss.own("ann", 1, &["ours"]).unwrap();
    boss.insert(json!([
        {"id": "t0", "action": "ours", "unique_by": "held"}, {"id": "t4", "action": "ours", "depends_on": ["t0"]},
        {"id": "t5", "action": "ours", "delay": "1 hour"},
    ]))
    .unwrap();
}

#[test]
fn no_task_of_the_queue_is_made_to_wait() {
    let role = Role::new("ins");
    let (db, [mut boss]) = Db::connected();
    fill(&mut boss);
    let before = state_of_all(&mut boss);
    let calls = [
        "SELECT taskq.insert_task(NULL, 'ours', to_signal_after => '{$}')",
        "SELECT taskq.insert_task(NULL, 'ours', to_signal_after => '{$}', spontaneous => true)",
        "SELECT taskq.insert_many('ours', '{a,b}', to_signal_after => '{$}')",
        "SELECT taskq.insert_many('ours', '{a,b}', to_signal_after => '{$}', if_missing => 'ignore')",
        r#"SELECT taskq.insert_tasks('[{"action": "ours", "to_signal_after": [{"id": "$", "condition": "aborted"}]}]')"#,
        r#"SELECT taskq.insert_tasks_report('[{"action": "ours", "to_signal_after": ["$"]}]', on_conflict => 'skip')"#,
        r#"SELECT taskq.insert_tasks(taskq.chain('[{"action": "ours"}]', '[{"action": "ours", "to_signal_after": ["$"]}]'))"#,
        // By the id of an element of the call, which is there already.
        r#"SELECT taskq.insert_tasks('[{"id": "$", "action": "ours"}, {"action": "ours", "to_signal_after": ["$"]}]', on_conflict => 'skip')"#,
        // The same the other way round: what is skipped does not wait for what is inserted, either.
        r#"SELECT taskq.insert_tasks(taskq.chain('[{"id": "new", "action": "ours"}]', '[{"id": "$", "action": "ours"}]') || '[{"action": "ours", "to_signal_after": ["$"]}]', on_conflict => 'skip')"#,
    ];
    for part in PARTS {
        let mut session = with_part(&db, &mut boss, &role, part);
        for call in calls {
            for n in 0..6 {
                assert_denied(&mut session, &call.replace('$', &format!("t{n}")));
            }
        }
        without_part(&mut boss, &role, part);
    }
    assert!(before == state_of_all(&mut boss), "nothing has changed");
}

#[test]
fn the_tasks_of_a_call_may_wait_for_each_other_and_for_those_of_the_queue() {
    let role = Role::new("ins");
    let (db, [mut boss]) = Db::connected();
    fill(&mut boss);
    for (n, part) in PARTS.into_iter().enumerate() {
        let mut session = with_part(&db, &mut boss, &role, part);
        session
            .insert(json!([
                {"id": format!("last{n}"), "action": "ours"},
                {"id": format!("first{n}"), "action": "ours", "to_signal_after": [format!("last{n}")], "depends_on": ["t0"]},
            ]))
            .unwrap();
        assert_eq!(boss.state(&format!("last{n}")), "blocked");
        without_part(&mut boss, &role, part);
    }
}

/// With the key of a stored task in each of its ways: what waits there stays as it is.
#[test]
fn no_task_of_the_queue_is_replaced() {
    let role = Role::new("ins");
    let (db, [mut boss]) = Db::connected();
    fill(&mut boss);
    let unique = |on_conflict: &str, key: &str| {
        format!(
            r#"SELECT outcome FROM taskq.insert_tasks_report('[{{"action": "ours", "unique_by": {{"key": "{key}", "on_conflict": "{on_conflict}"}}}}]')"#
        )
    };
    for (n, part) in PARTS.into_iter().enumerate() {
        let mut session = with_part(&db, &mut boss, &role, part);
        let number = boss.one::<i64>("SELECT task_no FROM taskq.task WHERE id = 't0'");
        assert_denied(&mut session, &unique("replace", "held"));
        assert_denied(
            &mut session,
            r#"SELECT taskq.insert_task('t0', 'ours', unique_by => '{"key": "held", "on_conflict": "replace"}')"#,
        );
        // By way of an element that is left out for its sake.
        assert_denied(
            &mut session,
            r#"SELECT taskq.insert_tasks('[{"id": "out", "action": "ours", "unique_by": "held"}, {"action": "ours", "to_signal_after": ["out"]}]')"#,
        );
        assert_eq!(boss.one::<i64>("SELECT task_no FROM taskq.task WHERE id = 't0'"), number);
        assert_eq!(session.one::<String>(&unique("skip", "held")), "skipped");
        // Nor what the role itself has inserted: whose a task is, the queue does not know.
        assert_eq!(session.one::<String>(&unique("replace", &format!("own{n}"))), "inserted");
        assert_denied(&mut session, &unique("replace", &format!("own{n}")));
        without_part(&mut boss, &role, part);
    }
}

#[test]
fn what_has_begun_is_followed() {
    let role = Role::new("ins");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "begun", "action": "ours", "unique_by": "k"}]));
    let grant = boss.own_one("ours");
    let mut session = with_part(&db, &mut boss, &role, PARTS[1]);
    session
        .insert(
            json!([{"id": "next", "action": "ours", "unique_by": {"key": "k", "on_conflict": "replace"}}]),
        )
        .unwrap();
    assert_eq!(boss.state("next"), "blocked");
    boss.complete(&grant);
    assert_eq!(boss.state("next"), "ready");
}

/// Of a caller who makes no task of the queue wait no cycle can come. On wrong code the transaction that it keeps open has
/// `retry_tasks`, `reset_group` and `add_dependencies` of all wait.
#[test]
fn an_open_transaction_does_not_hold_the_guard_of_the_graph() {
    let role = Role::new("ins");
    let (db, [mut boss]) = Db::with_tasks(
        json!([{"id": "begun", "action": "ours", "unique_by": "k"}, {"id": "there", "action": "other"}]),
    );
    boss.own_one("ours");
    boss.insert(json!([{"id": "s1", "action": "secret"}, {"id": "s2", "action": "secret"}, {"id": "lost", "action": "secret"}]))
        .unwrap();
    boss.run("SET lock_timeout = '1s'");
    let calls = [
        r#"SELECT taskq.insert_tasks('[{"id": "next", "action": "ours", "unique_by": {"key": "k", "on_conflict": "replace"}}, {"action": "ours", "to_signal_after": ["next"]}]')"#,
        r#"SELECT taskq.insert_tasks('[{"id": "there", "action": "ours"}, {"id": "last", "action": "ours", "depends_on": ["there"]}, {"action": "ours", "to_signal_after": ["last"], "depends_on": ["lost"]}]', on_conflict => 'skip')"#,
    ];
    let mut session = with_part(&db, &mut boss, &role, PARTS[0]);
    for call in calls {
        session.run(&format!("BEGIN; {call}"));
        boss.run("BEGIN; SELECT taskq.add_dependencies('{s1}'::text[], '{s2}'::text[]); ROLLBACK");
        session.run("ROLLBACK");
    }
}

/// An id or a key that is taken is just that; a role that may look, too, is told more.
#[test]
fn an_inserter_sees_nothing_of_what_is_in_the_way() {
    let role = Role::new("ins");
    let (db, [mut boss]) = Db::connected();
    fill(&mut boss);
    for part in PARTS {
        let mut session = with_part(&db, &mut boss, &role, part);
        for n in 0..6 {
            let error = session.insert(json!([{"id": format!("t{n}"), "action": "ours"}])).unwrap_err();
            let error = error.as_db_error().unwrap();
            assert_eq!((error.code().code(), error.detail()), ("TQ002", Some("It is in the queue.")));
        }
        let error = session
            .insert(json!([{"action": "ours", "unique_by": {"key": "held", "on_conflict": "error"}}]))
            .unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(error.code().code() == "TQ002" && !format!("{error:?}").contains("ready"), "{error:?}");
        boss.run(&format!("SELECT taskq.grant_monitor('{}')", role.name));
        let error = session.insert(json!([{"id": "t1", "action": "ours"}])).unwrap_err();
        assert_eq!(error.as_db_error().unwrap().detail(), Some("It is in-progress, owned by \"ann\"."));
        boss.run(&format!("SELECT taskq.revoke_monitor('{}')", role.name));
        without_part(&mut boss, &role, part);
    }
}

/// The parts that may do more do it as before.
#[test]
fn producers_link_and_replace() {
    let role = Role::new("ins");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "a", "action": "ours", "unique_by": "k"}]));
    for (n, part) in
        [("producer", ", '{ours}'"), ("worker", ", '{ours}'"), ("worker", "")].into_iter().enumerate()
    {
        let mut session = with_part(&db, &mut boss, &role, part);
        session.run(&format!("SELECT taskq.insert_task('b{n}', 'ours')"));
        session.run(&format!("SELECT taskq.insert_task('plug{n}', 'ours', to_signal_after => '{{b{n}}}')"));
        assert_eq!(boss.state(&format!("b{n}")), "blocked");
        session
            .insert(json!([{"id": format!("c{n}"), "action": "ours", "unique_by": {"key": "k", "on_conflict": "replace"}}]))
            .unwrap();
        without_part(&mut boss, &role, part);
    }
    // An operator ends tasks as well: with the part of an inserter it may say so at once.
    boss.run(&format!("SELECT taskq.grant_operator('{0}'), taskq.grant_inserter('{0}')", role.name));
    let mut session = db.connect_as(&role.name);
    session.run("SELECT taskq.insert_task('d', 'ours', to_signal_after => '{c2}')");
    let error = refused(&mut boss, "TQ002", "d", "SELECT taskq.insert_task('d', 'ours')", &[]);
    assert_eq!(error.detail(), Some("It is ready."));
}
