//! `wait_at_most`: a suspended task goes on when its time is over, without what is open.

use taskq_tests::{Db, Session};

use super::{own_with_results, signal, suspend, waits_for};

/// A task that waits for one that has ended, one that has not, and a signal, for an hour at most.
fn waiting(session: &mut Session) {
    session.run("SELECT taskq.insert_task('done', 'x'), taskq.insert_task('t', 'work')");
    session.perform("x", "aborted");
    session.run("SELECT taskq.insert_task('open', 'x')");
    let grant = session.own_one("work");
    let awaited =
        "depends_on => '[\"done\", \"open\", {\"id\": \"s\", \"signal\": true}]', wait_at_most => '1 hour'";
    suspend(session, &grant, awaited).unwrap();
}

#[test]
fn it_goes_on_without_what_is_open() {
    let (_db, [mut session]) = Db::connected();
    waiting(&mut session);
    session.run("SELECT taskq.maintain()");
    assert_eq!(session.state("t"), "blocked", "before its time nothing happens");
    session.run("SELECT set_config('taskq.now', (now() + '2 hours')::text, false); SELECT taskq.maintain(); RESET taskq.now");
    let (grant, results) = own_with_results(&mut session, "work");
    assert_eq!((grant.num_tries, grant.num_failures), (1, 1));
    let told: Vec<&str> =
        results.as_array().unwrap().iter().map(|r| r["task_id"].as_str().unwrap()).collect();
    assert_eq!(told, ["done"], "what timed out is missing");
    let task = session.task("t").unwrap();
    assert_eq!((task.total_dependencies, task.num_signals), (1, 1));
    // The tasks themselves stay, and their ends do nothing to it.
    assert!(signal(&mut session, "s"));
    session.perform("x", "completed");
    suspend(&mut session, &grant, "depends_on => '[{\"id\": \"z\", \"signal\": true}]'").unwrap();
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["z"]);
    // The limit of the wait before is not that of this one.
    session.run("SELECT set_config('taskq.now', (now() + '2 days')::text, false); SELECT taskq.maintain(); RESET taskq.now");
    assert_eq!(session.state("t"), "blocked");
}

#[test]
fn a_claim_of_its_action_frees_it_as_well() {
    let (_db, [mut session]) = Db::connected();
    waiting(&mut session);
    session.run("SELECT set_config('taskq.now', (now() + '2 hours')::text, false)");
    assert_eq!(session.own_one("work").task_id, "t");
}

/// The end of what it waited for is on its way while its time is over, and comes when it waits for another one.
#[test]
fn an_end_on_its_way_counts_for_nothing_once_it_has_gone_on() {
    let (_db, [mut first, mut session]) = Db::connected();
    waiting(&mut session);
    let open = first.own_one("x");
    first.run("BEGIN");
    first.complete(&open);
    // The counter is in the hands of the first.
    session.run("SELECT set_config('taskq.now', (now() + '2 hours')::text, false); SELECT taskq.maintain(); RESET taskq.now");
    assert_eq!(session.state("t"), "blocked", "what is locked is left for later");
    first.run("ROLLBACK");
    session.run("SELECT set_config('taskq.now', (now() + '2 hours')::text, false); SELECT taskq.maintain(); RESET taskq.now");
    let grant = session.own_one("work");
    first.run("BEGIN");
    first.complete(&open);
    suspend(&mut session, &grant, "depends_on => '[{\"id\": \"z\", \"signal\": true}]'").unwrap();
    first.run("COMMIT");
    session.run("SELECT taskq.maintain()");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["z"]);
}

/// An end after its time does not count, though no call has looked since: whether it came in time does not depend on who slept where.
#[test]
fn what_settles_after_its_time_does_not_count() {
    for (way, counted) in [("signal", 0), ("return", 0), ("in time", 1)] {
        let (_db, [mut session]) = Db::connected();
        waiting(&mut session);
        let held = session.own_one("x");
        let elsewhen = if way == "in time" { "30 minutes" } else { "2 hours" };
        session.run(&format!("SELECT set_config('taskq.now', (now() + '{elsewhen}')::text, false)"));
        // Both ends together would free it.
        assert!(signal(&mut session, "s"), "{way}: it completes the signal all the same");
        if way == "return" {
            session.complete(&held);
        }
        assert_eq!(session.state("t"), "blocked", "{way}");
        assert_eq!(session.broken(), [""; 0], "{way}");
        session
            .run("SELECT set_config('taskq.now', (now() + '3 hours')::text, false); SELECT taskq.maintain()");
        let (grant, results) = own_with_results(&mut session, "work");
        let told: Vec<&str> =
            results.as_array().unwrap().iter().map(|r| r["task_id"].as_str().unwrap()).collect();
        assert_eq!(told.contains(&"s"), counted == 1, "{way}: {told:?}");
        assert!(!told.contains(&"open"), "{way}: {told:?}");
        let task = session.task("t").unwrap();
        assert_eq!((grant.num_tries, task.num_signals), (1, 1 + counted), "{way}");
    }
}

/// The counter is in the hands of another transaction: what came in time has left a signal for it, and counts when that is read after
/// the time; what came too late has left none.
#[test]
fn an_end_beside_another_counts_by_its_own_time() {
    let (db, [mut session, mut other]) = Db::connected();
    for (elsewhen, counted) in [("30 minutes", true), ("2 hours", false)] {
        waiting(&mut session);
        let held = session.own_one("x");
        other.run("BEGIN");
        other.complete(&held);
        session.run(&format!("SELECT set_config('taskq.now', (now() + '{elsewhen}')::text, false)"));
        assert!(signal(&mut session, "s"));
        other.run("ROLLBACK");
        session
            .run("SELECT set_config('taskq.now', (now() + '3 hours')::text, false); SELECT taskq.maintain()");
        let (_, results) = own_with_results(&mut session, "work");
        let told: Vec<&str> =
            results.as_array().unwrap().iter().map(|r| r["task_id"].as_str().unwrap()).collect();
        assert_eq!(told, if counted { vec!["done", "s"] } else { vec!["done"] }, "{elsewhen}");
        session.run("RESET taskq.now");
        db.clear();
    }
}

#[test]
fn a_signal_and_the_end_of_the_time_free_it_once() {
    let (db, [mut session]) = Db::connected();
    for n in 0..40 {
        session.run(&format!("SELECT taskq.insert_task('t{n}', 'work')"));
        let grant = session.own_one("work");
        suspend(
            &mut session,
            &grant,
            &format!("depends_on => '[{{\"id\": \"s{n}\", \"signal\": true}}]', wait_at_most => '1 hour'"),
        )
        .unwrap();
    }
    let signaller = db.connect().background(|s| {
        for n in 0..40 {
            s.run(&format!("SELECT taskq.signal('s{n}')"));
        }
    });
    let upkeep = db.connect().background(|s| {
        s.run("SELECT set_config('taskq.now', (now() + '2 hours')::text, false)");
        for _ in 0..10 {
            s.run("SELECT taskq.maintain()");
        }
    });
    signaller.join();
    upkeep.join();
    assert_eq!(session.own("w", 100, &["work"]).unwrap().len(), 40);
    assert_eq!(
        session
            .one::<i64>("SELECT count(*) FROM taskq.tasks WHERE action = 'signal' AND state = 'completed'"),
        40
    );
}
