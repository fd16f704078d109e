//! A client: a connection that may break at any moment, and the pages of the ledger about what was done over it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Error, NoTls};
use taskq_tests::random::Random;

use crate::book::{Book, Call, Deed, Fate, now};
use crate::run::Run;

/// How long the server may be away, recovery after a crash included.
const PATIENCE: Duration = Duration::from_secs(180);

/// After so many calls a session has met everything and is as large as it gets; by so much it may grow after that.
const WARM: u64 = 80;
pub const MAY_GROW: i64 = 6_000_000;

pub struct Client {
    pub run: Arc<Run>,
    pub random: Random,
    name: String,
    calls: u64,
    connection: Option<Connection>,
    book: Book,
}

struct Connection {
    client: postgres::Client,
    calls: u64,
    /// Its memory when it was warm.
    warm: Option<i64>,
}

/// A call under way.
pub struct Tx<'a> {
    client: &'a mut postgres::Client,
    /// What goes into the ledger; the call fills in what it was told.
    pub deeds: Vec<Deed>,
    /// Whether what was done is kept as soon as the server says so: not within a transaction block before its COMMIT.
    keeps: bool,
}

impl Tx<'_> {
    pub fn begin(&mut self) -> Result<(), Error> {
        self.keeps = false;
        self.client.batch_execute("BEGIN")
    }

    pub fn commit(&mut self) -> Result<(), Error> {
        self.keeps = true;
        self.client.batch_execute("COMMIT")
    }

    /// The same as a COMMIT, for a transaction that comes to nothing.
    pub fn roll_back(&mut self) -> Result<(), Error> {
        self.client.batch_execute("ROLLBACK")
    }
}

impl Deref for Tx<'_> {
    type Target = postgres::Client;

    fn deref(&self) -> &postgres::Client {
        self.client
    }
}

impl DerefMut for Tx<'_> {
    fn deref_mut(&mut self) -> &mut postgres::Client {
        self.client
    }
}

/// What came of a call.
pub struct Outcome<T> {
    pub fate: Fate,
    /// The SQLSTATE of a refusal; `gone` if the connection broke.
    pub state: String,
    pub value: Option<T>,
}

impl Client {
    pub fn new(run: &Arc<Run>, name: &str, number: u64) -> Client {
        Client {
            run: Arc::clone(run),
            random: Random::new(run.seed.wrapping_mul(1000) + number),
            name: name.to_owned(),
            calls: 0,
            connection: None,
            book: Book::create(&run.folder, name),
        }
    }

    /// Makes a call, which `deeds` say the intention of, and writes down what came of it. `work` gets the call's name.
    pub fn call<T>(
        &mut self,
        kind: &str,
        deeds: Vec<Deed>,
        work: impl FnOnce(&mut Tx, &str) -> Result<T, Error>,
    ) -> Outcome<T> {
        self.calls += 1;
        let name = format!("{}-{}", self.name, self.calls);
        let hurry = self.hurry();
        let connection = self.connected();
        let mut tx = Tx { client: &mut connection.client, deeds, keeps: true };
        let sent = now();
        let answer = work(&mut tx, &name);
        let received = now();
        let (deeds, keeps) = (tx.deeds, tx.keeps);
        connection.calls += 1;
        let (fate, state) = match &answer {
            Ok(_) if keeps => (Fate::Done, String::new()),
            Ok(_) => (Fate::Refused, "rollback".to_owned()),
            Err(error) => judge(error, keeps),
        };
        let alive = state.len() == 5 || state.is_empty() || state == "rollback";
        if alive {
            let tidy = if hurry { "ROLLBACK; SET statement_timeout = '60s'" } else { "ROLLBACK" };
            if (hurry || answer.is_err()) && self.send(tidy).is_err() {
                self.connection = None;
            }
        } else {
            self.connection = None;
        }
        if hurry && state == "57014" {
            self.run.fault("statement_timeout that struck");
        }
        if state == "55P03" {
            self.run.fault("lock_timeout that struck");
        }
        let call = Call { name, kind: kind.to_owned(), sent, received, fate, state, deeds };
        self.book.write(&call);
        self.weigh();
        Outcome { fate, state: call.state, value: answer.ok() }
    }

    /// Goes away without a word to the server.
    pub fn vanish(&mut self) {
        self.connection = None;
    }

    /// Now and then a call gets less time than it may need.
    fn hurry(&mut self) -> bool {
        let hurry = !self.run.is_calm() && self.random.chance(4);
        if hurry {
            let time = 1 + self.random.below(12);
            self.connected();
            if self.send(&format!("SET statement_timeout = '{time}ms'")).is_err() {
                self.connection = None;
            }
        }
        hurry
    }

    fn send(&mut self, statements: &str) -> Result<(), Error> {
        match &mut self.connection {
            Some(connection) => connection.client.batch_execute(statements),
            None => Ok(()),
        }
    }

    fn connected(&mut self) -> &mut Connection {
        if self.connection.is_none() {
            // Some have more patience than others.
            let settings =
                *self.random.pick(&["lock_timeout=50ms", "lock_timeout=200ms", "lock_timeout=500ms"]);
            let client = connect(&self.run, &self.name, settings);
            self.connection = Some(Connection { client, calls: 0, warm: None });
        }
        self.connection.as_mut().expect("just made")
    }

    /// Sees to it that the session does not grow.
    fn weigh(&mut self) {
        const MEMORY: &str = "SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts";
        let Some(connection) = &mut self.connection else { return };
        if connection.calls % WARM != 0 {
            return;
        }
        let Ok(row) = connection.client.query_one(MEMORY, &[]) else {
            self.connection = None;
            return;
        };
        let bytes: i64 = row.get(0);
        let warm = *connection.warm.get_or_insert(bytes);
        let mut memory = self.run.memory.lock().unwrap();
        memory.0 = memory.0.max(bytes);
        memory.1 = memory.1.max(bytes - warm);
    }
}

/// What an error says about the effects of a call.
fn judge(error: &Error, keeps: bool) -> (Fate, String) {
    match error.as_db_error() {
        // An ERROR ends the transaction and nothing else; the FATAL one is said by a server that goes down, perhaps just
        // after a commit.
        Some(error) if error.severity() == "ERROR" => (Fate::Refused, error.code().code().to_owned()),
        _ if !keeps => (Fate::Refused, "gone before COMMIT".to_owned()),
        Some(error) => (Fate::Lost, format!("gone: {}", error.code().code())),
        None => (Fate::Lost, "gone".to_owned()),
    }
}

/// Opens a connection, as soon as the server accepts one.
pub fn connect(run: &Run, name: &str, settings: &str) -> postgres::Client {
    let mut config = run.config.clone();
    config.dbname("postgres").application_name(&format!("torture {name}")).options(&format!(
        "-c {settings} -c statement_timeout=60s -c client_min_messages=error -c deadlock_timeout=50ms"
    ));
    let begun = Instant::now();
    loop {
        match config.connect(NoTls) {
            Ok(client) => return client,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "the server does not come back: {error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}
