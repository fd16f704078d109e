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

use pgrx::pg_sys::{INT4ARRAYOID, INT4OID, INT8ARRAYOID, TEXTARRAYOID, TEXTOID};

use crate::pg::lock::{self, Key, Mode};
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Statement, args};
use crate::wake;

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

/// Free slots, locked. Those above the limit, which a higher limit has left behind, count against it while they are
/// held: only when the performances in them have ended is there room below. So as many more are locked, and not used.
static FREE: Statement = Statement::new(
    c"SELECT u.n::integer, u.above, f.slot_no
        FROM (SELECT u.n, u.group_id, u.name, u.most, u.wanted,
                     (SELECT pg_catalog.count(*)::integer FROM taskq.slot s
                       WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no > u.most
                         AND s.task_no IS NOT NULL) AS above
                FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS u(group_id, name, most, wanted, n)
              OFFSET 0) AS u
       CROSS JOIN LATERAL (
             SELECT s.slot_no FROM taskq.slot s
              WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no <= u.most AND s.task_no IS NULL
              ORDER BY s.slot_no LIMIT u.wanted::bigint + u.above
                FOR UPDATE SKIP LOCKED) AS f",
    &[TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, INT4ARRAYOID],
);
/// Which of the limits have fewer slots than they allow.
static LACKING: Statement = Statement::new(
    c"SELECT u.n::integer
        FROM unnest($1, $2, $3) WITH ORDINALITY AS u(group_id, name, most, n)
       WHERE (SELECT pg_catalog.count(*) FROM taskq.slot s
               WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no <= u.most) < u.most",
    &[TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID],
);
/// The lowest numbers that are missing; there are enough of them among those up to the number of rows and of the
/// slots wanted.
static MAKE: Statement = Statement::new(
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
    &[TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, INT4ARRAYOID],
);

/// Whether any of the limits has a slot that is free, as a snapshot shows it.
static LOOKS_FREE: Statement = Statement::new(
    c"SELECT true
        FROM unnest($1, $2, $3) AS u(group_id, name, most)
       WHERE (SELECT pg_catalog.count(*) FILTER (WHERE s.task_no IS NULL AND s.slot_no <= u.most)
                     - pg_catalog.count(*) FILTER (WHERE s.task_no IS NOT NULL AND s.slot_no > u.most)
                FROM taskq.slot s WHERE s.group_id = u.group_id AND s.name = u.name) > 0
       LIMIT 1",
    &[TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID],
);

/// What [`lock_free`] came to.
pub(crate) struct Locked {
    /// Free slots, locked by this transaction, for each of the asks.
    pub(crate) slots: Vec<Vec<i32>>,
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
    let lacking: Vec<usize> = {
        let (groups, names, most, _) = columns(&short.iter().map(|i| &asks[*i]).collect::<Vec<_>>());
        LACKING.query(args![groups, names, most], |row| short[row.need::<i32>(1) as usize - 1])
    };
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
    MAKE.execute(args![groups, names, most, wanted]);
    for (i, found) in making.iter().zip(free(&made)) {
        slots[*i] = found;
    }
    Locked { slots, made: made.iter().map(|ask| ask.limit.clone()).collect() }
}

/// Notes whether somebody else has locked a slot that this call could have used, and may not use it either.
fn note_passed_over(asks: &[Ask], slots: &[Vec<i32>]) {
    let none: Vec<&Ask> =
        asks.iter().zip(slots).filter(|(_, slots)| slots.is_empty()).map(|(ask, _)| ask).collect();
    if none.is_empty() {
        return;
    }
    let (groups, names, most, _) = columns(&none);
    if LOOKS_FREE.first(args![groups, names, most], |row| row.need::<bool>(1)).is_some() {
        wake::passed_over();
    }
}

fn free(asks: &[&Ask]) -> Vec<Vec<i32>> {
    let (groups, names, most, wanted) = columns(asks);
    let mut slots: Vec<Vec<i32>> = vec![Vec::new(); asks.len()];
    let mut above: Vec<usize> = vec![0; asks.len()];
    FREE.query(args![groups, names, most, wanted], |row| {
        let ask = row.need::<i32>(1) as usize - 1;
        above[ask] = row.need::<i32>(2) as usize;
        slots[ask].push(row.need(3));
    });
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

static ANY_FREE: Statement = Statement::new(
    c"SELECT pg_catalog.count(*) FILTER (WHERE s.task_no IS NULL AND s.slot_no <= $2)
             > pg_catalog.count(*) FILTER (WHERE s.task_no IS NOT NULL AND s.slot_no > $2)
        FROM taskq.slot s WHERE s.group_id = '' AND s.name = $1",
    &[TEXTOID, INT4OID],
);

/// Whether an action has a free slot, as far as this transaction can see.
pub(crate) fn any_free(action: &str, limit: i32) -> bool {
    ANY_FREE.first(args![action, limit], |row| row.need(1)).unwrap_or(false)
}

/// Walks `slot_held_idx`: as many rows as there are performances in progress that such limits count.
static FULL: Statement = Statement::new(
    c"SELECT l.name, taskq._lane(l.group_id)
        FROM (SELECT s.name, s.group_id, pg_catalog.count(*) AS held
                FROM taskq.slot s
               WHERE s.name = ANY ($1) AND s.task_no IS NOT NULL AND s.group_id <> ''
               GROUP BY s.name, s.group_id) AS l
       WHERE l.held >= CASE l.name
                       WHEN '' THEN (SELECT g.max_concurrency FROM taskq.task_group g WHERE g.group_id = l.group_id)
                       ELSE (SELECT s.max_per_group FROM taskq.action_setting s WHERE s.name = l.name) END
       UNION ALL
      SELECT '', taskq._lane(g.group_id) FROM taskq.task_group g WHERE g.max_concurrency = 0",
    &[TEXTARRAYOID],
);

/// The lanes of groups that are at a limit, as far as this transaction can see: at one in the action whose name comes
/// with it, or at their own, with an empty name.
pub(crate) fn full_lanes(actions: impl Iterator<Item = String>) -> Vec<(String, i64)> {
    let names: Vec<String> = actions.chain([String::new()]).collect();
    FULL.query(args![names], |row| (row.need(1), row.need(2)))
}

/// A slot that this transaction has locked, and whose it is to be.
pub(crate) struct Seat<'a> {
    pub(crate) limit: &'a Limit,
    pub(crate) slot_no: i32,
    pub(crate) task_no: i64,
}

static OCCUPY: Statement = Statement::new(
    c"UPDATE taskq.slot s SET task_no = u.task_no
        FROM unnest($1, $2, $3, $4) AS u(group_id, name, slot_no, task_no)
       WHERE s.group_id = u.group_id AND s.name = u.name AND s.slot_no = u.slot_no",
    &[TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, INT8ARRAYOID],
);

/// Gives slots to performances.
pub(crate) fn occupy(seats: &[Seat]) {
    if seats.is_empty() {
        return;
    }
    OCCUPY.execute(args![
        seats.iter().map(|s| s.limit.group.clone()).collect::<Vec<_>>(),
        seats.iter().map(|s| s.limit.action.clone()).collect::<Vec<_>>(),
        seats.iter().map(|s| s.slot_no).collect::<Vec<_>>(),
        seats.iter().map(|s| s.task_no).collect::<Vec<_>>(),
    ]);
}

static RELEASE: Statement = Statement::new(
    c"UPDATE taskq.slot s SET task_no = NULL WHERE s.task_no = ANY ($1) RETURNING s.group_id, s.name",
    &[INT8ARRAYOID],
);

/// Frees all slots of performances that have ended, and lets a waiter know for each.
pub(crate) fn release(task_nos: &[i64]) {
    if task_nos.is_empty() {
        return;
    }
    for limit in RELEASE.query(args![task_nos], |row| Limit { group: row.need(1), action: row.need(2) }) {
        wake(&limit);
    }
}

static NUMBERS: Statement =
    Statement::new(c"SELECT a.action_no FROM taskq.action a WHERE a.name = $1", &[TEXTOID]);
/// The actions that have entries in lanes: jumps from one to the next in `run_lane_idx`.
static LANED: Statement = Statement::new(
    c"WITH RECURSIVE laned(action_no) AS (
        (SELECT r.action_no FROM taskq.run r WHERE r.lane <> 0 ORDER BY r.action_no LIMIT 1)
        UNION ALL
        SELECT n.action_no FROM laned
         CROSS JOIN LATERAL (SELECT r.action_no FROM taskq.run r
                              WHERE r.lane <> 0 AND r.action_no > laned.action_no
                              ORDER BY r.action_no LIMIT 1) AS n)
      SELECT l.action_no FROM laned AS l",
    &[],
);

/// Has one waiter woken at commit for each action in which a task may take a slot of the limit.
pub(crate) fn wake(limit: &Limit) {
    concerned(limit).into_iter().for_each(wake::ready);
}

/// The numbers of the actions that a limit may hold tasks of.
pub(crate) fn concerned(limit: &Limit) -> Vec<i32> {
    if limit.action.is_empty() {
        LANED.query(args![], |row| row.need(1))
    } else {
        NUMBERS.query(args![limit.action.clone()], |row| row.need(1))
    }
}

/// Limits of groups that have slots, and no tasks.
static UNUSED: Statement = Statement::new(
    c"SELECT DISTINCT s.group_id, s.name FROM taskq.slot s
       WHERE s.group_id = ANY ($1) AND s.group_id <> ''
         AND NOT EXISTS (SELECT FROM taskq.task t WHERE t.group_id = s.group_id OFFSET 0)",
    &[TEXTARRAYOID],
);
static TIDY: Statement = Statement::new(
    c"DELETE FROM taskq.slot d
       WHERE d.ctid = ANY (ARRAY(SELECT s.ctid FROM taskq.slot s
                                  WHERE s.group_id = $1 AND s.name = $2 AND s.task_no IS NULL
                                    FOR UPDATE SKIP LOCKED))",
    &[TEXTOID, TEXTOID],
);

/// Removes the slots of groups that have no tasks any more; waits for nobody. What somebody is using just now stays
/// until the next task of the group goes.
pub(crate) fn tidy(groups: &[String]) {
    if groups.is_empty() {
        return;
    }
    let unused: Vec<Limit> =
        UNUSED.query(args![groups.to_vec()], |row| Limit { group: row.need(1), action: row.need(2) });
    for place in lockable(&unused.iter().collect::<Vec<_>>()) {
        TIDY.execute(args![unused[place].group.clone(), unused[place].action.clone()]);
    }
}
