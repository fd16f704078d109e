//! The groups of a caller whose part is narrowed, into which tasks of others come while the call waits for another
//! transaction.
//!
//! Why: a group may have any tasks, and a call on it is checked against those that it has. On wrong code that is done before it waits,
//! and what it then ends, deletes, resets or counts are tasks of others as well.

use serde_json::json;
use taskq_tests::{Db, Progress, Session, sqlstate, until};

use super::narrowed::narrowed;
use super::{Role, assert_denied};

/// A task of others comes into the group.
const SECRET: &str = "SELECT taskq.insert_task('secret', 'theirs', group_id => 'g')";

/// What the narrowed caller got, while another transaction did `before`, and then `meanwhile` was committed.
fn beside(
    setup: &str,
    before: &str,
    meanwhile: &dyn Fn(&mut Session),
    call: &'static str,
) -> (Role, Db, String) {
    let role = Role::new("narrow");
    let db = Db::new();
    let (mut boss, mut open) = (db.connect(), db.connect());
    narrowed(&mut boss, "producer", &role, "{ours}");
    boss.insert(json!([
        {"id": "m", "action": "ours", "group_id": "g"}, {"id": "n", "action": "ours"}, {"id": "o", "action": "ours"},
    ]))
    .unwrap();
    boss.run(setup);
    open.run(&format!("BEGIN; {before}"));
    let waiting = db.connect_as(&role.name).background(move |session| match session.batch_execute(call) {
        Ok(()) => "done".to_owned(),
        Err(error) => sqlstate(&error).to_owned(),
    });
    assert_eq!(waiting.settle_down(&mut boss), Progress::Blocked, "{call}");
    meanwhile(&mut boss);
    open.run("COMMIT");
    let (_, answer) = waiting.join();
    (role, db, answer)
}

fn insert_secret(boss: &mut Session) {
    boss.run(SECRET);
}

/// The other has paused the group, and not yet committed.
#[test]
fn delete_group_spares_what_came_in_while_it_waited() {
    let setup = "SELECT taskq.pause_group('g'); SELECT taskq.resume_group('g')";
    let before = "SELECT taskq.pause_group('g')";
    let (_role, db, answer) = beside(setup, before, &insert_secret, "SELECT taskq.delete_group('g')");
    assert_eq!(answer, "42501");
    let mut boss = db.connect();
    assert_eq!((boss.state("secret"), boss.state("m")), ("ready".to_owned(), "ready".to_owned()));
}

/// The other has the graph's guard.
#[test]
fn reset_group_spares_what_came_in_while_it_waited() {
    let guard = "SELECT taskq.add_dependencies('{n}'::text[], '{o}'::text[])";
    let completed = |boss: &mut Session| {
        boss.run(SECRET);
        boss.perform("theirs", "completed");
    };
    let (_role, db, answer) = beside("", guard, &completed, "SELECT taskq.reset_group('g')");
    assert_eq!((answer.as_str(), db.connect().state("secret").as_str()), ("42501", "completed"));
    let held = |boss: &mut Session| {
        boss.run(SECRET);
        boss.own("them", 1, &["theirs"]).unwrap();
    };
    let (_role, db, answer) = beside("", guard, &held, "SELECT taskq.reset_group('g')");
    assert_eq!((answer.as_str(), db.connect().state("secret").as_str()), ("42501", "in-progress"));
}

#[test]
fn pause_group_and_resume_group_leave_a_group_alone_that_others_have_joined_while_they_waited() {
    let (setup, holds) =
        ("SELECT taskq.set_group('g', weight => 2)", "SELECT taskq.set_group('g', weight => 3)");
    let (_role, db, answer) = beside(setup, holds, &insert_secret, "SELECT taskq.pause_group('g')");
    let paused = "SELECT paused FROM taskq.task_group WHERE group_id = 'g'";
    assert_eq!((answer.as_str(), db.connect().one::<bool>(paused)), ("42501", false));
    let (_role, db, answer) =
        beside("SELECT taskq.pause_group('g')", holds, &insert_secret, "SELECT taskq.resume_group('g')");
    assert_eq!((answer.as_str(), db.connect().one::<bool>(paused)), ("42501", true));
}

/// These go by the tasks that were checked, whatever comes later.
#[test]
fn cancel_group_and_retry_group_change_none_that_came_in_while_they_waited() {
    let row = "SELECT taskq.update_tasks('{m}', priority => 1)";
    let (_role, db, answer) = beside("", row, &insert_secret, "SELECT taskq.cancel_group('g')");
    let mut boss = db.connect();
    assert_eq!((boss.state("secret").as_str(), boss.state("m").as_str()), ("ready", "aborted"), "{answer}");
    let guard = "SELECT taskq.add_dependencies('{n}'::text[], '{o}'::text[])";
    let aborted = |boss: &mut Session| {
        boss.run(SECRET);
        boss.perform("theirs", "aborted");
    };
    let setup = "SELECT taskq.cancel_tasks('{m}')";
    let (_role, db, answer) = beside(setup, guard, &aborted, "SELECT taskq.retry_group('g')");
    assert_eq!(db.connect().state("secret"), "aborted", "{answer}");
}

/// Rows of two members are locked by two transactions, one after the other: the call begins anew in between, and looks at the
/// group once more.
#[test]
fn cancel_group_is_checked_again_when_it_begins_anew() {
    let role = Role::new("narrow");
    let db = Db::new();
    let (mut boss, mut first, mut second) = (db.connect(), db.connect(), db.connect());
    narrowed(&mut boss, "producer", &role, "{ours}");
    boss.insert(json!([
        {"id": "m", "action": "ours", "group_id": "g", "delay": "1 hour"}, {"id": "n", "action": "ours", "group_id": "g"},
    ]))
    .unwrap();
    first.run("BEGIN; SELECT taskq.update_tasks('{n}', priority => 1)");
    second.run("BEGIN; SELECT taskq.update_tasks('{m}', priority => 1)");
    let waiting = db.connect_as(&role.name).background(|session| {
        session.batch_execute("SELECT taskq.cancel_group('g')").map_err(|error| sqlstate(&error).to_owned())
    });
    assert_eq!(waiting.settle_down(&mut boss), Progress::Blocked);
    first.run("COMMIT");
    let waits_for_second = format!("SELECT {} = ANY (pg_blocking_pids({}))", second.pid(), waiting.pid());
    until("the call waits for the second", || boss.one::<bool>(&waits_for_second).then_some(()));
    boss.run(SECRET);
    second.run("COMMIT");
    // A call that has begun anew is refused, one that has not is done: either leaves what came in between alone.
    drop(waiting.join());
    assert_eq!(boss.state("secret"), "ready");
}

/// A limit and a weight are for operators to set, and to take away.
#[test]
fn delete_group_of_a_narrowed_caller_keeps_what_operators_have_set() {
    let role = Role::new("narrow");
    let db = Db::new();
    let mut boss = db.connect();
    narrowed(&mut boss, "producer", &role, "{ours}");
    let mut session = db.connect_as(&role.name);
    let settings =
        "SELECT max_concurrency || ' ' || weight || ' ' || paused FROM taskq.task_group WHERE group_id = 'g'";
    for with_tasks in [false, true] {
        boss.run(
            "SELECT taskq.set_group('g', max_concurrency => 2, weight => 5); SELECT taskq.pause_group('g')",
        );
        if with_tasks {
            boss.insert(json!([{"id": "m", "action": "ours", "group_id": "g"}])).unwrap();
        }
        assert_eq!(session.one::<i64>("SELECT taskq.delete_group('g')"), i64::from(with_tasks));
        assert_eq!(boss.all::<String>(settings), ["2 5 false"], "the pause is forgotten");
    }
    // One that is paused only goes altogether.
    boss.run(
        "SELECT taskq.pause_group('g'); SELECT taskq.set_group('g', clear => '{max_concurrency,weight}')",
    );
    session.run("SELECT taskq.delete_group('g')");
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.task_group"), 0);
    boss.run("SELECT taskq.set_group('g', weight => 5); SELECT taskq.delete_group('g')");
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.task_group"), 0, "an operator removes it");
    boss.run(SECRET);
    assert_denied(&mut session, "SELECT taskq.delete_group('g')");
}
