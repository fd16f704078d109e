//! Looking: nothing is changed. Graphs are read level by level, each with a snapshot of its own.

mod code;
mod metrics;
mod page;
mod paths;
mod picture;
mod walk;
