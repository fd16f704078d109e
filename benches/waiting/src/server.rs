//! Connections, and what the server knows of them.

use std::env;
use std::fs;
use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};

/// Opens a connection. Commits do not wait for the disk: what is measured is the queue, not the disk.
pub fn connect() -> Client {
    let var = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let mut config = postgres::Config::new();
    config
        .host(&var("PGHOST", "/var/run/postgresql"))
        .port(var("PGPORT", "5432").parse().expect("PGPORT is a number"))
        .user(&var("PGUSER", "postgres"))
        .dbname(&var("PGDATABASE", "postgres"))
        .application_name("taskq_bench_waiting")
        .options("-c synchronous_commit=off -c client_min_messages=warning");
    config.connect(NoTls).expect("a connection to the server")
}

/// The process id of the connection's backend.
pub fn pid(client: &mut Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0)
}

/// Waits until that many backends sleep in a call of the extension.
pub fn until_asleep(watcher: &mut Client, sleepers: usize) {
    let query = "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Extension'";
    while watcher.query_one(query, &[]).unwrap().get::<_, i64>(0) < sleepers as i64 {
        thread::sleep(Duration::from_millis(1));
    }
}

/// The processor time of a backend in nanoseconds, user and system.
pub fn cpu_time(pid: i32) -> u64 {
    if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/schedstat")) {
        return text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number of nanoseconds");
    }
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server runs on this machine");
    // The fields after the command's name, which may hold anything, begin at the last parenthesis.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields[n].parse::<u64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) * 10_000_000
}

/// The private memory of a backend in kilobytes: shared buffers that it has touched do not count.
pub fn private_memory(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs on this machine");
    text.lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .expect("the kernel tells the memory of a process")
}
