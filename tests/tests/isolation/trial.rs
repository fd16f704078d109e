//! One order of steps, tried in the server.

mod end;

use std::thread;
use std::time::{Duration, Instant};

use crate::bench::{Bench, Names};
use crate::scenes::Kind;
use crate::spec::{End, Level, Spec, Step, Tx};
use crate::stepper::Reply;
pub use end::look;

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It is committed, and its calls answered so.
    Done(Vec<String>),
    /// A call, or its commit, failed.
    Refused { call: usize, sqlstate: String, message: String },
    /// It was rolled back as meant.
    Undone,
}

/// What was seen.
pub struct Trial {
    pub fates: Vec<Fate>,
    /// For each call whether another transaction was open beside it.
    pub beside: Vec<Vec<bool>>,
    /// SQLSTATEs of transactions that had to be run again.
    pub again: Vec<String>,
    /// Whether something was left for upkeep to count.
    pub tidied: bool,
    pub state: String,
    /// How each task ended after everything was left to run to its end.
    pub last: String,
    pub story: Vec<String>,
}

impl Trial {
    /// Whether a call of that kind had another transaction beside it.
    pub fn had_beside(&self, spec: &Spec, kind: Kind) -> bool {
        let mut calls = spec.txs.iter().zip(&self.beside);
        calls.any(|(tx, beside)| tx.calls.iter().zip(beside).any(|(op, &beside)| op.kind == kind && beside))
    }
}

pub enum Outcome {
    Seen(Box<Trial>),
    /// The order cannot be: a transaction waits whose turn it would be.
    Impossible,
    Wrong {
        what: String,
        story: Vec<String>,
    },
}

struct Progress {
    next: usize,
    open: bool,
    failed: Option<(usize, String, String)>,
    answers: Vec<String>,
    beside: Vec<bool>,
    /// Another one was open during some step.
    overlapped: bool,
}

struct Run<'a, 'b> {
    bench: &'a mut Bench,
    spec: &'a Spec<'b>,
    steps: Vec<Vec<Step>>,
    names: Names,
    progress: Vec<Progress>,
    story: Vec<String>,
}

/// Longer than it takes the server to see a deadlock.
const DEADLOCK: Duration = Duration::from_millis(40);

pub fn attempt(bench: &mut Bench, spec: &Spec, order: &[usize]) -> Outcome {
    let names = bench.set(spec.scene, spec.txs.len());
    let fresh = |tx: &Tx| Progress {
        next: 0,
        open: false,
        failed: None,
        answers: Vec::new(),
        beside: vec![false; tx.calls.len()],
        overlapped: false,
    };
    let progress = spec.txs.iter().map(fresh).collect();
    let steps = spec.txs.iter().map(Tx::steps).collect();
    let mut run = Run { bench, spec, steps, names, progress, story: Vec::new() };
    run.levels(true);
    let outcome = if order.iter().all(|&tx| run.step(tx)) {
        run.finish()
    } else {
        run.abandon();
        Outcome::Impossible
    };
    run.levels(false);
    run.bench.clear(&run.names);
    outcome
}

impl Run<'_, '_> {
    /// Statements without a block have their level from the session.
    fn levels(&mut self, set: bool) {
        for (number, tx) in self.spec.txs.iter().enumerate() {
            if tx.end == End::Alone && tx.level != Level::ReadCommitted {
                let level = if set { tx.level.sql() } else { "READ COMMITTED" };
                self.bench.steppers[number].send(format!("SET default_transaction_isolation = '{level}'"));
                self.wait(number).expect("a setting");
            }
        }
    }

    /// The transaction's next step; false if it waits.
    fn step(&mut self, tx: usize) -> bool {
        if self.bench.steppers[tx].is_pending() {
            self.resolve();
        }
        if self.bench.steppers[tx].is_pending() {
            return false;
        }
        let step = self.steps[tx][self.progress[tx].next];
        let statement = self.statement(tx, step);
        if let Step::Call(call) = step {
            self.story.push(format!("{tx}: {}", self.spec.txs[tx].calls[call].name));
            if self.others_open(tx) {
                self.progress[tx].beside[call] = true;
            }
            self.comes_after_claims(tx);
        } else {
            self.story.push(format!("{tx}: {step:?}"));
        }
        match statement {
            None => self.over(tx, Ok(Vec::new())),
            Some(statement) => {
                self.progress[tx].open = true;
                if self.others_open(tx) {
                    let open = self.progress.iter_mut().filter(|progress| progress.open);
                    open.for_each(|progress| progress.overlapped = true);
                }
                self.bench.steppers[tx].send(statement);
                self.settle(tx);
                if self.bench.steppers[tx].is_pending() {
                    self.story.push(format!("{tx}: ... waits"));
                    if let Step::Call(call) = step {
                        self.progress[tx].beside[call] = true;
                    }
                    self.progress[tx].overlapped = true;
                }
                self.settle_all();
            }
        }
        true
    }

    /// A claim in a transaction of several calls has not had what comes now, and may be committed after it: that is less than
    /// it would have had then. (Another call of its transaction may have to come after this one.)
    fn comes_after_claims(&mut self, tx: usize) {
        for (other, progress) in self.progress.iter_mut().enumerate() {
            let calls = &self.spec.txs[other].calls;
            if other == tx || !progress.open || calls.len() < 2 {
                continue;
            }
            for (op, beside) in calls.iter().zip(&mut progress.beside).take(progress.next.saturating_sub(1)) {
                *beside |= op.kind == Kind::Claims;
            }
        }
    }

    fn others_open(&self, tx: usize) -> bool {
        self.progress.iter().enumerate().any(|(other, progress)| other != tx && progress.open)
    }

    /// What to send; nothing if the transaction has failed before.
    fn statement(&self, tx: usize, step: Step) -> Option<String> {
        let Tx { calls, end, level } = &self.spec.txs[tx];
        let failed = self.progress[tx].failed.is_some();
        let gid = self.names.fill(tx, "@") + &tx.to_string();
        match step {
            Step::Begin => Some(self.names.fill(
                tx,
                &format!(
                    "BEGIN ISOLATION LEVEL {}; SELECT count(*) FROM taskq.tasks WHERE id = '@p'",
                    level.sql()
                ),
            )),
            Step::Call(_) if failed => None,
            Step::Call(call) => {
                let begin = match end {
                    End::Alone => "",
                    _ if call > 0 => "",
                    End::Undo if *level == Level::ReadCommitted => "BEGIN; SAVEPOINT s; ",
                    End::Undo => "SAVEPOINT s; ",
                    _ if *level == Level::ReadCommitted => "BEGIN; ",
                    _ => "",
                };
                Some(begin.to_owned() + &self.names.fill(tx, calls[call].sql))
            }
            Step::Undo => Some("ROLLBACK TO SAVEPOINT s".to_owned()),
            Step::Prepare if failed => Some("ROLLBACK".to_owned()),
            Step::Prepare => Some(format!("PREPARE TRANSACTION '{gid}'")),
            Step::End => match end {
                End::Prepare if failed => None,
                End::Prepare => Some(format!("COMMIT PREPARED '{gid}'")),
                End::Commit if failed => Some("ROLLBACK".to_owned()),
                End::Commit | End::Undo => Some("COMMIT".to_owned()),
                End::Rollback => Some("ROLLBACK".to_owned()),
                End::Alone => unreachable!("a statement alone has no end"),
            },
        }
    }

    /// Takes the reply to the pending step, if there is one.
    fn settle(&mut self, tx: usize) -> bool {
        let Bench { steppers, watcher, .. } = &mut *self.bench;
        let Some(reply) = steppers[tx].settle(watcher) else { return false };
        self.over(tx, reply);
        true
    }

    /// A step is over.
    fn over(&mut self, tx: usize, reply: Reply) {
        let step = self.steps[tx][self.progress[tx].next];
        let progress = &mut self.progress[tx];
        progress.next += 1;
        progress.open = progress.next < self.steps[tx].len();
        match (reply, step) {
            (Ok(rows), Step::Call(call)) if progress.failed.is_none() => {
                let answer = self.names.answer(tx, self.spec.txs[tx].calls[call], &rows);
                self.story.push(format!("{tx}: = {answer}"));
                progress.answers.push(answer);
            }
            (Ok(_), _) => {}
            (Err((sqlstate, message)), step) => {
                self.story.push(format!("{tx}: ! {sqlstate} {}", self.names.plain(&message)));
                let call = if let Step::Call(call) = step { call } else { self.spec.txs[tx].calls.len() };
                progress.failed.get_or_insert((call, sqlstate, message));
            }
        }
    }

    /// Until all are over or wait for one that is not at work.
    fn settle_all(&mut self) {
        loop {
            let pending: Vec<usize> =
                (0..self.progress.len()).filter(|&tx| self.bench.steppers[tx].is_pending()).collect();
            let over = pending.iter().filter(|&&tx| self.settle(tx)).count();
            if over == 0 {
                break;
            }
        }
    }

    /// Gives the server the time to end a deadlock, if there may be one.
    fn resolve(&mut self) {
        let start = Instant::now();
        while start.elapsed() < DEADLOCK && self.bench.steppers.iter().filter(|s| s.is_pending()).count() > 1
        {
            thread::sleep(Duration::from_millis(5));
            self.settle_all();
        }
    }

    fn wait(&mut self, number: usize) -> Reply {
        let Bench { steppers, watcher, .. } = &mut *self.bench;
        loop {
            if let Some(reply) = steppers[number].settle(watcher) {
                return reply;
            }
        }
    }
}

impl Drop for Run<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}\n{:#?}", self.spec, self.story);
        }
    }
}
