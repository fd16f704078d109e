//! Claims of actions with limits.
//!
//! In rounds: a look at what is next, in the order of all actions together and without locks; the choice of
//! as many entries as there is room for and the limits of their actions allow; their claim, which passes
//! over those that another grant holds. An action whose limits are used up is out of the following rounds,
//! so that its backlog costs the others nothing.

use std::collections::{HashMap, HashSet};

use super::{Claim, Grant, MOST_MOVES, statements};
use crate::flow::actions::Action;
use crate::flow::limits::{self, Bucket};
use crate::pg::session::check_for_interrupts;

/// What the limits of an action leave to this call.
struct Allowance {
    slots: Option<Vec<i32>>,
    bucket: Option<Bucket>,
    granted: Vec<i64>,
}

impl Allowance {
    /// Locks free slots, no more than `wanted`, and the bucket. If another grant holds the bucket nothing
    /// is left.
    fn acquire(action: &Action, wanted: usize, claim: &Claim) -> Self {
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        let slots = action.max_concurrency.map(|limit| limits::free_slots(&action.name, limit, wanted));
        let bucket = match action.rate {
            Some((limit, period)) if slots.as_ref().is_none_or(|slots| !slots.is_empty()) => {
                Bucket::lock(&action.name, limit, period, claim.now)
            }
            _ => None,
        };
        let held_by_another = action.rate.is_some() && bucket.is_none();
        Allowance {
            slots: if held_by_another { Some(Vec::new()) } else { slots },
            bucket,
            granted: Vec::new(),
        }
    }

    fn left(&self) -> usize {
        let slots = self.slots.as_ref().map_or(usize::MAX, Vec::len);
        let rate = self.bucket.map_or(usize::MAX, |bucket| bucket.allowed() as usize);
        slots.min(rate).saturating_sub(self.granted.len())
    }
}

/// Grants as many as there is room for, within the limits.
pub(super) fn claim(claim: &mut Claim, actions: &[&Action], grants: &mut Vec<Grant>) {
    let mut open: HashMap<i32, &Action> = actions.iter().map(|a| (a.action_no, *a)).collect();
    let mut allowances: HashMap<String, Allowance> = HashMap::new();
    // Entries that were tried: granted, turned away, or in another grant's hands.
    let mut passed: HashSet<i64> = HashSet::new();
    while grants.len() < claim.request.max_tasks && claim.moves < MOST_MOVES && !open.is_empty() {
        check_for_interrupts();
        let room = claim.room(grants) as usize;
        let depth = room.saturating_add(passed.len()).saturating_mul(2).min(i32::MAX as usize / 2);
        let numbers: Vec<i32> = open.keys().copied().collect();
        let next = statements::peek(&numbers, depth as i32);
        let fresh: Vec<(i64, i32)> = next.iter().copied().filter(|(n, _)| !passed.contains(n)).collect();
        let (chosen, full) = choose(claim, &fresh, room, &open, &mut allowances);
        for action_no in full {
            open.remove(&action_no);
        }
        if chosen.is_empty() {
            // Nothing to be had of what is still open: it has been seen to its end, or the full actions
            // stood in front of it.
            if fresh.iter().all(|(_, action_no)| open.contains_key(action_no)) && next.len() < depth {
                break;
            }
            continue;
        }
        passed.extend(&chosen);
        let seated: Vec<i32> =
            open.values().filter(|a| a.max_concurrency.is_some()).map(|a| a.action_no).collect();
        let taken = statements::these(claim.request, &chosen, claim.base, claim.now, &seated);
        let admitted = claim.admit(taken);
        for grant in &admitted {
            if let Some(allowance) = allowances.get_mut(&grant.action) {
                allowance.granted.push(grant.task_no);
            }
        }
        grants.extend(admitted);
    }
    for (name, allowance) in allowances {
        if let Some(slots) = &allowance.slots {
            limits::occupy(&name, slots, &allowance.granted);
        }
        if let Some(bucket) = allowance.bucket {
            bucket.take(&name, allowance.granted.len());
        }
    }
}

/// The first of the entries that their limits allow, up to `room`; and the actions whose limits are full.
fn choose(
    claim: &Claim,
    fresh: &[(i64, i32)],
    room: usize,
    open: &HashMap<i32, &Action>,
    allowances: &mut HashMap<String, Allowance>,
) -> (Vec<i64>, HashSet<i32>) {
    let mut reserved: HashMap<&str, usize> = HashMap::new();
    let (mut chosen, mut full) = (Vec::with_capacity(room), HashSet::new());
    for (task_no, action_no) in fresh {
        if chosen.len() == room {
            break;
        }
        let Some(action) = open.get(action_no) else { continue };
        if action.is_limited() {
            let allowance = allowances.entry(action.name.clone()).or_insert_with(|| {
                let wanted = fresh.iter().filter(|(_, n)| n == action_no).count().min(room);
                Allowance::acquire(action, wanted, claim)
            });
            let reserved = reserved.entry(action.name.as_str()).or_default();
            if allowance.left() <= *reserved {
                full.insert(*action_no);
                continue;
            }
            *reserved += 1;
        }
        chosen.push(*task_no);
    }
    // What is full only because of what this round has reserved may have room again after it.
    if !chosen.is_empty() {
        full.retain(|n| open.get(n).is_some_and(|a| allowances.get(&a.name).is_some_and(|l| l.left() == 0)));
    }
    (chosen, full)
}
