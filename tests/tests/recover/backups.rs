//! A copy that was taken while all clients were at work, and is worked to the end.

use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use taskq_tests::{Cluster, Db, Grant, Session, sqlstate};

use crate::books::Pages;
use crate::work::{Place, Work, eventually};
use crate::{TMP, much};

/// A task that a worker has in hand all the time, in the original and in the copy.
fn hold(original: &mut Session) -> Grant {
    original.run("SELECT taskq.insert_task('held', 'hold'), taskq.insert_task('below', 'load', depends_on => '{held}')");
    original.own_one_with("hold", "lease => '1 hour'")
}

/// What was acknowledged before the copy was begun is in it; each token is good if the copy shows the grant, or refused;
/// all that is there can be done, once, by workers who know nothing of the original.
fn work_off(before: &Pages, held: &Grant, session: &mut Session, place: &Arc<Place>) -> usize {
    before.hold_in(session);
    assert!(session.extend("worker", &[("held", held.token)], "1 hour").unwrap()[0].1);
    session.complete(held);
    let mut good = 1;
    for (id, grants) in before.granted.iter().filter(|(id, _)| !before.completed.contains_key(*id)) {
        let last = grants.last().expect("granted");
        let is_held = session
            .query_opt(
                "SELECT FROM taskq.tasks WHERE id = $1 AND state = 'in-progress' AND num_tries = $2",
                &[id, &last.num_try],
            )
            .unwrap()
            .is_some();
        match session.give(id, last.token, "completed") {
            Ok(_) => {
                assert!(is_held, "{id} was returned, and not held");
                good += 1;
            }
            Err(error) => {
                assert_eq!(sqlstate(&error), "TQ001", "{id}: {error:?}");
                assert!(!is_held, "{id} is held, and cannot be returned");
            }
        }
    }
    // New tasks go behind the old ones, and collide with none.
    session.insert((0..40).map(|n| json!({"id": format!("new {n}"), "action": "new"})).collect()).unwrap();
    let done: Vec<String> = (0..40).map(|_| session.perform("new", "completed")).collect();
    assert_eq!(done, (0..40).map(|n| format!("new {n}")).collect::<Vec<_>>());

    let books = Work::begin(place, 0).end().now();
    books.hold_in(session);
    before.hold_in(session);
    assert!(books.granted.keys().all(|id| !before.completed.contains_key(id)), "what is done is done");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'"), 0);
    eprintln!(
        "{} were done before, {good} old tokens were good, {} were done in the copy",
        before.completed.len(),
        books.completed.len()
    );
    session.one::<i64>("SELECT count(*) FROM taskq.tasks") as usize
}

fn has(session: &mut Session, id: &str) -> bool {
    session.state(id) != "gone"
}

#[test]
fn a_base_backup_taken_under_load_is_worked_to_the_end() {
    let original = Cluster::start(TMP, "recover-original", &[]);
    let work = Work::begin(&Place::at(original.config()), 2);
    work.goes_on(much());
    let held = hold(&mut original.connect());
    let before = work.books.now();
    let copy = Cluster::backup(TMP, "recover-copy", &original, &[]);
    work.goes_on(much() / 3);
    original.connect().run("SELECT taskq.insert_task('behind', 'load', lease => '10 minutes')");
    copy.run(&[]);
    let mut session = copy.connect();
    assert!(!has(&mut session, "behind"), "it is of that time");
    let there = work_off(&before, &held, &mut session, &Place::at(copy.config()));
    // The original is none the worse for it.
    original.connect().complete(&held);
    work.end().now().hold_in(&mut original.connect());
    assert!(there >= before.inserted.len());
}

#[test]
fn a_dump_taken_under_load_is_worked_to_the_end() {
    let (original, copy) = (Db::new(), Db::empty());
    let mut session = original.connect();
    let work = Work::begin(&Place::at(original.config()), 2);
    work.goes_on(much());
    let held = hold(&mut session);
    let before = work.books.now();
    let file = std::env::temp_dir().join(format!("taskq-recover-{}", std::process::id()));
    let folder: String = session.one("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
    let run = |program: &str, arguments: &[&str]| {
        let done = Command::new(format!("{folder}/{program}")).args(arguments).output().unwrap();
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run("pg_dump", &["-Fc", "-f", file.to_str().unwrap(), original.name()]);
    work.goes_on(much() / 3);
    run("pg_restore", &["--exit-on-error", "-d", copy.name(), file.to_str().unwrap()]);
    std::fs::remove_file(file).unwrap();
    work_off(&before, &held, &mut copy.connect(), &Place::at(copy.config()));
    session.complete(&held);
    work.end().now().hold_in(&mut session);
}

#[test]
fn a_recovery_to_a_moment_in_the_middle_is_worked_to_the_end() {
    let archived = "archive_command=mkdir -p archive && cp %p archive/%f";
    let original = Cluster::start(TMP, "recover-archived", &["archive_mode=on", archived]);
    let mut session = original.connect();
    let work = Work::begin(&Place::at(original.config()), 2);
    work.goes_on(much() / 3);
    let copy = Cluster::backup(TMP, "recover-to-a-point", &original, &[]);
    work.goes_on(much());
    let held = hold(&mut session);
    session.run("SELECT taskq.insert_task('before', 'load')");
    let before = work.books.now();
    session.run("SELECT pg_create_restore_point('middle')");
    session.run("SELECT taskq.insert_task('behind', 'load')");
    work.goes_on(much() / 3);
    let last: String = session.one("SELECT pg_walfile_name(pg_switch_wal())");
    eventually("the log is in the archive", || original.archive().join(&last).exists().then_some(()));

    copy.recover(&original.archive(), &["recovery_target_name=middle"]);
    let mut restored = copy.connect();
    eventually("it is recovered", || (!restored.one::<bool>("SELECT pg_is_in_recovery()")).then_some(()));
    assert!(
        has(&mut restored, "before") && !has(&mut restored, "behind"),
        "it is the moment that was asked for"
    );
    work_off(&before, &held, &mut restored, &Place::at(copy.config()));
    session.complete(&held);
    work.end().now().hold_in(&mut session);
}
