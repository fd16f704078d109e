//! What the server has acknowledged, written down outside of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, Utc};
use taskq_tests::{Grant, Session};
use uuid::Uuid;

/// How long a grant lasts: longer than the way to another server, so that its worker still holds it then.
pub const LEASE: Duration = Duration::from_secs(8);

/// A grant that a worker was told of.
#[derive(Clone, Debug)]
pub struct Granted {
    pub token: Uuid,
    pub num_try: i32,
    pub deadline: DateTime<Utc>,
}

/// What the clients were told.
#[derive(Default)]
pub struct Books {
    pages: Mutex<Pages>,
}

#[derive(Clone, Default)]
pub struct Pages {
    /// Whose insertion was acknowledged.
    pub inserted: BTreeSet<String>,
    /// All grants of a task.
    pub granted: BTreeMap<String, Vec<Granted>>,
    /// Whose completion was acknowledged, and under which token.
    pub completed: BTreeMap<String, Uuid>,
    /// Returns that were refused.
    pub refused: BTreeMap<String, Vec<Uuid>>,
    /// Returns of which it is unknown whether they were done: the connection went.
    pub unsure: BTreeSet<(String, Uuid)>,
}

impl Books {
    pub fn now(&self) -> Pages {
        self.pages.lock().unwrap().clone()
    }

    pub fn inserted(&self, ids: Vec<String>) {
        self.pages.lock().unwrap().inserted.extend(ids);
    }

    pub fn num_completed(&self) -> usize {
        self.pages.lock().unwrap().completed.len()
    }

    /// How many tasks there are to be done, of those that are known to be there: a fourth are performed by no worker.
    pub fn backlog(&self) -> usize {
        let pages = self.pages.lock().unwrap();
        (pages.inserted.len() / 4 * 3).saturating_sub(pages.completed.len())
    }

    /// No other worker may hold the task, and none may have completed it.
    pub fn granted(&self, grant: &Grant) {
        let deadline = grant.action_deadline.expect("each has a lease");
        let granted = Granted { token: grant.token, num_try: grant.num_tries, deadline };
        let at = deadline - LEASE;
        let mut pages = self.pages.lock().unwrap();
        let id = &grant.task_id;
        assert!(!pages.completed.contains_key(id), "{id} was completed, and is granted: {granted:?}");
        let before = pages.granted.entry(id.clone()).or_default();
        for other in before.iter() {
            assert!(other.token != granted.token, "{id}: a token was given twice");
            assert!(other.deadline <= at, "{id} is held until {}, and granted at {at}", other.deadline);
        }
        before.push(granted);
    }

    pub fn completed(&self, grant: &Grant) {
        let mut pages = self.pages.lock().unwrap();
        let before = pages.completed.insert(grant.task_id.clone(), grant.token);
        assert_eq!(before, None, "{} was completed twice", grant.task_id);
    }

    pub fn unsure(&self, grant: &Grant) {
        self.pages.lock().unwrap().unsure.insert((grant.task_id.clone(), grant.token));
    }

    pub fn refused(&self, grant: &Grant) {
        let mut pages = self.pages.lock().unwrap();
        pages.refused.entry(grant.task_id.clone()).or_default().push(grant.token);
    }
}

impl Pages {
    /// Looks whether the server has all that was acknowledged. What is there besides may be there.
    pub fn hold_in(&self, session: &mut Session) {
        let tasks: BTreeMap<String, (String, Option<String>)> = session
            .query("SELECT id, state::text, result #>> '{}' FROM taskq.tasks", &[])
            .unwrap()
            .iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2))))
            .collect();
        for id in &self.inserted {
            assert!(tasks.contains_key(id), "{id} was inserted, and is not there");
        }
        for (id, token) in &self.completed {
            let wanted = ("completed".to_owned(), Some(token.to_string()));
            assert_eq!(tasks.get(id), Some(&wanted), "{id} was completed under {token}");
        }
        assert_eq!(session.broken(), [""; 0]);
    }

    /// Looks whether each refusal was right: the task had been granted to another worker, or settled by the same return
    /// before, whose answer was lost.
    pub fn refusals_are_right(&self) {
        for (id, tokens) in &self.refused {
            for token in tokens {
                let unsure = self.unsure.contains(&(id.clone(), *token));
                let own = self.granted[id].iter().find(|granted| granted.token == *token).expect("granted");
                let later = self.granted[id].iter().any(|granted| granted.num_try > own.num_try);
                let over = own.deadline < Utc::now();
                assert!(
                    unsure || later || over,
                    "{id}: the return under {token} was refused: {:?}",
                    self.granted[id]
                );
            }
        }
    }
}
