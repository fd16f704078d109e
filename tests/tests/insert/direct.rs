//! What `INSERT … ON CONFLICT DO NOTHING` gave for free where tasks are inserted through the table access method itself: on
//! trial in the unique index of ids, and many rows at once where the ids are the call's own.
//!
//! On wrong code an id is inserted twice or not at all, two calls are each other's victims, a trial that came to
//! nothing leaves a row, an index entry or a lock behind, or a row is not there, or not whole, because more came than
//! are written at once.

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Progress, Session, sqlstate};

/// Indexes, tables and what is stored out of line agree, and the queue is sound.
fn sound(session: &mut Session) {
    session.run("CREATE EXTENSION IF NOT EXISTS amcheck");
    session.run(
        "SELECT bt_index_check(i.indexrelid, true) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
          WHERE c.relnamespace = 'taskq'::regnamespace",
    );
    let torn: Vec<String> = session.all(
        "SELECT c.relname || ': ' || v.msg FROM pg_class AS c, verify_heapam(c.oid, check_toast => true) AS v
          WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'r'",
    );
    assert_eq!(torn, Vec::<String>::new());
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// Bodies that cannot be compressed, and are stored out of line.
fn long_body(seed: u64) -> String {
    let mut random = Random::new(seed);
    (0..20_000).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

/// Many sessions insert the same ids in orders of their own, and some of them roll back. Each id is inserted in full by
/// exactly one of those that commit, and no session is the victim of a deadlock.
#[test]
fn each_id_is_inserted_once_whichever_sessions_roll_back() {
    const IDS: usize = 60;
    let (db, [mut watcher]) = Db::connected();
    let calls: Vec<_> = (0..6)
        .map(|n| {
            db.connect().background(move |session| {
                let mut random = Random::new(n);
                let mut inserted = 0;
                for round in 0..15 {
                    let mut tasks: Vec<Value> = (0..IDS)
                        .map(|i| json!({"id": format!("{round}-{i}"), "action": "x", "body": long_body(i as u64)}))
                        .collect();
                    if random.chance(50) {
                        tasks.reverse();
                    }
                    session.run("BEGIN");
                    let ids = session.insert_with(json!(tasks), "on_conflict => 'skip'").unwrap();
                    if random.chance(30) {
                        session.run("ROLLBACK");
                    } else {
                        session.run("COMMIT");
                        inserted += ids.len();
                    }
                }
                inserted
            })
        })
        .collect();
    let inserted: usize = calls.into_iter().map(|call| call.join().1).sum();
    // Rounds that all sessions rolled back are made up for.
    let rest: usize = (0..15)
        .map(|round| {
            let tasks = (0..IDS)
                .map(|i| json!({"id": format!("{round}-{i}"), "action": "x", "body": long_body(i as u64)}));
            watcher.insert_with(tasks.collect(), "on_conflict => 'skip'").unwrap().len()
        })
        .sum();
    assert_eq!(inserted + rest, 15 * IDS);
    let whole: i64 = watcher.one("SELECT count(*) FROM taskq.tasks WHERE length(body) = 20000");
    assert_eq!(whole as usize, 15 * IDS);
    sound(&mut watcher);
}

/// A call that waits for an id gives up: nothing of it is left, and what it had tried before is free at once.
#[test]
fn a_call_that_gives_up_waiting_for_an_id_leaves_nothing() {
    let (_db, [mut first, mut second, mut third]) = Db::connected();
    first.run("BEGIN");
    first.insert(json!([{"id": "m", "action": "x"}])).unwrap();
    let both = json!([{"id": "a", "action": "x", "body": long_body(1)}, {"id": "m", "action": "x", "body": long_body(2)}]);
    for way in ["SET LOCAL lock_timeout = '50ms'", "SET LOCAL statement_timeout = '50ms'"] {
        second.run(&format!("BEGIN; {way}; SAVEPOINT s"));
        let error = second.insert(both.clone()).unwrap_err();
        assert!(["55P03", "57014"].contains(&sqlstate(&error)), "{error:?}");
        second.run("ROLLBACK TO s; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0");
        // While its transaction is still open.
        third.run("SET statement_timeout = '5s'");
        assert_eq!(third.insert(json!([{"id": "a", "action": "x"}])).unwrap(), ["a"]);
        third.delete(&["a"]).unwrap();
        second.run("COMMIT");
    }
    first.run("COMMIT");
    assert_eq!(third.one::<i64>("SELECT count(*) FROM taskq.tasks"), 1);
    sound(&mut third);
}

/// An insert that meets a row that is there on trial waits for its transaction once the trial has succeeded.
#[test]
fn the_second_waits_and_sees_what_became_of_the_first() {
    let (db, [mut watcher]) = Db::connected();
    for (end, inserts) in [("COMMIT", 1), ("ROLLBACK", 2), ("ROLLBACK TO s; COMMIT", 2)] {
        let (mut first, second) = (db.connect(), db.connect());
        first.run("BEGIN; SAVEPOINT s");
        first.insert(json!([{"id": "m", "action": "x"}])).unwrap();
        let call = second.background(|session| {
            session.insert_with(
                json!([{"id": "l", "action": "x"}, {"id": "m", "action": "x"}]),
                "on_conflict => 'skip'",
            )
        });
        assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
        first.run(end);
        assert_eq!(call.join().1.unwrap().len(), inserts, "{end}");
        watcher.delete(&["l", "m"]).unwrap();
    }
    sound(&mut watcher);
}

/// A call that skips what another session has just inserted has no use for it, and locks nothing of it: else it met
/// another single call in a deadlock.
#[test]
fn what_is_skipped_is_not_locked() {
    let (db, [mut watcher]) = Db::connected();
    let (mut with_b, mut with_c) = (db.connect(), db.connect());
    with_b.run("BEGIN; SELECT taskq.insert_task('b', 'x')");
    with_c.run("BEGIN; SELECT taskq.insert_task('c', 'x')");
    let skips = db.connect().background(|session| {
        session.all::<String>("SELECT taskq.insert_many('x', '{1,2,3}', '{a,b,c}', on_conflict => 'skip')")
    });
    // It has a, and waits for b.
    assert_eq!(skips.settle_down(&mut watcher), Progress::Blocked);
    with_b.run("COMMIT");
    // It waits for c.
    assert_eq!(skips.settle_down(&mut watcher), Progress::Blocked);
    let depends = db
        .connect()
        .background(|session| session.insert(json!([{"id": "a", "action": "x", "depends_on": ["b"]}])));
    // It holds b, and waits for a.
    assert_eq!(depends.settle_down(&mut watcher), Progress::Blocked);
    with_c.run("COMMIT");
    assert_eq!(skips.join().1, ["a"]);
    assert_eq!(sqlstate(&depends.join().1.unwrap_err()), "TQ002");
    sound(&mut watcher);
}

/// What is there already is skipped, and named by another task of the call; then it goes before the call has it.
#[test]
fn what_is_skipped_and_removed_meanwhile_is_inserted() {
    let (db, [mut remover, mut watcher]) = Db::connected();
    for settled in [true, false] {
        db.clear();
        remover.insert(json!([{"id": "t", "action": "x", "body": "old"}])).unwrap();
        if settled {
            remover.perform("x", "completed");
        }
        remover.run("BEGIN; SELECT taskq.delete_tasks('{t}')");
        let skips = db.connect().background(|session| {
            let depends = json!([{"id": "t", "condition": "settled"}]);
            let tasks =
                json!([{"id": "t", "action": "x"}, {"id": "n", "action": "x", "depends_on": depends}]);
            session.insert_with(tasks, "on_conflict => 'skip'")
        });
        assert_eq!(skips.settle_down(&mut watcher), Progress::Blocked);
        remover.run("COMMIT");
        assert_eq!(skips.join().1.unwrap(), ["t", "n"]);
        assert_eq!(watcher.all::<String>("SELECT state FROM taskq.tasks ORDER BY id"), ["blocked", "ready"]);
        sound(&mut watcher);
    }
}

/// Under each level of isolation, another session has committed the id after this transaction's snapshot.
#[test]
fn an_id_that_came_after_the_snapshot() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (_db, [mut session, mut other]) = Db::connected();
        session.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM taskq.tasks"));
        other.insert(json!([{"id": "m", "action": "x", "body": "other"}])).unwrap();
        let skipped =
            session.insert_with(json!([{"id": "m", "action": "x", "body": "mine"}]), "on_conflict => 'skip'");
        match skipped {
            Ok(ids) => assert_eq!(ids, Vec::<String>::new(), "{level}"),
            Err(error) => assert_eq!(sqlstate(&error), "40001", "{level}"),
        }
        session.run("ROLLBACK");
        session.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM taskq.tasks"));
        other.insert(json!([{"id": "n", "action": "x", "body": "other"}])).unwrap();
        let refused = session.insert(json!([{"id": "n", "action": "x", "body": "mine"}])).unwrap_err();
        assert!(["TQ002", "40001"].contains(&sqlstate(&refused)), "{level}");
        session.run("ROLLBACK");
        let bodies: Vec<String> = other.all("SELECT body FROM taskq.tasks");
        assert_eq!(bodies, ["other", "other"], "{level}");
        sound(&mut other);
    }
}

/// One id in and out within a transaction, in savepoints and in a function's loop.
#[test]
fn an_id_that_comes_and_goes_in_one_transaction() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "DO $$ BEGIN
             FOR n IN 1..20 LOOP
                 PERFORM taskq.insert_task('m', 'x', body => repeat(md5(n::text), 200));
                 IF n % 2 = 0 THEN
                     PERFORM taskq.delete_tasks('{m}');
                 ELSE
                     BEGIN
                         PERFORM taskq.delete_tasks('{m}');
                         PERFORM taskq.insert_task('m', 'x');
                         RAISE EXCEPTION 'back';
                     EXCEPTION WHEN raise_exception THEN
                     END;
                     PERFORM taskq.replace_tasks('[{\"id\": \"m\", \"action\": \"x\"}, {\"id\": \"n\", \"action\": \"x\"}]');
                     PERFORM taskq.delete_tasks('{m,n}');
                 END IF;
             END LOOP;
             PERFORM taskq.insert_task('m', 'x', body => 'last');
         END $$",
    );
    assert_eq!(session.own_one("x").body.as_deref(), Some("last"));
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks"), 1);
    sound(&mut session);
}

/// More rows, and larger ones, than are written at once, with ids of the caller and of the call side by side.
#[test]
fn more_than_is_written_at_once() {
    let (_db, [mut session]) = Db::connected();
    let body =
        |n: usize| if n % 400 == 7 { long_body(n as u64) } else { format!("{n} {}", "x".repeat(n % 700)) };
    let tasks: Value = (0..2_600)
        .map(|n| {
            let mut task = json!({"action": if n % 3 == 0 { "x" } else { "y" }, "body": body(n), "group_id": format!("g{}", n % 7)});
            if n % 2 == 0 {
                task["id"] = json!(format!("t{n}"));
            }
            task
        })
        .collect();
    let ids = session.insert(tasks).unwrap();
    assert_eq!(ids.len(), 2_600);
    let bodies: Vec<String> = session
        .query("SELECT t.body FROM unnest($1::text[]) WITH ORDINALITY AS u(id, n) JOIN taskq.tasks t ON t.id = u.id ORDER BY u.n", &[&ids])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(bodies.iter().enumerate().all(|(n, stored)| *stored == body(n)), "each has its own body");
    let owned: Vec<String> =
        session.own("w", 2_600, &["x", "y"]).unwrap().into_iter().map(|g| g.task_id).collect();
    assert_eq!(owned, ids, "first in, first out");
    sound(&mut session);
}

#[test]
fn nothing_is_inserted_in_a_transaction_that_only_reads() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "t", "action": "x"}]));
    session.run("BEGIN READ ONLY");
    let error = session.insert(json!([{"action": "x"}])).unwrap_err();
    assert_eq!(sqlstate(&error), "25006");
    session.run("ROLLBACK");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks"), 1);
}

/// While the index of ids is rebuilt concurrently, and after that has failed, there are two of them: an id is taken in both.
#[test]
fn an_id_is_taken_whatever_other_index_has_it() {
    let (db, [mut reader, mut session]) = Db::connected();
    session.insert(json!([{"id": "m", "action": "x"}])).unwrap();
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM taskq.tasks");
    session.run("SET statement_timeout = '1s'");
    let failed = session.query("REINDEX INDEX CONCURRENTLY taskq.task_id_key", &[]).unwrap_err();
    assert_eq!(sqlstate(&failed), "57014");
    session.run("RESET statement_timeout");
    reader.run("COMMIT");
    let left: Vec<String> = session.all(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'taskq.task'::regclass AND NOT indisvalid",
    );
    assert_eq!(left.len(), 1, "{left:?}");
    let refused = session.insert(json!([{"id": "m", "action": "x"}])).unwrap_err();
    assert_eq!(sqlstate(&refused), "TQ002");
    assert_eq!(session.insert(json!([{"id": "n", "action": "x"}])).unwrap(), ["n"]);
    // A call that has not seen the id when it looked, and meets it when it writes.
    reader.run("BEGIN; SELECT taskq.insert_task('o', 'x')");
    let skips = db.connect().background(|session| {
        session.insert_with(json!([{"id": "o", "action": "x"}]), "on_conflict => 'skip'").unwrap()
    });
    assert_eq!(skips.settle_down(&mut session), Progress::Blocked);
    reader.run("COMMIT");
    assert_eq!(skips.join().1, Vec::<String>::new());
    session.run(&format!("DROP INDEX {}", left[0]));
    sound(&mut session);
}

/// A call keeps no lock on an index it has looked into: a session that rebuilds the table's indexes has the table
/// locked by then, which the call wants next.
#[test]
fn a_look_for_ids_is_in_no_rebuilders_way() {
    let (db, [mut session, mut watcher]) = Db::with_tasks(json!([{"id": "m", "action": "x"}]));
    session.run("BEGIN");
    let skipped = session.insert_with(json!([{"id": "m", "action": "x"}]), "on_conflict => 'skip'").unwrap();
    assert_eq!(skipped, Vec::<String>::new());
    let rebuilds = db.connect().background(|session| session.run("REINDEX TABLE taskq.task"));
    assert_eq!(rebuilds.settle_down(&mut watcher), Progress::Done);
    rebuilds.join();
    session.insert(json!([{"id": "n", "action": "x"}])).unwrap();
    session.run("COMMIT");
    sound(&mut session);
}

/// Of the rows that are written at once a few belong into partial indexes, which are not opened for the others.
#[test]
fn partial_indexes_have_what_belongs_into_them() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('fair', fair => true)");
    let tasks: Value = (0..1_400)
        .map(|i| {
            let mut task = json!({"id": format!("t{i:04}"), "action": if i % 300 == 7 { "fair" } else { "x" }, "body": "b"});
            match i {
                3 => task["workgroup"] = json!("w"),
                640 => task["merge_key"] = json!("k"),
                _ if i % 300 == 7 => task["group_id"] = json!(format!("g{i}")),
                _ => {}
            }
            task
        })
        .collect();
    session.insert(tasks).unwrap();
    // Singly, and by ids that the call makes up.
    session.run(
        "SELECT taskq.insert_task('one', 'x', group_id => 'g'), taskq.insert_task('two', 'x', workgroup => 'w'),
                taskq.insert_task(NULL, 'x', merge_key => 'k'), taskq.insert_task(NULL, 'fair', group_id => 'f')",
    );
    sound(&mut session);
    for (index, rows) in [
        ("task_group_idx", "group_id IS NOT NULL"),
        ("task_workgroup_idx", "workgroup IS NOT NULL"),
        ("task_merge_key_idx", "merge_key IS NOT NULL"),
        ("run_lane_idx", "lane <> 0"),
        ("run_key_idx", "key_hash IS NOT NULL"),
    ] {
        let table = index.split('_').next().unwrap();
        let counted = session.one::<i64>(&format!("SELECT count(*) FROM taskq.{table} WHERE {rows}"));
        assert!(counted > 0, "{index}");
        session.run(&format!("ANALYZE taskq.{table}; REINDEX INDEX taskq.{index}"));
    }
    assert_eq!(session.own("w", 10, &["fair"]).unwrap().len(), 6);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE group_id IS NOT NULL"), 7);
    sound(&mut session);
}
