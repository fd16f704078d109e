//! Signals that were left to a transaction which had the counter, and whose hold on it was undone: by a rollback, of
//! all or to a savepoint, or by an error. It cannot count any more, or does not have to look; so it wakes a session
//! that looks.
//!
//! A queue that forgets one of the ways to have a counter leaves the child to a sleeper's own pace, or to no call at
//! all.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Background, Db, Grant, Progress, Session, sqlstate};

/// A child of two parents that are in progress, and `heir`, which waits for its end, however that comes.
struct Family {
    db: Db,
    session: Session,
    parents: Vec<Grant>,
}

impl Family {
    fn new() -> Self {
        let (db, [mut session]) = Db::with_tasks(json!([
            {"id": "p", "action": "parent"}, {"id": "q", "action": "parent"},
            {"id": "child", "action": "child", "depends_on": ["p", "q"]},
            {"id": "heir", "action": "heir", "depends_on": [{"id": "child", "condition": "settled"}]},
            {"id": "other", "action": "other", "depends_on": ["child"]},
        ]));
        let parents = session.own("w", 2, &["parent"]).unwrap();
        Family { db, session, parents }
    }

    /// A call that waits for the heir; by itself it looks again in half a minute.
    fn sleeper(&mut self) -> Background<Vec<Grant>> {
        let mut worker = self.db.connect();
        worker.run("SET taskq.shortest_sleep = '30s'");
        let worker = worker.background(|s| s.own_with("w", 1, &["heir"], "wait => '60 seconds'").unwrap());
        self.session.until_asleep(worker.pid());
        worker
    }

    /// A parent aborts; its signal is left to the holder of the counter.
    fn leave_signal(&mut self) {
        return_aborted(&mut self.session, &self.parents[0]);
        assert_eq!(self.session.one::<i64>("SELECT count(*) FROM taskq.countdown"), 1);
    }
}

fn return_aborted(session: &mut Session, grant: &Grant) {
    session.query("SELECT taskq.return_task($1, $2, 'aborted')", &[&grant.task_id, &grant.token]).unwrap();
}

/// What the sleeper has got, and that at once.
fn assert_prompt(sleeper: Background<Vec<Grant>>, session: &mut Session, since: Instant) {
    let mut grants = sleeper.join().1;
    if grants.is_empty() {
        // A look that has only counted may come back with nothing.
        grants = session.own("w", 1, &["heir"]).unwrap();
    }
    assert_eq!(grants[0].task_id, "heir");
    // The slow look of sleepers comes after five seconds at the earliest.
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    assert_eq!(session.broken(), Vec::<String>::new());
}

#[test]
fn a_counter_that_was_locked_and_is_rolled_back() {
    let mut family = Family::new();
    let sleeper = family.sleeper();
    let mut holder = family.db.connect();
    holder.run("BEGIN");
    holder.cancel(&["child"]).unwrap();
    family.leave_signal();
    let start = Instant::now();
    holder.run("ROLLBACK");
    assert_prompt(sleeper, &mut family.session, start);
}

/// The first lost dependency removes the counter: no session has to look once that is committed. But it is not.
#[test]
fn a_counter_that_was_removed_and_is_rolled_back() {
    let mut family = Family::new();
    let sleeper = family.sleeper();
    let mut holder = family.db.connect();
    holder.run("BEGIN");
    return_aborted(&mut holder, &family.parents[1]);
    family.leave_signal();
    let start = Instant::now();
    holder.run("ROLLBACK");
    assert_prompt(sleeper, &mut family.session, start);
}

/// The same with a savepoint: the transaction that goes on counts before it commits.
#[test]
fn a_counter_whose_removal_a_savepoint_undoes() {
    for end in ["COMMIT", "ROLLBACK"] {
        let mut family = Family::new();
        let sleeper = family.sleeper();
        let mut holder = family.db.connect();
        holder.run("BEGIN; SAVEPOINT s");
        return_aborted(&mut holder, &family.parents[1]);
        family.leave_signal();
        holder.run("ROLLBACK TO s");
        let start = Instant::now();
        holder.run(end);
        if end == "COMMIT" {
            assert_eq!(family.session.state("child"), "aborted");
        }
        assert_prompt(sleeper, &mut family.session, start);
    }
}

/// Of those that it names it has locked the first, and waits for the second; then its time is up.
#[test]
fn counters_some_of_which_were_locked_when_an_error_came() {
    for block in [false, true] {
        let mut family = Family::new();
        let sleeper = family.sleeper();
        let mut first = family.db.connect();
        first.run("BEGIN");
        first.cancel(&["other"]).unwrap();
        let mut holder = family.db.connect();
        holder.run("SET statement_timeout = '2s'");
        let holder = holder.background(move |session| {
            if block {
                session.run("BEGIN; SAVEPOINT s");
            }
            let error = session.cancel(&["child", "other"]).unwrap_err();
            assert_eq!(sqlstate(&error), "57014");
            // The transaction may be as long as it likes from here on.
            Instant::now()
        });
        assert_eq!(holder.settle_down(&mut family.session), Progress::Blocked);
        family.leave_signal();
        let (_holder, failed) = holder.join();
        assert_prompt(sleeper, &mut family.session, failed);
        first.run("ROLLBACK");
    }
}
