//! The groups of a caller whose part is narrowed, which have tasks of others, or into which such come while the call waits for another
//! transaction.
//!
//! Why: a group may have any tasks. On wrong code a call ends, deletes, resets or counts tasks of others as well; or is refused, and
//! one task that an inserter puts into the group keeps its users from it for good.

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
    let (db, [mut boss, mut open]) = Db::connected();
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

/// The other has a task of the group.
#[test]
fn delete_group_spares_what_came_in_while_it_waited() {
    let before = "SELECT taskq.update_tasks('{m}', priority => 1)";
    let (_role, db, answer) = beside("", before, &insert_secret, "SELECT taskq.delete_group('g')");
    assert_eq!(answer, "done");
    let mut boss = db.connect();
    assert_eq!((boss.state("secret").as_str(), boss.task("m").is_none()), ("ready", true));
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
    assert_eq!((answer.as_str(), db.connect().state("secret").as_str()), ("done", "completed"));
    let held = |boss: &mut Session| {
        boss.run(SECRET);
        boss.own("them", 1, &["theirs"]).unwrap();
    };
    let (_role, db, answer) = beside("", guard, &held, "SELECT taskq.reset_group('g')");
    assert_eq!((answer.as_str(), db.connect().state("secret").as_str()), ("done", "in-progress"));
}

/// Tasks of others in every state; the caller's own are cancelled, come back, start over and go.
#[test]
fn verbs_for_groups_act_on_the_callers_tasks_and_pass_over_others() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
    narrowed(&mut boss, "producer", &role, "{ours}");
    let mut session = db.connect_as(&role.name);
    boss.insert(json!([{"id": "t1", "action": "theirs", "group_id": "g"}, {"id": "t2", "action": "theirs", "group_id": "g"},
                       {"id": "t3", "action": "theirs", "group_id": "g"}]))
        .unwrap();
    boss.perform("theirs", "aborted");
    boss.own_one("theirs");
    boss.insert(json!([{"id": "m", "action": "ours", "group_id": "g"}, {"id": "n", "action": "ours", "group_id": "g"}])).unwrap();
    let states = |boss: &mut Session| -> String {
        boss.one("SELECT string_agg(id || ' ' || state, ', ' ORDER BY id) FROM taskq.tasks WHERE action = 'theirs'")
    };
    let theirs = states(&mut boss);
    assert_eq!(theirs, "t1 aborted, t2 in-progress, t3 ready");
    for (verb, state) in [
        ("cancel_group", Some("aborted")),
        ("retry_group", Some("ready")),
        ("reset_group", Some("ready")),
        ("delete_group", None),
    ] {
        assert_eq!(session.one::<i64>(&format!("SELECT taskq.{verb}('g')")), 2, "{verb}");
        assert_eq!(boss.task("m").map(|task| task.state).as_deref(), state, "{verb}");
        assert_eq!(states(&mut boss), theirs, "{verb}");
    }
    // A seed of others is one of the group: what is beside it goes, as far as it is the caller's.
    boss.insert(json!([{"id": "seed", "action": "theirs", "group_id": "g", "seed": true}, {"id": "m", "action": "ours", "group_id": "g"}]))
        .unwrap();
    assert_eq!(session.one::<i64>("SELECT taskq.reset_group('g')"), 1);
    assert!(boss.task("m").is_none() && boss.task("t1").is_some());
}

/// A seed has a reset delete what is beside it.
#[test]
fn a_seed_is_for_those_who_may_delete_the_group() {
    let (inserter, producer) = (Role::new("ins"), Role::new("narrow"));
    let (db, [mut boss]) = Db::connected();
    boss.run(&format!("SELECT taskq.grant_inserter('{}')", inserter.name));
    narrowed(&mut boss, "producer", &producer, "{ours}");
    boss.insert(json!([{"id": "t", "action": "theirs", "group_id": "g"}])).unwrap();
    let mut inserts = db.connect_as(&inserter.name);
    let mut narrow = db.connect_as(&producer.name);
    for call in [
        "SELECT taskq.insert_task('s', 'ours', group_id => 'g', seed => true)",
        "SELECT taskq.insert_many('ours', '{a,b}', group_id => 'g', seed => true)",
        r#"SELECT taskq.insert_tasks('[{"action": "ours", "group_id": "g", "seed": true}]')"#,
    ] {
        assert_denied(&mut inserts, call);
        assert_denied(&mut inserts, &call.replace("'g'", "'new'").replace("\"g\"", "\"new\""));
        assert_denied(&mut narrow, call);
    }
    narrow.run("SELECT taskq.insert_task('s', 'ours', group_id => 'own', seed => true)");
    boss.run("SELECT taskq.insert_task('s2', 'ours', group_id => 'g', seed => true)");
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE seed"), 2);
}

/// A workgroup may have tasks of others: a worker holds it back for a day at most, and no other return waits for that.
#[test]
fn a_workgroup_is_held_back_for_a_day_at_most_and_holds_up_no_return() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
    narrowed(&mut boss, "worker", &role, "{ours}");
    let task = |id: &str, action: &str| json!({"id": id, "action": action, "workgroup": "w"});
    boss.insert(json!([task("a", "ours"), task("b", "theirs"), task("c", "theirs")])).unwrap();
    let mut session = db.connect_as(&role.name);
    let token = session.own_one("ours").token;
    for call in [
        "SELECT taskq.return_task('a', '$', 'pending', delay_workgroup => '25 hours')",
        "SELECT taskq.return_tasks('{a}', '{$}', 'pending', delay_workgroup => '25 hours')",
        r#"SELECT taskq.return_tasks('[{"task_id": "a", "token": "$", "delay_workgroup": "25 hours"}]')"#,
        r#"SELECT taskq.return_and_own_tasks('w', '[{"task_id": "a", "token": "$", "delay_workgroup": "25 hours"}]', 0, '{ours}')"#,
    ] {
        assert_denied(&mut session, &call.replace('$', &token.to_string()));
    }
    let [b, c] = boss.own("w", 2, &["theirs"]).unwrap().try_into().ok().unwrap();
    boss.run("SELECT taskq.delay_workgroup('w', '1 second')");
    session.run(&format!(
        "BEGIN; SELECT taskq.return_task('a', '{token}', 'pending', delay_workgroup => '24 hours')"
    ));
    // Both beside the open one, in one transaction each.
    boss.run("SET lock_timeout = '10s'");
    for (grant, delay) in [(b, "1 hour"), (c, "2 hours")] {
        boss.run(&format!(
            "SELECT taskq.return_task('{}', '{}', delay_workgroup => '{delay}')",
            grant.task_id, grant.token
        ));
    }
    let held =
        "SELECT round(extract(epoch FROM not_before - taskq.clock()) / 3600)::integer FROM taskq.workgroups";
    assert_eq!(boss.one::<i32>(held), 2);
    session.run("COMMIT");
    assert_eq!(boss.one::<i32>(held), 24, "the one that ends last decides");
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'scheduled'"), 1);
    boss.run("SELECT taskq.delay_workgroup('w', '0')");
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.workgroup"), 1);
    assert_eq!(boss.state("a"), "scheduled", "by its back-off");
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.why('a') AS w WHERE w LIKE '%workgroup%'"), 0);
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
    let (db, [mut boss, mut first, mut second]) = Db::connected();
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

/// What is set for a group is for operators to set, and to take away, as is whether it goes on.
#[test]
fn delete_group_of_a_narrowed_caller_keeps_what_operators_have_set() {
    let role = Role::new("narrow");
    let (db, [mut boss]) = Db::connected();
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
        assert_eq!(boss.all::<String>(settings), ["2 5 true"]);
    }
    boss.run("SELECT taskq.delete_group('g')");
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.task_group"), 0, "an operator removes it");
}
