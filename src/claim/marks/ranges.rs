//! The stretches of the claiming index that a call walks.

use crate::number::Position;

/// The stretches of the claiming index in which entries may be grantable, in columns: for each action in descending
/// order of priority.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ranges {
    /// The action of each stretch.
    pub(super) action_nos: Vec<i32>,
    /// The highest priority of each stretch, included. Above, between and below the marks there may be priorities that
    /// this backend does not know.
    pub(super) highest: Vec<i32>,
    /// The lowest priority of each stretch, included.
    pub(super) lowest: Vec<i32>,
    /// The first position to look at; the end, if there is nothing in the stretch for this call.
    pub(super) starts: Vec<Position>,
}

/// One of them.
pub(in crate::claim) struct Stretch {
    /// Where it stands among them.
    pub(in crate::claim) at: usize,
    /// The number that stands for the action.
    pub(in crate::claim) action_no: i32,
    /// The highest priority, included.
    pub(in crate::claim) highest: i32,
    /// The lowest priority, included.
    pub(in crate::claim) lowest: i32,
    /// The first position to look at, in each of the priorities.
    pub(in crate::claim) start: Position,
}

impl Ranges {
    /// Whether they are of one action, or of none.
    pub(in crate::claim) fn single(&self) -> bool {
        self.action_nos.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// The stretches, in order.
    pub(in crate::claim) fn each(&self) -> impl Iterator<Item = Stretch> {
        (0..self.action_nos.len()).filter_map(|i| self.stretch(i))
    }

    /// The call has seen that there is nothing in a stretch before this position, and walks it from there on. (What is committed
    /// meanwhile is for the calls that this commit wakes, and for the next call.)
    pub(in crate::claim) fn go_on(&mut self, at: usize, from: Position) {
        self.starts[at] = from.max(self.starts[at]);
    }

    /// The stretches of each action.
    pub(in crate::claim) fn by_action(&self) -> impl Iterator<Item = impl Iterator<Item = Stretch>> {
        let mut from = 0;
        self.action_nos.chunk_by(|a, b| a == b).map(move |chunk| {
            let first = from;
            from += chunk.len();
            (first..from).filter_map(|i| self.stretch(i))
        })
    }

    fn stretch(&self, i: usize) -> Option<Stretch> {
        (self.starts[i] < Position::END).then(|| Stretch {
            at: i,
            action_no: self.action_nos[i],
            highest: self.highest[i],
            lowest: self.lowest[i],
            start: self.starts[i],
        })
    }

    /// For `unnest(…) AS a(action_no, highest, lowest, start)`.
    pub(crate) fn columns(&self) -> (&[i32], &[i32], &[i32], &[Position]) {
        (&self.action_nos, &self.highest, &self.lowest, &self.starts)
    }

    /// Adds the stretch between two priorities, both included, unless it is empty.
    pub(super) fn add(&mut self, action_no: i32, highest: i64, lowest: i64, start: Position) {
        // Beyond the largest and the smallest priority there is nothing.
        if let (Ok(top), Ok(bottom)) = (i32::try_from(highest), i32::try_from(lowest))
            && top >= bottom
        {
            self.action_nos.push(action_no);
            self.highest.push(top);
            self.lowest.push(bottom);
            self.starts.push(start);
        }
    }
}
