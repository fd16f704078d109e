//! `own_tasks` and `extend_tasks_ownership`: who gets what, in which order, for how long, and how often.

mod exclusive;
mod exhaustion;
mod lease;
mod marks;
mod marks_disturbed;
mod open_transactions;
mod order;
mod ready;
mod spin;
mod tries;
mod wait;
