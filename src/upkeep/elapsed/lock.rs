//! Locking tasks whose tries are overdue.

use std::collections::HashSet;

use super::holders;
use super::overdue::{LOCK_OVERDUE, LOCK_OVERDUE_STAYING, OVERDUE_WITH_KEYS, READ_OVERDUE};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::returns::tries;
use crate::store::live::Live;
use crate::store::live_row::InRun;
use crate::token::{Nonce, in_pieces};

/// Locks those of the tasks that are still overdue and not locked by another transaction, with the merge keys that they hold, and
/// what is parked under these or rides.
pub(super) fn lock(held: &[(TaskNo, Nonce)], now: Time) -> Vec<Live> {
    let (mut keyed, mut locked): (Vec<TaskNo>, Vec<Live>) = (Vec::new(), Vec::new());
    for (task_nos, nonces) in in_pieces(held.iter().copied()) {
        keyed.extend(OVERDUE_WITH_KEYS.query((task_nos.as_slice(), nonces.as_slice(), now)));
        let free = LOCK_OVERDUE.map((task_nos.as_slice(), nonces.as_slice(), now), |InRun(live)| live);
        if free.len() < task_nos.len() {
            locked.extend(lock_linked(&task_nos, &nonces, &free, now));
        }
        locked.extend(free);
    }
    locked.extend(holders::lock(keyed, now));
    locked
}

/// Of these tasks, without the `free` ones, those that go on to another try: their rows stay. An open insertion of a dependent
/// keeps what it waits for from going (FOR KEY SHARE), and is in the way of an end only.
fn lock_linked(task_nos: &[TaskNo], nonces: &[Nonce], free: &[Live], now: Time) -> Vec<Live> {
    let free: HashSet<TaskNo> = free.iter().map(|live| live.task_no).collect();
    let mut others = READ_OVERDUE.map((task_nos, nonces, now), |InRun(live)| live);
    others.retain(|live| !free.contains(&live.task_no));
    let (going_on, _) = tries::timed_out(others);
    if going_on.is_empty() {
        return going_on;
    }
    let going_on: Vec<TaskNo> = going_on.iter().map(|live| live.task_no).collect();
    let locked = LOCK_OVERDUE_STAYING.map((going_on, nonces, now), |InRun(live)| live);
    // What limits their tries may have changed meanwhile.
    tries::timed_out(locked).0
}
