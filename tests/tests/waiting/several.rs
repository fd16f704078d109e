//! As many are woken as there is work for, and every task is taken at once.

use std::hint;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskq_tests::{Background, Db, Progress, Session, until};

use crate::sleeper::PROMPT;

const SLEEPERS: usize = 8;
const ROUNDS: usize = 10;

/// Workers that take tasks of action x until they are cancelled; how many each took. They return none, so that nothing
/// but the commits under test wakes a call.
fn workers(db: &Db, watcher: &mut Session, max_tasks: i32) -> Vec<Background<usize>> {
    let start = |_| {
        let worker = db.connect().background(move |session| {
            let mut taken = 0;
            while let Ok(grants) = session.own_with("w", max_tasks, &["x"], "wait => '100 seconds'") {
                taken += grants.len();
            }
            taken
        });
        watcher.until_asleep(worker.pid());
        worker
    };
    (0..SLEEPERS).map(start).collect()
}

/// Inserts `n` tasks in some way while all sleep, again and again; each time all must be taken at once.
fn rounds(max_tasks: i32, n: usize, insert: impl Fn(&mut Session, &[Value])) {
    let (db, [mut session, mut watcher]) = Db::connected();
    let workers = workers(&db, &mut watcher, max_tasks);
    let tasks = vec![json!({"action": "x"}); n];
    for _ in 0..ROUNDS {
        let start = Instant::now();
        insert(&mut session, &tasks);
        until("every task is taken", || {
            (watcher.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'ready'") == 0).then_some(())
        });
        assert!(
            start.elapsed() < PROMPT,
            "a wake-up got lost: the last task was taken after {:?}",
            start.elapsed()
        );
        for worker in &workers {
            watcher.until_asleep(worker.pid());
        }
    }
    let cancel = |worker: Background<usize>| {
        watcher.run(&format!("SELECT pg_cancel_backend({})", worker.pid()));
        worker.join().1
    };
    assert_eq!(workers.into_iter().map(cancel).sum::<usize>(), ROUNDS * n);
}

fn at_once(session: &mut Session, tasks: &[Value]) {
    session.insert(Value::Array(tasks.to_vec())).unwrap();
}

fn one_by_one(session: &mut Session, tasks: &[Value]) {
    for task in tasks {
        session.insert(json!([task])).unwrap();
    }
}

#[test]
fn several_tasks_of_one_commit_go_to_several_sleepers() {
    rounds(1, 5, at_once);
}

#[test]
fn more_tasks_than_sleepers_are_all_taken() {
    rounds(1, 3 * SLEEPERS, at_once);
}

#[test]
fn commits_in_quick_succession_wake_one_sleeper_each() {
    rounds(1, 5, one_by_one);
}

#[test]
fn commits_in_quick_succession_lose_no_wake_up_where_a_sleeper_may_take_many() {
    rounds(5, 7, one_by_one);
}

#[test]
fn calls_of_wait_for_work_and_of_own_tasks_share_the_work() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for n in 0..ROUNDS {
        let callers: Vec<_> = (0..6)
            .map(|m| {
                let caller = db.connect().background(move |session| {
                    let started = Instant::now();
                    if (n + m) % 2 == 0 {
                        session.run("CALL taskq.wait_for_work('{x}', '100 seconds', NULL)");
                        while session.own("w", 1, &["x"]).unwrap().is_empty() {
                            session.run("CALL taskq.wait_for_work('{x}', '100 seconds', NULL)");
                        }
                    } else {
                        assert_eq!(
                            session.own_with("w", 1, &["x"], "wait => '100 seconds'").unwrap().len(),
                            1
                        );
                    }
                    started.elapsed()
                });
                watcher.until_asleep(caller.pid());
                caller
            })
            .collect();
        one_by_one(&mut session, &vec![json!({"action": "x"}); 6]);
        for caller in callers {
            let slept = caller.join().1;
            assert!(slept < PROMPT, "a wake-up got lost: the task was taken after {slept:?}");
        }
    }
}

#[test]
fn all_calls_that_wait_for_a_task_are_woken() {
    let (db, [mut session, mut watcher]) = Db::with_tasks(json!([{"id": "a", "action": "y"}]));
    let sleepers: Vec<_> = (0..SLEEPERS)
        .map(|n| crate::sleeper::Sleeper::start(&db, &mut watcher, crate::sleeper::END[n % 2]))
        .collect();
    session.perform("y", "completed");
    for sleeper in sleepers {
        sleeper.woken_by("the end of the task");
    }
}

/// All sleepers are woken for one task and reach for it at once. Calls that come too late may lock its row before they
/// see that it has been granted; asleep again they must not have that lock any more, or the return waits for them.
#[test]
fn no_call_sleeps_with_a_lock_on_a_task_that_another_was_granted() {
    let (db, [mut session, mut watcher]) = Db::connected();
    let start = |_| {
        let worker = db.connect().background(|session| {
            session.run("SET lock_timeout = '10s'");
            let mut returned = 0;
            while let Ok(grants) = session.own_with("w", 1, &["x"], "wait => '100 seconds'") {
                for grant in grants {
                    session.give(&grant.task_id, grant.token, "completed").expect("no lock is in the way");
                    returned += 1;
                }
            }
            returned
        });
        watcher.until_asleep(worker.pid());
        worker
    };
    let workers: Vec<Background<usize>> = (0..24).map(start).collect();
    const TASKS: usize = 200;
    for n in 0..TASKS {
        session.run("SELECT taskq.pause_action('x')");
        session.insert(json!([{"id": n.to_string(), "action": "x"}])).unwrap();
        session.run("SELECT taskq.resume_action('x')");
        until("the task is returned", || (session.state(&n.to_string()) == "completed").then_some(()));
    }
    let cancel = |worker: Background<usize>| {
        watcher.until_asleep(worker.pid());
        watcher.run(&format!("SELECT pg_cancel_backend({})", worker.pid()));
        worker.join().1
    };
    assert_eq!(workers.into_iter().map(cancel).sum::<usize>(), TASKS);
}

/// One task after the other to one waiter that has just looked in vain, is about to look, or is about to sleep: the
/// commits come at all moments of its way to sleep.
fn one_by_one_to(wait: fn(&mut Session) -> Result<usize, postgres::Error>) {
    let (db, [mut session, mut watcher]) = Db::connected();
    let (report, taken) = mpsc::channel();
    let waiter = db.connect().background(move |session| {
        while let Ok(tasks) = wait(session) {
            report.send(tasks).expect("the test listens");
        }
    });
    watcher.until_asleep(waiter.pid());
    for round in 0..5_000_u32 {
        // A thousand moments of the two milliseconds after the last task was taken.
        let moment = Instant::now() + Duration::from_micros(u64::from(round % 1000) * 2);
        while Instant::now() < moment {
            hint::spin_loop();
        }
        session.insert(json!([{"action": "x"}])).unwrap();
        let mut got = 0;
        while got == 0 {
            got = taken.recv_timeout(PROMPT).expect("no wake-up gets lost");
        }
        assert_eq!(got, 1);
    }
    watcher.until_asleep(waiter.pid());
    watcher.run(&format!("SELECT pg_cancel_backend({})", waiter.pid()));
    waiter.join();
}

#[test]
#[ignore = "long"]
fn a_commit_on_the_way_to_sleep_in_own_tasks_is_not_missed() {
    one_by_one_to(|session| Ok(session.own_with("w", 1, &["x"], "wait => '100 seconds'")?.len()));
}

#[test]
#[ignore = "long"]
fn a_commit_on_the_way_to_sleep_in_wait_for_work_is_not_missed() {
    one_by_one_to(|session| {
        session.batch_execute("CALL taskq.wait_for_work('{x}', '100 seconds', NULL)")?;
        Ok(session.own("w", 1, &["x"])?.len())
    });
}

/// As autovacuum locks a table while it gives back what is empty at its end.
#[test]
fn a_commit_while_a_look_waits_for_a_table_is_not_missed() {
    let (db, [mut session, mut watcher, mut locker]) =
        Db::with_tasks(json!([{"id": "first", "action": "x"}]));
    session.perform("x", "completed");
    locker.run("BEGIN; LOCK TABLE taskq.progress IN ACCESS EXCLUSIVE MODE");
    let waiter = db
        .connect()
        .background(|session| session.own_with("w", 1, &["x"], "wait => '100 seconds'").unwrap().len());
    assert_eq!(waiter.settle_down(&mut watcher), Progress::Blocked);
    session.insert(json!([{"action": "x"}])).unwrap();
    locker.run("COMMIT");
    let released = Instant::now();
    assert_eq!(waiter.join().1, 1);
    assert!(released.elapsed() < PROMPT, "the task was taken after {:?}", released.elapsed());
}
