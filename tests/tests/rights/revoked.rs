//! What was taken back holds for calls that sleep, and what is left of roles that are gone is no other role's.
//!
//! Why: a call may sleep for years. On wrong code it is granted tasks that its role has no right to any more, with their bodies. And an
//! OID without a role is another role's in another cluster, after a restore: that role would have the actions of the one that is gone.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

use super::narrowed::narrowed;
use super::{Role, with_part, without_part};

/// What a call gets that sleeps while `meanwhile` is done.
fn asleep(db: &Db, boss: &mut Session, role: &Role, call: &'static str, meanwhile: &str) -> String {
    let sleeping = db.connect_as(&role.name).background(move |session| match session.query(call, &[]) {
        Ok(rows) => format!("{} rows", rows.len()),
        Err(error) => sqlstate(&error).to_owned(),
    });
    boss.until_asleep(sleeping.pid());
    boss.run(meanwhile);
    sleeping.join().1
}

#[test]
fn a_call_that_sleeps_is_granted_nothing_once_its_right_is_taken_back() {
    let role = Role::new("worker");
    let (db, [mut boss]) = Db::connected();
    let own = "SELECT * FROM taskq.own_tasks('w', 1, '{ours}', wait => '60 s')";
    for arguments in ["", ", '{ours}'"] {
        with_part(&db, &mut boss, &role, ("worker", arguments));
        let taken =
            format!("SELECT taskq.revoke_worker('{}'); SELECT taskq.insert_task(NULL, 'ours')", role.name);
        assert_eq!(asleep(&db, &mut boss, &role, own, &taken), "42501", "{arguments}");
        boss.run("SELECT taskq.cancel_tasks(actions => '{ours}')");
    }
    // Narrowed to others meanwhile.
    narrowed(&mut boss, "worker", &role, "{ours}");
    let others = format!(
        "SELECT taskq.grant_worker('{}', '{{theirs}}'); SELECT taskq.insert_task(NULL, 'ours')",
        role.name
    );
    assert_eq!(asleep(&db, &mut boss, &role, own, &others), "42501");
    assert_eq!(boss.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'ready'"), 1);
    // What was left to it, it is granted.
    narrowed(&mut boss, "worker", &role, "{ours,theirs}");
    boss.run("SELECT taskq.cancel_tasks(actions => '{ours}')");
    let fewer = format!(
        "SELECT taskq.grant_worker('{}', '{{ours}}'); SELECT taskq.insert_task(NULL, 'ours')",
        role.name
    );
    assert_eq!(asleep(&db, &mut boss, &role, own, &fewer), "1 rows");
}

#[test]
fn a_call_that_sleeps_hears_of_no_end_once_its_right_is_taken_back() {
    let role = Role::new("producer");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "t", "action": "ours"}]));
    with_part(&db, &mut boss, &role, ("producer", ""));
    let taken = format!(
        "SELECT taskq.revoke_producer('{}'); SELECT taskq.complete_task('t', '\"secret\"')",
        role.name
    );
    let wait = "SELECT * FROM taskq.wait_for_task('t', '60 s')";
    assert_eq!(asleep(&db, &mut boss, &role, wait, &taken), "42501");
    without_part(&mut boss, &role, ("producer", ""));
}

#[test]
fn rights_of_roles_that_are_gone_are_not_dumped_and_told_of() {
    let (stays, goes) = (Role::new("stays"), Role::new("goes"));
    let (db, [mut boss]) = Db::connected();
    narrowed(&mut boss, "producer", &stays, "{mail}");
    narrowed(&mut boss, "producer", &goes, "{payroll}");
    let told = "SELECT count(*) FROM taskq.health() WHERE kind = 'rights'";
    assert_eq!(boss.one::<i64>(told), 0);
    boss.run(&format!("DROP OWNED BY \"{0}\"; DROP ROLE \"{0}\"", goes.name));
    assert_eq!(boss.one::<i64>(told), 1);
    let folder: String = boss.one("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
    let dump =
        Command::new(PathBuf::from(folder).join("pg_dump")).arg(db.name()).output().expect("pg_dump runs");
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let dump = String::from_utf8_lossy(&dump.stdout);
    assert!(dump.contains(&format!("producer\t{}\tmail", stays.name)), "what holds is dumped");
    assert!(!dump.contains("payroll"), "what is left of the role is not");
    narrowed(&mut boss, "producer", &stays, "{mail}");
    assert_eq!(boss.one::<i64>(told), 0);
}
