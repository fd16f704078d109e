//! Slots: the places that a limit of concurrency allows, over all sessions together.
//!
//! A slot is a row that a grant takes with SKIP LOCKED and changes in its own transaction: a rolled-back grant has
//! taken nothing, and no two grants take the same. It belongs to the performance that occupies it and is freed by
//! whatever ends that: there is no counter that could drift.
//!
//! **Slots of groups are made when they are needed**, by a claim that finds fewer rows than the limit. It makes them
//! under a lock that it only tries, so that no claim waits for another's insert; whoever does not get the lock takes
//! the limit for full in this call, is woken when the one who has it lets go of it, and looks again by himself soon. The
//! holder of the lock counts the rows with a snapshot taken after he got it, so there are never more rows than the limit.
//! There are few such locks, each for many groups: one transaction that sets limits for a hundred thousand groups holds
//! no more than there are, and the server's lock table has room for others. (Two claims that share a lock by chance have
//! to make slots one after the other.)
//!
//! **Free slots are in a queue.** A slot that is freed takes a position at the end, and claims take the first. Updated in place
//! its dead versions would be between those that look for a free one and the one there is; at the end of the queue they
//! are behind everybody's back, see [`known`]. A row for each performance, made and removed with it, would do
//! the same, but somebody would have to count them while others make some. To remember where the live versions are
//! helps whoever was the last to change them, and nobody else.

mod concerned;
mod full_lanes;
pub(crate) mod known;
pub(crate) mod seats;

use crate::number::{Position, TaskNo};
use crate::pg::clock::wall;
use crate::pg::lock::{self, Key, Mode};
use crate::pg::session::{assign_transaction_id, has_transaction_id};
use crate::pg::statement::{Statement, record};
use crate::store::decided::Look;
use crate::wake;
pub(crate) use concerned::{concerned, wake};
pub(crate) use full_lanes::full_lanes;
use pgrx::pg_sys::Oid;

/// The greatest limit: each place that it allows is a row.
pub(crate) const MOST_SLOTS: i32 = 100_000;

/// What a limit is for: all tasks of an action, those of one group in it, or those of one group in all actions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Limit {
    /// Empty: any.
    pub(super) action: String,
    /// Empty: any.
    pub(super) group: String,
}

impl Limit {
    /// An action's `max_concurrency`.
    pub(crate) fn of_action(action: &str) -> Self {
        Limit { action: action.to_owned(), group: String::new() }
    }

    /// An action's `max_per_group`, for one group.
    pub(crate) fn per_group(action: &str, group: &str) -> Self {
        Limit { action: action.to_owned(), group: group.to_owned() }
    }

    /// A group's own `max_concurrency`.
    pub(crate) fn of_group(group: &str) -> Self {
        Limit { action: String::new(), group: group.to_owned() }
    }

    fn made_when_needed(&self) -> bool {
        !self.group.is_empty()
    }

    /// Held alone by whoever makes or removes slots of this limit.
    fn key(&self) -> Key {
        Key::new(&[&self.action, &self.group]).one_of(MOST_KEYS, "slots")
    }

    /// Shared by whoever makes slots of some groups of the action, or of groups of their own; held alone by whoever
    /// makes those of many.
    fn shared_key(action: &str) -> Key {
        Key::new(&[action]).one_of(MOST_KEYS, "slots of groups")
    }
}

/// How many locks stand for all limits, and as many for all actions.
const MOST_KEYS: u64 = 128;

/// How many slots of a limit a call wants.
pub(crate) struct Ask {
    pub(crate) limit: Limit,
    /// The limit.
    pub(crate) most: i32,
    pub(crate) wanted: i32,
}

/// Columns of several [`Ask`]s, for `unnest`.
fn columns(asks: &[&Ask]) -> (Vec<String>, Vec<String>, Vec<i32>, Vec<i32>) {
    (
        asks.iter().map(|a| a.limit.group.clone()).collect(),
        asks.iter().map(|a| a.limit.action.clone()).collect(),
        asks.iter().map(|a| a.most).collect(),
        asks.iter().map(|a| a.wanted).collect(),
    )
}

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
        last_position: Position,
        rows: Oid,
        sequence: Oid,
    }
}

/// Free slots, locked. Those above the limit, which a higher limit has left behind, count against it while they are
/// held: only when the performances in them have ended is there room below. So as many more are locked, and not used.
///
/// Those above are counted in the order of their numbers, so that the primary key finds them, and not a walk over all
/// that is held. The free ones are in `slot_free_idx`, from the marks on ($5). One row for each slot, or one for a
/// limit of which none is to be had, with what moves the marks: the first that is free in the snapshot, locked or
/// not, and how far positions go.
static FREE: Statement<(&[&str], &[&str], &[i32], &[i32], &[Position]), Found> = Statement::new(
    c"SELECT u.n::integer, u.above, f.position, u.first, p.last_position, p.rows, p.sequence
        FROM (SELECT p.last_value - (NOT p.is_called)::integer AS last_position,
                     pg_catalog.pg_relation_filenode('taskq.slot'::pg_catalog.regclass) AS rows,
                     pg_catalog.pg_relation_filenode('taskq.position_seq'::pg_catalog.regclass) AS sequence
                FROM taskq.position_seq AS p OFFSET 0) AS p
       CROSS JOIN (
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
    /// Limits of which slots were made: until the commit nobody else can make any.
    pub(crate) made: Vec<Limit>,
}

/// Locks free slots, as many as are wanted or there are. Waits for nobody. Slots that this transaction has locked
/// before and not occupied are among them.
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

/// Notes whether somebody else has locked a slot that this call could have used, and may not use it either.
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
        let (last_position, files) = (row.last_position, (row.rows, row.sequence));
        let look = Look { last_position, files, xmin: looked.xmin, at: wall() };
        known::advance(asks, &firsts, &look, looked.pages, had_id);
    }
    for ((slots, above), ask) in slots.iter_mut().zip(above).zip(asks) {
        slots.truncate(slots.len().saturating_sub(above).min(ask.wanted as usize));
    }
    slots
}

/// For how many limits of one action a call takes locks at most: the lock table has little room. For more it takes
/// one that stands for all.
const MOST_LOCKS: usize = 16;

/// The places of those limits whose slots may be made or removed by this transaction.
fn lockable(limits: &[&Limit]) -> Vec<usize> {
    let mut by_action: std::collections::BTreeMap<&str, Vec<usize>> = std::collections::BTreeMap::new();
    for (i, limit) in limits.iter().enumerate() {
        by_action.entry(&limit.action).or_default().push(i);
    }
    let mut lockable = Vec::new();
    for (action, places) in by_action {
        let shared = Limit::shared_key(action);
        if places.len() > MOST_LOCKS && lock::try_lock(shared, Mode::Alone) {
            lockable.extend(places);
        } else if lock::try_lock(shared, Mode::Shared) {
            let few = places.into_iter().take(MOST_LOCKS);
            lockable.extend(few.filter(|i| lock::try_lock(limits[*i].key(), Mode::Alone)));
        }
    }
    lockable
}

/// Keeps everybody else from making slots of groups of the action, or of the group's own: waits for those who do.
pub(crate) fn keep_from_making(limit: &Limit) {
    lock::lock(
        Limit::shared_key(&limit.action),
        if limit.group.is_empty() { Mode::Alone } else { Mode::Shared },
    );
    if !limit.group.is_empty() {
        lock::lock(limit.key(), Mode::Alone);
    }
}

/// Whether an action has a free slot, as far as this transaction can see.
pub(crate) fn any_free(action: &str, limit: i32) -> bool {
    looks_free(&[&Ask { limit: Limit::of_action(action), most: limit, wanted: 1 }])
}

/// A slot that this transaction has locked, and whose it is to be.
pub(crate) struct Seat<'a> {
    pub(crate) limit: &'a Limit,
    /// That of no other slot.
    pub(crate) position: Position,
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
pub(crate) fn occupy(seats: &[Seat]) {
    if seats.is_empty() {
        return;
    }
    OCCUPY.execute((
        seats.iter().map(|s| s.limit.group.clone()).collect::<Vec<_>>(),
        seats.iter().map(|s| s.limit.action.clone()).collect::<Vec<_>>(),
        seats.iter().map(|s| s.position).collect::<Vec<_>>(),
        seats.iter().map(|s| s.task_no).collect::<Vec<_>>(),
    ));
}

static RELEASE: Statement<&[TaskNo], (String, String)> = Statement::new(
    c"UPDATE taskq.slot s
         SET task_no = NULL, position = pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass)
       WHERE s.task_no = ANY ($1) RETURNING s.group_id, s.name",
);

/// Frees all slots of performances that have ended, and lets a waiter know for each.
pub(crate) fn release(task_nos: &[TaskNo]) {
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

/// Removes the slots of groups that have no tasks any more; waits for nobody. What somebody is using just now stays
/// until the next task of the group goes.
pub(crate) fn tidy(groups: &[String]) {
    if groups.is_empty() {
        return;
    }
    let unused: Vec<Limit> = UNUSED.map(groups.to_vec(), |(group, action)| Limit { group, action });
    for place in lockable(&unused.iter().collect::<Vec<_>>()) {
        TIDY.execute((unused[place].group.clone(), unused[place].action.clone()));
    }
}

pub(crate) static REMOVE_FREE: Statement<&str> =
    Statement::new(c"DELETE FROM taskq.slot l WHERE l.name = $1 AND l.task_no IS NULL");
