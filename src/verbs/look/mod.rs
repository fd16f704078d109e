//! Looking: nothing is changed. A walk through a graph reads it level by level, each level with a snapshot of its own.

mod code;
mod page;
mod picture;
mod walk;
