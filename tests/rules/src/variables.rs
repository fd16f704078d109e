//! What a session believes of the queue is in one variable (`src/memory`). All others are listed here, whatever they are declared
//! with, by name or by type, each with what it is instead.

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
    /// What the catalog says, not the queue: as of a change of it, and asked again after the next one that the server tells of.
    Catalog,
    /// What belongs to the server or to the process: plans, settings, hooks, callbacks, random numbers.
    Handle,
    /// It does not change.
    Constant,
}
use Kind::{Cadence, Catalog, Constant, Handle, Memory, Place, UnderWay};

/// Types of which there are many, by the first word of a declaration.
const TYPES: [(&str, Kind); 15] = [
    // Whose they are; what they hold is in the one variable.
    ("Memory", Memory),
    ("$crate::pg::table::Table", Catalog),
    ("Changes", Catalog),
    ("Index", Catalog),
    ("Named", Catalog),
    ("Table", Catalog),
    ("TableChanges", Catalog),
    ("GucSetting", Handle),
    ("Lock", Handle),
    ("Statement", Handle),
    ("[Field", Constant),
    ("Listener", Constant),
    ("Object", Constant),
    ("Rule", Constant),
    ("[Rule", Constant),
];

/// All of them, by file.
const VARIABLES: [(&str, &str, Kind); 41] = [
    ("background/call.rs", "IN_STEPS", UnderWay),
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
    ("pg/fit.rs", "FITS", Catalog),
    ("pg/memory.rs", "ALLOCATOR", Handle),
    ("pg/memory.rs", "ENDING", Handle),
    ("pg/memory.rs", "END_SESSION", Handle),
    ("pg/planner.rs", "BEFORE_US", Handle),
    ("pg/planner.rs", "LOOKS_UP", UnderWay),
    ("pg/search_path.rs", "CALL", UnderWay),
    ("pg/session.rs", "RANDOM_LEFT", Handle),
    ("pg/session.rs", "max_prepared_xacts", Handle),
    ("pg/statement/prepared.rs", "KEPT", Handle),
    ("pg/subtransaction.rs", "ERROR_UNDER_WAY", UnderWay),
    ("pg/subtransaction.rs", "NESTED", UnderWay),
    ("pg/table/columns.rs", "PARTIAL", Constant),
    ("pg/transaction.rs", "LISTENERS", Handle),
    ("pg/wait_event.rs", "EVENTS", Handle),
    ("rights.rs", "CALL", UnderWay),
    ("settle/fold.rs", "AT", Cadence),
    ("store/lease/mod.rs", "PLACES", Place),
    ("store/lease/tidy.rs", "APPENDED", Cadence),
    ("store/run/mod.rs", "PLACES", Place),
    ("store/run/reach.rs", "REACH", Cadence),
    ("store/tally.rs", "PACES", Cadence),
    ("store/task.rs", "PLACES", Place),
    ("verbs/look/page.rs", "TABLES", Constant),
    ("verbs/own/look.rs", "CUT_OFF", Cadence),
    ("wake/notes.rs", "NOTES", UnderWay),
    ("wake/notes.rs", "STAYS", UnderWay),
    ("wake/owed.rs", "OWED", UnderWay),
    ("wake/registered.rs", "REGISTERED", UnderWay),
    ("wake/waiters.rs", "PASSED_OVER", UnderWay),
];

/// The variables that a file declares: the name of each, and the first word of its type.
fn declared(text: &str) -> impl Iterator<Item = (&str, &str)> {
    code(text).filter_map(|(_, line)| {
        let (before, line) = line.trim_start().split_once("static ")?;
        let is_one = ["", "pub "].contains(&before) || before.starts_with("pub(") && before.ends_with(") ");
        let (name, of) = line.strip_prefix("mut ").unwrap_or(line).split_once(':').filter(|_| is_one)?;
        Some((name, of.trim_start().split(['<', ' ', ';', '=']).next().unwrap_or_default()))
    })
}

#[test]
fn what_a_session_remembers_is_in_one_variable() {
    let (mut found, mut of_types) = (BTreeSet::new(), BTreeSet::new());
    for file in files() {
        let path = file.path.display().to_string();
        for (name, of) in declared(&file.text) {
            match TYPES.iter().find(|(known, _)| *known == of) {
                Some((known, _)) => drop(of_types.insert(*known)),
                None => drop(found.insert((path.clone(), name.to_owned()))),
            }
        }
    }
    let listed: BTreeSet<(String, String)> =
        VARIABLES.iter().map(|(file, name, _)| ((*file).to_owned(), (*name).to_owned())).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "a copy of what the tables hold, or a hint, belongs to src/memory: {new:?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "these are not there any more: {gone:?}");
    assert_eq!(of_types.len(), TYPES.len(), "there are variables of these types only: {of_types:?}");
    assert_eq!(VARIABLES.iter().filter(|(_, _, kind)| *kind == Memory).count(), 1);
}

#[test]
fn variables_are_seen() {
    let text = "thread_local! {\n    /// One.\n    static ONE: Cell<u64> = const { Cell::new(0) };\n}\
                \npub(in crate::a) static TWO: u8 = 0;\npub static mut THREE: [Rule; 2] = x;\
                \nfn f(x: &'static str) {}\n// static FOUR: u8 = 0;\nstatic FIVE:\n    u8 = 0;";
    let found: Vec<_> = declared(text).collect();
    assert_eq!(found, [("ONE", "Cell"), ("TWO", "u8"), ("THREE", "[Rule"), ("FIVE", "")]);
}
