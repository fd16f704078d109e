//! Each rule finds what it is for: books that agree, and then one thing that is wrong.

mod world;

use world::{World, sound, spec, with};

use crate::book::{Deed, Fate, On, Spec};
use crate::families::RATE;
use crate::state::Task;

#[test]
fn sound_books_agree() {
    assert_eq!(sound().audit(), [""; 0]);
}

#[test]
fn a_task_that_was_acknowledged_and_is_gone() {
    let mut world = with(&[spec("3.0", &[])]);
    world.state.tasks.remove("3.0");
    world.is_found_by("inserted");
}

#[test]
fn a_task_of_a_refused_call_and_one_of_no_call() {
    let mut world = sound();
    world.insert(Fate::Refused, &[spec("3.0", &[])]);
    world.perform("3.0", "completed");
    world.is_found_by("inserted");
    let mut world = sound();
    let stray = Task { id: "9.0".into(), code: "completed".into(), settled: Some(1), ..Task::default() };
    world.state.put_task(stray);
    world.is_found_by("inserted");
}

#[test]
fn half_of_a_lost_call() {
    let mut world = sound();
    world.insert(Fate::Lost, &[spec("3.0", &[]), spec("3.1", &[])]);
    world.perform("3.0", "completed");
    world.state.tasks.remove("3.1");
    world.is_found_by("all or nothing");
}

/// A lost transaction that returns a task and inserts one.
fn return_and_insert(returned: bool, inserted: bool) -> World {
    let mut world = with(&[spec("3.0", &[])]);
    let token = world.own_one("3.0");
    let deed = Deed::Return { task: "3.0".into(), token, code: "completed".into(), got: String::new() };
    let name = world.call(Fate::Lost, vec![deed, Deed::Insert(spec("4.0", &[]))]);
    if returned {
        world.end_try("3.0", "completed", &name);
        world.end("3.0", "completed", &name);
    } else {
        world.give("3.0", token, "completed");
    }
    if inserted {
        let task =
            Task { id: "4.0".into(), code: "pending".into(), inserted: world.clock, ..Task::default() };
        world.state.put_task(task);
        world.perform("4.0", "completed");
    }
    world
}

#[test]
fn half_of_a_lost_transaction() {
    assert_eq!(return_and_insert(true, true).audit(), [""; 0]);
    assert_eq!(return_and_insert(false, false).audit(), [""; 0]);
    return_and_insert(true, false).is_found_by("all or nothing");
    return_and_insert(false, true).is_found_by("all or nothing");
}

#[test]
fn a_lost_return_that_worked_and_one_after_it() {
    let mut world = with(&[spec("3.0", &[]), spec("3.1", &[])]);
    let tokens = world.own(&["3.0", "3.1"]);
    let deed = |task: &str, token| Deed::Return {
        task: task.into(),
        token,
        code: "completed".into(),
        got: String::new(),
    };
    let name = world.call(Fate::Lost, vec![deed("3.0", tokens[0]), deed("3.1", tokens[1])]);
    world.end_try("3.0", "completed", &name);
    world.end("3.0", "completed", &name);
    world.give("3.1", tokens[1], "completed");
    world.is_found_by("all or nothing");
}

#[test]
fn a_task_that_is_left_over() {
    let mut world = with(&[spec("3.0", &[])]);
    world.is_found_by("left over");
    world.own_one("3.0");
    world.is_found_by("left over");
}

#[test]
fn a_token_that_was_granted_twice() {
    let mut world = with(&[spec("3.0", &[]), spec("3.1", &[])]);
    let token = world.own_one("3.0");
    world.give("3.0", token, "completed");
    world.own_one("3.1");
    if let Some(Deed::Grant { token: other, .. }) = world.last().deeds.last_mut() {
        *other = token;
    }
    world.give("3.1", token, "completed");
    world.is_found_by("tokens");
    world.is_found_by("stale tokens");
}

#[test]
fn an_acknowledged_grant_that_is_not_there() {
    let mut world = sound();
    world.state.tries.retain(|one| one.task != "1.0");
    world.is_found_by("grants are there");
    world.is_found_by("tries");
    let mut world = sound();
    world.state.tries[0].actor = "c-1".to_owned();
    world.is_found_by("grants are there");
    let mut world = sound();
    world.state.tries[0].started += 500;
    world.is_found_by("grants are there");
}

#[test]
fn a_try_that_no_client_was_granted() {
    for actor in ["c-1", "absent"] {
        let mut world = sound();
        let mut one = world.state.tries[0].clone();
        (one.actor, one.number) = (actor.to_owned(), 2);
        world.state.tries.push(one);
        world.task("1.0").tries = 2;
        world.is_found_by("grants are known");
    }
    // Of a call that was refused.
    let mut world = sound();
    let name = world
        .calls
        .iter()
        .find(|call| call.deeds.iter().any(|deed| matches!(deed, Deed::Grant { .. })))
        .unwrap()
        .name
        .clone();
    world.calls.iter_mut().find(|call| call.name == name).unwrap().fate = Fate::Refused;
    world.is_found_by("grants are known");
}

#[test]
fn too_many_tries() {
    let mut world = with(&[Spec { max_tries: Some(1), ..spec("3.0", &[]) }]);
    world.perform("3.0", "pending");
    world.perform("3.0", "completed");
    world.is_found_by("tries");
    let mut world = sound();
    let one = world.state.tries[0].clone();
    world.state.tries.push(one);
    world.is_found_by("tries");
}

#[test]
fn two_ends_of_a_task() {
    let mut world = with(&[spec("3.0", &[])]);
    let token = world.own_one("3.0");
    world.give("3.0", token, "completed");
    world.give("3.0", token, "aborted");
    world.is_found_by("ends are there");
    world.is_found_by("stale tokens");
}

#[test]
fn an_end_other_than_the_accepted_return_said() {
    let mut world = sound();
    world.task("1.0").code = "aborted".to_owned();
    world.is_found_by("ends are there");
    let mut world = sound();
    world.state.tries[0].outcome = "pending".to_owned();
    world.is_found_by("ends are there");
}

#[test]
fn an_end_for_no_reason() {
    let reasons = [
        "c-1",
        "absent",
        "dependency \"1.1\" aborted",
        "dependency \"1.0\" aborted",
        "skipped: dependency \"1.0\" completed",
        "skipped: dependency \"1.0\" was skipped",
        "the deadline passed on try 1, and there is no other",
        "all 3 tries are used up",
        "",
    ];
    for reason in reasons {
        let mut world = with(&[spec("3.0", &[("1.0", On::Settled)])]);
        world.end("3.0", "aborted", reason);
        world.is_found_by("ends are known");
    }
    // The reason holds.
    let mut world = with(&[spec("3.0", &[])]);
    let cancel = world.call(Fate::Done, vec![Deed::Cancel { task: "3.0".into() }]);
    world.end("3.0", "aborted", &cancel);
    assert_eq!(world.audit(), [""; 0]);
    // The cancel was refused.
    world.last().fate = Fate::Refused;
    world.is_found_by("ends are known");
}

#[test]
fn an_end_other_than_the_one_that_was_seen() {
    for (code, found) in [("completed", false), ("aborted", true)] {
        let mut world = sound();
        world.call(Fate::Done, vec![Deed::Seen { task: "1.0".into(), code: code.into() }]);
        assert_eq!(!world.audit().is_empty(), found);
        if found {
            world.is_found_by("ends that were seen");
        }
    }
}

#[test]
fn a_deadline_that_passed_too_soon() {
    let mut world = with(&[spec("3.0", &[])]);
    world.own_one("3.0");
    world.end_try("3.0", "timeout", "too late");
    world.clock += 2_000_000;
    world.perform("3.0", "completed");
    world.is_found_by("ends are known");
    // In its time it is right.
    let place = world.state.tries.len() - 2;
    world.state.tries[place].ended = Some(world.clock - 500_000);
    assert_eq!(world.audit(), [""; 0]);
}

#[test]
fn a_return_that_was_refused_for_no_reason() {
    let mut world = with(&[spec("3.0", &[])]);
    let token = world.own_one("3.0");
    let got = "TQ001".to_owned();
    world.call(Fate::Done, vec![Deed::Return { task: "3.0".into(), token, code: "completed".into(), got }]);
    world.give("3.0", token, "completed");
    world.is_found_by("refused for a reason");
}

#[test]
fn a_token_that_is_good_after_the_next_was_granted() {
    let mut world = with(&[spec("3.0", &[])]);
    let stale = world.own_one("3.0");
    world.clock += 2_000_000;
    world.own_one("3.0");
    world.give("3.0", stale, "completed");
    world.is_found_by("stale tokens");
}

#[test]
fn two_workers_that_hold_a_task() {
    let mut world = with(&[spec("3.0", &[])]);
    world.own_one("3.0");
    world.own_one("3.0");
    world.is_found_by("at most at once");
    // Not after the deadline, which an extension moves.
    let extended = |owned| {
        let mut world = with(&[spec("3.0", &[])]);
        let token = world.own_one("3.0");
        world.call(
            Fate::Done,
            vec![Deed::Extend { task: "3.0".into(), token, lease: 5_000_000, owned: Some(owned) }],
        );
        world.clock += 2_000_000;
        world.end_try("3.0", "timeout", "too late");
        world.perform("3.0", "completed");
        world
    };
    extended(true).is_found_by("at most at once");
    assert_eq!(extended(false).audit(), [""; 0]);
}

#[test]
fn one_call_that_is_granted_a_task_twice() {
    let mut world = with(&[spec("3.0", &[])]);
    let tokens = world.own(&["3.0", "3.0"]);
    let first = world.state.tries.len() - 2;
    (world.state.tries[first].outcome, world.state.tries[first].ended) =
        ("timeout".into(), Some(world.clock + 6));
    let early = world.clock + 4;
    world.give("3.0", tokens[1], "completed");
    world.is_found_by("at most at once");
    // The deadline of the first grant had passed before the call came back.
    for call in &mut world.calls {
        if let Some(Deed::Grant { token, deadline, .. }) = call.deeds.first_mut() {
            *deadline = if *token == tokens[0] { early } else { *deadline };
        }
    }
    assert_eq!(world.audit(), [""; 0]);
}

/// Two tasks of an action with a limit, one within the other.
fn two_of(spec_of: impl Fn(Spec) -> Spec, limits: &[(&str, i64, Fate)]) -> World {
    let mut world = sound();
    for (of, most, fate) in limits {
        world.call(*fate, vec![Deed::Limit { of: (*of).to_owned(), most: *most }]);
    }
    world.insert(Fate::Done, &[spec_of(spec("3.0", &[])), spec_of(spec("3.1", &[]))]);
    let token = world.own_one("3.0");
    world.perform("3.1", "completed");
    world.give("3.0", token, "completed");
    world
}

#[test]
fn more_than_a_limit_allows() {
    let few = |spec: Spec| Spec { action: "few".into(), ..spec };
    let grouped = |spec: Spec| Spec { action: "turns".into(), group: Some("g1".into()), ..spec };
    let merged = |spec: Spec| Spec { action: "merge".into(), merge_key: Some("k".into()), ..spec };
    two_of(few, &[("action few", 1, Fate::Done)]).is_found_by("at most at once");
    two_of(few, &[("action few", 2, Fate::Done), ("action few", 1, Fate::Done)])
        .is_found_by("at most at once");
    two_of(grouped, &[("group g1", 1, Fate::Done)]).is_found_by("at most at once");
    two_of(grouped, &[("turns", 1, Fate::Done), ("group g1", 2, Fate::Done)]).is_found_by("at most at once");
    two_of(merged, &[]).is_found_by("at most at once");
    // Two may be, or may have been for all that is known.
    assert_eq!(two_of(few, &[("action few", 2, Fate::Done)]).audit(), [""; 0]);
    assert_eq!(two_of(few, &[("action few", 1, Fate::Done), ("action few", 2, Fate::Lost)]).audit(), [""; 0]);
    two_of(few, &[("action few", 1, Fate::Done), ("action few", 2, Fate::Refused)])
        .is_found_by("at most at once");
}

#[test]
fn more_than_a_rate_allows() {
    let world = |count: i64| {
        let mut world = sound();
        let specs: Vec<Spec> = (0..count)
            .map(|number| Spec { action: "rate".into(), ..spec(&format!("3.{number}"), &[]) })
            .collect();
        world.insert(Fate::Done, &specs);
        let ids: Vec<&str> = specs.iter().map(|spec| spec.id.as_str()).collect();
        let tokens = world.own(&ids);
        for (id, token) in ids.iter().zip(tokens) {
            world.give(id, token, "completed");
        }
        world
    };
    assert_eq!(world(RATE).audit(), [""; 0]);
    world(RATE + 2).is_found_by("rate");
}

#[test]
fn a_task_that_began_too_early() {
    let mut world = with(&[spec("3.0", &[]), spec("3.1", &[("3.0", On::Settled)])]);
    world.perform("3.1", "completed");
    world.perform("3.0", "completed");
    world.is_found_by("dependencies");
    // By an edge that was added later.
    let mut world = with(&[spec("3.0", &[]), spec("3.1", &[])]);
    world.call(Fate::Done, vec![Deed::Edge { after: "3.0".into(), run: "3.1".into(), on: On::Settled }]);
    world.perform("3.1", "completed");
    world.perform("3.0", "completed");
    world.is_found_by("dependencies");
}

#[test]
fn a_task_that_ran_though_it_had_lost_a_dependency() {
    let mut world = with(&[spec("3.0", &[]), spec("3.1", &[("3.0", On::Completed)])]);
    world.perform("3.0", "aborted");
    world.perform("3.1", "completed");
    world.task("3.1").failures = 1;
    world.is_found_by("dependencies");
}

#[test]
fn a_signal_that_was_counted_twice_or_not() {
    for signals in [0, 2] {
        let mut world = sound();
        world.task("2.1").signals = signals;
        world.is_found_by("dependencies");
    }
    let mut world = sound();
    world.state.edges.clear();
    world.is_found_by("dependencies");
}

#[test]
fn runs_of_a_schedule_that_overlap() {
    let mut world = sound();
    let run = |id: &str, inserted, settled| Task {
        id: id.to_owned(),
        code: "completed".into(),
        inserted,
        settled: Some(settled),
        ..Task::default()
    };
    world.state.put_task(run("skipping@1", 0, 5_000_000));
    world.state.put_task(run("skipping@2", 5_000_000, 7_000_000));
    assert_eq!(world.audit(), [""; 0]);
    world.state.put_task(run("skipping@3", 5_500_000, 8_000_000));
    world.is_found_by("schedules");
}
