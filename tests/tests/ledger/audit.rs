//! The ledgers against the queue, when all is settled.

use std::collections::HashMap;

use taskq_tests::{Session, Task};

use crate::graph::Graph;
use crate::worker::Ledger;

/// Every task must have ended for a reason, and every reason must have had its effect.
pub fn compare(session: &mut Session, graph: &Graph, ledger: &Ledger) {
    let tasks: HashMap<usize, Task> =
        session.tasks().into_iter().map(|task| (task.id.parse().expect("ids are numbers"), task)).collect();
    assert_eq!(tasks.len(), graph.nodes.len());
    let grants = ledger.grants.lock().unwrap();
    let settled = ledger.settled.lock().unwrap();
    let cancelled = ledger.cancelled.lock().unwrap();
    let mut by_cancel = 0;
    for (number, node) in graph.nodes.iter().enumerate() {
        let task = &tasks[&number];
        let times = grants.get(&number).copied().unwrap_or_default();
        assert_eq!(task.num_tries as u64, times, "tries of {number}");
        let code = |after: &usize| tasks[after].status_code.as_str();
        let lost = node.dependencies.iter().any(|(after, condition)| {
            matches!((code(after), *condition), ("aborted", "completed") | ("completed", "aborted"))
        });
        let exhausted = node.max_tries.is_some_and(|most| times >= most);
        if let Some(told) = settled.get(&number) {
            assert_eq!(task.status_code, *told, "{number} ended otherwise than its worker was told");
        } else if task.status_code == "completed" {
            assert!(node.spontaneous, "{number} completed, but no worker returned it");
        } else {
            assert!(
                lost || exhausted || cancelled.contains(&number),
                "{number} aborted for no reason: {task:?}"
            );
            by_cancel += i64::from(cancelled.contains(&number) && !lost && !exhausted);
        }
        if times > 0 || task.status_code == "completed" {
            assert!(!lost, "{number} went ahead though it had lost a dependency");
            let failures = node.dependencies.keys().filter(|after| code(after) == "aborted").count() as i32;
            assert_eq!(task.num_failures, failures, "failures of {number}");
            let edges = node.dependencies.len() as i32;
            assert_eq!((task.num_signals, task.total_dependencies), (edges, edges), "signals of {number}");
        }
        if node.spontaneous && !lost && !cancelled.contains(&number) {
            assert_eq!(task.status_code, "completed", "spontaneous {number}");
        }
    }
    let counted = *ledger.cancels_counted.lock().unwrap();
    assert!(by_cancel <= counted, "{by_cancel} ended by a cancel, but the cancels counted {counted}");
    assert_eq!(session.broken(), [""; 0]);
    let actors: i64 = session.one("SELECT count(*) FROM taskq.actors");
    assert_eq!(actors, 0, "no worker holds anything");
    // The run was worth something: all that can happen did happen.
    let ended = |state: &str| tasks.values().filter(|task| task.state == state).count();
    println!(
        "completed {}, aborted {}, cancelled {counted}, grants {}",
        ended("completed"),
        ended("aborted"),
        grants.values().sum::<u64>()
    );
    assert!(ended("completed") > 100 && ended("aborted") > 100 && counted > 0);
    assert!(grants.values().any(|times| *times > 1));
}
