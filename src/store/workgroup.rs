//! The table `workgroup`: workgroups that were delayed.

use crate::pg::clock::Time;
use crate::pg::statement::Statement;

/// Makes the row, or locks the one that is there, and changes nothing then; waits for a transaction that is making
/// it or has it locked.
pub(crate) static ADD: Statement<(&str, Time)> = Statement::new(
    c"INSERT INTO taskq.workgroup AS w (name, not_before) VALUES ($1, $2)
      ON CONFLICT (name) DO UPDATE SET not_before = EXCLUDED.not_before WHERE false",
);

/// Holds the workgroup back until this time, whatever was set before.
pub(crate) static SET: Statement<(&str, Time)> =
    Statement::new(c"UPDATE taskq.workgroup w SET not_before = $2 WHERE w.name = $1");

/// Holds each of the workgroups back until its time at least: a later one that was set before stays.
pub(crate) static DELAY_FURTHER: Statement<(&[&str], &[Time])> = Statement::new(
    c"INSERT INTO taskq.workgroup AS w (name, not_before) SELECT * FROM unnest($1, $2)
      ON CONFLICT (name) DO UPDATE SET not_before = GREATEST(w.not_before, EXCLUDED.not_before)",
);
