//! There and back, by an archive and by plain SQL.

use std::path::PathBuf;
use std::process::{self, Command};
use std::{env, fs};

use serde_json::{Value, json};
use taskq_tests::{Db, Grant, Session};

/// A queue with tasks in every state; the grants that are still held.
fn fill(session: &mut Session) -> Vec<Grant> {
    let tasks = json!([
        {"id": "done", "action": "d", "body": {"a": [1, "two"]}, "metadata": {"k": "v"}}, {"id": "failed", "action": "d"},
        {"id": "held 1", "action": "h", "max_tries": 3}, {"id": "held 2", "action": "h", "max_duration": "1 day"},
        {"id": "ready 1", "action": "x", "priority": 5}, {"id": "ready 2", "action": "x"},
        {"id": "scheduled", "action": "x", "not_before": "2100-01-01"},
        {"id": "blocked", "action": "x", "depends_on": ["held 1", {"id": "failed", "condition": "settled"}]},
        {"id": "below", "action": "x", "depends_on": ["blocked", "held 2"]},
        {"id": "mark", "action": "s", "spontaneous": true, "post_result": true, "depends_on": ["below"]},
        {"id": "handler", "action": "x", "depends_on": [{"id": "held 2", "condition": "aborted"}]},
        {"id": "one", "action": "u", "unique_by": {"key": "k", "period": "1 day"}},
        {"id": "a 1", "action": "f", "group_id": "a"}, {"id": "a 2", "action": "f", "group_id": "a"}, {"id": "b 1", "action": "f", "group_id": "b"},
        {"id": "back", "action": "b"}, {"id": "日本語 \t tab \\ \"", "action": "x", "body": "line\nbreak \\N \\. é"},
    ]);
    // Groups that take turns, with a limit each and one of their own, a place of which is held.
    session.run("SELECT taskq.set_action('f', max_per_group => 1, fair => true), taskq.set_group('a', 3, 2)");
    session.insert(tasks).unwrap();
    session.run("SELECT taskq.own_tasks('holder', 1, '{f}')");
    let done = session.own_one("d");
    session.give_with("done", done.token, "completed", "status => 'fine', result => '{\"n\": 1}'").unwrap();
    session.perform("d", "aborted");
    session.perform("b", "pending");
    session.run(
        "SELECT taskq.schedule('paused', '0 0 1 1 *', '{\"action\": \"x\"}'), taskq.pause_schedule('paused')",
    );
    // What has settled is in tallies by now, which stay behind: ids of transactions mean nothing elsewhere.
    session.run("SELECT taskq.maintain(), pg_sleep(1.1)");
    session.run("SELECT taskq.maintain(), pg_sleep(1.1)");
    session.run("SELECT taskq.maintain()");
    session.own("worker", 2, &["h"]).unwrap()
}

fn snapshot(session: &mut Session) -> Vec<String> {
    ["tasks", "dependencies", "actors", "unique_keys", "actions", "groups", "schedules", "count_tasks()"]
        .iter()
        .flat_map(|view| {
            session.all::<String>(&format!("SELECT to_jsonb(v)::text FROM taskq.{view} v ORDER BY 1"))
        })
        .collect()
}

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

fn work_goes_on(session: &mut Session, held: &[Grant]) {
    // New tasks do not collide with old ones, and go behind them.
    session.insert(json!([{"id": "new", "action": "x"}, {"action": "y"}])).unwrap();
    let many: Value = (0..200).map(|i| json!({"id": format!("many {i}"), "action": "y"})).collect();
    session.insert(many).unwrap();
    assert_eq!(session.own("w", 300, &["y"]).unwrap().len(), 201);
    let order: Vec<String> =
        session.own("w", 3, &["x"]).unwrap().into_iter().map(|grant| grant.task_id).collect();
    assert_eq!(order[..2], ["ready 1", "ready 2"]);
    // Who held a task still does.
    assert!(session.extend("worker", &[("held 1", held[0].token)], "1 hour").unwrap()[0].1);
    session.complete(&held[0]);
    assert_eq!(session.state("blocked"), "ready");
    session.give("held 2", held[1].token, "completed").unwrap();
    assert_eq!(session.state("handler"), "aborted");
    // One group's place is still held, the other's is free.
    assert_eq!(session.own("w", 9, &["f"]).unwrap().len(), 1);
    // Whatever is left can be done to the end.
    while let Some(grant) = session.own("w", 1, &["x", "b"]).unwrap().pop() {
        session.complete(&grant);
    }
    assert_eq!(["below", "mark", "back"].map(|id| session.state(id)), ["completed"; 3]);
    assert_eq!(session.task("back").unwrap().num_tries, 2);
    assert_eq!(session.broken(), [""; 0]);
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
    let taken = restored.own_one("h");
    assert_eq!((taken.task_id.as_str(), taken.num_tries), ("held 2", 2));
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
