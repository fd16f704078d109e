//! What has been notified, for sessions that have said LISTEN.

use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use serde_json::Value;

use crate::Session;

/// Subscribes to the channel that this function of taskq's names for a task or an action.
pub fn listen(session: &mut Session, function: &str, name: &str) -> String {
    let channel: String =
        session.query_one(&format!("SELECT taskq.{function}($1)"), &[&name]).unwrap().get(0);
    assert!(channel.len() <= 63, "a channel's name fits: {channel}");
    session.run(&format!("LISTEN \"{}\"", channel.replace('"', "\"\"")));
    channel
}

/// All that has been notified up to now: the marker comes after it. Payloads are JSON, or empty.
pub fn notifications(listener: &mut Session, sender: &mut Session) -> Vec<(String, Value)> {
    listener.run("LISTEN marker");
    sender.run("NOTIFY marker");
    let mut got = Vec::new();
    let mut stream = listener.notifications();
    let mut waiting = stream.timeout_iter(Duration::from_secs(60));
    while let Some(notification) = waiting.next().unwrap() {
        if notification.channel() == "marker" {
            return got;
        }
        let payload = match notification.payload() {
            "" => Value::Null,
            json => serde_json::from_str(json).expect("the payload is JSON"),
        };
        got.push((notification.channel().to_owned(), payload));
    }
    panic!("the marker never came");
}
