//! `stop_waiting`: the calls of an actor that sleep for work end with nothing, at once; no work and no later call is lost by that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use taskq_tests::{Background, Cluster, Db, Session, until};

/// The two ways to wait for tasks of action x, as actor `ann`, and what they end with when they are stopped.
const WAYS: [(&str, &str); 2] = [
    ("SELECT count(*)::text FROM taskq.own_tasks('ann', 1, '{x}', wait => '60 seconds')", "0"),
    ("CALL taskq.wait_for_work('{x}', '60 seconds', NULL)", "f"),
];

/// The call, asleep in a session whose application has this name; what it ends with, and when.
fn asleep(session: Session, watcher: &mut Session, call: &'static str) -> Background<(String, Instant)> {
    let call = session.background(move |session| (answer(session, call), Instant::now()));
    watcher.until_asleep(call.pid());
    call
}

fn answer(session: &mut Session, call: &str) -> String {
    let messages = session.simple_query(call).unwrap_or_else(|error| panic!("{call}: {error:?}"));
    let row = messages.iter().find_map(|message| match message {
        postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    row.unwrap_or_default()
}

fn named(db: &Db, application: &str) -> Session {
    let mut session = db.connect();
    session.run(&format!("SET application_name = '{application}'"));
    session
}

fn stop(session: &mut Session, actor: &str) -> i64 {
    session.one(&format!("SELECT taskq.stop_waiting('{actor}')"))
}

#[test]
fn both_calls_end_with_nothing_and_a_later_one_sleeps_on() {
    for (call, nothing) in WAYS {
        let (db, [mut watcher]) = Db::connected();
        let mut session = named(&db, "ann");
        for _ in 0..3 {
            let sleeper = asleep(session, &mut watcher, call);
            let since = Instant::now();
            assert_eq!(stop(&mut watcher, "ann"), 1, "{call}");
            let (its, (answer, at)) = sleeper.join();
            assert_eq!(answer, nothing, "{call}");
            assert!(at - since < Duration::from_secs(3), "{call}: it came back after {:?}", at - since);
            session = its;
        }
        assert_eq!(stop(&mut watcher, "ann"), 0, "what sleeps no more");
        // It is woken by work, as ever.
        let sleeper = asleep(session, &mut watcher, call);
        watcher.run("SELECT taskq.insert_task('a', 'x')");
        let (_, (answer, _)) = sleeper.join();
        assert_ne!(answer, nothing, "{call}");
    }
}

#[test]
fn all_calls_of_the_actor_end_and_no_others() {
    let (db, [mut watcher]) = Db::connected();
    let mut sleepers: Vec<_> =
        WAYS.into_iter().map(|(call, _)| asleep(named(&db, "ann"), &mut watcher, call)).collect();
    sleepers.push(asleep(db.connect(), &mut watcher, WAYS[0].0));
    let others = [
        asleep(named(&db, "bob"), &mut watcher, "CALL taskq.wait_for_work('{x}', '60 seconds', NULL)"),
        asleep(
            db.connect(),
            &mut watcher,
            "SELECT count(*)::text FROM taskq.own_tasks('bob', 1, '{x}', wait => '60 seconds')",
        ),
    ];
    watcher.run("SELECT taskq.insert_task('end', 'y')");
    let end = "SELECT status_code FROM taskq.wait_for_task('end', '60 seconds')";
    let waits = asleep(named(&db, "ann"), &mut watcher, end);
    assert_eq!(stop(&mut watcher, "ann"), 3);
    for sleeper in sleepers {
        assert!(["0", "f"].contains(&sleeper.join().1.0.as_str()));
    }
    assert_eq!([stop(&mut watcher, "carl"), stop(&mut watcher, "ANN"), stop(&mut watcher, "")], [0; 3]);
    watcher.run("SELECT taskq.complete_task('end'); SELECT taskq.insert_many('x', '{1,2}')");
    assert_eq!(waits.join().1.0, "completed", "a call that waits for a task");
    assert_eq!(others.map(|other| other.join().1.0), ["t", "1"]);
}

#[test]
fn it_acts_at_once_and_whatever_becomes_of_its_transaction() {
    let (db, [mut watcher, mut session]) = Db::connected();
    let sleeper = asleep(named(&db, "ann"), &mut watcher, WAYS[0].0);
    session.run("BEGIN; SAVEPOINT s");
    assert_eq!(stop(&mut session, "ann"), 1);
    assert_eq!(sleeper.join().1.0, "0");
    // Whom it has stopped sleeps again while the transaction is open.
    session.run("ROLLBACK TO s");
    let sleeper = asleep(named(&db, "ann"), &mut watcher, WAYS[1].0);
    session.run("ROLLBACK");
    watcher.run("SELECT taskq.insert_task('a', 'x')");
    assert_eq!(sleeper.join().1.0, "t");
}

#[test]
fn of_two_calls_in_a_transaction_only_the_one_that_sleeps_ends() {
    let (db, [mut watcher]) = Db::connected();
    let call = db.connect().background(move |session| {
        session.run("BEGIN");
        let statement = session
            .prepare("SELECT task_id FROM taskq.own_tasks('ann', 1, '{x}', wait => '60 seconds')")
            .unwrap();
        let granted = [(); 2].map(|()| session.query(&statement, &[]).unwrap().len());
        session.run("COMMIT");
        granted
    });
    watcher.until_asleep(call.pid());
    assert_eq!(stop(&mut watcher, "ann"), 1);
    // The next one is not stopped.
    watcher.run("SELECT taskq.insert_task('a', 'x')");
    assert_eq!(call.join().1, [0, 1]);
}

/// Why: a call that was stopped while something was due looked once more, and came back with a task.
#[test]
fn a_call_that_is_stopped_while_something_is_due_comes_back_with_nothing() {
    for (call, nothing) in WAYS {
        let (db, [mut watcher, mut holder]) = Db::connected();
        // No worker comes: what is due the call would do at its end, and then there would be a task.
        let mut session = named(&db, "ann");
        session.run("SET taskq.background_worker = off");
        watcher.run("SELECT taskq.insert_task('a', 'x', max_tries => 2)");
        holder.run("SELECT taskq.own_tasks('w', 1, '{x}', lease => '0.1 seconds')");
        let sleeper = asleep(session, &mut watcher, call);
        std::thread::sleep(Duration::from_millis(500));
        watcher.until_asleep(sleeper.pid());
        assert_eq!(stop(&mut watcher, "ann"), 1, "{call}");
        assert_eq!(sleeper.join().1.0, nothing, "{call}");
    }
}

#[test]
fn nothing_is_in_the_log_and_no_lock_is_left() {
    let cluster =
        Cluster::start(env!("CARGO_TARGET_TMPDIR"), "waiting-stopped", &["log_min_messages=warning"]);
    let mut watcher = cluster.connect();
    let mut ended = Vec::new();
    for (call, _) in WAYS {
        let mut session = cluster.connect();
        session.run("SET application_name = 'ann'");
        let sleeper = asleep(session, &mut watcher, call);
        assert_eq!(stop(&mut watcher, "ann"), 1);
        ended.push(sleeper.join().0);
    }
    let log = cluster.log();
    for word in ["ERROR", "WARNING", "FATAL", "canceling"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
    assert_eq!(watcher.one::<i64>("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0);
}

/// Workers that are stopped all the time get every task, each once: a wake-up that comes with a stop is not lost. Counted are only
/// the calls that a stop has ended: not those that kept what they were granted.
#[test]
fn no_task_is_lost_between_a_stop_and_its_wake_up() {
    const TASKS: usize = 400;
    let (db, [mut watcher]) = Db::connected();
    watcher.run("SELECT taskq.set_action('x', lease => '1 hour')");
    let (over, left) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..3)
        .map(|n| {
            let (over, left) = (Arc::clone(&over), Arc::clone(&left));
            db.connect().background(move |session| {
                let (mut granted, mut stopped) = (Vec::new(), 0_i64);
                let call = match n {
                    0 => "SELECT task_id FROM taskq.own_tasks('ann', 1, '{x}', wait => '50 seconds')",
                    _ => "SELECT task_id FROM taskq.own_tasks('bob', 1, '{x}', wait => '50 seconds')",
                };
                while !over.load(Ordering::Relaxed) {
                    let ids = session.all::<String>(call);
                    stopped += i64::from(ids.is_empty());
                    granted.extend(ids);
                }
                left.fetch_add(1, Ordering::Relaxed);
                (granted, stopped)
            })
        })
        .collect();
    let stopper = {
        let over = Arc::clone(&over);
        db.connect().background(move |session| {
            let mut counted = 0;
            while !over.load(Ordering::Relaxed) {
                let stop = "SELECT taskq.stop_waiting(w) FROM unnest('{ann,bob}'::text[]) AS w";
                counted += session.all::<i64>(stop).iter().sum::<i64>();
            }
            counted
        })
    };
    for n in 0..TASKS {
        watcher.run(&format!("SELECT taskq.insert_task('{n}', 'x')"));
        // Each is had before the sleepers would look by themselves.
        let since = Instant::now();
        until("the task is granted", || {
            watcher
                .one::<bool>(&format!("SELECT state = 'in-progress' FROM taskq.tasks WHERE id = '{n}'"))
                .then_some(())
        });
        assert!(since.elapsed() < Duration::from_secs(3), "{n} was had after {:?}", since.elapsed());
    }
    over.store(true, Ordering::Relaxed);
    let (_, mut counted) = stopper.join();
    until("all have left", || {
        counted += stop(&mut watcher, "ann") + stop(&mut watcher, "bob");
        (left.load(Ordering::Relaxed) == workers.len()).then_some(())
    });
    let (mut all, mut stops) = (Vec::new(), 0);
    for worker in workers {
        let (granted, stopped) = worker.join().1;
        all.extend(granted);
        stops += stopped;
    }
    assert_eq!(all.len(), TASKS);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), TASKS, "each once");
    assert!(stops > 20, "only {stops} calls were stopped");
    assert!(counted <= stops, "{counted} were counted, and {stops} have ended with nothing");
}
