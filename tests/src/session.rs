//! One connection, with methods for the operations that many tests need.
//!
//! Methods that give an [`Answer`] return what the server said, an error included: the tests decide which of the two they
//! expect. Intervals and status codes are given as text, in the spelling that a client in any language would use.

use std::ops::{Deref, DerefMut};

use chrono::{DateTime, Utc};
use postgres::types::{FromSqlOwned, ToSql};
use postgres::{Client, Config, Error, NoTls, Row};
use serde_json::Value;
use uuid::Uuid;

/// What the server answered.
pub type Answer<T> = Result<T, Error>;

/// One connection; everything that [`Client`] can do, and operations of the queue.
pub struct Session {
    client: Client,
    pid: i32,
}

/// A row of `own_tasks`.
#[derive(Clone, Debug)]
pub struct Grant {
    pub task_id: String,
    pub token: Uuid,
    pub action: String,
    pub body: Option<String>,
    pub num_tries: i32,
    pub num_failures: i32,
    pub action_deadline: Option<DateTime<Utc>>,
}

/// A row of `wait_for_task`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    pub task_id: String,
    pub status_code: String,
    pub status: Option<String>,
    pub result: Option<Value>,
}

/// A row of the view `taskq.tasks`: some of the columns that the contract names.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub id: String,
    pub action: String,
    pub body: Option<String>,
    pub status_code: String,
    pub state: String,
    pub status: Option<String>,
    pub num_tries: i32,
    pub max_tries: Option<i32>,
    pub num_signals: i32,
    pub total_dependencies: i32,
    pub num_failures: i32,
    pub priority: i32,
    pub actor_id: Option<String>,
    pub action_deadline: Option<DateTime<Utc>>,
    pub result: Option<Value>,
}

/// What a worker says that gives a task back for others.
pub const AT_ONCE: &str = "retry_after => '0'";

const TASK_COLUMNS: &str = "id, action, body, status_code::text, state::text, status, num_tries, max_tries, \
     num_signals, total_dependencies, num_failures, priority, actor_id, action_deadline, result";

impl Session {
    /// Wraps an open connection.
    pub fn new(mut client: Client) -> Session {
        let pid = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
        Session { client, pid }
    }

    /// Opens a connection, where there may be no server to answer.
    pub fn open(config: &Config) -> Answer<Session> {
        let mut client = config.connect(NoTls)?;
        let pid = client.query_one("SELECT pg_backend_pid()", &[])?.get(0);
        Ok(Session { client, pid })
    }

    /// The process id of this connection's backend.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Runs statements without results that must work.
    pub fn run(&mut self, statements: &str) {
        self.client.batch_execute(statements).unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    }

    /// The single value of a query that must work.
    pub fn one<T: FromSqlOwned>(&mut self, query: &str) -> T {
        self.client.query_one(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}")).get(0)
    }

    /// The first column of a query that must work.
    pub fn all<T: FromSqlOwned>(&mut self, query: &str) -> Vec<T> {
        let rows = self.client.query(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// How many pages a query reads.
    pub fn pages(&mut self, query: &str) -> i64 {
        let plan: Value = self.one(&format!("EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) {query}"));
        let of = |what: &str| plan[0]["Plan"][what].as_i64().unwrap_or(0);
        of("Shared Hit Blocks") + of("Shared Read Blocks")
    }

    /// How many pages a claim of one task reads, which is rolled back.
    pub fn pages_of_a_claim(&mut self, action: &str) -> i64 {
        self.run("BEGIN");
        let pages = self.pages(&format!("SELECT * FROM taskq.own_tasks('w', 1, '{{{action}}}')"));
        self.run("ROLLBACK");
        pages
    }

    /// `insert_tasks`, the ids in the order in which they came.
    pub fn insert(&mut self, tasks: Value) -> Answer<Vec<String>> {
        self.ids("SELECT * FROM taskq.insert_tasks($1)", &[&tasks])
    }

    /// `insert_tasks` with further arguments as SQL, such as `on_conflict => 'skip'`.
    pub fn insert_with(&mut self, tasks: Value, arguments: &str) -> Answer<Vec<String>> {
        self.ids(&format!("SELECT * FROM taskq.insert_tasks($1, {arguments})"), &[&tasks])
    }

    /// `replace_tasks`.
    pub fn replace(&mut self, tasks: Value) -> Answer<Vec<String>> {
        self.ids("SELECT * FROM taskq.replace_tasks($1)", &[&tasks])
    }

    /// `own_tasks` with the default lease.
    pub fn own(&mut self, actor: &str, max_tasks: i32, actions: &[&str]) -> Answer<Vec<Grant>> {
        self.own_with(actor, max_tasks, actions, "lease => NULL")
    }

    /// `own_tasks` with further arguments as SQL, such as `lease => '1 minute'`.
    pub fn own_with(
        &mut self,
        actor: &str,
        max_tasks: i32,
        actions: &[&str],
        arguments: &str,
    ) -> Answer<Vec<Grant>> {
        let query = format!(
            "SELECT task_id, token, action, body, num_tries, num_failures, action_deadline \
             FROM taskq.own_tasks($1, $2, $3, {arguments})"
        );
        Ok(self.client.query(&query, &[&actor, &max_tasks, &actions])?.iter().map(grant).collect())
    }

    /// The one task that `own_tasks` grants; it is a failure of the test if there is none.
    pub fn own_one(&mut self, action: &str) -> Grant {
        self.own_one_with(action, "lease => NULL")
    }

    /// [`Session::own_one`] with further arguments as SQL.
    pub fn own_one_with(&mut self, action: &str, arguments: &str) -> Grant {
        let mut grants = self.own_with("worker", 1, &[action], arguments).unwrap();
        assert_eq!(grants.len(), 1, "one task of action {action} is there to own");
        grants.remove(0)
    }

    /// `extend_tasks_ownership`: for each pair, whether it is still held.
    pub fn extend(&mut self, actor: &str, held: &[(&str, Uuid)], lease: &str) -> Answer<Vec<(String, bool)>> {
        let (ids, tokens): (Vec<&str>, Vec<Uuid>) = held.iter().copied().unzip();
        let rows = self.client.query(
            "SELECT task_id, owned FROM taskq.extend_tasks_ownership($1, $2, $3, $4::text::interval)",
            &[&actor, &ids, &tokens, &lease],
        )?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// `return_task`: the code that the task really got. What is given back comes back at once, and does not wait for the
    /// back-off of the setting; see `give_with` for the call that says nothing of it.
    pub fn give(&mut self, task_id: &str, token: Uuid, status_code: &str) -> Answer<String> {
        let arguments = if status_code == "pending" { AT_ONCE } else { "status => NULL" };
        self.give_with(task_id, token, status_code, arguments)
    }

    /// `return_task` with further arguments as SQL, such as `retry_after => '1 minute'`.
    pub fn give_with(
        &mut self,
        task_id: &str,
        token: Uuid,
        status_code: &str,
        arguments: &str,
    ) -> Answer<String> {
        let query =
            format!("SELECT taskq.return_task($1, $2, $3::text::taskq.status_code, {arguments})::text");
        Ok(self.client.query_one(&query, &[&task_id, &token, &status_code])?.get(0))
    }

    /// Completes a granted task, which must work.
    pub fn complete(&mut self, grant: &Grant) {
        assert_eq!(self.give(&grant.task_id, grant.token, "completed").unwrap(), "completed");
    }

    /// Owns the next task of the action and settles it; its id.
    pub fn perform(&mut self, action: &str, status_code: &str) -> String {
        let grant = self.own_one(action);
        assert_eq!(self.give(&grant.task_id, grant.token, status_code).unwrap(), status_code);
        grant.task_id
    }

    /// `wait_for_task`.
    pub fn wait(&mut self, task_id: &str, timeout: &str) -> Answer<Option<Settled>> {
        let row = self.client.query_opt(
            "SELECT task_id, status_code::text, status, result FROM taskq.wait_for_task($1, $2::text::interval)",
            &[&task_id, &timeout],
        )?;
        Ok(row.map(|row| Settled {
            task_id: row.get(0),
            status_code: row.get(1),
            status: row.get(2),
            result: row.get(3),
        }))
    }

    /// `add_dependencies` in its JSON form.
    pub fn depend(&mut self, dependencies: Value) -> Answer<i64> {
        Ok(self.client.query_one("SELECT taskq.add_dependencies($1::jsonb)", &[&dependencies])?.get(0))
    }

    /// `add_dependencies` for one edge with the default condition.
    pub fn depend_on(&mut self, after: &str, run: &str) -> Answer<i64> {
        let query = "SELECT taskq.add_dependencies($1::text[], $2::text[])";
        Ok(self.client.query_one(query, &[&[after].as_slice(), &[run].as_slice()])?.get(0))
    }

    /// `delete_tasks`: how many went.
    pub fn delete(&mut self, ids: &[&str]) -> Answer<i64> {
        Ok(self.client.query_one("SELECT taskq.delete_tasks($1)", &[&ids])?.get(0))
    }

    /// `cancel_tasks`: how many were not settled yet.
    pub fn cancel(&mut self, ids: &[&str]) -> Answer<i64> {
        Ok(self.client.query_one("SELECT taskq.cancel_tasks($1)", &[&ids])?.get(0))
    }

    /// The row of a task in `taskq.tasks`, if there is such a task.
    pub fn task(&mut self, id: &str) -> Option<Task> {
        let query = format!("SELECT {TASK_COLUMNS} FROM taskq.tasks WHERE id = $1");
        self.client.query_opt(&query, &[&id]).unwrap().as_ref().map(task)
    }

    /// Every row of `taskq.tasks`, by id.
    pub fn tasks(&mut self) -> Vec<Task> {
        let query = format!("SELECT {TASK_COLUMNS} FROM taskq.tasks ORDER BY id COLLATE \"C\"");
        self.client.query(&query, &[]).unwrap().iter().map(task).collect()
    }

    /// The `state` of a task, or `gone`.
    pub fn state(&mut self, id: &str) -> String {
        self.task(id).map_or_else(|| "gone".to_owned(), |task| task.state)
    }

    /// What `taskq.check()` complains of.
    pub fn broken(&mut self) -> Vec<String> {
        self.all("SELECT c::text FROM taskq.check() AS c")
    }

    /// Sets the queue's clock for this session; `None` is the real one.
    pub fn set_now(&mut self, now: Option<&str>) {
        self.run(&format!("SET taskq.now = '{}'", now.unwrap_or_default()));
    }

    fn ids(&mut self, query: &str, params: &[&(dyn ToSql + Sync)]) -> Answer<Vec<String>> {
        Ok(self.client.query(query, params)?.iter().map(|row| row.get(0)).collect())
    }
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

fn grant(row: &Row) -> Grant {
    Grant {
        task_id: row.get("task_id"),
        token: row.get("token"),
        action: row.get("action"),
        body: row.get("body"),
        num_tries: row.get("num_tries"),
        num_failures: row.get("num_failures"),
        action_deadline: row.get("action_deadline"),
    }
}

fn task(row: &Row) -> Task {
    Task {
        id: row.get("id"),
        action: row.get("action"),
        body: row.get("body"),
        status_code: row.get("status_code"),
        state: row.get("state"),
        status: row.get("status"),
        num_tries: row.get("num_tries"),
        max_tries: row.get("max_tries"),
        num_signals: row.get("num_signals"),
        total_dependencies: row.get("total_dependencies"),
        num_failures: row.get("num_failures"),
        priority: row.get("priority"),
        actor_id: row.get("actor_id"),
        action_deadline: row.get("action_deadline"),
        result: row.get("result"),
    }
}
