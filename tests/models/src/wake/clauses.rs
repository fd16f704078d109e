//! The clauses of the protocol.

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A waiter registers before it looks (`wait::look_once`).
    RegisterBeforeLook,
    /// It resets its latch before it looks (`Waiter::before_look`).
    ResetBeforeLook,
    /// A backend that wakes others makes the list again, for those that were just leaving (`latch::wake_among`).
    ListAgain,
    /// A waiter that leaves hands on a wake-up that it has not used (`wake::hand_on`).
    HandOnWakeUp,
    /// It gives up its registrations before it looks for that.
    UnregisterBeforeThat,
    /// A waiter that takes all that it wanted wakes one for what is left.
    HandOnRest,
    /// A waiter that is ended by an error hands on, too (`registered::give_up`).
    ErrorHandsOn,
    /// A rollback of a backend that has taken a task wakes one for it (`notes::taken`).
    RollbackWakes,
    /// So does the end of a transaction that had locked a task that is still there (`notes::held`).
    EndOfLockWakes,
    /// One is woken once the locks of the lock manager are released (`Listener::unlocked`).
    PayAfterLocks,
    /// A waiter under the channel for any action that was woken, and has found nothing, passes it on (`wake::pass_on`).
    PassOn,
    /// A wake-up that comes before the look counts, too, though the look forgets it (`Waiter::before_look`).
    NoticeBeforeReset,
    /// A waiter that was woken already is passed over for another one (`latch::set_latch`).
    PassOverWoken,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 12] = [
    Clause::RegisterBeforeLook,
    Clause::ResetBeforeLook,
    Clause::ListAgain,
    Clause::HandOnWakeUp,
    Clause::UnregisterBeforeThat,
    Clause::HandOnRest,
    Clause::ErrorHandsOn,
    Clause::RollbackWakes,
    Clause::EndOfLockWakes,
    Clause::PayAfterLocks,
    Clause::PassOn,
    Clause::NoticeBeforeReset,
];
