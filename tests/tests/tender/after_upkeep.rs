//! `CALL wait_for_work` is woken as before after it has looked after what was due.
//!
//! Why: it commits what it has looked after, so that others see it, and sleeps on. If that commit takes its
//! registrations away no other session finds it any more, and it hears of nothing until it looks by itself.

use std::time::{Duration, Instant};

use taskq_tests::{Db, until};

use crate::sleeper::{Sleeper, WORK};

/// What makes a sleeper for `x` look after something of `y`, and how to tell that it has.
fn still_hears_after(begin: &str, done: &str) {
    let (db, [mut session, mut watcher]) = Db::connected();
    // Both actions have numbers.
    session.run("SELECT taskq.insert_task(NULL, 'x', delay => '1 day'), taskq.insert_task('y', 'y')");
    session.run(begin);
    let sleeper = Sleeper::start(&db, &mut watcher, WORK[1]);
    until("what is due is looked after", || session.one::<bool>(done).then_some(()));
    watcher.until_asleep(sleeper.pid());
    let inserted = Instant::now();
    session.run("SELECT taskq.insert_task('a', 'x')");
    sleeper.woken_soon_after(inserted, "an insert after upkeep");
    // By itself it looks at the earliest 3.75 seconds after it fell asleep.
    let slept = inserted.elapsed();
    assert!(slept < Duration::from_secs(2), "it was not woken, but looked after {slept:?}");
}

#[test]
fn of_a_worker_of_another_action_that_has_died() {
    still_hears_after(
        "SELECT taskq.own_tasks('dead', 1, '{y}', '1 second')",
        "SELECT EXISTS (SELECT FROM taskq.run WHERE tries = 1 AND grantable)",
    );
}

#[test]
fn twice() {
    still_hears_after(
        "SELECT taskq.insert_task('z', 'y'); SELECT taskq.own_tasks('dead', 1, '{y}', '1 second');
         SELECT taskq.own_tasks('dead', 1, '{y}', '2 seconds')",
        "SELECT count(*) = 2 FROM taskq.run WHERE tries = 1 AND grantable",
    );
}
