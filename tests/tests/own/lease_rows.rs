//! Rows of `taskq.lease`: as many as there are tasks in progress, at most, however tasks come back.
//!
//! Why: a thousand grants a second with a lease of an hour would otherwise leave 3.6 million rows. On wrong code rows
//! stay until their deadline, or a row goes that a task still needs: then the task of a dead worker never comes back.

use serde_json::{Value, json};
use taskq_tests::{Db, Grant, Progress, Session};

fn many(n: usize) -> Value {
    (1..=n).map(|i| json!({"id": format!("t{i:06}"), "action": "x"})).collect()
}

fn rows(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.lease")
}

fn own(session: &mut Session, n: i32) -> Vec<Grant> {
    let grants = session.own_with("w", n, &["x"], "lease => '1 hour'").unwrap();
    assert_eq!(grants.len(), n as usize);
    grants
}

#[test]
fn single_grants_that_come_back_leave_none() {
    let (_db, [mut session]) = Db::with_tasks(many(300));
    for i in 0..300 {
        let grant = own(&mut session, 1).remove(0);
        assert_eq!(rows(&mut session), 1);
        let code = ["completed", "aborted"][i % 2];
        assert_eq!(session.give(&grant.task_id, grant.token, code).unwrap(), code);
    }
    assert_eq!(rows(&mut session), 0);
}

#[test]
fn however_a_task_ends_its_row_goes() {
    let db = Db::new();
    type End<'a> = &'a dyn Fn(&mut Session, &Grant);
    let ends: [(&str, End); 7] = [
        ("given back", &|session, grant| {
            session.give(&grant.task_id, grant.token, "pending").unwrap();
        }),
        ("cancelled", &|session, grant| {
            session.run(&format!("SELECT taskq.cancel_tasks('{{{}}}')", grant.task_id));
        }),
        ("cancelled with its group", &|session, _| session.run("SELECT taskq.cancel_group('g')")),
        ("deleted with its group", &|session, _| {
            session.run("SELECT taskq.cancel_group('g'); SELECT taskq.delete_group('g')");
        }),
        ("reset with its group", &|session, _| session.run("SELECT taskq.reset_group('g')")),
        ("returned with a child", &|session, grant| {
            session.run(&format!(
                "SELECT taskq.return_task('{}', '{}', children => '[{{\"action\": \"y\"}}]')",
                grant.task_id, grant.token
            ));
        }),
        ("returned in a batch of its own kind each", &|session, grant| {
            session.run(&format!(
                "SELECT * FROM taskq.return_tasks(ARRAY['{0}', 'none'], ARRAY['{1}', '{1}']::uuid[])",
                grant.task_id, grant.token
            ));
        }),
    ];
    for (name, end) in ends {
        db.clear();
        let mut session = db.connect();
        session.insert(json!([{"id": "a", "action": "x", "group_id": "g"}])).unwrap();
        let grant = own(&mut session, 1).remove(0);
        session.run("BEGIN");
        end(&mut session, &grant);
        assert_eq!(rows(&mut session), 0, "{name}");
        session.run("ROLLBACK");
        assert_eq!(rows(&mut session), 1, "{name}, and that was rolled back");
        end(&mut session, &grant);
        assert_eq!(rows(&mut session), 0, "{name}");
    }
}

#[test]
fn extensions_of_a_task_have_one_row() {
    let (_db, [mut session]) = Db::with_tasks(many(20));
    let grants = own(&mut session, 20);
    let one = &grants[7];
    for _ in 0..200 {
        assert!(session.extend("w", &[(&one.task_id, one.token)], "2 hours").unwrap()[0].1);
    }
    assert_eq!(rows(&mut session), 2, "the one that was extended, and the others");
    let pairs: Vec<(&str, uuid::Uuid)> = grants.iter().map(|g| (g.task_id.as_str(), g.token)).collect();
    for _ in 0..50 {
        session.extend("w", &pairs, "3 hours").unwrap();
        assert_eq!(rows(&mut session), 1, "all at once have one again");
    }
    for grant in &grants {
        session.complete(grant);
    }
    assert_eq!(rows(&mut session), 0);
}

#[test]
fn the_row_of_a_batch_goes_with_the_last_of_it_in_any_order() {
    let (_db, [mut session]) = Db::with_tasks(many(400));
    for order in ["as granted", "backwards", "by chance", "in tens", "in transactions", "in savepoints"] {
        let mut grants = own(&mut session, 60);
        assert_eq!(rows(&mut session), 1);
        match order {
            "backwards" => grants.reverse(),
            "by chance" => grants.sort_by_key(|grant| grant.token),
            _ => {}
        }
        let step = if order == "in tens" { 10 } else { 1 };
        let mut left = grants.len();
        for some in grants.chunks(step) {
            match order {
                "in transactions" => session.run("BEGIN"),
                "in savepoints" => {
                    // What a savepoint undoes has not happened.
                    session.run("BEGIN; SAVEPOINT s");
                    some.iter().for_each(|grant| session.complete(grant));
                    session.run("ROLLBACK TO s; SAVEPOINT t");
                }
                _ => {}
            }
            some.iter().for_each(|grant| session.complete(grant));
            if order.starts_with("in transactions") || order == "in savepoints" {
                session.run("COMMIT");
            }
            left -= some.len();
            if left.is_multiple_of(20) {
                assert_eq!(session.broken(), Vec::<String>::new(), "{order}, {left} left");
            }
            assert!(rows(&mut session) <= left as i64, "{order}, {left} left");
        }
        assert_eq!(rows(&mut session), 0, "{order}");
    }
}

#[test]
fn the_others_of_a_batch_keep_theirs_while_the_keeper_comes_back_in_an_open_transaction() {
    let (_db, [mut open, mut other]) = Db::connected();
    for session in [&mut open, &mut other] {
        session.set_now(Some("2030-01-01 00:00:00Z"));
    }
    open.insert(many(10)).unwrap();
    let grants = own(&mut open, 10);
    let keeper: String =
        open.one("SELECT t.id FROM taskq.lease AS l JOIN taskq.task AS t ON t.task_no = l.keeper_no");
    let kept = grants.iter().find(|grant| grant.task_id == keeper).unwrap();
    // The transaction that returns the keeper stays open while the deadline of the others passes.
    open.run("BEGIN");
    open.complete(kept);
    other.set_now(Some("2030-01-01 02:00:00Z"));
    let again = own(&mut other, 9);
    assert!(again.iter().all(|grant| grant.task_id != keeper));
    open.run("COMMIT");
    assert_eq!(
        rows(&mut other),
        2,
        "that of the nine, and one to look at the keeper again, which was locked"
    );
    again.iter().for_each(|grant| other.complete(grant));
    other.set_now(Some("2030-01-01 02:00:10Z"));
    assert!(other.own("w", 1, &["x"]).unwrap().is_empty());
    assert_eq!(rows(&mut other), 0);
}

#[test]
fn a_return_does_not_wait_for_a_transaction_that_removes_the_lease() {
    let (_db, [mut open, second, mut watcher]) = Db::connected();
    watcher.insert(many(1)).unwrap();
    let grant = own(&mut watcher, 1).remove(0);
    open.run("BEGIN");
    open.run("DELETE FROM taskq.lease");
    let call = second.background(move |session| session.complete(&grant));
    assert_eq!(call.settle_down(&mut watcher), Progress::Done);
    call.join();
    open.run("ROLLBACK");
    assert_eq!(rows(&mut watcher), 1, "one too many does no harm, and goes when it is met");
    watcher.set_now(Some("2100-01-01 00:00:00Z"));
    watcher.own("w", 1, &["x"]).unwrap();
    assert_eq!(rows(&mut watcher), 0);
}

/// Rows without a keeper, as a server that was killed in the middle of a restore, or two returns at the same moment,
/// may leave them: grants find them.
#[test]
#[ignore = "long"]
fn grants_find_what_is_left_over() {
    let (_db, [mut session]) = Db::with_tasks(many(4100));
    let held = own(&mut session, 50);
    session.run(
        "INSERT INTO taskq.lease (deadline, base, keeper_no, others)
         SELECT now() + n * interval '1 second', n, n, CASE n % 3 WHEN 0 THEN ARRAY[n + 1, n + 2] END
           FROM generate_series(1, 2000) AS n",
    );
    for _ in 0..4000 {
        let grant = own(&mut session, 1).remove(0);
        session.complete(&grant);
    }
    let left = rows(&mut session);
    assert!(left < 200, "{left} of 2000 left");
    assert_eq!(session.broken(), Vec::<String>::new());
    held.iter().for_each(|grant| session.complete(grant));
}

#[test]
#[ignore = "long"]
fn a_hundred_thousand_in_one_call_come_back() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('action', 'x'))
                                                            FROM generate_series(1, 100000)))",
    );
    let mut given = 0;
    for _ in 0..2 {
        // Granted, and returned in thousands by an expression that picks them by chance.
        session.run("CREATE TEMP TABLE granted AS SELECT task_id, token FROM taskq.own_tasks('w', 50000, '{x}', '1 hour')");
        let rows = rows(&mut session);
        assert!(
            (50..55).contains(&rows),
            "one for a thousand, and one more where the call was held up: {rows}"
        );
        session.run(
            "SELECT count(r.*) FROM (SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens FROM granted
                                      GROUP BY hashtext(task_id) % 50) AS g
              CROSS JOIN LATERAL taskq.return_tasks(g.ids, g.tokens) AS r; DROP TABLE granted",
        );
        given += 50_000;
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.settled"), given);
    }
    assert_eq!(rows(&mut session), 0);
}
