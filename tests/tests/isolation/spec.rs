//! What is tried: transactions of one or two calls side by side, and the orders of their steps.

use std::fmt;

use crate::scenes::{Op, Scene};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    pub fn sql(self) -> &'static str {
        match self {
            Level::ReadCommitted => "READ COMMITTED",
            Level::RepeatableRead => "REPEATABLE READ",
            Level::Serializable => "SERIALIZABLE",
        }
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// Each call is a statement without a block.
    Alone,
    Commit,
    Rollback,
    /// A rollback to a savepoint before the first call, then a commit.
    Undo,
    /// In two phases.
    Prepare,
}

impl End {
    /// Whether what was done counts, if nothing failed.
    pub fn counts(self) -> bool {
        !matches!(self, End::Rollback | End::Undo)
    }
}

#[derive(Clone)]
pub struct Tx<'a> {
    pub calls: Vec<&'a Op>,
    pub end: End,
    pub level: Level,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Begins the transaction and takes its snapshot: a step of its own where the snapshot lasts.
    Begin,
    Call(usize),
    Undo,
    Prepare,
    /// COMMIT, ROLLBACK or COMMIT PREPARED.
    End,
}

impl<'a> Tx<'a> {
    pub fn new(calls: &[&'a Op], end: End, level: Level) -> Tx<'a> {
        Tx { calls: calls.to_vec(), end, level }
    }

    pub fn steps(&self) -> Vec<Step> {
        let begin = (self.end != End::Alone && self.level != Level::ReadCommitted).then_some(Step::Begin);
        let end: &[Step] = match self.end {
            End::Alone => &[],
            End::Commit | End::Rollback => &[Step::End],
            End::Undo => &[Step::Undo, Step::End],
            End::Prepare => &[Step::Prepare, Step::End],
        };
        let calls = (0..self.calls.len()).map(Step::Call);
        begin.into_iter().chain(calls).chain(end.iter().copied()).collect()
    }
}

/// Transactions side by side in a scene.
#[derive(Clone)]
pub struct Spec<'a> {
    pub scene: &'a Scene,
    pub txs: Vec<Tx<'a>>,
}

impl Spec<'_> {
    /// Every order of all steps: at each place the number of the transaction that goes on.
    pub fn orders(&self) -> Vec<Vec<usize>> {
        let mut left: Vec<usize> = self.txs.iter().map(|tx| tx.steps().len()).collect();
        let mut orders = Vec::new();
        interleave(&mut left, &mut Vec::new(), &mut orders);
        orders
    }

    /// Whether one transaction makes several calls: then a deadlock is the caller's own doing.
    pub fn may_deadlock(&self) -> bool {
        self.txs.iter().any(|tx| tx.end != End::Alone && tx.calls.len() > 1)
    }
}

fn interleave(left: &mut Vec<usize>, order: &mut Vec<usize>, orders: &mut Vec<Vec<usize>>) {
    if left.iter().all(|&steps| steps == 0) {
        orders.push(order.clone());
        return;
    }
    for number in 0..left.len() {
        if left[number] > 0 {
            left[number] -= 1;
            order.push(number);
            interleave(left, order, orders);
            order.pop();
            left[number] += 1;
        }
    }
}

/// Every merge of calls, of which each transaction has so many: `(transaction, call)`.
pub fn merges(calls: &[usize]) -> Vec<Vec<(usize, usize)>> {
    let mut orders = Vec::new();
    interleave(&mut calls.to_vec(), &mut Vec::new(), &mut orders);
    let numbered = |order: Vec<usize>| {
        let mut next = vec![0; calls.len()];
        order
            .into_iter()
            .map(|tx| {
                next[tx] += 1;
                (tx, next[tx] - 1)
            })
            .collect()
    };
    orders.into_iter().map(numbered).collect()
}

impl fmt::Display for Spec<'_> {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "[{}]", self.scene.name)?;
        for (number, tx) in self.txs.iter().enumerate() {
            let calls: Vec<&str> = tx.calls.iter().map(|call| call.name).collect();
            write!(out, "{} {}", if number == 0 { "" } else { " |" }, calls.join("; "))?;
            if tx.end != End::Alone {
                write!(out, " ({:?}, {})", tx.end, tx.level.sql())?;
            }
        }
        Ok(())
    }
}
