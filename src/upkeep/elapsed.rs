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

use super::{holders, passed_by};
use crate::flow::actions::try_limits;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::{assign_transaction_id, check_for_interrupts};
use crate::pg::statement::{Record, Statement};
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
    overdue: Vec<Task>,
    /// Those that were set aside until then.
    aside: Vec<Task>,
}

/// A task under a lease.
#[derive(Clone, Copy)]
struct Task {
    task_no: TaskNo,
    action_no: i32,
}

/// Walks `lease_deadline_idx`, from a deadline and keeper on, up to so many leases or tasks, one lease at least, and asks the
/// tasks. Locks nothing.
static LOOK: Statement<(Time, Time, TaskNo, i32, i64), Elapsed> = Statement::new(
    c"SELECT l.place, l.deadline, l.keeper_no, l.base, l.tasks, o.task_nos, o.action_nos, a.task_nos, a.action_nos
        FROM (SELECT l.*, sum(l.tasks) OVER (ORDER BY l.deadline, l.keeper_no ROWS UNBOUNDED PRECEDING) - l.tasks AS before
                FROM (SELECT l.ctid AS place, l.deadline, l.keeper_no, l.base, l.others,
                             1 + COALESCE(pg_catalog.cardinality(l.others), 0)::bigint AS tasks
                        FROM taskq.lease l
                       WHERE l.deadline <= $1 AND (l.deadline, l.keeper_no) > ($2, $3)
                       ORDER BY l.deadline, l.keeper_no LIMIT $4) AS l) AS l
       CROSS JOIN LATERAL (
             SELECT pg_catalog.array_agg(r.task_no) AS task_nos, pg_catalog.array_agg(r.action_no) AS action_nos
               FROM unnest(l.keeper_no || l.others) AS n(task_no)
              CROSS JOIN LATERAL (
                    SELECT r.task_no, r.action_no FROM taskq.run r
                     WHERE r.task_no = n.task_no AND r.nonce = l.base # n.task_no
                       AND NOT r.grantable AND r.aside IS NULL AND r.deadline <= $1 OFFSET 0) AS r) AS o
       CROSS JOIN LATERAL (
             SELECT pg_catalog.array_agg(r.task_no) AS task_nos, pg_catalog.array_agg(r.action_no) AS action_nos
               FROM unnest(l.keeper_no || l.others) AS n(task_no)
              CROSS JOIN LATERAL (
                    SELECT r.task_no, r.action_no FROM taskq.run r
                     WHERE r.task_no = n.task_no AND r.nonce = l.base # n.task_no
                       AND r.aside IS NOT NULL OFFSET 0) AS r) AS a
       WHERE l.before < $5
       ORDER BY l.deadline, l.keeper_no",
);

type TaskNos = Option<Vec<TaskNo>>;
type ActionNos = Option<Vec<i32>>;

impl Record for Elapsed {
    type Columns = (ItemPointerData, Time, TaskNo, Base, i64, TaskNos, ActionNos, TaskNos, ActionNos);

    fn of(
        (row, deadline, keeper, base, tasks, overdue, their_actions, aside, of_those): Self::Columns,
    ) -> Self {
        let tasks_of = |task_nos: TaskNos, action_nos: ActionNos| {
            let both = task_nos.into_iter().flatten().zip(action_nos.into_iter().flatten());
            both.map(|(task_no, action_no)| Task { task_no, action_no }).collect()
        };
        let (overdue, aside) = (tasks_of(overdue, their_actions), tasks_of(aside, of_those));
        Elapsed { row, deadline, keeper, base, tasks: tasks as usize, overdue, aside }
    }
}

/// How many leases one statement looks at, and of how many tasks; and how many leases one call.
const WINDOW: usize = 200;
const WINDOW_TASKS: usize = 2_000;
const MOST_LOOKED_AT: usize = 10_000;

/// So many windows are looked at each time by a call that has no use for what is in them.
const FEW_WINDOWS: usize = 2;

/// The leases whose time has come, earliest first, in windows: those from `start` on.
fn windows(start: Time, now: Time) -> impl Iterator<Item = Vec<Elapsed>> {
    let mut from = Some((start, TaskNo(i64::MIN)));
    (0..MOST_LOOKED_AT / WINDOW).map_while(move |_| {
        let (deadline, keeper) = from?;
        check_for_interrupts();
        let window = LOOK.query((now, deadline, keeper, WINDOW as i32, WINDOW_TASKS as i64));
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
    /// There were some that no task needs any more; they are gone, unless the call may go to sleep, or others are about to
    /// remove them.
    pub(crate) stale: bool,
    /// Leases are gone that were there.
    pub(crate) removed: bool,
    /// A task is overdue and in somebody else's hands.
    pub(crate) busy: bool,
    /// Tasks are overdue that this call has no use for, and leaves to others.
    pub(crate) left: bool,
    /// There may be more.
    pub(crate) more: bool,
}

impl Looked {
    /// To look once more is of use: there may be more, and what was seen now will not be all that is seen then. What others
    /// have locked in transactions that stay open is there each time.
    pub(crate) fn goes_on(&self) -> bool {
        self.more && (self.ended || self.removed)
    }
}

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looker<'a> {
    /// A call that ends by itself, and its transaction with it.
    Free,
    /// A call for these actions in a transaction that may stay open: it touches no more tasks than it has room for, first those that
    /// it can use.
    Hostage(&'a [i32]),
    /// A call that may go to sleep: it changes nothing that is not worth an early end.
    Waiter,
}

/// Looks after leases that have passed, of up to `bound` tasks if the call's transaction may stay open, else of up to
/// `bound` leases, or ten times as many tasks. Those that no task needs any more do not count, nor does what others have
/// locked: it is passed over. Begins at the deadline `start`.
///
/// What is done at once has to be short: a call that is given a second by its caller, and is cut off, has done nothing, and
/// the next one begins anew.
pub(crate) fn look_after(bound: usize, looker: Looker, start: Time, now: Time) -> Looked {
    let mut looked = Looked::default();
    let (mut overdue, mut count, mut number) = (false, 0, 0);
    let mut others = Vec::new();
    let start = match looker {
        Looker::Hostage(action_nos) => start.max(passed_by::start(action_nos, now)),
        _ => start,
    };
    for window in windows(start, now) {
        looked.more = is_cut(&window);
        number += 1;
        let reached = window.last().map(|lease| lease.deadline);
        let (stale, passed): (Vec<_>, Vec<_>) = window.into_iter().partition(Elapsed::is_stale);
        looked.stale |= !stale.is_empty();
        if looker != Looker::Waiter && !stale.is_empty() {
            looked.removed |= !tidy::remove(stale.iter().map(|lease| lease.row).collect()).is_empty();
        }
        let done = match looker {
            Looker::Hostage(action_nos) => {
                looked.left |= !passed.is_empty();
                let wanted = |task: &Task| action_nos.contains(&task.action_no);
                overdue |= passed.iter().flat_map(Elapsed::tasks).any(wanted);
                if let Some(reached) = reached.filter(|_| !overdue && number > FEW_WINDOWS) {
                    passed_by::remember(action_nos, reached, now);
                }
                let done = end_some(&passed, Some(action_nos), bound - count, now);
                if others.is_empty() {
                    others = passed;
                }
                done
            }
            _ => {
                overdue |= !passed.is_empty();
                end_all(passed, bound - count, now)
            }
        };
        looked.ended |= done.ended;
        looked.removed |= done.removed;
        looked.more |= done.left;
        count += done.count;
        if count >= bound {
            break;
        }
    }
    looked.busy = overdue && !looked.ended;
    if count < bound && !others.is_empty() {
        // Where all work in blocks, one of them has to. But a call does not go on for that.
        looked.more &= looked.goes_on();
        looked.ended |= end_some(&others, None, bound - count, now).ended;
    }
    looked
}

/// What was done with the leases of a window.
#[derive(Default)]
struct Done {
    /// Tries were ended, or tasks looked at again that were set aside.
    ended: bool,
    /// Leases are gone.
    removed: bool,
    /// How much of the bound that was.
    count: usize,
    /// There was more than the bound.
    left: bool,
}

/// Removes leases that have passed and that no task needs any more; how many.
pub(crate) fn remove_stale(now: Time) -> usize {
    let all = windows(Time::BEGINNING, now).flatten().filter(Elapsed::is_stale);
    tidy::remove(all.map(|lease| lease.row).collect()).len()
}

/// How soon a task that another transaction has locked is looked at again.
const AGAIN: Duration = Duration::from_secs(1);

/// Ends the tries under these leases, which go: up to `bound` of them, of which a large one counts for several. What others
/// have taken does not count, they look after it. Tasks that are locked get a lease of a second more: they would be left
/// without one if that lock came to nothing.
fn end_all(passed: Vec<Elapsed>, bound: usize, now: Time) -> Done {
    let mut done = Done::default();
    let mut passed = passed.into_iter().peekable();
    while done.count < bound && passed.peek().is_some() {
        let mut planned = done.count;
        let group = std::iter::from_fn(|| {
            let lease = passed.next_if(|_| planned < bound)?;
            planned += lease.weight();
            Some(lease)
        });
        let group: Vec<Elapsed> = group.collect();
        let taken = tidy::remove(group.iter().map(|lease| lease.row).collect());
        let ours = |lease: &Elapsed| taken.contains(&(lease.base, lease.keeper));
        let group: Vec<Elapsed> = group.into_iter().filter(ours).collect();
        done.removed |= !group.is_empty();
        done.count += group.iter().map(Elapsed::weight).sum::<usize>();
        done.ended |= end_under(&group, now);
    }
    done.left = passed.peek().is_some();
    done
}

/// Ends the tries under leases that this call has removed.
fn end_under(taken: &[Elapsed], now: Time) -> bool {
    let held: Vec<(TaskNo, Nonce)> = taken.iter().flat_map(|l| l.tokens(l.overdue.iter())).collect();
    let locked = lock(&held, usize::MAX, now);
    let ours: HashSet<TaskNo> = locked.iter().map(|l| l.task_no).collect();
    for (task_no, nonce) in held.iter().filter(|(n, _)| !ours.contains(n)) {
        append(now + AGAIN, nonce.base(*task_no), vec![*task_no]);
    }
    let aside: Vec<(TaskNo, Nonce)> = taken.iter().flat_map(|l| l.tokens(l.aside.iter())).collect();
    let freed = look_again(&aside);
    end_tries(locked, now) | freed
}

/// Ends the tries of up to `bound` tasks, of these actions or of any, and looks again at as many that were set aside; what others
/// have locked is passed over. Leases that others could need while this transaction is open stay as they are.
fn end_some(passed: &[Elapsed], action_nos: Option<&[i32]>, bound: usize, now: Time) -> Done {
    let of = |which: fn(&Elapsed) -> &[Task]| -> Vec<(TaskNo, Nonce)> {
        let wanted = |task: &&Task| action_nos.is_none_or(|of| of.contains(&task.action_no));
        passed.iter().flat_map(|lease| lease.tokens(which(lease).iter().filter(wanted))).collect()
    };
    let (held, aside) = (of(|lease| &lease.overdue), of(|lease| &lease.aside));
    let locked = lock(&held, bound, now);
    let (looked_at, later) = aside.split_at(aside.len().min(bound - locked.len()));
    let ours: HashSet<TaskNo> =
        locked.iter().map(|l| l.task_no).chain(looked_at.iter().map(|(n, _)| *n)).collect();
    let is_done = |lease: &&Elapsed| lease.tasks().all(|task| ours.contains(&task.task_no));
    let rows: Vec<ItemPointerData> = passed.iter().filter(is_done).map(|lease| lease.row).collect();
    let removed = !tidy::remove(rows).is_empty();
    let freed = look_again(looked_at);
    let count = ours.len();
    Done {
        ended: end_tries(locked, now) | freed,
        removed,
        count,
        left: !later.is_empty() || count >= bound && held.len() + aside.len() > count,
    }
}

/// Those that were set aside are ready again.
fn look_again(aside: &[(TaskNo, Nonce)]) -> bool {
    !aside.is_empty() && aside::look_again(aside)
}

impl Elapsed {
    /// No task needs it any more.
    fn is_stale(&self) -> bool {
        self.overdue.is_empty() && self.aside.is_empty()
    }

    fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.overdue.iter().chain(&self.aside)
    }

    /// Some of its tasks with their nonces.
    fn tokens<'a>(&self, tasks: impl Iterator<Item = &'a Task>) -> impl Iterator<Item = (TaskNo, Nonce)> {
        tasks.map(|task| (task.task_no, self.base.nonce(task.task_no)))
    }

    /// How many leases it counts for.
    fn weight(&self) -> usize {
        (self.overdue.len() + self.aside.len()).div_ceil(10)
    }
}

/// Those that hold no merge key. What a holder's end needs besides is for [`holders`].
static LOCK: Statement<(&[TaskNo], &[Nonce], Time, i64), InRun> = Statement::new(
    c"SELECT r.task_no, r.tries, r.failures, r.dependencies, r.nonce, r.granted_at, r.actor_id,
             r.limited, r.keyed, r.deadline
        FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND NOT r.grantable AND r.aside IS NULL AND r.deadline <= $3 AND NOT r.keyed
       LIMIT $4 FOR UPDATE SKIP LOCKED",
);
static KEYED: Statement<(&[TaskNo], &[Nonce], Time), TaskNo> = Statement::new(
    c"SELECT r.task_no FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND NOT r.grantable AND r.aside IS NULL AND r.deadline <= $3 AND r.keyed",
);

/// Locks those of the tasks that are still overdue and in nobody else's hands, `most` of them, with all that the end of their
/// tries concerns.
fn lock(held: &[(TaskNo, Nonce)], most: usize, now: Time) -> Vec<Live> {
    let (mut keyed, mut locked): (Vec<TaskNo>, Vec<Live>) = (Vec::new(), Vec::new());
    for (task_nos, nonces) in in_pieces(held.iter().copied()) {
        let room = most - locked.len();
        if room == 0 {
            return locked;
        }
        keyed.extend(KEYED.query((task_nos.as_slice(), nonces.as_slice(), now)));
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        locked.extend(LOCK.map((task_nos, nonces, now, room), |InRun(live)| live));
    }
    let mut keyed = keyed.as_slice();
    while locked.len() < most && !keyed.is_empty() {
        let (some, others) = keyed.split_at(keyed.len().min(most - locked.len()));
        locked.extend(holders::lock(some.to_vec(), now));
        keyed = others;
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
