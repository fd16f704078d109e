//! Looking at graphs: read-only, with one snapshot per level.

mod paths;
mod picture;
mod walk;
