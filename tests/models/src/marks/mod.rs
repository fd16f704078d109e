//! Low-water marks: `src/store/decided.rs`, `src/claim/marks.rs`, `src/claim/lane_marks.rs`, `src/store/known_lanes.rs`.
//!
//! Writers insert tasks, or return some for another try: that is the same here, since an entry whose grant was committed
//! does not come back at its old place. A worker looks, moves its marks, and claims, in transactions of one call or of
//! several, that commit or not. Another worker is granted tasks, too. Its marks are left out.
//! `src/store/behind.rs`, the marks of slots, is the same with other words: what is granted here is occupied there, and
//! what is inserted is freed.
//!
//! **What must hold:** no entry that a worker could be granted is before a mark. And a call misses nothing that its own
//! look has shown it.
//!
//! *The database.* Ids are given in order; a transaction that has one runs until it commits or aborts. A snapshot is
//! the set of ids that have committed, and the lowest that runs. The sequence is not transactional. What a transaction
//! inserts is seen by no other before its commit, so entries appear with that.
//!
//! *What is left out:* files, by which marks are forgotten; several priorities, of which each has its own mark, and how a
//! backend comes to one, since it begins before all entries. A further walk of a call begins where the one before it has
//! seen something, as the first one begins where the look has.

mod clauses;
mod protocol;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::check::long;
pub use clauses::{Clause, NEEDED};

/// The number of a transaction, from 1 on.
type Id = u8;
type Position = u8;

/// Two, and one of them may be excepted (`known_lanes::MOST_LANES`).
const LANES: u8 = 2;
const MOST_LANES: usize = 1;

/// The protocol, and how much of it is tried.
#[derive(Clone, Debug)]
pub struct Marks {
    /// What is left out of it.
    pub without: Option<Clause>,
    /// How many transactions each writer makes.
    pub writers: Vec<u8>,
    /// How many calls the worker whose marks these are may make.
    pub calls: u8,
    /// How many tasks the other worker may be granted.
    pub granted_to_others: u8,
    /// Whether a state tells if marks move while others have ids.
    pub tells: bool,
}

impl Marks {
    /// What is tried.
    pub fn new(without: Option<Clause>) -> Self {
        match long() {
            false => Marks { without, writers: vec![1, 1], calls: 3, granted_to_others: 1, tells: false },
            true => Marks { without, writers: vec![1, 1], calls: 3, granted_to_others: 2, tells: false },
        }
    }

    fn has(&self, clause: Clause) -> bool {
        self.without != Some(clause)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fate {
    Running,
    Committed,
    Aborted,
}

/// A row of `run`, of a transaction that has committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    position: Position,
    inserted: Id,
    /// By a transaction that runs or has committed.
    granted: Option<Id>,
}

impl Entry {
    fn lane(&self) -> u8 {
        self.position % LANES
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    left: u8,
    id: Option<Id>,
    position: Option<Position>,
}

/// A snapshot, and what its transaction was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Snapshot {
    /// A bit for each that had committed.
    committed: u16,
    own: Option<Id>,
    xmin: Id,
    /// The same without the own one.
    xmin_of_others: Id,
    /// The next id when it was taken.
    xmax: Id,
}

impl Snapshot {
    fn shows(&self, id: Id) -> bool {
        self.committed & 1 << id != 0 || self.own == Some(id)
    }

    /// Whether the entry is there, and grantable.
    fn shows_ready(&self, entry: &Entry) -> bool {
        self.shows(entry.inserted) && !entry.granted.is_some_and(|id| self.shows(id))
    }
}

/// Where a worker is in its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Between calls, in a transaction or not.
    Outside,
    HasSnapshot(Snapshot),
    HasRead(Snapshot, Position, Option<Id>),
    HasLooked(Snapshot),
}

/// `Decided`, `Marks` and `known_lanes` of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Memory {
    bound: Position,
    bound_from: Id,
    pending: Option<(Position, Id)>,
    start: Position,
    /// Of this transaction alone.
    own_start: Position,
    /// Of the latest look.
    seen: Position,
    decided_to: Position,
    /// Of lanes.
    rest: Position,
    excepted: BTreeMap<u8, Position>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Worker {
    left: u8,
    at: At,
    id: Option<Id>,
    /// It has made a call that was found to concern the action only later. Once is enough.
    elsewhere: bool,
    memory: Memory,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Other {
    left: u8,
    id: Option<Id>,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    last_position: Position,
    ids: Vec<Fate>,
    entries: Vec<Entry>,
    writers: Vec<Writer>,
    worker: Worker,
    other: Other,
    /// A call has begun behind something that its look had shown it.
    missed: bool,
    /// There was a look while no transaction had an id. Only noted if [`Marks::tells`].
    quiet: bool,
    /// A mark has moved, and there was no such look. Only noted if [`Marks::tells`].
    moved_beside_others: bool,
}

/// What each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `session::assign_transaction_id`.
    AssignId(usize),
    /// `positions::take`: nextval.
    TakePosition(usize),
    /// The insertion commits.
    CommitInsertion(usize),
    /// It is rolled back, or to a savepoint before it.
    AbortInsertion(usize),
    /// `table::look` in `upkeep::look`: a call begins, and has its snapshot.
    BeginLook,
    /// `upkeep::look` of a call that includes no mark of the action, which turns out to be concerned only later (`own_after`).
    LookElsewhere,
    /// `numbers::look`: where the sequence stands.
    ReadPosition,
    /// `marks::advance`.
    Advance,
    /// `lane_marks::has_cost`.
    LookIntoLanes,
    /// `take::in_order`: takes the first entry that is to be had, from the mark on.
    Claim,
    /// The transaction of one call or more commits.
    Commit,
    /// It is rolled back.
    Abort,
    /// A savepoint before its grants is; it goes on.
    RollBackTo,
    /// The other worker takes what it finds first, or what it finds when that is locked.
    GrantToOther(usize),
    /// It commits.
    CommitOther,
    /// Or does not.
    AbortOther,
    /// What is in progress comes back at its old position. Only without [`Clause::NewPosition`].
    ComeBack(usize),
}

impl State {
    fn snapshot(&self, own: Option<Id>) -> Snapshot {
        let committed = self.bits(Fate::Committed);
        let xmax = self.next_id();
        let running = self.bits(Fate::Running);
        let others = running & !own.map_or(0, |id| 1 << id);
        let lowest = |ids: u16| (ids.trailing_zeros() as u8).min(xmax);
        Snapshot { committed, own, xmin: lowest(running), xmin_of_others: lowest(others), xmax }
    }

    fn bits(&self, fate: Fate) -> u16 {
        self.ids.iter().zip(1u16..).filter(|(is, _)| **is == fate).map(|(_, id)| 1 << id).sum()
    }

    fn next_id(&self) -> Id {
        self.ids.len() as Id + 1
    }

    fn assign(&mut self) -> Id {
        self.ids.push(Fate::Running);
        self.ids.len() as Id
    }

    fn end(&mut self, id: Option<Id>, fate: Fate) {
        let Some(id) = id else { return };
        self.ids[id as usize - 1] = fate;
        if fate == Fate::Aborted {
            self.undo(id);
        }
    }

    fn undo(&mut self, id: Id) {
        self.entries.iter_mut().filter(|e| e.granted == Some(id)).for_each(|e| e.granted = None);
    }
}

impl Memory {
    /// `Mark::begins`.
    fn begins(&self) -> Position {
        self.start.max(self.own_start)
    }

    /// `Decided::bound_before`, of which `bound` and `bound_of_others` are made.
    fn find_bound(&mut self, marks: &Marks, look: Snapshot, last: Position, next: Id) -> Option<Position> {
        let xmin = if look.own.is_some() { look.xmin_of_others } else { look.xmin };
        let kept = self.pending.filter(|_| marks.has(Clause::BoundIsKept));
        let reached = [Some((last, next)), kept]
            .into_iter()
            .flatten()
            .find(|(_, from)| xmin >= *from || !marks.has(Clause::OnceAllHaveEnded));
        if let Some((position, from)) = reached {
            (self.bound, self.bound_from, self.pending) = (position, from, None);
        }
        if self.pending.is_none() && last > self.bound {
            self.pending = Some((last, next));
        }
        let same = xmin >= self.bound_from
            || !marks.has(Clause::NoOlderSnapshot)
            || !marks.has(Clause::OnceAllHaveEnded);
        (self.bound > 0 && same).then_some(self.bound)
    }

    /// `Known::up_to`.
    fn remember_lanes(&mut self, marks: &Marks, bound: Position, firsts: BTreeMap<u8, Position>) {
        let mut rest = bound + 1;
        let mut waiting: Vec<Position> = firsts.values().copied().filter(|first| *first < rest).collect();
        if waiting.len() > MOST_LANES && marks.has(Clause::CommonEndsAtTheNext) {
            waiting.sort_unstable();
            rest = waiting[MOST_LANES];
        }
        self.rest = rest;
        self.excepted = firsts.into_iter().filter(|(_, first)| *first < rest).take(MOST_LANES).collect();
        if !marks.has(Clause::WaitingLanesAreExcepted) {
            self.excepted.clear();
        }
    }

    /// The guards of `lane_marks::has_cost`, but for that of the id.
    fn may_look_into_lanes(&self) -> bool {
        self.decided_to > 0 && self.decided_to >= self.rest
    }

    fn lane_start(&self, lane: u8) -> Position {
        self.excepted.get(&lane).copied().unwrap_or(self.rest)
    }
}
