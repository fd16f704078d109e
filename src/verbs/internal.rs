//! Functions that the extension itself calls, in its statements, views and functions or right before a commit; and the clock, and
//! what a session remembers.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use crate::clock;
use crate::ends::before_commit;
use crate::error::or_throw;
use crate::memory;
use crate::pg::clock::{Time, Wall};
use crate::pg::rows::Rows;
use crate::pg::session;
use crate::store::lease::tidy;
use crate::words::words;
use crate::{rights, settle};

/// `taskq.clock() -> timestamptz`: now, by the queue's clock.
#[pg_extern(sql = "")]
fn taskq_clock() -> Option<TimestampWithTimeZone> {
    timestamp(clock::now())
}

/// `taskq._check_words(argument text, given text[], known text[]) -> void`: refuses a word that is not known.
#[pg_extern(sql = "")]
fn taskq_check_words(argument: &str, given: Vec<Option<String>>, known: Vec<Option<String>>) {
    let known: Vec<&str> = known.iter().flatten().map(String::as_str).collect();
    or_throw(words(argument, given, &known));
}

/// `taskq._before_commit() -> void`: the last look at deferred signals.
#[pg_extern(sql = "")]
fn taskq_before_commit() {
    rights::for_no_caller(settle::commit::before_commit);
}

/// `taskq._tidy_before_commit() -> void`: what could wait for the end of the transaction.
#[pg_extern(sql = "")]
fn taskq_tidy_before_commit() {
    rights::for_no_caller(|| {
        let work = before_commit::take();
        // It may have become so after the call. What is to be done can wait, and the commit must not fail for it.
        if !session::is_read_only() {
            tidy::hand_on(work.leases);
        }
    });
}

/// `taskq._session() -> TABLE (memory, entries, valid_until, version)`: what this session remembers of the queue.
#[pg_extern(sql = "")]
fn taskq_session() -> Rows<(String, i64, Option<Wall>, Option<i64>)> {
    let shown = memory::shown().into_iter();
    let rows = shown.map(|(name, held)| (name.to_owned(), held.entries as i64, held.until, held.version));
    Rows(rows.collect())
}

fn timestamp(at: Time) -> Option<TimestampWithTimeZone> {
    TimestampWithTimeZone::try_from(at.0).ok()
}
