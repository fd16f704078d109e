//! The table `bucket`: actions with a rate limit, what was left and when.

use crate::pg::clock::Time;
use crate::pg::statement::{Statement, sql};

/// The last in the index, so that dead versions are not walked over: each change takes a new position, and only one row
/// of an action is not dead.
macro_rules! the_bucket {
    () => {
        "b.name = $1 AND b.position = (SELECT p.position FROM taskq.bucket p WHERE p.name = $1
                                        ORDER BY p.position DESC LIMIT 1)"
    };
}

/// Locks the bucket: its level, and when that was measured. No row: there is none, or another transaction has it.
pub(crate) static LOCK: Statement<&str, (f64, Time)> = Statement::new(sql!(
    "SELECT b.level, b.measured_at FROM taskq.bucket b WHERE ",
    the_bucket!(),
    " FOR UPDATE SKIP LOCKED"
));

/// Writes the level, in grants, and when it was measured.
pub(crate) static POUR: Statement<(&str, f64, Time)> = Statement::new(sql!(
    "UPDATE taskq.bucket b
            SET level = $2, measured_at = $3,
                position = pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass)
          WHERE ",
    the_bucket!()
));

/// The same, but waits for a transaction that has it.
pub(crate) static AWAIT: Statement<&str, (f64, Time)> = Statement::new(sql!(
    "SELECT b.level, b.measured_at FROM taskq.bucket b WHERE ",
    the_bucket!(),
    " FOR UPDATE"
));

/// Makes the bucket of an action that has none: its level, in grants, and when it was measured.
pub(crate) static MAKE: Statement<(&str, f64, Time)> =
    Statement::new(c"INSERT INTO taskq.bucket (name, level, measured_at) VALUES ($1, $2, $3)");

/// Removes the bucket of an action that has no rate any more.
pub(crate) static REMOVE: Statement<&str> = Statement::new(c"DELETE FROM taskq.bucket b WHERE b.name = $1");

/// Its level, in grants, and when that was measured. Locks nothing.
pub(crate) static PEEK: Statement<&str, (f64, Time)> =
    Statement::new(sql!("SELECT b.level, b.measured_at FROM taskq.bucket b WHERE ", the_bucket!()));
