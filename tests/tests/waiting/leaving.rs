//! A call that leaves passes on what the others relied on: what a rollback gives back, wake-ups that it has no use for,
//! and what it alone knew to be due.

use std::time::{Duration, Instant};

use taskq_tests::{Background, Db, Session, let_databases_stay, until};

use crate::sleeper::{PROMPT, Sleeper, WORK};

/// A sleeping worker for these actions that takes one task; when it had it.
fn worker(db: &Db, watcher: &mut Session, actions: &'static [&'static str]) -> Background<Option<Instant>> {
    let worker = db.connect().background(move |session| {
        let granted = session.own_with("w", 1, actions, "wait => '100 seconds'").ok()?;
        (!granted.is_empty()).then(Instant::now)
    });
    watcher.until_asleep(worker.pid());
    worker
}

fn cancel(session: &mut Session, worker: Background<Option<Instant>>) {
    session.run(&format!("SELECT pg_cancel_backend({})", worker.pid()));
    assert!(worker.join().1.is_none(), "a cancelled worker gets nothing");
}

#[test]
fn what_an_open_grant_holds_is_not_ready_and_its_rollback_wakes() {
    let rollbacks = [
        ("BEGIN", "ROLLBACK"),
        ("BEGIN; SAVEPOINT s", "ROLLBACK TO s"),
        // One that fails, and one that is terminated.
        ("BEGIN", "DO $$ BEGIN RAISE EXCEPTION 'the holder fails'; END $$"),
        ("BEGIN", "SELECT pg_terminate_backend(pg_backend_pid())"),
    ];
    for (begin, end) in rollbacks {
        for way in WORK {
            let (db, [mut holder, mut watcher]) = Db::connected();
            watcher.run("SELECT taskq.insert_task('a', 'x')");
            holder.run(begin);
            holder.own_one("x");
            let sleeper = Sleeper::start(&db, &mut watcher, way);
            // It does not look again and again in the meantime.
            std::thread::sleep(Duration::from_millis(50));
            watcher.until_asleep(sleeper.pid());
            holder.simple_query(end).ok();
            sleeper.woken_by(end);
        }
    }
}

#[test]
fn wait_for_work_sleeps_while_others_hold_all_there_is() {
    let (_db, [mut holder, mut session]) = Db::connected();
    session.run("SELECT count(taskq.insert_task(n::text, 'x')) FROM generate_series(1, 100) AS n");
    holder.run("BEGIN");
    assert_eq!(holder.own("h", 100, &["x"]).unwrap().len(), 100);
    let start = Instant::now();
    assert!(!ready(&mut session, "0.5 seconds"));
    assert!(start.elapsed() >= Duration::from_millis(490), "it ended after {:?}", start.elapsed());
    session.run("SELECT taskq.insert_task('one more', 'x')");
    assert!(ready(&mut session, "1 minute"), "there is one that no worker holds");
    holder.run("COMMIT");
}

fn ready(session: &mut Session, timeout: &str) -> bool {
    session.query_one(&format!("CALL taskq.wait_for_work('{{x}}', '{timeout}', NULL)"), &[]).unwrap().get(0)
}

#[test]
fn wait_for_work_looks_after_what_is_due_in_other_actions() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run(
        "SELECT taskq.insert_task('a', 'y', max_tries => 1, lease => '0.3 seconds'); \
         SELECT taskq.own_tasks('dies', 1, '{y}')",
    );
    let caller = db.connect().background(|session| ready(session, "100 seconds"));
    until("the last try is over", || (session.state("a") == "aborted").then_some(()));
    // That was none of its business: it sleeps on, without a transaction id.
    watcher.until_asleep(caller.pid());
    let held: bool = watcher.one(&format!(
        "SELECT backend_xmin IS NOT NULL OR backend_xid IS NOT NULL FROM pg_stat_activity WHERE pid = {}",
        caller.pid()
    ));
    assert!(!held);
    session.run("SELECT taskq.insert_task('b', 'x')");
    assert!(caller.join().1);
}

/// The call that was woken to learn of the time leaves, and another one has to look in time.
#[test]
fn a_due_time_is_not_forgotten_when_the_call_that_knows_it_leaves() {
    for leave in ["takes a task", "is cancelled"] {
        let (db, [mut session, mut watcher]) = Db::connected();
        let workers: Vec<_> = (0..3).map(|_| worker(&db, &mut watcher, &["x"])).collect();
        session.run("SELECT taskq.insert_task('later', 'x', delay => '1.5 seconds')");
        let start = Instant::now();
        let mut left = Vec::new();
        for (n, worker) in workers.into_iter().enumerate() {
            watcher.until_asleep(worker.pid());
            match leave {
                "is cancelled" if n < 2 => cancel(&mut session, worker),
                _ => left.push(worker),
            }
        }
        if leave == "takes a task" {
            session.run("SELECT taskq.insert_task('1', 'x')");
            session.run("SELECT taskq.insert_task('2', 'x')");
        }
        let took = left.into_iter().map(|w| w.join().1.expect("each gets a task") - start).max().unwrap();
        assert!(took < PROMPT, "the call that knew {leave}; the next one looked after {took:?}");
    }
}

#[test]
fn a_deadline_is_not_forgotten_when_the_calls_that_know_it_leave() {
    let (db, [mut session, mut watcher]) = Db::connected();
    let mut workers: Vec<_> = (0..4).map(|_| worker(&db, &mut watcher, &["x", "y"])).collect();
    // The commit wakes one for the task, which it cannot have, and one for the deadline.
    session.run(
        "BEGIN; SELECT taskq.insert_task('a', 'y'); SELECT taskq.own_tasks('dies', 1, '{y}', '1.5 seconds'); COMMIT",
    );
    let start = Instant::now();
    while workers.len() > 1 {
        watcher.until_asleep(workers[0].pid());
        cancel(&mut session, workers.remove(0));
    }
    let took = workers.remove(0).join().1.expect("it gets the task") - start;
    assert!(took < PROMPT, "the task of the dead worker was taken after {took:?}");
}

/// The same where it takes a task, and no other waits for anything of its action: the other hears of deadlines only.
#[test]
fn a_deadline_is_not_forgotten_when_the_call_that_knows_it_takes_a_task() {
    let_databases_stay();
    let (db, [mut session, mut watcher]) = Db::connected();
    let mut callers = vec![db.connect(), db.connect()];
    // One of the two is woken for the deadline, the same each time, and leaves in one of the rounds.
    for leaves in 0..2 {
        db.clear();
        session.run("SELECT taskq.insert_task('a', 'z')");
        let dies = session.own_one_with("z", "lease => '1 hour'");
        let mut workers: Vec<_> = (callers.drain(..).zip(["x", "y"]))
            .map(|(caller, action)| {
                caller.background(move |session| {
                    let granted = session.own_with("w", 1, &[action, "z"], "wait => '100 seconds'").unwrap();
                    (granted[0].task_id.clone(), Instant::now())
                })
            })
            .collect();
        workers.iter().for_each(|worker| watcher.until_asleep(worker.pid()));
        session.extend("worker", &[("a", dies.token)], "1.5 seconds").unwrap();
        let since = Instant::now();
        // A call that is woken looks, and goes on sleeping.
        std::thread::sleep(Duration::from_millis(300));
        session.run(&format!("SELECT taskq.insert_task('b', '{}')", ["x", "y"][leaves]));
        let (leaver, (got, _)) = workers.remove(leaves).join();
        assert_eq!(got, "b");
        let (stayer, (got, at)) = workers.remove(0).join();
        assert_eq!(got, "a");
        let took = at - since;
        assert!(took < PROMPT, "the task of the dead worker was taken after {took:?}");
        callers.extend(if leaves == 0 { [leaver, stayer] } else { [stayer, leaver] });
    }
}

/// The first worker knows both actions, and is woken for the lower task; but it takes the higher one.
#[test]
fn a_call_that_takes_another_task_than_it_was_woken_for_wakes_the_next() {
    for (first, second) in [("low", "high"), ("high", "low")] {
        let (db, [mut session, mut watcher]) = Db::connected();
        // The order of the actions' numbers is the order in which a commit wakes.
        session.run(&format!("SELECT taskq.insert_task('1', '{first}'), taskq.insert_task('2', '{second}')"));
        session.run("SELECT taskq.cancel_tasks('{1,2}')");
        let both = worker(&db, &mut watcher, &["high", "low"]);
        let useless = worker(&db, &mut watcher, &["high"]);
        let low = worker(&db, &mut watcher, &["low"]);
        let start = Instant::now();
        session.run("SELECT taskq.insert_task('h', 'high', priority => 5), taskq.insert_task('l', 'low')");
        let until_taken = |name: &str, session: &mut Session| {
            until("it is taken", || (session.state(name) == "in-progress").then_some(()));
        };
        until_taken("h", &mut session);
        until_taken("l", &mut session);
        assert!(start.elapsed() < PROMPT, "the lower task was taken after {:?}", start.elapsed());
        for worker in [both, useless, low] {
            session.run(&format!("SELECT pg_cancel_backend({})", worker.pid()));
            worker.join();
        }
    }
}
