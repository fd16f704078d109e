//! `own_tasks` and `extend_tasks_ownership`: who gets what, in which order, for how long, and how often.

mod bounded;
mod contradictions;
mod dead_entries;
mod decoding;
mod direct;
mod exclusive;
mod exhaustion;
mod hostages;
mod lanes;
mod lately;
mod lease;
mod lease_rows;
mod locked_leases;
mod many_actions;
mod marks;
mod marks_disturbed;
mod old_snapshot;
mod open_transactions;
mod order;
mod places;
mod ready;
mod rewritten;
mod spin;
mod tries;
mod upkeep_waits_for_nobody;
mod wait;
