//! Tasks go, with their dependencies, and as a rule with blocked tasks that lose their last dependency by it.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::insert::lock_for_change;
use crate::locks;
use crate::number::{TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::settle::merge_keys;
use crate::settle::{Ending, TOO_FEW, fold, release_or_complete, settle, without_open};
use crate::state::{Cause, Condition, Outcome};
use crate::store::dependency::Counts;
use crate::store::live::{self, Counter, Live, Place};
use crate::store::traces::Traces;
use crate::store::{attempts, blocked, dependency, progress, settled, step, task};
use crate::wake;

/// Deletes tasks whose live rows are locked, whatever their state, and blocked ones that lose their last dependency by it; how many
/// that were.
///
/// Suspended ones stay, and are freed if nothing else is open; signals whose dependencies are met stay as well. What is left behind is
/// tidied up once for all waves: a chain may have many.
pub(crate) fn delete_locked(wave: Vec<TaskNo>, rows: HashMap<TaskNo, Live>, now: Time) -> i64 {
    delete_beside(&HashSet::new(), wave, rows, now)
}

/// The same beside some that stay, whatever they have waited for. They lose their dependencies on what goes, and nothing
/// else: the caller places them anew.
pub(crate) fn delete_beside(
    staying: &HashSet<TaskNo>,
    mut wave: Vec<TaskNo>,
    mut rows: HashMap<TaskNo, Live>,
    now: Time,
) -> i64 {
    let mut traces = Traces::default();
    let mut with_too_few = BTreeMap::new();
    while !wave.is_empty() {
        check_for_interrupts();
        let outcomes = locks::outcomes(&wave);
        lock_dependents(&wave);
        remove(&wave, &rows, &mut traces);
        let mut left = edges_gone(&wave, &outcomes, staying, &mut with_too_few, now);
        left.extend(downstream(&left, staying, now));
        rows = left.iter().map(|row| (row.task_no, row.clone())).collect();
        wave = left.iter().map(|row| row.task_no).collect();
    }
    abort_with_too_few(with_too_few, now);
    traces.tidy(now)
}

/// How many tasks are worth a wave of their own; how many a look ahead sees at first, and at most.
const MANY: usize = 1_000;
const FIRST_AHEAD: usize = 100;
const MOST_AHEAD: usize = 100_000;

/// What waits for these tasks, and for what waits for them, nearest first, $2 tasks at most; with their numbers of dependencies.
static AHEAD: Statement<(&[TaskNo], i64), (TaskNo, i32)> = Statement::new(
    c"WITH RECURSIVE ahead AS (
        SELECT b.task_no, b.dependencies
          FROM pg_catalog.unnest($1) AS u(task_no)
         CROSS JOIN LATERAL (SELECT d.run_no FROM taskq.dependency d WHERE d.after_no = u.task_no OFFSET 0) AS d
         CROSS JOIN LATERAL (SELECT b.task_no, b.dependencies FROM taskq.blocked b
                              WHERE b.task_no = d.run_no OFFSET 0) AS b
         UNION
        SELECT b.task_no, b.dependencies
          FROM ahead AS a
         CROSS JOIN LATERAL (SELECT d.run_no FROM taskq.dependency d WHERE d.after_no = a.task_no OFFSET 0) AS d
         CROSS JOIN LATERAL (SELECT b.task_no, b.dependencies FROM taskq.blocked b
                              WHERE b.task_no = d.run_no OFFSET 0) AS b)
      SELECT a.task_no, a.dependencies FROM ahead AS a LIMIT $2",
);
static INTO: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.counts <> 'd'",
);

/// What loses its last dependency with tasks that are about to go, and what loses its last with that, and so on: locked, and only
/// what is still blocked, not suspended, and no signal that waits for its word alone. A chain has as many levels as tasks, and goes
/// in few waves. What is not found here is found level by level.
///
/// The tasks of the wave have lost all their dependencies: counting what is deferred changes none of them. No
/// dependency can be added from or to a task that is locked, so that what is read with the newest snapshot stays true.
fn downstream(wave: &[Live], staying: &HashSet<TaskNo>, now: Time) -> Vec<Live> {
    let wave: Vec<TaskNo> = wave.iter().map(|row| row.task_no).collect();
    let expected: Vec<TaskNo> = expected(&wave, staying).into_iter().collect();
    if expected.is_empty() {
        return Vec::new();
    }
    lock_for_change(&expected);
    fold::of(&expected, now);
    let mut rows = lock_for_change(&expected);
    rows.retain(|_, row| {
        row.counter().is_some_and(|counter| counter.since.is_none() && !counter.waits_for_word())
    });
    let going = orphans(&wave, &rows.values().map(|row| (row.task_no, row.dependencies)).collect());
    rows.into_values().filter(|row| going.contains(&row.task_no)).collect()
}

/// The same as far as it can be read without a lock; nothing for a large wave. It reads further ahead, up to a bound, as long as most of
/// what it finds will go.
fn expected(wave: &[TaskNo], staying: &HashSet<TaskNo>) -> HashSet<TaskNo> {
    if wave.is_empty() || wave.len() >= MANY {
        return HashSet::new();
    }
    let mut most = FIRST_AHEAD;
    loop {
        check_for_interrupts();
        let mut seen: HashMap<TaskNo, i32> = AHEAD.query((wave, most as i64)).into_iter().collect();
        let cut = seen.len() >= most;
        seen.retain(|task_no, _| !staying.contains(task_no));
        let going = orphans(wave, &seen);
        if !cut || going.len() < most / 2 || most == MOST_AHEAD {
            return going;
        }
        most = (8 * most).min(MOST_AHEAD);
    }
}

/// Those of the candidates, which are given with their numbers of dependencies, of which each dependency is on a task of the wave
/// or on another of those.
fn orphans(wave: &[TaskNo], candidates: &HashMap<TaskNo, i32>) -> HashSet<TaskNo> {
    let mut dependents: HashMap<TaskNo, Vec<TaskNo>> = HashMap::new();
    for (after, run) in INTO.query(candidates.keys().copied().collect::<Vec<_>>()) {
        dependents.entry(after).or_default().push(run);
    }
    let (mut lost, mut orphans): (HashMap<TaskNo, i32>, HashSet<TaskNo>) = Default::default();
    let mut going: Vec<TaskNo> = wave.to_vec();
    while let Some(after) = going.pop() {
        for run in dependents.remove(&after).into_iter().flatten() {
            let lost = lost.entry(run).or_default();
            *lost += 1;
            if *lost >= candidates[&run] && orphans.insert(run) {
                going.push(run);
            }
        }
    }
    orphans
}

static DEPENDENTS: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT d.run_no FROM taskq.dependency d WHERE d.after_no = ANY ($1)");

/// Locks what waits for these tasks before the dependencies are locked. One that goes on without what is open, since its time is
/// over for instance, skips dependencies that are locked: those are removed, and counted out of it, or it has gone on before.
fn lock_dependents(wave: &[TaskNo]) {
    let mut dependents: Vec<TaskNo> = DEPENDENTS.query(wave);
    dependents.sort_unstable();
    dependents.dedup();
    if !dependents.is_empty() {
        lock_for_change(&dependents);
    }
}

/// Removes the rows of one wave.
fn remove(wave: &[TaskNo], rows: &HashMap<TaskNo, Live>, traces: &mut Traces) {
    live::remove(rows.values());
    merge_keys::given_back(rows.values());
    let ends = settled::REMOVE
        .map(wave, |(task_no, _, outcome, _)| (task_no, Outcome::from_stored(outcome)))
        .into_iter()
        .collect();
    progress::forget(wave);
    attempts::forget(wave);
    step::forget(wave);
    locks::lock_edges_of(wave);
    dependency::REMOVE_RUN.execute(wave);
    for task_no in wave {
        wake::settled(*task_no);
    }
    traces.by_removing(wave, &ends);
}

/// What tasks lose with the edges from deleted tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Loss {
    /// Dependencies in all.
    all: i32,
    /// Of these, how many had ended, or are kept as ended.
    had: i32,
    /// How many had aborted.
    failed: i32,
    /// Dependencies that had not ended, of the wait that the task is in: that is known once its counter is locked.
    open: i32,
}

/// What becomes of a task that waits and loses dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It has none any more, and goes, too.
    Nothing,
    /// Too few are left of those of which it needs some.
    TooFew,
    /// It has nothing left to wait for.
    Free,
    /// It waits for the others: of `remaining` and `spare` that much goes.
    Others { remaining: i32, spare: i32 },
}

impl Loss {
    fn add(&mut self, other: Loss) {
        self.all += other.all;
        self.had += other.had;
        self.failed += other.failed;
        self.open += other.open;
    }

    /// Without what had ended.
    fn of_open(self) -> Loss {
        Loss { all: self.all - self.had, had: 0, failed: 0, ..self }
    }

    fn take_from(self, row: &mut Live) {
        row.dependencies -= self.all;
        row.failures -= self.failed;
    }

    /// A suspended task never goes with what it waits for: it is freed, as by its time-out, once nothing else is open.
    fn leaves(self, row: &Live, counter: &Counter, some_suffice: bool) -> Left {
        // A dependency that settled and was then replaced, or whose retention is over, still counts.
        if row.dependencies <= self.all && counter.since.is_none() && !counter.waits_for_word() {
            return Left::Nothing;
        }
        match (some_suffice && counter.since.is_none(), counter) {
            (true, counter) if counter.spare < self.open => Left::TooFew,
            (true, _) => Left::Others { remaining: 0, spare: self.open },
            (false, counter) if counter.remaining <= self.open => Left::Free,
            (false, _) => Left::Others { remaining: self.open, spare: 0 },
        }
    }
}

/// Removes the edges from deleted tasks: what their dependents lose, and the waits of the open ones.
fn losses_of(
    wave: &[TaskNo],
    outcomes: &HashMap<TaskNo, Outcome>,
    staying: &HashSet<TaskNo>,
) -> (BTreeMap<TaskNo, Loss>, HashMap<TaskNo, Vec<WaitNo>>) {
    let mut losses: BTreeMap<TaskNo, Loss> = BTreeMap::new();
    let mut open: HashMap<TaskNo, Vec<WaitNo>> = HashMap::new();
    for (after, run, wait_no, counts, condition) in dependency::REMOVE_AFTER.query(wave) {
        let counts = Counts::from_stored(counts);
        if staying.contains(&run) || counts == Counts::Dropped {
            continue;
        }
        let loss = losses.entry(run).or_default();
        loss.all += 1;
        match outcomes.get(&after) {
            // What has been counted of one that started over was another end.
            _ if counts.is_kept() => {
                loss.had += 1;
                loss.failed += i32::from(counts.has_kept_failure(Condition::from_stored(condition)));
            }
            None => open.entry(run).or_default().push(wait_no),
            Some(outcome) => {
                loss.had += 1;
                loss.failed += i32::from(outcome.is_abort());
            }
        }
    }
    (losses, open)
}

/// Takes the edges from deleted tasks away. Blocked dependents with nothing left to wait for are released,
/// or complete if spontaneous; those left without any dependency that are to go with it are returned, locked.
///
/// What is left with too few stays as it is for now, with its losses in `with_too_few`: the next wave may take the others.
fn edges_gone(
    wave: &[TaskNo],
    outcomes: &HashMap<TaskNo, Outcome>,
    staying: &HashSet<TaskNo>,
    with_too_few: &mut BTreeMap<TaskNo, Loss>,
    now: Time,
) -> Vec<Live> {
    let (losses, open) = losses_of(wave, outcomes, staying);
    if losses.is_empty() {
        return Vec::new();
    }
    let dependents: Vec<TaskNo> = losses.keys().copied().collect();
    // A deleted task that had settled may have left a signal that has not been counted yet. It is counted first: what
    // is subtracted below was counted then. We have the counters locked, so that nothing stays deferred.
    lock_for_change(&dependents);
    fold::of(&dependents, now);
    let some_suffice = task::with_num_required(&dependents);
    let (mut orphans, mut free) = (Vec::new(), Vec::new());
    let mut lowered: BTreeMap<(Loss, i32, i32), Vec<TaskNo>> = BTreeMap::new();
    for mut row in lock_for_change(&dependents).into_values() {
        let Place::Blocked(counter) = row.place else { continue };
        let before = with_too_few.remove(&row.task_no).unwrap_or_default();
        let mut loss = losses[&row.task_no];
        // What a suspended task had it has had, as one that is free.
        if counter.since.is_some() {
            loss = loss.of_open();
        }
        let of_this_wait = open.get(&row.task_no).into_iter().flatten().filter(|n| **n == counter.wait_no);
        loss.open = of_this_wait.count() as i32;
        loss.add(before);
        match loss.leaves(&row, &counter, some_suffice.contains_key(&row.task_no)) {
            Left::Others { remaining, spare } => {
                lowered.entry((loss, remaining, spare)).or_default().push(row.task_no);
            }
            Left::Nothing => orphans.push(row),
            Left::TooFew => {
                with_too_few.insert(row.task_no, loss);
            }
            Left::Free => {
                loss.take_from(&mut row);
                row.place = Place::Blocked(Counter { remaining: 0, spare: 0, ..counter });
                free.push(row);
            }
        }
    }
    for ((loss, remaining, spare), task_nos) in lowered {
        blocked::LOWER.execute((task_nos, remaining, spare, loss.all, loss.failed));
    }
    live::remove(&free);
    settle(release_or_complete(free, now), now);
    orphans
}

/// Aborts tasks that have lost too many of those of which they need some.
fn abort_with_too_few(losses: BTreeMap<TaskNo, Loss>, now: Time) {
    if losses.is_empty() {
        return;
    }
    let task_nos: Vec<TaskNo> = losses.keys().copied().collect();
    // Ends that the deletion has brought about have been counted since: one of the tasks may have what it needs.
    let mut endings: Vec<Live> =
        lock_for_change(&task_nos).into_values().filter(|row| row.counter().is_some()).collect();
    for row in &mut endings {
        losses[&row.task_no].take_from(row);
    }
    without_open(endings.iter_mut());
    live::remove(&endings);
    let endings = endings.iter().map(|row| Ending::abort(row, Cause::Dependency, Some(TOO_FEW.to_owned())));
    settle(endings.collect(), now);
}
