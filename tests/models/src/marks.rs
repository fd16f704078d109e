//! Low-water marks: `src/store/decided.rs`, `src/claim/marks.rs`, `src/claim/lane_marks.rs`, `src/store/known_lanes.rs`.
//!
//! Writers insert tasks, or return some for another try: that is the same here, since an entry that was granted never
//! comes back at its old place. A worker looks, moves its marks, and claims, in transactions of one call or of several, that
//! commit or not. Another one is granted tasks, too; his marks are his own and concern nobody else, so he has none here.
//! `src/store/behind.rs`, the marks of slots, is the same with other words: what is granted here is occupied
//! there, and what is inserted is freed.
//!
//! **What must hold:** no entry that anybody could be granted is before a mark. And a call misses nothing that its own
//! look has shown it.
//!
//! *The database.* Ids are given in order; whoever has one runs until it commits or aborts. A snapshot is the set of ids
//! that have committed, and the lowest that runs. The sequence is not transactional. What a transaction inserts is seen by
//! nobody else before its commit, so entries appear with that.
//!
//! *What is left out:* files and times, by which marks are forgotten; several priorities, of which each has its own.

use std::collections::BTreeMap;

use crate::check::{Protocol, long};

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// Whoever takes a position has an id before (`numbers::take`).
    IdBeforePosition,
    /// A look reads the last position before it reads the next id (`Decided::bound`).
    PositionBeforeNextId,
    /// That is the id that nobody has had by then, not the end of the look's snapshot.
    NextIdAfterTheLook,
    /// A bound counts in snapshots only whose xmin has come to its id (`Decided::bound_before`).
    OnceAllHaveEnded,
    /// A mark does not go beyond the bound, whatever the look has seen (`Marks::advance`).
    NotBeyondTheBound,
    /// A transaction that had an id when it looked moves nothing.
    NoIdBeforeTheLook,
    /// What a look has seen beyond the mark is for the call that looked (`Marks::ranges_of_look`).
    SeenByThisCall,
    /// What was granted comes back at a new position, if at all.
    NewPosition,
    /// A bound that is not reached yet is kept until it is (`Decided::pending`). Without it nothing is lost, but marks
    /// stand still wherever somebody always has an id.
    BoundIsKept,
    /// Lanes in which something has waited are excepted (`Known::up_to`).
    WaitingLanesAreExcepted,
    /// Of more lanes than can be excepted the oldest are, and what is common ends where the next begins.
    CommonEndsAtTheNext,
    /// A transaction that has an id does not look where lanes begin (`lane_marks::has_cost`).
    NoIdBeforeTheLanes,
    /// An older snapshot than the bound's moves nothing (the last line of `Decided::bound_before`).
    NoOlderSnapshot,
}

/// Those that are needed, each by itself, so that nothing is lost.
pub const NEEDED: [Clause; 11] = [
    Clause::IdBeforePosition,
    Clause::PositionBeforeNextId,
    Clause::NextIdAfterTheLook,
    Clause::OnceAllHaveEnded,
    Clause::NotBeyondTheBound,
    Clause::NoIdBeforeTheLook,
    Clause::SeenByThisCall,
    Clause::NewPosition,
    Clause::WaitingLanesAreExcepted,
    Clause::CommonEndsAtTheNext,
    Clause::NoIdBeforeTheLanes,
];

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
    /// How many calls the worker makes whose marks these are.
    pub calls: u8,
    /// How many tasks another one is granted. (What he remembers concerns nobody else.)
    pub granted_to_others: u8,
    /// Whether a state tells if marks move while others have ids.
    pub tells: bool,
}

impl Marks {
    /// 1,002,979 states.
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
    /// There was a look while nobody had an id.
    quiet: bool,
    /// A mark has moved, and there was none.
    moved_beside_others: bool,
}

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `session::assign_transaction_id`.
    AssignId(usize),
    /// `numbers::take`: nextval.
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
    /// Another worker takes what he finds first, or what he finds when that is locked.
    GrantToOther(usize),
    /// He commits.
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
        let running = self.bits(Fate::Running).trailing_zeros() as u8;
        Snapshot { committed, own, xmin: running.min(xmax), xmax }
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
    /// `Decided::bound` and `bound_before`.
    fn find_bound(&mut self, marks: &Marks, look: Snapshot, last: Position, next: Id) -> Option<Position> {
        if look.own.is_some() && marks.has(Clause::NoIdBeforeTheLook) {
            return None;
        }
        let kept = self.pending.filter(|_| marks.has(Clause::BoundIsKept));
        let reached = [Some((last, next)), kept]
            .into_iter()
            .flatten()
            .find(|(_, from)| look.xmin >= *from || !marks.has(Clause::OnceAllHaveEnded));
        if let Some((position, from)) = reached {
            (self.bound, self.bound_from, self.pending) = (position, from, None);
        }
        if self.pending.is_none() && last > self.bound {
            self.pending = Some((last, next));
        }
        let same = look.xmin >= self.bound_from
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

impl Protocol for Marks {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        State {
            last_position: 0,
            ids: Vec::new(),
            entries: Vec::new(),
            writers: self.writers.iter().map(|n| Writer { left: *n, id: None, position: None }).collect(),
            worker: Worker {
                left: self.calls,
                at: At::Outside,
                id: None,
                elsewhere: false,
                memory: Memory::default(),
            },
            other: Other { left: self.granted_to_others, id: None },
            missed: false,
            quiet: false,
            moved_beside_others: false,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (w, writer) in state.writers.iter().enumerate() {
            let free_order = !self.has(Clause::IdBeforePosition);
            if writer.left > 0 && writer.id.is_none() {
                steps.push(Step::AssignId(w));
            }
            if writer.left > 0 && writer.position.is_none() && (writer.id.is_some() || free_order) {
                steps.push(Step::TakePosition(w));
            }
            if writer.id.is_some() {
                steps.push(Step::AbortInsertion(w));
                if writer.position.is_some() {
                    steps.push(Step::CommitInsertion(w));
                }
            }
        }
        let worker = &state.worker;
        match worker.at {
            At::Outside => {
                if worker.left > 0 {
                    steps.push(Step::BeginLook);
                    if !worker.elsewhere {
                        steps.push(Step::LookElsewhere);
                    }
                }
                if let Some(id) = worker.id {
                    // A later round of the same call.
                    if !self.has(Clause::NoIdBeforeTheLanes) && worker.memory.may_look_into_lanes() {
                        steps.push(Step::LookIntoLanes);
                    }
                    steps.extend([Step::Commit, Step::Abort]);
                    if state.entries.iter().any(|e| e.granted == Some(id)) {
                        steps.push(Step::RollBackTo);
                    }
                }
            }
            At::HasSnapshot(_) => steps.push(Step::ReadPosition),
            At::HasRead(..) => steps.push(Step::Advance),
            At::HasLooked(_) => {
                steps.push(Step::Claim);
                if worker.id.is_none() && worker.memory.may_look_into_lanes() {
                    steps.push(Step::LookIntoLanes);
                }
            }
        }
        if state.other.id.is_some() {
            steps.extend([Step::CommitOther, Step::AbortOther]);
        } else if state.other.left > 0 {
            let free = (0..state.entries.len()).filter(|e| state.entries[*e].granted.is_none());
            steps.extend(free.map(Step::GrantToOther));
        }
        if !self.has(Clause::NewPosition) {
            for (e, entry) in state.entries.iter().enumerate() {
                if entry.granted.is_some_and(|id| state.ids[id as usize - 1] == Fate::Committed) {
                    steps.push(Step::ComeBack(e));
                }
            }
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::AssignId(w) => state.writers[w].id = Some(state.assign()),
            Step::TakePosition(w) => {
                state.last_position += 1;
                state.writers[w].position = Some(state.last_position);
            }
            Step::CommitInsertion(w) => self.end_insertion(&mut state, w, Fate::Committed),
            Step::AbortInsertion(w) => self.end_insertion(&mut state, w, Fate::Aborted),
            Step::BeginLook => {
                let own = state.worker.id;
                state.worker.left -= 1;
                state.worker.at = At::HasSnapshot(state.snapshot(own));
            }
            Step::LookElsewhere => {
                let look = state.snapshot(state.worker.id);
                let (last, next) = (state.last_position, state.next_id());
                state.quiet |= self.tells && look.xmin >= next;
                let memory = &mut state.worker.memory;
                if self.has(Clause::SeenByThisCall) {
                    memory.seen = 0;
                }
                memory.decided_to = memory.find_bound(self, look, last, next).unwrap_or(0);
                state.worker.elsewhere = true;
                state.worker.left -= 1;
                state.worker.at = At::HasLooked(look);
            }
            Step::ReadPosition => {
                let At::HasSnapshot(look) = state.worker.at else { unreachable!() };
                let early = (!self.has(Clause::PositionBeforeNextId)).then(|| state.next_id());
                // Without the clause the id is read here, and the position when it is used.
                state.worker.at = At::HasRead(look, state.last_position, early);
            }
            Step::Advance => self.advance(&mut state),
            Step::LookIntoLanes => {
                let look = state.snapshot(state.worker.id);
                let memory = &mut state.worker.memory;
                let mut firsts = BTreeMap::new();
                for entry in state.entries.iter().filter(|e| look.shows_ready(e)) {
                    if entry.position >= memory.rest || entry.position >= memory.lane_start(entry.lane()) {
                        let first = firsts.entry(entry.lane()).or_insert(entry.position);
                        *first = entry.position.min(*first);
                    }
                }
                memory.remember_lanes(self, memory.decided_to, firsts);
            }
            Step::Claim => self.claim(&mut state),
            Step::Commit => {
                let id = state.worker.id.take();
                state.end(id, Fate::Committed);
            }
            Step::Abort => {
                let id = state.worker.id.take();
                state.end(id, Fate::Aborted);
            }
            Step::RollBackTo => {
                if let Some(id) = state.worker.id {
                    state.undo(id);
                }
            }
            Step::GrantToOther(e) => {
                let id = state.assign();
                state.entries[e].granted = Some(id);
                state.other = Other { left: state.other.left - 1, id: Some(id) };
            }
            Step::CommitOther => {
                let id = state.other.id.take();
                state.end(id, Fate::Committed);
            }
            Step::AbortOther => {
                let id = state.other.id.take();
                state.end(id, Fate::Aborted);
            }
            Step::ComeBack(e) => state.entries[e].granted = None,
        }
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        for entry in state.entries.iter().filter(|e| e.granted.is_none()) {
            let memory = &state.worker.memory;
            if entry.position < memory.start {
                return Some("a task that is ready is before the mark");
            }
            if entry.position < memory.lane_start(entry.lane()) {
                return Some("a task that is ready in a lane is before what is known of that");
            }
        }
        state.missed.then_some("a call has begun behind a task that its own look has shown it")
    }

    fn left_lying(&self, _end: &State) -> Option<&'static str> {
        None
    }
}

impl Marks {
    fn end_insertion(&self, state: &mut State, w: usize, fate: Fate) {
        let writer = &mut state.writers[w];
        let (id, position) = (writer.id.take(), writer.position.take());
        writer.left -= 1;
        if let (Some(inserted), Some(position), Fate::Committed) = (id, position, fate) {
            state.entries.push(Entry { position, inserted, granted: None });
            state.entries.sort_unstable_by_key(|e| e.position);
        }
        state.end(id, fate);
    }

    /// `marks::advance`.
    fn advance(&self, state: &mut State) {
        let At::HasRead(look, read, early) = state.worker.at else { unreachable!() };
        let (last, next) = match early {
            Some(next) => (state.last_position, next),
            None if self.has(Clause::NextIdAfterTheLook) => (read, state.next_id()),
            None => (read, look.xmax),
        };
        state.quiet |= self.tells && look.xmin >= next;
        let memory = &mut state.worker.memory;
        let first = state
            .entries
            .iter()
            .find(|e| e.position >= memory.start && look.shows_ready(e))
            .map(|e| e.position);
        memory.seen = first.unwrap_or(last + 1);
        memory.decided_to = 0;
        if let Some(bound) = memory.find_bound(self, look, last, next) {
            memory.decided_to = bound;
            let behind = if self.has(Clause::NotBeyondTheBound) { bound + 1 } else { last + 1 };
            let start = memory.start.max(first.map_or(behind, |first| first.min(behind)));
            state.moved_beside_others |= self.tells && start > memory.start && !state.quiet;
            memory.start = start;
        }
        state.worker.at = At::HasLooked(look);
    }

    /// The claim of the call, from `marks::ranges_of_look` on.
    fn claim(&self, state: &mut State) {
        let At::HasLooked(look) = state.worker.at else { unreachable!() };
        let memory = &mut state.worker.memory;
        let start = memory.start.max(memory.seen);
        if self.has(Clause::SeenByThisCall) {
            memory.seen = 0;
        }
        state.missed |=
            state.entries.iter().any(|e| e.position < start && e.granted.is_none() && look.shows_ready(e));
        let found = state.entries.iter().position(|e| e.position >= start && e.granted.is_none());
        if let Some(found) = found {
            let id = state.worker.id.unwrap_or_else(|| state.assign());
            state.worker.id = Some(id);
            state.entries[found].granted = Some(id);
        }
        state.worker.at = At::Outside;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{never, reaches};

    #[test]
    fn no_entry_is_missed() {
        let states = never(&Marks::new(None)).unwrap_or_else(|failure| panic!("{failure}"));
        println!("marks: {states} states");
        assert!(states > 100_000, "only {states} states");
    }

    #[test]
    fn each_clause_is_needed() {
        for clause in NEEDED {
            let Err(failure) = never(&Marks::new(Some(clause))) else { panic!("{clause:?} can go") };
            println!("marks without {clause:?}: {failure}");
        }
    }

    /// Whether marks move while others have ids.
    fn moves(without: Option<Clause>) -> bool {
        let marks = Marks { tells: true, writers: vec![1, 1], calls: 2, granted_to_others: 0, without };
        reaches(&marks, |state| state.moved_beside_others)
    }

    #[test]
    fn a_bound_that_is_kept_moves_marks_beside_open_transactions() {
        assert!(moves(None));
        assert!(!moves(Some(Clause::BoundIsKept)));
    }

    /// The snapshots of a backend are never older than those before: a look is made with the latest one, and the
    /// lowest id that runs does not fall. The clause holds the proof together should that ever change.
    #[test]
    fn snapshots_do_not_go_back() {
        let marks = Marks { granted_to_others: 0, ..Marks::new(Some(Clause::NoOlderSnapshot)) };
        never(&marks).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
