//! The queue's own tables, row by row: found by index, changed where they lie, without a statement.
//!
//! A statement that is planned once still has to be started and ended, and that costs more than the rows of a single task
//! do. Here a row is found by a descent into an index, and changed, inserted or removed by the entry points
//! of the table access method: the same that statements end in, with the same locks, snapshots and records.
//!
//! **Some of what statements do besides is done here.** A [`Look`] takes a snapshot that sees what this transaction has written
//! so far. A change is refused where the transaction is read-only. A new version of a row that is not heap-only gets its
//! index entries, partial indexes by their conditions. A value is compared with its column's type, and a NULL with its
//! constraint. CHECK constraints, triggers and rights are *not* checked: the tables are the queue's own, what is written
//! comes from its code, and the rights of callers are checked elsewhere.
//!
//! **A result that is not "done" is a value** ([`Change`]): another transaction has the row, or has changed it. Of these
//! functions only [`Row::locked`] makes an error of that, a serialization failure above READ COMMITTED.
//!
//! **Nothing outlives what it needs.** Snapshot, tables and scans exist inside the closures that use them. If a
//! subtransaction is rolled back in there, what was begun in it is taken away; so each step of a scan and each change of a
//! row asks whether it is at the same level as where the scan was begun.

mod change;
mod columns;
mod declared;
mod each;
mod indexes;
mod insert;
mod look;
mod open;
mod places;
mod scan;
mod steps;

pub(crate) use change::{Change, LockStrength, Wait};
pub(crate) use columns::{Column, Set, table};
pub(crate) use declared::{Has, Index, Partial, Table};
pub(crate) use each::Number;
pub(crate) use insert::{insert, insert_unless_there};
pub(crate) use look::{Look, look};
pub(crate) use open::{file_of, hold, pages_of};
pub(crate) use places::Places;
pub(crate) use scan::{Key, Row, Scan};
