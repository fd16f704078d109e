//! What sleepers cost: processor time of their backends, and how long a commit takes that has to look for them.

use std::thread;
use std::time::{Duration, Instant};

use crate::server::{connect, cpu_time, pid, until_asleep};

/// Lets a number of sleepers sleep for a while; half of them in a function, half in a procedure.
pub fn run(sleepers: usize, seconds: u64) {
    let mut pids = Vec::new();
    for n in 0..sleepers {
        let mut client = connect();
        pids.push(pid(&mut client));
        let call = if n % 2 == 0 {
            "SELECT * FROM taskq.own_tasks('idle', 1, '{idle}', wait => '1 hour')"
        } else {
            "CALL taskq.wait_for_work('{idle}', '1 hour', NULL)"
        };
        // It ends with the program.
        thread::spawn(move || client.simple_query(call).map(drop));
    }
    let mut watcher = connect();
    until_asleep(&mut watcher, sleepers);
    let used = || pids.iter().map(|pid| cpu_time(*pid)).sum::<u64>();
    // Starting 300 backends leaves the machine with things to do.
    thread::sleep(Duration::from_secs(2));
    let (start, before) = (Instant::now(), used());
    thread::sleep(Duration::from_secs(seconds));
    let (used, elapsed) = (Duration::from_nanos(used() - before), start.elapsed());
    println!(
        "| {sleepers} | {seconds} | {:.1} | {:.3} |",
        used.as_secs_f64() * 1000.0,
        used.as_secs_f64() / elapsed.as_secs_f64() * 100.0,
    );
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Extension'";
    watcher.batch_execute(end).unwrap();
}
