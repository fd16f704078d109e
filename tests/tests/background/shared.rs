//! A server with fewer posts for workers than databases in which calls sleep: each gets its turn.
//!
//! Why: a worker of a database with a stream of what is due never left, and where a call found all posts taken it tried again a second
//! later, by chance: with twelve databases and eight posts a timer was nine seconds late.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use taskq_tests::{Background, Cluster, Session, until};

use super::cluster::workers;

/// A server with one post, and a second database.
fn cluster(name: &str) -> (Cluster, Session, Session) {
    let settings = ["max_connections=30", "max_worker_processes=4"];
    let cluster = Cluster::start(env!("CARGO_TARGET_TMPDIR"), &format!("shared-{name}"), &settings);
    let mut session = cluster.connect();
    session.run("CREATE DATABASE other");
    let mut other = cluster.connect_to("other");
    other.run("CREATE EXTENSION taskq");
    (cluster, session, other)
}

/// A call that sleeps for work which does not come.
fn asleep(session: Session, watcher: &mut Session) -> Background<()> {
    let call = session.background(|session| {
        drop(session.batch_execute("SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '1 minute')"));
    });
    watcher.until_asleep(call.pid());
    call
}

fn end(call: Background<()>, watcher: &mut Session) {
    watcher.run(&format!("SELECT pg_terminate_backend({})", call.pid()));
    call.join();
}

/// Timers that are due at so many seconds from now.
fn timers(session: &mut Session, due: &[f64]) {
    for due in due {
        session.run(&format!(
            "SELECT taskq.insert_task('at {due}', 't', spontaneous => true, delay => '{due} s')"
        ));
    }
}

/// How many seconds the latest of them was late, once all have completed.
fn late(session: &mut Session) -> f64 {
    until("all timers complete", || {
        session.one::<bool>("SELECT bool_and(state = 'completed') FROM taskq.tasks").then_some(())
    });
    session.one("SELECT max(extract(epoch FROM settled_at - not_before))::float8 FROM taskq.tasks")
}

#[test]
fn a_database_with_a_stream_of_what_is_due_leaves_its_post() {
    let (cluster, mut session, mut other) = cluster("stream");
    let call = asleep(cluster.connect(), &mut session);
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut stream in (0..3).map(|_| cluster.connect()) {
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    stream.run("SELECT taskq.insert_task(NULL, 't', spontaneous => true, delay => '1 ms')");
                }
            });
        }
        until("its worker has come", || (!workers(&mut session, Some("postgres")).is_empty()).then_some(()));
        let mut completed = Vec::new();
        for n in 0..3 {
            timers(&mut other, &[0.1 + f64::from(n) / 100.0]);
            let id = format!("at {}", 0.1 + f64::from(n) / 100.0);
            completed.push(other.wait(&id, "8 seconds").unwrap().is_some());
        }
        over.store(true, SeqCst);
        assert_eq!(completed, [true; 3], "timers of the other database");
    });
    end(call, &mut session);
}

/// Why: a call relied on its worker for what was due soon, and that left for another database.
#[test]
fn what_was_left_to_a_worker_that_leaves_is_done_in_time() {
    let (cluster, mut session, mut other) = cluster("relied");
    let (mut first, mut second) = (cluster.connect(), cluster.connect_to("other"));
    for session in [&mut first, &mut second] {
        session.run("SELECT count(*) FROM taskq.own_tasks('w', 1, '{x}')");
    }
    timers(&mut session, &[1.0, 1.7]);
    timers(&mut other, &[1.2]);
    // The worker still has its post when the call looks that its first commit has woken.
    let mut lock = cluster.connect();
    lock.run("BEGIN; LOCK TABLE taskq.group_tally IN ACCESS EXCLUSIVE MODE");
    let calls = [asleep(first, &mut session), asleep(second, &mut other)];
    std::thread::sleep(Duration::from_millis(1_500));
    lock.run("COMMIT");
    let late = [late(&mut session), late(&mut other)];
    assert!(late.iter().all(|late| *late < 2.0), "{late:?} seconds late");
    for call in calls {
        end(call, &mut session);
    }
}
