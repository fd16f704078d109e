//! The faults that strike processes: cancelled, terminated and killed backends, servers that are stopped or killed.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Error;
use taskq_tests::Cluster;
use taskq_tests::random::Random;

use crate::client::connect;
use crate::run::Run;

/// So many faults of all kinds there should be at least, on the average.
const FAULTS_A_SECOND: u64 = 7;

/// Between two crashes, on the average, in milliseconds: something can come between them.
const CRASH_EVERY: u64 = 10_000;

pub fn torment(run: &Arc<Run>, cluster: &Cluster) {
    let mut random = Random::new(run.seed + 500);
    let mut crashes = 0;
    let mut crash_at = next_crash(run, &mut random);
    while !run.is_calm() {
        let mut client = connect(run, "tormentor", "lock_timeout=0");
        loop {
            if run.elapsed() >= Duration::from_secs(run.seconds) {
                return;
            }
            if Instant::now() >= crash_at {
                // Each kind once, then by chance: the first ones most often.
                let kind = if crashes < 4 { crashes } else { *random.pick(&[0, 0, 0, 0, 0, 0, 0, 1, 2, 3]) };
                crash(run, cluster, &mut client, &mut random, kind);
                crashes += 1;
                crash_at = next_crash(run, &mut random);
                break;
            }
            if strike(run, &mut client, &mut random).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(if behind(run) {
                random.below(250)
            } else {
                random.below(900)
            }));
        }
    }
}

/// Whether there were fewer faults so far than there should have been: where everything is slow, more of them hit something.
fn behind(run: &Run) -> bool {
    run.faults().values().sum::<u64>() < run.elapsed().as_secs() * FAULTS_A_SECOND
}

fn next_crash(run: &Run, random: &mut Random) -> Instant {
    let every = CRASH_EVERY.min(run.seconds * 1000 / 8);
    Instant::now() + Duration::from_millis(every / 3 + random.below(every * 4 / 3))
}

/// Cancels or terminates a session or a background process, preferably at work.
fn strike(run: &Run, client: &mut postgres::Client, random: &mut Random) -> Result<(), Error> {
    const PROCESS: &str = "FROM (SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
          AND (application_name ~ '^torture (worker|producer|saboteur|waiter|holder|reader|upheaval)' OR backend_type ~ '^taskq|^autovacuum worker') \
        ORDER BY state IS DISTINCT FROM 'active', random() LIMIT 1) AS s";
    let (kind, function) = if random.chance(62) {
        ("statements cancelled (pg_cancel_backend)", "pg_cancel_backend")
    } else {
        ("backends terminated (pg_terminate_backend)", "pg_terminate_backend")
    };
    for row in client.query(&format!("SELECT {function}(pid) {PROCESS}"), &[])? {
        if row.get::<_, bool>(0) {
            run.fault(kind);
        }
    }
    Ok(())
}

fn crash(run: &Run, cluster: &Cluster, client: &mut postgres::Client, random: &mut Random, kind: u32) {
    match kind {
        0 => {
            run.fault("backends killed with SIGKILL (crash of all backends)");
            kill_one(client, "client backend", random);
            recovered(run);
        }
        1 => {
            run.fault("other processes of the server killed with SIGKILL (crash of all backends)");
            kill_one(client, "checkpointer|background writer|walwriter|taskq|autovacuum", random);
            recovered(run);
        }
        2 => {
            run.fault("server stopped with -m immediate and restarted");
            cluster.stop_now();
            cluster.restart();
        }
        _ => {
            run.fault("every process killed with SIGKILL, server restarted");
            cluster.crash();
        }
    }
}

/// The server itself sends the signal: it runs as the user who may.
fn kill_one(client: &mut postgres::Client, types: &str, random: &mut Random) {
    let pids = client.query(
        "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type ~ $1 ORDER BY state IS DISTINCT FROM 'active'",
        &[&types],
    );
    let Ok(pids) = pids else { return };
    if let Some(row) = pids.get(random.below(pids.len().clamp(1, 8) as u64) as usize) {
        let pid: i32 = row.get(0);
        // It does not come back with an answer: the server goes down.
        drop(client.batch_execute(&format!("COPY (SELECT 1) TO PROGRAM 'kill -KILL {pid}'")));
    }
}

/// Waits until the server is through with its recovery.
fn recovered(run: &Run) {
    // So long it takes the postmaster to notice.
    thread::sleep(Duration::from_millis(50));
    drop(connect(run, "tormentor", "lock_timeout=0"));
}
