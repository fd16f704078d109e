//! The demo's own book-keeping, in a schema of its own: what was done, by whom, between which two moments.
//!
//! Lines are only ever added to the ledger, in the transaction that returns the task they tell of. A moment (`tick`)
//! is a number of one sequence, drawn by the server when a task is granted and again when it is returned: if one task
//! could only begin after another had been returned, then its `began` is the greater number, whatever the clocks say.

use anyhow::Result;
use postgres::{Client, Row};

const SCHEMA: &str = "
    CREATE SCHEMA IF NOT EXISTS branch_export;
    CREATE SEQUENCE IF NOT EXISTS branch_export.tick;
    CREATE TABLE IF NOT EXISTS branch_export.arrival (
        request text PRIMARY KEY,
        tick bigint NOT NULL DEFAULT nextval('branch_export.tick')
    );
    CREATE TABLE IF NOT EXISTS branch_export.export (
        export bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        request text NOT NULL UNIQUE,
        branch text NOT NULL,
        commit text NOT NULL,
        planned bigint  -- tasks that start-export has inserted
    );
    CREATE TABLE IF NOT EXISTS branch_export.ledger (
        ended bigint PRIMARY KEY DEFAULT nextval('branch_export.tick'),
        ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        began bigint NOT NULL,
        began_at timestamptz NOT NULL,
        export bigint NOT NULL,
        task_id text NOT NULL,
        action text NOT NULL,
        object text NOT NULL,
        actor text NOT NULL,
        num_try int NOT NULL
    );
    CREATE INDEX IF NOT EXISTS ledger_export_idx ON branch_export.ledger (export, action);";

/// One line of the ledger: a performance that was returned as completed.
#[derive(Clone, Debug)]
pub struct Line {
    /// The task.
    pub task: String,
    /// Its action.
    pub action: String,
    /// The key of the object it was about, if any.
    pub object: String,
    /// Who performed it.
    pub actor: String,
    /// The moment it was granted.
    pub began: i64,
    /// The moment it was returned.
    pub ended: i64,
}

/// How far an export is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// The export's number.
    pub export: i64,
    /// Tasks in all, the two that precede the plan included; none while there is no plan.
    pub planned: Option<i64>,
    /// Tasks done.
    pub done: i64,
    /// Objects copied, of these.
    pub copied: i64,
}

/// Makes the tables, where they are not there yet.
pub fn create(client: &mut Client) -> Result<()> {
    Ok(client.batch_execute(SCHEMA)?)
}

/// How far the export of this request is; nothing while it has not begun.
pub fn extent(client: &mut Client, request: &str, copy: &str) -> Result<Option<Extent>> {
    let row = client.query_opt(
        "SELECT export.export, export.planned + 2, count(ledger.task_id),
                count(*) FILTER (WHERE ledger.action = $2)
           FROM branch_export.export LEFT JOIN branch_export.ledger USING (export)
          WHERE export.request = $1 GROUP BY export.export",
        &[&request, &copy],
    )?;
    let extent =
        |row: Row| Extent { export: row.get(0), planned: row.get(1), done: row.get(2), copied: row.get(3) };
    Ok(row.map(extent))
}

/// The ledger of one export.
pub fn lines(client: &mut Client, export: i64) -> Result<Vec<Line>> {
    let rows = client.query(
        "SELECT task_id, action, object, actor, began, ended
           FROM branch_export.ledger WHERE export = $1 ORDER BY ended",
        &[&export],
    )?;
    let line = |row: Row| Line {
        task: row.get(0),
        action: row.get(1),
        object: row.get(2),
        actor: row.get(3),
        began: row.get(4),
        ended: row.get(5),
    };
    Ok(rows.into_iter().map(line).collect())
}

/// The moment at which a request arrived.
pub fn arrival(client: &mut Client, request: &str) -> Result<i64> {
    let row = client.query_one("SELECT tick FROM branch_export.arrival WHERE request = $1", &[&request])?;
    Ok(row.get(0))
}
