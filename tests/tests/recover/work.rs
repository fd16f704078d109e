//! Producers and workers, on whatever server there is.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::{Config, Error};
use serde_json::{Value, json};
use taskq_tests::{Grant, Session};

use crate::books::{Books, LEASE};

/// How many tasks there may be to be done before the producers wait.
const BACKLOG: usize = 60;

/// Polls until something is true: longer than other tests, as several servers are started and stopped beside each other.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(since.elapsed() < Duration::from_secs(240), "never came true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The server that clients are sent to.
pub struct Place {
    config: RwLock<Config>,
}

impl Place {
    pub fn at(config: Config) -> Arc<Place> {
        Arc::new(Place { config: RwLock::new(config) })
    }

    pub fn is_now(&self, config: Config) {
        *self.config.write().unwrap() = config;
    }

    /// A connection, as soon as there is one. A commit is acknowledged when the standby has it, if there is one.
    fn connect(&self) -> Session {
        eventually("a server answers", || {
            let config = self.config.read().unwrap().clone();
            let opened = Session::open(&config).and_then(|mut session| {
                session.batch_execute("SET synchronous_commit = on; SET taskq.shortest_sleep = '30s'; SET statement_timeout = '240s'")?;
                Ok(session)
            });
            if opened.is_err() {
                thread::sleep(Duration::from_millis(50));
            }
            opened.ok()
        })
    }
}

/// All who are at work.
pub struct Work {
    pub books: Arc<Books>,
    place: Arc<Place>,
    stop_inserting: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    inserting: Vec<JoinHandle<()>>,
    working: Vec<JoinHandle<()>>,
}

impl Work {
    /// Three workers, and some who insert.
    pub fn begin(place: &Arc<Place>, inserters: usize) -> Work {
        let mut work = Work {
            books: Arc::default(),
            place: Arc::clone(place),
            stop_inserting: Arc::default(),
            stop: Arc::default(),
            inserting: Vec::new(),
            working: Vec::new(),
        };
        for _ in 0..inserters {
            let (place, books, stop) = (place.clone(), work.books.clone(), work.stop_inserting.clone());
            work.inserting.push(thread::spawn(move || insert(&place, &books, &stop)));
        }
        for _ in 0..3 {
            let (place, books, stop) = (place.clone(), work.books.clone(), work.stop.clone());
            work.working.push(thread::spawn(move || perform(&place, &books, &stop)));
        }
        work
    }

    /// Waits until that many more tasks are done.
    pub fn goes_on(&self, more: usize) {
        let since = self.books.num_completed();
        eventually("work goes on", || {
            assert!(!self.all().any(JoinHandle::is_finished), "a client has seen something wrong");
            (self.books.num_completed() >= since + more).then_some(())
        });
    }

    fn all(&self) -> impl Iterator<Item = &JoinHandle<()>> {
        self.inserting.iter().chain(&self.working)
    }

    /// Stops the insertions, has everything done, and waits for all threads.
    pub fn end(self) -> Arc<Books> {
        self.stop_inserting.store(true, Ordering::Relaxed);
        self.inserting.into_iter().for_each(|each| each.join().expect("nothing wrong was seen"));
        let mut session = self.place.connect();
        let open = "SELECT count(*) FROM taskq.tasks WHERE action IN ('load', 'mark') AND state NOT IN ('completed', 'aborted')";
        eventually("all is done", || {
            thread::sleep(Duration::from_millis(20));
            assert!(!self.working.iter().any(JoinHandle::is_finished), "a worker has seen something wrong");
            (session.one::<i64>(open) == 0).then_some(())
        });
        self.stop.store(true, Ordering::Relaxed);
        self.working.into_iter().for_each(|each| each.join().expect("nothing wrong was seen"));
        self.books
    }
}

/// Whether the server has gone, or is about to, rather than refused something.
fn is_gone(error: &Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P") || code.code().starts_with("08"))
}

/// Inserts groups of tasks: two that are free, one behind both, and a mark that no worker performs.
fn insert(place: &Place, books: &Books, stop: &AtomicBool) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut session = place.connect();
    while !stop.load(Ordering::Relaxed) {
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = |part: &str| format!("{n}{part}");
        let tasks: Value = json!([
            {"id": id("a"), "action": "load"}, {"id": id("b"), "action": "load"},
            {"id": id("c"), "action": "load", "depends_on": [id("a"), id("b")]},
            {"id": id("m"), "action": "mark", "spontaneous": true, "depends_on": [id("c")]},
        ]);
        match session.insert(tasks) {
            Ok(ids) => books.inserted(ids),
            Err(error) if is_gone(&error) => session = place.connect(),
            Err(error) => panic!("{n}: {error:?}"),
        }
        while books.backlog() > BACKLOG && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Performs what it is granted, and returns it wherever the server is by then.
fn perform(place: &Place, books: &Books, stop: &AtomicBool) {
    let mut session = place.connect();
    let lease = format!("lease => '{} seconds', wait => '1 second'", LEASE.as_secs());
    let mut in_hand: Vec<Grant> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if in_hand.is_empty() {
            match session.own_with("worker", 3, &["load"], &lease) {
                Ok(grants) => {
                    grants.iter().for_each(|grant| books.granted(grant));
                    in_hand = grants;
                }
                Err(error) if is_gone(&error) => session = place.connect(),
                Err(error) => panic!("own_tasks: {error:?}"),
            }
        }
        while let Some(grant) = in_hand.first() {
            let result = format!("result => '\"{}\"'", grant.token);
            match session.give_with(&grant.task_id, grant.token, "completed", &result) {
                Ok(_) => books.completed(grant),
                Err(error) if is_gone(&error) => {
                    books.unsure(grant);
                    session = place.connect();
                    continue;
                }
                // Not ours any more.
                Err(error) if taskq_tests::sqlstate(&error) == "TQ001" => books.refused(grant),
                Err(error) => panic!("{}: {error:?}", grant.task_id),
            }
            in_hand.remove(0);
        }
    }
}
