//! An update while all clients are at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use taskq_tests::full::{fill, snapshot, work_goes_on};
use taskq_tests::{Background, Db, Session, sqlstate, until};

use crate::rehearsal::next_version;

/// Updates as docs/how-to/upgrade.md says: it gives way, and tries again. How often it has tried.
fn update(session: &mut Session, to: &str) -> usize {
    for tried in 1..=200 {
        let done = session.batch_execute(&format!(
            "BEGIN; SET LOCAL lock_timeout = '200ms'; ALTER EXTENSION taskq UPDATE TO '{to}'; COMMIT"
        ));
        let Err(error) = done else { return tried };
        assert!(["55P03", "40P01"].contains(&sqlstate(&error)), "{error:?}");
        session.run("ROLLBACK");
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the update never got its locks");
}

#[test]
fn tasks_in_every_state_and_tokens_survive() {
    let db = Db::empty();
    let mut session = db.connect();
    let (now, next) = next_version(&mut session);
    session.run(&format!("CREATE EXTENSION taskq VERSION '{now}'"));
    let role = format!("t upgrade {}", std::process::id());
    session.run(&format!("CREATE ROLE \"{role}\" LOGIN; SELECT taskq.grant_worker('\"{role}\"')"));
    let held = fill(&mut session);
    // Sessions that have plans of all of it, in the role of a user, too.
    let mut user = db.connect_as(&role);
    user.insert(json!([{"id": "u 1", "action": "user"}, {"id": "u 2", "action": "user"}])).unwrap();
    let of_user = user.own_one("user");
    let mut before = snapshot(&mut session);
    snapshot(&mut user);

    update(&mut db.connect(), &next);

    // The view of workgroups has a column more; that is not in the snapshot.
    assert_eq!(snapshot(&mut session), before);
    assert_eq!(session.broken(), [""; 0]);
    assert_eq!(session.one::<String>("SELECT extversion FROM pg_extension WHERE extname = 'taskq'"), next);
    user.complete(&of_user);
    assert_eq!(user.perform("user", "completed"), "u 2");
    // A new session sees the same as those that were there.
    before = snapshot(&mut session);
    let mut fresh = db.connect();
    assert_eq!(snapshot(&mut fresh), before);
    work_goes_on(&mut session, &held);
    assert_eq!(fresh.one::<i64>("SELECT taskq.add_note('it is the new version')"), 1);
    drop(user);
    session.run(&format!(
        "SELECT taskq.revoke_worker('\"{role}\"'); DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\""
    ));
}

/// What workers and producers have done.
#[derive(Default)]
struct Work {
    stop: AtomicBool,
    inserted: AtomicUsize,
    done: AtomicUsize,
}

/// Workers are never disturbed: no call of theirs fails, whatever the update does meanwhile.
#[test]
fn workers_and_sleepers_go_on() {
    const AT_LEAST: usize = 200;
    let db = Db::empty();
    let mut session = db.connect();
    let (now, next) = next_version(&mut session);
    session.run(&format!("CREATE EXTENSION taskq VERSION '{now}'"));
    session.insert(json!([{"id": "awaited", "action": "slow"}])).unwrap();
    let held = session.own_one("slow");

    let (a, b, c) = (db.connect(), db.connect(), db.connect());
    let waiter = a.background(|session| session.wait("awaited", "60 seconds").unwrap());
    let sleeper = b.background(|session| {
        let mut grants = session.own_with("w", 1, &["later"], "wait => '60 seconds'").unwrap();
        let grant = grants.pop().expect("it is woken");
        session.complete(&grant);
    });
    let caller =
        c.background(|session| session.one::<bool>("CALL taskq.wait_for_work('{much later}', '60 seconds')"));
    for pid in [waiter.pid(), sleeper.pid(), caller.pid()] {
        session.until_asleep(pid);
    }

    let work = Arc::new(Work::default());
    let mut at_work: Vec<Background<()>> = (0..3)
        .map(|_| {
            let work = Arc::clone(&work);
            db.connect().background(move |session| {
                loop {
                    let last = work.stop.load(Ordering::Relaxed);
                    let grants = session.own_with("w", 3, &["load"], "wait => '100 milliseconds'").unwrap();
                    if last && grants.is_empty() {
                        return;
                    }
                    for grant in grants {
                        session.complete(&grant);
                        work.done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    at_work.push({
        let work = Arc::clone(&work);
        db.connect().background(move |session| {
            for n in (0..).step_by(3) {
                if work.stop.load(Ordering::Relaxed) {
                    return;
                }
                let of = |i: usize| {
                    let after: Vec<String> =
                        if i.is_multiple_of(3) { vec![] } else { vec![(i - 1).to_string()] };
                    json!({"id": i.to_string(), "action": "load", "depends_on": after})
                };
                session.insert((n..n + 3).map(of).collect::<Value>()).unwrap();
                work.inserted.fetch_add(3, Ordering::Relaxed);
            }
        })
    });
    let progress = |since: usize| {
        until("work goes on", || (work.done.load(Ordering::Relaxed) > since + AT_LEAST).then_some(()));
    };
    progress(0);
    let tried = update(&mut session, &next);
    let before = work.done.load(Ordering::Relaxed);
    progress(before);
    eprintln!("the update took {tried} attempts; {before} tasks were done by then");

    // A call that slept through it is woken by sessions that did, and by such that did not.
    db.connect().complete(&held);
    assert_eq!(waiter.join().1.expect("it is woken").status_code, "completed");
    session.run("SELECT taskq.insert_task('l', 'later'), taskq.insert_task('m', 'much later')");
    sleeper.join();
    assert!(caller.join().1, "it is woken");

    work.stop.store(true, Ordering::Relaxed);
    for each in at_work {
        each.join();
    }
    let (inserted, done) = (work.inserted.load(Ordering::Relaxed), work.done.load(Ordering::Relaxed));
    assert_eq!(done, inserted, "each was done once");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'"), 1, "m");
    session.perform("much later", "completed");
}
