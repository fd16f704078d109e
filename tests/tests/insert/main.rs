//! `insert_task` and `insert_tasks`: what is stored, which dependencies count, and what is left alone.

mod bulk;
mod dependencies;
mod json_bodies;
mod modes;
mod settled;
mod shapes;
mod times;
mod unique;
mod unique_others;
mod unique_races;
mod unique_replace;
