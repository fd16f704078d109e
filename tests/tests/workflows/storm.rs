//! Everything that changes graphs, at once, on a few ids: returns with children, retries, completion by hand, new tasks and
//! new edges, cancels and deletes, from several connections. `tests/storm` has the other calls; here are those whose races
//! have more than two sides. A call may meet a deadlock, which PostgreSQL ends with 40P01 and the caller answers by another
//! try; it must not fail for any other reason that the contract does not name. In the end `check()` must find nothing, and
//! whatever is left must run to its end: a lost signal shows as a task that is stuck.

use std::{env, process};

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Grant, Session, sqlstate};

const CONNECTIONS: u64 = 6;
const CALLS: usize = 400;
const IDS: u64 = 30;
const ACTIONS: [&str; 2] = ["x", "y"];
const CONDITIONS: [&str; 4] = ["completed", "completed", "settled", "aborted"];
/// What calls on the same ids may answer: the task exists, or does not, or its state forbids it, or a cycle, or a deadlock.
const KNOWN: [&str; 6] = ["40P01", "TQ001", "TQ002", "TQ003", "TQ004", "TQ005"];

/// What one connection does.
struct Caller {
    random: Random,
    grants: Vec<Grant>,
}

impl Caller {
    fn id(&mut self) -> String {
        self.random.below(IDS).to_string()
    }

    fn edges(&mut self, most: u64) -> Vec<Value> {
        let edge =
            |caller: &mut Caller| json!({"id": caller.id(), "condition": caller.random.pick(&CONDITIONS)});
        (0..self.random.below(most + 1)).map(|_| edge(self)).collect()
    }

    fn tasks(&mut self) -> Value {
        let task = |caller: &mut Caller| {
            json!({
                "id": caller.id(),
                "action": caller.random.pick(&ACTIONS),
                "max_tries": 1 + caller.random.below(3),
                "spontaneous": caller.random.chance(20),
                "depends_on": caller.edges(2),
                "to_signal_after": caller.edges(1),
            })
        };
        (0..1 + self.random.below(4)).map(|_| task(self)).collect()
    }

    /// Returns a task that is held, with children or without; inside a savepoint that is rolled back first, now and then.
    fn give(&mut self, session: &mut Session) -> Result<(), postgres::Error> {
        let Some(grant) = self.grants.pop() else { return Ok(()) };
        let code =
            *self.random.pick(&["completed", "completed", "completed", "aborted", "aborted", "pending"]);
        let mut arguments = "status => NULL".to_owned();
        if code != "pending" && self.random.chance(60) {
            let block = self.random.chance(70);
            arguments = format!("children_block => {block}, children => '{}'", self.tasks());
        }
        if self.random.chance(20) {
            session.run("BEGIN; SAVEPOINT s");
            session.give_with(&grant.task_id, grant.token, code, &arguments).ok();
            session.run("ROLLBACK TO s");
            let answer = session.give_with(&grant.task_id, grant.token, code, "status => NULL");
            session.run(if answer.is_ok() { "COMMIT" } else { "ROLLBACK" });
            return answer.map(drop);
        }
        let answer = session.give_with(&grant.task_id, grant.token, code, &arguments).map(drop);
        if answer.is_err() {
            self.grants.insert(0, grant);
        }
        answer
    }

    fn call(&mut self, session: &mut Session) -> Result<(), postgres::Error> {
        let (one, other) = (self.id(), self.id());
        match self.random.below(100) {
            0..15 => {
                session.insert_with(self.tasks(), "on_conflict => 'skip', if_missing => 'ignore'").map(drop)
            }
            15..20 => session.insert(self.tasks()).map(drop),
            20..28 => {
                let condition = *self.random.pick(&CONDITIONS);
                session.depend(json!([{"after": one, "run": other, "condition": condition}])).map(drop)
            }
            28..50 => {
                let lease = if self.random.chance(20) { "1 millisecond" } else { "1 minute" };
                let max_tasks = 1 + self.random.below(3) as i32;
                let granted =
                    session.own_with("caller", max_tasks, &ACTIONS, &format!("lease => '{lease}'"))?;
                self.grants.extend(granted);
                Ok(())
            }
            50..75 => self.give(session),
            75..83 => session.query("SELECT taskq.retry_tasks($1)", &[&[&one, &other].as_slice()]).map(drop),
            83..88 => session.query("SELECT taskq.retry_tasks(actions => '{x}')", &[]).map(drop),
            88..92 => session.query("SELECT taskq.complete_task($1)", &[&one]).map(drop),
            92..95 => session.cancel(&[&one, &other]).map(drop),
            95..97 => session.replace(self.tasks()).map(drop),
            _ => session.delete(&[&one]).map(drop),
        }
    }

    fn work(mut self, session: &mut Session) {
        // A deadlock is found at once instead of in a second.
        session.run("SET deadlock_timeout = '10ms'");
        // What is given back is there again at once, for the others and for the end.
        session.run("SET taskq.backoff = ''");
        for _ in 0..CALLS {
            if let Err(error) = self.call(session) {
                assert!(KNOWN.contains(&sqlstate(&error)), "a call failed: {error:?}");
            }
        }
        while let Some(grant) = self.grants.pop() {
            if let Err(error) = session.give(&grant.task_id, grant.token, "completed") {
                assert!(KNOWN.contains(&sqlstate(&error)), "a return failed: {error:?}");
                if sqlstate(&error) == "40P01" {
                    self.grants.push(grant);
                }
            }
        }
    }
}

fn storm(seed: u64) {
    println!("seed {seed}");
    let db = Db::new();
    let callers: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let caller = Caller { random: Random::new(seed * CONNECTIONS + number + 1), grants: Vec::new() };
            db.connect().background(move |session| caller.work(session))
        })
        .collect();
    callers.into_iter().for_each(|caller| drop(caller.join()));
    let mut session = db.connect();
    assert_eq!(session.broken(), [""; 0], "seed {seed}");
    super::work_off(&mut session, &ACTIONS);
    let open = "SELECT concat_ws(' ', id, state, actor_id) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')";
    assert_eq!(session.all::<String>(open), [""; 0], "seed {seed}: nothing is stuck");
    // Whatever has aborted can be brought back, and run to its end.
    session.run("SELECT taskq.retry_tasks(actions => '{x,y}')");
    assert_eq!(session.broken(), [""; 0], "seed {seed}, after a retry of all");
    super::work_off(&mut session, &ACTIONS);
    assert_eq!(session.all::<String>(open), [""; 0], "seed {seed}, after a retry of all");
}

#[test]
fn a_storm_over_graphs_leaves_nothing_broken_and_nothing_stuck() {
    let soak: u64 =
        env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("TASKQ_TEST_SOAK is a number"));
    for round in 0..3 * soak {
        // Seeds of their own each time; the failing one is in the output.
        storm(u64::from(process::id()) + 100_000 * round);
    }
}
