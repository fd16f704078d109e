//! What a claim remembers of where the ready tasks begin, and what it walks over.

mod bounded;
mod dead_entries;
mod decoding;
mod lately;
mod many_actions;
mod marks;
mod marks_disturbed;
mod old_snapshot;
mod open_transactions;
mod rewritten;
