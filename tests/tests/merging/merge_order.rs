//! Calls that lock several entries of a key or a group do so in one order: nothing deadlocks.
//!
//! Why: a return locks what rides on its task, and a resume what is parked, beside calls that name some of these tasks.
//! On wrong code each waits for the other, and one of the two ends with 40P01.

use serde_json::json;
use taskq_tests::{Db, Progress, until};

use crate::{call, owned};

#[test]
fn a_cancel_of_riders_beside_the_return_of_their_leader_is_no_deadlock() {
    let (db, [mut main]) = Db::connected();
    for round in 0..25 {
        // Two leaders whose riders are numbered crosswise: the order of leaders is not that of riders.
        let task = |id: &str, key: &str| json!({"id": format!("{round} {id}"), "action": "x", "merge_key": format!("{round} {key}")});
        main.insert(json!([
            task("l1", "k1"),
            task("l2", "k2"),
            task("r1", "k2"),
            task("r2", "k1"),
            task("r3", "k2"),
            task("r4", "k1"),
        ]))
        .unwrap();
        let grants = main.own("w", 2, &["x"]).unwrap();
        assert_eq!(grants.len(), 2);
        let riders: Vec<String> = (1..=4).map(|n| format!("{round} r{n}")).collect();
        let cancel = db.connect().background(move |s| {
            let riders: Vec<&str> = riders.iter().map(String::as_str).collect();
            s.cancel(&riders).map_err(|error| format!("{error:?}"))
        });
        let back = db.connect().background(move |s| {
            let (ids, tokens): (Vec<String>, Vec<_>) =
                grants.into_iter().map(|g| (g.task_id, g.token)).unzip();
            s.execute("SELECT taskq.return_tasks($1, $2)", &[&ids, &tokens])
                .map_err(|error| format!("{error:?}"))
        });
        cancel.join().1.expect("the cancel");
        back.join().1.expect("the return");
        let left: i64 =
            main.one("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
        assert_eq!(left, 0);
    }
}

#[test]
fn the_return_of_a_leader_locks_riders_in_the_order_of_a_cancel() {
    let (db, [mut open, mut main]) = Db::connected();
    // The first rider in number is that of the second leader.
    main.insert(json!([
        {"id": "l1", "action": "x", "merge_key": "k1"}, {"id": "l2", "action": "x", "merge_key": "k2"},
        {"id": "r1", "action": "x", "merge_key": "k2"}, {"id": "r2", "action": "x", "merge_key": "k1"},
    ]))
    .unwrap();
    let grants = main.own("w", 2, &["x"]).unwrap();
    open.run("BEGIN");
    assert_eq!(open.cancel(&["r1"]).unwrap(), 1);
    let back = db.connect().background(move |s| {
        let (ids, tokens): (Vec<String>, Vec<_>) = grants.into_iter().map(|g| (g.task_id, g.token)).unzip();
        s.execute("SELECT taskq.return_tasks($1, $2)", &[&ids, &tokens]).map_err(|error| format!("{error:?}"))
    });
    assert_eq!(back.settle_down(&mut main), Progress::Blocked, "by the cancel of r1");
    // It waits for the first rider and has not locked the second.
    let free: Vec<i64> = main.all(
        "SELECT p.task_no FROM taskq.parked p JOIN taskq.task t USING (task_no) WHERE t.id = 'r2' FOR UPDATE OF p SKIP LOCKED",
    );
    assert_eq!(free.len(), 1, "r2 is not locked before r1 is had");
    open.run("COMMIT");
    back.join().1.expect("the return");
    until("all is settled", || {
        (main.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')") == 0)
            .then_some(())
    });
}

/// Single calls, each a transaction by itself, never meet in a deadlock. One that ends the holder of a key locks all that waits
/// for the key, besides what it names itself. On wrong code it waited out of order, and one of the two got 40P01.
#[test]
fn ending_a_leader_locks_what_waits_for_its_key_in_the_order_of_a_cancel() {
    let (db, [mut open, mut main]) = Db::connected();
    main.insert(
        ["h", "p1", "p2", "p3"].map(|id| json!({"id": id, "action": "x", "merge_key": "k"})).to_vec().into(),
    )
    .unwrap();
    assert_eq!(owned(&mut main, 1, &["x"]), ["h"]);
    assert!(owned(&mut main, 3, &["x"]).is_empty());
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.parked"), 3);
    // Another transaction has p2 for a moment, so that the calls meet.
    open.run("BEGIN");
    call(&mut open, "cancel_tasks('{p2}')");
    let cancel = |ids: &str| {
        let query = format!("SELECT taskq.cancel_tasks('{{{ids}}}')");
        db.connect().background(move |s| s.query_one(&query, &[]).map(|row| row.get::<_, i64>(0)))
    };
    let riders = cancel("p1,p2,p3");
    assert_eq!(riders.settle_down(&mut main), Progress::Blocked);
    let holder = cancel("h,p3");
    assert_eq!(holder.settle_down(&mut main), Progress::Blocked);
    open.run("ROLLBACK");
    let (riders, holder) = (riders.join().1.unwrap(), holder.join().1.unwrap());
    assert_eq!(riders + holder, 4);
    for id in ["h", "p1", "p2", "p3"] {
        assert_eq!(main.state(id), "aborted");
    }
}

/// A resume takes out what is parked under the group in the order of the calls that name it. On wrong code it did so as
/// the rows lie.
#[test]
fn a_resume_locks_what_is_parked_in_the_order_of_a_cancel() {
    let (db, [mut open, mut main]) = Db::connected();
    let task =
        |id: &str, priority: i32| json!({"id": id, "action": "x", "group_id": "g", "priority": priority});
    main.insert(json!([task("t1", 0), task("t2", 0), task("t9", 9)])).unwrap();
    call(&mut main, "pause_group('g')");
    assert!(owned(&mut main, 3, &["x"]).is_empty());
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.parked"), 3);
    open.run("BEGIN");
    call(&mut open, "cancel_tasks('{t2}')");
    let background = |query: &'static str| {
        db.connect().background(move |s| s.query_one(query, &[]).map(|row| row.get::<_, i64>(0)))
    };
    let cancel = background("SELECT taskq.cancel_tasks('{t1,t2,t9}')");
    assert_eq!(cancel.settle_down(&mut main), Progress::Blocked);
    let resume = background("SELECT taskq.resume_group('g')");
    assert_eq!(resume.settle_down(&mut main), Progress::Blocked);
    open.run("ROLLBACK");
    assert_eq!(cancel.join().1.unwrap(), 3);
    resume.join().1.unwrap();
    for id in ["t1", "t2", "t9"] {
        assert_eq!(main.state(id), "aborted");
    }
}
