//! Setting the number: when, in which range, against which transactions, and what goes on with it.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use taskq_tests::{Db, Progress, Session, refused, sqlstate};

use super::{set, shard_of};

/// Whatever there is to do, in a queue of this shard.
fn work(session: &mut Session, shard: i32) {
    session
        .insert(json!([
            {"id": "a", "action": "x", "max_tries": 3}, {"id": "b", "action": "x", "delay": "1 millisecond"},
            {"id": "c", "action": "x", "depends_on": ["a", "b"], "merge_key": "k"},
            {"id": "d", "action": "y", "group_id": "g", "unique_by": "u"},
        ]))
        .unwrap();
    let first = session.own_one("x");
    assert_eq!(shard_of(session, first.token), Some(shard));
    assert!(session.extend("w", &[(&first.task_id, first.token)], "1 hour").unwrap()[0].1);
    session
        .query("SELECT taskq.report_status($1, $2, 'half', 0.5, '{}')", &[&first.task_id, &first.token])
        .unwrap();
    let waiter = session.one::<i64>("SELECT count(*) FROM taskq.wait_for_task('a', '0')");
    assert_eq!(waiter, 0);
    session.give(&first.task_id, first.token, "pending").unwrap();
    session.run("SELECT pg_sleep(0.01)");
    for _ in 0..3 {
        let grant = session.own_one("x");
        assert_eq!(shard_of(session, grant.token), Some(shard));
        session.complete(&grant);
    }
    session.perform("y", "aborted");
    session.run("SELECT taskq.retry_tasks('{d}')");
    assert_eq!(session.state("d"), "ready");
    session.perform("y", "completed");
    assert_eq!(session.wait("c", "0").unwrap().unwrap().status_code, "completed");
    assert_eq!(session.broken(), [""; 0]);
}

#[test]
fn every_part_of_the_queue_works_in_every_shard() {
    for shard in [0, 1, 255, 256, 4095] {
        let (_db, [mut session]) = Db::connected();
        set(&mut session, shard);
        work(&mut session, shard);
    }
}

#[test]
fn a_queue_without_one_is_shard_0() {
    let (_db, [mut session]) = Db::connected();
    assert_eq!(session.one::<i32>("SELECT taskq.shard()"), 0);
    work(&mut session, 0);
    assert_eq!(shard_of(&mut session, uuid::Uuid::new_v4()), None, "no token");
    assert_eq!(session.one::<Option<i32>>("SELECT taskq.shard_of(NULL)"), None);
}

#[test]
fn what_is_out_of_range_or_too_late_is_refused() {
    let (_db, [mut session]) = Db::connected();
    for n in ["-1", "4096", "2147483647"] {
        refused(&mut session, "22023", "\"n\"", &format!("SELECT taskq.set_shard({n})"), &[]);
    }
    refused(&mut session, "22004", "\"n\"", "SELECT taskq.set_shard(NULL)", &[]);
    session.run("BEGIN READ ONLY");
    let error = session.query("SELECT taskq.set_shard(1)", &[]).unwrap_err();
    assert_eq!(sqlstate(&error), "25006");
    session.run("ROLLBACK");
    // Up and down, as long as there was no task.
    for n in [4095, 0, 17, 3] {
        set(&mut session, n);
    }
    // One that was rolled back was none.
    session.run("BEGIN; SELECT taskq.insert_task('gone', 'x'); ROLLBACK");
    set(&mut session, 5);
    session.run("SELECT taskq.insert_task('a', 'x')");
    for n in [5, 6, 0] {
        let call = format!("SELECT taskq.set_shard({n})");
        let error = refused(&mut session, "TQ005", "shard 5", &call, &[]);
        assert!(error.hint().unwrap().contains("before its first task"), "{error:?}");
    }
    // Nor when it is gone: its tokens are still somewhere.
    session.delete(&["a"]).unwrap();
    refused(&mut session, "TQ005", "shard 5", "SELECT taskq.set_shard(6)", &[]);
    session.run("SELECT taskq.insert_task('b', 'x')");
    let token = session.own_one("x").token;
    assert_eq!(shard_of(&mut session, token), Some(5));
}

#[test]
fn it_goes_with_its_transaction() {
    let (_db, [mut session, mut other]) = Db::connected();
    session.run("BEGIN; SELECT taskq.set_shard(7); SELECT taskq.insert_task('a', 'x'); ROLLBACK");
    assert_eq!(session.one::<i32>("SELECT taskq.shard()"), 0);
    session.run("BEGIN; SAVEPOINT s; SELECT taskq.set_shard(8); ROLLBACK TO s; SELECT taskq.set_shard(9)");
    session.run("SELECT taskq.insert_task('a', 'x')");
    assert_eq!(
        sqlstate(&session.query("SELECT taskq.set_shard(9)", &[]).unwrap_err()),
        "TQ005",
        "its own task"
    );
    session.run("ROLLBACK");
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    other.run("SELECT taskq.insert_task('b', 'x')");
    assert_eq!(
        sqlstate(&session.query("SELECT taskq.set_shard(9)", &[]).unwrap_err()),
        "TQ005",
        "an older snapshot"
    );
    session.run("ROLLBACK");
    let token = other.own_one("x").token;
    assert_eq!(shard_of(&mut other, token), Some(0));
}

/// A transaction that has taken numbers is waited for, and one that wants some waits: there are never tasks of two
/// shards.
#[test]
fn an_insertion_at_the_same_time_comes_before_or_after() {
    let (db, [mut first, mut watcher]) = Db::connected();
    // Before: the queue has had a task then.
    first.run("BEGIN; SELECT taskq.insert_task('a', 'x')");
    let setting =
        db.connect().background(|session| session.query("SELECT taskq.set_shard(3)", &[]).map(|_| ()));
    assert_eq!(setting.settle_down(&mut watcher), Progress::Blocked);
    first.run("ROLLBACK");
    setting.join().1.unwrap();
    first.run("BEGIN; SELECT taskq.set_shard(4)");
    let inserting = db.connect().background(|session| {
        session.run("SELECT taskq.insert_task('b', 'x')");
        let grant = session.own_one("x");
        shard_of(session, grant.token)
    });
    assert_eq!(inserting.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    assert_eq!(inserting.join().1, Some(4));

    let (db, [mut first, mut watcher]) = Db::connected();
    first.run("BEGIN; SELECT taskq.insert_task('a', 'x')");
    let setting =
        db.connect().background(|session| session.query("SELECT taskq.set_shard(3)", &[]).map(|_| ()));
    assert_eq!(setting.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    assert_eq!(sqlstate(&setting.join().1.unwrap_err()), "TQ005");
    assert_eq!(watcher.one::<i32>("SELECT taskq.shard()"), 0);
}

#[test]
fn many_sessions_that_insert_while_it_is_set_agree() {
    for round in 0..10 {
        let db = Db::new();
        let inserting: Vec<_> = (0..4)
            .map(|_| {
                db.connect().background(|session| {
                    for _ in 0..10 {
                        session.run("SELECT taskq.insert_many('x', '{a,b,c}')");
                    }
                })
            })
            .collect();
        let setting = db
            .connect()
            .background(move |session| session.query("SELECT taskq.set_shard(2)", &[]).map(|_| ()));
        let set = setting.join().1;
        inserting.into_iter().for_each(|call| drop(call.join()));
        let mut session = db.connect();
        let expected = if set.is_ok() { 2 } else { 0 };
        let shards: Vec<i32> = session.all(
            "SELECT DISTINCT taskq.shard_of(token) FROM taskq.own_tasks('w', 1000, '{x}') UNION SELECT taskq.shard()",
        );
        assert_eq!(shards, [expected], "round {round}");
        if let Err(error) = set {
            assert_eq!(sqlstate(&error), "TQ005");
        }
    }
}

/// Sessions that have slept, looked, or made slots before the positions went down or up, go on with what comes.
#[test]
fn sessions_that_have_looked_before_find_what_comes() {
    for (from, to) in [(3000, 1), (1, 3000)] {
        let (db, [mut session, mut other]) = Db::connected();
        set(&mut session, from);
        session.run("SELECT taskq.set_action('x', max_concurrency => 2, rate_limit => 1000, rate_period => '1 second')");
        for s in [&mut session, &mut other] {
            for _ in 0..5 {
                assert!(s.own("w", 5, &["x"]).unwrap().is_empty());
            }
        }
        let asleep = db
            .connect()
            .background(|s| s.own_with("w", 1, &["x"], "wait => '30 seconds'").unwrap().remove(0));
        session.until_asleep(asleep.pid());
        set(&mut session, to);
        session.run(
            "SELECT taskq.insert_many('x', (SELECT array_agg(n::text) FROM generate_series(1, 20) AS n))",
        );
        let (mut third, grant) = asleep.join();
        assert_eq!(shard_of(&mut third, grant.token), Some(to));
        third.complete(&grant);
        let mut performed = 1;
        for _ in 0..8 {
            for s in [&mut session, &mut other, &mut third] {
                for grant in s.own("w", 2, &["x"]).unwrap() {
                    s.complete(&grant);
                    performed += 1;
                }
            }
        }
        assert_eq!(performed, 20);
    }
}

fn program(session: &mut Session, name: &str) -> Command {
    let folder: String = session.one("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
    Command::new(PathBuf::from(folder).join(name))
}

/// Through pg_dump, with tasks and without.
#[test]
fn it_is_dumped_and_restored() {
    for with_tasks in [false, true] {
        let (source, target) = (Db::new(), Db::empty());
        let mut session = source.connect();
        set(&mut session, 77);
        let mut held = None;
        if with_tasks {
            session.run("SELECT taskq.insert_many('x', '{1,2,3}', '{a,b,c}')");
            held = Some(session.own_one("x"));
        }
        let file = std::env::temp_dir().join(format!("taskq-shard-{}-{}", std::process::id(), source.name()));
        let dump = program(&mut session, "pg_dump")
            .args(["-Fc", "-f"])
            .arg(&file)
            .arg(source.name())
            .status()
            .unwrap();
        let restore = program(&mut session, "pg_restore")
            .args(["--exit-on-error", "-d", target.name()])
            .arg(&file)
            .status()
            .unwrap();
        std::fs::remove_file(file).unwrap();
        assert!(dump.success() && restore.success());
        let mut restored = target.connect();
        assert_eq!(restored.one::<i32>("SELECT taskq.shard()"), 77);
        if let Some(held) = held {
            restored.complete(&held);
            refused(&mut restored, "TQ005", "shard 77", "SELECT taskq.set_shard(78)", &[]);
        } else {
            set(&mut restored, 78);
            set(&mut restored, 77);
        }
        restored.run("SELECT taskq.insert_task('new', 'y')");
        let token = restored.own_one("y").token;
        assert_eq!(shard_of(&mut restored, token), Some(77));
        assert_eq!(restored.broken(), [""; 0]);
    }
}

/// At the end of its numbers a shard takes no more tasks, and those that it has are performed.
#[test]
fn the_last_numbers_are_for_the_tasks_there_are() {
    let (_db, [mut session]) = Db::connected();
    set(&mut session, 6);
    session.run("SELECT taskq.insert_task('old', 'x')");
    session.run("SELECT setval('taskq.position_seq', (7::bigint << 48) - (1::bigint << 40) - 3)");
    session.run("SELECT taskq.insert_many('x', '{1,2}', '{a,b}')");
    for call in [
        "insert_task('c', 'x')",
        "insert_many('x', '{1,2}')",
        "replace_tasks('[{\"id\": \"a\", \"action\": \"x\"}]')",
    ] {
        refused(&mut session, "54000", "shard 6", &format!("SELECT taskq.{call}"), &[]);
    }
    for id in ["old", "a", "b"] {
        let grant = session.own_one("x");
        assert_eq!(grant.task_id, id);
        session.give(id, grant.token, "pending").unwrap();
    }
    for id in ["old", "a", "b"] {
        let grant = session.own_one("x");
        assert_eq!((grant.task_id.as_str(), shard_of(&mut session, grant.token)), (id, Some(6)));
        session.complete(&grant);
    }
    assert_eq!(session.one::<i32>("SELECT taskq.shard()"), 6);
}

/// A number of another shard, however it came there, is found by `check`.
#[test]
fn check_finds_numbers_of_another_shard() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'x')");
    session.run("SELECT setval('taskq.position_seq', (9::bigint << 48) + 1)");
    assert!(session.broken().iter().any(|line| line.contains("another shard")), "{:?}", session.broken());
    session.run("SELECT setval('taskq.position_seq', 1000)");
}
