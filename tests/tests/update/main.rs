//! `update_tasks`: a task that has not started is changed in place.
//!
//! An update that replaces tasks aborts their dependents; one that writes into the row that a claim reads lets that claim
//! hand out what was there before; one that keeps a place which others have passed strands the task. All fail here.

mod concurrent;
mod filters;
mod places;
mod refusals;
