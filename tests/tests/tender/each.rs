//! What is due is done in time while any call sleeps, whatever that waits for, where nothing else happens.
//!
//! Why: a call that waits for an end asked what is due only with a look after its first sleep, and in a quiet cluster there is none.

use std::time::{Duration, Instant};

use taskq_tests::{Cluster, Session};

const TMP: &str = env!("CARGO_TARGET_TMPDIR");

/// A sleep is longer than that by far, and what is due is due within a second.
const IN_TIME: Duration = Duration::from_secs(4);

/// Each call that sleeps.
const CALLS: [&str; 4] = [
    "SELECT * FROM taskq.wait_for_task('other', '20 seconds')",
    "CALL taskq.wait_for_tasks('{other}', '20 seconds', NULL)",
    "SELECT * FROM taskq.own_tasks('w', 1, '{idle}', wait => '20 seconds')",
    "CALL taskq.wait_for_work('{idle}', '20 seconds', NULL)",
];

/// What is due, what brings it, and what is true once it is done.
const KINDS: [(&str, &str, &str); 6] = [
    (
        "a timer",
        "SELECT taskq.insert_task('t', 'x', spontaneous => true, delay => '0.6 seconds')",
        "SELECT count(*) = 1 FROM taskq.tasks WHERE id = 't' AND status_code = 'completed'",
    ),
    (
        "the time-out of a suspension",
        "SELECT taskq.insert_task('t', 'x');
         SELECT taskq.return_task(task_id, token, 'pending', depends_on => '[{\"id\": \"s\", \"signal\": true}]',
                                  wait_at_most => '0.6 seconds') FROM taskq.own_tasks('w', 1, '{x}')",
        "SELECT count(*) = 1 FROM taskq.tasks WHERE id = 't' AND state = 'ready'",
    ),
    (
        "an expiry",
        "SELECT taskq.insert_task('t', 'x', expires_in => '0.6 seconds')",
        "SELECT count(*) = 1 FROM taskq.tasks WHERE id = 't' AND cause = 'expired'",
    ),
    (
        "the run of a schedule",
        "SELECT taskq.schedule('t', '* * * * * *', '{\"action\": \"x\"}')",
        "SELECT count(*) = 1 FROM taskq.tasks WHERE action = 'x'",
    ),
    (
        "the last try of a dead worker",
        "SELECT taskq.insert_task('t', 'x', max_tries => 1);
         SELECT FROM taskq.own_tasks('dead', 1, '{x}', lease => '0.6 seconds')",
        "SELECT count(*) = 1 FROM taskq.tasks WHERE id = 't' AND status_code = 'aborted'",
    ),
    (
        "another try of a dead worker's task",
        "SELECT taskq.insert_task('t', 'x');
         SELECT FROM taskq.own_tasks('dead', 1, '{x}', lease => '0.6 seconds')",
        "SELECT count(*) = 1 FROM taskq.run WHERE grantable",
    ),
];

/// Each pair has a database of its own in a cluster in which nothing happens: a worker that came for another kind would do this one, too,
/// and each transaction with an id has sleepers look again.
#[test]
fn each_kind_is_done_beside_each_call_that_sleeps() {
    let cluster = Cluster::start(TMP, "tender-each", &["max_connections=60"]);
    cluster.connect().run("CREATE DATABASE model TEMPLATE postgres");
    let pairs: Vec<(&str, usize)> =
        CALLS.iter().flat_map(|call| (0..KINDS.len()).map(|n| (*call, n))).collect();
    for n in 0..pairs.len() {
        cluster.connect().run(&format!("CREATE DATABASE d{n} TEMPLATE model"));
    }
    for (n, (call, kind)) in pairs.into_iter().enumerate() {
        let mut session = cluster.connect_to(&format!("d{n}"));
        comes_in_time(&cluster, &mut session, &format!("d{n}"), call, KINDS[kind]);
    }
}

fn comes_in_time(
    cluster: &Cluster,
    session: &mut Session,
    database: &str,
    call: &'static str,
    (what, brings, done): (&str, &str, &str),
) {
    session.run("SELECT taskq.insert_task('other', 'other')");
    session.run(brings);
    let began = Instant::now();
    let sleeper = cluster.connect_to(database).background(move |session| drop(session.batch_execute(call)));
    while !session.one::<bool>(done) {
        assert!(began.elapsed() < IN_TIME, "{what} beside {call}");
        std::thread::sleep(Duration::from_millis(20));
    }
    session.run(&format!("SELECT pg_terminate_backend({})", sleeper.pid()));
    sleeper.join();
}
