//! The table `workgroup`: until when workgroups are held back. What counts is the latest time of the rows of a name.
//!
//! **A return waits for no other one.** It removes those rows of returns that it is later than and that no transaction has locked, and
//! appends one. An operator has one row for each name, and so waits for another operator. There are two rows of a name at most;
//! while a transaction that has removed one stays open, there are more.

use crate::pg::clock::Time;
use crate::pg::statement::Statement;

/// Makes the operators' row, or locks the one that is there, and changes nothing then; waits for a transaction that is making
/// it or has it locked.
pub(crate) static ADD: Statement<(&str, Time)> = Statement::new(
    c"INSERT INTO taskq.workgroup AS w (name, not_before, returned) VALUES ($1, $2, false)
      ON CONFLICT (name) WHERE NOT returned DO UPDATE SET not_before = EXCLUDED.not_before WHERE false",
);

/// Holds the workgroup back until this time, whatever operators have set before.
pub(crate) static SET: Statement<(&str, Time)> =
    Statement::new(c"UPDATE taskq.workgroup w SET not_before = $2 WHERE w.name = $1 AND NOT w.returned");

/// Removes what returns have left of a workgroup, and tells their times; waits for transactions that remove one.
pub(crate) static REMOVE_RETURNED: Statement<&str, Time> =
    Statement::new(c"DELETE FROM taskq.workgroup w WHERE w.name = $1 AND w.returned RETURNING w.not_before");

/// Holds each of the workgroups back until its time at least: a later one that was set before stays.
pub(crate) static DELAY_FURTHER: Statement<(&[&str], &[Time])> = Statement::new(
    c"WITH given AS MATERIALIZED (
          SELECT g.name, g.until FROM unnest($1, $2) AS g(name, until)
           WHERE NOT EXISTS (SELECT FROM taskq.workgroup w WHERE w.name = g.name AND w.not_before >= g.until OFFSET 0)),
      earlier AS MATERIALIZED (
          SELECT w.ctid AS at FROM taskq.workgroup w
           WHERE w.name = ANY (ARRAY(SELECT g.name FROM given g)) AND w.returned FOR UPDATE SKIP LOCKED),
      gone AS (DELETE FROM taskq.workgroup w WHERE w.ctid = ANY (ARRAY(SELECT e.at FROM earlier e)))
      INSERT INTO taskq.workgroup (name, not_before, returned) SELECT g.name, g.until, true FROM given g",
);
