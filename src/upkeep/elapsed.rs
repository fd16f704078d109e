//! Leases whose time has come.
//!
//! A task whose deadline has passed goes to the end of its priority *with its token*: until it is granted
//! again, a late return still succeeds. If that was its last try it is aborted instead.
//!
//! Nothing is waited for. A task whose row another transaction has locked just now, to return or extend it or to make
//! another depend on it, and one whose merge key or riders are locked, are looked at again a second later.

use std::collections::HashSet;
use std::time::Duration;

use pgrx::pg_sys::ItemPointerData;

use super::holders;
use crate::flow::actions::try_limits;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::{assign_transaction_id, check_for_interrupts};
use crate::pg::statement::Statement;
use crate::settle::{Ending, settle};
use crate::state::Cause;
use crate::store::lease::{append, tidy};
use crate::store::live::{InRun, Live};
use crate::store::run::changes;
use crate::store::slot;
use crate::store::{aside, attempts, merge_key, ready};
use crate::token::{Base, Nonce, in_pieces};

/// A lease whose time has come.
struct Elapsed {
    row: ItemPointerData,
    deadline: Time,
    keeper: TaskNo,
    base: Base,
    /// How many tasks it was for.
    tasks: usize,
    /// Those of its tasks that are still held, with deadlines that have passed.
    overdue: Vec<TaskNo>,
    /// Those that were set aside until then.
    aside: Vec<TaskNo>,
}

/// Walks `lease_deadline_idx`, from a deadline and keeper on, up to so many leases or tasks, one lease at least, and asks the
/// tasks. Locks nothing.
static LOOK: Statement<
    (Time, Time, TaskNo, i32, i64),
    (ItemPointerData, Time, TaskNo, Base, i64, Vec<TaskNo>, Vec<TaskNo>),
> = Statement::new(
    c"SELECT l.place, l.deadline, l.keeper_no, l.base, l.tasks,
             ARRAY(SELECT r.task_no
                     FROM unnest(l.keeper_no || l.others) AS n(task_no)
                    CROSS JOIN LATERAL (
                          SELECT r.task_no FROM taskq.run r
                           WHERE r.task_no = n.task_no AND r.nonce = l.base # n.task_no
                             AND NOT r.grantable AND r.aside IS NULL AND r.deadline <= $1 OFFSET 0) AS r),
             ARRAY(SELECT r.task_no
                     FROM unnest(l.keeper_no || l.others) AS n(task_no)
                    CROSS JOIN LATERAL (
                          SELECT r.task_no FROM taskq.run r
                           WHERE r.task_no = n.task_no AND r.nonce = l.base # n.task_no
                             AND r.aside IS NOT NULL OFFSET 0) AS r)
        FROM (SELECT l.*, sum(l.tasks) OVER (ORDER BY l.deadline, l.keeper_no ROWS UNBOUNDED PRECEDING) - l.tasks AS before
                FROM (SELECT l.ctid AS place, l.deadline, l.keeper_no, l.base, l.others,
                             1 + COALESCE(pg_catalog.cardinality(l.others), 0)::bigint AS tasks
                        FROM taskq.lease l
                       WHERE l.deadline <= $1 AND (l.deadline, l.keeper_no) > ($2, $3)
                       ORDER BY l.deadline, l.keeper_no LIMIT $4) AS l) AS l
       WHERE l.before < $5
       ORDER BY l.deadline, l.keeper_no",
);

/// How many leases one statement looks at, and of how many tasks; and how many leases one call.
const WINDOW: usize = 200;
const WINDOW_TASKS: usize = 2_000;
const MOST_LOOKED_AT: usize = 10_000;

/// The leases whose time has come, earliest first, in windows: those from `start` on.
fn windows(start: Time, now: Time) -> impl Iterator<Item = Vec<Elapsed>> {
    let mut from = Some((start, TaskNo(i64::MIN)));
    (0..MOST_LOOKED_AT / WINDOW).map_while(move |_| {
        let (deadline, keeper) = from?;
        check_for_interrupts();
        let window: Vec<Elapsed> = LOOK.map(
            (now, deadline, keeper, WINDOW as i32, WINDOW_TASKS as i64),
            |(row, deadline, keeper, base, tasks, overdue, aside)| Elapsed {
                row,
                deadline,
                keeper,
                base,
                tasks: tasks as usize,
                overdue,
                aside,
            },
        );
        from = window.last().filter(|_| is_cut(&window)).map(|l| (l.deadline, l.keeper));
        Some(window)
    })
}

/// Whether there may be leases behind those of the window.
fn is_cut(window: &[Elapsed]) -> bool {
    window.len() == WINDOW || window.iter().map(|lease| lease.tasks).sum::<usize>() >= WINDOW_TASKS
}

/// What became of the leases that were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    /// The try of a task has ended.
    pub(crate) ended: bool,
    /// There were some that no task needs any more; they are gone, unless the call may go to sleep.
    pub(crate) stale: bool,
    /// A task is overdue and in somebody else's hands.
    pub(crate) busy: bool,
    /// There may be more.
    pub(crate) more: bool,
}

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looker {
    /// A call that ends by itself, and its transaction with it.
    Free,
    /// A call in a transaction that may stay open: it touches no more than it can use.
    Hostage,
    /// A call that may go to sleep: it changes nothing that is not worth an early end.
    Waiter,
}

/// Looks after leases that have passed, of up to `bound` tasks if the call's transaction may stay open, else of up to
/// `bound` leases, or ten times as many tasks. Those that no task needs any more do not count. Begins at the deadline `start`.
///
/// What is done at once has to be short: a call that is given a second by its caller, and is cut off, has done nothing, and
/// the next one begins anew.
pub(crate) fn look_after(bound: usize, looker: Looker, start: Time, now: Time) -> Looked {
    let mut looked = Looked::default();
    let (mut stale, mut passed, mut count) = (Vec::new(), Vec::new(), 0);
    for window in windows(start, now) {
        looked.more = is_cut(&window);
        for lease in window {
            if lease.is_stale() {
                stale.push(lease.row);
            } else if count < bound {
                let tasks = lease.overdue.len() + lease.aside.len();
                count += if looker == Looker::Hostage { tasks } else { tasks.div_ceil(10) };
                passed.push(lease);
            } else {
                looked.more = true;
            }
        }
        if count >= bound {
            break;
        }
    }
    looked.stale = !stale.is_empty();
    if looker != Looker::Waiter {
        tidy::remove(stale);
    }
    if !passed.is_empty() {
        looked.ended = match looker {
            Looker::Hostage => end_some(passed, bound, now),
            _ => end_all(passed, now),
        };
        looked.busy = !looked.ended;
    }
    looked
}

/// Removes leases that have passed and that no task needs any more; how many.
pub(crate) fn remove_stale(now: Time) -> usize {
    let all = windows(Time::BEGINNING, now).flatten().filter(Elapsed::is_stale);
    tidy::remove(all.map(|lease| lease.row).collect()).len()
}

/// How soon a task that another transaction has locked is looked at again.
const AGAIN: Duration = Duration::from_secs(1);

/// Ends the tries under these leases, which go. Tasks that are locked get a lease of a second more: it would be left
/// without one if that lock came to nothing. Tells whether there were any tries to end.
fn end_all(mut passed: Vec<Elapsed>, now: Time) -> bool {
    // Others look after those that they have taken.
    let taken = tidy::remove(passed.iter().map(|lease| lease.row).collect());
    passed.retain(|lease| taken.contains(&(lease.base, lease.keeper)));
    let held: Vec<(TaskNo, Nonce)> = passed.iter().flat_map(Elapsed::held).collect();
    let locked = lock(&held, now);
    let ours: HashSet<TaskNo> = locked.iter().map(|l| l.task_no).collect();
    for (task_no, nonce) in held.iter().filter(|(n, _)| !ours.contains(n)) {
        append(now + AGAIN, nonce.base(*task_no), vec![*task_no]);
    }
    let freed = look_again(&passed);
    end_tries(locked, now) | freed
}

/// Ends the tries of up to `bound` tasks. Leases that others could need while this transaction is open stay as they are.
fn end_some(passed: Vec<Elapsed>, bound: usize, now: Time) -> bool {
    let held: Vec<(TaskNo, Nonce)> = passed.iter().flat_map(Elapsed::held).take(bound).collect();
    let locked = lock(&held, now);
    let ours: HashSet<TaskNo> = locked.iter().map(|l| l.task_no).collect();
    let done = passed.iter().filter(|lease| lease.overdue.iter().all(|n| ours.contains(n)));
    tidy::remove(done.map(|lease| lease.row).collect());
    let freed = look_again(&passed);
    end_tries(locked, now) | freed
}

/// Those that were set aside are ready again.
fn look_again(passed: &[Elapsed]) -> bool {
    let aside = passed.iter().flat_map(|l| l.aside.iter().map(|n| (*n, l.base.nonce(*n))));
    let aside: Vec<(TaskNo, Nonce)> = aside.collect();
    !aside.is_empty() && aside::look_again(&aside)
}

impl Elapsed {
    /// No task needs it any more.
    fn is_stale(&self) -> bool {
        self.overdue.is_empty() && self.aside.is_empty()
    }

    /// Its overdue tasks with their nonces.
    fn held(&self) -> impl Iterator<Item = (TaskNo, Nonce)> {
        self.overdue.iter().map(|n| (*n, self.base.nonce(*n)))
    }
}

/// Those that hold no merge key. What a holder's end needs besides is for [`holders`].
static LOCK: Statement<(&[TaskNo], &[Nonce], Time), InRun> = Statement::new(
    c"SELECT r.task_no, r.tries, r.failures, r.dependencies, r.nonce, r.granted_at, r.actor_id,
             r.limited, r.keyed, r.deadline
        FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND NOT r.grantable AND r.aside IS NULL AND r.deadline <= $3 AND NOT r.keyed
         FOR UPDATE SKIP LOCKED",
);
static KEYED: Statement<(&[TaskNo], &[Nonce], Time), TaskNo> = Statement::new(
    c"SELECT r.task_no FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND NOT r.grantable AND r.aside IS NULL AND r.deadline <= $3 AND r.keyed",
);

/// Locks those of the tasks that are still overdue and in nobody else's hands, with all that the end of their tries
/// concerns.
fn lock(held: &[(TaskNo, Nonce)], now: Time) -> Vec<Live> {
    if held.is_empty() {
        return Vec::new();
    }
    let (mut keyed, mut locked): (Vec<TaskNo>, Vec<Live>) = (Vec::new(), Vec::new());
    for (task_nos, nonces) in in_pieces(held.iter().copied()) {
        keyed.extend(KEYED.query((task_nos.as_slice(), nonces.as_slice(), now)));
        locked.extend(LOCK.map((task_nos, nonces, now), |InRun(live)| live));
    }
    if !keyed.is_empty() {
        locked.extend(holders::lock(keyed, now));
    }
    locked
}

/// The try of each has ended: on to the next one, or to an abort if that was the last. Tells whether there were any.
fn end_tries(locked: Vec<Live>, now: Time) -> bool {
    if locked.is_empty() {
        return false;
    }
    assign_transaction_id();
    let task_nos: Vec<TaskNo> = locked.iter().map(|l| l.task_no).collect();
    let limits = try_limits(&task_nos);
    // The history has the earlier ones; this one makes one more.
    let counted = limits.iter().filter(|(_, limit)| limit.max_timeouts.is_some_and(|max| max > 1));
    let timeouts = attempts::timeouts(&counted.map(|(task_no, _)| *task_no).collect::<Vec<_>>());
    let limited = locked.iter().filter(|l| l.limited).map(|l| l.task_no);
    slot::release(&limited.collect::<Vec<_>>());
    let (mut exhausted, mut left) = (Vec::new(), Vec::new());
    for live in locked {
        let limit = limits.get(&live.task_no).copied().unwrap_or_default();
        let over = limit.max_tries.is_some_and(|max| live.tries >= max)
            || limit.max_timeouts.is_some_and(|max| timeouts.get(&live.task_no).unwrap_or(&0) + 1 >= max);
        if over { exhausted.push(live) } else { left.push(live) }
    }
    if !left.is_empty() {
        attempts::record(&left.iter().map(|l| (l, None)).collect::<Vec<_>>(), "timeout", now);
        let holders: Vec<TaskNo> = left.iter().filter(|l| l.keyed).map(|l| l.task_no).collect();
        merge_key::given_back(&holders);
        let left: Vec<TaskNo> = left.iter().map(|l| l.task_no).collect();
        ready::announce(&changes::REQUEUE.query(left));
    }
    if !exhausted.is_empty() {
        changes::REMOVE.execute(exhausted.iter().map(|l| l.task_no).collect::<Vec<_>>());
        settle(
            exhausted.iter().map(|l| Ending::abort(l, Cause::Deadline, Some(timed_out(l)))).collect(),
            now,
        );
    }
    true
}

fn timed_out(live: &Live) -> String {
    format!(
        "the deadline passed on try {}, and there is no other (actor \"{}\")",
        live.tries,
        live.actor_id.as_deref().unwrap_or_default()
    )
}
