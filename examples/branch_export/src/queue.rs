//! The queue as a worker sees it: a connection, and the few calls of taskq that this program needs.

use std::time::Duration;

use anyhow::{Context, Result};
use postgres::types::ToSql;
use postgres::{Client, Config, GenericClient, NoTls, Statement, Transaction};
use serde_json::Value;
use uuid::Uuid;

use crate::tasks::Request;

const OWN: &str = "
    SELECT owned.task_id, owned.token, owned.action, owned.body, owned.num_tries,
           extract(epoch FROM owned.action_deadline - clock_timestamp())::float8,
           nextval('branch_export.tick'), clock_timestamp()::text,
           (owned.action_deadline - $4::text::interval)::text
      FROM taskq.own_tasks($1, $2, $3, $4::text::interval, wait => $5::text::interval) AS owned";

const EXTEND: &str = "
    SELECT extended.task_id, extended.owned
      FROM taskq.extend_tasks_ownership($1, $2, $3, $4::text::interval) AS extended";

const RECORD: &str = "
    INSERT INTO branch_export.ledger (export, task_id, action, object, actor, num_try, began, began_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::timestamptz)";

const RETURN: &str = "SELECT taskq.return_task($1, $2, 'completed', status => $3, children => $4)::text";

/// What is settled since this performance began is not of an export before; the deadline is by the clock that settles.
const FORGET: &str = "
    SELECT taskq.delete_tasks($1, settled_until => $2::text::timestamptz)";

const GIVE_BACK: &str = "
    SELECT taskq.return_task($1, $2, 'pending', status => $3, retry_after => '1 second')::text";

/// A performance of a task: what `own_tasks` grants.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The task.
    pub id: String,
    /// Names this performance; every later call about the task must show it.
    pub token: Uuid,
    /// What to do.
    pub action: String,
    /// With what.
    pub body: String,
    /// How often it has been tried, this time included.
    pub num_tries: i32,
    /// How long from now it is ours without a sign of life.
    pub left: Duration,
    /// The moment it was granted, in the demo's own count of moments ...
    pub began: i64,
    /// ... by the clock of the server that is asked ...
    pub began_at: String,
    /// ... and by that of the server that has the task.
    pub granted_at: String,
}

/// How a task ended.
#[derive(Clone, Debug)]
pub struct Settled {
    /// `completed` or `aborted`.
    pub code: String,
    /// What its worker, or the queue, said about it.
    pub status: String,
}

/// A connection to the queue under an actor's name.
pub struct Queue {
    client: Client,
    actor: String,
    /// The database has no queue, but hands each call to a server that has (examples/sharding).
    routed: bool,
}

impl Queue {
    /// Connects to the database of this URL, or to the one that the usual environment variables name.
    pub fn connect(url: Option<&str>, actor: &str) -> Result<Self> {
        let mut config = match url {
            Some(url) => url.parse().context("cannot read --url")?,
            None => from_environment()?,
        };
        // The supervisor finds a worker's session by this.
        config.application_name(actor);
        let mut client = config.connect(NoTls).context("cannot connect to the database")?;
        let routed = client.query_one("SELECT to_regnamespace('taskq_router') IS NOT NULL", &[])?.get(0);
        Ok(Self { client, actor: actor.to_owned(), routed })
    }

    /// Whether the tasks are on other servers, which know nothing of the transactions of this connection.
    pub fn routed(&self) -> bool {
        self.routed
    }

    /// Whether this error says that one of those servers is away, and the connection is as good as before.
    pub fn is_away(&self, error: &anyhow::Error) -> bool {
        self.routed && !self.is_closed() && sqlstate(error).is_some_and(|state| state.starts_with("08"))
    }

    /// The connection, for what is not the queue's business.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// True once the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Prepares the statement of [`Self::own`], to be kept by a worker.
    pub fn prepare_own(&mut self) -> Result<Statement> {
        self.client.prepare(OWN).context("cannot prepare own_tasks")
    }

    /// Takes up to `most` tasks, and waits a while if there is none.
    pub fn own(
        &mut self,
        statement: &Statement,
        most: i32,
        actions: &[&str],
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<Grant>> {
        let rows = self
            .client
            .query(statement, &[&self.actor, &most, &actions, &interval(lease), &interval(wait)])
            .context("own_tasks failed")?;
        let grant = |row: postgres::Row| -> Result<Grant> {
            let left: Option<f64> = row.try_get(5)?;
            Ok(Grant {
                id: row.try_get(0)?,
                token: row.try_get(1)?,
                action: row.try_get(2)?,
                body: row.try_get::<_, Option<String>>(3)?.unwrap_or_default(),
                num_tries: row.try_get(4)?,
                left: Duration::from_secs_f64(left.unwrap_or_default().max(0.0)),
                began: row.try_get(6)?,
                began_at: row.try_get(7)?,
                granted_at: row.try_get::<_, Option<String>>(8)?.unwrap_or_default(),
            })
        };
        rows.into_iter().map(grant).collect()
    }

    /// Moves the deadline of these tasks; returns those that are no longer ours.
    pub fn extend(&mut self, held: &[(String, Uuid)], lease: Duration) -> Result<Vec<String>> {
        let (ids, tokens): (Vec<&str>, Vec<Uuid>) =
            held.iter().map(|(id, token)| (id.as_str(), *token)).unzip();
        let rows = self
            .client
            .query(EXTEND, &[&self.actor, &ids, &tokens, &interval(lease)])
            .context("extend_tasks_ownership failed")?;
        Ok(rows.into_iter().filter(|row| !row.get::<_, bool>(1)).map(|row| row.get(0)).collect())
    }

    /// Does what follows from the work of a task, writes it into the ledger, and returns the task as completed.
    ///
    /// One transaction does all of it: a token that is no longer the last one (`TQ001`) fails and takes with it everything
    /// done in it, so no work is ever recorded twice.
    ///
    /// Behind a router the task is on another server, which commits the return for itself. So what is here is committed
    /// first, and may be there twice, once for each performance; what becomes of the tasks is all in the one call that
    /// returns this one. A worker that dies in between has done nothing that the next one does not do again.
    pub fn complete(
        &mut self,
        grant: &Grant,
        object: &str,
        work: impl FnOnce(&mut Work<'_>) -> Result<Done>,
    ) -> Result<()> {
        let Grant { id, action, num_tries, began, began_at, .. } = grant;
        let (status, children) = {
            let transaction = self.client.transaction()?;
            let mut all = Work { transaction, grant, routed: self.routed, children: None };
            let Done { export, status } = work(&mut all)?;
            let record: [&(dyn ToSql + Sync); 8] =
                [&export, id, action, &object, &self.actor, num_tries, began, began_at];
            all.transaction.execute(RECORD, &record)?;
            if !self.routed {
                give(&mut all.transaction, grant, &status, all.children.as_ref())?;
            }
            let Work { transaction, children, .. } = all;
            transaction.commit()?;
            (status, children)
        };
        if self.routed {
            give(&mut self.client, grant, &status, children.as_ref())?;
        }
        Ok(())
    }

    /// Gives a task back, to be tried again a second later, if it has tries left.
    pub fn give_back(&mut self, grant: &Grant, status: &str) -> Result<String> {
        Ok(self.client.query_one(GIVE_BACK, &[&grant.id, &grant.token, &status])?.get(0))
    }

    /// Sleeps until a task is settled, or the time is up.
    pub fn wait_for_task(&mut self, id: &str, timeout: Duration) -> Result<Option<Settled>> {
        let row = self.client.query_opt(
            "SELECT status_code::text, status FROM taskq.wait_for_task($1, $2::text::interval)",
            &[&id, &interval(timeout)],
        )?;
        let settled = |row: postgres::Row| Settled {
            code: row.get(0),
            status: row.get::<_, Option<_>>(1).unwrap_or_default(),
        };
        Ok(row.map(settled))
    }
}

/// What is said of a task that is done.
pub struct Done {
    /// The export that it was for.
    pub export: i64,
    /// Its status.
    pub status: String,
}

/// What follows from the work of a task.
pub struct Work<'a> {
    transaction: Transaction<'a>,
    grant: &'a Grant,
    routed: bool,
    /// The tasks that come with the return.
    children: Option<Value>,
}

impl Work<'_> {
    /// Gives the request of this task the number of an export.
    pub fn new_export(&mut self, request: &Request) -> Result<i64> {
        let row = self.transaction.query_one(
            "INSERT INTO branch_export.export (request, branch, commit) VALUES ($1, $2, $3)
             ON CONFLICT (request) DO UPDATE SET branch = excluded.branch RETURNING export",
            &[&request.request, &request.branch, &request.commit],
        )?;
        Ok(row.get(0))
    }

    /// Writes down how many tasks an export has, for the progress line.
    pub fn planned(&mut self, export: i64, tasks: usize) -> Result<()> {
        self.transaction.execute(
            "UPDATE branch_export.export SET planned = $2 WHERE export = $1",
            &[&export, &i64::try_from(tasks)?],
        )?;
        Ok(())
    }

    /// Inserts tasks.
    pub fn insert_tasks(&mut self, tasks: Value) {
        self.children = Some(tasks);
    }

    /// Replaces tasks of an export before. They are settled.
    pub fn replace_tasks(&mut self, tasks: Value) -> Result<()> {
        if self.routed {
            // Two calls are two transactions, and a worker that stalls between them is not to harm the next one: what
            // goes is what was settled before this performance, and what comes comes with its return.
            let ids: Vec<&str> =
                tasks.as_array().into_iter().flatten().filter_map(|task| task["id"].as_str()).collect();
            self.transaction.execute(FORGET, &[&ids, &self.grant.granted_at])?;
            self.children = Some(tasks);
        } else {
            self.transaction.execute("SELECT count(*) FROM taskq.replace_tasks($1)", &[&tasks])?;
        }
        Ok(())
    }
}

fn give(
    client: &mut impl GenericClient,
    grant: &Grant,
    status: &str,
    children: Option<&Value>,
) -> Result<()> {
    client.query_one(RETURN, &[&grant.id, &grant.token, &status, &children])?;
    Ok(())
}

/// The SQLSTATE of the Postgres error in here, if there is one.
pub fn sqlstate(error: &anyhow::Error) -> Option<&str> {
    error.chain().find_map(|cause| cause.downcast_ref::<postgres::Error>()?.code()).map(|state| state.code())
}

/// A duration as the text of an interval.
pub fn interval(duration: Duration) -> String {
    format!("{} microseconds", duration.as_micros())
}

/// The `postgres` crate does not read libpq's variables; these are the ones a local setup needs.
fn from_environment() -> Result<Config> {
    let mut config = Config::new();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    config.host(variable("PGHOST").as_deref().unwrap_or("/var/run/postgresql"));
    if let Some(port) = variable("PGPORT") {
        config.port(port.parse().context("PGPORT is not a port")?);
    }
    let user = variable("PGUSER").or_else(|| variable("USER")).unwrap_or_else(|| "postgres".into());
    config.dbname(variable("PGDATABASE").as_deref().unwrap_or(&user)).user(&user);
    if let Some(password) = variable("PGPASSWORD") {
        config.password(password);
    }
    Ok(config)
}
