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

/// Locks those of the tasks that are still overdue and not locked by another transaction, up to `most` of them, with the merge
/// keys that they hold, and what is parked under these or rides.
pub(super) fn lock(held: &[(TaskNo, Nonce)], most: usize, now: Time) -> Vec<Live> {
    let (mut keyed, mut locked): (Vec<TaskNo>, Vec<Live>) = (Vec::new(), Vec::new());
    for (task_nos, nonces) in in_pieces(held.iter().copied()) {
        let room = most - locked.len();
        if room == 0 {
            return locked;
        }
        keyed.extend(OVERDUE_WITH_KEYS.query((task_nos.as_slice(), nonces.as_slice(), now)));
        let most = i64::try_from(room).unwrap_or(i64::MAX);
        let free = LOCK_OVERDUE.map((task_nos.as_slice(), nonces.as_slice(), now, most), |InRun(live)| live);
        let (missing, room) = (task_nos.len() - free.len(), room - free.len());
        let linked = if missing > 0 && room > 0 {
            lock_linked(&task_nos, &nonces, &free, room, now)
        } else {
            Vec::new()
        };
        locked.extend(free.into_iter().chain(linked));
    }
    let mut keyed = keyed.as_slice();
    while locked.len() < most && !keyed.is_empty() {
        let (some, others) = keyed.split_at(keyed.len().min(most - locked.len()));
        locked.extend(holders::lock(some.to_vec(), now));
        keyed = others;
    }
    locked
}

/// Of these tasks but for the `free` ones, those that go on to another try: their rows stay. An open insertion of a dependent
/// keeps what it waits for from going (FOR KEY SHARE), and is in the way of an end only.
fn lock_linked(task_nos: &[TaskNo], nonces: &[Nonce], free: &[Live], most: usize, now: Time) -> Vec<Live> {
    let free: HashSet<TaskNo> = free.iter().map(|live| live.task_no).collect();
    let mut others = READ_OVERDUE.map((task_nos, nonces, now), |InRun(live)| live);
    others.retain(|live| !free.contains(&live.task_no));
    let (mut going_on, _) = tries::timed_out(others);
    going_on.truncate(most);
    if going_on.is_empty() {
        return going_on;
    }
    let going_on: Vec<TaskNo> = going_on.iter().map(|live| live.task_no).collect();
    let locked = LOCK_OVERDUE_STAYING.map((going_on, nonces, now), |InRun(live)| live);
    // What limits their tries may have changed meanwhile.
    tries::timed_out(locked).0
}
