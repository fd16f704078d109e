//! The books against the database: everything that is there was done by a call that knows of it, and everything that was
//! acknowledged is there.
//!
//! What a client knows is bracketed by two moments, when it sent the call and when it had the answer; a rule only complains
//! where no moment between them could be right. A call whose answer was lost may have happened or not, but as a whole, and
//! what is in the database decides. Each rule has tests that give it books that are wrong ([`tests`]).

mod edges;
mod ends;
mod entries;
mod grants;
mod holds;
mod limits;
mod rate;
mod schedules;
mod tests;
mod view;

use std::path::Path;

use crate::book::{self, Call};
use crate::state::State;
use view::View;

/// A rule, and its name.
type Rule = (&'static str, fn(&View) -> Vec<String>);

const RULES: [Rule; 16] = [
    ("inserted", entries::inserted),
    ("all or nothing", entries::all_or_nothing),
    ("left over", ends::left_over),
    ("tokens", grants::tokens),
    ("grants are there", grants::are_there),
    ("grants are known", grants::are_known),
    ("tries", grants::tries),
    ("ends are there", ends::are_there),
    ("ends are known", ends::are_known),
    ("ends that were seen", ends::were_seen),
    ("refused for a reason", ends::refused_for_a_reason),
    ("stale tokens", holds::stale_tokens),
    ("at most at once", limits::at_most_at_once),
    ("rate", rate::not_exceeded),
    ("dependencies", edges::kept),
    ("schedules", schedules::do_not_overlap),
];

/// So many findings of a rule are told.
const TOLD: usize = 25;

pub fn audit(calls: &[Call], state: &State) -> Vec<String> {
    let view = View::new(calls, state);
    let mut all = Vec::new();
    for (name, rule) in RULES {
        let found = rule(&view);
        let more = found.len().saturating_sub(TOLD);
        all.extend(found.into_iter().take(TOLD).map(|found| format!("{name}: {found}")));
        if more > 0 {
            all.push(format!("{name}: and {more} more"));
        }
    }
    all
}

/// Audits the files of a run.
pub fn audit_folder(folder: &Path) -> Vec<String> {
    let mut calls = Vec::new();
    book::read(folder, |call| calls.push(call));
    audit(&calls, &State::read(folder))
}
