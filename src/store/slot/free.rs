//! Free slots: finding them, locking them, making those that are missing.

use pgrx::pg_sys::Oid;

use super::ask::{Ask, columns};
use super::known;
use super::limit::{Limit, lockable};
use crate::number::Position;
use crate::pg::session::{assign_transaction_id, has_transaction_id};
use crate::pg::statement::{Statement, record};
use crate::store::decided::Look;
use crate::store::positions;
use crate::wake;

record! {
    /// A slot that [`FREE`] has found, or that there is none.
    #[derive(Clone, Copy)]
    struct Found {
        /// Which of the asks, from 1 on.
        ask: i32,
        /// How many slots are held above the limit.
        above: i32,
        /// The position of a free slot, locked.
        free: Option<Position>,
        /// That of the first free one in the snapshot, locked or not.
        first: Option<Position>,
        /// The file of the rows.
        rows: Oid,
    }
}

/// Free slots, locked. Those above the limit, which a higher limit has left behind, count against it while they are
/// held: only when the performances in them have ended is there room below. So as many more are locked, and not used.
///
/// Those above are counted in the order of their numbers, so that the primary key finds them, and not a walk over all
/// that is held. The free ones are in `slot_free_idx`, from the marks on ($5). One row for each slot, or one for a
/// limit of which none is to be had, with what moves the marks: the first that is free in the snapshot, locked or
/// not.
static FREE: Statement<(&[&str], &[&str], &[i32], &[i32], &[Position]), Found> = Statement::new(
    c"SELECT u.n::integer, u.above, f.position, u.first,
             pg_catalog.pg_relation_filenode('taskq.slot'::pg_catalog.regclass)
        FROM (
             SELECT u.n, u.group_id, u.name, u.most, u.wanted, u.start,
                    (SELECT s.position FROM taskq.slot s
                      WHERE s.group_id = u.group_id AND s.name = u.name AND s.task_no IS NULL
                        AND s.position >= u.start AND s.slot_no <= u.most
                      ORDER BY s.position LIMIT 1) AS first,
                    (SELECT pg_catalog.count(*)::integer
                       FROM (SELECT FROM taskq.slot s
                              WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no > u.most
                                AND s.task_no IS NOT NULL
                              ORDER BY s.slot_no OFFSET 0) AS s) AS above
               FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS u(group_id, name, most, wanted, start, n)
             OFFSET 0) AS u
        LEFT JOIN LATERAL (
             SELECT s.position FROM taskq.slot s
              WHERE s.group_id = u.group_id AND s.name = u.name AND s.task_no IS NULL
                AND s.position >= u.start AND s.slot_no <= u.most
              ORDER BY s.position LIMIT u.wanted::bigint + u.above
                FOR UPDATE SKIP LOCKED) AS f ON true",
);
/// Which of the limits have fewer slots than they allow.
static LACKING: Statement<(&[&str], &[&str], &[i32]), i32> = Statement::new(
    c"SELECT u.n::integer
        FROM unnest($1, $2, $3) WITH ORDINALITY AS u(group_id, name, most, n)
       WHERE (SELECT pg_catalog.count(*) FROM taskq.slot s
               WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no <= u.most) < u.most",
);
/// The lowest numbers that are missing; there are enough of them among those up to the number of rows and of the
/// slots wanted.
static MAKE: Statement<(&[&str], &[&str], &[i32], &[i32])> = Statement::new(
    c"INSERT INTO taskq.slot (group_id, name, slot_no)
      SELECT u.group_id, u.name, m.slot_no
        FROM unnest($1, $2, $3, $4) AS u(group_id, name, most, wanted)
       CROSS JOIN LATERAL (
             SELECT g.n AS slot_no
               FROM pg_catalog.generate_series(1, LEAST(u.most, u.wanted + (
                        SELECT pg_catalog.count(*) FROM taskq.slot s
                         WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no <= u.most))::integer) AS g(n)
              WHERE NOT EXISTS (SELECT FROM taskq.slot s
                                 WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no = g.n OFFSET 0)
              LIMIT u.wanted) AS m",
);

/// Whether any of the limits has a slot that is free, as a snapshot shows it: more than are held above the limit. Walks
/// `slot_free_idx` from the marks on ($4).
static LOOKS_FREE: Statement<(&[&str], &[&str], &[i32], &[Position]), bool> = Statement::new(
    c"SELECT true
        FROM (SELECT u.group_id, u.name, u.most, u.start,
                     (SELECT pg_catalog.count(*)
                        FROM (SELECT FROM taskq.slot s
                               WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no > u.most
                                 AND s.task_no IS NOT NULL
                               ORDER BY s.slot_no OFFSET 0) AS s) AS above
                FROM unnest($1, $2, $3, $4) AS u(group_id, name, most, start)
              OFFSET 0) AS u
       WHERE (SELECT pg_catalog.count(*)
                FROM (SELECT FROM taskq.slot s
                       WHERE s.group_id = u.group_id AND s.name = u.name AND s.task_no IS NULL
                         AND s.position >= u.start AND s.slot_no <= u.most
                       ORDER BY s.position LIMIT u.above + 1) AS f) > u.above
       LIMIT 1",
);

/// What [`lock_free`] came to.
pub(crate) struct Locked {
    /// Positions of free slots, locked by this transaction, for each of the asks.
    pub(crate) slots: Vec<Vec<Position>>,
    /// Limits of which slots were made: until this transaction ends no other can make any.
    pub(crate) made: Vec<Limit>,
}

/// Locks free slots, as many as are wanted or there are. Waits for no lock. Slots that this transaction has
/// locked before and not occupied are among them.
pub(crate) fn lock_free(asks: &[Ask]) -> Locked {
    let all: Vec<&Ask> = asks.iter().collect();
    let mut slots = free(&all);
    if wake::may_sleep() {
        note_passed_over(asks, &slots);
    }
    let short: Vec<usize> = (0..asks.len())
        .filter(|i| asks[*i].limit.made_when_needed() && slots[*i].len() < asks[*i].wanted as usize)
        .collect();
    if short.is_empty() {
        return Locked { slots, made: Vec::new() };
    }
    let lacking = lacking(asks, short);
    let making: Vec<usize> = lockable(&lacking.iter().map(|i| &asks[*i].limit).collect::<Vec<_>>())
        .into_iter()
        .map(|n| lacking[n])
        .collect();
    if making.len() < lacking.len() {
        wake::passed_over();
    }
    if making.is_empty() {
        return Locked { slots, made: Vec::new() };
    }
    assign_transaction_id();
    let made: Vec<&Ask> = making.iter().map(|i| &asks[*i]).collect();
    let (groups, names, most, wanted) = columns(&made);
    MAKE.execute((groups, names, most, wanted));
    for (i, found) in making.iter().zip(free(&made)) {
        slots[*i] = found;
    }
    Locked { slots, made: made.iter().map(|ask| ask.limit.clone()).collect() }
}

/// Those of the asks, by their places, whose limits have fewer slots than they allow.
fn lacking(asks: &[Ask], mut places: Vec<usize>) -> Vec<usize> {
    places.retain(|i| !known::is_complete(&asks[*i]));
    if places.is_empty() {
        return places;
    }
    let (groups, names, most, _) = columns(&places.iter().map(|i| &asks[*i]).collect::<Vec<_>>());
    let counted = most.iter().map(|most| *most as usize).sum();
    let (lacking, looked) = LACKING.look((groups, names, most));
    let lacking: Vec<usize> = lacking.into_iter().map(|n| places[n as usize - 1]).collect();
    let complete = places.iter().filter(|i| !lacking.contains(i)).map(|i| &asks[*i]);
    known::remember_complete(complete, looked.pages, counted);
    lacking
}

/// Notes whether there is a slot that this call could have used, but another transaction has locked it, and
/// may not use it either.
fn note_passed_over(asks: &[Ask], slots: &[Vec<Position>]) {
    let none: Vec<&Ask> =
        asks.iter().zip(slots).filter(|(_, slots)| slots.is_empty()).map(|(ask, _)| ask).collect();
    if !none.is_empty() && looks_free(&none) {
        wake::passed_over();
    }
}

fn looks_free(asks: &[&Ask]) -> bool {
    let (groups, names, most, _) = columns(asks);
    LOOKS_FREE.first((groups, names, most, starts(asks))).is_some()
}

fn starts(asks: &[&Ask]) -> Vec<Position> {
    asks.iter().map(|ask| known::start(&ask.limit, ask.most)).collect()
}

fn free(asks: &[&Ask]) -> Vec<Vec<Position>> {
    let (groups, names, most, wanted) = columns(asks);
    let mut slots: Vec<Vec<Position>> = vec![Vec::new(); asks.len()];
    let mut above: Vec<usize> = vec![0; asks.len()];
    let mut firsts: Vec<Option<Position>> = vec![None; asks.len()];
    let had_id = has_transaction_id();
    let (rows, looked) = FREE.look((groups, names, most, wanted, starts(asks)));
    for row in &rows {
        let ask = row.ask as usize - 1;
        above[ask] = row.above as usize;
        slots[ask].extend(row.free);
        firsts[ask] = row.first;
    }
    if let Some(row) = rows.first() {
        let files = (row.rows, positions::file_of_positions());
        let look = Look { last_position: positions::last_position(), files, xmin: looked.xmin };
        known::advance(asks, &firsts, &look, had_id);
    }
    for ((slots, above), ask) in slots.iter_mut().zip(above).zip(asks) {
        slots.truncate(slots.len().saturating_sub(above).min(ask.wanted as usize));
    }
    slots
}

/// Whether this transaction can see a free slot of an action.
pub(crate) fn any_free(action: &str, limit: i32) -> bool {
    looks_free(&[&Ask { limit: Limit::of_action(action), most: limit, wanted: 1 }])
}
