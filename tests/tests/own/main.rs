//! `own_tasks` and `extend_tasks_ownership`: who gets what, in which order, for how long, and how often.

mod contradictions;
mod direct;
mod exclusive;
mod exhaustion;
mod hostages;
mod lanes;
mod lease;
mod lease_rows;
mod locked_leases;
mod missed;
mod order;
mod places;
mod ready;
mod spin;
mod tries;
mod upkeep_does_not_wait;
mod wait;
