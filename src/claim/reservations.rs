//! What limits leave to one call: slots and buckets that it has locked, and has still to use.

use std::collections::{BTreeMap, HashMap};

use super::call::Call;
use crate::flow::actions::Action;
use crate::flow::rates::Bucket;
use crate::number::{Position, TaskNo};
use crate::pg::block::in_transaction_block;
use crate::store::slot::{self, Ask, Assignment, Limit, known};
use crate::wake;

/// A bucket that this call has locked, or (`None`) that it could not lock.
struct Rate {
    bucket: Option<Bucket>,
    granted: usize,
    reserved: usize,
}

impl Rate {
    fn left(&self) -> usize {
        let allowed = self.bucket.map_or(0, |bucket| bucket.allowed() as usize);
        allowed.saturating_sub(self.granted + self.reserved)
    }
}

/// What keeps an entry back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Slots(Limit),
    Rate,
}

/// A slot of each limit that an entry is subject to: its position.
pub(super) struct Reserved {
    slots: Vec<(Limit, Position)>,
    rated: bool,
}

impl Reserved {
    /// Whether the performance holds slots.
    pub(super) fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether a slot of this limit is among them.
    pub(super) fn has(&self, limit: &Limit) -> bool {
        self.slots.iter().any(|(of, _)| of == limit)
    }
}

/// What the limits leave to a call.
#[derive(Default)]
pub(super) struct Reservations {
    /// How many each limit allows that was asked for.
    most: HashMap<Limit, i32>,
    /// Slots that are locked, and free.
    free: BTreeMap<Limit, Vec<Position>>,
    /// Those of what was granted in this round, and whose they are.
    used: Vec<(Limit, Position, TaskNo)>,
    /// Limits of which slots were made.
    made: Vec<Limit>,
    rates: HashMap<String, Rate>,
}

impl Reservations {
    /// Locks slots of these limits, with how many are wanted of each beyond those that are occupied. Few more are locked than
    /// are used in the end: until the commit no other call can use them.
    pub(super) fn ask(&mut self, wanted: BTreeMap<Limit, (i32, usize)>) {
        self.most.extend(wanted.iter().map(|(limit, (most, _))| (limit.clone(), *most)));
        let asks: Vec<Ask> = wanted
            .into_iter()
            .filter(|(limit, (_, wanted))| self.free.get(limit).is_none_or(|free| free.len() < *wanted))
            .map(|(limit, (most, wanted))| Ask {
                limit,
                most,
                wanted: wanted.min(i32::MAX as usize / 4) as i32,
            })
            .collect();
        if asks.is_empty() {
            return;
        }
        let locked = slot::lock_free(&asks);
        self.made.extend(locked.made);
        for (ask, positions) in asks.into_iter().zip(locked.slots) {
            let free = self.free.entry(ask.limit).or_default();
            for position in positions {
                if !free.contains(&position) {
                    free.push(position);
                }
            }
        }
    }

    /// Reserves a slot of each of the limits, and a grant of the action's rate; or none, if one of them is full.
    pub(super) fn reserve(
        &mut self,
        action: &Action,
        limits: &[Limit],
        call: &Call,
    ) -> Result<Reserved, Full> {
        for limit in limits {
            if self.free.get(limit).is_none_or(Vec::is_empty) {
                return Err(Full::Slots(limit.clone()));
            }
        }
        if let Some((most, period)) = action.rate {
            let rate = self.rates.entry(action.named.name.clone()).or_insert_with(|| Rate {
                bucket: Bucket::lock(&action.named.name, most, period, call.now),
                granted: 0,
                reserved: 0,
            });
            if rate.left() == 0 {
                return Err(Full::Rate);
            }
            rate.reserved += 1;
        }
        let slots = limits
            .iter()
            .filter_map(|limit| Some((limit.clone(), self.free.get_mut(limit)?.pop()?)))
            .collect();
        Ok(Reserved { slots, rated: action.rate.is_some() })
    }

    /// The entry was granted.
    pub(super) fn keep(&mut self, action: &Action, reserved: Reserved, task_no: TaskNo) {
        for (limit, position) in reserved.slots {
            self.used.push((limit, position, task_no));
        }
        if let Some(rate) = self.rates.get_mut(&action.named.name).filter(|_| reserved.rated) {
            rate.reserved -= 1;
            rate.granted += 1;
        }
    }

    /// The entry was not granted.
    pub(super) fn give_back(&mut self, action: &Action, reserved: Reserved) {
        for (limit, position) in reserved.slots {
            self.free.entry(limit).or_default().push(position);
        }
        if let Some(rate) = self.rates.get_mut(&action.named.name).filter(|_| reserved.rated) {
            rate.reserved -= 1;
        }
    }

    /// Whether there is still nothing left of what kept an entry back, now that what was reserved for others is
    /// either used or free again.
    pub(super) fn is_used_up(&self, action: &Action, full: &Full) -> bool {
        match full {
            Full::Slots(limit) => self.free.get(limit).is_none_or(Vec::is_empty),
            Full::Rate => self.rates.get(&action.named.name).is_none_or(|rate| rate.left() == 0),
        }
    }

    /// A limit is used up for now: if it is that of a group, the next claims need not try.
    pub(super) fn note_full(&self, limit: &Limit) {
        if let Some(most) = self.most.get(limit) {
            known::is_full(limit, *most);
        }
    }

    /// Occupies the slots of what was granted. At the end of each round: a slot that is locked and looks free would be
    /// found again by the next.
    pub(super) fn occupy(&mut self) {
        let slots: Vec<Assignment> = self
            .used
            .iter()
            .map(|(limit, position, task_no)| Assignment { limit, position: *position, task_no: *task_no })
            .collect();
        slot::occupy(&slots);
        self.used.clear();
    }

    /// Writes down what was taken of rates. Of what this call has held locked, the commit wakes others for: slots that
    /// were not used after all, those that could not be made meanwhile, what is left of a rate. If nothing is left of a
    /// rate, a waiting call has to be woken for that as well where the commit is still far: by then it may have stopped
    /// asking every few moments, and only it would know when the rate allows the next task.
    pub(super) fn settle(self, actions: &[&Action]) {
        let unused = self.free.iter().filter(|(_, free)| !free.is_empty()).map(|(limit, _)| limit);
        unused.chain(&self.made).for_each(slot::wake);
        for (name, rate) in &self.rates {
            let Some(bucket) = rate.bucket else { continue };
            bucket.take(name, rate.granted);
            if rate.left() > 0 || in_transaction_block() {
                actions.iter().filter(|a| a.named.name == *name).for_each(|a| wake::ready(a.action_no));
            }
        }
    }
}
