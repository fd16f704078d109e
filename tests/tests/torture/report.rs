//! What the run was worth.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;

use crate::book::{self, Fate};
use crate::run::Run;
use crate::state::State;

pub fn report(run: &Run, state: &State) -> String {
    let (mut done, mut refused, mut lost) = (0, 0, 0);
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    book::read(&run.folder, |call| {
        match call.fate {
            Fate::Done => done += 1,
            Fate::Refused => refused += 1,
            Fate::Lost => lost += 1,
        }
        if !call.state.is_empty() {
            *states.entry(call.state).or_default() += 1;
        }
    });
    let faults = run.faults();
    let (largest, growth) = *run.memory.lock().unwrap();
    let mut text = String::new();
    let mut line =
        |what: &str, number: String| writeln!(text, "{what:<75} {number:>12}").expect("text takes all");
    line("seed", run.seed.to_string());
    line("seconds with faults", run.seconds.to_string());
    line("seconds in all", run.elapsed().as_secs().to_string());
    line("tasks known to be inserted", run.inserted.load(Ordering::Relaxed).to_string());
    line("tasks in the end", state.tasks.len().to_string());
    line("dependencies in the end", state.edges.len().to_string());
    line("tries", state.tries.len().to_string());
    line("calls acknowledged", done.to_string());
    line("calls refused or rolled back", refused.to_string());
    line("calls whose answer was lost", lost.to_string());
    for (state, times) in states {
        line(&format!("  refused or lost: {state}"), times.to_string());
    }
    line("faults", faults.values().sum::<u64>().to_string());
    for (kind, times) in faults {
        line(&format!("  {kind}"), times.to_string());
    }
    line("memory of the largest session, bytes", largest.to_string());
    line("most that a session has grown by after its first calls, bytes", growth.to_string());
    text
}
