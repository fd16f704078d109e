//! Trying every interleaving of a model.
//!
//! What may never be is checked by [stateright], breadth first, so that what it finds is a shortest schedule. What must
//! come is checked here: stateright's own `eventually` does not see cycles, and a protocol whose members nap and look
//! again is full of them. From every state there has to be a way to an end: no member naps for ever, as long as every
//! member that can go on does go on in the end. And in an end nothing may be left lying.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug, Display};
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A protocol: a database, its members, and what each may do next.
pub trait Protocol: Clone + Send + Sync + 'static {
    /// The database, the members, and what the properties are asked about.
    type State: Clone + Debug + Eq + Hash + Send + Sync;
    /// What a member does in one instant.
    type Step: Clone + Debug + PartialEq + Send + Sync;

    /// Where everything begins.
    fn begin(&self) -> Self::State;
    /// Which steps can be made.
    fn steps(&self, state: &Self::State) -> Vec<Self::Step>;
    /// What comes of it.
    fn step(&self, state: &Self::State, step: &Self::Step) -> Self::State;
    /// What may never be.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
    /// What is left lying in a state in which no member can do anything any more.
    fn left_lying(&self, end: &Self::State) -> Option<&'static str>;
}

/// A schedule that a protocol does not survive.
#[derive(Debug)]
pub struct Failure {
    /// What is wrong at its end.
    pub what: String,
    /// The steps that lead there, one in each line.
    pub schedule: String,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\n{}", self.what, self.schedule)
    }
}

/// Tries everything: how many states there are, or the first failure.
pub fn check<P: Protocol>(protocol: &P) -> Result<usize, Failure> {
    never(protocol)?;
    in_the_end(protocol)
}

/// Each of these, by its name, survives everything.
pub fn all_hold<P: Protocol>(all: Vec<(&str, P)>) {
    for (name, protocol) in all {
        let states = check(&protocol).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        println!("{name}: {states} states");
    }
}

/// Each of these clauses is needed: without it one of the forms fails, with this property where there is one.
pub fn each_is_needed<C: Copy + Debug + PartialEq, P: Protocol>(
    clauses: impl IntoIterator<Item = (C, Option<&'static str>)>,
    without: impl Fn(C) -> Vec<(&'static str, P)>,
) {
    let mut can_go = Vec::new();
    for (clause, property) in clauses {
        let mut failures =
            without(clause).into_iter().filter_map(|(name, protocol)| Some((name, check(&protocol).err()?)));
        match failures.find(|(_, failure)| property.is_none_or(|property| failure.what == property)) {
            Some((name, failure)) => println!("without {clause:?}, {name}: {failure}"),
            None => can_go.push(clause),
        }
    }
    assert_eq!(can_go, [], "these clauses can go");
}

/// As stateright knows it.
#[derive(Clone)]
struct Watched<P>(P);

impl<P: Protocol> Model for Watched<P> {
    type State = P::State;
    type Action = P::Step;

    fn init_states(&self) -> Vec<P::State> {
        vec![self.0.begin()]
    }

    fn actions(&self, state: &P::State, actions: &mut Vec<P::Step>) {
        actions.extend(self.0.steps(state));
    }

    fn next_state(&self, state: &P::State, step: P::Step) -> Option<P::State> {
        Some(self.0.step(state, &step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(ALWAYS, |watched: &Self, state| watched.0.broken(state).is_none())]
    }
}

const ALWAYS: &str = "it holds";

/// A model that has so many states is taken for a mistake, which must not take all of a machine's memory.
const MOST_STATES: usize = 100_000_000;

/// Tries everything that may never be.
pub fn never<P: Protocol>(protocol: &P) -> Result<usize, Failure> {
    let checker = Watched(protocol.clone())
        .checker()
        .finish_when(HasDiscoveries::Any)
        .target_state_count(MOST_STATES)
        .spawn_bfs()
        .join();
    assert!(checker.state_count() < MOST_STATES, "there is no end of states");
    match checker.discovery(ALWAYS) {
        None => Ok(checker.unique_state_count()),
        Some(path) => Err(Failure {
            what: protocol.broken(path.last_state()).unwrap_or(ALWAYS).to_owned(),
            schedule: path.to_string(),
        }),
    }
}

/// Whether a state is ever reached.
pub fn reaches<P: Protocol>(protocol: &P, wanted: impl Fn(&P::State) -> bool) -> bool {
    let begin = protocol.begin();
    let (mut seen, mut next) = (HashSet::from([begin.clone()]), vec![begin]);
    while let Some(state) = next.pop() {
        if wanted(&state) {
            return true;
        }
        for step in protocol.steps(&state) {
            let state = protocol.step(&state, &step);
            if seen.insert(state.clone()) {
                next.push(state);
            }
        }
    }
    false
}

/// A state, and how it was come by.
struct Visited<P: Protocol> {
    state: P::State,
    by: Option<(usize, P::Step)>,
    before: Vec<usize>,
}

fn in_the_end<P: Protocol>(protocol: &P) -> Result<usize, Failure> {
    let begin = protocol.begin();
    let mut places = HashMap::from([(begin.clone(), 0)]);
    let mut all: Vec<Visited<P>> = vec![Visited { state: begin, by: None, before: Vec::new() }];
    let mut ends = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let state = all[at].state.clone();
        let steps = protocol.steps(&state);
        if steps.is_empty() {
            if let Some(what) = protocol.left_lying(&state) {
                return Err(Failure { what: what.to_owned(), schedule: schedule(&all, at) });
            }
            ends.push(at);
        }
        for step in steps {
            match places.entry(protocol.step(&state, &step)) {
                Entry::Occupied(there) => all[*there.get()].before.push(at),
                Entry::Vacant(new) => {
                    let state = new.key().clone();
                    new.insert(all.len());
                    all.push(Visited { state, by: Some((at, step)), before: vec![at] });
                }
            }
        }
        at += 1;
    }
    let mut ending = vec![false; all.len()];
    while let Some(at) = ends.pop() {
        if !std::mem::replace(&mut ending[at], true) {
            ends.extend(&all[at].before);
        }
    }
    match ending.iter().position(|ending| !ending) {
        None => Ok(all.len()),
        Some(at) => Err(Failure {
            what: "from here on there is no end, whatever the members do".to_owned(),
            schedule: schedule(&all, at),
        }),
    }
}

fn schedule<P: Protocol>(all: &[Visited<P>], mut at: usize) -> String {
    let mut steps = Vec::new();
    while let Some((before, step)) = &all[at].by {
        steps.push(format!("- {step:?}\n"));
        at = *before;
    }
    steps.into_iter().rev().collect()
}

/// Whether the long form was asked for: `TASKQ_MODELS=long`.
pub fn long() -> bool {
    std::env::var("TASKQ_MODELS").is_ok_and(|form| form == "long")
}
