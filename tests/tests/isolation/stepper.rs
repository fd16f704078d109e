//! A connection whose steps are sent without waiting for them: a step that waits for a lock stays pending until another
//! connection releases it, as in PostgreSQL's isolation tester.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::SimpleQueryMessage;
use taskq_tests::{Db, Session};

use crate::bench::NO_WORKER;

/// A row, its values in the order of the columns, by their names.
pub type Row = Vec<(String, Option<String>)>;

/// What a step gave: the rows of all its statements, or SQLSTATE and message.
pub type Reply = Result<Vec<Row>, (String, String)>;

/// Longer than any step takes that waits for no other. Then it is cancelled, and so fails with `57014`.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a step may take before the test asks whether it waits.
const AT_FIRST: Duration = Duration::from_micros(400);

pub struct Stepper {
    pid: i32,
    steps: Option<Sender<String>>,
    replies: Receiver<Reply>,
    pending: bool,
    thread: Option<JoinHandle<()>>,
}

impl Stepper {
    pub fn new(db: &Db) -> Stepper {
        let mut session = db.connect();
        // A deadlock is found at once; what is given back is there again at once.
        session.run("SET deadlock_timeout = '10ms'; SET taskq.backoff = ''");
        session.run(NO_WORKER);
        let pid = session.pid();
        let (steps, inbox) = mpsc::channel::<String>();
        let (outbox, replies) = mpsc::channel();
        let thread = thread::spawn(move || {
            for step in inbox {
                if outbox.send(run(&mut session, &step)).is_err() {
                    break;
                }
            }
        });
        Stepper { pid, steps: Some(steps), replies, pending: false, thread: Some(thread) }
    }

    /// Sends a step, while none is pending.
    pub fn send(&mut self, step: String) {
        assert!(!self.pending, "one step at a time");
        self.steps.as_ref().expect("it is open").send(step).expect("the connection lives");
        self.pending = true;
    }

    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// The reply to the pending step, or nothing if it waits for another connection's lock.
    pub fn settle(&mut self, watcher: &mut Session) -> Option<Reply> {
        let start = Instant::now();
        let mut patience = AT_FIRST;
        loop {
            match self.replies.recv_timeout(patience) {
                Ok(reply) => {
                    self.pending = false;
                    return Some(reply);
                }
                Err(RecvTimeoutError::Disconnected) => panic!("the connection was lost"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if watcher.one::<bool>(&format!("SELECT pg_blocking_pids({}) <> '{{}}'", self.pid)) {
                return None;
            }
            if start.elapsed() > PATIENCE {
                // It neither ends nor waits for a lock: that is a failure, of which the others need not know.
                watcher.run(&format!("SELECT pg_cancel_backend({})", self.pid));
                patience = PATIENCE;
                continue;
            }
            patience = Duration::from_millis(1);
        }
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            // It may be pending when a test fails; then the connection goes with the database.
            if !self.pending {
                thread.join().ok();
            }
        }
    }
}

/// Runs statements as one message, each in the transaction that is open or its own.
pub fn run(session: &mut Session, statements: &str) -> Reply {
    match session.simple_query(statements) {
        Ok(messages) => Ok(messages.iter().filter_map(row).collect()),
        Err(error) => {
            let Some(refusal) = error.as_db_error() else {
                panic!("{statements} cost the connection: {error:?}");
            };
            // The server tells of an error before it gives up the locks.
            session.run("");
            Err((refusal.code().code().to_owned(), refusal.message().to_owned()))
        }
    }
}

fn row(message: &SimpleQueryMessage) -> Option<Row> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    let names = row.columns().iter().map(|column| column.name().to_owned());
    Some(names.enumerate().map(|(number, name)| (name, row.get(number).map(str::to_owned))).collect())
}
