//! Which sequences of operations are tried: few ids, so that calls meet the same tasks again and again.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::model::{Code, Condition, Edge, Millis, Mode, New};

use super::Op;

const IDS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const ACTIONS: [&str; 2] = ["x", "y"];
const ACTORS: [&str; 2] = ["ann", "bob"];

/// Sequences of operations on a few tasks.
pub fn operations(max: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(operation(), 1..max)
}

fn operation() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => insert(),
        6 => own(),
        7 => give(),
        2 => (vec(any::<usize>(), 0..4), code()).prop_map(|(grants, code)| Op::ReturnMany { grants, code }),
        1 => extend(),
        3 => vec(edge(), 1..3).prop_map(Op::Depend),
        1 => vec(id(), 1..3).prop_map(Op::Delete),
        1 => vec(id(), 1..3).prop_map(Op::Cancel),
        1 => (vec(id(), 1..4), option::weighted(0.4, actor())).prop_map(|(tasks, actor)| Op::Release { tasks, actor }),
        2 => (1..30i64).prop_map(|seconds| Op::Advance(seconds * 1000)),
    ]
}

fn insert() -> impl Strategy<Value = Op> {
    let mode = prop_oneof![5 => Just(Mode::Refuse), 2 => Just(Mode::Skip), 3 => Just(Mode::Replace)];
    (vec(task(), 1..5), mode, prop::bool::weighted(0.7))
        .prop_map(|(tasks, mode, ignore_missing)| Op::Insert { tasks, mode, ignore_missing })
}

fn task() -> impl Strategy<Value = New> {
    let links = vec((id(), condition(), prop::bool::weighted(0.6)), 0..3);
    let spontaneous = prop::bool::weighted(0.2);
    let numbers = (0..2i32, option::weighted(0.4, 1..3i32));
    let times = (option::weighted(0.3, duration()), option::weighted(0.2, duration()));
    (id(), action(), numbers, times, spontaneous, links).prop_map(
        |(id, action, (priority, max_tries), (lease, delay), spontaneous, links)| {
            let edge = |(other, condition, depends): (String, _, bool)| {
                let (after, run) = if depends { (other, id.clone()) } else { (id.clone(), other) };
                Edge { after, run, condition }
            };
            let edges = links.into_iter().map(edge).collect();
            // A timer completes within a second of its time, or with the next call: the model does not say which.
            let delay = delay.filter(|_| !spontaneous);
            New { id, action, priority, max_tries, lease, delay, spontaneous, edges }
        },
    )
}

fn own() -> impl Strategy<Value = Op> {
    let actions = prop_oneof![
        4 => Just(ACTIONS.map(str::to_owned).to_vec()),
        2 => action().prop_map(|action| vec![action]),
        1 => Just(Vec::new()),
    ];
    (actor(), 0..4i32, actions, option::weighted(0.7, duration()))
        .prop_map(|(actor, max_tasks, actions, lease)| Op::Own { actor, max_tasks, actions, lease })
}

fn give() -> impl Strategy<Value = Op> {
    (
        any::<usize>(),
        option::weighted(0.05, id()),
        code(),
        option::weighted(0.3, duration()),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(grant, task, code, _retry_after, count_try)| Op::Return {
            grant,
            task,
            code,
            retry_after: None,
            count_try: count_try || code != Code::Pending && grant % 4 > 0,
        })
}

fn extend() -> impl Strategy<Value = Op> {
    (actor(), vec(any::<usize>(), 1..3), duration()).prop_map(|(actor, grants, lease)| Op::Extend {
        actor,
        grants,
        lease,
    })
}

fn edge() -> impl Strategy<Value = Edge> {
    (id(), id(), condition()).prop_map(|(after, run, condition)| Edge { after, run, condition })
}

fn id() -> impl Strategy<Value = String> {
    select(&IDS[..]).prop_map(str::to_owned)
}

fn action() -> impl Strategy<Value = String> {
    select(&ACTIONS[..]).prop_map(str::to_owned)
}

fn actor() -> impl Strategy<Value = &'static str> {
    select(&ACTORS[..])
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![4 => Just(Condition::Completed), 2 => Just(Condition::Settled), 1 => Just(Condition::Aborted)]
}

fn code() -> impl Strategy<Value = Code> {
    prop_oneof![
        8 => Just(Code::Completed),
        4 => Just(Code::Aborted),
        4 => Just(Code::Pending),
        1 => Just(Code::InProgress),
    ]
}

/// Half a second off, so that no time ever equals the clock, which moves in whole seconds.
fn duration() -> impl Strategy<Value = Millis> {
    (0..20i64).prop_map(|seconds| seconds * 1000 + 500)
}
