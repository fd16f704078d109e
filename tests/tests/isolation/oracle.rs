//! What may come out: the calls of the transactions that were committed, one after the other in some order, in each of
//! which every transaction's own calls keep theirs. A call that passes over what others have locked may have done less,
//! if another was beside it.

use std::collections::HashMap;

use crate::bench::Bench;
use crate::forms::Form;
use crate::scenes::{Kind, Rules};
use crate::signals;
use crate::spec::{End, Spec, merges};
use crate::trial::{Fate, Trial, look};

/// The calls of one order: which transaction's, which one, and in which form.
type Serial = Vec<(usize, usize, Form)>;

/// What came of it: each call's answer or SQLSTATE, and the state.
struct Result_ {
    answers: HashMap<(usize, usize), Result<String, String>>,
    state: String,
    last: String,
}

/// Remembers what it has tried for a spec.
#[derive(Default)]
pub struct Oracle {
    tried: HashMap<(Serial, bool), Result_>,
    pub runs: usize,
}

impl Oracle {
    /// Nothing, if some serial order explains what was seen; else what comes next to it.
    pub fn judge(&mut self, bench: &mut Bench, spec: &Spec, trial: &Trial) -> Option<String> {
        let done: Vec<bool> = trial.fates.iter().map(|fate| matches!(fate, Fate::Done(_))).collect();
        let riders = spec.scene.rules == Rules::Riders && trial.had_beside(spec, Kind::Claims);
        if riders || trial.had_beside(spec, Kind::Chooses) {
            return None;
        }
        let mut nearest: Option<(usize, String)> = None;
        let orders = serials(spec, &done, trial);
        let mut explained = false;
        for serial in orders {
            let result = self.result(bench, spec, &serial, trial.tidied);
            let difference = result.difference(spec, trial);
            if difference.is_empty() {
                explained = true;
                break;
            }
            if nearest.as_ref().is_none_or(|(lines, _)| difference.len() < *lines) {
                let names: Vec<String> = serial
                    .iter()
                    .map(|&(tx, call, form)| {
                        let form = if form == Form::Whole { String::new() } else { format!(" ({form:?})") };
                        format!("{tx}: {}{form}", spec.txs[tx].calls[call].name)
                    })
                    .collect();
                nearest = Some((difference.len(), format!("nearest: {names:?}\n{}", difference.join("\n"))));
            }
        }
        if !explained {
            return Some(nearest.map_or_else(|| "no serial order".to_owned(), |(_, text)| text));
        }
        for (tx, fate) in trial.fates.iter().enumerate() {
            let Fate::Refused { call, sqlstate, message } = fate else { continue };
            let mut with = done.clone();
            with[tx] = true;
            let why = serials(spec, &with, trial).into_iter().any(|serial| {
                let result = self.result(bench, spec, &serial, trial.tidied);
                result.answers.get(&(tx, *call)) == Some(&Err(sqlstate.clone()))
            });
            if !why {
                return Some(format!("{tx} was refused with {sqlstate} in no serial order: {message}"));
            }
        }
        None
    }

    fn result(&mut self, bench: &mut Bench, spec: &Spec, serial: &Serial, tidied: bool) -> &Result_ {
        let runs = &mut self.runs;
        self.tried.entry((serial.clone(), tidied)).or_insert_with(|| {
            *runs += 1;
            let mut names = bench.set(spec.scene, spec.txs.len());
            let mut answers = HashMap::new();
            for &(tx, call, form) in serial {
                let op = spec.txs[tx].calls[call];
                if form.upkeep_first() {
                    bench.call(&names, tx, "SELECT taskq.maintain()").expect("upkeep");
                }
                // A claim in a block does less upkeep.
                let block = spec.scene.rules == Rules::Upkeep && spec.txs[tx].end != End::Alone;
                if let Form::Beside(other, call) = form {
                    bench.begin_with(&names, other, spec.txs[other].calls[call].sql);
                }
                let reply = match form.sql(op) {
                    None => Ok(Vec::new()),
                    Some(sql) if block => bench.call_in_block(&names, tx, sql),
                    Some(sql) => bench.call(&names, tx, sql),
                };
                if let Form::Beside(other, _) = form {
                    bench.roll_back(other);
                }
                let answer = reply.map(|rows| names.answer(tx, op, &rows)).map_err(|(sqlstate, _)| sqlstate);
                answers.insert((tx, call), answer);
            }
            let (state, last) = look(bench, &mut names, tidied)
                .unwrap_or_else(|what| panic!("{spec}: wrong even one after the other: {serial:?}: {what}"));
            bench.clear(&names);
            Result_ { answers, state, last }
        })
    }
}

impl Result_ {
    /// In what the trial is different, line by line.
    fn difference(&self, spec: &Spec, trial: &Trial) -> Vec<String> {
        let overlapped = trial.beside.iter().flatten().any(|&beside| beside);
        let mut lines = Vec::new();
        for (tx, fate) in trial.fates.iter().enumerate() {
            let Fate::Done(answers) = fate else { continue };
            for (call, answer) in answers.iter().enumerate() {
                let other = &self.answers[&(tx, call)];
                // Others may have come in, and gone, before it was committed.
                let counts = spec.txs[tx].calls[call].kind == Kind::Counts && overlapped;
                if counts && other.is_ok() {
                    continue;
                }
                if other.as_ref() != Ok(answer) {
                    lines.push(format!("answer of {tx}: {answer:?}, one after the other {other:?}"));
                }
            }
        }
        for (seen, other) in [(&trial.state, &self.state), (&trial.last, &self.last)] {
            let comparable = |state: &String| match overlapped {
                true => signals::without_their_order(state),
                false => state.clone(),
            };
            let (seen, other) = (comparable(seen), comparable(other));
            // Each line as often as it is there.
            let mut others: Vec<&str> = other.lines().collect();
            for line in seen.lines() {
                match others.iter().position(|other| *other == line) {
                    Some(place) => drop(others.remove(place)),
                    None => lines.push(format!("seen {line}")),
                }
            }
            lines.extend(others.iter().map(|line| format!("one after the other {line}")));
        }
        lines
    }
}

/// Every serial order of the calls of these transactions, in all forms that they can have had.
fn serials(spec: &Spec, counted: &[bool], trial: &Trial) -> Vec<Serial> {
    let calls: Vec<usize> =
        spec.txs.iter().zip(counted).map(|(tx, &counted)| if counted { tx.calls.len() } else { 0 }).collect();
    let mut all: Vec<Serial> = Vec::new();
    for merge in merges(&calls) {
        let mut forms: Vec<Serial> = vec![Vec::new()];
        for (tx, call) in merge {
            let of_call = Form::of(spec, tx, call, trial.beside[tx][call]);
            forms = of_call
                .into_iter()
                .flat_map(|form| {
                    forms.iter().map(move |serial| {
                        let mut longer = serial.clone();
                        longer.push((tx, call, form));
                        longer
                    })
                })
                .collect();
        }
        all.extend(forms);
    }
    // Those in which every call did all that it could come first.
    all.sort_by_key(|serial| serial.iter().map(|&(_, _, form)| form.cost()).sum::<usize>());
    all
}
