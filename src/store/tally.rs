//! How many tasks each group has, and how many of them have ended, so that progress can be polled whatever
//! the size of the group.
//!
//! **No row that all update.** A call that changes one of these numbers appends a row with the difference,
//! and waits for no other transaction; the number is the sum. Rows are never updated, only folded: now and
//! then a call takes rows of a group that no other transaction holds (SKIP LOCKED), and puts their sums in
//! their place in one transaction, so every snapshot has either the rows or the sum. Tasks without a group
//! have no row here.
//!
//! What has settled is kept apart for some minutes by the time at which it did, for the pace.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::{is_read_committed, transaction_began};
use crate::pg::statement::Statement;
use crate::state::Outcome;

/// What changes in the numbers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// How many more tasks there are; negative: fewer, as for the others.
    pub(crate) tasks: i64,
    /// How many more have completed.
    pub(crate) completed: i64,
    /// How many more have aborted, those that were skipped not counted.
    pub(crate) aborted: i64,
    /// How many more were skipped.
    pub(crate) skipped: i64,
}

/// What groups lose with tasks that go.
#[derive(Debug, Default)]
pub(crate) struct Losses(BTreeMap<String, Change>);

impl Losses {
    /// A task of the group goes; it had this end, if it had one.
    pub(crate) fn add(&mut self, group: String, outcome: Option<Outcome>) {
        let change = self.0.entry(group).or_default();
        change.tasks -= 1;
        if let Some(outcome) = outcome {
            change.add(outcome, -1);
        }
    }

    /// The groups that lose something.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

impl Change {
    fn add(&mut self, outcome: Outcome, number: i64) {
        match outcome {
            Outcome::Completed => self.completed += number,
            Outcome::Aborted => self.aborted += number,
            Outcome::Skipped => self.skipped += number,
        }
    }
}

static APPEND: Statement<(&[&str], &[i64], &[i64], &[i64], &[i64], Time)> = Statement::new(
    c"INSERT INTO taskq.group_tally (group_id, folded, tasks, completed, aborted, skipped, span, first_at, last_at)
      SELECT u.group_id, false, u.tasks, u.completed, u.aborted, u.skipped, '-infinity',
             CASE WHEN u.tasks > 0 THEN $6 ELSE 'infinity' END, '-infinity'
        FROM unnest($1, $2, $3, $4, $5) AS u(group_id, tasks, completed, aborted, skipped)",
);

/// By the groups of tasks, which have to be looked up; those without one are left out.
static APPEND_FOR: Statement<(&[TaskNo], &[i64], &[i64], &[i64], bool, Time), String> = Statement::new(
    c"INSERT INTO taskq.group_tally (group_id, folded, tasks, completed, aborted, skipped, span, first_at, last_at)
      SELECT t.group_id, false, 0, pg_catalog.sum(u.completed), pg_catalog.sum(u.aborted), pg_catalog.sum(u.skipped),
             CASE WHEN $5 THEN pg_catalog.date_bin('10 seconds', $6, '2000-01-01') ELSE '-infinity' END,
             'infinity', CASE WHEN $5 THEN $6 ELSE '-infinity' END
        FROM unnest($1, $2, $3, $4) AS u(task_no, completed, aborted, skipped)
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

/// Tasks have been removed from groups.
pub(crate) fn removed(losses: &Losses, now: Time) {
    if losses.0.is_empty() {
        return;
    }
    append(&losses.0.iter().map(|(group, change)| (group.as_str(), *change)).collect(), now);
    // Groups whose last task has gone are to leave nothing behind.
    if is_due(|paces| &mut paces.on_removal) {
        fold(losses.groups(), now);
    }
}

fn append(changes: &BTreeMap<&str, Change>, now: Time) {
    if !changes.is_empty() {
        APPEND.execute((
            changes.keys().copied().collect::<Vec<_>>(),
            changes.values().map(|c| c.tasks).collect::<Vec<_>>(),
            changes.values().map(|c| c.completed).collect::<Vec<_>>(),
            changes.values().map(|c| c.aborted).collect::<Vec<_>>(),
            changes.values().map(|c| c.skipped).collect::<Vec<_>>(),
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

/// When a backend folds next.
///
/// The dead rows that a transaction's fold leaves are scanned each time it folds again: they cannot be reclaimed before it
/// ends. So each fold of a transaction comes after twice as many calls as the one before.
#[derive(Clone, Copy, Debug)]
struct Pace {
    often: u32,
    /// In which transaction `wait` and `left` were counted.
    transaction: i64,
    /// After how many calls, counted from the last fold.
    wait: u32,
    /// How many calls are left until then.
    left: u32,
}

impl Pace {
    /// One call in `often` folds, of those of a transaction fewer and fewer.
    const fn one_in(often: u32) -> Self {
        Pace { often, transaction: 0, wait: often, left: often }
    }

    /// Counts a call in this transaction; whether it is to fold.
    fn is_due(&mut self, transaction: i64) -> bool {
        if self.transaction != transaction {
            *self = Pace { transaction, wait: self.often, left: self.left.min(self.often), ..*self };
        }
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.wait = self.wait.saturating_mul(2);
        self.left = self.wait;
        true
    }
}

/// How often this backend folds.
struct Paces {
    /// The others leave rows that a poll has to read.
    on_end: Pace,
    on_removal: Pace,
}

thread_local! {
    static PACES: RefCell<Paces> =
        const { RefCell::new(Paces { on_end: Pace::one_in(50), on_removal: Pace::one_in(1) }) };
}

fn is_due(pace: impl FnOnce(&mut Paces) -> &mut Pace) -> bool {
    PACES.with_borrow_mut(|paces| pace(paces).is_due(transaction_began()))
}

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
            of(Outcome::Skipped),
            number > 0,
            now,
        ))
        .into_iter()
        .collect();
    if !groups.is_empty() && is_due(|paces| &mut paces.on_end) {
        fold(groups.iter(), now);
    }
}

/// How many rows of a group one fold takes at most.
const ROWS_OF_A_FOLD: i32 = 2000;

/// How long what has settled is kept apart by its time. sql/views.sql has the same time.
const RECENT: Duration = Duration::from_secs(600);

/// Takes rows that no other transaction holds, and puts their sums in their place.
static FOLD: Statement<(&str, i32, Time), i64> = Statement::new(
    c"WITH taken AS (
        DELETE FROM taskq.group_tally d
         WHERE d.ctid = ANY (ARRAY(
                 SELECT g.ctid FROM taskq.group_tally g
                  WHERE g.folded IN (false, true) AND g.group_id = $1
                  LIMIT $2 FOR UPDATE SKIP LOCKED))
        RETURNING d.tasks, d.completed, d.aborted, d.skipped, d.first_at, d.last_at,
                  CASE WHEN d.span < $3 THEN '-infinity' ELSE d.span END AS span),
      summed AS (
        INSERT INTO taskq.group_tally (group_id, folded, tasks, completed, aborted, skipped, span, first_at, last_at)
        SELECT $1, true, pg_catalog.sum(t.tasks), pg_catalog.sum(t.completed), pg_catalog.sum(t.aborted),
               pg_catalog.sum(t.skipped), t.span, pg_catalog.min(t.first_at), pg_catalog.max(t.last_at)
          FROM taken AS t
         -- What adds up to zero altogether leaves nothing, whatever its spans.
         WHERE EXISTS (SELECT FROM taken AS a HAVING pg_catalog.sum(a.tasks) <> 0 OR pg_catalog.sum(a.completed) <> 0
                                                  OR pg_catalog.sum(a.aborted) <> 0 OR pg_catalog.sum(a.skipped) <> 0)
         GROUP BY t.span
        HAVING pg_catalog.sum(t.tasks) <> 0 OR pg_catalog.sum(t.completed) <> 0 OR pg_catalog.sum(t.aborted) <> 0
            OR pg_catalog.sum(t.skipped) <> 0)
      SELECT pg_catalog.count(*) FROM taken",
);

/// Folds up to [`ROWS_OF_A_FOLD`] rows of each of these groups; returns how many rows that took.
///
/// Not under REPEATABLE READ and above, where passing over a row that has just gone is an error.
fn fold<'a>(groups: impl Iterator<Item = &'a String>, now: Time) -> i64 {
    if !is_read_committed() {
        return 0;
    }
    let before = now - RECENT;
    let taken = |group: &String| FOLD.first((group.as_str(), ROWS_OF_A_FOLD, before));
    groups.filter_map(taken).sum()
}

static UNFOLDED: Statement<i32, String> = Statement::new(
    c"SELECT x.group_id
        FROM (SELECT g.group_id FROM taskq.group_tally g WHERE NOT g.folded
               ORDER BY g.group_id LIMIT $1) AS x
       GROUP BY x.group_id",
);

/// Folds the groups that have the first `bound` rows not folded yet; whether that took any row, and whether it took so
/// many that there may be more.
pub(crate) fn fold_some(bound: i32, now: Time) -> (bool, bool) {
    let groups: BTreeSet<String> = UNFOLDED.query(bound).into_iter().collect();
    let taken = fold(groups.iter(), now);
    (taken > 0, taken >= i64::from(bound))
}

#[cfg(test)]
mod tests {
    use super::Pace;

    fn due(pace: &mut Pace, transaction: i64, calls: u32) -> Vec<u32> {
        (1..=calls).filter(|_| pace.is_due(transaction)).collect()
    }

    #[test]
    fn a_transaction_folds_less_and_less_often() {
        assert_eq!(due(&mut Pace::one_in(1), 7, 100), [1, 3, 7, 15, 31, 63]);
        assert_eq!(due(&mut Pace::one_in(50), 7, 1000), [50, 150, 350, 750]);
    }

    #[test]
    fn the_next_transaction_does_not_wait_for_what_the_last_one_put_off() {
        let mut pace = Pace::one_in(50);
        due(&mut pace, 7, 1000);
        assert_eq!(due(&mut pace, 8, 60), [50]);
        let mut pace = Pace::one_in(50);
        let calls = (1..=200).filter(|transaction| pace.is_due(*transaction)).count();
        assert_eq!(calls, 4, "calls of many transactions count together");
    }
}
