//! Tallies of what has settled: how many rows `settled` has, those of replaced tasks aside, per action, code and cause, without
//! counting all of them.
//!
//! Settled rows do not change in what is counted until they are removed, revived or made tombstones. So upkeep *seals* the past
//! second by second ([`seal`](crate::store::seal)): what settled before `seal.until` is summed up in `end_tally`. The number at any
//! time, in any snapshot, is
//!
//! * the sum of the rows of `end_tally` whose span begins before `seal.until`,
//! * and the rows of `settled` from `seal.until` on, counted along the index.
//!
//! **A statement that removes settled rows, or makes tombstones of them, appends corrections as well** ([`uncounted`]), so
//! that no transaction waits for another one. A correction is of the second in which its rows settled. Of a second that is not
//! sealed it means nothing: the rows themselves are counted. When the second is sealed, the snapshot that counts its
//! rows sees of a removal either both, the rows gone and the correction, or neither. In the first case the seal takes
//! the correction along, in the second it counts the rows and the correction, once it is committed, takes them off
//! again. Readers see all of this in one snapshot, too.
//!
//! **A second is sealed once no transaction can settle anything in it any more.** A transaction that settles has its id
//! before it reads the clock ([`settling`]). So one that settles in a second that is over has an id that was assigned
//! before the second was over, or the clock has been put back. The seal notices the latter, and begins anew. With the
//! clock that a test has set (`taskq.now`) nothing of this is so: then the rows come with corrections that add them
//! ([`out_of_time`]).

use crate::clock;
use crate::guc;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;

/// The second of a time, as SQL; corrections are of one.
macro_rules! second {
    ($time:literal) => {
        concat!("pg_catalog.date_bin('1 second', ", $time, ", '2000-01-01')")
    };
}
pub(crate) use second;

/// CTEs for a statement whose CTE `$gone` returns the `settled_at`, `action_no`, `code` and `cause` of settled rows
/// that it removes, or makes tombstones: the corrections. What is sealed for good, in the snapshot of this statement,
/// needs no second. (The caller has locked the rows, and so has a transaction id: what `seal` says of that is needed
/// where all begins anew.)
macro_rules! uncounted {
    ($gone:literal) => {
        concat!(
            "uncounted AS (
        INSERT INTO taskq.end_tally (span, action_no, code, cause, number, ended)
        SELECT CASE WHEN g.settled_at < (SELECT e.until FROM taskq.seal e) OPERATOR(pg_catalog.-) '1 hour'::interval
                    THEN '-infinity' ELSE ",
            $crate::store::ends::second!("g.settled_at"),
            " END AS span,
               g.action_no, g.code, g.cause, -pg_catalog.count(*), 0
          FROM ",
            $gone,
            " AS g
         WHERE g.cause <> 'r'
         GROUP BY 1, g.action_no, g.code, g.cause)"
        )
    };
}
pub(crate) use uncounted;

/// The time at which what is about to be stored settles, in a call that began at this time.
pub(crate) fn settling(since: Time) -> Time {
    assign_transaction_id();
    clock::now().max(since)
}

static OUT_OF_TIME: Statement<&[TaskNo]> = Statement::new(
    c"INSERT INTO taskq.end_tally (span, action_no, code, cause, number, ended)
      SELECT pg_catalog.date_bin('1 second', s.settled_at, '2000-01-01') AS span, s.action_no, s.code, s.cause,
             pg_catalog.count(*), pg_catalog.count(*)
        FROM taskq.settled s WHERE s.task_no = ANY ($1) AND s.cause <> 'r'
       GROUP BY 1, s.action_no, s.code, s.cause",
);

/// These tasks have settled. By another clock than the server's, that may be in a second that is sealed.
pub(crate) fn out_of_time(task_nos: impl FnOnce() -> Vec<TaskNo>) {
    if guc::fake_now().is_some() {
        OUT_OF_TIME.execute(task_nos());
    }
}
