//! What a session believes of the queue is in one variable (`src/memory`). The others that are declared with `thread_local!`
//! are listed here, each with what it is instead.

use std::collections::BTreeSet;

use super::source::{code, files};

/// What a variable of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All that the session believes of the queue.
    Memory,
    /// What the transaction or the call under way has done so far. Its end ends it, or the first use in the next one does.
    UnderWay,
    /// By it something is done now and then, or goes on where it was. Whatever it says is right.
    Cadence,
    /// Where rows were last seen. What lies there is checked by each use.
    Place,
    /// What belongs to the server or to the process: plans, callbacks, random numbers.
    Handle,
}
use Kind::{Cadence, Handle, Memory, Place, UnderWay};

/// All of them, by file.
const VARIABLES: [(&str, &str, Kind); 33] = [
    ("background/call.rs", "STARTS", Cadence),
    ("claim/merge.rs", "KEYS", UnderWay),
    ("ends/actors.rs", "LOST", UnderWay),
    ("ends/count.rs", "ENDS", Cadence),
    ("ends/counters.rs", "COUNTERS", UnderWay),
    ("ends/work.rs", "WORK", UnderWay),
    ("locks/courtesy.rs", "GIVEN", UnderWay),
    ("locks/order.rs", "ATTEMPT", UnderWay),
    ("memory/session.rs", "SESSION", Memory),
    ("pg/block.rs", "CALL", UnderWay),
    ("pg/planner.rs", "LOOKS_UP", UnderWay),
    ("pg/process.rs", "WORK", Handle),
    ("pg/search_path.rs", "CALL", UnderWay),
    ("pg/session.rs", "RANDOM_LEFT", Handle),
    ("pg/statement/prepared.rs", "KEPT", Handle),
    ("pg/subtransaction.rs", "ERROR_UNDER_WAY", UnderWay),
    ("pg/subtransaction.rs", "NESTED", UnderWay),
    ("pg/transaction.rs", "LISTENERS", Handle),
    ("pg/wait_event.rs", "EVENTS", Handle),
    ("rights.rs", "CALL", UnderWay),
    ("settle/fold.rs", "AT", Cadence),
    ("store/lease/mod.rs", "PLACES", Place),
    ("store/lease/tidy.rs", "APPENDED", Cadence),
    ("store/run/mod.rs", "PLACES", Place),
    ("store/run/reach.rs", "REACH", Cadence),
    ("store/settled.rs", "SETTLED", Cadence),
    ("store/tally.rs", "PACES", Cadence),
    ("store/task.rs", "PLACES", Place),
    ("wake/notes.rs", "NOTES", UnderWay),
    ("wake/notes.rs", "STAYS", UnderWay),
    ("wake/owed.rs", "OWED", UnderWay),
    ("wake/registered.rs", "REGISTERED", UnderWay),
    ("wake/waiters.rs", "PASSED_OVER", UnderWay),
];

/// The names of the variables that a file declares for each thread: between the macro's braces, a line each.
fn declared(text: &str) -> Vec<String> {
    let (mut found, mut end) = (Vec::new(), None);
    for (_, line) in code(text) {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with("thread_local! {") {
            end = Some(indent);
        } else if line.trim() == "}" && end == Some(indent) {
            end = None;
        } else if let (Some(_), Some((_, name))) = (end, line.split_once("static ")) {
            found.extend(name.split(':').next().map(str::to_owned));
        }
    }
    found
}

#[test]
fn what_a_session_remembers_is_in_one_variable() {
    let mut found = BTreeSet::new();
    for file in files() {
        let path = file.path.display().to_string();
        found.extend(declared(&file.text).into_iter().map(|name| (path.clone(), name)));
    }
    let listed: BTreeSet<(String, String)> =
        VARIABLES.iter().map(|(file, name, _)| ((*file).to_owned(), (*name).to_owned())).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "a copy of what the tables hold, or a hint, belongs to src/memory: {new:?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "these are not there any more: {gone:?}");
    assert_eq!(VARIABLES.iter().filter(|(_, _, kind)| *kind == Memory).count(), 1);
}

#[test]
fn variables_are_seen() {
    let text = "thread_local! {\n    /// One.\n    static ONE: Cell<u64> = const { Cell::new(0) };\n    static TWO:\n}\nstatic THREE: u8 = 0;";
    assert_eq!(declared(text), ["ONE", "TWO"]);
}
