//! Slots: the places that a limit of concurrency allows, over all sessions together.
//!
//! A slot is a row that a grant takes with SKIP LOCKED and changes in its own transaction: a rolled-back grant has
//! taken nothing, and no two grants take the same. It belongs to the performance that occupies it and is freed by
//! whatever ends that: there is no counter that could drift.
//!
//! **Slots of groups are made when they are needed**, mostly by a claim that finds fewer rows than the limit. It makes them
//! under a lock that it only tries, so that no claim waits for another's insert. A claim that does not get the lock takes
//! the limit for full; a waiting call may be woken when the holder commits, and besides looks again unasked. The
//! holder of the lock counts the rows with a snapshot taken after it got the lock, so it makes no more than the limit
//! allows. There are few such locks, each for many groups: one transaction that sets limits for a hundred thousand groups
//! holds no more than there are, and the server's lock table has room for others. (Two claims that share a lock by chance
//! have to make slots one after the other.)
//!
//! **Free slots are in a queue.** A slot that is freed takes a position at the end, and claims take the first. If it
//! were updated in place, its dead versions would be between a claim and the free one; at the end of the queue claims
//! have passed them, see [`known`]. A row for each performance, made and removed with it, would do the same, but a
//! claim would have to count them while others make some. To remember where the live versions are helps only the
//! backend that was the last to change them.

mod ask;
pub(crate) mod backfill;
mod concerned;
mod free;
mod full_lanes;
pub(crate) mod known;
mod limit;

use crate::number::{Position, TaskNo};
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;
use crate::store::live_row::Live;
pub(crate) use ask::Ask;
pub(crate) use concerned::{concerned, wake};
pub(crate) use free::{any_free, lock_free};
pub(crate) use full_lanes::full_lanes;
use limit::lockable;
pub(crate) use limit::{Limit, MOST_SLOTS, keep_from_making};

/// A slot that this transaction has locked, and whose it is to be.
pub(crate) struct Assignment<'a> {
    /// The limit that the slot is of.
    pub(crate) limit: &'a Limit,
    /// That of no other slot.
    pub(crate) position: Position,
    /// The task whose performance occupies it.
    pub(crate) task_no: TaskNo,
}

/// One look-up in `slot_free_idx` for each: an equality would not need its order, and could go by the primary key,
/// which has all positions of a limit to be walked over.
static OCCUPY: Statement<(&[&str], &[&str], &[Position], &[TaskNo])> = Statement::new(
    c"UPDATE taskq.slot s SET task_no = u.task_no
        FROM (SELECT u.task_no, f.ctid
                FROM unnest($1, $2, $3, $4) AS u(group_id, name, position, task_no)
               CROSS JOIN LATERAL (
                     SELECT f.ctid FROM taskq.slot f
                      WHERE f.group_id = u.group_id AND f.name = u.name AND f.task_no IS NULL
                        AND f.position >= u.position AND f.position <= u.position
                      ORDER BY f.position LIMIT 1) AS f
              OFFSET 0) AS u
       WHERE s.ctid = u.ctid",
);

/// Gives slots to performances.
pub(crate) fn occupy(assigned: &[Assignment]) {
    if assigned.is_empty() {
        return;
    }
    OCCUPY.execute((
        assigned.iter().map(|s| s.limit.group.clone()).collect::<Vec<_>>(),
        assigned.iter().map(|s| s.limit.action.clone()).collect::<Vec<_>>(),
        assigned.iter().map(|s| s.position).collect::<Vec<_>>(),
        assigned.iter().map(|s| s.task_no).collect::<Vec<_>>(),
    ));
}

static RELEASE: Statement<&[TaskNo], (String, String)> = Statement::new(
    c"UPDATE taskq.slot s
         SET task_no = NULL, position = pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass)
       WHERE s.task_no = ANY ($1) RETURNING s.group_id, s.name",
);

/// Frees all slots of performances that have ended, and has a waiting call woken for each and each action concerned.
pub(crate) fn release<'a>(ended: impl Iterator<Item = &'a Live>) {
    let task_nos: Vec<TaskNo> = ended.filter(|live| live.limited).map(|live| live.task_no).collect();
    if task_nos.is_empty() {
        return;
    }
    assign_transaction_id();
    for limit in RELEASE.map(task_nos, |(group, action)| Limit { group, action }) {
        wake(&limit);
    }
}

/// Limits of groups that have slots, and no tasks.
static UNUSED: Statement<&[&str], (String, String)> = Statement::new(
    c"SELECT DISTINCT s.group_id, s.name FROM taskq.slot s
       WHERE s.group_id = ANY ($1) AND s.group_id <> ''
         AND NOT EXISTS (SELECT FROM taskq.task t WHERE t.group_id = s.group_id OFFSET 0)",
);
static TIDY: Statement<(&str, &str)> = Statement::new(
    c"DELETE FROM taskq.slot d
       WHERE d.ctid = ANY (ARRAY(SELECT s.ctid FROM taskq.slot s
                                  WHERE s.group_id = $1 AND s.name = $2 AND s.task_no IS NULL
                                    FOR UPDATE SKIP LOCKED))",
);

/// Removes the slots of groups that have no tasks any more; waits for no lock. Slots that another transaction is
/// using just now, and those of limits that it cannot lock, stay until another task of the group goes.
pub(crate) fn tidy(groups: &[String]) {
    if groups.is_empty() {
        return;
    }
    let unused: Vec<Limit> = UNUSED.map(groups.to_vec(), |(group, action)| Limit { group, action });
    for place in lockable(&unused.iter().collect::<Vec<_>>()) {
        TIDY.execute((unused[place].group.clone(), unused[place].action.clone()));
    }
}

/// Removes the free slots of all limits of an action.
pub(crate) static REMOVE_FREE: Statement<&str> =
    Statement::new(c"DELETE FROM taskq.slot l WHERE l.name = $1 AND l.task_no IS NULL");
