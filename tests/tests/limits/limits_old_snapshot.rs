//! Limits under a snapshot that is held for long: by a dump, or by a call asleep in `own_tasks(wait => …)`.
//!
//! Slots and buckets change with each performance, and none of their versions goes while such a snapshot is there. A
//! claim that looked among all of them for the one that is left would read more pages with each grant that there has
//! been. Pages are counted, not seconds.

use std::thread;

use serde_json::{Value, json};
use taskq_tests::{Db, Session, until};
use uuid::Uuid;

const GRANTS: usize = 2_000;

/// A version of a bucket is small: many are on a page, and it takes more of them to tell.
const GRANTS_OF_RATE: usize = 8_000;

/// What a claim may read that has read so many pages at first. Each of its walks may pass some thirty pages of what is dead
/// before that is worth anything to be done about; what the grants have left behind is thousands.
fn few(first: i64) -> i64 {
    2 * first + 2 * 32
}

fn tasks(count: usize) -> Value {
    (0..count).map(|n| json!({"action": "x", "group_id": format!("g{}", n % 20)})).collect()
}

/// A session reads the queue in a transaction that it leaves open.
fn read_on(db: &Db) -> Session {
    let mut reader = db.connect();
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let _: i64 = reader.one("SELECT count(*) FROM taskq.slot");
    reader
}

/// What a claim reads that is granted a task, and one that finds the limits full, do not grow with what was granted before.
fn reads_no_more_after_many_grants(
    what: &str,
    settings: &[&str],
    grants: usize,
    in_progress: i32,
    full: i32,
) {
    let (db, [mut session]) = Db::connected();
    for setting in settings {
        session.run(&format!("SELECT taskq.{setting}"));
    }
    session.insert(tasks(grants + 300)).unwrap();
    // With plans and caches that are warm, and while a worker works all along.
    for _ in 0..50 {
        session.perform("x", "completed");
    }
    session.own("w", in_progress, &["x"]).unwrap();
    let first = (0..5).map(|_| session.pages_of_a_claim("x")).min().unwrap();
    let first_while_full = (full > 0).then(|| pages_while_the_limit_is_full(&db, &mut session, full));
    let reader = read_on(&db);
    // One after the other, each in a transaction of its own.
    db.connect().run(&format!(
        "DO $$ DECLARE g record; BEGIN FOR n IN 1..{grants} LOOP
             SELECT * INTO g FROM taskq.own_tasks('w', 1, '{{x}}');
             PERFORM taskq.return_task(g.task_id, g.token, 'completed');
             COMMIT;
         END LOOP; END $$"
    ));
    // What the planner learns meanwhile changes nothing.
    session.run("ANALYZE");
    // Marks move once those sessions have ended that run beside this test.
    until(&format!("{what}: a claim reads few pages more than the {first} of the first"), || {
        session.perform("x", "completed");
        session.insert(tasks(1)).unwrap();
        (session.pages_of_a_claim("x") <= few(first)).then_some(())
    });
    if let Some(first) = first_while_full {
        until(
            &format!("{what}: a claim of nothing reads few pages more than the {first} of the first"),
            || (pages_while_the_limit_is_full(&db, &mut session, full) <= few(first)).then_some(()),
        );
    }
    drop(reader);
}

/// What a claim reads while all that the limits allow is in progress.
fn pages_while_the_limit_is_full(db: &Db, session: &mut Session, full: i32) -> i64 {
    let mut others = db.connect();
    let held = others.own("w", full, &["x"]).unwrap();
    let pages = (0..3)
        .map(|_| {
            assert!(session.own("w", 1, &["x"]).unwrap().is_empty(), "the limit is full");
            session.pages("SELECT * FROM taskq.own_tasks('w', 1, '{x}')")
        })
        .min();
    held.iter().for_each(|grant| others.complete(grant));
    pages.unwrap()
}

#[test]
fn a_claim_within_an_actions_limit_of_one() {
    reads_no_more_after_many_grants("a limit of 1", &["set_action('x', max_concurrency => 1)"], GRANTS, 0, 1);
}

#[test]
fn a_claim_within_an_actions_limit_of_ten() {
    reads_no_more_after_many_grants(
        "a limit of 10",
        &["set_action('x', max_concurrency => 10)"],
        GRANTS,
        3,
        7,
    );
}

#[test]
fn a_claim_within_an_actions_limit_of_thousands() {
    let settings = ["set_action('x', max_concurrency => 5000)"];
    reads_no_more_after_many_grants("a limit of 5,000", &settings, GRANTS, 100, 0);
}

#[test]
#[ignore = "long"]
fn a_claim_within_a_limit_of_each_group() {
    let settings = ["set_action('x', max_per_group => 2)"];
    reads_no_more_after_many_grants("2 of each group", &settings, GRANTS, 3, 37);
}

#[test]
#[ignore = "long"]
fn a_claim_within_limits_of_groups_of_their_own() {
    let settings = ["set_group('g' || n, max_concurrency => 2) FROM generate_series(0, 19) AS n"];
    reads_no_more_after_many_grants("2 of each group over all actions", &settings, GRANTS, 3, 37);
}

#[test]
fn a_claim_of_an_action_whose_groups_take_turns() {
    reads_no_more_after_many_grants("turns", &["set_action('x', fair => true)"], GRANTS, 3, 0);
}

/// A group at its limit, which has waited all along with many tasks: it keeps no other group's marks down, and has its
/// own.
#[test]
#[ignore = "long"]
fn a_full_group_that_has_waited_for_long() {
    let (db, [mut session, mut others]) = Db::connected();
    session.run(
        "SELECT taskq.set_group('old', max_concurrency => 1), taskq.set_group('new', max_concurrency => 9)",
    );
    let of = |group: &str, count: usize, priority: i32| -> Value {
        (0..count)
            .map(|n| {
                json!({"id": format!("{group} {priority} {n:05}"), "action": "x", "group_id": group,
                                  "priority": priority})
            })
            .collect()
    };
    session.insert(of("old", 500, 0)).unwrap();
    session.insert(of("old", 5, -3)).unwrap();
    let held = session.own_one("x");
    assert_eq!(held.task_id, "old 0 00000");
    session.insert(of("new", GRANTS + 200, 0)).unwrap();
    for _ in 0..30 {
        session.perform("x", "completed");
    }
    let first = (0..5).map(|_| session.pages_of_a_claim("x")).min().unwrap();
    let _reader = read_on(&db);
    for _ in 0..GRANTS {
        others.perform("x", "completed");
    }
    until(&format!("a claim reads few pages more than the {first} of the first"), || {
        session.perform("x", "completed");
        (session.pages_of_a_claim("x") <= few(first)).then_some(())
    });
    // The oldest come first again, as soon as there is room for one.
    session.complete(&held);
    for n in 1..20 {
        assert_eq!(session.perform("x", "completed"), format!("old 0 {n:05}"));
        session.run("BEGIN");
        assert!(session.own_one("x").task_id.starts_with("old"));
        assert!(session.own_one("x").task_id.starts_with("new"));
        session.run("ROLLBACK");
    }
    session.run("SELECT taskq.cancel_tasks((SELECT array_agg(id) FROM taskq.tasks WHERE id LIKE '% 0 %' AND state = 'ready'))");
    assert_eq!(session.own_one("x").task_id, "old -3 00000");
}

#[test]
#[ignore = "long"]
fn a_claim_within_a_rate() {
    let settings = ["set_action('x', rate_limit => 1000000, rate_period => '1 second')"];
    reads_no_more_after_many_grants("a rate", &settings, GRANTS_OF_RATE, 3, 0);
}

/// The marks of free slots pass none that is freed by a transaction that was open, nor one whose grant is rolled back, be it
/// only to a savepoint.
#[test]
fn no_slot_is_lost_below_a_mark() {
    let (_db, [mut session, mut others, mut open]) = Db::connected();
    session.run("SELECT taskq.set_action('x', max_concurrency => 3)");
    others.insert(tasks(200)).unwrap();
    for way in ["COMMIT", "ROLLBACK", "ROLLBACK TO s; COMMIT"] {
        // One slot is freed by a transaction that stays open, or taken by it.
        let held = (way == "COMMIT").then(|| others.own_one("x"));
        open.run("BEGIN; SAVEPOINT s");
        match held {
            Some(held) => open.complete(&held),
            None => drop(open.own_one("x")),
        }
        for _ in 0..10 {
            session.perform("x", "completed");
            others.perform("x", "completed");
            // Looks of a transaction that sees its own changes, and undoes them.
            session.run("BEGIN; SAVEPOINT s");
            session.own("w", 2, &["x"]).unwrap();
            session.own("w", 2, &["x"]).unwrap();
            session.run("ROLLBACK TO s");
            session.own("w", 2, &["x"]).unwrap();
            session.run("ROLLBACK");
        }
        open.run(way);
        for worker in [&mut session, &mut others, &mut open] {
            worker.run("BEGIN");
            let granted = worker.own("w", 10, &["x"]).unwrap().len();
            worker.run("ROLLBACK");
            assert_eq!(granted, 3, "all slots are free after the {way}");
        }
    }
    // All at once, more than there is room for, and again: never more than three.
    let mut held = session.own("w", 10, &["x"]).unwrap();
    assert_eq!(held.len(), 3);
    assert_eq!(others.own("w", 10, &["x"]).unwrap().len(), 0);
    session.complete(&held.pop().unwrap());
    assert_eq!(others.own("w", 10, &["x"]).unwrap().len(), 1);
}

/// A limit that changes, the sequence set back, the table emptied by an operator: what a backend remembers is of before.
#[test]
fn marks_do_not_outlive_what_they_are_of() {
    let (_db, [mut session, mut others]) = Db::connected();
    let limit = |session: &mut Session, most: usize| {
        session.run(&format!("SELECT taskq.set_action('x', max_concurrency => {most})"));
    };
    others.insert(tasks(400)).unwrap();
    let all = |session: &mut Session| {
        session.run("BEGIN");
        let granted = session.own("w", 100, &["x"]).unwrap().len();
        session.run("ROLLBACK");
        granted
    };
    for most in [3, 1, 7, 0, 2, 40, 5] {
        limit(&mut others, most);
        for _ in 0..most.min(1) * 5 {
            session.perform("x", "completed");
        }
        assert_eq!((all(&mut session), all(&mut others)), (most, most));
    }
    // Performances above a limit that was lowered count until they have ended.
    limit(&mut others, 6);
    let held = session.own("w", 6, &["x"]).unwrap();
    limit(&mut others, 2);
    for (n, grant) in held.iter().enumerate() {
        assert_eq!(all(&mut session), n.saturating_sub(4), "{n} of 6 have ended");
        others.complete(grant);
    }
    assert_eq!((all(&mut session), all(&mut others)), (2, 2));
    for change in [
        "TRUNCATE taskq.slot; SELECT taskq.set_action('x', max_concurrency => 2)",
        "SELECT taskq.set_action('x', clear => '{max_concurrency}'); SELECT taskq.set_action('x', max_concurrency => 2)",
        "VACUUM FULL taskq.slot",
    ] {
        for statement in change.split("; ") {
            others.run(statement);
        }
        assert_eq!((all(&mut session), all(&mut others)), (2, 2), "after {change}");
        session.perform("x", "completed");
    }
    others.run("DROP EXTENSION taskq; CREATE EXTENSION taskq");
    limit(&mut others, 2);
    others.insert(tasks(10)).unwrap();
    assert_eq!((all(&mut session), all(&mut others)), (2, 2), "of a new extension");
}

/// More limits than a backend remembers marks of.
#[test]
fn groups_by_the_thousand_have_their_slots() {
    let (db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('x', max_per_group => 1)");
    let tasks: Value =
        (0..6_000).map(|n| json!({"action": "x", "group_id": format!("g{}", n % 1_500)})).collect();
    session.insert(tasks).unwrap();
    let _reader = read_on(&db);
    for round in 0..4 {
        let held = session.own("w", 10_000, &["x"]).unwrap();
        assert_eq!(held.len(), 1_500, "one of each group, round {round}");
        let ids: Vec<&str> = held.iter().map(|grant| grant.task_id.as_str()).collect();
        let tokens: Vec<Uuid> = held.iter().map(|grant| grant.token).collect();
        let all = "SELECT count(*) FROM taskq.return_tasks($1, $2, 'completed') WHERE sqlstate IS NULL";
        let returned: i64 = session.query_one(all, &[&ids, &tokens]).unwrap().get(0);
        assert_eq!(returned, 1_500);
    }
}

/// Several at once under an old snapshot: the limits hold exactly, and all is done.
#[test]
fn limits_hold_while_marks_move() {
    let (db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('x', max_concurrency => 3, max_per_group => 1)");
    session.insert(tasks(600)).unwrap();
    let _reader = read_on(&db);
    let workers: Vec<_> = (0..4)
        .map(|n| {
            let mut worker = db.connect();
            thread::spawn(move || {
                let mut done = 0;
                for round in 0..2_000 {
                    let block = (round + n) % 3 == 0;
                    let undo = (round + n) % 7 == 0;
                    if block || undo {
                        worker.run("BEGIN");
                    }
                    let held = worker.own("w", 1 + round % 2, &["x"]).unwrap();
                    let most: i64 = worker
                        .one("SELECT count(*) FROM taskq.slot WHERE task_no IS NOT NULL AND group_id = ''");
                    assert!(most <= 3, "{most} in progress");
                    if undo {
                        worker.run("ROLLBACK");
                        continue;
                    }
                    held.iter().for_each(|grant| worker.complete(grant));
                    done += held.len();
                    if block {
                        worker.run("COMMIT");
                    }
                    if worker.one::<bool>("SELECT NOT EXISTS (SELECT FROM taskq.run)") {
                        break;
                    }
                }
                done
            })
        })
        .collect();
    let done: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert_eq!(done, 600);
    let twice: i64 = session.one(
        "SELECT count(*) FROM (SELECT FROM taskq.slot GROUP BY name, group_id, slot_no HAVING count(*) > 1) AS s",
    );
    assert_eq!(twice, 0, "slots with one number");
}
