//! What is tried in the short form and in the long one, by several workers at once, and what they report.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, thread};

use taskq_tests::random::Random;

use crate::bench::Bench;
use crate::oracle::Oracle;
use crate::scenes::{Op, Scene};
use crate::spec::{End, Level, Spec, Tx};
use crate::trial::{Outcome, attempt};

/// Each is a database of its own.
const WORKERS: usize = 2;

/// Failures beyond these tell nothing new.
const SHOWN: usize = 300;

/// A spec, and how many of its orders are tried, by chance; all if there are no more.
pub struct Job<'a> {
    pub spec: Spec<'a>,
    pub orders: usize,
}

/// Whether the long form was asked for.
pub fn long() -> bool {
    env::var("TASKQ_ISOLATION").is_ok_and(|form| form == "long")
}

/// `TASKQ_ISOLATION_SEED`; the same each time if it is not set.
pub fn seed() -> u64 {
    env::var("TASKQ_ISOLATION_SEED").map_or(1, |seed| seed.parse().expect("TASKQ_ISOLATION_SEED is a number"))
}

/// `TASKQ_ISOLATION_SCENE` restricts all to one scene.
pub fn wanted_scene(scene: &Scene) -> bool {
    env::var("TASKQ_ISOLATION_SCENE").map_or(true, |name| name == scene.name)
}

/// And `TASKQ_ISOLATION_SPEC` to specs with this text in their names.
fn wanted(spec: &Spec) -> bool {
    wanted_scene(spec.scene)
        && env::var("TASKQ_ISOLATION_SPEC").map_or(true, |part| spec.to_string().contains(&part))
}

/// In the long form all specs with so many orders each; in the short one so many of them by chance, with one order each.
pub fn some<'a>(specs: impl Iterator<Item = Spec<'a>>, short: usize, orders: usize) -> Vec<Job<'a>> {
    let mut specs: Vec<Spec> = specs.filter(wanted).collect();
    if long() {
        return specs.into_iter().map(|spec| Job { spec, orders }).collect();
    }
    let mut random = Random::new(seed());
    while specs.len() > short {
        let number = random.below(specs.len() as u64) as usize;
        specs.swap_remove(number);
    }
    specs.into_iter().map(|spec| Job { spec, orders: 1 }).collect()
}

/// All pairs of a scene's operations, one with itself included.
pub fn pairs(scene: &Scene) -> Vec<(&Op, &Op)> {
    let ops = &scene.ops;
    (0..ops.len()).flat_map(|one| (one..ops.len()).map(move |other| (&ops[one], &ops[other]))).collect()
}

/// Two transactions side by side.
pub fn two<'a>(scene: &'a Scene, one: Tx<'a>, other: Tx<'a>) -> Spec<'a> {
    Spec { scene, txs: vec![one, other] }
}

/// One call, alone or in a transaction.
pub fn one(op: &Op, end: End, level: Level) -> Tx<'_> {
    Tx::new(&[op], end, level)
}

#[derive(Default)]
struct Report {
    specs: usize,
    orders: usize,
    impossible: usize,
    serial: usize,
    waited: usize,
    again: BTreeMap<String, usize>,
    refused: BTreeMap<String, usize>,
    failures: Vec<String>,
}

/// Tries all jobs, and fails with the first of those that went wrong.
pub fn run(what: &str, jobs: Vec<Job>) {
    let seed = seed();
    let jobs: Vec<Job> = jobs.into_iter().filter(|job| wanted(&job.spec)).collect();
    println!("{what}: {} specs, seed {seed}", jobs.len());
    let (next, report, start) = (AtomicUsize::new(0), Mutex::new(Report::default()), Instant::now());
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (next, report, jobs) = (&next, &report, &jobs);
            thread::Builder::new()
                .name(format!("isolation_{worker}"))
                .spawn_scoped(scope, move || {
                    work(jobs, next, report, seed);
                })
                .expect("a thread");
        }
    });
    let report = report.into_inner().expect("no worker has panicked");
    println!(
        "{what}: {} specs, {} interleavings ({} in which a step waited), {} that cannot be, {} serial orders for comparison; \
         run again: {:?}; refused: {:?}; {:.0?}",
        report.specs,
        report.orders,
        report.waited,
        report.impossible,
        report.serial,
        report.again,
        report.refused,
        start.elapsed()
    );
    assert!(
        report.failures.is_empty(),
        "{what}, seed {seed}: {} went wrong\n{}",
        report.failures.len(),
        report.failures.join("\n\n")
    );
}

fn work(jobs: &[Job], next: &AtomicUsize, report: &Mutex<Report>, seed: u64) {
    let connections = jobs.iter().map(|job| job.spec.txs.len()).max().unwrap_or(0);
    let mut bench = Bench::new(connections);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(job) = jobs.get(number) else { break };
        if report.lock().expect("no worker has panicked").failures.len() >= SHOWN {
            break;
        }
        // A fresh database now and then: names of actions stay.
        if number % 300 == 299 {
            bench = Bench::new(connections);
        }
        let mut random = Random::new(seed.wrapping_add(number as u64 * 7919));
        let mut oracle = Oracle::default();
        let mut seen = Report::default();
        for order in orders(&job.spec, job.orders, &mut random) {
            try_one(&mut bench, &job.spec, &order, &mut oracle, &mut seen);
        }
        let report = &mut *report.lock().expect("no worker has panicked");
        report.specs += 1;
        report.serial += oracle.runs;
        report.orders += seen.orders;
        report.impossible += seen.impossible;
        report.waited += seen.waited;
        for (into, from) in [(&mut report.again, seen.again), (&mut report.refused, seen.refused)] {
            from.into_iter().for_each(|(state, times)| *into.entry(state).or_default() += times);
        }
        for failure in seen.failures {
            // At once: the whole takes long.
            println!("WRONG {failure}\n");
            report.failures.push(failure);
        }
    }
}

/// So many of the orders of a spec, none of which is one transaction after the other.
fn orders(spec: &Spec, most: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let mut orders: Vec<Vec<usize>> = spec.orders();
    orders.retain(|order| {
        let changes = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
        changes >= spec.txs.len()
    });
    while orders.len() > most {
        let number = random.below(orders.len() as u64) as usize;
        orders.swap_remove(number);
    }
    orders.sort();
    orders
}

fn try_one(bench: &mut Bench, spec: &Spec, order: &[usize], oracle: &mut Oracle, seen: &mut Report) {
    match attempt(bench, spec, order) {
        Outcome::Impossible => seen.impossible += 1,
        Outcome::Wrong { what, story } => seen.failures.push(format!("{spec}\n{story:#?}\n{what}")),
        Outcome::Seen(trial) => {
            seen.orders += 1;
            seen.waited += usize::from(trial.story.iter().any(|line| line.ends_with("waits")));
            trial.again.iter().for_each(|state| *seen.again.entry(state.clone()).or_default() += 1);
            for fate in &trial.fates {
                if let crate::trial::Fate::Refused { sqlstate, .. } = fate {
                    *seen.refused.entry(sqlstate.clone()).or_default() += 1;
                }
            }
            if let Some(difference) = oracle.judge(bench, spec, &trial) {
                let story = &trial.story;
                seen.failures.push(format!("{spec}\n{story:#?}\n{difference}\nstate:\n{}", trial.state));
            }
        }
    }
}
