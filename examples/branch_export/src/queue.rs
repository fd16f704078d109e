//! The queue as a worker sees it: a connection, and the few calls of taskq that this program needs.

use std::time::Duration;

use anyhow::{Context, Result};
use postgres::{Client, Config, NoTls, Statement, Transaction};
use serde_json::Value;
use uuid::Uuid;

use crate::tasks::Request;

const OWN: &str = "
    SELECT owned.task_id, owned.token, owned.action, owned.body, owned.num_tries,
           extract(epoch FROM owned.action_deadline - clock_timestamp())::float8,
           nextval('branch_export.tick'), clock_timestamp()::text
      FROM taskq.own_tasks($1, $2, $3, $4::text::interval, wait => $5::text::interval) AS owned";

const EXTEND: &str = "
    SELECT extended.task_id, extended.owned
      FROM taskq.extend_tasks_ownership($1, $2, $3, $4::text::interval) AS extended";

const RECORD: &str = "
    INSERT INTO branch_export.ledger (export, task_id, action, object, actor, num_try, began, began_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::timestamptz)";

const RETURN: &str = "SELECT taskq.return_task($1, $2, 'completed', status => $3)::text";

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
    /// ... and by the server's clock.
    pub began_at: String,
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
        let client = config.connect(NoTls).context("cannot connect to the database")?;
        Ok(Self { client, actor: actor.to_owned() })
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

    /// Opens the transaction in which a task is returned.
    pub fn begin<'a>(&'a mut self, grant: &'a Grant) -> Result<Work<'a>> {
        Ok(Work { transaction: self.client.transaction()?, actor: &self.actor, grant })
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

/// The transaction in which a task is returned: all that follows from its work, or nothing, becomes true with it.
pub struct Work<'a> {
    transaction: Transaction<'a>,
    actor: &'a str,
    grant: &'a Grant,
}

impl Work<'_> {
    /// Gives the request of this task the number of an export.
    pub fn new_export(&mut self, request: &Request) -> Result<i64> {
        let row = self.transaction.query_one(
            "INSERT INTO branch_export.export (request, branch, commit) VALUES ($1, $2, $3) RETURNING export",
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
    pub fn insert_tasks(&mut self, tasks: &Value) -> Result<()> {
        self.transaction.execute("SELECT count(*) FROM taskq.insert_tasks($1)", &[tasks])?;
        Ok(())
    }

    /// Replaces tasks.
    pub fn replace_tasks(&mut self, tasks: &Value) -> Result<()> {
        self.transaction.execute("SELECT count(*) FROM taskq.replace_tasks($1)", &[tasks])?;
        Ok(())
    }

    /// Writes the work into the ledger, returns the task as completed, and commits.
    ///
    /// A token that is no longer the last one (`TQ001`) fails here, and takes with it everything done in the
    /// transaction: no work is ever recorded twice.
    pub fn complete(mut self, export: i64, object: &str, status: &str) -> Result<()> {
        let Grant { id, token, action, num_tries, began, began_at, .. } = self.grant;
        self.transaction
            .execute(RECORD, &[&export, id, action, &object, &self.actor, num_tries, began, began_at])?;
        self.transaction.query_one(RETURN, &[id, token, &status])?;
        Ok(self.transaction.commit()?)
    }
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
