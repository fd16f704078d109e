//! Looking: read-only. Graphs are read with one snapshot per level, numbers with one for all.

mod code;
mod metrics;
mod page;
mod paths;
mod picture;
mod walk;
