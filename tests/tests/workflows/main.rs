//! Workflows: graphs that grow while they run, results that flow along them, builders, work by hand, another try from
//! where a graph broke, and the questions that can be asked of them.

mod barriers;
mod builders;
mod builders_run;
mod by_hand;
mod children;
mod children_delay;
mod children_races;
mod children_refused;
mod conditions;
mod fates;
mod growth;
mod paths;
mod picture;
mod results;
mod results_limits;
mod retry;
mod retry_asked;
mod retry_handlers;
mod retry_races;
mod scale;
mod skipped;
mod why;

use taskq_tests::random::Random;
use taskq_tests::{Grant, Session};

/// The states of tasks, in the order asked for.
fn states<const N: usize>(session: &mut Session, ids: [&str; N]) -> [String; N] {
    ids.map(|id| session.state(id))
}

/// Everything that can be owned of the action, with its tokens, by id.
fn hold(session: &mut Session, action: &str) -> Vec<Grant> {
    let mut held = session.own("worker", 1000, &[action]).unwrap();
    held.sort_by(|a, b| a.task_id.cmp(&b.task_id));
    held
}

/// The ids of what can be owned of the action now, sorted. They stay in progress.
fn ready(session: &mut Session, action: &str) -> Vec<String> {
    hold(session, action).into_iter().map(|grant| grant.task_id).collect()
}

/// Owns and completes whatever is ready, wave by wave, until nothing is; the ids of each wave, sorted.
fn work_off(session: &mut Session, actions: &[&str]) -> Vec<Vec<String>> {
    let mut waves = Vec::new();
    loop {
        let held = session.own("worker", 1000, actions).unwrap();
        if held.is_empty() {
            return waves;
        }
        held.iter().for_each(|grant| session.complete(grant));
        let mut wave: Vec<String> = held.into_iter().map(|grant| grant.task_id).collect();
        wave.sort();
        waves.push(wave);
    }
}

/// A random place in a list of this length.
fn index(random: &mut Random, length: usize) -> usize {
    random.below(length as u64) as usize
}
