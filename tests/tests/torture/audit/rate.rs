//! In any span of time no more was granted of an action with a rate than its bucket held at first and what came in since.

use super::view::View;
use crate::families::RATE;

pub fn not_exceeded(view: &View) -> Vec<String> {
    let is_limited = |task: &str| view.specs.get(task).is_some_and(|spec| spec.action == "rate");
    let mut grants: Vec<(i64, i64)> = view
        .performances
        .iter()
        .filter(|performance| is_limited(performance.task))
        .map(|performance| (performance.call.sent, performance.call.received))
        .collect();
    grants.sort_unstable();
    // Longer spans say nothing that these do not.
    const SPAN: i64 = 4_000_000;
    let mut found = Vec::new();
    for (place, (from, _)) in grants.iter().enumerate() {
        let mut ends: Vec<i64> = grants[place..]
            .iter()
            .take_while(|(sent, _)| sent - from < SPAN)
            .map(|(_, received)| *received)
            .collect();
        ends.sort_unstable();
        let over = ends.iter().enumerate().find(|(count, end)| {
            let most = RATE + (*end - from) * RATE / 1_000_000 + 1;
            *count as i64 + 1 > most
        });
        if let Some((count, end)) = over {
            found.push(format!("{} grants in {} ms from {from} on", count + 1, (end - from) / 1000));
        }
    }
    found
}
