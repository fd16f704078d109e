//! What the answers to a narrowed role tell of tasks of others: nothing that it has not said itself.
//!
//! Why: an id, a number, a token or a filter that is refused only where it fits is a question that is answered. On wrong code one
//! learns whose tasks there are, how they stand, or that one has gone.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

use super::narrowed::{PRODUCING, WORKING, fill, narrowed};
use super::{Role, assert_denied};

/// What a call answers about a task of others is the same whatever has become of that task: it is denied before its state
/// is looked at, and an id that is taken is just that. On wrong code one refusal says who has the task in progress, or a call is
/// denied for live tasks only.
#[test]
fn no_answer_tells_the_state_of_a_task_of_others() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
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
    // Of its own it is told, if it may do more than insert.
    for (part, told) in
        [("inserter", "It is in the queue."), ("producer", "It is ready."), ("worker", "It is ready.")]
    {
        narrowed(&mut boss, part, &role, "{ours}");
        let error = db.connect_as(&role.name).insert(json!([{"id": "o", "action": "ours"}])).unwrap_err();
        assert_eq!(error.as_db_error().unwrap().detail(), Some(told));
        boss.run(&format!("SELECT taskq.revoke_{part}('{}')", role.name));
    }
}

/// A worker of `ours` among the tasks that [`fill`] makes, and the token of `held`.
fn worker_of_ours(db: &Db, role: &Role) -> (Session, Session, String) {
    let mut boss = db.connect();
    let token = fill(&mut boss);
    narrowed(&mut boss, "worker", role, "{ours}");
    (boss, db.connect_as(&role.name), token)
}

/// A caller who makes numbers up learns nothing: the answers do not show whether there is a task, or an action, of that
/// number. On wrong code a call is denied for those that there are, so that they can be counted.
#[test]
fn numbers_that_are_made_up_do_not_show_which_tasks_there_are() {
    let role = Role::new("narrow");
    let db = Db::new();
    let (mut boss, mut session, _) = worker_of_ours(&db, &role);
    let number = |boss: &mut Session, id: &str| {
        boss.one::<i64>(&format!("SELECT t.task_no FROM taskq.task AS t WHERE t.id = '{id}'"))
    };
    let num_over = |no: i64, id: &str| format!("SELECT taskq._num_settled('{{{no}}}', '{{{id}}}')");
    for id in ["t1", "lost"] {
        let its = number(&mut boss, id);
        assert_denied(&mut session, &num_over(its, id));
    }
    let ours = number(&mut boss, "o1");
    assert_eq!(session.one::<i32>(&num_over(ours, "o1")), 0);
    let last = number(&mut boss, "o3");
    for made_up in (1..last + 10).filter(|made_up| *made_up != ours) {
        assert_eq!(session.one::<i32>(&num_over(made_up, "o1")), 1, "{made_up} of {last}");
    }
    // What has settled, or has gone, is over.
    boss.perform("ours", "completed");
    assert_eq!(session.one::<i32>(&num_over(ours, "o1")), 1);
    boss.run("SELECT taskq.delete_tasks('{o1}')");
    assert_eq!(session.one::<i32>(&num_over(ours, "o1")), 1);

    boss.insert(json!([{"action": "theirs", "delay": "1 second"}, {"action": "ours", "delay": "1 second"}]))
        .unwrap();
    assert_denied(&mut session, "SELECT taskq._left_behind('{theirs}', '{1}')");
    let ours: i32 = boss.one("SELECT a.action_no FROM taskq.action AS a WHERE a.name = 'ours'");
    let left = "SELECT taskq._left_behind('{ours}', ARRAY(SELECT generate_series(-1, 200)))";
    assert_eq!(session.all::<i32>(left), [ours], "what is due soon, of its own");
}

/// A token has the number of its task. One that was made up is a bad one, whatever number is in it.
#[test]
fn tokens_that_are_made_up_do_not_show_which_tasks_there_are() {
    let role = Role::new("narrow");
    let db = Db::new();
    let (mut boss, mut session, token) = worker_of_ours(&db, &role);
    for id in ["t1", "held", "lost"] {
        // With the number of this very task.
        let number: i64 = boss.one(&format!("SELECT t.task_no FROM taskq.task AS t WHERE t.id = '{id}'"));
        let made_up = format!(
            "{:08x}-{:04x}-8{:03x}-9234-123456789abc",
            number >> 28 & 0xffff_ffff,
            number >> 12 & 0xffff,
            number & 0xfff
        );
        if id == "held" {
            assert_eq!(made_up[..18], token[..18], "a token begins with the number of its task");
        }
        let error =
            session.batch_execute(&format!("SELECT taskq.return_task('{id}', '{made_up}')")).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ001", "{id}");
        let many = format!("SELECT sqlstate FROM taskq.return_tasks('{{{id}}}', '{{{made_up}}}')");
        assert_eq!(session.all::<String>(&many), ["TQ001"], "{id}");
        let extended = format!(
            "SELECT owned FROM taskq.extend_tasks_ownership('w', '{{{id}}}', '{{{made_up}}}', '1 hour')"
        );
        assert_eq!(session.all::<bool>(&extended), [false], "{id}");
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
    // Numbers of tasks stand in tokens, and any client can make one up.
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
fn a_filter_does_not_show_tasks_of_others() {
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
