//! The steps of a scan and of an insertion, each behind one guard.
//!
//! pgrx calls functions of the server behind a guard for each call, which turns an error into a panic. A step
//! is one call, or several that come one right after the other, with nothing in between that an error would have to clean
//! up; so one guard does for all of them.
//!
//! **What stands in such a step is plain**: calls of the server's functions, and variables that nothing has to be done
//! for when an error jumps past them. It neither panics nor asks Rust's allocator nor borrows from a cell.

mod bare;
mod insertion;
mod scan;

pub(super) use insertion::{
    add_entries, clear, end_insertion, forget_row, indexes, open_indexes, open_more_indexes,
};
pub(super) use scan::{end, end_scan, next, open, open_index, pages, snapshot, start};
