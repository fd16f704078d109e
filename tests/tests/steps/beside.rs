//! Steps that several processes save at once, and what goes on beside that.

use serde_json::json;
use taskq_tests::{Db, Progress, sqlstate};

use crate::{save, steps};

#[test]
fn of_two_that_save_the_same_step_both_get_what_is_stored() {
    for (end, expected) in [("COMMIT", json!("first")), ("ROLLBACK", json!("second"))] {
        let (_db, [mut first, second, mut watcher]) = Db::connected();
        watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        let grant = watcher.own_one("x");
        first.run("BEGIN");
        save(&mut first, &grant, "pay", Some(json!("first"))).unwrap();
        let held = grant.clone();
        let call =
            second.background(move |session| save(session, &held, "pay", Some(json!("second"))).unwrap());
        assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
        first.run(end);
        assert_eq!(call.join().1, Some(expected.clone()), "{end}");
        assert_eq!(steps(&mut watcher, "a"), [format!("1 pay 1 {expected}")], "{end}");
    }
}

#[test]
fn of_two_that_save_different_steps_the_second_comes_after_the_first() {
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        let (_db, [mut first, mut second, mut watcher]) = Db::connected();
        watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        let grant = watcher.own_one("x");
        second.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM taskq.steps"));
        first.run("BEGIN");
        save(&mut first, &grant, "one", None).unwrap();
        let held = grant.clone();
        let call = second.background(move |session| {
            save(session, &held, "two", None).unwrap();
            // What was saved since the snapshot of the transaction is found, too.
            assert_eq!(save(session, &held, "one", Some(json!(1))).unwrap(), None);
            session.run("COMMIT");
        });
        assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
        first.run("COMMIT");
        call.join();
        assert_eq!(steps(&mut watcher, "a"), ["1 one 1", "2 two 1"], "{level}");
    }
}

#[test]
fn many_savers_leave_each_step_once_and_positions_without_a_gap() {
    let (db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    let savers: Vec<_> = [1, 7, 11, 13, 17, 19]
        .into_iter()
        .map(|saver: usize| {
            let grant = grant.clone();
            db.connect().background(move |session| {
                let mut stored = Vec::new();
                for n in 0..60 {
                    // Each in another order.
                    let step = (n * saver + saver) % 60;
                    stored
                        .push((step, save(session, &grant, &step.to_string(), Some(json!(saver))).unwrap()));
                }
                stored.sort_by_key(|(step, _)| *step);
                stored
            })
        })
        .collect();
    let stored: Vec<_> = savers.into_iter().map(|saver| saver.join().1).collect();
    assert!(stored.windows(2).all(|two| two[0] == two[1]), "each is told what is stored: {stored:?}");
    for (step, result) in &stored[0] {
        let query = format!("SELECT result FROM taskq.steps WHERE step = '{step}'");
        assert_eq!(Some(session.one::<serde_json::Value>(&query)), *result);
    }
    let whole = "SELECT count(*) = 60 AND min(position) = 1 AND max(position) = 60 AND count(DISTINCT position) = 60 FROM taskq.steps";
    assert!(session.one::<bool>(whole));
}

#[test]
fn an_open_save_is_in_the_way_of_neither_reports_nor_dependencies_nor_readers() {
    let (_db, [mut saver, mut other]) = Db::connected();
    other.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = other.own_one("x");
    saver.run("BEGIN");
    save(&mut saver, &grant, "one", None).unwrap();
    other.run("SET lock_timeout = '10s'");
    other.insert(json!([{"id": "c", "action": "y", "depends_on": ["a"]}])).unwrap();
    other.execute("SELECT taskq.report_status('a', $1, 'half')", &[&grant.token]).unwrap();
    assert_eq!(steps(&mut other, "a").len(), 0);
    saver.run("COMMIT");
    // Nor is an open link in the way of a save.
    other.run("BEGIN");
    other.insert(json!([{"id": "d", "action": "y", "depends_on": ["a"]}])).unwrap();
    saver.run("SET lock_timeout = '10s'");
    save(&mut saver, &grant, "two", None).unwrap();
    other.run("COMMIT");
    assert_eq!(steps(&mut other, "a"), ["1 one 1", "2 two 1"]);
}

#[test]
fn a_task_is_not_taken_over_while_a_step_of_it_is_being_saved() {
    let (_db, [mut saver, mut other]) = Db::connected();
    for session in [&mut saver, &mut other] {
        session.set_now(Some("2030-01-01 00:00:00Z"));
    }
    other.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = other.own_one_with("x", "lease => '1 minute'");
    for session in [&mut saver, &mut other] {
        session.set_now(Some("2030-01-01 00:10:00Z"));
    }
    saver.run("BEGIN");
    save(&mut saver, &grant, "pay", Some(json!(1))).unwrap();
    assert!(other.own("other", 1, &["x"]).unwrap().is_empty());
    saver.run("COMMIT");
    // What was locked is looked at again a second later.
    other.set_now(Some("2030-01-01 00:10:02Z"));
    let given: serde_json::Value =
        other.one("SELECT steps FROM taskq.own_tasks('other', 1, '{x}', with_steps => true)");
    assert_eq!(given, json!({"pay": 1}));
    let late = save(&mut saver, &grant, "mail", None).unwrap_err();
    assert_eq!(sqlstate(&late), "TQ001");
}

#[test]
fn a_save_waits_for_a_return_and_is_refused_then() {
    let (_db, [mut first, second, mut watcher]) = Db::connected();
    watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = watcher.own_one("x");
    first.run("BEGIN");
    first.complete(&grant);
    let call = second.background(move |session| save(session, &grant, "s", None).unwrap_err());
    assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    assert_eq!(sqlstate(&call.join().1), "TQ001");
    assert_eq!(steps(&mut watcher, "a").len(), 0);
}
