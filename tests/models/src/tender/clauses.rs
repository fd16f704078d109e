//! The clauses of the protocol, and which property notices that one is missing.

use super::protocol::{LATE, LOST, SPINS, STARTS, TWO};

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A call sets the latch of the tender first, then looks at the post (`call::call_if`).
    LatchBeforePost,
    /// A tender that leaves gives up the post first, then looks at its latch (`station::leave_unless_called`).
    PostBeforeLatch,
    /// It looks at its latch at all.
    LooksAtLatch,
    /// A process without the post does nothing (`Station::take`).
    Post,
    /// The tender resets its latch before it looks (`Station::begin_look`).
    TenderResetsFirst,
    /// A call that has started a process looks again within a second (`Waiter::sleep`, as of the two that follow).
    LooksAgainAfterStart,
    /// So does a call that has found the post taken.
    LooksAgainBesideTender,
    /// So does a call that has found another one starting a process.
    LooksAgainBesideStart,
    /// A session starts at most one process in a second.
    OnceASecond,
    /// The lock `Starting`: as long as the call that has started a process sleeps, no other one starts one.
    Starting,
    /// What is due already ends no sleep: it is looked at again after a second (`upkeep::next_task`, `upkeep::Next::after`).
    OnlyWhatIsAhead,
    /// A call sleeps no longer than until the next thing is due, whatever its action is.
    SleepsUntilDue,
    /// A call whose time is up does what is owed (`wait::wait`).
    LastLook,
    /// A commit that adds something due wakes one call, unless one looks in time (`notes::wake_for`).
    AddingWakes,
    /// A call that tells committers that it looks soon tells so no more when that look begins (`Registration::soon`).
    SoonEndsBeforeTheLook,
    /// A commit that makes a task ready wakes one call of its action, that of a tender as well (`notes::ready`).
    ReadyWakes,
    /// A call that ends with its latch set wakes others in its place (`wake::hand_on`).
    HandsOnWakeUp,
    /// A call that ends and knows of something due wakes another one.
    HandsOnTime,
    /// So does one that has not slept: a wake-up may have come between its registration and its first look. (In the source
    /// only if one has: `Waiter::has_heard`.)
    HandsOnFirstWakeUp,
    /// A call that is cancelled wakes others in its place (`registered::give_up`).
    CancelHandsOn,
}

/// Those that are needed, each by itself, and what does not hold without it.
pub const NEEDED: [(Clause, &str); 19] = [
    (Clause::LatchBeforePost, LATE),
    (Clause::PostBeforeLatch, LATE),
    (Clause::LooksAtLatch, LATE),
    (Clause::Post, TWO),
    (Clause::TenderResetsFirst, LATE),
    (Clause::LooksAgainAfterStart, LATE),
    (Clause::LooksAgainBesideTender, LATE),
    (Clause::OnceASecond, STARTS),
    (Clause::Starting, STARTS),
    (Clause::OnlyWhatIsAhead, SPINS),
    (Clause::SleepsUntilDue, LATE),
    (Clause::LastLook, LOST),
    (Clause::AddingWakes, LATE),
    (Clause::SoonEndsBeforeTheLook, LATE),
    (Clause::ReadyWakes, LATE),
    (Clause::HandsOnWakeUp, LATE),
    (Clause::HandsOnTime, LATE),
    (Clause::HandsOnFirstWakeUp, LATE),
    (Clause::CancelHandsOn, LATE),
];
