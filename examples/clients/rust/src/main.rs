//! A worker for taskq in Rust (tokio-postgres): own, heartbeat, return.
//!
//! ```text
//! PGHOST=... PGDATABASE=... taskq_worker [ACTION,...]
//! ```
//!
//! It performs one task at a time; run as many processes as you want tasks at once, or taskq_pool. SIGTERM or SIGINT: it takes no
//! more, lets the task in hand finish within the grace, and gives it back if that does not suffice. A task that was
//! cancelled or taken over is dropped as soon as a heartbeat hears of it.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use taskq_worker::queue::{Outcome, Queue, Task, seconds};
use taskq_worker::{Error, actions, outcome, perform, stop_signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let grace = seconds("TASKQ_GRACE", 20.0);
    let mut queue = Queue::new(actions());
    let mut stop = stop_signal()?;
    while !*stop.borrow() {
        if let Some(task) = queue.own().await? {
            let outcome = work(&mut queue, &task, &mut stop, grace).await;
            queue.give(&task.id, task.token, outcome).await?;
        }
    }
    eprintln!("stopped");
    Ok(())
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
            answer = &mut handler => return outcome(answer),
            _ = beats.tick() => match queue.extend(task).await {
                Ok(true) => (),
                Ok(false) => return Outcome::given_back(), // lost: return_task refuses it, and it is dropped
                Err(error) => eprintln!("{}: no heartbeat: {error}", task.id),
            },
            () = &mut grace_over => return Outcome::given_back(),
        }
    }
}
