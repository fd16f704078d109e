//! A small world that is made call by call: books of clients, and the database that they tell of. To begin with they agree.

use uuid::Uuid;

use super::super::audit;
use crate::book::{Call, Deed, Fate, On, Spec, Time};
use crate::state::{Edge, State, Task, Try};

/// Books and a database that agree, made call by call. Each call takes 10 microseconds, and begins 1,000 after the one before.
#[derive(Default)]
pub(super) struct World {
    pub(super) calls: Vec<Call>,
    pub(super) state: State,
    pub(super) clock: Time,
}

impl World {
    pub(super) fn call(&mut self, fate: Fate, deeds: Vec<Deed>) -> String {
        self.clock += 1000;
        let name = format!("c-{}", self.calls.len() + 1);
        let (sent, received) = (self.clock, self.clock + 10);
        let state = if fate == Fate::Done { String::new() } else { "57014".to_owned() };
        let call = Call { name: name.clone(), kind: String::new(), sent, received, fate, state, deeds };
        self.calls.push(call);
        name
    }

    pub(super) fn insert(&mut self, fate: Fate, specs: &[Spec]) {
        self.call(fate, specs.iter().cloned().map(Deed::Insert).collect());
        for spec in specs {
            let task =
                Task { id: spec.id.clone(), code: "pending".into(), inserted: self.clock, ..Task::default() };
            self.state.put_task(task);
            let edge = |(after, on): &(String, On)| Edge {
                after: after.clone(),
                run: spec.id.clone(),
                on: *on,
                settled: true,
            };
            self.state.edges.extend(spec.after.iter().map(edge));
            self.task(&spec.id).dependencies = spec.after.len() as i64;
            self.task(&spec.id).signals = spec.after.len() as i64;
        }
    }

    /// Grants some tasks with one call, for a second; their tokens.
    pub(super) fn own(&mut self, tasks: &[&str]) -> Vec<Uuid> {
        let tokens: Vec<Uuid> = tasks.iter().map(|_| Uuid::new_v4()).collect();
        let name = self.call(Fate::Done, Vec::new());
        for (task, token) in tasks.iter().zip(&tokens) {
            self.task(task).tries += 1;
            let (task, number) = ((*task).to_owned(), self.task(task).tries as i32);
            let deadline = self.clock + 1_000_000;
            self.last().deeds.push(Deed::Grant { task: task.clone(), token: *token, try_: number, deadline });
            let (started, outcome) = (self.clock + 5, "in-progress".to_owned());
            self.state.tries.push(Try {
                task,
                number,
                actor: name.clone(),
                started,
                ended: None,
                outcome,
                status: None,
            });
        }
        tokens
    }

    pub(super) fn own_one(&mut self, task: &str) -> Uuid {
        self.own(&[task])[0]
    }

    /// Returns a task, with effect.
    pub(super) fn give(&mut self, task: &str, token: Uuid, code: &str) {
        let got = code.to_owned();
        let deed = Deed::Return { task: task.to_owned(), token, code: code.to_owned(), got };
        let name = self.call(Fate::Done, vec![deed]);
        self.end_try(task, code, &name);
        if code != "pending" {
            self.end(task, code, &name);
        }
    }

    pub(super) fn end_try(&mut self, task: &str, code: &str, status: &str) {
        let ended = self.clock + 5;
        let one = self.state.tries.iter_mut().rfind(|one| one.task == task).expect("it was granted");
        (one.ended, one.outcome, one.status) = (Some(ended), code.to_owned(), Some(status.to_owned()));
    }

    pub(super) fn end(&mut self, task: &str, code: &str, status: &str) {
        let settled = self.clock + 5;
        let task = self.task(task);
        (task.code, task.settled) = (code.to_owned(), Some(settled));
        task.status = (!status.is_empty()).then(|| status.to_owned());
    }

    pub(super) fn perform(&mut self, task: &str, code: &str) {
        let token = self.own_one(task);
        self.give(task, token, code);
    }

    pub(super) fn task(&mut self, id: &str) -> &mut Task {
        self.state.tasks.get_mut(id).expect("it was inserted")
    }

    pub(super) fn last(&mut self) -> &mut Call {
        self.calls.last_mut().expect("there is one")
    }

    pub(super) fn audit(&self) -> Vec<String> {
        audit(&self.calls, &self.state)
    }

    /// What is wrong is found by this rule.
    pub(super) fn is_found_by(&self, rule: &str) {
        let found = self.audit();
        assert!(
            found.iter().any(|found| found.starts_with(&format!("{rule}: "))),
            "not by {rule}: {found:#?}"
        );
    }
}

pub(super) fn spec(id: &str, after: &[(&str, On)]) -> Spec {
    let after = after.iter().map(|(id, on)| ((*id).to_owned(), *on)).collect();
    Spec { id: id.to_owned(), action: "p0".to_owned(), after, ..Spec::default() }
}

/// A little of everything.
pub(super) fn sound() -> World {
    let mut world = World::default();
    let mut mark = spec("1.3", &[("1.0", On::Settled)]);
    mark.spontaneous = true;
    world.insert(
        Fate::Done,
        &[
            spec("1.0", &[]),
            spec("1.1", &[("1.0", On::Completed)]),
            spec("1.2", &[("1.1", On::Completed)]),
            mark,
            spec("1.4", &[]),
        ],
    );
    world.insert(Fate::Lost, &[spec("2.0", &[]), spec("2.1", &[("1.0", On::Settled)])]);
    world.perform("1.0", "completed");
    world.end("1.3", "completed", "");
    world.perform("1.1", "aborted");
    world.end("1.2", "aborted", "dependency \"1.1\" aborted");
    world.task("1.2").failures = 1;
    world.perform("1.4", "pending");
    world.perform("1.4", "completed");
    world.perform("2.0", "completed");
    world.perform("2.1", "completed");
    world
}

/// The same, and these tasks.
pub(super) fn with(specs: &[Spec]) -> World {
    let mut world = sound();
    world.insert(Fate::Done, specs);
    world
}
