//! What reads whole tables, or changes very many tasks, does so in time that grows with them, whatever the planner's statistics
//! say.

mod batches;
mod levels;
mod neighbours;
mod one_sided;
mod stale;
