//! The queue's calls over one connection, opened again as often as it takes.

use std::env;
use std::process;
use std::time::Duration;

use rand::Rng;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};
use uuid::Uuid;

use crate::Error;

/// Seconds of one waiting call, which is also how long an idle worker takes to stop.
const WAIT: f64 = 2.0;

/// How many times a connection is tried before the caller hears of it; about a minute.
const ATTEMPTS: u32 = 12;

/// A task in hand.
pub struct Task {
    pub id: String,
    pub token: Uuid,
    pub body: Option<String>,
    pub num_tries: i32,
}

/// How a performance ended.
pub struct Outcome {
    code: &'static str,
    status: Option<String>,
    result: Option<Value>,
    retry_after: Option<f64>,
}

impl Outcome {
    pub fn completed(result: Value) -> Self {
        Outcome { code: "completed", status: None, result: Some(result), retry_after: None }
    }

    pub fn aborted(status: String) -> Self {
        Outcome { code: "aborted", status: Some(status), result: None, retry_after: None }
    }

    pub fn retry(status: String) -> Self {
        Outcome { code: "pending", status: Some(status), result: None, retry_after: Some(5.0) }
    }

    pub fn given_back() -> Self {
        let status = Some("given back by a worker that stops".to_owned());
        Outcome { code: "pending", status, result: None, retry_after: None }
    }
}

/// The queue as one worker sees it.
pub struct Queue {
    client: Option<Client>,
    actor: String,
    action: String,
    /// How long a death of this process goes unnoticed.
    pub lease: Duration,
}

type Arguments<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

impl Queue {
    pub fn new(action: &str) -> Self {
        let host = env::var("HOSTNAME").unwrap_or_else(|_| "worker".to_owned());
        Queue {
            client: None,
            actor: format!("{host}:{}", process::id()),
            action: action.to_owned(),
            lease: seconds("TASKQ_LEASE", 60.0),
        }
    }

    /// The next task, if there is one. Sleeps in the server until there is.
    pub async fn own(&mut self) -> Result<Option<Task>, Error> {
        let query = "SELECT task_id, token, body, num_tries \
                       FROM taskq.own_tasks($1, 1, ARRAY[$2], $3 * interval '1 second', wait => $4 * interval '1 second')";
        let (actor, action, lease) = (self.actor.clone(), self.action.clone(), self.lease.as_secs_f64());
        let arguments: Arguments =
            &[(&actor, Type::TEXT), (&action, Type::TEXT), (&lease, Type::FLOAT8), (&WAIT, Type::FLOAT8)];
        let rows = self.call(query, arguments).await?;
        Ok(rows.first().map(|row| Task {
            id: row.get(0),
            token: row.get(1),
            body: row.get(2),
            num_tries: row.get(3),
        }))
    }

    /// Moves the deadline; false if the task is not ours any more.
    pub async fn extend(&mut self, task: &Task) -> Result<bool, Error> {
        let query = "SELECT owned FROM taskq.extend_tasks_ownership($1, ARRAY[$2], ARRAY[$3], $4 * interval '1 second')";
        let (actor, lease) = (self.actor.clone(), self.lease.as_secs_f64());
        let arguments: Arguments = &[
            (&actor, Type::TEXT),
            (&task.id, Type::TEXT),
            (&task.token, Type::UUID),
            (&lease, Type::FLOAT8),
        ];
        Ok(self.call(query, arguments).await?[0].get(0))
    }

    /// Ends the performance.
    pub async fn give(&mut self, task: &Task, outcome: Outcome) -> Result<(), Error> {
        let query = "SELECT taskq.return_task($1, $2, $3, $4, result => $5, retry_after => $6 * interval '1 second')::text";
        let arguments: Arguments = &[
            (&task.id, Type::TEXT),
            (&task.token, Type::UUID),
            (&outcome.code, Type::TEXT),
            (&outcome.status, Type::TEXT),
            (&outcome.result, Type::JSONB),
            (&outcome.retry_after, Type::FLOAT8),
        ];
        match self.call(query, arguments).await {
            Ok(rows) => eprintln!("{}: {}", task.id, rows[0].get::<_, &str>(0)),
            // Cancelled, deleted, taken over, or returned by us and only the answer was lost.
            Err(error) if matches!(sqlstate(&error), Some("TQ001" | "TQ003")) => {
                eprintln!("{}: dropped, it is not ours any more", task.id);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The rows of a query in a transaction of its own. A query may run twice if its answer gets lost.
    async fn call(&mut self, query: &str, arguments: Arguments<'_>) -> Result<Vec<Row>, Error> {
        let mut delay = 0.1;
        for attempt in 1.. {
            let answer = self.attempt(query, arguments).await;
            match answer {
                Err(error) if attempt < ATTEMPTS && lost(&error) => {
                    eprintln!("no connection, again in about {delay:.1} s: {error}");
                    self.client = None;
                }
                answer => return answer,
            }
            sleep(Duration::from_secs_f64(delay * rand::rng().random_range(0.5..1.5))).await;
            delay = (delay * 2.0_f64).min(10.0);
        }
        unreachable!("the last attempt returns")
    }

    async fn attempt(&mut self, query: &str, arguments: Arguments<'_>) -> Result<Vec<Row>, Error> {
        let client = match &mut self.client {
            Some(client) if !client.is_closed() => client,
            client => client.insert(connect().await?),
        };
        // query_typed names no prepared statement, so that PgBouncer may stand in between.
        let limit = Duration::from_secs_f64(WAIT + 30.0);
        Ok(timeout(limit, client.query_typed(query, arguments)).await??)
    }
}

/// PGHOST and the like say where.
async fn connect() -> Result<Client, Error> {
    let var = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let mut config = Config::new();
    config
        .host(var("PGHOST", "/var/run/postgresql"))
        .port(var("PGPORT", "5432").parse()?)
        .user(var("PGUSER", "postgres"))
        .dbname(var("PGDATABASE", "postgres"))
        .application_name("taskq worker")
        .connect_timeout(Duration::from_secs(5))
        .keepalives_idle(Duration::from_secs(30));
    if let Ok(password) = env::var("PGPASSWORD") {
        config.password(password);
    }
    let (client, connection) = timeout(Duration::from_secs(10), config.connect(NoTls)).await??;
    // It ends with the connection; whoever uses the client then hears of it.
    tokio::spawn(connection);
    Ok(client)
}

/// The server's code for an error, if it is one of the server's.
fn sqlstate(error: &Error) -> Option<&str> {
    Some(error.downcast_ref::<tokio_postgres::Error>()?.code()?.code())
}

/// Whether an error is the loss of the connection, not an answer.
fn lost(error: &Error) -> bool {
    sqlstate(error).is_none_or(|code| code.starts_with("08") || code.starts_with("57P") || code == "53300")
}

/// A number of seconds from the environment.
pub fn seconds(name: &str, default: f64) -> Duration {
    let value = env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    Duration::from_secs_f64(value)
}
