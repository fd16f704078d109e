//! `insert_task`, `insert_tasks` and `insert_many`: what is stored, which dependencies count, and what is left alone.

mod bulk;
mod dependencies;
mod direct;
mod json_bodies;
mod many;
mod meanwhile;
mod modes;
mod settled;
mod shapes;
mod times;
mod unique;
mod unique_arrays;
mod unique_model;
mod unique_one_by_one;
mod unique_others;
mod unique_pairs;
mod unique_races;
mod unique_random;
mod unique_replace;
