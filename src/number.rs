//! The numbers that the queue gives: each kind a type of its own, so that none is taken for another.

use std::fmt;

use crate::pg::newtype::newtype;
use crate::pg::table::Number;

newtype! {
    /// The number of a task, by which most tables know it. Those that are given later are greater.
    pub(crate) struct TaskNo(pub(crate) i64);
}

impl TaskNo {
    /// Before those of all tasks.
    pub(crate) const NONE: TaskNo = TaskNo(0);
}

impl Number for TaskNo {
    fn distance(self, later: TaskNo) -> u64 {
        later.0.abs_diff(self.0)
    }

    fn bits(self) -> i64 {
        self.0
    }
}

/// Which of its waits a task is in: see the table `dependency` in sql/schema.sql.
pub(crate) type WaitNo = i32;

/// The wait that comes with the insertion of a task, and with its starting over.
pub(crate) const FIRST_WAIT: WaitNo = 0;

impl fmt::Display for TaskNo {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

newtype! {
    /// The number of a reason for which entries are parked in place, see [`aside`](crate::store::aside).
    pub(crate) struct ReasonNo(pub(crate) i64);
}

newtype! {
    /// A place in an order, such as that in which tasks of one priority are claimed, or slots are taken. All positions come
    /// from one sequence, so the later one is the greater.
    #[derive(Default)]
    pub(crate) struct Position(pub(crate) i64);
}

impl Position {
    /// Before all that are taken.
    pub(crate) const BEGINNING: Position = Position(0);
    /// Behind all that are taken.
    pub(crate) const END: Position = Position(i64::MAX);

    /// The one behind it.
    pub(crate) fn next(self) -> Position {
        self.plus(1)
    }

    /// So many further on.
    pub(crate) fn plus(self, further: usize) -> Position {
        Position(self.0.saturating_add(i64::try_from(further).unwrap_or(i64::MAX)))
    }
}

newtype! {
    /// The lane of a group among the entries of an action, as `taskq._lane` makes it from the group's name.
    pub(crate) struct Lane(pub(crate) i64);
}

impl Lane {
    /// That of entries which are in no lane.
    pub(crate) const NONE: Lane = Lane(0);
    /// Where the ring of lanes begins.
    pub(crate) const FIRST: Lane = Lane(i64::MIN);
    /// Where the ring of lanes ends: [`Lane::FIRST`] comes after it.
    pub(crate) const LAST: Lane = Lane(i64::MAX);

    /// The one before it, which is not the first.
    pub(crate) fn before(self) -> Lane {
        Lane(self.0 - 1)
    }

    /// The one after it, round the ring.
    pub(crate) fn after(self) -> Lane {
        Lane(self.0.wrapping_add(1))
    }

    /// How far behind the start of the ring it is.
    pub(crate) fn distance_from(self, start: Lane) -> u64 {
        self.0.wrapping_sub(start.0) as u64
    }
}
