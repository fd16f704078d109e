//! pg_dump and pg_restore carry every task, and work goes on afterwards; DROP EXTENSION leaves nothing behind.
//!
//! Rows of an extension's tables are dumped only if they are registered, and so are the values of its sequences: a
//! queue that forgets either comes back empty, or dies of duplicate keys at the first insert.

mod drop;
mod round_trip;
