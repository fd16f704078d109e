//! The clauses of the protocol.

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A commit that brings something due wakes one who sleeps (`notes::wake_for`).
    OneHears,
    /// If it is due already by then, all look: those who have told the others of what was due so far tell of nothing earlier.
    AllHearOfWhatHasPassed,
    /// Who sleeps, sleeps no longer than until the next thing is due, whosever it is (`upkeep::next_due`).
    KnowsWhenItIsDue,
    /// Who says that he looks soon says so no more when that look begins (`Registration::soon`).
    SoonEndsBeforeTheLook,
    /// Who has no use for what has become due tells those who have (`upkeep::told`).
    Tells,
    /// Who leaves wakes one for what is due later (`wake::hand_on`).
    HandsOn,
    /// So does an error (`waiters::give_up`).
    ErrorHandsOn,
    /// What is linked to something that has become due wakes somebody who has a use for it now (`wake::behind`).
    LinkWakes,
    /// Whether it has become due is asked at the commit, not when it is linked.
    LinkAsksAtCommit,
    /// Nobody is told twice: without that there would be no end where nobody has a use for it.
    TellsOnce,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 10] = [
    Clause::OneHears,
    Clause::AllHearOfWhatHasPassed,
    Clause::KnowsWhenItIsDue,
    Clause::SoonEndsBeforeTheLook,
    Clause::Tells,
    Clause::HandsOn,
    Clause::ErrorHandsOn,
    Clause::LinkWakes,
    Clause::LinkAsksAtCommit,
    Clause::TellsOnce,
];
