//! `update_tasks`: what has yet to begin is changed in place.
//!
//! An update that replaces tasks aborts their dependents; one that writes into the row that a claim reads lets that claim
//! hand out what was there before; one that keeps a place which others have passed strands the task. All fail here.

mod concurrent;
mod filters;
mod places;
mod refusals;
