//! Calling a worker: a call that sleeps, or is in a transaction that may stay open, has found something due that it can show to
//! no other session before that ends.
//!
//! Nothing of the transaction under way is needed by the worker, and nothing of it is seen by it: it does what is due by what has
//! been committed. So it may be called in the middle of a transaction, which may still be rolled back. What it does comes to the
//! caller as everything comes to it that others commit.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::station::{NEAR, all_called};
use super::{ENTRY, WORKER};
use crate::clock;
use crate::guc;
use crate::pg::clock::Time;
use crate::pg::lock::{self, Key, Mode};
use crate::pg::post::Post;
use crate::pg::process::{self, Started};
use crate::pg::transaction::{self, End, Listener};
use crate::wake::{self, Registration};

/// How soon a session starts another worker, and how late at most where none can be started.
const FIRST_START_AFTER: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(60);

/// How soon a call looks again at what a worker has been called for: the process may end, for any reason, before it comes to that.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How soon a call looks after what a worker is there for: that may have died.
const WATCH: Duration = Duration::from_secs(3);

/// What this session has started.
struct Starts {
    last: Option<Started>,
    not_before: Option<Instant>,
    /// How long after the last start there is no other.
    patience: Duration,
    /// When it has found last that a post was wanted.
    contended: Option<Instant>,
}

thread_local! {
    static STARTS: RefCell<Starts> =
        const {
            RefCell::new(Starts { last: None, not_before: None, patience: FIRST_START_AFTER, contended: None })
        };
}

thread_local! {
    /// The transaction under way does steps of upkeep, and may start a worker.
    static IN_STEPS: Cell<bool> = const { Cell::new(false) };
}

/// A worker is on its way that this session has sent for, or will be once a post is free. Of many that wait for the same deadline one
/// at a time starts a worker.
pub(crate) struct Starting {
    /// As one that wants a post of the server, which has none free.
    wants: Option<Registration>,
}

const STARTING: &str = "a worker is on its way";

impl Starting {
    fn begin() -> Option<Starting> {
        lock::try_lock_if_room(Key::new(&[STARTING]), Mode::Only).then(|| Starting { wants: None })
    }

    /// Whether the server has no post free. From then on this call is woken when there is one: see `station`.
    fn has_to_wait(&mut self) -> bool {
        if !all_called() {
            return false;
        }
        self.wants = Some(Registration::wants_post());
        process::wake_all_workers();
        all_called()
    }
}

/// What a call that is about to sleep has done for what it leaves.
#[derive(Default)]
pub(crate) struct Called {
    /// For as long as it sleeps.
    _starting: Option<Starting>,
    /// How soon it looks again; `None`: nothing is owed.
    pub(crate) again: Option<Duration>,
}

impl Drop for Starting {
    /// An error gives the lock up without this.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            lock::unlock(Key::new(&[STARTING]), Mode::Only);
        }
    }
}

/// When a call has to look after something that is due then, and that a worker does: later, if it is due soon and a worker is there,
/// which stays for it.
pub(crate) fn when_to_look(due: Time) -> Time {
    let now = clock::now();
    // One that leaves before, to other databases, wakes a call.
    if due < now + NEAR && is_there() { now + WATCH } else { due }
}

fn is_there() -> bool {
    is_wanted() && Post::OfDatabase.is_taken()
}

/// Whether the session may call a worker: `taskq.background_worker` is on for it, and it has set no other clock
/// ([`guc::fake_now`]), since a worker goes by the server's.
pub(super) fn is_wanted() -> bool {
    guc::background_worker() && guc::fake_now().is_none()
}

/// To be called when a call begins that may call a worker: what an earlier one has started was for something else.
pub(crate) fn begin_call() {
    STARTS.with_borrow_mut(|starts| starts.last = None);
}

/// Has what is due done by a process that commits, if something is `owed`: wakes the one that is there, or starts one if it may. It
/// waits for nothing. A call that sleeps asks before, and keeps the answer for the sleep, which is in the same
/// subtransaction, and hardly longer than a second.
pub(crate) fn call_if(owed: bool) -> Called {
    if !owed {
        // What the last one was started for is done.
        begin_call();
        return Called::default();
    }
    let called = Called { _starting: None, again: Some(LOOK_AGAIN_AFTER) };
    if !is_wanted() || !process::may_start_workers() {
        return called;
    }
    // In this order: see `station`.
    process::wake_workers();
    if Post::OfDatabase.is_taken() {
        return called;
    }
    STARTS.with_borrow_mut(Starts::start)
}

/// Has what is due done by a process that commits, for a call that does not sleep; whether one is there, or may come soon. (Where all
/// posts are taken one does: those that have them leave.)
pub(crate) fn call() -> bool {
    begin_call();
    drop(call_if(true));
    is_wanted()
        && process::may_start_workers()
        && STARTS.with_borrow(|starts| starts.patience == FIRST_START_AFTER)
}

/// Does steps of upkeep in the caller's transaction. If this ends before it has come through with them, a worker is called at its
/// end: the next call, of another session it may be, would be cut off in the same step.
pub(crate) fn or_by_worker<T>(steps: impl FnOnce() -> T) -> T {
    transaction::listen(&LISTENER);
    IN_STEPS.set(is_wanted() && process::may_start_workers());
    let done = steps();
    IN_STEPS.set(false);
    done
}

static LISTENER: Listener = Listener { ended, ..Listener::DEAF };

/// The transaction is over for others, who find its rows free by now: the worker that comes may lock them.
fn ended(end: End) {
    let is_over = !matches!(end, End::AbortSub(_) | End::CommitSub(_));
    if !is_over || !IN_STEPS.replace(false) || end != End::Abort {
        return;
    }
    process::wake_workers();
    if !Post::OfDatabase.is_taken() && !all_called() {
        let started = process::start_worker(WORKER, ENTRY, process::my_database());
        STARTS.with_borrow_mut(|starts| starts.last = started);
    }
}

impl Starts {
    fn start(&mut self) -> Called {
        let again = Some(LOOK_AGAIN_AFTER);
        let Some(mut starting) = Starting::begin() else {
            return Called { _starting: None, again };
        };
        let now = Instant::now();
        let has_to_wait = starting.has_to_wait();
        if has_to_wait || wake::is_post_wanted() {
            self.contended = Some(now);
        }
        if has_to_wait {
            return Called { _starting: Some(starting), again };
        }
        let is_coming = self.last.as_ref().is_some_and(|last| !last.has_ended());
        let not_before = if is_coming { now.checked_add(FIRST_START_AFTER) } else { self.not_before };
        if let Some(left) = not_before.and_then(|at| at.checked_duration_since(now)).filter(|t| !t.is_zero())
        {
            return Called { _starting: None, again: again.min(Some(left)) };
        }
        // What this call has started the last one for is still to be done, and it has hardly left its post to others.
        let contended = self.contended.is_some_and(|at| now < at + LATE);
        let failed = self.last.take().is_some() && !contended;
        self.last = process::start_worker(WORKER, ENTRY, process::my_database());
        self.patience =
            if failed || self.last.is_none() { (self.patience * 2).min(LATE) } else { FIRST_START_AFTER };
        self.not_before = now.checked_add(self.patience);
        Called { _starting: self.last.is_some().then_some(starting), again }
    }
}
