//! Waiting calls and the tender: `src/background` (the process that is called), and the calls that sleep
//! (`src/verbs/waiter.rs`, `src/verbs/own/wait.rs`).
//!
//! A waiting call commits nothing before it ends. (`wait_for_work`, which may, is left out.) It takes a task that is ready and
//! of its own action; for anything else that is due it calls the tender: it sets the latch of that process, or starts one. The
//! tender does what is due in committed steps, and leaves when there is nothing near. It may be killed at any moment.
//!
//! **What must hold:**
//!
//! * *Nothing is late.* Whenever there is nothing to do but to let time go by, nothing that is due is undone while a call waits,
//!   and no call sleeps beside a task that it could be granted. Each scenario states how many seconds may go by all the same
//!   ([`Tender::late`]): one for each tender that is killed; one where a process was started in this second already, has done
//!   its work and is gone; and those up to the last look of a call where the server has no free process.
//! * *One tender.* Two processes never hold the post, without which no step is done.
//! * *No call spins.* In a second a call looks at most once without a wake-up, and starts at most one process. (Wake-ups come
//!   from commits and from calls that end.) Several calls that wake at the same due time start one process between them
//!   ([`Tender::starts`]).
//! * *A last look counts.* What is due at the last look of a call, and in no other hands, is done in the end.
//!
//! *Time* is counted in seconds, the bound within which a call looks again for what it has called the tender for. A second
//! goes by when there is nothing else to do, and a few times although there is: machines are slow.
//!
//! *What is left out:* what waking consists of, and what a rollback hands on, which [`wake`](crate::wake) has: here one instant
//! wakes one call. The posts by which the server limits the number of tenders. How long a tender stays: here it may leave whenever
//! nothing is due yet, and need not leave at all. A process that ends without a look at its latch, since settings have
//! changed, since no call has waited for a while, or since it has not got the second post, is like one that is killed. That a session
//! whose processes end at once starts them more and more seldom. That a call makes a task of its own ready whose time has come.

mod call;
mod clauses;
mod process;
mod protocol;
mod scenarios;
#[cfg(test)]
mod tests;

pub use clauses::{Clause, NEEDED};

type Action = u8;
/// A point in time, in seconds.
type Time = u8;

/// How soon a call looks again for what it has called the tender for; how soon a session starts another one.
const SECOND: Time = 1;
/// No call sleeps for longer (`wake::longest_sleep`).
const LONGEST: Time = 4;
/// How soon a session tries again after a start for which there was no process: after the time that is tried here.
const MINUTE: Time = 9;
const NEVER: Time = Time::MAX;

/// What stands in the database, or is added by a committer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Brings {
    /// Something that is due then. Once it is done there is a task ready of this action.
    Due(Time, Action),
    /// A task of this action that is ready at once.
    Ready(Action),
}

impl Brings {
    fn action(self) -> Action {
        let (Brings::Due(_, action) | Brings::Ready(action)) = self;
        action
    }

    fn due(self) -> Time {
        if let Brings::Due(due, _) = self { due } else { 0 }
    }
}

/// The protocol, and how much of it is tried.
#[derive(Clone, Debug)]
pub struct Tender {
    /// What is left out of it.
    pub without: Option<Clause>,
    /// The waiting calls: the action of each, and when its time is up.
    pub calls: Vec<(Action, Time)>,
    /// What is committed before anything else happens.
    pub there: Vec<Brings>,
    /// What is committed at some time, perhaps after all calls have ended, each by a committer of its own.
    pub added: Vec<Brings>,
    /// How many background processes the server has room for.
    pub slots: usize,
    /// Whether a tender is there in the beginning.
    pub is_there: bool,
    /// How many tenders may be killed.
    pub kills: u8,
    /// How many calls that do not wait may come by.
    pub passers: u8,
    /// How many waiting calls may be cancelled.
    pub cancels: u8,
    /// How often time may go on although there is something to do.
    pub slow: u8,
    /// For how many seconds something may be late.
    pub late: u8,
    /// How many processes may be started in one second.
    pub starts: u8,
}

impl Tender {
    fn has(&self, clause: Clause) -> bool {
        self.without != Some(clause)
    }

    /// What stands at this place of [`State::things`].
    fn thing(&self, n: usize) -> Brings {
        let before = self.there.len();
        if n < before { self.there[n] } else { self.added[n - before] }
    }

    /// When time ends: that of every call is up.
    fn end(&self) -> Time {
        self.calls.iter().map(|(_, until)| *until).max().unwrap_or(0)
    }
}

/// Where a waiting call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Not registered yet.
    Begin,
    /// The latch is to be reset.
    Registered,
    Reset,
    /// The look has come to nothing, and nothing is owed. The next thing is due then.
    Idle(Time),
    /// Something is owed: the tender is to be called.
    Owes(Time),
    /// The latch of the tender is set.
    HasSetLatch(Time),
    /// The post is taken, as far as the call knows.
    HasSeenPost(Time),
    /// The post is free, as far as the call knows.
    Starts(Time),
    Asleep(Time),
    /// The time is up, and something is owed.
    TimeIsUp,
    Leaving,
    /// Not registered any more; the transaction is open.
    Left,
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    at: At,
    latch: bool,
    /// The committers see that it looks within a second.
    soon: bool,
    /// It holds the lock `Starting`.
    starting: bool,
    slept: bool,
    /// It starts no process before.
    not_before: Time,
    /// How often it has looked in this second without a wake-up, and how many processes it has started.
    looks: u8,
    starts: u8,
}

/// Where a background process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    /// There is none.
    Off,
    /// On its way; it has no post yet.
    Born,
    /// It has the post; a round begins.
    Begin,
    Working,
    /// It has this thing locked, in an open transaction.
    Holds(usize),
    /// (Without [`Clause::TenderResetsFirst`].) The latch is reset after the look.
    HasLooked(Time),
    /// Asleep until the next thing is due.
    Resting(Time),
    /// About to leave.
    Leaves,
    /// (Without [`Clause::PostBeforeLatch`].) It has looked at its latch, and still has the post.
    Unheard,
    /// It has given up the post.
    GivenUp,
    /// Its latch was set.
    CalledAgain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Process {
    stage: Stage,
    latch: bool,
}

impl Process {
    fn has_post(&self) -> bool {
        !matches!(self.stage, Stage::Off | Stage::Born | Stage::GivenUp | Stage::CalledAgain)
    }
}

/// What has come of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fate {
    NotCommitted,
    /// It is visible, and to be done when its time comes.
    Lies,
    /// Locked by a process, in an open transaction.
    HeldByProcess,
    /// Locked by the last look of this call.
    HeldByCall(usize),
    /// A task is ready.
    Ready,
    Granted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thing {
    fate: Fate,
    /// Its commit is visible, and has woken no call so far.
    unpaid: bool,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Time,
    calls: Vec<Call>,
    processes: Vec<Process>,
    things: Vec<Thing>,
    kills: u8,
    passers: u8,
    cancels: u8,
    slow: u8,
    /// How many seconds have gone by beside something that was late, with nothing else to do.
    late: u8,
    /// How many processes have been started in this second.
    starts: u8,
    /// A bit for each thing that a last look has found.
    kept: u8,
}

/// What is done in one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A waiting call is found from now on (`Waiter::for_work`, `Waiter::register`).
    Register(usize),
    /// `Waiter::before_look`.
    ResetLatch(usize),
    /// `wait::look_once`.
    Look(usize),
    /// `process::wake_workers`.
    SetLatch(usize),
    /// `Post::is_taken`.
    LookAtPost(usize),
    /// `Starts::start`.
    Start(usize),
    /// `latch::sleep`.
    Sleep(usize),
    /// A wake-up, or a time, ends the sleep.
    WakeUp(usize),
    /// The last look of a call, which is committed.
    LastLook(usize),
    /// `Waiter::leave`, `wake::hand_on`.
    Leave(usize),
    /// The commit of a call.
    End(usize),
    /// A call is cancelled (`registered::give_up`).
    Cancel(usize),
    /// A process tries to get the post (`Station::take`).
    Take(usize),
    /// `Station::begin_look`.
    BeginLook(usize),
    /// The tender locks one thing that is due, or finds nothing more.
    Work(usize),
    /// Its commit.
    Commit(usize),
    /// The sleep of the tender ends.
    Resume(usize),
    /// The tender is going to leave (`Station::rest`).
    BeginToLeave(usize),
    /// It gives up the post (`station::leave_unless_called`).
    GiveUp(usize),
    /// It looks at its latch after that.
    LookAtLatch(usize),
    /// A process is killed.
    Kill(usize),
    /// A committer adds a thing.
    Add(usize),
    /// The commit of what has become of a thing wakes a call, if one is to be woken for that (`owed::pay`).
    Pay(usize),
    /// A call that does not wait does what is due, and commits.
    PassBy,
    /// A second goes by.
    Tick,
}
