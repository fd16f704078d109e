//! Settings that decide about tasks of others are not a session's to set: how often a task is tried, how long it is kept.
//!
//! Why: every call of `own_tasks` ends tries of any action whose deadlines have passed, and what settles sets off settles with
//! it. On wrong code a worker that is narrowed to one action aborts the tasks of all others, and deletes them.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::{PARTS, Role, assert_denied, with_part, without_part};

const TAKEN: [(&str, &str); 3] = [("max_tries", "1"), ("retention", "0"), ("retention_aborted", "0")];

/// Tasks of another action with dependents, whose deadlines have passed, on their first try; and one that is done by itself when
/// a task of ours is, with one behind it.
fn fill(boss: &mut Session) {
    boss.insert(json!([
        {"id": "s1", "action": "secret"}, {"id": "s2", "action": "secret"},
        {"id": "d1", "action": "secret", "depends_on": ["s1"]},
        {"id": "o", "action": "ours"},
        {"id": "mark", "action": "secret", "spontaneous": true, "depends_on": ["o"]},
        {"id": "late", "action": "secret", "depends_on": ["mark"], "delay": "1 hour"},
    ]))
    .unwrap();
    assert_eq!(boss.own_with("w", 2, &["secret"], "lease => '1 ms'").unwrap().len(), 2);
    boss.run("SELECT pg_sleep(0.01)");
}

#[test]
fn no_part_may_set_what_decides_about_tasks_of_others() {
    let role = Role::new("sets");
    let (db, [mut boss]) = Db::connected();
    for part in PARTS {
        let mut session = with_part(&db, &mut boss, &role, part);
        for (name, value) in TAKEN {
            assert_denied(&mut session, &format!("SET taskq.{name} = {value}"));
            assert_denied(&mut session, &format!("SET LOCAL taskq.{name} = {value}"));
            assert_denied(&mut session, &format!("SELECT set_config('taskq.{name}', '{value}', false)"));
            assert_denied(&mut session, &format!("ALTER ROLE \"{}\" SET taskq.{name} = {value}", role.name));
        }
        // What is about tasks that the session itself owns, it may say.
        session.run("SET taskq.backoff = ''; SET taskq.lease = '1 hour'; SET taskq.shortest_sleep = 100");
        without_part(&mut boss, &role, part);
    }
    let mut session = db.connect_as(&role.name);
    assert_denied(&mut session, "SELECT taskq.clock()");
}

/// Before its first call a session does not know the settings yet, and takes any value; it must not come to count.
#[test]
fn what_a_worker_sets_early_does_not_end_tasks_of_others() {
    let role = Role::new("sets");
    for arguments in ["", ", '{ours}'"] {
        let (db, [mut boss]) = Db::connected();
        fill(&mut boss);
        boss.run(&format!("SELECT taskq.grant_worker('{}'{arguments})", role.name));
        let mut session = db.connect_as(&role.name);
        session.run("SET taskq.max_tries = 1; SET taskq.retention = 0; SET taskq.retention_aborted = 0");
        for _ in 0..5 {
            let grants = session.own("w", 1, &["ours"]).unwrap();
            grants.iter().for_each(|grant| session.complete(grant));
        }
        let states = ["d1", "o", "mark", "late"].map(|id| boss.state(id));
        assert_eq!(states, ["blocked", "completed", "completed", "scheduled"]);
        assert_eq!(boss.own("w", 9, &["secret"]).unwrap().len(), 2, "another try of each");
        boss.run(&format!("SELECT taskq.revoke_worker('{}')", role.name));
    }
}

/// The same by cancelling: what hangs on the cancelled task goes with it, and stays as long as its own settings say.
#[test]
fn what_a_producer_sets_early_does_not_delete_dependents_of_others() {
    let role = Role::new("sets");
    let (db, [mut boss]) = Db::with_tasks(
        json!([{"id": "o", "action": "ours"}, {"id": "d", "action": "secret", "depends_on": ["o"]}]),
    );
    boss.run(&format!("SELECT taskq.grant_producer('{}', '{{ours}}')", role.name));
    let mut session = db.connect_as(&role.name);
    session.run("SET taskq.retention = 0; SET taskq.retention_aborted = 0; SELECT taskq.cancel_tasks('{o}')");
    boss.run("SELECT taskq.maintain()");
    assert_eq!([boss.state("o"), boss.state("d")], ["aborted", "aborted"]);
}

/// What a superuser says for the role or the database holds in its sessions, and a right on the setting can be given.
#[test]
fn what_administrators_set_holds() {
    let role = Role::new("sets");
    let (db, [mut boss]) = Db::connected();
    boss.run(&format!("SELECT taskq.grant_worker('{}')", role.name));
    boss.run(&format!(
        "ALTER DATABASE \"{}\" SET taskq.retention = '1h'; ALTER ROLE \"{}\" SET taskq.max_tries = 1",
        db.name(),
        role.name
    ));
    boss.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let mut session = db.connect_as(&role.name);
    let grant = session.own_one("x");
    assert_eq!(session.give("a", grant.token, "pending").unwrap(), "aborted");
    let kept = "SELECT expires_at - settled_at = '1 hour' FROM taskq.settled";
    assert!(boss.one::<bool>(kept));
    if boss.one::<i32>("SELECT current_setting('server_version_num')::integer") >= 150_000 {
        boss.run(&format!("GRANT SET ON PARAMETER taskq.max_tries TO \"{}\"", role.name));
        let set = session.batch_execute("SET taskq.max_tries = 2");
        boss.run(&format!("REVOKE SET ON PARAMETER taskq.max_tries FROM \"{}\"", role.name));
        set.unwrap();
        assert_denied(&mut session, "SET taskq.retention = 0");
    }
    // Superusers as before.
    let mut boss = db.connect();
    boss.run("SELECT taskq.clock(); SET taskq.max_tries = 1; SET taskq.retention = 0");
}
