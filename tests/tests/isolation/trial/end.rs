//! What comes after the last step of an order.

use std::time::{Duration, Instant};

use super::{Fate, Outcome, Run, Trial};
use crate::bench::{Bench, Names};
use crate::scenes::{Kind, Rules};
use crate::spec::{End, Level, Step};

impl Run<'_, '_> {
    /// Gives up an order that cannot be.
    pub(super) fn abandon(&mut self) {
        for _ in 0..20 {
            for tx in 0..self.progress.len() {
                if self.bench.steppers[tx].is_pending() || !self.progress[tx].open {
                    continue;
                }
                let prepared = self.spec.txs[tx].end == End::Prepare
                    && self.steps[tx][self.progress[tx].next] == Step::End
                    && self.progress[tx].failed.is_none();
                let gid = self.names.fill(tx, "@") + &tx.to_string();
                self.progress[tx].open = false;
                let end = if prepared { format!("ROLLBACK PREPARED '{gid}'") } else { "ROLLBACK".to_owned() };
                self.bench.steppers[tx].send(end);
                self.wait(tx).expect("a rollback");
            }
            self.resolve();
            self.settle_all();
            if self.progress.iter().all(|p| !p.open) && !self.bench.steppers.iter().any(|s| s.is_pending()) {
                return;
            }
        }
        panic!("a transaction does not end: {} {:#?}", self.spec, self.story);
    }

    /// What is seen once all have ended.
    pub(super) fn finish(&mut self) -> Outcome {
        let start = Instant::now();
        while self.bench.steppers.iter().any(|stepper| stepper.is_pending()) {
            self.settle_all();
            if start.elapsed() > Duration::from_secs(20) {
                panic!(
                    "a call waits though every other transaction has ended: {} {:#?}",
                    self.spec, self.story
                );
            }
        }
        let again = match self.repeat() {
            Ok(again) => again,
            Err(what) => return self.wrong(what),
        };
        let twice = self.names.twice();
        if !twice.is_empty() {
            let what = format!("tokens given out twice: {twice:?}");
            return self.wrong(what);
        }
        let fates: Vec<Fate> = (0..self.progress.len()).map(|tx| self.fate(tx)).collect();
        let clean = again.is_empty()
            && self.spec.txs.iter().all(|tx| tx.end.counts() && tx.end != End::Prepare)
            && fates.iter().all(|fate| matches!(fate, Fate::Done(_)));
        // What a claim has met that another transaction was just changing it has put off for a second.
        let claimed_beside = self.spec.txs.iter().zip(&self.progress).any(|(tx, progress)| {
            tx.calls.iter().zip(&progress.beside).any(|(op, &beside)| op.kind == Kind::Claims && beside)
        });
        let tidied = !clean || claimed_beside || self.spec.scene.rules == Rules::Upkeep;
        let seen = self.bench.sound().and_then(|()| look(self.bench, &mut self.names, tidied));
        let (state, last) = match seen {
            Ok(seen) => seen,
            Err(what) => return self.wrong(what),
        };
        let beside = self.progress.iter().map(|progress| progress.beside.clone()).collect();
        let story = std::mem::take(&mut self.story);
        Outcome::Seen(Box::new(Trial { fates, beside, again, tidied, state, last, story }))
    }

    fn wrong(&mut self, what: String) -> Outcome {
        Outcome::Wrong { what, story: std::mem::take(&mut self.story) }
    }

    /// Repeats what failed to serialise or met in a deadlock, as every client has to; or says that it should not have.
    fn repeat(&mut self) -> Result<Vec<String>, String> {
        let mut again = Vec::new();
        for tx in 0..self.progress.len() {
            let Some((_, sqlstate, message)) = &self.progress[tx].failed else { continue };
            let may = match sqlstate.as_str() {
                "40001" => self.spec.txs[tx].level != Level::ReadCommitted && self.progress[tx].overlapped,
                "40P01" => self.spec.may_deadlock(),
                other if other.starts_with("TQ") => continue,
                _ => false,
            };
            if !may {
                return Err(format!("{tx} failed with {sqlstate}: {message}"));
            }
            again.push(sqlstate.clone());
            if !self.spec.txs[tx].end.counts() {
                continue;
            }
            self.story.push(format!("{tx}: again"));
            self.names.forget(tx);
            let progress = &mut self.progress[tx];
            (progress.next, progress.open, progress.failed) = (0, false, None);
            progress.answers.clear();
            for _ in 0..self.steps[tx].len() {
                self.patiently(tx);
                if !self.step(tx) {
                    return Err(format!("{tx} waits though it is alone"));
                }
            }
            if let Some((_, sqlstate, message)) = &self.progress[tx].failed
                && !sqlstate.starts_with("TQ")
            {
                return Err(format!("{tx} failed with {sqlstate} alone: {message}"));
            }
        }
        Ok(again)
    }

    /// Waits for a step that only the server itself may hold up: autovacuum has a table for a moment, or the machine is busy.
    fn patiently(&mut self, tx: usize) {
        let start = Instant::now();
        while self.bench.steppers[tx].is_pending() && start.elapsed() < Duration::from_secs(20) {
            self.settle_all();
        }
    }

    fn fate(&mut self, tx: usize) -> Fate {
        let progress = &mut self.progress[tx];
        if let Some((call, sqlstate, message)) = progress.failed.take() {
            self.names.forget(tx);
            // What is to be rolled back is not run again.
            if !sqlstate.starts_with("TQ") {
                return Fate::Undone;
            }
            return Fate::Refused { call, sqlstate, message };
        }
        if self.spec.txs[tx].end.counts() {
            return Fate::Done(std::mem::take(&mut progress.answers));
        }
        self.names.forget(tx);
        Fate::Undone
    }
}

/// The state now, and how everything ends.
pub fn look(bench: &mut Bench, names: &mut Names, tidied: bool) -> Result<(String, String), String> {
    if tidied {
        bench.tidy(names)?;
    }
    let state = bench.look(names);
    let last = bench.drain(names);
    bench.watcher.set_now(None);
    Ok((state, last?))
}
