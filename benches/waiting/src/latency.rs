//! From the moment COMMIT is sent to the moment a waiting client has its answer, among many idle waiters.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::Client;

use crate::server::{connect, until_asleep};

/// The moments at which a waiter's call came back and at which it had its task, and which task that was.
type Answer = ([Instant; 2], String);

/// Measures all three ways to wait.
pub fn run(waiters: usize, rounds: usize) {
    let [own, _] = own_tasks(waiters, rounds);
    print("`own_tasks(wait =>)`", waiters, own);
    let [call, then_own] = wait_for_work(waiters, rounds);
    print("`CALL wait_for_work`", waiters, call);
    print("the same, and `own_tasks` after it", waiters, then_own);
    print("`wait_for_task`", waiters, wait_for_task(waiters, rounds));
}

fn print(call: &str, waiters: usize, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
    println!("| {call} | {waiters} | {} | {:.2} | {:.2} | {:.2} |", times.len(), at(0.5), at(0.99), at(1.0));
}

/// Runs a number of waiters, each in a thread with a connection.
fn start(
    waiters: usize,
    work: fn(&mut Client, usize, &Sender<Answer>),
) -> (Vec<JoinHandle<()>>, Receiver<Answer>) {
    let (report, answers) = mpsc::channel();
    let start = |n| {
        let (mut client, report) = (connect(), report.clone());
        thread::spawn(move || work(&mut client, n, &report))
    };
    ((0..waiters).map(start).collect(), answers)
}

/// Makes a change in a transaction, and takes the times from its commit to the moments that a waiter reports.
fn commit(producer: &mut Client, answers: &Receiver<Answer>, change: &str) -> ([Duration; 2], String) {
    producer.batch_execute(&format!("BEGIN; {change}")).unwrap();
    let start = Instant::now();
    producer.batch_execute("COMMIT").unwrap();
    let (answered, id) = answers.recv_timeout(Duration::from_secs(60)).expect("a waiter answers");
    (answered.map(|moment| moment.saturating_duration_since(start)), id)
}

/// All wait for tasks of one action; each round inserts one task, which one of them gets.
fn own_tasks(waiters: usize, rounds: usize) -> [Vec<Duration>; 2] {
    let threads = start(waiters, |client, n, report| {
        let own = "SELECT task_id, token::text, body FROM taskq.own_tasks($1, 1, $2, wait => '1 hour')";
        take(client, n, report, "own", None, own);
    });
    insert(threads, waiters, rounds, "own")
}

/// The same with the procedure: a waiter that hears of work fetches it in a second call.
fn wait_for_work(waiters: usize, rounds: usize) -> [Vec<Duration>; 2] {
    let threads = start(waiters, |client, n, report| {
        let call = "CALL taskq.wait_for_work($1, '1 hour', NULL)";
        let own = "SELECT task_id, token::text, body FROM taskq.own_tasks($1, 1, $2)";
        take(client, n, report, "call", Some(call), own);
    });
    insert(threads, waiters, rounds, "call")
}

/// A waiter for tasks: takes them one by one, reports each and returns it.
fn take(client: &mut Client, n: usize, report: &Sender<Answer>, action: &str, call: Option<&str>, own: &str) {
    let call = call.map(|call| client.prepare(call).unwrap());
    let own = client.prepare(own).unwrap();
    let give = client.prepare("SELECT taskq.return_task($1, $2::text::uuid)").unwrap();
    let actor = format!("waiter {n}");
    // A backend plans its statements once, and that is not what is measured: some tasks of an action of its own.
    let warm = vec![format!("warm {action} {n}")];
    for _ in 0..WARM {
        client.execute("SELECT taskq.insert_task(NULL, $1)", &[&warm[0]]).unwrap();
    }
    let actions = vec![action.to_owned()];
    for round in 0.. {
        let actions = if round < WARM { &warm } else { &actions };
        if let Some(call) = &call {
            client.query(call, &[actions]).unwrap();
        }
        let called = Instant::now();
        let rows = client.query(&own, &[&actor, actions]).unwrap();
        let now = Instant::now();
        let moments = [if call.is_some() { called } else { now }, now];
        let Some(row) = rows.first() else { continue };
        let (id, token): (String, String) = (row.get(0), row.get(1));
        client.execute(&give, &[&id, &token]).unwrap();
        if row.get::<_, Option<&str>>(2) == Some("stop") {
            return;
        }
        if round >= WARM {
            report.send((moments, id)).ok();
        }
    }
}

/// How many tasks each waiter takes before the measurement.
const WARM: usize = 10;

/// The other side: inserts a task for each round while all waiters sleep, then one for each waiter that ends it.
fn insert(
    (threads, answers): (Vec<JoinHandle<()>>, Receiver<Answer>),
    waiters: usize,
    rounds: usize,
    action: &str,
) -> [Vec<Duration>; 2] {
    let mut producer = connect();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        until_asleep(&mut producer, waiters);
        let insert = format!("SELECT taskq.insert_task(NULL, '{action}')");
        let [called, owned] = commit(&mut producer, &answers, &insert).0;
        times[0].push(called);
        times[1].push(owned);
    }
    for _ in 0..waiters {
        producer.batch_execute(&format!("SELECT taskq.insert_task(NULL, '{action}', 'stop')")).unwrap();
    }
    join(threads);
    times
}

/// Each waits for a task of its own; each round settles the next of them.
fn wait_for_task(waiters: usize, rounds: usize) -> Vec<Duration> {
    let mut producer = connect();
    let tasks = format!(
        "SELECT count(taskq.insert_task('waiter ' || w || ' round ' || r, 'settle')) \
         FROM generate_series(0, {waiters} - 1) AS w, generate_series(0, {}) AS r",
        rounds.div_ceil(waiters)
    );
    producer.batch_execute(&tasks).unwrap();
    let (threads, answers) = start(waiters, |client, n, report| {
        let wait = client.prepare("SELECT status_code::text FROM taskq.wait_for_task($1, '1 hour')").unwrap();
        for round in 0.. {
            let id = format!("waiter {n} round {round}");
            let rows = client.query(&wait, &[&id]).unwrap();
            let now = Instant::now();
            if rows.first().map(|row| row.get::<_, &str>(0)) != Some("completed") {
                return;
            }
            report.send(([now; 2], id)).ok();
        }
    });
    let mut times = Vec::new();
    for n in 0..rounds {
        until_asleep(&mut producer, waiters);
        let id = format!("waiter {} round {}", n % waiters, n / waiters);
        let (time, answered) =
            commit(&mut producer, &answers, &format!("SELECT taskq.complete_task('{id}')"));
        assert_eq!(id, answered);
        times.push(time[0]);
    }
    until_asleep(&mut producer, waiters);
    let rest = "SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks WHERE state = 'ready' AND action = 'settle'";
    producer.batch_execute(rest).unwrap();
    join(threads);
    times
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("a waiter's thread ends");
    }
}
