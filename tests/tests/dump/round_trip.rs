//! There and back, by an archive and by plain SQL.

use std::path::PathBuf;
use std::process::{self, Command};
use std::{env, fs};

use serde_json::json;
use taskq_tests::full::{fill, snapshot, work_goes_on};
use taskq_tests::{Db, Session};

/// A client program of the server's own version.
fn program(session: &mut Session, name: &str) -> Command {
    let folder: String = session.one("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
    let mut command = Command::new(PathBuf::from(folder).join(name));
    command.env("PGOPTIONS", "-c client_min_messages=warning");
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn archive(source: &Db, target: &Db) {
    let mut session = source.connect();
    let file = env::temp_dir().join(format!("taskq-dump-{}-{}", process::id(), source.name()));
    run(program(&mut session, "pg_dump").args(["-Fc", "-f"]).arg(&file).arg(source.name()));
    run(program(&mut session, "pg_restore").args(["--exit-on-error", "-d", target.name()]).arg(&file));
    fs::remove_file(file).unwrap();
}

fn plain(source: &Db, target: &Db) {
    let mut session = source.connect();
    let file = env::temp_dir().join(format!("taskq-plain-{}-{}", process::id(), source.name()));
    run(program(&mut session, "pg_dump").arg("-f").arg(&file).arg(source.name()));
    run(program(&mut session, "psql")
        .args(["-qX", "-v", "ON_ERROR_STOP=1", "-d", target.name(), "-f"])
        .arg(&file));
    fs::remove_file(file).unwrap();
}

fn there_and_back(transfer: fn(&Db, &Db)) {
    let (source, target) = (Db::new(), Db::empty());
    let mut session = source.connect();
    let held = fill(&mut session);
    let before = snapshot(&mut session);
    transfer(&source, &target);
    let mut restored = target.connect();
    assert_eq!(snapshot(&mut restored), before);
    assert_eq!(restored.broken(), [""; 0]);
    work_goes_on(&mut restored, &held);
    // The source is none the worse for it.
    assert_eq!(snapshot(&mut session), before);
    work_goes_on(&mut session, &held);
}

#[test]
fn an_archive_carries_everything() {
    there_and_back(archive);
}

#[test]
fn plain_sql_carries_everything() {
    there_and_back(plain);
}

/// Rights of every part come along, and so does what they are narrowed to.
#[test]
fn parts_and_their_actions_come_along() {
    for (kind, transfer) in [("archive", archive as fn(&Db, &Db)), ("plain", plain)] {
        let (source, target) = (Db::new(), Db::empty());
        let role = format!("t dump {kind} {}", process::id());
        let mut session = source.connect();
        session.run(&format!("CREATE ROLE \"{role}\" LOGIN"));
        session.run(&format!(
            "SELECT taskq.grant_inserter('\"{role}\"', '{{x}}'), taskq.grant_operator('\"{role}\"'), taskq.pause_action('y')"
        ));
        transfer(&source, &target);
        let mut restored = target.connect();
        let mut limited = target.connect_as(&role);
        limited.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        let error = limited.insert(json!([{"action": "y"}])).unwrap_err();
        assert_eq!(taskq_tests::sqlstate(&error), "42501");
        limited.run("SELECT taskq.resume_action('y')");
        // In the copy a grant can be taken back and given anew as in the original.
        for (session, db) in [(&mut restored, &target), (&mut session, &source)] {
            session.run(&format!("SELECT taskq.grant_inserter('\"{role}\"', '{{y}}')"));
            db.connect_as(&role).insert(json!([{"action": "y"}])).unwrap();
            session.run(&format!(
                "SELECT taskq.revoke_inserter('\"{role}\"'), taskq.revoke_operator('\"{role}\"')"
            ));
        }
        drop(limited);
        session.run(&format!("DROP ROLE \"{role}\""));
    }
}

#[test]
fn a_task_taken_over_in_the_copy_is_not_the_old_holders() {
    let (source, target) = (Db::new(), Db::empty());
    let mut session = source.connect();
    let held = fill(&mut session);
    archive(&source, &target);
    let mut restored = target.connect();
    restored.set_now(Some("2099-01-01"));
    let mut taken = restored.own("worker", 9, &["h"]).unwrap();
    taken.retain(|grant| grant.task_id == "held 2");
    let taken = taken.pop().unwrap();
    assert_eq!(taken.num_tries, 2);
    let error = restored.give("held 2", held[1].token, "completed").unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "TQ001");
    restored.complete(&taken);
}

#[test]
fn an_empty_queue_and_a_schema_only_dump_can_be_restored() {
    let (source, target, bare) = (Db::new(), Db::empty(), Db::empty());
    archive(&source, &target);
    let mut restored = target.connect();
    restored.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    restored.perform("x", "completed");

    let mut session = source.connect();
    fill(&mut session);
    let file = env::temp_dir().join(format!("taskq-schema-{}", process::id()));
    run(program(&mut session, "pg_dump").args(["-Fc", "--schema-only", "-f"]).arg(&file).arg(source.name()));
    run(program(&mut session, "pg_restore").args(["--exit-on-error", "-d", bare.name()]).arg(&file));
    fs::remove_file(file).unwrap();
    let mut restored = bare.connect();
    assert!(restored.tasks().is_empty());
    restored.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    restored.perform("x", "completed");
}
