//! How an insertion handles what is there already, and what is not.

use crate::error::Result;
use crate::words::word;

/// What happens to a task whose id exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    Error,
    Replace,
    Skip,
}

/// How a call wants its conflicts handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// What happens to a task whose id exists.
    pub(crate) on_conflict: OnConflict,
    /// Dependencies on tasks that do not exist are left out instead of refused.
    pub(crate) ignore_missing: bool,
}

impl Options {
    /// From the texts of the arguments.
    pub(crate) fn parse(on_conflict: Option<&str>, if_missing: Option<&str>) -> Result<Self> {
        let on_conflict = match word("on_conflict", on_conflict, &["error", "skip"])? {
            "skip" => OnConflict::Skip,
            _ => OnConflict::Error,
        };
        Ok(Options { on_conflict, ignore_missing: parse_if_missing(if_missing)? })
    }
}

/// Whether `if_missing` says to ignore.
pub(crate) fn parse_if_missing(if_missing: Option<&str>) -> Result<bool> {
    Ok(word("if_missing", if_missing, &["error", "ignore"])? == "ignore")
}
