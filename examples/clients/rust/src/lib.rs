//! What both workers have: the work, and the calls of the queue.

pub mod queue;

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use queue::{Outcome, Task};

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Why a handler gives up.
pub enum Failure {
    /// No further try makes sense.
    Rejected(String),
    /// The next try may work.
    Passing(String),
}

/// The work itself. It may be dropped at any `.await`; its result is kept with the task.
pub async fn perform(task: &Task) -> Result<Value, Failure> {
    let body = task.body.as_deref().unwrap_or_default();
    let unreadable = |error| Failure::Rejected(format!("the body cannot be read: {error}"));
    let body: Value = serde_json::from_str(body).map_err(unreadable)?;
    let text = body["text"].as_str().ok_or_else(|| Failure::Rejected("the body lacks a text".to_owned()))?;
    if let Some(reason) = body["fail"].as_str() {
        return Err(Failure::Passing(reason.to_owned()));
    }
    sleep(Duration::from_secs_f64(body["seconds"].as_f64().unwrap_or_default())).await;
    let head: String = text.chars().take(10).collect();
    Ok(json!({"sha256": format!("{:x}", Sha256::digest(text)), "head": head, "client": "rust"}))
}

/// How a performance that has come to its end is returned.
pub fn outcome(answer: Result<Value, Failure>) -> Outcome {
    match answer {
        Ok(result) => Outcome::completed(result),
        Err(Failure::Rejected(status)) => Outcome::aborted(status),
        Err(Failure::Passing(status)) => Outcome::retry(status),
    }
}

/// Becomes true with SIGTERM or SIGINT.
pub fn stop_signal() -> Result<watch::Receiver<bool>, Error> {
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
