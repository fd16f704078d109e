//! The clauses of the protocol.

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A transaction that takes a position has an id before (`positions::take`).
    IdBeforePosition,
    /// A look reads the last position before it reads the next id (`Decided::bound`).
    PositionBeforeNextId,
    /// That is the id that no transaction has had by then, not the end of the look's snapshot.
    NextIdAfterTheLook,
    /// A bound counts in snapshots only whose xmin has come to its id (`Decided::bound_before`).
    OnceAllHaveEnded,
    /// A mark does not go beyond the bound, whatever the look has seen (`Marks::advance`).
    NotBeyondTheBound,
    /// A transaction that had an id when it looked moves marks for itself alone.
    NoIdBeforeTheLook,
    /// And these are over as soon as it ends, or something of it is undone (`at_end::ends`).
    OwnUntilUndone,
    /// What a look has seen beyond the mark is for the call that looked (`Marks::ranges_of_look`).
    SeenByThisCall,
    /// What a committed transaction was granted comes back at a new position, if at all.
    NewPosition,
    /// A bound that is not reached yet is kept until it is (`Decided::pending`). Without it nothing is lost, but marks
    /// stand still wherever there is always a transaction with an id.
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
pub const NEEDED: [Clause; 12] = [
    Clause::IdBeforePosition,
    Clause::PositionBeforeNextId,
    Clause::NextIdAfterTheLook,
    Clause::OnceAllHaveEnded,
    Clause::NotBeyondTheBound,
    Clause::NoIdBeforeTheLook,
    Clause::OwnUntilUndone,
    Clause::SeenByThisCall,
    Clause::NewPosition,
    Clause::WaitingLanesAreExcepted,
    Clause::CommonEndsAtTheNext,
    Clause::NoIdBeforeTheLanes,
];
