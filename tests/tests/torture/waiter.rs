//! Waits for the end of tasks, asleep, while everything falls down; what it is told must be what becomes of them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::book::Deed;
use crate::client::Client;
use crate::run::Run;

pub fn work(run: &Arc<Run>, number: u64) {
    let mut client = Client::new(run, &format!("waiter{number}"), 450 + number);
    while !run.is_calm() {
        let Some(task) = run.some_recent(&mut client.random) else { continue };
        client.call("wait", Vec::new(), |tx, _| {
            let query = "SELECT status_code::text FROM taskq.wait_for_task($1, '2 seconds')";
            if let Some(row) = tx.query_opt(query, &[&task])? {
                tx.deeds.push(Deed::Seen { task: task.clone(), code: row.get(0) });
            }
            Ok(())
        });
        // Most have ended by now, and are told at once.
        thread::sleep(Duration::from_millis(client.random.below(40)));
    }
}
