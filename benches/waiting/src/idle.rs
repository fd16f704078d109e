//! What sleepers cost: processor time of their backends, and how long a commit takes that has to look for them.

use std::thread;
use std::time::{Duration, Instant};

use crate::server::{connect, cpu_time, pid, until_asleep};

/// How often leases begin, how many at a time, and how long they last: 5,000 pass a minute.
const EVERY: Duration = Duration::from_secs(5);
const BATCH: usize = 416;
const LEASE: &str = "20 seconds";

/// How many tasks of the paused group there are.
const PAUSED: usize = 200_000;

/// What goes on beside the sleepers.
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Leases of another action pass, in batches.
    Leases,
    /// A schedule of another action runs each second.
    Schedule,
    /// Their own action has ready tasks, all of a paused group.
    Paused,
}

impl Beside {
    /// That of this name.
    pub fn named(name: Option<&str>) -> Option<Beside> {
        Some(match name {
            None => Beside::Nothing,
            Some("leases") => Beside::Leases,
            Some("schedule") => Beside::Schedule,
            Some("paused") => Beside::Paused,
            Some(_) => return None,
        })
    }

    fn text(&self) -> String {
        match self {
            Beside::Nothing => "nothing".into(),
            Beside::Leases => "5,000 leases that pass each minute".into(),
            Beside::Schedule => "a schedule that runs each second".into(),
            Beside::Paused => format!("a paused group of {PAUSED} tasks of their action"),
        }
    }

    /// What has to be there before the sleepers are.
    fn prepare(&self) {
        let mut client = connect();
        if let Beside::Paused = self {
            client
                .batch_execute(&format!(
                    "SELECT count(*) FROM taskq.insert_many('idle', array_fill('b'::text, ARRAY[{PAUSED}]), group_id => 'held');
                     SELECT taskq.pause_group('held')"
                ))
                .unwrap();
        }
    }

    /// Begins it, and returns when it goes on as it will.
    fn begin(&self) {
        match self {
            Beside::Nothing => {}
            Beside::Leases => {
                thread::spawn(let_pass);
                // Until those of the first batches pass.
                thread::sleep(5 * EVERY);
            }
            Beside::Schedule => {
                let schedule =
                    r#"SELECT taskq.schedule('pulse', '* * * * * *', '{"action": "beat", "body": "thump"}')"#;
                connect().batch_execute(schedule).unwrap();
                thread::sleep(EVERY);
            }
            Beside::Paused => thread::sleep(2 * EVERY),
        }
    }
}

/// Lets a number of sleepers sleep for a while; half of them in a function, half in a procedure.
pub fn run(sleepers: usize, seconds: u64, beside: &Beside) {
    beside.prepare();
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
    beside.begin();
    // Starting 300 backends leaves the machine with things to do.
    thread::sleep(Duration::from_secs(2));
    let (start, before) = (Instant::now(), used());
    thread::sleep(Duration::from_secs(seconds));
    let (used, elapsed) = (Duration::from_nanos(used() - before), start.elapsed());
    println!(
        "| {sleepers} | {} | {seconds} | {:.1} | {:.3} |",
        beside.text(),
        used.as_secs_f64() * 1000.0,
        used.as_secs_f64() / elapsed.as_secs_f64() * 100.0,
    );
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Extension'";
    watcher.batch_execute(end).unwrap();
}

/// Claims tasks, as a worker that dies does.
fn let_pass() {
    let mut client = connect();
    let fill = format!(
        "SELECT taskq.set_action('lost', max_tries => 1000000);
         SELECT count(*) FROM taskq.insert_many('lost', array_fill('b'::text, ARRAY[{}]))",
        BATCH * 10
    );
    client.batch_execute(&fill).unwrap();
    let claim = format!("SELECT count(*) FROM taskq.own_tasks('lost', {BATCH}, '{{lost}}', '{LEASE}')");
    while client.simple_query(&claim).is_ok() {
        thread::sleep(EVERY);
    }
}
