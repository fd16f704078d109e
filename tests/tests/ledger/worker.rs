//! A worker that does its job badly in every way that the queue must cope with, and writes down what it was told.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use taskq_tests::random::Random;
use taskq_tests::{Grant, Session, sqlstate};
use uuid::Uuid;

use crate::graph::{ACTIONS, Graph};

/// What all workers together were told.
#[derive(Default)]
pub struct Ledger {
    /// How often each task was granted.
    pub grants: Mutex<HashMap<usize, u64>>,
    /// How each task was settled, by the worker whose return the queue accepted.
    pub settled: Mutex<HashMap<usize, &'static str>>,
    /// The tasks that a cancel named.
    pub cancelled: Mutex<HashSet<usize>>,
    /// How many tasks the cancels counted.
    pub cancels_counted: Mutex<i64>,
    /// Every token there was.
    tokens: Mutex<HashSet<Uuid>>,
    /// Who holds what, until when.
    held: Mutex<HashMap<usize, Hold>>,
}

/// A token and its deadline.
type Hold = (Uuid, Option<DateTime<Utc>>);

pub struct Worker {
    name: String,
    random: Random,
    graph: Arc<Graph>,
    ledger: Arc<Ledger>,
    /// Grants that this worker has let run out, and may still try to return.
    late: Vec<Grant>,
}

impl Worker {
    pub fn new(number: u64, seed: u64, graph: Arc<Graph>, ledger: Arc<Ledger>) -> Worker {
        let random = Random::new(seed ^ (number + 1) << 32);
        Worker { name: format!("worker {number}"), random, graph, ledger, late: Vec::new() }
    }

    /// Works until nothing is open any more.
    pub fn work(mut self, session: &mut Session) {
        let mut idle = 0;
        while idle < 4 {
            let max_tasks = 1 + self.random.below(6) as i32;
            // Mostly leases that hold; sometimes one that is over before the work is.
            let lease = if self.random.chance(15) { "20 milliseconds" } else { "1 minute" };
            let arguments = format!("lease => '{lease}', wait => '50 milliseconds'");
            let grants = session.own_with(&self.name, max_tasks, &ACTIONS, &arguments).unwrap();
            idle = if grants.is_empty() { idle + 1 } else { 0 };
            if idle == 3 && self.anything_open(session) {
                idle = 0;
            }
            for grant in &grants {
                self.note_grant(session, grant);
            }
            for grant in grants {
                self.perform(session, grant, lease == "1 minute");
            }
            if self.random.chance(8) {
                self.cancel_something(session);
            }
            if self.random.chance(30) {
                self.return_late(session);
            }
        }
    }

    fn anything_open(&self, session: &mut Session) -> bool {
        session.one("SELECT EXISTS (SELECT FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted'))")
    }

    fn note_grant(&mut self, session: &mut Session, grant: &Grant) {
        let number = number_of(grant);
        let node = &self.graph.nodes[number];
        assert!(!node.spontaneous, "{} is spontaneous", grant.task_id);
        let times = {
            let mut grants = self.ledger.grants.lock().unwrap();
            let times = grants.entry(number).or_default();
            *times += 1;
            *times
        };
        assert!(
            node.max_tries.is_none_or(|most| times <= most),
            "{} was granted {times} times",
            grant.task_id
        );
        assert!(self.ledger.tokens.lock().unwrap().insert(grant.token), "a token was granted twice");
        let mut held = self.ledger.held.lock().unwrap();
        let before = held.insert(number, (grant.token, grant.action_deadline));
        if let Some((token, deadline)) = before {
            let now = Utc::now();
            if grant.action_deadline.is_some_and(|ours| ours <= now) {
                // A short lease that is over before it is noted: the other may have come after us.
                held.insert(number, (token, deadline));
            } else {
                let over = deadline.is_some_and(|deadline| deadline <= now);
                assert!(over, "{} is held by another worker until {deadline:?}", grant.task_id);
            }
        }
        drop(held);
        if self.random.chance(10) {
            let query = "SELECT count(*) FROM taskq.dependencies WHERE run = $1 AND NOT settled";
            let open: i64 = session.query_one(query, &[&grant.task_id]).unwrap().get(0);
            assert_eq!(open, 0, "{} was granted before what it runs after was settled", grant.task_id);
        }
    }

    fn perform(&mut self, session: &mut Session, grant: Grant, lease_holds: bool) {
        match self.random.below(100) {
            0..=5 if !lease_holds => self.late.push(grant),
            // A worker that dies with a long lease: another with its token cuts the lease short.
            0..=3 => {
                // Struck off before: ten milliseconds later it may be another worker's.
                let number = number_of(&grant);
                let mut held = self.ledger.held.lock().unwrap();
                if held.get(&number).is_some_and(|(token, _)| *token == grant.token) {
                    held.remove(&number);
                }
                drop(held);
                let pair = [(grant.task_id.as_str(), grant.token)];
                session.extend(&self.name, &pair, "10 milliseconds").unwrap();
                self.late.push(grant);
            }
            4..=14 => self.give(session, &grant, "pending"),
            15..=24 => self.give(session, &grant, "aborted"),
            25..=29 => {
                // A transaction that comes to nothing, then the real one.
                session.run("BEGIN");
                session.give(&grant.task_id, grant.token, "aborted").ok();
                session.run("ROLLBACK");
                self.give(session, &grant, "completed");
            }
            _ => self.give(session, &grant, "completed"),
        }
    }

    /// Returns a task; the ledger has it if the queue took it.
    fn give(&mut self, session: &mut Session, grant: &Grant, code: &'static str) {
        let number = number_of(grant);
        let holder = self.take_from_held(number, grant.token);
        match session.give(&grant.task_id, grant.token, code) {
            Ok(got) if got == "pending" => assert_eq!(code, "pending"),
            Ok(got) => {
                let settled = if code == "pending" { "aborted" } else { code };
                assert_eq!(got, settled);
                let before = self.ledger.settled.lock().unwrap().insert(number, settled);
                assert_eq!(before, None, "{} was settled twice", grant.task_id);
            }
            Err(error) => {
                assert_eq!(sqlstate(&error), "TQ001", "{error:?}");
                // With a deadline far away only a cancel takes the token; the audit knows the cancelled ones.
                let far = holder.flatten().is_some_and(|deadline| deadline > Utc::now());
                let cancelled = self.ledger.cancelled.lock().unwrap().contains(&number);
                assert!(!far || cancelled, "{} was taken from its holder", grant.task_id);
            }
        }
    }

    /// Before the call, so that no worker that is granted the task after it finds it held.
    fn take_from_held(&self, number: usize, token: Uuid) -> Option<Option<DateTime<Utc>>> {
        let mut held = self.ledger.held.lock().unwrap();
        if held.get(&number).is_some_and(|(holder, _)| *holder == token) {
            held.remove(&number).map(|(_, deadline)| deadline)
        } else {
            None
        }
    }

    fn cancel_something(&mut self, session: &mut Session) {
        let number = self.random.below(self.graph.nodes.len() as u64) as usize;
        self.ledger.cancelled.lock().unwrap().insert(number);
        // A worker that is granted it meanwhile loses it, too.
        let counted = session.cancel(&[&number.to_string()]).unwrap();
        if counted > 0 {
            self.ledger.held.lock().unwrap().remove(&number);
        }
        *self.ledger.cancels_counted.lock().unwrap() += counted;
    }

    fn return_late(&mut self, session: &mut Session) {
        if let Some(grant) = self.late.pop() {
            self.give(session, &grant, "completed");
        }
    }
}

fn number_of(grant: &Grant) -> usize {
    grant.task_id.parse().expect("ids are numbers")
}
