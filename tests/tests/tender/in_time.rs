//! While a call waits, what is due is done in time, whatever stands before it, and whatever transaction the call is in.
//!
//! Why: a waiting call did what was due itself, rolled it back if nothing came of it, and began anew with its next look.

use std::time::{Duration, Instant};

use taskq_tests::{Background, Db, Session, until};

/// How late it may be, at the most, on a busy machine: a call that no process helps comes at the end of its wait only. (A quiet machine
/// takes a tenth of a second; decision 14 has the figures.)
const LATEST: Duration = Duration::from_secs(20);

/// A call that waits all the time, for an action of which nothing comes.
fn waiting(db: &Db, watcher: &mut Session) -> Background<()> {
    let call = db.connect().background(|s| {
        drop(s.simple_query("SELECT * FROM taskq.own_tasks('idle', 1, '{idle}', wait => '5 minutes')"))
    });
    watcher.until_asleep(call.pid());
    call
}

fn end(watcher: &mut Session, call: Background<()>) {
    watcher.run(&format!("SELECT pg_terminate_backend({})", call.pid()));
    call.join();
}

/// What stands before the tasks of x.
const OBSTACLES: [(&str, &str); 4] = [
    ("nothing", "SELECT 1"),
    (
        "entries of a paused group",
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[60000]), group_id => 'g');
         SELECT taskq.pause_group('g')",
    ),
    (
        "deadlines that have passed",
        "SELECT count(*) FROM taskq.insert_many('y', array_fill('b'::text, ARRAY[30000]));
         DO $$ BEGIN FOR i IN 1..300 LOOP
             PERFORM taskq.own_tasks('dead', 100, '{y}', make_interval(secs => 1 + 0.01 * i)); END LOOP; END $$;
         SELECT pg_sleep(4)",
    ),
    (
        "schedules of other actions that are due",
        "SELECT taskq.schedule('s' || i, '* * * * *', '{\"action\": \"z\"}') FROM generate_series(1, 1000) AS i;
         UPDATE taskq.schedule SET next_at = date_trunc('minute', next_at) - interval '1 minute' WHERE name LIKE 's%'",
    ),
];

/// What becomes due for a worker of x; each leaves a task of it to be owned.
const DUE: [(&str, &str); 3] = [
    ("a delay", "SELECT taskq.insert_task(NULL, 'x', delay => '0.5 seconds')"),
    (
        "a deadline",
        "SELECT taskq.insert_task('held', 'held');
         SELECT count(*) FROM taskq.own_tasks('dead', 1, '{held}', '0.5 seconds');
         SELECT taskq.insert_tasks('[{\"action\": \"x\", \"depends_on\": [{\"id\": \"held\", \"condition\": \"settled\"}]}]')",
    ),
    ("a schedule", "SELECT taskq.schedule('mine', '* * * * * *', '{\"action\": \"x\"}')"),
];

/// The transactions in which a call waits, and how long it does each time.
const TRANSACTIONS: [(&str, &str); 6] = [
    ("", "30 seconds"),
    ("BEGIN", "30 seconds"),
    ("BEGIN; SAVEPOINT a", "30 seconds"),
    ("BEGIN ISOLATION LEVEL REPEATABLE READ", "30 seconds"),
    ("BEGIN ISOLATION LEVEL SERIALIZABLE", "30 seconds"),
    ("SET statement_timeout = '250ms'", "0.15 seconds"),
];

/// Calls until a task of x is granted, and how long that takes.
fn granted(worker: Session, begin: &'static str, wait: &'static str) -> Background<Instant> {
    worker.background(move |s| {
        s.run(if begin.is_empty() { "SELECT 1" } else { begin });
        let began = Instant::now();
        loop {
            match s.own_with("w", 1, &["x"], &format!("wait => '{wait}'")) {
                Ok(grants) if !grants.is_empty() => return Instant::now(),
                // A call that is cut off has done nothing.
                Ok(_) | Err(_) => assert!(began.elapsed() < Duration::from_secs(60), "{begin}: nothing came"),
            }
        }
    })
}

fn in_time(obstacles: &[(&str, &str)], transactions: &[(&'static str, &'static str)]) {
    for (obstacle, build) in obstacles {
        for (begin, wait) in transactions {
            for (what, due) in DUE {
                let (db, [mut session]) = Db::connected();
                session
                    .run("SELECT taskq.set_action('held', max_tries => 1); SET statement_timeout = '5min'");
                let idle = waiting(&db, &mut session);
                session.run(build);
                let worker = granted(db.connect(), begin, wait);
                let since = Instant::now();
                session.run(due);
                let (mut worker, at) = worker.join();
                let took = at.saturating_duration_since(since);
                assert!(took < LATEST, "{what} behind {obstacle}, in '{begin}': {took:?}");
                worker.run("ROLLBACK");
                end(&mut session, idle);
            }
        }
    }
}

#[test]
fn what_is_due_comes_in_whatever_transaction_a_call_waits() {
    in_time(&OBSTACLES[..1], &TRANSACTIONS);
}

#[test]
#[ignore = "long"]
fn what_is_due_comes_whatever_stands_before_it() {
    in_time(&OBSTACLES[1..], &TRANSACTIONS[..1]);
}

#[test]
#[ignore = "long"]
fn what_is_due_comes_whatever_stands_before_it_in_whatever_transaction() {
    in_time(&OBSTACLES[1..], &TRANSACTIONS[3..4]);
    in_time(&OBSTACLES[1..], &TRANSACTIONS[5..]);
}

/// The processor time that these backends have used, in hundredths of a second.
#[cfg(target_os = "linux")]
fn used(pids: &[i32]) -> u64 {
    let of = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    pids.iter().map(of).sum()
}

/// Fifty waiting calls together use less than a hundredth of a processor on a quiet machine. Here others keep the machine busy, and
/// leave what is dead where it is; one that spins would use a whole one.
#[test]
#[cfg(target_os = "linux")]
fn calls_that_wait_cost_next_to_nothing() {
    let beside = [
        ("nothing", "SELECT 1"),
        ("a schedule each second", "SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"y\"}')"),
        (
            "a paused group",
            "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[20000]), group_id => 'g');
             SELECT taskq.pause_group('g')",
        ),
    ];
    for (what, build) in beside {
        let (db, [mut session]) = Db::connected();
        session.run(build);
        let calls: Vec<Background<()>> = (0..50)
            .map(|_| {
                db.connect().background(|s| {
                    drop(s.simple_query("SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '5 minutes')"))
                })
            })
            .collect();
        let pids: Vec<i32> = calls.iter().map(Background::pid).collect();
        pids.iter().for_each(|pid| session.until_asleep(*pid));
        // What stands in the way is moved out of it meanwhile.
        let ready = "SELECT count(*) FROM taskq.run";
        until("nothing is in the way", || {
            (session.one::<i64>(ready) == 0 || what.contains("schedule")).then_some(())
        });
        std::thread::sleep(Duration::from_secs(3));
        let (before, began) = (used(&pids), Instant::now());
        std::thread::sleep(Duration::from_secs(5));
        let share = (used(&pids) - before) as f64 / 100.0 / began.elapsed().as_secs_f64();
        assert!(share < 0.3, "beside {what}: {share} of a processor");
        calls.into_iter().for_each(|call| end(&mut session, call));
    }
}
