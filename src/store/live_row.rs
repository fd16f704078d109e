//! A live row, as it was when it was locked or removed.

use crate::number::{TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::statement::Record;
use crate::store::freed::Freed;
use crate::token::Nonce;

/// Where a live task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Blocked(Counter),
    Parked,
    Run {
        nonce: Nonce,
    },
    /// `held_back`: because of its workgroup or a closed turnstile, and not of its own time.
    Scheduled {
        due: Time,
        held_back: bool,
    },
}

/// What a task that waits has yet to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// Dependencies that have to end as they should; one more for a signal, which is completed from outside.
    pub(crate) remaining: i32,
    /// Dependencies of which it can do without; of a signal -1.
    pub(crate) spare: i32,
    /// Not before this time, whatever the task itself says.
    pub(crate) not_before: Option<Time>,
    /// Which of the task's waits this is.
    pub(crate) wait_no: WaitNo,
    /// Since when the task is suspended, if it is.
    pub(crate) since: Option<Time>,
}

impl Counter {
    /// How many of its dependencies have not ended.
    pub(crate) fn open(&self) -> i32 {
        self.remaining + self.spare
    }

    /// Whether it is that of a signal of which all dependencies are met.
    pub(crate) fn waits_for_word(&self) -> bool {
        self.spare < 0 && self.open() == 0
    }
}

/// A live row, locked or removed by this transaction.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// The number of the task.
    pub(crate) task_no: TaskNo,
    /// The table that its row is in, with what only that has.
    pub(crate) place: Place,
    /// Tries so far, the one under way included.
    pub(crate) tries: i32,
    /// How many of its dependencies have aborted.
    pub(crate) failures: i32,
    /// How many dependencies it has in all.
    pub(crate) dependencies: i32,
    /// When it was granted last; `None`: no token for it is valid.
    pub(crate) granted_at: Option<Time>,
    /// Of its performance; infinity if there is none, or the deadline never comes.
    pub(crate) deadline: Time,
    /// The name of the worker that was granted it last; `None`: no token for it is valid.
    pub(crate) actor_id: Option<String>,
    /// Its performance holds a slot.
    pub(crate) limited: bool,
    /// It holds its merge key.
    pub(crate) keyed: bool,
}

impl Live {
    /// What it has yet to count, if it waits.
    pub(crate) fn counter(&self) -> Option<&Counter> {
        match &self.place {
            Place::Blocked(counter) => Some(counter),
            _ => None,
        }
    }

    /// Whether some actor's token for it is valid.
    pub(crate) fn in_progress(&self) -> bool {
        matches!(self.place, Place::Run { nonce } if nonce != Nonce::NONE)
    }

    /// What goes along with it where nothing blocks it.
    pub(crate) fn freed(&self) -> Freed {
        Freed {
            task_no: self.task_no,
            tries: self.tries,
            failures: self.failures,
            dependencies: self.dependencies,
            not_before: None,
        }
    }

    /// How many dependencies have signalled so far.
    pub(crate) fn signals(&self) -> i32 {
        match self.place {
            Place::Blocked(counter) => self.dependencies - counter.open(),
            _ => self.dependencies,
        }
    }
}

/// What is read first of a row, of whichever of the four tables: task_no, tries, failures, dependencies.
type Counted = (TaskNo, i32, i32, i32);

fn live((task_no, tries, failures, dependencies): Counted, place: Place) -> Live {
    Live {
        task_no,
        place,
        tries,
        failures,
        dependencies,
        granted_at: None,
        deadline: Time::INFINITY,
        actor_id: None,
        limited: false,
        keyed: false,
    }
}

/// The columns of a row of `run`, named `r`, that [`InRun`] is read from.
macro_rules! in_run {
    () => {
        "r.task_no, r.tries, r.failures, r.dependencies, r.nonce, r.granted_at, r.actor_id, r.limited, r.keyed, r.deadline"
    };
}
pub(crate) use in_run;

/// A row of `run`: then nonce, granted_at, actor_id, limited, keyed, deadline.
#[derive(Debug)]
pub(crate) struct InRun(pub(crate) Live);

impl Record for InRun {
    type Columns = (Counted, Nonce, Option<Time>, Option<String>, bool, bool, Time);

    fn of((counted, nonce, granted_at, actor_id, limited, keyed, deadline): Self::Columns) -> Self {
        let live = live(counted, Place::Run { nonce });
        InRun(Live { granted_at, actor_id, limited, keyed, deadline, ..live })
    }
}

/// A row of `blocked`: then remaining, spare, not_before, wait_no, since.
#[derive(Debug)]
pub(crate) struct InBlocked(pub(crate) Live);

impl Record for InBlocked {
    type Columns = (Counted, i32, i32, Option<Time>, WaitNo, Option<Time>);

    fn of((counted, remaining, spare, not_before, wait_no, since): Self::Columns) -> Self {
        InBlocked(live(counted, Place::Blocked(Counter { remaining, spare, not_before, wait_no, since })))
    }
}

/// A row of `scheduled`: then due, held_back.
#[derive(Debug)]
pub(crate) struct Scheduled(Live);

impl Record for Scheduled {
    type Columns = (Counted, Time, bool);

    fn of((counted, due, held_back): Self::Columns) -> Self {
        Scheduled(live(counted, Place::Scheduled { due, held_back }))
    }
}

/// A row of `parked`.
#[derive(Debug)]
pub(crate) struct Parked(Live);

impl Record for Parked {
    type Columns = Counted;

    fn of(counted: Counted) -> Self {
        Parked(live(counted, Place::Parked))
    }
}

macro_rules! live_rows {
    ($($row:ident),*) => { $(impl From<$row> for Live {
        fn from(row: $row) -> Live {
            row.0
        }
    })* };
}
live_rows!(InRun, InBlocked, Scheduled, Parked);
