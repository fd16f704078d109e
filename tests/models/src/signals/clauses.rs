//! The clauses of the protocol.

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A counter that is busy is passed over, and a signal left for it (`signal::apply`).
    PassOverBusy,
    /// Whoever has touched a counter looks before he commits (`commit::before_commit`).
    LookBeforeCommit,
    /// He has a sign before he looks (`Steps::next`).
    SignBeforeLook,
    /// So does who has only left a signal.
    SignOfSignal,
    /// Who has the counter has another sign than who has not (`commit::mode`).
    SignOfHolder,
    /// Who commits with everything counted has the sign to himself (case 2).
    OnlyOne,
    /// He counts once more when he has.
    CountAmongOthersEnds,
    /// Who leaves the rest to the holder of the counter has asked whether he is past his look (case 3).
    AskForHolder,
    /// And asked before he tried the counter.
    AskBeforeTrying,
    /// The look sees signals that are not committed (`unsent::look`).
    DirtySignals,
    /// And the lower version of a counter that somebody is changing.
    LowestVersion,
    /// Signs are freed when the commit is visible.
    SignsOutliveCommit,
    /// Who naps has no sign.
    NoSignWhileWaiting,
    /// Whoever locks a counter looks, too, whatever for (`locks::live`, `fold::try_lock_and_count`).
    WhoeverLocksLooks,
    /// A counter is noted for the look as soon as it is counted down, not after all others (`blocked::change`).
    NotedAtOnce,
    /// A rollback of who had touched a counter wakes somebody to count (`ends::touched`).
    RollbackWakes,
    /// Who has left a signal to the holder of the counter wakes somebody, too, once his commit is visible. The holder may
    /// have been rolled back meanwhile, and whom that has woken has not seen the signal (`Steps::left_to_holder`).
    LeavingWakes,
    /// The counter is locked first, and its signals are taken with a newer snapshot (`fold::try_lock_and_count`).
    LockBeforeTake,
    /// The look reads signals before counters.
    SignalsBeforeCounters,
    /// Signals that somebody is removing do not count as sent; they are in his version of the counter.
    DoomedAreNotSent,
    /// What there is to count is counted before anybody is asked for anything (`Steps::count`).
    CountFirst,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 17] = [
    Clause::PassOverBusy,
    Clause::LookBeforeCommit,
    Clause::SignBeforeLook,
    Clause::SignOfSignal,
    Clause::SignOfHolder,
    Clause::OnlyOne,
    Clause::CountAmongOthersEnds,
    Clause::AskForHolder,
    Clause::AskBeforeTrying,
    Clause::DirtySignals,
    Clause::LowestVersion,
    Clause::SignsOutliveCommit,
    Clause::NoSignWhileWaiting,
    Clause::WhoeverLocksLooks,
    Clause::NotedAtOnce,
    Clause::RollbackWakes,
    Clause::LeavingWakes,
];

/// Those that can go, each by itself, and nothing is lost: whoever counts looks once more after that, later than all who
/// may have been misled by what he was just doing, and counts what the first attempt has missed. They spare that second
/// round, and the proof does not need to speak of it.
pub const SPARED: [Clause; 4] =
    [Clause::LockBeforeTake, Clause::SignalsBeforeCounters, Clause::DoomedAreNotSent, Clause::CountFirst];
