//! A worker for taskq in Rust (tokio-postgres): own, heartbeat, return.
//!
//! ```text
//! PGHOST=... PGDATABASE=... taskq_worker [ACTION]
//! ```
//!
//! It performs one task at a time; run as many processes as you want tasks at once. SIGTERM or SIGINT: it takes no
//! more, lets the task in hand finish within the grace, and gives it back if that does not suffice. A task that was
//! cancelled or taken over is dropped as soon as a heartbeat hears of it.

mod queue;

use std::env;
use std::pin::pin;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use queue::{Outcome, Queue, Task, seconds};

type Error = Box<dyn std::error::Error>;

/// Why a handler gives up.
enum Failure {
    /// No further try makes sense.
    Rejected(String),
    /// The next try may work.
    Passing(String),
}

/// The work itself. It may be dropped at any `.await`; its result is kept with the task.
async fn perform(task: &Task) -> Result<Value, Failure> {
    let body = task.body.as_deref().unwrap_or_default();
    let body: Value = serde_json::from_str(body).map_err(|error| Failure::Passing(error.to_string()))?;
    let text = body["text"].as_str().ok_or_else(|| Failure::Rejected("the body lacks a text".to_owned()))?;
    sleep(Duration::from_secs_f64(body["seconds"].as_f64().unwrap_or_default())).await;
    Ok(json!({"sha256": format!("{:x}", Sha256::digest(text)), "client": "rust"}))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let grace = seconds("TASKQ_GRACE", 20.0);
    let mut queue = Queue::new(&env::args().nth(1).unwrap_or_else(|| "checksum".to_owned()));
    let mut stop = stop_signal()?;
    while !*stop.borrow() {
        if let Some(task) = queue.own().await? {
            let outcome = work(&mut queue, &task, &mut stop, grace).await;
            queue.give(&task, outcome).await?;
        }
    }
    eprintln!("stopped");
    Ok(())
}

/// Becomes true with SIGTERM or SIGINT.
fn stop_signal() -> Result<watch::Receiver<bool>, Error> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
        sender.send_replace(true);
        // The channel stays open as long as somebody listens.
        sender.closed().await;
    });
    Ok(receiver)
}

/// Performs a task, with heartbeats beside it, until it is done, lost, or the grace is over.
async fn work(queue: &mut Queue, task: &Task, stop: &mut watch::Receiver<bool>, grace: Duration) -> Outcome {
    eprintln!("{}: try {}", task.id, task.num_tries);
    let mut beats = interval_at(Instant::now() + queue.lease / 3, queue.lease / 3);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut handler = pin!(perform(task));
    let mut grace_over = pin!(async {
        stop.wait_for(|stop| *stop).await.ok();
        sleep(grace).await;
    });
    loop {
        tokio::select! {
            answer = &mut handler => return match answer {
                Ok(result) => Outcome::completed(result),
                Err(Failure::Rejected(status)) => Outcome::aborted(status),
                Err(Failure::Passing(status)) => Outcome::retry(status),
            },
            _ = beats.tick() => match queue.extend(task).await {
                Ok(true) => (),
                Ok(false) => return Outcome::given_back(), // lost: return_task refuses it, and it is dropped
                Err(error) => eprintln!("{}: no heartbeat: {error}", task.id),
            },
            () = &mut grace_over => return Outcome::given_back(),
        }
    }
}
