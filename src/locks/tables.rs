//! The tables, as things that can be locked as a whole.

use crate::pg::statement::Statement;

/// An execution of a plan locks all tables that it names, also where there is nothing to read.
static HOLD: Statement<()> = Statement::new(
    c"          SELECT FROM taskq.action WHERE false
      UNION ALL SELECT FROM taskq.action_setting WHERE false
      UNION ALL SELECT FROM taskq.task WHERE false
      UNION ALL SELECT FROM taskq.run WHERE false
      UNION ALL SELECT FROM taskq.blocked WHERE false
      UNION ALL SELECT FROM taskq.scheduled WHERE false
      UNION ALL SELECT FROM taskq.parked WHERE false
      UNION ALL SELECT FROM taskq.settled WHERE false
      UNION ALL SELECT FROM taskq.dependency WHERE false
      UNION ALL SELECT FROM taskq.countdown WHERE false
      UNION ALL SELECT FROM taskq.lease WHERE false
      UNION ALL SELECT FROM taskq.progress WHERE false
      UNION ALL SELECT FROM taskq.schedule WHERE false
      UNION ALL SELECT FROM taskq.slot WHERE false
      UNION ALL SELECT FROM taskq.bucket WHERE false
      UNION ALL SELECT FROM taskq.expiry WHERE false
      UNION ALL SELECT FROM taskq.task_group WHERE false",
);

/// Keeps other sessions from locking exclusively the tables in which waiting calls look for what is ready or due, until the
/// transaction, or the subtransaction of the look, ends. It waits for a session that has such a lock (autovacuum has one while it
/// cuts empty pages off). Those of workgroups and merge keys, which say what keeps an entry back, are not among them: a look
/// that has to wait for these is made again, soon.
///
/// To be called at the beginning of a look, before its snapshot is taken. A look that had to wait for such a lock would miss what
/// is committed meanwhile: its snapshot is older, and Postgres resets the latch while it waits.
pub(crate) fn hold() {
    HOLD.execute(());
}
