//! Lost wake-ups: hand-overs in bursts, each followed by silence. A wake-up that is lost shows as a task that no worker
//! takes before the slow look, seconds later.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::server::connect;

/// Each cell has an action, a producer and consumers of its own, so that one's commits do not hide another's loss.
const CELLS: usize = 4;
const CONSUMERS: usize = 6;

/// The longest a hand-over may take: below the slow look of 5 seconds.
const LOST: Duration = Duration::from_secs(4);

/// The ways in which consumers wait.
#[derive(Clone, Copy)]
enum Way {
    OwnOne,
    OwnFive,
    Call,
}

/// What a cell has seen.
#[derive(Default)]
struct Outcome {
    hand_overs: u64,
    longest: Duration,
    late: u64,
}

pub fn run(seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    let start = Arc::new(Instant::now());
    let cells: Vec<_> = (0..CELLS)
        .map(|cell| {
            let start = Arc::clone(&start);
            thread::spawn(move || produce(cell, *start, end))
        })
        .collect();
    let outcomes: Vec<Outcome> = cells.into_iter().map(|cell| cell.join().expect("a cell ends")).collect();
    let total: u64 = outcomes.iter().map(|outcome| outcome.hand_overs).sum();
    let late: u64 = outcomes.iter().map(|outcome| outcome.late).sum();
    let longest = outcomes.iter().map(|outcome| outcome.longest).max().unwrap_or_default();
    println!(
        "| {seconds} | {CELLS} × {CONSUMERS} | {total} | {late} | {:.1} |",
        longest.as_secs_f64() * 1000.0
    );
    assert_eq!(late, 0, "no wake-up is lost");
}

/// Commits bursts of tasks, one or more in a commit, and waits until all of a burst have been taken.
fn produce(cell: usize, start: Instant, end: Instant) -> Outcome {
    let (report, taken) = mpsc::channel();
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|n| {
            let report = report.clone();
            let way = [Way::OwnOne, Way::OwnOne, Way::OwnFive, Way::Call][n % 4];
            thread::spawn(move || consume(cell, n, way, start, &report))
        })
        .collect();
    let mut client = connect();
    let mut outcome = Outcome::default();
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ cell as u64);
    while Instant::now() < end {
        let commits = random.below(CONSUMERS as u64) + 1;
        let mut tasks = 0;
        for _ in 0..commits {
            tasks += commit(&mut client, cell, start, &mut random);
        }
        collect(&taken, tasks, &mut outcome);
        if random.below(4) == 0 {
            // Long enough for all consumers to be asleep again.
            thread::sleep(Duration::from_micros(random.below(2000)));
        }
    }
    for _ in 0..CONSUMERS {
        client.batch_execute(&format!("SELECT taskq.insert_task(NULL, 'stress {cell}', 'stop')")).unwrap();
    }
    for consumer in consumers {
        consumer.join().expect("a consumer ends");
    }
    outcome
}

/// One commit; how many tasks it brought.
fn commit(client: &mut Client, cell: usize, start: Instant, random: &mut Random) -> u64 {
    let insert = |id: u128| format!("SELECT taskq.insert_task(NULL, 'stress {cell}', '{id}');");
    let now = || start.elapsed().as_nanos();
    match random.below(8) {
        0 => {
            client.batch_execute(&format!("BEGIN; {0}{0}{0}COMMIT", insert(now()))).unwrap();
            3
        }
        1 => {
            client
                .batch_execute(&format!("BEGIN; SAVEPOINT s; {} RELEASE s; COMMIT", insert(now())))
                .unwrap();
            1
        }
        2 => {
            client
                .batch_execute(&format!("BEGIN; {0} SAVEPOINT s; {0} ROLLBACK TO s; COMMIT", insert(now())))
                .unwrap();
            1
        }
        3 => {
            client.batch_execute(&format!("BEGIN; {} ROLLBACK", insert(now()))).unwrap();
            0
        }
        _ => {
            client.batch_execute(&insert(now())).unwrap();
            1
        }
    }
}

/// Waits until that many tasks have been taken.
fn collect(taken: &Receiver<Duration>, tasks: u64, outcome: &mut Outcome) {
    for _ in 0..tasks {
        let time = taken.recv_timeout(Duration::from_secs(60)).expect("every task is taken");
        outcome.hand_overs += 1;
        outcome.longest = outcome.longest.max(time);
        outcome.late += u64::from(time > LOST);
    }
}

/// Takes tasks until one says to stop, and reports how long each took from before its insertion.
fn consume(cell: usize, n: usize, way: Way, start: Instant, report: &Sender<Duration>) {
    let mut client = connect();
    let (tasks, wait) = match way {
        Way::OwnOne => (1, ", wait => '10 minutes'"),
        Way::OwnFive => (5, ", wait => '10 minutes'"),
        Way::Call => (1, ""),
    };
    let own = format!(
        "SELECT task_id, token::text, body FROM taskq.own_tasks('consumer {n}', {tasks}, '{{stress {cell}}}'{wait})"
    );
    let own = client.prepare(&own).unwrap();
    let give = client.prepare("SELECT taskq.return_tasks($1, $2::text[]::uuid[])").unwrap();
    let call = format!("CALL taskq.wait_for_work('{{stress {cell}}}', '10 minutes', NULL)");
    let (mut ids, mut tokens): (Vec<String>, Vec<String>) = Default::default();
    let mut stops = 0;
    loop {
        if matches!(way, Way::Call) {
            client.simple_query(&call).unwrap();
        }
        for row in client.query(&own, &[]).unwrap() {
            ids.push(row.get(0));
            tokens.push(row.get(1));
            match row.get::<_, &str>(2) {
                "stop" => stops += 1,
                body => {
                    let inserted = Duration::from_nanos(body.parse().expect("the body is a time"));
                    report.send(start.elapsed().saturating_sub(inserted)).ok();
                }
            }
        }
        if ids.len() >= 64 || stops > 0 {
            client.execute(&give, &[&ids, &tokens]).unwrap();
            ids.clear();
            tokens.clear();
        }
        if stops > 0 {
            // One that took several leaves the others theirs.
            for _ in 1..stops {
                client
                    .batch_execute(&format!("SELECT taskq.insert_task(NULL, 'stress {cell}', 'stop')"))
                    .unwrap();
            }
            return;
        }
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
