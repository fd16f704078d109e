//! Sealing what has settled: see [`ends`](crate::store::ends) for what that is good for.
//!
//! **When a second may be sealed.** A *mark* is a time T, and the next transaction id X, read in this order. A
//! transaction with an id from X on has got it after T was read, reads the clock after that, and settles at T or later.
//! So once a snapshot's xmin is X or beyond, it sees all rows that settled before T, or they will never be. A
//! transaction that keeps its id for long keeps the mark waiting: more is counted row by row then, and nothing is
//! wrong.
//!
//! A step seals by a statement with one snapshot. That counts what settled since the last one, up to the mark, up to
//! [`ROWS_OF_A_STEP`] rows, or in one second that has more; takes along the corrections of these seconds; and makes the next mark
//! where it has come to the last one. The row of `seal` is locked (SKIP LOCKED) before, so that there is one at a time.
//!
//! **A clock that has been put back** is noticed by a mark that lies ahead. Then nothing is sealed any more, and
//! everything is counted row by row until the past is sealed again, step by step. A transaction that removes rows while
//! that begins may take seconds for sealed that are not any more. So the first mark is made by another transaction,
//! later: every transaction with an id from there on has read `seal` after that.
//!
//! Nothing of this is dumped: what is restored is sealed anew.

use std::time::Duration;

use crate::memory::{Belief, Latest, Memory};
use crate::pg::block::in_transaction_block;
use crate::pg::clock::{self, Wall};
use crate::pg::session::{is_own, is_read_committed, next_transaction_id};
use crate::pg::statement::{Looked, Statement, record};

/// How many rows a step counts at most, unless one second has more.
const ROWS_OF_A_STEP: i32 = 20_000;

/// How old a mark gets before a call seals whose work is another.
pub(crate) const SEAL_FOR_OTHERS_AFTER: Duration = Duration::from_secs(10);

/// For how long nothing can be sealed before tallies are folded all the same. Also the age of a mark from which a
/// transaction that may stay open seals, although it may keep others from it.
const LONG: Duration = Duration::from_secs(60);

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

static READ_SEAL: Statement<(), State> =
    Statement::new(c"SELECT e.until, e.mark_at, e.mark_xid, e.xmin::text::bigint FROM taskq.seal e");
static LOCK_SEAL_IF_UNCHANGED: Statement<(Wall, Wall, i64)> = Statement::new(
    c"SELECT FROM taskq.seal e
       WHERE e.until = $1 AND e.mark_at IS NOT DISTINCT FROM $2 AND e.mark_xid IS NOT DISTINCT FROM $3
         FOR UPDATE SKIP LOCKED",
);
static MARK: Statement<(Wall, i64)> = Statement::new(c"UPDATE taskq.seal e SET mark_at = $1, mark_xid = $2");

/// Seals from $1 on: up to $2, or to the second in which $3 rows are full; a second that has more is sealed as a
/// whole. `ended` is also what went before it was sealed. Rows that settled before $7 are not kept apart by time any more.
static SEAL: Statement<(Wall, Wall, i32, Wall, i64, bool, Wall), Sealed> = Statement::new(
    c"WITH part AS MATERIALIZED (
        SELECT pg_catalog.date_bin('1 second', s.settled_at, '2000-01-01') AS second, s.action_no, s.code, s.cause,
               pg_catalog.count(*) AS number
          FROM (SELECT s.settled_at, s.action_no, s.code, s.cause FROM taskq.settled s
                 WHERE s.settled_at >= $1 AND s.settled_at < $2 ORDER BY s.settled_at LIMIT $3) AS s
         GROUP BY 1, s.action_no, s.code, s.cause),
      bounds AS MATERIALIZED (
        SELECT COALESCE(pg_catalog.sum(p.number), 0) < $3 OR $3 IS NULL AS whole, pg_catalog.sum(p.number) AS number,
               pg_catalog.min(p.second) AS first, pg_catalog.max(p.second) AS last
          FROM part AS p),
      cut AS MATERIALIZED (
        SELECT CASE WHEN b.whole THEN $2 ELSE b.last END AS until, b.whole FROM bounds AS b
         WHERE b.whole OR b.first < b.last),
      taken AS (
        DELETE FROM taskq.end_tally t
         WHERE t.span >= $1 AND t.span < (SELECT c.until FROM cut AS c)
        RETURNING t.span, t.action_no, t.code, t.cause, t.number, t.ended),
      sealed AS (
        INSERT INTO taskq.end_tally (span, action_no, code, cause, number, ended)
        SELECT x.span, x.action_no, x.code, x.cause, pg_catalog.sum(x.number), pg_catalog.sum(x.ended)
          FROM (SELECT CASE WHEN p.second < $7 THEN '-infinity'
                            ELSE pg_catalog.date_bin('10 seconds', p.second, '2000-01-01') END AS span,
                       p.action_no, p.code, p.cause, p.number, p.number AS ended
                  FROM part AS p WHERE p.second < (SELECT c.until FROM cut AS c) AND p.cause <> 'r'
                UNION ALL
                SELECT pg_catalog.date_bin('10 seconds', t.span, '2000-01-01'), t.action_no, t.code, t.cause,
                       0, t.ended - t.number
                  FROM taken AS t) AS x
         GROUP BY x.span, x.action_no, x.code, x.cause
        HAVING pg_catalog.sum(x.number) <> 0 OR pg_catalog.sum(x.ended) <> 0),
      moved AS (
        UPDATE taskq.seal e
           SET until = c.until, mark_at = CASE WHEN $6 AND c.whole THEN $4 ELSE e.mark_at END,
               mark_xid = CASE WHEN $6 AND c.whole THEN $5 ELSE e.mark_xid END
          FROM cut AS c)
      SELECT c.until, c.whole, b.first, COALESCE(b.number, 0)::bigint FROM bounds AS b LEFT JOIN cut AS c ON true",
);

/// Of sealed spans, those of the last two minutes stay as they are ($1 and later), those of the last hour ($2) become
/// minutes, those of the last day ($3) half hours, and the rest one row per action, code and cause. Only rows that this changes are
/// touched.
static FOLD: Statement<(Wall, Wall, Wall)> = Statement::new(
    c"WITH rows AS MATERIALIZED (
        SELECT x.ctid AS version, x.place, x.place <> x.span OR pg_catalog.count(*)
                   OVER (PARTITION BY x.place, x.action_no, x.code, x.cause) > 1 AS changes
          FROM (SELECT t.ctid, t.span, t.action_no, t.code, t.cause,
                       CASE WHEN t.span < $3 THEN '-infinity'
                            ELSE pg_catalog.date_bin(CASE WHEN t.span < $2 THEN interval '30 minutes'
                                                          ELSE '1 minute' END, t.span, '2000-01-01') END AS place
                  FROM taskq.end_tally t WHERE t.span < $1) AS x),
      taken AS (
        DELETE FROM taskq.end_tally d
         WHERE d.ctid = ANY (ARRAY(SELECT r.version FROM rows AS r WHERE r.changes))
        RETURNING CASE WHEN d.span < $3 THEN '-infinity'
                       ELSE pg_catalog.date_bin(CASE WHEN d.span < $2 THEN interval '30 minutes'
                                                     ELSE '1 minute' END, d.span, '2000-01-01') END AS span,
                  d.action_no, d.code, d.cause, d.number, d.ended)
      INSERT INTO taskq.end_tally (span, action_no, code, cause, number, ended)
      SELECT t.span, t.action_no, t.code, t.cause, pg_catalog.sum(t.number), pg_catalog.sum(t.ended)
        FROM taken AS t
       GROUP BY t.span, t.action_no, t.code, t.cause
      HAVING pg_catalog.sum(t.number) <> 0 OR pg_catalog.sum(t.ended) <> 0",
);
/// Nothing is sealed any more. What there is in `end_tally` means nothing then, and is taken along as its spans are
/// sealed again.
static BEGIN_ANEW: Statement<()> =
    Statement::new(c"UPDATE taskq.seal e SET until = '-infinity', mark_at = NULL, mark_xid = NULL");

/// What there is to do.
enum Work {
    Nothing,
    Mark,
    /// The mark has been reached.
    Seal,
    Fold,
    BeginAnew,
}

record! {
    /// What is known of sealing.
    struct State {
        until: Wall,
        mark_at: Option<Wall>,
        mark_xid: Option<i64>,
        /// The transaction that has written it.
        writer: i64,
    }
}

record! {
    /// What a step has come to.
    struct Sealed {
        /// Up to when it has sealed; nothing if there are too many rows in one second.
        until: Option<Wall>,
        /// All that was asked for.
        whole: Option<bool>,
        /// The second of the first row.
        first: Option<Wall>,
        /// How many rows it has counted.
        number: i64,
    }
}

impl State {
    /// What to do at this time with marks that are older than this, for a snapshot with this xmin.
    fn work(&self, now: Wall, patience: Duration, xmin: u64) -> Work {
        let next = next_transaction_id();
        match self.mark_at.zip(self.mark_xid) {
            Some((at, _)) if now < at => Work::BeginAnew,
            // This transaction has begun anew: others do not know yet.
            None if is_own(self.writer) => Work::Nothing,
            None => Work::Mark,
            // Of another cluster, or of ids that have been reset.
            Some((_, xid)) if xid.unsigned_abs() > next => Work::Mark,
            Some((at, xid)) if at.until(now) >= patience && xmin >= xid.unsigned_abs() => Work::Seal,
            // Corrections add up meanwhile.
            Some((at, _)) if at.until(now) >= LONG => Work::Fold,
            Some(_) => Work::Nothing,
        }
    }
}

/// A time before which nothing settles any more, and all that did is visible: that of the mark, where each transaction with an id
/// below the mark's has ended, else up to when all is sealed.
pub(crate) fn reached() -> Wall {
    let (states, Looked { xmin, .. }) = READ_SEAL.look(());
    let Some(State { until, mark_at, mark_xid, .. }) = states.into_iter().next() else {
        return Wall::BEGINNING;
    };
    let marked = mark_at.zip(mark_xid).filter(|(_, xid)| xmin >= xid.unsigned_abs());
    marked.map_or(until, |(at, _)| at.max(until))
}

/// Seals what may be sealed, in one step; marks have to be so old. Whether there is more.
///
/// Not under REPEATABLE READ and above, where SKIP LOCKED raises an error at a row that was changed since the snapshot.
/// A transaction that may stay open keeps others from sealing for as long: a call inside one seals only what has not
/// been sealed for a while.
pub(crate) fn step(patience: Duration) -> bool {
    if !is_read_committed() {
        return false;
    }
    let patience = if in_transaction_block() { patience.max(LONG) } else { patience };
    let now = clock::wall();
    let (states, Looked { xmin, .. }) = READ_SEAL.look(());
    let Some(state) = states.into_iter().next() else { return false };
    let work = state.work(now, patience, xmin);
    if matches!(work, Work::Nothing) {
        return false;
    }
    if LOCK_SEAL_IF_UNCHANGED.execute((state.until, state.mark_at, state.mark_xid)) == 0 {
        return false;
    }
    // In this order: see above. Unless the clock is put back, or set by a test, every transaction with an id from `next` on settles at
    // this time or later.
    let at = clock::wall();
    let next = next_transaction_id().cast_signed();
    match work {
        Work::Nothing => false,
        Work::Mark => {
            MARK.execute((at, next));
            false
        }
        Work::BeginAnew => {
            BEGIN_ANEW.execute(());
            false
        }
        Work::Seal => seal(&state, (at, next)),
        Work::Fold => {
            fold(state.until);
            false
        }
    }
}

/// Seals up to the mark that is in the state; returns whether there is more.
fn seal(state: &State, next: (Wall, i64)) -> bool {
    let Some(mark) = state.mark_at else { return false };
    let goal = mark.floor(SECOND).max(state.until);
    let long_ago = minutes_before(goal, 60);
    let run =
        |until: Wall, most| SEAL.first((state.until, until, most, next.0, next.1, until == goal, long_ago));
    // A second that has more than a step counts is sealed as a whole.
    let seal_whole = |end: Wall| {
        let was_full = run(end, None).is_some_and(|sealed| sealed.number >= i64::from(ROWS_OF_A_STEP));
        FULL.with(|full| if was_full { full.note((), ()) } else { full.clear() });
        (end, end == goal)
    };
    let the_next = state.until + SECOND;
    let is_full = FULL.with(|full| full.get(&()).is_some());
    let (until, whole) = if is_full && state.until > Wall::BEGINNING && the_next < goal {
        seal_whole(the_next)
    } else {
        match run(goal, Some(ROWS_OF_A_STEP)) {
            Some(Sealed { until: Some(until), whole, .. }) => (until, whole == Some(true)),
            Some(Sealed { first: Some(first), .. }) => seal_whole((first + SECOND).min(goal)),
            _ => return false,
        }
    };
    if until.floor(MINUTE) != state.until.floor(MINUTE) {
        fold(until);
    }
    !whole
}

fn fold(until: Wall) {
    FOLD.execute((minutes_before(until, 2), minutes_before(until, 60), minutes_before(until, 24 * 60)));
}

/// The minute that is so many before that of a time.
fn minutes_before(time: Wall, minutes: u32) -> Wall {
    time.floor(MINUTE) - minutes * MINUTE
}

/// The second that this backend has sealed last had as many rows as a step counts, or more; so has the next one, most likely.
static FULL: Memory<Latest<(), ()>> = Memory::of(Belief::FullSeconds);
/// This backend has looked whether something may be sealed.
static LOOKED: Memory<Latest<(), ()>> = Memory::of(Belief::Sealed);

/// A step at the end of a call that was granted something, now and then.
pub(crate) fn keep_up() {
    if LOOKED.with(|looked| looked.get(&()).is_some()) {
        return;
    }
    let more = step(SEAL_FOR_OTHERS_AFTER);
    // Soon where there is more.
    let pause = if more { SEAL_FOR_OTHERS_AFTER / 100 } else { SEAL_FOR_OTHERS_AFTER };
    LOOKED.with(|looked| looked.note_for((), (), pause));
}

/// Has everything sealed anew.
pub(crate) fn begin_anew() {
    BEGIN_ANEW.execute(());
}
