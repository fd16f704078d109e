//! What sleepers cost: processor time of their backends, and how long a commit takes that has to look for them.

use std::thread;
use std::time::{Duration, Instant};

use crate::server::{connect, cpu_time, pid, until_asleep};

/// How often leases begin, and how long they last.
const EVERY: Duration = Duration::from_secs(5);
const LEASE: &str = "20 seconds";

/// Lets a number of sleepers sleep for a while; half of them in a function, half in a procedure. Beside them so many leases pass a
/// minute, of another action, in batches.
pub fn run(sleepers: usize, seconds: u64, leases_a_minute: u64) {
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
    if leases_a_minute > 0 {
        let batch = leases_a_minute * EVERY.as_secs() / 60;
        thread::spawn(move || let_pass(batch));
        // Until those of the first batches pass.
        thread::sleep(5 * EVERY);
    }
    // Starting 300 backends leaves the machine with things to do.
    thread::sleep(Duration::from_secs(2));
    let (start, before) = (Instant::now(), used());
    thread::sleep(Duration::from_secs(seconds));
    let (used, elapsed) = (Duration::from_nanos(used() - before), start.elapsed());
    println!(
        "| {sleepers} | {leases_a_minute} | {seconds} | {:.1} | {:.3} |",
        used.as_secs_f64() * 1000.0,
        used.as_secs_f64() / elapsed.as_secs_f64() * 100.0,
    );
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Extension'";
    watcher.batch_execute(end).unwrap();
}

/// Claims tasks, as a worker that dies does.
fn let_pass(batch: u64) {
    let mut client = connect();
    let fill = format!(
        "SELECT taskq.set_action('lost', max_tries => 1000000);
         SELECT count(*) FROM taskq.insert_many('lost', array_fill('b'::text, ARRAY[{}]))",
        batch * 10
    );
    client.batch_execute(&fill).unwrap();
    let claim = format!("SELECT count(*) FROM taskq.own_tasks('lost', {batch}, '{{lost}}', '{LEASE}')");
    while client.simple_query(&claim).is_ok() {
        thread::sleep(EVERY);
    }
}
