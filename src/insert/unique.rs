//! Unique tasks: of those with the same action and key only one holds the key at a time.
//!
//! `unique_key` has one row per key that points to the task inserted last with it. Whether that task holds
//! the key (is in one of its states, within its period) is worked out from the task when somebody asks, so
//! granting and settling cost nothing, and a key whose task is gone is free.
//!
//! **Of two callers that insert the same key, one waits for the other.** Every insertion locks the rows of
//! all its keys first of all, before anything else that it may wait for, in the order of (action, key), in
//! one statement that inserts those that are missing; so calls with the same keys in any order do not
//! deadlock. What the key's holder is doing is looked at with a *newer* snapshot: whoever had the row has
//! committed, and its task is seen. Under REPEATABLE READ a row that was committed after the statement began
//! is an error (40001) and not a wrong answer.
//!
//! **What is replaced, followed or relied upon is locked** with everything else that the call names, in the
//! global order (`store::live`), and looked at again. A claim may have begun with it meanwhile; then the new
//! task comes after it. A task is *relied upon* if the new one is left out because that one waits: it must
//! not begin before this transaction, which may have changed what it works on, has committed.
//!
//! Whoever removes a task removes the row that points to it, with SKIP LOCKED, and so never waits for an
//! insertion. A row that is left behind by that points to a task that is gone, which makes its key free;
//! the next task with the key takes the row over, or [`tidy`] comes past.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use pgrx::pg_sys::{INT8ARRAYOID, TEXTARRAYOID, TEXTOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID};

use super::{Fate, Fates, NewTask, Stored};
use crate::error::{Refusal, Result};
use crate::pg::clock::Time;
use crate::pg::statement::{Row, Statement, args};
use crate::spec::{OnHeld, Reference, State, TaskSpec};
use crate::state::{Condition, Outcome};
use crate::store::live::Place;

/// Action and key.
type Key = (String, String);

/// A stored task that a key points to.
#[derive(Clone, Debug)]
struct Holder {
    task_no: i64,
    id: String,
    /// The end of its period; `None` if it has none.
    until: Option<Time>,
    /// The states in which it holds the key.
    states: i16,
    state: State,
}

impl Holder {
    fn holds(&self, now: Time) -> bool {
        self.state.is_in(self.states) && self.until.is_none_or(|until| now < until)
    }

    /// Whether a task that is left out because of this one counts on its not having begun yet.
    fn is_relied_upon(&self) -> bool {
        self.state.is_pending() && !State::InProgress.is_in(self.states)
    }
}

/// What is known of one key of the call.
struct Known {
    /// The elements of the call that have the key, in the order of the call.
    elements: Vec<usize>,
    /// The task that the row points to, if there still is one.
    holder: Option<Holder>,
    /// The one before it, which had begun when that was inserted.
    behind: Option<Holder>,
    /// When the first of those that have replaced each other was inserted.
    since: Time,
    /// The end of the period of the one before.
    not_before: Option<Time>,
    /// Where the stored row points to; the call's own number if it has made the row.
    points_to: i64,
}

/// A task that is to hold a key, and what it does to those that held it.
struct Winner {
    element: usize,
    /// It takes their places.
    replaced: Vec<Holder>,
    /// It comes after this one.
    behind: Option<Holder>,
    /// And not before the end of its period.
    not_before: Option<Time>,
    since: Time,
}

/// What the keys of a call come to.
#[derive(Default)]
pub(super) struct Keys {
    open: BTreeMap<Key, Known>,
    decided: BTreeMap<Key, (Known, Vec<Winner>)>,
}

fn key_of(spec: &TaskSpec) -> Option<Key> {
    spec.unique.as_ref().map(|unique| (spec.action.clone(), unique.key.clone()))
}

/// The WHERE makes a row that is there already locked, and not written.
static LOCK: Statement = Statement::new(
    c"INSERT INTO taskq.unique_key AS k (action, key, task_no, since)
      SELECT u.action, u.key, u.task_no, $4 FROM unnest($1, $2, $3) AS u(action, key, task_no)
      ON CONFLICT (action, key) DO UPDATE SET task_no = k.task_no WHERE false
      RETURNING k.task_no",
    &[TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID, TIMESTAMPTZOID],
);

/// Locks the rows of keys, and makes those that are missing; returns the numbers of the rows made.
fn lock<'a>(keys: impl Iterator<Item = (&'a Key, i64)>, now: Time) -> HashSet<i64> {
    let (mut actions, mut names, mut task_nos) = (Vec::new(), Vec::new(), Vec::new());
    for ((action, name), task_no) in keys {
        actions.push(action.as_str());
        names.push(name.as_str());
        task_nos.push(task_no);
    }
    LOCK.query(args![actions, names, task_nos, now], |row| row.need(1)).into_iter().collect()
}

/// Where tasks that keys point to are, in one snapshot. States are the bits of [`State`].
static LOOK: Statement = Statement::new(
    c"SELECT u.action, u.key, k.task_no, k.since, k.not_before,
             t.id, t.unique_until, t.unique_states, t.state,
             b.task_no, b.id, b.unique_until, b.unique_states, b.state
        FROM unnest($1, $2) AS u(action, key)
       CROSS JOIN LATERAL (SELECT k.task_no, k.behind_no, k.since, k.not_before FROM taskq.unique_key k
                            WHERE k.action = u.action AND k.key = u.key OFFSET 0) AS k
        LEFT JOIN LATERAL (
             SELECT t.id, t.unique_until, t.unique_states,
                    COALESCE((SELECT CASE s.code WHEN 'c' THEN 16 ELSE 32 END
                                FROM taskq.settled s WHERE s.task_no = t.task_no),
                             (SELECT CASE WHEN r.nonce <> 0 THEN 8 ELSE 4 END
                                FROM taskq.run r WHERE r.task_no = t.task_no),
                             (SELECT 1 FROM taskq.blocked w WHERE w.task_no = t.task_no),
                             (SELECT CASE WHEN d.due > $3 THEN 2 ELSE 4 END
                                FROM taskq.scheduled d WHERE d.task_no = t.task_no),
                             4)::smallint AS state
               FROM taskq.task t WHERE t.task_no = k.task_no AND t.unique_states IS NOT NULL OFFSET 0) AS t ON true
        LEFT JOIN LATERAL (
             SELECT t.task_no, t.id, t.unique_until, t.unique_states,
                    COALESCE((SELECT CASE s.code WHEN 'c' THEN 16 ELSE 32 END
                                FROM taskq.settled s WHERE s.task_no = t.task_no),
                             (SELECT CASE WHEN r.nonce <> 0 THEN 8 ELSE 4 END
                                FROM taskq.run r WHERE r.task_no = t.task_no),
                             (SELECT 1 FROM taskq.blocked w WHERE w.task_no = t.task_no),
                             (SELECT CASE WHEN d.due > $3 THEN 2 ELSE 4 END
                                FROM taskq.scheduled d WHERE d.task_no = t.task_no),
                             4)::smallint AS state
               FROM taskq.task t WHERE t.task_no = k.behind_no AND t.unique_states IS NOT NULL OFFSET 0) AS b ON true",
    &[TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID],
);

/// A row of the look, without the elements.
fn found(row: Row) -> (Key, Known) {
    let points_to = row.need(3);
    let known = Known {
        elements: Vec::new(),
        holder: holder(Some(points_to), 6, row),
        behind: holder(row.get(10), 11, row),
        since: row.need(4),
        not_before: row.get(5),
        points_to,
    };
    ((row.need(1), row.need(2)), known)
}

/// A holder with this number, of which the other columns begin here; `None` if the task is gone.
fn holder(task_no: Option<i64>, first: i32, row: Row) -> Option<Holder> {
    Some(Holder {
        task_no: task_no?,
        id: row.get(first)?,
        until: row.get(first + 1),
        states: row.need(first + 2),
        state: State::from_stored(row.need(first + 3)),
    })
}

impl Keys {
    /// Locks the keys of the call's tasks and looks who holds them.
    pub(super) fn lock(tasks: &[NewTask], now: Time) -> Self {
        let mut open: BTreeMap<Key, Known> = BTreeMap::new();
        for task in tasks {
            let Some(key) = key_of(&task.spec) else { continue };
            open.entry(key)
                .or_insert_with(|| Known {
                    elements: Vec::new(),
                    holder: None,
                    behind: None,
                    since: now,
                    not_before: None,
                    points_to: task.task_no,
                })
                .elements
                .push(task.element);
        }
        if open.is_empty() {
            return Keys::default();
        }
        let made = lock(open.iter().map(|(key, known)| (key, known.points_to)), now);
        let (actions, names): (Vec<String>, Vec<String>) = open
            .iter()
            .filter(|(_, known)| !made.contains(&known.points_to))
            .map(|(key, _)| key.clone())
            .unzip();
        if !actions.is_empty() {
            for (key, found) in LOOK.query(args![actions, names, now], found) {
                if let Some(known) = open.get_mut(&key) {
                    *known = Known { elements: std::mem::take(&mut known.elements), ..found };
                }
            }
        }
        Keys { open, decided: BTreeMap::new() }
    }

    /// Decides on the keys for which the look was enough: nobody holds them, or their holder stays as it is
    /// and has begun or may begin.
    pub(super) fn decide_early(&mut self, tasks: &mut Vec<NewTask>, call: &mut Call) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let by_element: HashMap<usize, &NewTask> = tasks.iter().map(|t| (t.element, t)).collect();
        let replaces = |element: &usize| {
            let unique = by_element.get(element).and_then(|task| task.spec.unique.as_deref());
            unique.is_some_and(|unique| unique.on_conflict == OnHeld::Replace)
        };
        let (later, now): (BTreeMap<Key, Known>, BTreeMap<Key, Known>) =
            std::mem::take(&mut self.open).into_iter().partition(|(_, known)| {
                known.holder.as_ref().is_some_and(|holder| {
                    holder.holds(call.now) && (holder.is_relied_upon() || known.elements.iter().any(replaces))
                })
            });
        self.open = later;
        self.decide(now, tasks, call)
    }

    /// The ids of stored tasks that have to be locked, and looked at again, before the rest is decided.
    pub(super) fn watched(&self) -> Vec<String> {
        let ids: BTreeSet<&String> = self
            .open
            .values()
            .flat_map(|known| known.holder.iter().chain(&known.behind))
            .map(|holder| &holder.id)
            .collect();
        ids.into_iter().cloned().collect()
    }

    /// Decides on the rest, whose holders are locked.
    pub(super) fn decide_late(
        &mut self,
        tasks: &mut Vec<NewTask>,
        stored: &Stored,
        call: &mut Call,
    ) -> Result<()> {
        let mut open = std::mem::take(&mut self.open);
        for known in open.values_mut() {
            known.holder = known.holder.take().and_then(|holder| as_locked(holder, stored, call.now));
            known.behind = known.behind.take().and_then(|holder| as_locked(holder, stored, call.now));
        }
        self.decide(open, tasks, call)
    }

    fn decide(
        &mut self,
        open: BTreeMap<Key, Known>,
        tasks: &mut Vec<NewTask>,
        call: &mut Call,
    ) -> Result<()> {
        if open.is_empty() {
            return Ok(());
        }
        let mut left_out = LeftOut::default();
        let mut decided = BTreeMap::new();
        {
            let by_element: HashMap<usize, &NewTask> = tasks.iter().map(|t| (t.element, t)).collect();
            for (key, known) in open {
                let winners = winners(&key, &known, &by_element, call, &mut left_out)?;
                decided.insert(key, (known, winners));
            }
        }
        left_out.leave_out(tasks, call);
        let by_element: HashMap<usize, usize> =
            tasks.iter().enumerate().map(|(i, t)| (t.element, i)).collect();
        for (_, winners) in decided.values() {
            for winner in winners {
                winner.apply(&mut tasks[by_element[&winner.element]], call);
            }
        }
        self.decided.append(&mut decided);
        Ok(())
    }

    /// The ids of stored tasks whose places are taken by tasks with the same ids.
    pub(super) fn replaced_namesakes<'a>(&'a self, tasks: &[NewTask]) -> Vec<&'a str> {
        let ids: HashMap<usize, &str> = tasks.iter().map(|t| (t.element, t.id.as_str())).collect();
        self.winners()
            .flat_map(|winner| winner.replaced.iter().map(move |holder| (winner.element, holder)))
            .filter(|(element, holder)| ids.get(element) == Some(&holder.id.as_str()))
            .map(|(_, holder)| holder.id.as_str())
            .collect()
    }

    /// Lets the keys point to the tasks that were inserted; returns the ids of the stored tasks whose places
    /// they take.
    pub(super) fn take(&self, tasks: &[NewTask]) -> Vec<&str> {
        let inserted: HashMap<usize, i64> = tasks.iter().map(|t| (t.element, t.task_no)).collect();
        let mut replaced = Vec::new();
        let mut pointers: Vec<(&Key, &Winner, i64)> = Vec::new();
        let mut unused: Vec<(&Key, i64)> = Vec::new();
        for (key, (known, winners)) in &self.decided {
            let mut points_to = None;
            for winner in winners {
                if let Some(task_no) = inserted.get(&winner.element) {
                    replaced.extend(winner.replaced.iter().map(|holder| holder.id.as_str()));
                    points_to = Some((winner, *task_no));
                }
            }
            match points_to {
                Some((winner, task_no)) if task_no != known.points_to => {
                    pointers.push((key, winner, task_no))
                }
                // The row was made for a task that turned out to exist under its id.
                None if known.holder.is_none() => unused.push((key, known.points_to)),
                _ => {}
            }
        }
        point(&pointers);
        release(&unused);
        replaced
    }

    fn winners(&self) -> impl Iterator<Item = &Winner> {
        self.decided.values().flat_map(|(_, winners)| winners)
    }
}

/// What the stages of deciding share.
pub(super) struct Call<'a> {
    pub(super) now: Time,
    /// Tasks with the same ids give way (`replace_tasks`).
    pub(super) by_id: bool,
    pub(super) fates: &'a mut Fates,
}

/// A holder as its locked row shows it; `None` if the task is gone.
fn as_locked(holder: Holder, stored: &Stored, now: Time) -> Option<Holder> {
    if stored.numbers.get(&holder.id) != Some(&holder.task_no) {
        return None;
    }
    let state = match (stored.live.get(&holder.task_no), stored.outcomes.get(&holder.task_no)) {
        (Some(row), _) => match row.place {
            Place::Run { .. } if row.in_progress() => State::InProgress,
            Place::Blocked { .. } => State::Blocked,
            Place::Scheduled { due } if due > now => State::Scheduled,
            _ => State::Ready,
        },
        (None, Some(Outcome::Completed)) => State::Completed,
        (None, Some(Outcome::Aborted)) => State::Aborted,
        (None, None) => return None,
    };
    Some(Holder { state, ..holder })
}

/// Which of the call's tasks with one key are inserted; the last of them holds the key.
fn winners(
    key: &Key,
    known: &Known,
    tasks: &HashMap<usize, &NewTask>,
    call: &mut Call,
    left_out: &mut LeftOut,
) -> Result<Vec<Winner>> {
    let mut winners: Vec<Winner> = Vec::new();
    // Elements that are left out because of the last winner, which may yet be another one.
    let mut losers: Vec<usize> = Vec::new();
    for element in &known.elements {
        let task = tasks[element];
        let Some(unique) = task.spec.unique.as_deref() else { continue };
        let fresh = Winner {
            element: *element,
            replaced: Vec::new(),
            behind: None,
            not_before: None,
            since: call.now,
        };
        if let Some(winner) = winners.last_mut() {
            let other = tasks[&winner.element];
            if !other.spec.unique.as_ref().is_some_and(|unique| unique.holds_while_pending()) {
                left_out.add(losers.drain(..).map(|loser| tasks[&loser]), &other.id);
                winners.push(fresh);
                continue;
            }
            match unique.on_conflict {
                OnHeld::Error => return Err(Refusal::key_held(&key.0, &key.1, &other.id)),
                OnHeld::Skip => losers.push(*element),
                // The newest wins. What the other was about to do, this one does.
                OnHeld::Replace => losers.push(std::mem::replace(&mut winner.element, *element)),
            }
            continue;
        }
        let holder = known.holder.as_ref().filter(|holder| {
            // One that gives way because of its id gives its key up as well.
            holder.holds(call.now) && !(call.by_id && holder.id == task.id)
        });
        match (holder, unique.on_conflict) {
            (None, _) => winners.push(fresh),
            (Some(holder), OnHeld::Error) => return Err(Refusal::key_held(&key.0, &key.1, &holder.id)),
            (Some(holder), OnHeld::Skip) => left_out.add([task].into_iter(), &holder.id),
            (Some(holder), OnHeld::Replace) if !holder.state.is_pending() => {
                winners.push(Winner { behind: Some(holder.clone()), not_before: holder.until, ..fresh });
            }
            (Some(holder), OnHeld::Replace) => {
                let mut replaced = vec![holder.clone()];
                // One that had begun and is pending again is older than both.
                replaced.extend(known.behind.iter().filter(|b| b.state.is_pending()).cloned());
                // One that has ended so that it holds no key does not hold up what comes after it either.
                let over = known.behind.as_ref().is_some_and(|b| !b.state.is_in(b.states));
                winners.push(Winner {
                    element: *element,
                    replaced,
                    behind: known.behind.clone(),
                    not_before: known.not_before.filter(|_| !over),
                    since: known.since,
                });
            }
        }
    }
    if let Some(winner) = winners.last() {
        left_out.add(losers.into_iter().map(|loser| tasks[&loser]), &tasks[&winner.element].id);
    }
    Ok(winners)
}

impl Winner {
    /// Gives the task its time and the one that it comes after.
    fn apply(&self, task: &mut NewTask, call: &mut Call) {
        let Some(unique) = task.spec.unique.as_deref() else { return };
        if let (Some(max_wait), Some(not_before)) = (unique.max_wait, task.spec.not_before) {
            task.spec.not_before = Some(not_before.min(self.since.plus(max_wait)));
        }
        task.spec.not_before = task.spec.not_before.max(self.not_before.filter(|time| *time > call.now));
        if let Some(behind) = &self.behind {
            let known = task.spec.depends_on.iter().any(|r| r.id == behind.id);
            if behind.state == State::InProgress && !known {
                let reference = Reference { id: behind.id.clone(), condition: Condition::Settled };
                task.spec.depends_on.push(reference);
            }
        }
        if let Some(holder) = self.replaced.first() {
            call.fates.insert(self.element, Fate::Replaced { existing: holder.id.clone() });
        } else if let Some(holder) = &self.behind {
            call.fates.insert(self.element, Fate::After { existing: holder.id.clone() });
        }
    }
}

/// Tasks of the call that are not inserted, and the ids of those that stand for them.
#[derive(Default)]
struct LeftOut {
    elements: HashSet<usize>,
    /// By the id of the one left out.
    stands_for: HashMap<String, String>,
}

impl LeftOut {
    fn add<'a>(&mut self, tasks: impl Iterator<Item = &'a NewTask>, id: &str) {
        for task in tasks {
            self.elements.insert(task.element);
            self.stands_for.insert(task.id.clone(), id.to_owned());
        }
    }

    /// Takes the tasks out of the call; dependencies that name them go to those that stand for them.
    fn leave_out(&self, tasks: &mut Vec<NewTask>, call: &mut Call) {
        if self.elements.is_empty() {
            return;
        }
        tasks.retain(|task| {
            let out = self.elements.contains(&task.element);
            if out && let Some(existing) = self.stands_for.get(&task.id) {
                call.fates.insert(task.element, Fate::Skipped { existing: existing.clone() });
            }
            !out
        });
        for task in tasks {
            for references in [&mut task.spec.depends_on, &mut task.spec.to_signal_after] {
                references.retain_mut(|reference| match self.stands_for.get(&reference.id) {
                    None => true,
                    // What was to come after a task that it stands for now.
                    Some(other) if *other == task.id => false,
                    Some(other) => {
                        reference.id.clone_from(other);
                        true
                    }
                });
            }
        }
    }
}

static POINT: Statement = Statement::new(
    c"INSERT INTO taskq.unique_key AS k (action, key, task_no, behind_no, since, not_before)
      SELECT u.action, u.key, u.task_no, u.behind_no, u.since, u.not_before
        FROM unnest($1, $2, $3, $4, $5, $6) AS u(action, key, task_no, behind_no, since, not_before)
      ON CONFLICT (action, key) DO UPDATE
         SET task_no = EXCLUDED.task_no, behind_no = EXCLUDED.behind_no, since = EXCLUDED.since,
             not_before = EXCLUDED.not_before",
    &[TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID],
);

/// Lets rows that are locked point to new tasks. (A row that the call has removed together with the task that
/// it pointed to is made again.)
fn point(pointers: &[(&Key, &Winner, i64)]) {
    if pointers.is_empty() {
        return;
    }
    POINT.execute(args![
        pointers.iter().map(|(key, ..)| key.0.as_str()).collect::<Vec<_>>(),
        pointers.iter().map(|(key, ..)| key.1.as_str()).collect::<Vec<_>>(),
        pointers.iter().map(|(.., task_no)| *task_no).collect::<Vec<_>>(),
        pointers
            .iter()
            .map(|(_, winner, _)| winner.behind.as_ref().map(|behind| behind.task_no))
            .collect::<Vec<_>>(),
        pointers.iter().map(|(_, winner, _)| winner.since).collect::<Vec<_>>(),
        pointers.iter().map(|(_, winner, _)| winner.not_before).collect::<Vec<_>>(),
    ]);
}

/// The number that a row has which was made only to be locked. No task has it.
const NOBODY: i64 = 0;

/// Locks the keys of tasks that are to be inserted later in this call, after other locks: they come first in
/// the global order. `unlock` removes the rows that were made and not used.
pub(crate) fn lock_keys<'a>(
    specs: impl Iterator<Item = &'a TaskSpec>,
    now: Time,
) -> BTreeSet<(String, String)> {
    let keys: BTreeSet<Key> = specs.filter_map(key_of).collect();
    if !keys.is_empty() {
        lock(keys.iter().map(|key| (key, NOBODY)), now);
    }
    keys
}

/// Removes the rows that [`lock_keys`] has made and that no task was inserted for.
pub(crate) fn unlock(keys: &BTreeSet<(String, String)>) {
    release(&keys.iter().map(|key| (key, NOBODY)).collect::<Vec<_>>());
}

static RELEASE: Statement = Statement::new(
    c"DELETE FROM taskq.unique_key d
       WHERE d.ctid = ANY (ARRAY(
               SELECT k.ctid FROM unnest($1, $2, $3) AS u(action, key, task_no)
                CROSS JOIN LATERAL (SELECT k.ctid FROM taskq.unique_key k
                                     WHERE k.action = u.action AND k.key = u.key AND k.task_no = u.task_no
                                       FOR UPDATE SKIP LOCKED) AS k))",
    &[TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID],
);

/// Removes rows that point to these numbers. One that somebody has locked is left.
fn release(rows: &[(&Key, i64)]) {
    if rows.is_empty() {
        return;
    }
    RELEASE.execute(args![
        rows.iter().map(|(key, _)| key.0.as_str()).collect::<Vec<_>>(),
        rows.iter().map(|(key, _)| key.1.as_str()).collect::<Vec<_>>(),
        rows.iter().map(|(_, task_no)| *task_no).collect::<Vec<_>>(),
    ]);
}

/// Removes the rows of keys that point to tasks that have gone: the key and the number of each.
pub(crate) fn forget(gone: &[((String, String), i64)]) {
    release(&gone.iter().map(|(key, task_no)| (key, *task_no)).collect::<Vec<_>>());
}

/// Rows behind a key that point to tasks that are gone, among the next so many. A number that is gone stays
/// gone; and a row that is seen here was made together with its task, which an insertion under way would not
/// have done yet: not to be called by one.
static LEFT_BEHIND: Statement = Statement::new(
    c"SELECT k.action, k.key, k.task_no
        FROM (SELECT k.action, k.key, k.task_no FROM taskq.unique_key k
               WHERE (k.action, k.key) > ($1, $2) ORDER BY k.action, k.key LIMIT 20) AS k
       WHERE NOT EXISTS (SELECT FROM taskq.task t WHERE t.task_no = k.task_no OFFSET 0)",
    &[TEXTOID, TEXTOID],
);

/// Removes rows that a removal had to leave, among those behind one of the keys of tasks that have just gone.
/// Such keys are spread over all keys, so sooner or later somebody comes past each.
pub(crate) fn tidy(gone: &[((String, String), i64)]) {
    let Some((last, _)) = gone.last() else { return };
    let left: Vec<(Key, i64)> = LEFT_BEHIND
        .query(args![last.0.as_str(), last.1.as_str()], |row| ((row.need(1), row.need(2)), row.need(3)));
    release(&left.iter().map(|(key, task_no)| (key, *task_no)).collect::<Vec<_>>());
}
