//! The end of tries whose time has come.

use std::collections::HashSet;
use std::time::Duration;

use super::leases::Elapsed;
use super::lock::lock;
use crate::flow::actions::backoffs;
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
use crate::store::{aside, attempts, contradiction, reason, slot};
use crate::token::Nonce;

/// What was done with the leases of a window.
#[derive(Default)]
pub(super) struct Done {
    /// Leases are gone.
    pub(super) any: bool,
    /// How much of the bound that was.
    pub(super) count: usize,
    /// There was more than the bound.
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
        done.any |= !group.is_empty();
        done.count += group.iter().map(Elapsed::weight).sum::<usize>();
        under(&group, now);
    }
    done.left = passed.peek().is_some();
    done
}

/// Ends the tries under leases that this call has removed, and looks again at what was parked in place.
fn under(taken: &[Elapsed], now: Time) {
    let held: Vec<(TaskNo, Nonce)> = taken.iter().flat_map(|l| l.tokens(&l.overdue)).collect();
    let end = |part: &[(TaskNo, Nonce)]| {
        // Each is locked in the subtransaction in which its try is ended, if there is one for that.
        let locked = lock(part, now);
        let ours: Vec<TaskNo> = locked.iter().map(|live| live.task_no).collect();
        end_tries(locked, now);
        ours
    };
    let done = contradiction::leaving(&held, |(task_no, _)| *task_no, end);
    let ours: HashSet<TaskNo> = done.parts.into_iter().flatten().collect();
    for (task_no, nonce) in held.iter().filter(|(n, _)| !ours.contains(n)) {
        let again = if done.left.contains(task_no) { contradiction::LEAVE } else { LOCKED_TASK_AGAIN_AFTER };
        append(now + again, nonce.base(*task_no), vec![*task_no]);
    }
    let parked: Vec<(TaskNo, Nonce)> = taken.iter().flat_map(|l| l.tokens(&l.aside)).collect();
    if !parked.is_empty() {
        aside::look_again(&parked);
    }
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
        requeue(&going_on, now);
    }
    if !endings.is_empty() {
        changes::REMOVE.execute(endings.iter().map(|ending| ending.task_no).collect::<Vec<_>>());
        settle(endings, now);
    }
}

/// Lets tasks go on to another try: at once the first time; where the try before has ended with its deadline as well, when the
/// back-off is over, which counts from the deadline. Until then it is parked in place, where its late worker finds it.
fn requeue(going_on: &[Live], now: Time) {
    let all: Vec<TaskNo> = going_on.iter().map(|live| live.task_no).collect();
    let in_a_row: HashSet<TaskNo> = changes::MISSED_BEFORE.query(all.as_slice()).into_iter().collect();
    let killers: Vec<(TaskNo, i32)> =
        going_on.iter().filter(|l| in_a_row.contains(&l.task_no)).map(|l| (l.task_no, l.tries)).collect();
    let delays = backoffs(&killers);
    let until = |live: &Live| {
        let due = live.deadline + *delays.get(&live.task_no)?;
        (due > now).then_some((live.task_no, reason::BACKOFF, Some(due)))
    };
    let later: Vec<_> = going_on.iter().filter_map(until).collect();
    let waiting: HashSet<TaskNo> = later.iter().map(|(task_no, ..)| *task_no).collect();
    let at_once: Vec<TaskNo> = all.into_iter().filter(|task_no| !waiting.contains(task_no)).collect();
    announce(&changes::REQUEUE.query(at_once));
    if !later.is_empty() {
        changes::REQUEUE.query(waiting.into_iter().collect::<Vec<_>>());
        aside::set(&later);
    }
}
