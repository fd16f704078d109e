//! A client: it inserts, performs, and does what clients do that go wrong.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Config, Error};
use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Grant, Session, sqlstate};

use super::GROUPS;
use super::book::{Book, Told};
use super::saboteur::group;

const LEASE: &str = "max_duration => '2 s'";
/// Crashes count as tries.
const TRIES: i32 = 10_000;

pub struct Client {
    n: u64,
    number: u64,
    random: Random,
    config: Config,
    session: Option<Session>,
    book: Arc<Book>,
}

/// What an error says of a call that changes something. Any other than those that a client must expect is wrong.
fn told(error: &Error, book: &Book) -> Told {
    match error.code().map(|code| code.code().to_owned()).as_deref() {
        // The connection to the router is gone, or is being ended.
        None | Some("57P01" | "57P02" | "57P03") => Told::Unknown,
        Some("08006") => Told::Unknown,
        Some("08001" | "TQ001" | "TQ005") => Told::Refused,
        Some(_) => {
            book.wrong(format!("not to be expected: {error:?}"));
            Told::Unknown
        }
    }
}

impl Client {
    pub fn new(n: u64, seed: u64, config: Config, book: Arc<Book>) -> Client {
        Client { n, number: 0, random: Random::new(seed * 100 + n), config, session: None, book }
    }

    pub fn run(mut self) {
        while !self.book.over() {
            let Some(mut session) = self.session.take().or_else(|| Session::open(&self.config).ok()) else {
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            self.turn(&mut session);
            // One that is closed is replaced; now and then any is.
            let alive = session.query("SELECT 1", &[]).is_ok();
            if alive && !self.random.chance(1) {
                self.session = Some(session);
            } else {
                self.book.count("sessions ended");
            }
        }
    }

    fn turn(&mut self, session: &mut Session) {
        // Never far ahead of who performs.
        if self.random.chance(40) {
            self.insert(session);
        }
        if self.random.chance(3) && self.number > 5 {
            self.cancel(session);
        }
        let most = 1 + i32::try_from(self.random.below(4)).unwrap();
        let wait = if self.random.chance(50) { "wait => '100 ms'" } else { "wait => NULL" };
        let sent = Instant::now();
        match session.own_with("w", most, &["x"], &format!("{LEASE}, {wait}")) {
            Ok(grants) => {
                grants.iter().for_each(|grant| self.book.granted(grant, sent));
                self.perform(session, &grants);
            }
            Err(error) => {
                told(&error, &self.book);
                self.book.count("calls of own_tasks that failed");
            }
        }
    }

    fn id(&mut self, part: &str) -> String {
        self.number += 1;
        format!("{}-{}-{part}", self.n, self.number)
    }

    /// A pair in a group, or tasks without one; what is not known to be there is sent again, to be skipped if it is.
    fn insert(&mut self, session: &mut Session) {
        let mut tasks: Vec<(String, Option<String>, Value)> = Vec::new();
        if self.random.chance(80) {
            let group = group(self.random.below(GROUPS));
            let (a, b) = (self.id("a"), self.id("b"));
            tasks.push((
                a.clone(),
                None,
                json!({"id": a, "action": "x", "group_id": group, "max_tries": TRIES}),
            ));
            let task =
                json!({"id": b, "action": "x", "group_id": group, "max_tries": TRIES, "depends_on": [a]});
            tasks.push((b, Some(a), task));
        } else {
            let id = self.id("s");
            tasks.push((id.clone(), None, json!({"id": id, "action": "x", "max_tries": TRIES})));
        }
        let names: Vec<(String, Option<String>)> =
            tasks.iter().map(|(id, parent, _)| (id.clone(), parent.clone())).collect();
        let ids: Vec<String> = names.iter().map(|(id, _)| id.clone()).collect();
        let array: Vec<Value> = tasks.into_iter().map(|(.., task)| task).collect();
        self.book.sending(&names);
        let mut conflict = "on_conflict => 'error'";
        for _ in 0..3 {
            match session.insert_with(Value::from(array.clone()), conflict) {
                Ok(_) => {
                    self.book.inserted(&ids);
                    return;
                }
                Err(error) => {
                    self.book.count("insertions that failed");
                    if told(&error, &self.book) == Told::Unknown {
                        conflict = "on_conflict => 'skip'";
                    }
                    if sqlstate_of(&error).is_none() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(30));
                }
            }
        }
    }

    fn cancel(&mut self, session: &mut Session) {
        let id = format!("{}-{}-b", self.n, self.random.below(self.number));
        self.book.cancelling(&id);
        if let Err(error) = session.cancel(&[&id]) {
            told(&error, &self.book);
        }
    }

    fn perform(&mut self, session: &mut Session, grants: &[Grant]) {
        for grant in grants {
            match self.random.below(100) {
                // It dies with the task; or works for longer than it may.
                0..3 => {}
                3..5 => {
                    thread::sleep(Duration::from_millis(2500));
                    self.give(session, grant, "completed");
                }
                5..12 => drop(self.give(session, grant, "pending")),
                12..17 => drop(self.give(session, grant, "aborted")),
                17..27 => self.give_with_child(session, grant),
                27..37 => self.give_in_an_array(session, grant),
                _ => {
                    let told = self.give(session, grant, "completed");
                    // A token that was used is worth nothing.
                    if told == Told::Done && self.random.chance(10) {
                        match session.give(&grant.task_id, grant.token, "completed") {
                            Ok(code) => {
                                self.book.wrong(format!("{} was returned twice: {code}", grant.task_id))
                            }
                            Err(error) => {
                                self.book.count("used tokens refused");
                                super::client::told(&error, &self.book);
                            }
                        }
                    }
                }
            }
        }
    }

    fn give(&mut self, session: &mut Session, grant: &Grant, code: &str) -> Told {
        let line = self.book.returning(grant, code);
        let outcome = session.give(&grant.task_id, grant.token, code);
        let told = outcome.map_or_else(|error| told(&error, &self.book), |_| Told::Done);
        self.book.returned(grant, line, told);
        told
    }

    fn give_with_child(&mut self, session: &mut Session, grant: &Grant) {
        let child = self.id("c");
        self.book.sending(&[(child.clone(), None)]);
        let children =
            format!("children => '[{{\"id\": \"{child}\", \"action\": \"x\", \"max_tries\": {TRIES}}}]'");
        let line = self.book.returning(grant, "completed");
        let outcome = session.give_with(&grant.task_id, grant.token, "completed", &children);
        if outcome.is_ok() {
            self.book.inserted(&[child]);
        }
        let told = outcome.map_or_else(|error| told(&error, &self.book), |_| Told::Done);
        self.book.returned(grant, line, told);
    }

    /// `return_and_own_tasks`, whose rows are refusals and grants.
    fn give_in_an_array(&mut self, session: &mut Session, grant: &Grant) {
        let line = self.book.returning(grant, "completed");
        let sent = Instant::now();
        let query = "SELECT task_id, token, action, body, num_tries, num_failures, action_deadline, sqlstate \
                       FROM taskq.return_and_own_tasks('w', ARRAY[$1::text], ARRAY[$2::uuid], 1, '{x}', '2 s')";
        match session.query(query, &[&grant.task_id, &grant.token]) {
            Ok(rows) => {
                let refused = rows.iter().find_map(|row| row.get::<_, Option<String>>(7));
                let told = match refused.as_deref() {
                    None => Told::Done,
                    Some("08006") => Told::Unknown,
                    Some(_) => Told::Refused,
                };
                self.book.returned(grant, line, told);
                for row in rows.iter().filter(|row| row.get::<_, Option<&str>>(7).is_none()) {
                    let next = Grant {
                        task_id: row.get(0),
                        token: row.get(1),
                        action: row.get(2),
                        body: row.get(3),
                        num_tries: row.get(4),
                        num_failures: row.get(5),
                        action_deadline: row.get(6),
                    };
                    self.book.granted(&next, sent);
                    self.give(session, &next, "completed");
                }
            }
            Err(error) => {
                let told = told(&error, &self.book);
                self.book.returned(grant, line, told);
            }
        }
    }
}

fn sqlstate_of(error: &Error) -> Option<&str> {
    error.as_db_error().map(|_| sqlstate(error))
}

/// When nothing goes wrong any more: whatever is left.
pub fn work_off(router: &mut Session, book: &Book) {
    let since = Instant::now();
    loop {
        let sent = Instant::now();
        let grants = match router.own_with("w", 100, &["x"], &format!("{LEASE}, wait => '3 s'")) {
            Ok(grants) => grants,
            Err(error) => {
                told(&error, book);
                continue;
            }
        };
        if grants.is_empty() {
            return;
        }
        for grant in &grants {
            book.granted(grant, sent);
            let line = book.returning(grant, "completed");
            let told = router
                .give(&grant.task_id, grant.token, "completed")
                .map_or_else(|error| told(&error, book), |_| Told::Done);
            book.returned(grant, line, told);
        }
        assert!(since.elapsed() < Duration::from_secs(120), "it does not end");
    }
}
