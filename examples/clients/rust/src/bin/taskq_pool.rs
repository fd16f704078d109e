//! A worker for taskq with many tasks at once (tokio-postgres): one heartbeat for all of them, returns in batches
//! that bring the next tasks along.
//!
//! ```text
//! PGHOST=... PGDATABASE=... taskq_pool [ACTION,...] [TASKS]
//! ```
//!
//! Two connections, however many tasks: one sleeps until there is work, the other extends, returns and takes the next.
//! SIGTERM or SIGINT: it takes no more, lets the tasks in hand finish within the grace, and gives back what does not. A
//! task that was cancelled or taken over is dropped as soon as a heartbeat hears of it.

use std::collections::HashMap;
use std::env;
use std::pin::pin;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use uuid::Uuid;

use taskq_worker::queue::{Outcome, Queue, Task, seconds};
use taskq_worker::{Error, actions, outcome, perform, stop_signal};

/// A task in hand, until it is returned.
struct Held {
    id: String,
    token: Uuid,
    handler: AbortHandle,
    lost: bool,
}

/// The call that sleeps until there is work, with its connection.
type Owning = JoinHandle<(Queue, Result<Vec<Task>, Error>)>;

/// The tasks in hand, and the connection that extends and returns them.
struct Pool {
    link: Queue,
    running: JoinSet<Outcome>,
    held: HashMap<Id, Held>,
}

impl Pool {
    fn begin(&mut self, task: Task) {
        eprintln!("{}: try {}", task.id, task.num_tries);
        let (id, token) = (task.id.clone(), task.token);
        let handler = self.running.spawn(async move { outcome(perform(&task).await) });
        self.held.insert(handler.id(), Held { id, token, handler, lost: false });
    }

    /// Returns what has ended, with one call, which brings as many others in its place if there are `more` to be taken.
    async fn give_back(&mut self, first: Result<(Id, Outcome), JoinError>, more: bool) -> Result<(), Error> {
        let mut ended = vec![first];
        ended.extend(std::iter::from_fn(|| self.running.try_join_next_with_id()));
        let mut returns = Vec::new();
        for end in ended {
            let (id, outcome) = match end {
                Ok(end) => end,
                Err(error) if error.is_cancelled() => (error.id(), Outcome::given_back()),
                Err(error) => (error.id(), Outcome::retry(error.to_string())),
            };
            if let Some(held) = self.held.remove(&id).filter(|held| !held.lost) {
                returns.push((held.id, held.token, outcome));
            }
        }
        if !returns.is_empty() {
            let number = if more { returns.len() as i32 } else { 0 };
            for task in self.link.give_and_own(returns, number).await? {
                self.begin(task);
            }
        }
        Ok(())
    }

    /// One call for all tasks in hand.
    async fn extend(&mut self) {
        let held: Vec<(&str, Uuid)> = self.held.values().map(|held| (held.id.as_str(), held.token)).collect();
        if held.is_empty() {
            return;
        }
        match self.link.extend_many(&held).await {
            // In the order in which they were asked for, which the map keeps as long as nothing changes.
            Ok(owned) => {
                for (held, _) in self.held.values_mut().zip(owned).filter(|(_, owned)| !owned) {
                    eprintln!("{}: lost", held.id);
                    held.lost = true;
                    held.handler.abort();
                }
            }
            Err(error) => eprintln!("no heartbeat: {error}"),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let grace = seconds("TASKQ_GRACE", 20.0);
    let actions = actions();
    let most: usize = env::args().nth(2).map_or(Ok(10), |text| text.parse())?;
    let mut waiter = Some(Queue::new(actions.clone()));
    let mut pool = Pool { link: Queue::new(actions), running: JoinSet::new(), held: HashMap::new() };
    let mut stop = stop_signal()?;
    let mut stopping = false;
    let mut owning: Option<Owning> = None;
    let third = pool.link.lease / 3;
    let mut beats = interval_at(Instant::now() + third, third);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Whether it is over is asked of `late`: the time may run out while another branch is at work, and no branch hears
    // of it.
    let mut grace_over = pin!(sleep(Duration::MAX / 4));
    let mut late = false;
    while !stopping || owning.is_some() || !pool.held.is_empty() {
        let room = most - pool.held.len();
        if !stopping
            && room > 0
            && let Some(mut queue) = waiter.take()
        {
            // Beside the loop: to drop the call may drop a grant that is on its way.
            owning = Some(tokio::spawn(async move {
                let tasks = queue.own_many(room as i32).await;
                (queue, tasks)
            }));
        }
        tokio::select! {
            Ok((queue, tasks)) = async { owning.as_mut().unwrap().await }, if owning.is_some() => {
                (waiter, owning) = (Some(queue), None);
                tasks?.into_iter().for_each(|task| pool.begin(task));
                if late {
                    pool.running.abort_all();
                }
            }
            Some(ended) = pool.running.join_next_with_id() => pool.give_back(ended, !stopping).await?,
            _ = beats.tick() => pool.extend().await,
            _ = stop.changed(), if !stopping => {
                stopping = true;
                grace_over.as_mut().reset(Instant::now() + grace);
            }
            () = &mut grace_over, if stopping && !late => {
                late = true;
                pool.running.abort_all();
            }
        }
    }
    eprintln!("stopped");
    Ok(())
}
