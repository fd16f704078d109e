//! Staying the owner of a batch of tasks while working on them, and noticing when one is lost.
//!
//! A lease protects the *queue* from a worker that stalls: a return with an old token is refused. The bucket knows no
//! tokens, so this worker does not touch it unless its lease has time left. What remains is the moment between that
//! look and the write; all writes of one export are the same, whichever worker does them, so only a worker that stalls right
//! there, for longer than its lease, until the *next* export has begun, could do harm. A store with conditional
//! writes would close that, too.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use uuid::Uuid;

use crate::queue::{Grant, Queue};

/// The error of a worker that finds out that a task is no longer its own: drop the work, another worker has it.
#[derive(Debug)]
pub struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task is no longer ours")
    }
}

impl std::error::Error for Lost {}

/// The tasks of a batch that are still held, and until when.
#[derive(Debug)]
pub struct Lease {
    held: Vec<(String, Uuid)>,
    length: Duration,
    renewed: Instant,
    until: Instant,
}

impl Lease {
    /// The lease that comes with a batch of grants.
    pub fn new(grants: &[Grant], length: Duration) -> Self {
        let now = Instant::now();
        let left = grants.iter().map(|grant| grant.left).min().unwrap_or(length);
        let held = grants.iter().map(|grant| (grant.id.clone(), grant.token)).collect();
        Self { held, length, renewed: now, until: now + left }
    }

    /// Gives a sign of life if it is time for one. To be called often; between two renewals it costs nothing.
    ///
    /// There is no thread that does this behind the worker's back: a worker that hangs is to lose its tasks.
    pub fn keep(&mut self, queue: &mut Queue) -> Result<()> {
        if self.renewed.elapsed() >= self.length / 3 { self.renew(queue) } else { Ok(()) }
    }

    /// The same, and fails with [`Lost`] if this task is no longer ours.
    pub fn keep_for(&mut self, queue: &mut Queue, grant: &Grant) -> Result<()> {
        self.keep(queue)?;
        self.check(grant)
    }

    /// To be called right before something outside the database is changed: there is time left to do so.
    pub fn secure(&mut self, queue: &mut Queue, grant: &Grant) -> Result<()> {
        if self.until.saturating_duration_since(Instant::now()) < self.length / 2 {
            self.renew(queue)?;
        }
        self.check(grant)
    }

    /// Asks for a longer lease of one task, for a step during which no sign of life can be given.
    pub fn stretch(&self, queue: &mut Queue, grant: &Grant, length: Duration) -> Result<()> {
        let lost = queue.extend(&[(grant.id.clone(), grant.token)], length)?;
        if lost.is_empty() { Ok(()) } else { Err(Lost.into()) }
    }

    /// Forgets a task that was returned, or that was dropped.
    pub fn release(&mut self, grant: &Grant) {
        self.held.retain(|(id, _)| *id != grant.id);
    }

    fn check(&self, grant: &Grant) -> Result<()> {
        if self.held.iter().any(|(id, _)| *id == grant.id) { Ok(()) } else { Err(Lost.into()) }
    }

    fn renew(&mut self, queue: &mut Queue) -> Result<()> {
        let now = Instant::now(); // before the call: the lease cannot end earlier than this plus its length
        let lost = queue.extend(&self.held, self.length)?;
        self.held.retain(|(id, _)| !lost.contains(id));
        self.renewed = now;
        self.until = now + self.length;
        Ok(())
    }
}
