//! All calls at once: several connections insert, replace, link, own, return (with children), cancel, retry, complete by hand and
//! delete on a few ids, so that nearly every call meets another one on the same rows.
//!
//! Single calls never meet in a deadlock. Transactions of several calls may: PostgreSQL ends one with 40P01, and the
//! caller answers by another try. A call must not fail for any other reason that the contract does not name. In the end `taskq.check()` must find nothing, and whatever
//! is left must run to its end: an edge that was lost between two calls shows as a task that nothing frees.

use std::{env, process};

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Grant, Session, sqlstate, until};

const CONNECTIONS: u64 = 6;
const CALLS: usize = 400;
const IDS: u64 = 25;
const ACTIONS: [&str; 2] = ["x", "y"];
const CONDITIONS: [&str; 3] = ["completed", "settled", "aborted"];

/// What one connection does.
struct Caller {
    random: Random,
    /// Whether some calls share a transaction.
    transactions: bool,
    grants: Vec<Grant>,
}

impl Caller {
    fn id(&mut self) -> String {
        self.random.below(IDS).to_string()
    }

    fn task(&mut self) -> Value {
        let edge =
            |caller: &mut Caller| json!({"id": caller.id(), "condition": caller.random.pick(&CONDITIONS)});
        let depends_on: Vec<Value> = (0..self.random.below(3)).map(|_| edge(self)).collect();
        let to_signal_after: Vec<Value> = (0..self.random.below(2)).map(|_| edge(self)).collect();
        json!({
            "id": self.id(),
            "action": self.random.pick(&ACTIONS),
            "priority": self.random.below(2),
            "max_tries": 1 + self.random.below(3),
            "spontaneous": self.random.chance(20),
            "retention": if self.random.chance(20) { "0" } else { "1 day" },
            "depends_on": depends_on,
            "to_signal_after": to_signal_after,
        })
    }

    fn call(&mut self, session: &mut Session) -> Result<(), postgres::Error> {
        let tasks: Vec<Value> = (0..1 + self.random.below(4)).map(|_| self.task()).collect();
        let (one, other) = (self.id(), self.id());
        match self.random.below(100) {
            0..20 => {
                session.insert_with(json!(tasks), "on_conflict => 'skip', if_missing => 'ignore'").map(drop)
            }
            20..25 => session.insert(json!(tasks)).map(drop),
            25..35 => {
                let query = "SELECT taskq.replace_tasks($1, if_missing => 'ignore')";
                session.query(query, &[&json!(tasks)]).map(drop)
            }
            35..45 => {
                let edge = json!({"after": one, "run": other, "condition": self.random.pick(&CONDITIONS)});
                session.depend(json!([edge, {"after": self.id(), "run": self.id()}])).map(drop)
            }
            45..65 => {
                let lease = if self.random.chance(30) { "1 millisecond" } else { "1 minute" };
                let max_tasks = 1 + self.random.below(4) as i32;
                let arguments = format!("lease => '{lease}'");
                self.grants.extend(session.own_with("caller", max_tasks, &ACTIONS, &arguments)?);
                Ok(())
            }
            65..85 => self.give(session),
            85..90 => session.cancel(&[&one, &other]).map(drop),
            90..94 => session.delete(&[&one, &other]).map(drop),
            94..97 if self.transactions => match self.random.below(4) {
                0 => session.query("SELECT taskq.retry_tasks(actions => '{x}')", &[]).map(drop),
                1 => session.query("SELECT taskq.complete_task($1)", &[&one]).map(drop),
                _ => session.query("SELECT taskq.retry_tasks($1)", &[&[&one, &other].as_slice()]).map(drop),
            },
            _ => session.query("SELECT taskq.maintain()", &[]).map(drop),
        }
    }

    fn give(&mut self, session: &mut Session) -> Result<(), postgres::Error> {
        if self.transactions && self.random.chance(30) {
            let Some(grant) = self.grants.last().cloned() else { return Ok(()) };
            let children = json!([self.task(), self.task()]);
            let code = *self.random.pick(&["completed", "aborted"]);
            let query = "SELECT taskq.return_task($1, $2, $3::text::taskq.status_code, children => $4, children_block => true)";
            session.query(query, &[&grant.task_id, &grant.token, &code, &children])?;
            self.grants.pop();
            return Ok(());
        }
        let batch = self.grants.len().min(1 + self.random.below(4) as usize);
        let (ids, tokens): (Vec<_>, Vec<_>) =
            self.grants[..batch].iter().map(|grant| (grant.task_id.clone(), grant.token)).unzip();
        let code = self.random.pick(&["completed", "completed", "aborted", "pending"]);
        let query = "SELECT sqlstate FROM taskq.return_tasks($1, $2, $3::text::taskq.status_code)";
        for row in session.query(query, &[&ids, &tokens, code])? {
            let state: Option<String> = row.get(0);
            assert!(state.as_deref().is_none_or(|state| ["TQ001", "TQ003"].contains(&state)), "{state:?}");
        }
        // Not before: after a deadlock they are still held.
        self.grants.drain(..batch);
        Ok(())
    }

    fn work(mut self, session: &mut Session) {
        // What is given back is there again at once, for the others and for the end.
        session.run("SET taskq.backoff = ''");
        // A deadlock is found at once instead of in a second.
        session.run("SET deadlock_timeout = '10ms'");
        let known = ["TQ001", "TQ002", "TQ003", "TQ004", "TQ005"];
        // A single call may be the one that the server ends, where the others are transactions.
        let may_deadlock = self.transactions;
        let expected = |error: &postgres::Error| {
            known.contains(&sqlstate(error)) || may_deadlock && sqlstate(error) == "40P01"
        };
        for _ in 0..CALLS {
            if !self.transactions || self.random.chance(80) {
                if let Err(error) = self.call(session) {
                    assert!(expected(&error), "a single call failed: {error:?}");
                }
                continue;
            }
            session.run("BEGIN");
            let held = self.grants.clone();
            let outcome = (0..3).try_for_each(|_| self.call(session));
            if let Err(error) = &outcome {
                assert!(expected(error), "a transaction failed: {error:?}");
            }
            if outcome.is_err() || self.random.chance(30) {
                session.run("ROLLBACK");
                self.grants = held;
            } else {
                session.run("COMMIT");
            }
        }
        for grant in self.grants {
            until("the task is returned, or it was not held any more", || {
                match session.give(&grant.task_id, grant.token, "completed") {
                    Ok(code) => assert_eq!(code, "completed"),
                    Err(error) if self.transactions && sqlstate(&error) == "40P01" => return None,
                    Err(error) => assert!(["TQ001", "TQ003"].contains(&sqlstate(&error)), "{error:?}"),
                }
                Some(())
            });
        }
    }
}

fn storm(seed: u64, transactions: bool) {
    println!("seed {seed}, transactions {transactions}");
    let db = Db::new();
    let callers: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let random = Random::new(seed * CONNECTIONS + number + 1);
            let caller = Caller { random, transactions, grants: Vec::new() };
            db.connect().background(move |session| caller.work(session))
        })
        .collect();
    for caller in callers {
        caller.join();
    }
    let mut session = db.connect();
    assert_eq!(session.broken(), [""; 0], "seed {seed}");
    loop {
        let grants = session.own("last", 100, &ACTIONS).unwrap();
        if grants.is_empty() {
            break;
        }
        for grant in &grants {
            session.complete(grant);
        }
    }
    let open: Vec<String> = session
        .all("SELECT concat_ws(' ', id, state, actor_id) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
    assert_eq!(open, [""; 0], "seed {seed}: nothing is stuck");
    // Whatever has aborted can be brought back.
    session.run("SELECT taskq.retry_tasks(actions => '{x,y}')");
    assert_eq!(session.broken(), [""; 0], "seed {seed}, after a retry of all");
}

/// `TASKQ_TEST_SOAK` times as many storms, if that is set.
fn storms(transactions: bool) {
    let soak =
        env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("TASKQ_TEST_SOAK is a number"));
    for round in 0..3 * soak {
        // Seeds of their own each time; the failing one is in the output.
        storm(u64::from(process::id()) + 100_000 * round, transactions);
    }
}

#[test]
fn a_storm_of_single_calls_leaves_nothing_broken() {
    storms(false);
}

#[test]
fn a_storm_with_transactions_leaves_nothing_broken() {
    storms(true);
}
