//! How many tasks each group has, and how many of them have ended, so that progress can be polled whatever
//! the size of the group.
//!
//! **No row that all update.** Whoever changes one of these numbers appends a row with the difference, and
//! waits for nobody; the number is the sum. Rows are never updated, only folded: now and then somebody takes
//! the rows of a group that nobody else holds (SKIP LOCKED), and puts their sum in their place in one
//! transaction, so every snapshot has either the rows or the sum. Tasks without a group cost nothing.
//!
//! What has settled is kept apart for some minutes by the time at which it did, for the pace.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::is_read_committed;
use crate::pg::statement::Statement;
use crate::state::Outcome;

/// What changes in the numbers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) tasks: i64,
    pub(crate) completed: i64,
    pub(crate) aborted: i64,
}

impl Change {
    fn add(&mut self, outcome: Outcome, number: i64) {
        match outcome {
            Outcome::Completed => self.completed += number,
            Outcome::Aborted => self.aborted += number,
        }
    }
}

static APPEND: Statement<(&[&str], &[i64], &[i64], &[i64], Time)> = Statement::new(
    c"INSERT INTO taskq.group_tally (group_id, folded, tasks, completed, aborted, span, first_at, last_at)
      SELECT u.group_id, false, u.tasks, u.completed, u.aborted, '-infinity',
             CASE WHEN u.tasks > 0 THEN $5 ELSE 'infinity' END, '-infinity'
        FROM unnest($1, $2, $3, $4) AS u(group_id, tasks, completed, aborted)",
);

/// By the groups of tasks, which have to be looked up; those without one are left out.
static APPEND_FOR: Statement<(&[TaskNo], &[i64], &[i64], bool, Time), String> = Statement::new(
    c"INSERT INTO taskq.group_tally (group_id, folded, tasks, completed, aborted, span, first_at, last_at)
      SELECT t.group_id, false, 0, pg_catalog.sum(u.completed), pg_catalog.sum(u.aborted),
             CASE WHEN $4 THEN pg_catalog.date_bin('10 seconds', $5, '2000-01-01') ELSE '-infinity' END,
             'infinity', CASE WHEN $4 THEN $5 ELSE '-infinity' END
        FROM unnest($1, $2, $3) AS u(task_no, completed, aborted)
       CROSS JOIN LATERAL (SELECT t.group_id FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
       WHERE t.group_id IS NOT NULL
       GROUP BY t.group_id
      RETURNING group_id",
);

/// Tasks of groups were inserted.
pub(crate) fn inserted<'a>(groups: impl Iterator<Item = &'a str>, now: Time) {
    let mut changes: BTreeMap<&str, Change> = BTreeMap::new();
    for group in groups {
        changes.entry(group).or_default().tasks += 1;
    }
    append(&changes, now);
}

/// Tasks have been removed, from these groups; each had this end, if it had one.
pub(crate) fn removed<'a>(tasks: impl Iterator<Item = (&'a str, Option<Outcome>)>, now: Time) {
    let mut changes: BTreeMap<&str, Change> = BTreeMap::new();
    for (group, outcome) in tasks {
        let change = changes.entry(group).or_default();
        change.tasks -= 1;
        if let Some(outcome) = outcome {
            change.add(outcome, -1);
        }
    }
    append(&changes, now);
    // Groups whose last task has gone leave nothing behind.
    fold(&changes.keys().map(|group| (*group).to_owned()).collect(), now);
}

fn append(changes: &BTreeMap<&str, Change>, now: Time) {
    if !changes.is_empty() {
        APPEND.execute((
            changes.keys().copied().collect::<Vec<_>>(),
            changes.values().map(|c| c.tasks).collect::<Vec<_>>(),
            changes.values().map(|c| c.completed).collect::<Vec<_>>(),
            changes.values().map(|c| c.aborted).collect::<Vec<_>>(),
            now,
        ));
    }
}

/// Tasks that may have groups have settled.
pub(crate) fn settled(ends: &[(TaskNo, Outcome)], now: Time) {
    append_for(ends, 1, now);
}

/// Settled tasks that may have groups have come back to life.
pub(crate) fn revived(ends: &[(TaskNo, Outcome)], now: Time) {
    append_for(ends, -1, now);
}

thread_local! {
    /// How many more times until this backend folds.
    static UNTIL_FOLD: Cell<u32> = const { Cell::new(OFTEN) };
}

/// One in so many calls that append for tasks folds. The others leave rows that a poll has to read.
const OFTEN: u32 = 50;

fn append_for(ends: &[(TaskNo, Outcome)], number: i64, now: Time) {
    if ends.is_empty() {
        return;
    }
    let of = |outcome| ends.iter().map(|(_, o)| if *o == outcome { number } else { 0 }).collect::<Vec<_>>();
    let groups: BTreeSet<String> = APPEND_FOR
        .query((
            ends.iter().map(|(task_no, _)| *task_no).collect::<Vec<_>>(),
            of(Outcome::Completed),
            of(Outcome::Aborted),
            number > 0,
            now,
        ))
        .into_iter()
        .collect();
    if !groups.is_empty() {
        let left = UNTIL_FOLD.get().saturating_sub(1);
        UNTIL_FOLD.set(if left == 0 { OFTEN } else { left });
        if left == 0 {
            fold(&groups, now);
        }
    }
}

/// How many rows one fold takes.
const MOST: i32 = 2000;

/// How long what has settled is kept apart by its time. sql/views.sql has the same number.
const RECENT: Duration = Duration::from_secs(600);

/// Takes rows that nobody else holds, and puts their sums in their place.
static FOLD: Statement<(&str, i32, Time), i64> = Statement::new(
    c"WITH taken AS (
        DELETE FROM taskq.group_tally d
         WHERE d.ctid = ANY (ARRAY(
                 SELECT g.ctid FROM taskq.group_tally g
                  WHERE g.folded IN (false, true) AND g.group_id = $1
                  LIMIT $2 FOR UPDATE SKIP LOCKED))
        RETURNING d.tasks, d.completed, d.aborted, d.first_at, d.last_at,
                  CASE WHEN d.span < $3 THEN '-infinity' ELSE d.span END AS span),
      summed AS (
        INSERT INTO taskq.group_tally (group_id, folded, tasks, completed, aborted, span, first_at, last_at)
        SELECT $1, true, pg_catalog.sum(t.tasks), pg_catalog.sum(t.completed), pg_catalog.sum(t.aborted), t.span,
               pg_catalog.min(t.first_at), pg_catalog.max(t.last_at)
          FROM taken AS t
         -- What comes to nothing altogether leaves nothing, whatever its spans.
         WHERE EXISTS (SELECT FROM taken AS a HAVING pg_catalog.sum(a.tasks) <> 0 OR pg_catalog.sum(a.completed) <> 0
                                                  OR pg_catalog.sum(a.aborted) <> 0)
         GROUP BY t.span
        HAVING pg_catalog.sum(t.tasks) <> 0 OR pg_catalog.sum(t.completed) <> 0 OR pg_catalog.sum(t.aborted) <> 0)
      SELECT pg_catalog.count(*) FROM taken",
);

/// Folds what there is of these groups; returns how many rows that took.
///
/// Not under REPEATABLE READ and above, where passing over a row that has just gone is an error.
fn fold(groups: &BTreeSet<String>, now: Time) -> i64 {
    if !is_read_committed() {
        return 0;
    }
    let before = now - RECENT;
    let taken = |group: &String| FOLD.first((group.as_str(), MOST, before));
    groups.iter().filter_map(taken).sum()
}

static UNFOLDED: Statement<i32, String> = Statement::new(
    c"SELECT x.group_id
        FROM (SELECT g.group_id FROM taskq.group_tally g WHERE NOT g.folded
               ORDER BY g.group_id LIMIT $1) AS x
       GROUP BY x.group_id",
);

/// Folds up to `bound` rows that nobody has folded yet; whether there were any, and whether there may be more.
pub(crate) fn fold_some(bound: i32, now: Time) -> (bool, bool) {
    let groups: BTreeSet<String> = UNFOLDED.query(bound).into_iter().collect();
    let taken = fold(&groups, now);
    (taken > 0, taken >= i64::from(bound))
}
