//! What a limit lets go is had at once by the calls that sleep for it.
//!
//! Why: a limit is taken by a transaction, and others who look at that moment find it taken. They must learn what is left
//! of it, or when: the next slot is had as soon as it can be, the next task of a rate when the bucket has refilled. On wrong
//! code a task lies ready until a sleeper looks by himself, half a minute later.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Background, Db, Session};

use crate::{call, owned, tasks};

/// Sleeping calls in this session look by themselves, as they do anywhere but in tests.
const LOOKS: &str = "SET taskq.shortest_sleep = '100ms'";

/// A worker that waits for one task of action x; when it got it.
fn waiter(db: &Db, watcher: &mut Session, looks: bool) -> Background<Option<Instant>> {
    let waiter = db.connect().background(move |session| {
        if looks {
            session.run(LOOKS);
        }
        let grants = session.own_with("w", 1, &["x"], "wait => '20 seconds'").unwrap();
        (!grants.is_empty()).then(Instant::now)
    });
    watcher.until_asleep(waiter.pid());
    waiter
}

fn times(waiters: Vec<Background<Option<Instant>>>, since: Instant) -> Vec<Duration> {
    let mut times: Vec<Duration> =
        waiters.into_iter().map(|waiter| waiter.join().1.expect("a task") - since).collect();
    times.sort();
    times
}

#[test]
fn the_second_of_two_waiters_gets_the_next_task_when_the_rate_allows_it() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for _ in 0..6 {
        call(&mut session, "set_action('x', clear => '{rate_limit}')");
        call(&mut session, "set_action('x', rate_limit => 1, rate_period => '1 second')");
        let waiters = vec![waiter(&db, &mut watcher, true), waiter(&db, &mut watcher, true)];
        let inserted = Instant::now();
        session.insert(tasks("x", 2)).unwrap();
        let times = times(waiters, inserted);
        assert!(times[0] < Duration::from_millis(500), "the first after {times:?}");
        assert!(times[1] > Duration::from_millis(900), "the rate holds: {times:?}");
        assert!(times[1] < Duration::from_millis(1500), "the second after {times:?}");
        db.clear();
    }
}

/// Its commit wakes one of the calls that have found the bucket taken.
#[test]
fn the_end_of_a_long_transaction_that_has_taken_a_rate_wakes_a_waiter() {
    let (db, [mut session, mut watcher]) = Db::connected();
    call(&mut session, "set_action('x', rate_limit => 1, rate_period => '1 second')");
    session.insert(tasks("x", 2)).unwrap();
    for end in ["COMMIT", "ROLLBACK"] {
        session.run("BEGIN");
        assert_eq!(owned(&mut session, 1, &["x"]).len(), 1);
        let waiter = waiter(&db, &mut watcher, false);
        session.run("SELECT pg_sleep(1.2)");
        session.run(end);
        let ended = Instant::now();
        assert!(times(vec![waiter], ended)[0] < Duration::from_secs(2), "woken by the {end}");
        db.clear();
        session.insert(tasks("x", 2)).unwrap();
        session.run("SELECT pg_sleep(1.2)");
    }
}

/// The one who knew when the rate lets the next task go leaves before.
#[test]
fn a_waiter_that_leaves_tells_another_when_the_rate_allows_the_next_task() {
    let (db, [mut session, mut watcher]) = Db::connected();
    call(&mut session, "set_action('x', rate_limit => 1, rate_period => '2 seconds')");
    session.insert(tasks("x", 1)).unwrap();
    assert_eq!(owned(&mut session, 1, &["x"]).len(), 1);
    let stays = waiter(&db, &mut watcher, false);
    let leaves = db
        .connect()
        .background(|session| session.own_with("w", 1, &["x"], "wait => '0.7 seconds'").unwrap().len());
    watcher.until_asleep(leaves.pid());
    let inserted = Instant::now();
    session.insert(json!([{"action": "x"}])).unwrap();
    assert_eq!(leaves.join().1, 0);
    let time = times(vec![stays], inserted)[0];
    assert!(time < Duration::from_millis(2600), "after {time:?}");
}

/// A place of a group is made by one of two who were woken together, and the other one finds the making of places taken.
#[test]
#[ignore = "long"]
fn both_waiters_get_a_place_of_a_new_group_at_once_every_time() {
    let (db, [mut session, mut watcher]) = Db::connected();
    call(&mut session, "set_action('x', max_per_group => 2)");
    for n in 0..100 {
        let waiters = vec![waiter(&db, &mut watcher, false), waiter(&db, &mut watcher, false)];
        let task = json!({"action": "x", "group_id": format!("g{n}")});
        let inserted = Instant::now();
        session.insert(json!([task, task])).unwrap();
        let times = times(waiters, inserted);
        assert!(times[1] < Duration::from_secs(1), "round {n}: {times:?}");
    }
}

/// The same for a group's own limit, over two actions, and places that are freed one after the other.
#[test]
#[ignore = "long"]
fn a_place_of_a_group_that_is_freed_goes_to_a_waiter_at_once_every_time() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for n in 0..100 {
        call(&mut session, &format!("set_group('g{n}', max_concurrency => 1)"));
        let task = |action: &str| json!({"action": action, "group_id": format!("g{n}")});
        session.insert(json!([task("y"), task("x")])).unwrap();
        let grant = session.own_one("y");
        let waiter = waiter(&db, &mut watcher, false);
        let freed = Instant::now();
        session.complete(&grant);
        let times = times(vec![waiter], freed);
        assert!(times[0] < Duration::from_secs(1), "round {n}: {times:?}");
    }
}
