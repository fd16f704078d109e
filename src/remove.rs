//! Tasks go, with their dependencies, and with blocked tasks that lose their last dependency by it (suspended ones
//! are freed, signals stay).

use std::collections::{HashMap, HashSet};

use crate::insert::{Standing, lock_for_change};
use crate::locks;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, sql};
use crate::recount::{self, Recount};
use crate::settle::{fold, merge_keys};
use crate::state::Outcome;
use crate::store::dependency::counted_end;
use crate::store::live::{self, Live};
use crate::store::traces::Traces;
use crate::store::{attempts, dependency, progress, settled, step};
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
    let mut recount = Recount::default();
    while !wave.is_empty() {
        check_for_interrupts();
        let dependents = lock_dependents(&wave, staying);
        cut_kept(&wave, &dependents);
        recount.before(dependents.values().filter(|row| row.counter().is_some()));
        remove(&wave, &rows, &mut traces);
        let mut left = edges_gone(&dependents, &mut recount, now);
        left.extend(downstream(&left, staying, now));
        rows = left.iter().map(|row| (row.task_no, row.clone())).collect();
        wave = left.iter().map(|row| row.task_no).collect();
    }
    // Ends that the deletion has brought about have been counted since.
    let blocked = blocked_of(recount.tasks());
    recount::store(recount.after(blocked), &HashMap::new(), now);
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
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.state = 'w'",
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

/// What can be read of the same without a lock; nothing for a large wave. It reads further ahead, up to a bound, as long as most of
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
/// over, skips dependencies that are locked: those are removed, and counted out of it, or it has gone on before. The rows of those that
/// are not among the tasks and do not stay whatever they have waited for.
fn lock_dependents(wave: &[TaskNo], staying: &HashSet<TaskNo>) -> HashMap<TaskNo, Live> {
    let mut dependents: Vec<TaskNo> = DEPENDENTS.query(wave);
    dependents.sort_unstable();
    dependents.dedup();
    if dependents.is_empty() {
        return HashMap::new();
    }
    let going: HashSet<&TaskNo> = wave.iter().collect();
    let mut rows = lock_for_change(&dependents);
    rows.retain(|task_no, _| !going.contains(task_no) && !staying.contains(task_no));
    rows
}

/// Dependencies on these tasks that have ended. $2: of these.
static ENDED: Statement<(&[TaskNo], &[TaskNo]), (TaskNo, TaskNo)> = Statement::new(sql!(
    "SELECT d.after_no, d.run_no FROM taskq.dependency d
       WHERE d.after_no = ANY ($1) AND d.run_no = ANY ($2) AND EXISTS (",
    counted_end!(),
    ")"
));

/// What a suspended task has had of those that go it has had, as one that is free.
fn cut_kept(wave: &[TaskNo], dependents: &HashMap<TaskNo, Live>) {
    let suspended =
        dependents.values().filter(|row| row.counter().is_some_and(|counter| counter.since.is_some()));
    let suspended: Vec<TaskNo> = suspended.map(|row| row.task_no).collect();
    if suspended.is_empty() {
        return;
    }
    let kept = ENDED.query((wave, suspended));
    locks::lock_edges(&kept);
    dependency::REMOVE.execute(kept.into_iter().unzip::<_, _, Vec<_>, Vec<_>>());
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
    dependency::REMOVE_AFTER.execute(wave);
    for task_no in wave {
        wake::settled(*task_no);
    }
    traces.by_removing(wave, &ends);
}

/// Counts those that have depended on tasks that are gone. Blocked ones with nothing left to wait for are released, or complete if
/// spontaneous; those left without any dependency that are to go with it are returned, locked. A suspended one never goes with what it
/// waits for: it is freed, as by its time-out, once nothing else is open.
///
/// What is left with too few is put off: the next wave may take the others.
fn edges_gone(dependents: &HashMap<TaskNo, Live>, recount: &mut Recount, now: Time) -> Vec<Live> {
    if dependents.is_empty() {
        return Vec::new();
    }
    let dependents: Vec<TaskNo> = dependents.keys().copied().collect();
    // A deleted task that had settled may have left an end that has not been counted yet: one may be freed or lost by it.
    fold::of(&dependents, now);
    let (mut orphans, mut others) = (Vec::new(), Vec::new());
    for one in recount.after(blocked_of(dependents)) {
        let stays =
            one.was.counter().is_some_and(|counter| counter.since.is_some() || counter.waits_for_word());
        // A dependency that settled and was then replaced, or whose retention is over, still counts.
        if one.row.dependencies <= 0 && !stays {
            orphans.push(one.was);
        } else if one.standing == Standing::Lost {
            recount.put_off(&one);
        } else {
            others.push(one);
        }
    }
    recount::store(others, &HashMap::new(), now);
    orphans
}

/// The rows, locked, of those of the tasks that wait.
fn blocked_of(task_nos: Vec<TaskNo>) -> Vec<Live> {
    if task_nos.is_empty() {
        return Vec::new();
    }
    lock_for_change(&task_nos).into_values().filter(|row| row.counter().is_some()).collect()
}
