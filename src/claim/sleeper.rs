//! What a call asks before it takes anything, so that its transaction is not given an id needlessly.
//!
//! PostgreSQL gives a transaction an id when it tries to change a row, before it finds out that another transaction has done so.
//! While a transaction has an id, low-water marks and vacuum stay where they are, for all sessions. So as long as a call has none
//! it reads before it tries: then it has none while it scans, however much is dead, and however often others are faster.
//!
//! A call that may sleep is one statement, and sleeps in its transaction, with the id that it was given. Of two that are woken
//! for the same entry both may find it untouched. So each takes a lock that stands for the entry (of the lock manager, tried and
//! never waited for), and then looks at the entry once more. A call that does not get the lock skips the entry, as one that
//! another call is taking. The call that takes the entry keeps its lock until the end of the transaction, or of the
//! subtransaction in which it looks. If that is rolled back, other sleeping calls are woken, as for any entry that was taken. A call that
//! fails to take the entry gives the lock up at once, so that it never has more than one needlessly. A sleeping call may still get
//! an id needlessly: in a race with a call that does not sleep, and where the server has no room for the lock.

use std::collections::HashSet;

use super::call::Call;
use crate::number::TaskNo;
use crate::pg::lock::{self, Key as Lock, Mode};
use crate::pg::row_version::Fate;
use crate::pg::session::{check_for_interrupts, has_transaction_id};
use crate::pg::table::{Change, Key, Row, look};
use crate::store::run;
use crate::wake;

/// Whether this call may sleep in its transaction, and that has no id so far.
pub(super) fn has_no_id(call: &Call) -> bool {
    wake::may_sleep() && looks_first(call)
}

/// Whether the transaction of this call has no id so far, and is given none for nothing. (A procedure ends its transaction before it
/// sleeps, and takes an id for a sign that others have something in hand.)
fn looks_first(call: &Call) -> bool {
    !call.request.trial && !has_transaction_id()
}

/// Attempts to take an entry, but not one that can be seen, without an id, to be another
/// transaction's.
pub(super) fn take(call: &Call, entry: &Row, attempt: impl FnOnce() -> Change) -> Change {
    if !looks_first(call) {
        return attempt();
    }
    match untouched(entry) {
        Change::Done if wake::may_sleep() => alone(entry, attempt),
        Change::Done => attempt(),
        in_the_way => in_the_way,
    }
}

/// Attempts to take an entry, if no other sleeper is attempting it.
fn alone(entry: &Row, attempt: impl FnOnce() -> Change) -> Change {
    let lock = Lock::new(&["taking", &entry.get(run::TASK_NO).to_string()]);
    let locked = lock::try_lock_if_room(lock, Mode::Only);
    // Where the server has no room for the lock it is done without.
    if !locked && lock::has_room() {
        return Change::Busy;
    }
    let change = match untouched(entry) {
        Change::Done => attempt(),
        in_the_way => in_the_way,
    };
    if locked && change != Change::Done {
        lock::unlock(lock, Mode::Only);
    }
    change
}

/// [`Change::Done`] if the entry is as it was seen; else what has become of it.
fn untouched(entry: &Row) -> Change {
    match entry.fate() {
        Fate::Untouched => Change::Done,
        Fate::Touched => Change::Busy,
        Fate::Gone => Change::Newer,
    }
}

/// Those of the tasks whose entries another transaction has locked, or that are not there to be had any more.
pub(super) fn in_hand(task_nos: impl Iterator<Item = TaskNo>) -> HashSet<TaskNo> {
    look(|look| {
        look.scan(&run::BY_NUMBER, |entries| {
            let mut is_free = |task_no: &TaskNo| {
                check_for_interrupts();
                entries.start(&[Key::eq(1, *task_no)]);
                entries.next().is_some_and(|e| e.get(run::GRANTABLE) && e.fate() == Fate::Untouched)
            };
            task_nos.filter(|task_no| !is_free(task_no)).collect()
        })
    })
}
