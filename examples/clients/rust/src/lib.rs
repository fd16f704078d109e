//! What both workers have: the handlers, and the calls of the queue.

pub mod queue;

use std::env;
use std::pin::Pin;
use std::process;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use queue::{Outcome, Task};

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Performs a task, given its body. It may be dropped at any `.await`; its result is kept with the task.
type Handler = fn(Value) -> Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

/// What the workers can do: the action of a task, and the handler that performs it.
const HANDLERS: [(&str, Handler); 2] =
    [("checksum", |body| Box::pin(checksum(body))), ("words", |body| Box::pin(words(body)))];

/// Why a handler gives up.
pub enum Failure {
    /// No further try makes sense.
    Rejected(String),
    /// The next try may work.
    Passing(String),
}

async fn checksum(body: Value) -> Result<Value, Failure> {
    let text = text(&body)?;
    if let Some(reason) = body["fail"].as_str() {
        return Err(Failure::Passing(reason.to_owned()));
    }
    sleep(Duration::from_secs_f64(body["seconds"].as_f64().unwrap_or_default())).await;
    let head: String = text.chars().take(10).collect();
    Ok(json!({"sha256": format!("{:x}", Sha256::digest(text)), "head": head, "client": "rust"}))
}

async fn words(body: Value) -> Result<Value, Failure> {
    Ok(json!({"words": text(&body)?.split_whitespace().count(), "client": "rust"}))
}

fn text(body: &Value) -> Result<&str, Failure> {
    body["text"].as_str().ok_or_else(|| Failure::Rejected("the body lacks a text".to_owned()))
}

/// The work itself: the handler of the task's action.
pub async fn perform(task: &Task) -> Result<Value, Failure> {
    let body = task.body.as_deref().unwrap_or_default();
    let unreadable = |error| Failure::Rejected(format!("the body cannot be read: {error}"));
    let body = serde_json::from_str(body).map_err(unreadable)?;
    let (_, handler) = HANDLERS.iter().find(|(action, _)| *action == task.action).expect("it was asked for");
    handler(body).await
}

/// The actions of this process: those of the first argument, with commas in between, or all. One without a handler ends it.
pub fn actions() -> Vec<String> {
    let known = HANDLERS.map(|(action, _)| action);
    let list = env::args().nth(1).unwrap_or_else(|| known.join(","));
    let actions: Vec<String> = list.split(',').map(str::to_owned).collect();
    if let Some(unknown) = actions.iter().find(|action| !known.contains(&action.as_str())) {
        eprintln!("unknown action {unknown:?}: there are handlers for {}", known.join(", "));
        process::exit(2);
    }
    actions
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
        // The channel stays open as long as it has a listener.
        sender.closed().await;
    });
    Ok(receiver)
}
