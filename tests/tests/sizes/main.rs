//! What reads whole tables does so in time that grows with them, whatever the planner's statistics say.

mod stale;
