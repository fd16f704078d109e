//! The queue's calls over one connection, opened again as often as it takes.

use std::env;
use std::process;
use std::time::Duration;

use serde_json::{Value, json};
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
    pub action: String,
    pub body: Option<String>,
    pub num_tries: i32,
}

impl Task {
    /// From id, token, action, body and number of tries.
    fn of(row: &Row) -> Self {
        Task {
            id: row.get(0),
            token: row.get(1),
            action: row.get(2),
            body: row.get(3),
            num_tries: row.get(4),
        }
    }
}

/// How a performance ended.
pub struct Outcome {
    code: &'static str,
    status: Option<String>,
    result: Option<Value>,
    count_try: bool,
}

impl Outcome {
    pub fn completed(result: Value) -> Self {
        Outcome { code: "completed", status: None, result: Some(result), count_try: true }
    }

    pub fn aborted(status: String) -> Self {
        Outcome { code: "aborted", status: Some(status), result: None, count_try: true }
    }

    /// When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
    pub fn retry(status: String) -> Self {
        Outcome { code: "pending", status: Some(status), result: None, count_try: true }
    }

    /// It has not failed: it uses up no try, and need not wait for the back-off.
    pub fn given_back() -> Self {
        let status = Some("given back by a worker that stops".to_owned());
        Outcome { code: "pending", status, result: None, count_try: false }
    }
}

/// The queue as one worker sees it.
pub struct Queue {
    client: Option<Client>,
    actor: String,
    actions: Vec<String>,
    /// How long a death of this process goes unnoticed.
    pub lease: Duration,
}

type Arguments<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

impl Queue {
    pub fn new(actions: Vec<String>) -> Self {
        let host = env::var("HOSTNAME").unwrap_or_else(|_| "worker".to_owned());
        Queue {
            client: None,
            actor: format!("{host}:{}", process::id()),
            actions,
            lease: seconds("TASKQ_LEASE", 60.0),
        }
    }

    /// The next task, if there is one. Sleeps in the server until there is.
    pub async fn own(&mut self) -> Result<Option<Task>, Error> {
        Ok(self.own_many(1).await?.pop())
    }

    /// Up to so many tasks. Sleeps in the server until there are some.
    pub async fn own_many(&mut self, number: i32) -> Result<Vec<Task>, Error> {
        let query = "SELECT task_id, token, action, body, num_tries \
                       FROM taskq.own_tasks($1, $2, $3, $4 * interval '1 second', wait => $5 * interval '1 second')";
        let (actor, actions, lease) = (self.actor.clone(), self.actions.clone(), self.lease.as_secs_f64());
        let arguments: Arguments = &[
            (&actor, Type::TEXT),
            (&number, Type::INT4),
            (&actions, Type::TEXT_ARRAY),
            (&lease, Type::FLOAT8),
            (&WAIT, Type::FLOAT8),
        ];
        Ok(self.call(query, arguments).await?.iter().map(Task::of).collect())
    }

    /// Moves the deadline; false if the task is not ours any more.
    pub async fn extend(&mut self, task: &Task) -> Result<bool, Error> {
        Ok(self.extend_many(&[(&task.id, task.token)]).await?[0])
    }

    /// Moves the deadlines of many; of each, in their order, whether it is still ours.
    pub async fn extend_many(&mut self, held: &[(&str, Uuid)]) -> Result<Vec<bool>, Error> {
        let query = "SELECT owned FROM taskq.extend_tasks_ownership($1, $2, $3, $4 * interval '1 second')";
        let (actor, lease) = (self.actor.clone(), self.lease.as_secs_f64());
        let (ids, tokens): (Vec<&str>, Vec<Uuid>) = held.iter().copied().unzip();
        let arguments: Arguments = &[
            (&actor, Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&tokens, Type::UUID_ARRAY),
            (&lease, Type::FLOAT8),
        ];
        Ok(self.call(query, arguments).await?.iter().map(|row| row.get(0)).collect())
    }

    /// Ends the performance.
    pub async fn give(&mut self, id: &str, token: Uuid, outcome: Outcome) -> Result<(), Error> {
        let query = "SELECT taskq.return_task($1, $2, $3, $4, result => $5, count_try => $6)::text";
        // What a text of PostgreSQL can hold.
        let status = outcome.status.map(|status| status.replace('\0', ""));
        let arguments: Arguments = &[
            (&id, Type::TEXT),
            (&token, Type::UUID),
            (&outcome.code, Type::TEXT),
            (&status, Type::TEXT),
            (&outcome.result, Type::JSONB),
            (&outcome.count_try, Type::BOOL),
        ];
        match self.call(query, arguments).await {
            // JSON that the server cannot store, with a \u0000 for one. The next try would have no other.
            Err(error)
                if outcome.result.is_some()
                    && sqlstate(&error).is_some_and(|code| code.starts_with("22")) =>
            {
                eprintln!("{id}: its result cannot be stored: {error}");
                let status = format!("its result cannot be stored: {}", message(&error));
                return Box::pin(self.give(id, token, Outcome::aborted(status))).await;
            }
            Ok(rows) => eprintln!("{id}: {}", rows[0].get::<_, &str>(0)),
            // Cancelled, deleted, taken over, or returned by us and only the answer was lost.
            Err(error) if matches!(sqlstate(&error), Some("TQ001" | "TQ003")) => {
                eprintln!("{id}: dropped, it is not ours any more");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Ends many performances, and takes up to so many other tasks, with one call; a bad token spoils only its own row.
    pub async fn give_and_own(
        &mut self,
        mut returns: Vec<(String, Uuid, Outcome)>,
        number: i32,
    ) -> Result<Vec<Task>, Error> {
        let elements: Vec<Value> = returns
            .iter()
            .map(|(id, token, outcome)| {
                json!({
                    "task_id": id, "token": token.to_string(), "status_code": outcome.code, "result": outcome.result,
                    "status": outcome.status.as_ref().map(|status| status.replace('\0', "")),
                    "count_try": outcome.count_try,
                })
            })
            .collect();
        let query = "SELECT task_id, token, action, body, num_tries, sqlstate \
                       FROM taskq.return_and_own_tasks($1, $2, $3, $4, $5 * interval '1 second')";
        let (actor, actions, lease) = (self.actor.clone(), self.actions.clone(), self.lease.as_secs_f64());
        let arguments: Arguments = &[
            (&actor, Type::TEXT),
            (&Value::from(elements), Type::JSONB),
            (&number, Type::INT4),
            (&actions, Type::TEXT_ARRAY),
            (&lease, Type::FLOAT8),
        ];
        match self.call(query, arguments).await {
            Ok(rows) => {
                let (refused, tasks): (Vec<&Row>, Vec<&Row>) =
                    rows.iter().partition(|row| row.get::<_, Option<&str>>(5).is_some());
                for row in refused {
                    // TQ001, TQ003: cancelled, deleted, taken over, or returned by us and only the answer was lost.
                    eprintln!(
                        "{}: dropped, it is not ours any more ({})",
                        row.get::<_, &str>(0),
                        row.get::<_, &str>(5)
                    );
                }
                Ok(tasks.into_iter().map(Task::of).collect())
            }
            // One of the results cannot be stored; alone it is found out.
            Err(error) if sqlstate(&error).is_some_and(|code| code.starts_with("22")) => {
                for (id, token, outcome) in returns.drain(..) {
                    self.give(&id, token, outcome).await?;
                }
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
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
            sleep(Duration::from_secs_f64(delay * rand::random_range(0.5..1.5))).await;
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
    // It ends with the connection; the next call of the client then hears of it.
    tokio::spawn(connection);
    Ok(client)
}

/// The server's code for an error, if it is one of the server's.
fn sqlstate(error: &Error) -> Option<&str> {
    Some(error.downcast_ref::<tokio_postgres::Error>()?.code()?.code())
}

/// What the server says of an error, if it is one of the server's.
fn message(error: &Error) -> String {
    let answer = error.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.as_db_error());
    answer.map_or_else(|| error.to_string(), |answer| answer.message().to_owned())
}

/// Whether an error is the loss of the connection, not an answer; or that of a standby (25006), since a failover or not yet
/// promoted: another connection may find the primary.
fn lost(error: &Error) -> bool {
    sqlstate(error).is_none_or(|code| {
        code.starts_with("08") || code.starts_with("57P") || ["53300", "25006"].contains(&code)
    })
}

/// A number of seconds from the environment.
pub fn seconds(name: &str, default: f64) -> Duration {
    let value = env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    Duration::from_secs_f64(value)
}
