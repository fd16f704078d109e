//! A task in a detached process, which outlives the one that fetched it.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use taskq_tests::{Db, Session, until};

use crate::tools::{example, installed, python};

/// Runs the fetching process to its end; the process id of the job that it has started.
fn fetch(db: &Db, lease: &str) -> String {
    let output = python("detached/fetch.py")
        .args(["export", lease])
        .arg(installed("python/bin/python"))
        .arg(example("detached/job.py"))
        .env("PGDATABASE", db.name())
        .stderr(std::process::Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn progress(session: &mut Session) -> String {
    session.one("SELECT coalesce(status, '') FROM taskq.tasks WHERE id = 'job'")
}

#[test]
fn a_detached_process_reports_extends_and_returns_by_itself() {
    let (db, [mut session]) =
        Db::with_tasks(json!([{"id": "job", "action": "export", "body": {"steps": 5, "seconds": 1}}]));
    // The fetching process has ended when this returns. The job takes longer than the lease of 4 seconds.
    let pid = fetch(&db, "4");
    until("the job reports", || progress(&mut session).contains("of 5 steps").then_some(()));
    until("the job has ended", || {
        assert!(session.own("thief", 1, &["export"]).unwrap().is_empty(), "the lease has elapsed");
        std::thread::sleep(Duration::from_millis(20));
        (session.state("job") == "completed").then_some(())
    });
    let task = session.task("job").unwrap();
    assert_eq!(
        (task.num_tries, task.result),
        (1, Some(json!({"begun_at": 0, "pid": pid.parse::<i64>().unwrap()})))
    );
}

#[test]
fn a_job_that_was_killed_goes_on_from_its_checkpoint() {
    let (db, [mut session]) =
        Db::with_tasks(json!([{"id": "job", "action": "export", "body": {"steps": 6, "seconds": 0.5}}]));
    let pid = fetch(&db, "2");
    until("it is in its third step", || progress(&mut session).starts_with("2 of 6").then_some(()));
    Command::new("kill").args(["-KILL", &pid]).status().unwrap();
    // The lease elapses, the next call gets the task.
    fetch(&db, "4");
    until("the job has ended", || (session.state("job") == "completed").then_some(()));
    let task = session.task("job").unwrap();
    assert_eq!((task.num_tries, task.result.unwrap()["begun_at"].clone()), (2, json!(2)));
}

#[test]
fn a_job_that_cannot_read_its_body_is_not_tried_again() {
    let (db, [mut session]) = Db::with_tasks(json!([{"id": "job", "action": "export", "body": "{"}]));
    fetch(&db, "60");
    until("the job has ended", || (session.state("job") == "aborted").then_some(()));
    let status = session.task("job").unwrap().status.unwrap();
    assert!(status.starts_with("the body cannot be read"), "{status}");
}

#[test]
fn a_job_that_is_cancelled_stops() {
    let (db, [mut session]) =
        Db::with_tasks(json!([{"id": "job", "action": "export", "body": {"steps": 1000, "seconds": 0.1}}]));
    let pid = fetch(&db, "10");
    until("the job reports", || progress(&mut session).contains("of 1000").then_some(()));
    session.cancel(&["job"]).unwrap();
    until("the process is gone", || {
        let there =
            Command::new("kill").args(["-0", &pid]).stderr(std::process::Stdio::null()).status().unwrap();
        // An orphan whose exit status is not yet fetched is gone as well.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (!there.success() || stat.contains(") Z ")).then_some(())
    });
    assert_eq!(session.state("job"), "aborted");
}

#[test]
fn without_a_task_the_fetching_process_says_so() {
    let db = Db::new();
    let mut fetcher = python("detached/fetch.py");
    let mut fetcher = fetcher.args(["export", "2", "true"]).env("PGDATABASE", db.name()).spawn().unwrap();
    assert_eq!(fetcher.wait().unwrap().code(), Some(3));
}
