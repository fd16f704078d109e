//! The last look before a transaction commits: it frees what nothing blocks any more, or leaves that to a transaction that looks
//! later.
//!
//! Ends for one task may come from several transactions at once. One of them has its counter locked, the others leave rows in
//! `countdown`. When all have committed, the counter must have counted everything, and no later call may come. So each transaction
//! that has locked a counter, or left a row for one, looks once more right before it commits, in [`last_look`], and commits in
//! one of three cases (those in which it gives up are named at the end):
//!
//! 1. **Something is still unsent** ([`super::unsent`]): even if all that is open or committing commits, the counter
//!    does not get to zero. Then another transaction sends later, and looks later.
//! 2. **It has the counter, and no other is between its look and the end of its commit.** Then it has counted all
//!    that is committed, and what is missing comes from transactions that have yet to look.
//! 3. **Another one has the counter, and has yet to look.** It will see all that this one did.
//!
//! That a transaction is past its look is shown by a lock on a *sign* that stands for the counter. (It is a lock of the lock
//! manager, tried and never waited for, and freed when the commit is visible to all.) The sign is taken before the look: in one
//! mode by a transaction that only left a row ([`Mode::Beside`]), in another by one that has the counter locked
//! ([`Mode::Within`]); to commit in case 2 in a mode that conflicts with all others ([`Mode::Only`]). Case 3 is found out by
//! asking for the sign in a mode ([`Mode::Shared`]) that conflicts with that of the transaction with the counter, *then* trying
//! to lock the counter: the transaction that has it at that moment looks after the question. A transaction that may not commit
//! yet gives all its signs up, naps for some milliseconds at most and looks again.
//!
//! *Why nothing stays behind.* Suppose that all ends for a task are sent and committed, and that its counter still has not
//! counted them all. Of the transactions that touched the counter let T be the one that looked last. What the others did they did
//! before their looks, so T saw all of it, committed or not: nothing was unsent, which excludes case 1. The transaction that
//! would make it case 3 looks later than T, which excludes that. So it was case 2: each of the others was at its end, T saw their
//! rows as committed, and has counted them all.
//!
//! *Why no transaction waits long.* The one wait is for a sign, and signs are held from a look to the end of the commit that
//! follows it at once: for as long as a commit takes, and not by a transaction that its client leaves open. A transaction that
//! waits has no sign, so no two wait for each other. (The tables that every look reads are locked before. Otherwise a transaction
//! with a sign could wait for a VACUUM FULL, which waits for a transaction that naps for that sign: a circle that no deadlock
//! detector sees.) Where many parents of one child are returned at the same time, their transactions seldom wait
//! before the last end or a loss has been sent; then a transaction waits for those that are past their looks.
//!
//! Should a commit hang (its standby does not answer), a transaction that waits for it gives up after [`COMMIT_HANGS_AFTER`], commits, and
//! wakes a waiting call that looks. So does, at once, a transaction that finds the server's table of locks full, and one that has
//! been made read-only. Two other ends count nothing: COMMIT PREPARED runs no code of the extension, and a rollback cannot look,
//! so it wakes a waiting call as well. In case 3 that may be too early: the other transaction is rolled back while this one is on
//! the way to its commit, and the call that it wakes does not see what this one has left. So this one's commit wakes a call, too.
//! Besides, calls that claim tasks look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::fold::{self, Counted};
use super::unsent;
use crate::clock;
use crate::ends::touched::{self, Touch};
use crate::number::TaskNo;
use crate::pg::lock::{self, Key, Mode};
use crate::pg::session;
use crate::store::{blocked, countdown};
use crate::wake;

/// Of the sign that tells that the transaction is past its look.
fn mode(touch: Touch) -> Mode {
    match touch {
        Touch::LeftRow => Mode::Beside,
        Touch::Locked => Mode::Within,
    }
}

/// The body of `taskq._before_commit()`.
pub(crate) fn before_commit() {
    let mut signs = Signs::default();
    // A transaction may have become read-only after its calls. Then it cannot count, and its commit must not fail for that.
    if session::is_read_only() || last_look(&mut signs) {
        wake::signals_left();
    }
    if touched::is_preparing() {
        // They would last until COMMIT PREPARED, which may come in days.
        signs.give_up();
    }
}

/// Looks until this transaction may commit; the signs are those to commit with. Returns whether something is left to other
/// transactions that they may not do: the one that has the counter may be rolled back, and a commit that takes too long, or for
/// whose sign there is no room, was not waited for.
fn last_look(signs: &mut Signs) -> bool {
    countdown::hold();
    blocked::hold();
    let mut patience = Patience::new();
    let mut steps = Steps::default();
    loop {
        let touched = touched::touched();
        match steps.next(signs, &touched) {
            Step::Commit => return steps.leaves,
            Step::Again => {}
            Step::Wait => {
                // Without room for signs there is no point in waiting: this transaction's sign would take up
                // the room again.
                let room = lock::has_room();
                signs.give_up();
                if !room || !patience.nap() {
                    return true;
                }
            }
        }
        session::check_for_interrupts();
    }
}

/// What one step of the look has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The transaction may commit.
    Commit,
    /// It has to look once more: something was counted, which may have touched other counters, or signs were given up.
    Again,
    /// Others are to end their commits first.
    Wait,
}

/// What the steps before the next have left.
#[derive(Default)]
struct Steps {
    /// Tasks with many rows have been tidied up.
    tidied: bool,
    /// The last attempt to count came to nothing.
    counted_all: bool,
    /// Another transaction has a counter, and is to count what this one has left.
    leaves: bool,
    /// Counters that no other transaction which is committing may have. They are asked for before anything else, as those of `ours`: a
    /// transaction that waits for others delays them for an instant only.
    left_to_others: Vec<TaskNo>,
    /// Counters that no other transaction may have.
    ours: Vec<TaskNo>,
}

impl Steps {
    fn next(&mut self, signs: &mut Signs, touched: &BTreeMap<TaskNo, Touch>) -> Step {
        let wanted = signs.no_holder_commits(&self.left_to_others) && signs.only(&self.ours);
        if !wanted || !signs.take(touched) {
            return Step::Wait;
        }
        self.left_to_others.clear();
        self.leaves = false;
        let touched: Vec<TaskNo> = touched.keys().copied().collect();
        let found = unsent::look(&touched);
        if !self.tidied && !found.piled_up.is_empty() {
            // Nothing hangs on these but the length of the next look.
            self.tidied = true;
            return self.count(&found.piled_up, signs);
        }
        if found.all_sent.is_empty() {
            return Step::Commit; // case 1
        }
        if !self.counted_all {
            return self.count(&found.all_sent, signs);
        }
        let left_to_others = signs.no_holder_commits(&found.all_sent);
        let Counted { locked, changed } = fold::try_lock_and_count(&found.all_sent, clock::now());
        if changed {
            return Step::Again;
        }
        self.leaves = locked.len() < found.all_sent.len();
        if self.leaves && !left_to_others {
            let ours: BTreeSet<TaskNo> = locked.into_iter().collect();
            self.left_to_others = found.all_sent.into_iter().filter(|n| !ours.contains(n)).collect();
            return Step::Wait;
        }
        if locked.is_empty() {
            return Step::Commit; // case 3
        }
        self.ours = locked;
        if !signs.only(&self.ours) {
            return Step::Wait;
        }
        // Each transaction that was past its look has ended by now.
        match fold::try_lock_and_count(&self.ours, clock::now()).changed {
            true => Step::Again,
            false => Step::Commit, // case 2
        }
    }

    /// Counts what there is, without signs, since it may take a while. What is locked now needs another sign anyway.
    fn count(&mut self, task_nos: &[TaskNo], signs: &mut Signs) -> Step {
        signs.give_up();
        self.counted_all = !fold::try_lock_and_count(task_nos, clock::now()).changed;
        Step::Again
    }
}

/// For how many counters a transaction takes a sign each. The server's table of locks has room for some
/// thousands; a transaction that has touched more counters takes the sign that stands for many.
const MOST_SIGNS: usize = 256;

/// What stands for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Counter(TaskNo),
    /// Any counters, of a transaction that has touched very many.
    Many,
}

impl Sign {
    fn key(self) -> Key {
        match self {
            Sign::Counter(task_no) => Key::new(&["counter", &task_no.to_string()]),
            Sign::Many => Key::new(&["counters"]),
        }
    }

    /// Whether the sign can be had in this mode right now.
    fn is_free(self, mode: Mode) -> bool {
        let free = lock::try_lock_if_room(self.key(), mode);
        if free {
            lock::unlock(self.key(), mode);
        }
        free
    }
}

/// The signs that this transaction has.
///
/// A transaction that has touched few counters has their signs, and asks whether any transaction has the one for many;
/// one that has touched many has that, and asks for those of the counters. Of two with different kinds, the one that
/// takes its sign later looks later, and asks for the one that is held.
#[derive(Default)]
struct Signs {
    held: BTreeSet<(Sign, Mode)>,
    many: bool,
}

impl Signs {
    /// Takes the signs of these counters; whether all were to be had.
    fn take(&mut self, touched: &BTreeMap<TaskNo, Touch>) -> bool {
        self.many = touched.len() > MOST_SIGNS;
        if self.many {
            let most = touched.values().max();
            return most.is_none_or(|touch| self.hold(Sign::Many, mode(*touch)));
        }
        touched.iter().all(|(task_no, touch)| self.hold(Sign::Counter(*task_no), mode(*touch)))
    }

    /// Whether no transaction that has one of these counters locked is past its look.
    fn no_holder_commits(&self, task_nos: &[TaskNo]) -> bool {
        if task_nos.is_empty() {
            return true;
        }
        Sign::Many.is_free(Mode::Shared) && task_nos.iter().all(|n| Sign::Counter(*n).is_free(Mode::Shared))
    }

    /// Has these of the counters to itself; whether that can be.
    fn only(&mut self, task_nos: &[TaskNo]) -> bool {
        if task_nos.is_empty() {
            return true;
        }
        if self.many {
            self.hold(Sign::Many, Mode::Only)
                && task_nos.iter().all(|n| Sign::Counter(*n).is_free(Mode::Only))
        } else {
            task_nos.iter().all(|n| self.hold(Sign::Counter(*n), Mode::Only))
                && Sign::Many.is_free(Mode::Only)
        }
    }

    fn hold(&mut self, sign: Sign, mode: Mode) -> bool {
        self.held.contains(&(sign, mode))
            || self.held.contains(&(sign, Mode::Only))
            || lock::try_lock_if_room(sign.key(), mode) && self.held.insert((sign, mode))
    }

    /// Has none any more.
    fn give_up(&mut self) {
        for (sign, mode) in std::mem::take(&mut self.held) {
            lock::unlock(sign.key(), mode);
        }
    }
}

/// Short naps, each about twice as long as the one before, up to 2 ms, each by chance up to half shorter or longer, until it has been
/// too long.
struct Patience {
    until: Instant,
    nap: Duration,
}

/// For how long the commit of another transaction may hang before a look does without it. Long for a commit on a busy
/// machine, short for a standby that does not answer.
const COMMIT_HANGS_AFTER: Duration = Duration::from_secs(5);

impl Patience {
    fn new() -> Self {
        Patience { until: Instant::now() + COMMIT_HANGS_AFTER, nap: Duration::from_micros(100) }
    }

    /// Naps, unless it has been too long.
    fn nap(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        let chance = session::random_62_bits() as u32 % 1024;
        session::nap(self.nap.mul_f64(0.5 + f64::from(chance) / 1024.0));
        self.nap = (self.nap * 2).min(Duration::from_millis(2));
        true
    }
}
