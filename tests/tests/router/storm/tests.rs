//! Each rule finds what it is for: a book and shards that agree, and then one thing that is wrong.

use std::collections::HashMap;
use std::time::Instant;

use taskq_tests::Grant;
use uuid::Uuid;

use super::audit::{Shard, Task};
use super::book::{Book, Told};

/// A book and the shards that it tells of. To begin with they agree.
struct World {
    book: Book,
    shards: Vec<Shard>,
    homes: HashMap<String, usize>,
}

fn grant(id: &str) -> Grant {
    Grant {
        task_id: id.to_owned(),
        token: Uuid::new_v4(),
        action: "x".to_owned(),
        body: None,
        num_tries: 1,
        num_failures: 0,
        action_deadline: None,
    }
}

impl World {
    /// Shard 0 has a task without a group, shard 1 a pair of one, all completed.
    fn sound() -> World {
        let homes = HashMap::from([("g".to_owned(), 1)]);
        let mut world = World { book: Book::default(), shards: vec![Shard::new(); 2], homes };
        world.insert(0, "s", None);
        world.insert(1, "a", None);
        world.insert(1, "b", Some("a"));
        for id in ["s", "a", "b"] {
            world.perform(id, "completed");
        }
        world
    }

    /// An insertion that is acknowledged. What is on shard 1 is of a group.
    fn insert(&mut self, shard: usize, id: &str, parent: Option<&str>) {
        self.book.sending(&[(id.to_owned(), parent.map(str::to_owned))]);
        self.book.inserted(&[id.to_owned()]);
        let task = Task {
            code: "pending".to_owned(),
            group: (shard == 1).then(|| "g".to_owned()),
            tries: 0,
            after: parent.iter().map(|parent| (*parent).to_owned()).collect(),
        };
        self.shards[shard].insert(id.to_owned(), task);
    }

    fn task(&mut self, id: &str) -> &mut Task {
        self.shards.iter_mut().find_map(|shard| shard.get_mut(id)).expect("a task")
    }

    fn own(&mut self, id: &str) -> Grant {
        let grant = grant(id);
        self.book.granted(&grant, Instant::now());
        self.task(id).tries += 1;
        grant
    }

    /// Sends a return, and is told this.
    fn give(&mut self, grant: &Grant, code: &str, told: Told) {
        let line = self.book.returning(grant, code);
        self.book.returned(grant, line, told);
    }

    fn perform(&mut self, id: &str, code: &str) {
        let grant = self.own(id);
        self.give(&grant, code, Told::Done);
        self.task(id).code = code.to_owned();
    }

    fn audit(&self) -> Vec<String> {
        self.book.audit(&self.shards, &self.homes)
    }

    /// This is wrong, and nothing else.
    fn is_found(&self, finding: &str) {
        let found = self.audit();
        assert!(!found.is_empty(), "\"{finding}\" is not found");
        for found in found {
            assert!(found.contains(finding), "\"{finding}\" is wrong, and found was \"{found}\"");
        }
    }
}

/// Why: on wrong code a run of the storm finds something in any state, or nothing at all.
#[test]
fn a_sound_world_agrees() {
    assert_eq!(World::sound().audit(), [""; 0]);
}

#[test]
fn what_was_acknowledged_and_is_gone() {
    for (shard, id) in [(0, "s"), (1, "b")] {
        let mut world = World::sound();
        world.shards[shard].remove(id);
        world.is_found(&format!("inserted: {id} was acknowledged"));
    }
}

#[test]
fn a_call_without_an_answer_may_have_been_done_or_not() {
    let mut world = World::sound();
    world.book.sending(&[("lost".to_owned(), None)]);
    assert_eq!(world.audit(), [""; 0]);
    world.shards[0].insert("lost".to_owned(), Task { code: "pending".to_owned(), ..Task::default() });
    world.perform("lost", "completed");
    assert_eq!(world.audit(), [""; 0]);
    // A return without an answer has ended the task, or has not and another one has.
    world.insert(0, "t", None);
    let first = world.own("t");
    world.give(&first, "aborted", Told::Unknown);
    world.task("t").code = "aborted".to_owned();
    assert_eq!(world.audit(), [""; 0]);
    world.perform("t", "completed");
    assert_eq!(world.audit(), [""; 0]);
}

#[test]
fn a_task_that_was_never_sent() {
    let mut world = World::sound();
    world.shards[0].insert("stray".to_owned(), Task { code: "aborted".to_owned(), ..Task::default() });
    world.book.cancelling("stray");
    world.is_found("sent: stray is on shard 0");
}

#[test]
fn what_is_on_two_shards() {
    let mut world = World::sound();
    let copy = world.task("s").clone();
    world.shards[1].insert("s".to_owned(), copy);
    world.is_found("one shard: s is on the shards 0 and 1");
}

#[test]
fn what_a_move_has_left_behind() {
    let mut world = World::sound();
    world.homes.insert("g".to_owned(), 0);
    world.is_found("home: ");
    assert_eq!(world.audit().len(), 2, "both tasks of the group");
}

#[test]
fn what_was_ended_twice() {
    for code in ["completed", "aborted"] {
        let mut world = World::sound();
        let grant = grant("s");
        world.give(&grant, code, Told::Done);
        let found = world.audit();
        assert!(found.iter().any(|found| found.starts_with("one end: s was ended as")), "{found:?}");
    }
}

#[test]
fn an_acknowledged_end_that_is_lost() {
    let mut world = World::sound();
    world.task("s").code = "aborted".to_owned();
    world.is_found("end: s is aborted, and was ended as completed");
    let mut world = World::sound();
    world.task("s").code = "pending".to_owned();
    let found = world.audit();
    assert_eq!(found.len(), 2, "lost, and left over: {found:?}");
}

#[test]
fn an_end_without_a_call() {
    for code in ["completed", "aborted"] {
        let mut world = World::sound();
        world.insert(0, "t", None);
        world.task("t").code = code.to_owned();
        world.is_found(&format!("end: t is {code}, and no call has done that"));
        // A return that was refused has done nothing.
        let grant = world.own("t");
        world.give(&grant, code, Told::Refused);
        world.is_found(&format!("end: t is {code}, and no call has done that"));
    }
}

/// A task is aborted by a cancellation, and with what it depends on; not because it depends on something.
#[test]
fn an_abort_without_a_reason() {
    let world = |parent: &str, cancelled: bool| {
        let mut world = World::sound();
        world.insert(1, "c", None);
        world.insert(1, "d", Some("c"));
        world.perform("c", parent);
        if cancelled {
            world.book.cancelling("d");
        }
        world.task("d").code = "aborted".to_owned();
        world
    };
    assert_eq!(world("aborted", false).audit(), [""; 0]);
    assert_eq!(world("completed", true).audit(), [""; 0]);
    world("completed", false).is_found("end: d is aborted, and no call has done that");
}

#[test]
fn what_is_left_over() {
    let mut world = World::sound();
    world.insert(0, "t", None);
    world.is_found("left over: t is pending on shard 0");
    world.own("t");
    world.task("t").code = "in-progress".to_owned();
    world.is_found("left over: t is in-progress on shard 0");
}

#[test]
fn a_grant_that_is_lost() {
    let mut world = World::sound();
    world.task("s").tries = 0;
    world.is_found("tries: s was granted 1 times, and counts 0");
    // One of which no client was told is a try, too.
    world.task("s").tries = 5;
    assert_eq!(world.audit(), [""; 0]);
}

#[test]
fn a_dependency_that_is_lost() {
    let mut world = World::sound();
    world.task("b").after.clear();
    world.is_found("dependencies: b depends on []");
    world.task("b").after = vec!["a".to_owned(), "s".to_owned()];
    world.is_found("dependencies: b depends on [\"a\", \"s\"]");
}

#[test]
fn a_token_that_is_granted_twice() {
    let mut world = World::sound();
    world.insert(0, "t", None);
    world.insert(0, "u", None);
    let first = world.own("t");
    world.give(&first, "completed", Told::Done);
    world.task("t").code = "completed".to_owned();
    let again = Grant { token: first.token, ..grant("u") };
    world.book.granted(&again, Instant::now());
    world.give(&again, "completed", Told::Done);
    world.task("u").code = "completed".to_owned();
    world.task("u").tries = 1;
    world.task("t").tries = 1;
    world.is_found("was granted for t and for u");
}

#[test]
fn a_task_that_two_hold() {
    let mut world = World::sound();
    world.insert(0, "t", None);
    world.own("t");
    world.perform("t", "completed");
    world.is_found("t was granted to two");
}

#[test]
fn a_grant_of_what_has_ended_or_was_never_sent() {
    let mut world = World::sound();
    world.own("s");
    world.is_found("s was granted, and had ended");
    let world = World::sound();
    world.book.granted(&grant("stray"), Instant::now());
    world.is_found("stray was granted, and was never sent");
}

#[test]
fn a_dependency_that_was_started_early() {
    let mut world = World::sound();
    world.insert(1, "c", None);
    world.insert(1, "d", Some("c"));
    world.perform("d", "completed");
    world.perform("c", "completed");
    world.is_found("d was granted before c was returned");
}
