//! The end of tries whose time has come.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use pgrx::pg_sys::ItemPointerData;

use super::leases::{Elapsed, Task};
use super::lock::lock;
use crate::allowance::Allowance;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::returns::tries::{TryEnd, timed_out};
use crate::settle::merge_keys;
use crate::settle::settle;
use crate::store::announce::announce;
use crate::store::lease::{append, tidy};
use crate::store::live::Live;
use crate::store::run::changes;
use crate::store::{aside, attempts, contradiction, slot};
use crate::token::Nonce;

/// What was done with the leases of a window.
#[derive(Default)]
pub(super) struct Done {
    /// Tries were ended, or tasks looked at again that were set aside.
    pub(super) ended: bool,
    /// Leases are gone.
    pub(super) removed: bool,
    /// How much of the bound that was.
    pub(super) count: usize,
    /// There was more than the bound, or than there was time for.
    pub(super) left: bool,
}

/// How soon a task that another transaction has locked is looked at again.
const LOCKED_TASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Ends the tries under these leases, which go: up to about `bound` of them, of which a large one counts for several. What others
/// have taken does not count, they look after it. Tasks that are locked get a lease of a second more: they would be left
/// without one if that lock came to nothing.
pub(super) fn all(passed: Vec<Elapsed>, bound: usize, now: Time) -> Done {
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
        let taken = tidy::remove(group.iter().map(Elapsed::row).collect());
        let ours = |lease: &Elapsed| taken.contains(&lease.key());
        let group: Vec<Elapsed> = group.into_iter().filter(ours).collect();
        done.removed |= !group.is_empty();
        done.count += group.iter().map(Elapsed::weight).sum::<usize>();
        done.ended |= under(&group, now);
    }
    done.left = passed.peek().is_some();
    done
}

/// Ends the tries under leases that this call has removed.
fn under(taken: &[Elapsed], now: Time) -> bool {
    let held: Vec<(TaskNo, Nonce)> = taken.iter().flat_map(|l| l.tokens(l.overdue.iter())).collect();
    let Ended { ours, left } = end_of(&held, usize::MAX, now);
    for (task_no, nonce) in held.iter().filter(|(n, _)| !ours.contains(n)) {
        let again = if left.contains(task_no) { contradiction::LEAVE } else { LOCKED_TASK_AGAIN_AFTER };
        append(now + again, nonce.base(*task_no), vec![*task_no]);
    }
    let aside: Vec<(TaskNo, Nonce)> = taken.iter().flat_map(|l| l.tokens(l.aside.iter())).collect();
    look_again(&aside) | !ours.is_empty()
}

/// What became of tries that were to be ended.
struct Ended {
    /// They are.
    ours: HashSet<TaskNo>,
    /// Their rows contradict others: they stay as they are.
    left: HashSet<TaskNo>,
}

/// Ends the tries of up to `most` of the tasks: of those that are still overdue and not locked by another transaction. Each is
/// locked in the subtransaction in which its try is ended, if there is one for that.
fn end_of(held: &[(TaskNo, Nonce)], most: usize, now: Time) -> Ended {
    let number = Cell::new(0);
    let done = contradiction::leaving(
        held,
        |(task_no, _)| *task_no,
        |part| {
            let locked = lock(part, most - number.get(), now);
            let ours: Vec<TaskNo> = locked.iter().map(|live| live.task_no).collect();
            end_tries(locked, now);
            number.set(number.get() + ours.len());
            ours
        },
    );
    Ended { ours: done.parts.into_iter().flatten().collect(), left: done.left.into_iter().collect() }
}

/// How many tries are ended at a time by a call that is to be short. Few at first: what depends on one that aborts is a part of
/// its end, however much that is.
const FIRST_PIECE: usize = 10;
const PIECE: usize = 200;

/// Ends the tries of tasks that are `wanted`, and looks again at others of these that were set aside, `bound` of both at most;
/// what others have locked is passed over. A small part is done in any case, the others as long as there is `time`. Leases that
/// others could need while this transaction is open stay as they are.
pub(super) fn some(
    passed: &[Elapsed],
    wanted: impl Fn(&Task) -> bool,
    bound: usize,
    time: &Allowance,
    now: Time,
) -> Done {
    let of = |which: fn(&Elapsed) -> &[Task]| -> Vec<(TaskNo, Nonce)> {
        let wanted = |task: &&Task| wanted(task);
        passed.iter().flat_map(|lease| lease.tokens(which(lease).iter().filter(wanted))).collect()
    };
    let (held, aside) = (of(|lease| &lease.overdue), of(|lease| &lease.aside));
    let mut done = Done::default();
    let (mut ours, mut left): (HashSet<TaskNo>, HashSet<TaskNo>) = Default::default();
    let (mut rest, mut size) = (held.as_slice(), FIRST_PIECE);
    while !rest.is_empty() && !done.left {
        let (piece, behind) = rest.split_at(size.min(rest.len()));
        (rest, size) = (behind, (2 * size).min(PIECE));
        let since = Instant::now();
        let ended = end_of(piece, bound - ours.len(), now);
        done.ended |= !ended.ours.is_empty();
        ours.extend(ended.ours);
        left.extend(ended.left);
        // The next piece takes twice as long as this one. What others have locked may be all that there is: a call that has
        // ended nothing goes on.
        done.left = ours.len() >= bound || !ours.is_empty() && !time.has_room_for(2 * since.elapsed());
    }
    let room = if done.left { 0 } else { bound - ours.len() };
    let (looked_at, later) = aside.split_at(aside.len().min(room));
    ours.extend(looked_at.iter().map(|(task_no, _)| *task_no));
    done.ended |= look_again(looked_at);
    let is_done = |task: &Task| ours.contains(&task.task_no) || left.contains(&task.task_no);
    let are_done = |lease: &&Elapsed| lease.tasks().all(is_done);
    let rows: Vec<ItemPointerData> = passed.iter().filter(are_done).map(Elapsed::row).collect();
    let removed = tidy::remove(rows);
    done.removed = !removed.is_empty();
    if !left.is_empty() {
        leave(passed.iter().filter(|lease| removed.contains(&lease.key())), &left, now);
    }
    done.count = ours.len();
    done.left = !later.is_empty() || done.left && held.len() + aside.len() > done.count;
    done
}

/// Of these leases, which are gone, the tasks that are left as they are get others: no upkeep reads these tasks for a
/// while.
fn leave<'a>(gone: impl Iterator<Item = &'a Elapsed>, left: &HashSet<TaskNo>, now: Time) {
    for (task_no, nonce) in gone.flat_map(|lease| lease.tokens(lease.overdue.iter())) {
        if left.contains(&task_no) {
            append(now + contradiction::LEAVE, nonce.base(task_no), vec![task_no]);
        }
    }
}

/// Looks again at those that were set aside; whether any is ready again.
fn look_again(aside: &[(TaskNo, Nonce)]) -> bool {
    !aside.is_empty() && aside::look_again(aside)
}

/// The try of each has ended: on to the next one, or to an abort where it has none.
fn end_tries(locked: Vec<Live>, now: Time) {
    if locked.is_empty() {
        return;
    }
    assign_transaction_id();
    slot::release(locked.iter());
    let (going_on, endings) = timed_out(locked);
    if !going_on.is_empty() {
        let tries = going_on.iter().map(|live| (live, None, TryEnd::TimedOut.outcome()));
        attempts::record(tries.collect(), now);
        merge_keys::given_back(&going_on);
        announce(&changes::REQUEUE.query(going_on.iter().map(|live| live.task_no).collect::<Vec<_>>()));
    }
    if !endings.is_empty() {
        changes::REMOVE.execute(endings.iter().map(|ending| ending.task_no).collect::<Vec<_>>());
        settle(endings, now);
    }
}
