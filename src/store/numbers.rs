//! Numbers of tasks and positions, ids and numbers.

use std::collections::HashMap;

use pgrx::pg_sys::{INT4OID, INT8ARRAYOID, TEXTARRAYOID};

use super::{decided, run};
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Statement, args};
use crate::pg::table::{self, Look};
use crate::pg::{clock, sequence};

static TAKE: Statement = Statement::new(
    c"SELECT pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass) FROM pg_catalog.generate_series(1, $1)",
    &[INT4OID],
);

/// `count` new numbers, ascending. The transaction has its id before it takes them.
pub(crate) fn take(count: usize) -> Vec<i64> {
    if count == 0 {
        return Vec::new();
    }
    assign_transaction_id();
    TAKE.query(args![count as i32], |row| row.need(1))
}

/// What the marks need of a look: how far positions have been taken by now, and up to where everything has ended.
pub(crate) fn look(look: &Look) -> decided::Look {
    decided::Look {
        last_position: sequence::last_value(c"position_seq"),
        files: (table::file_of(&run::TABLE), sequence::file_of(c"position_seq")),
        xmin: look.xmin(),
        at: clock::wall(),
    }
}

/// Uses the unique index on `id`; takes no lock.
static BY_ID: Statement = Statement::new(
    c"SELECT u.id, t.task_no
        FROM pg_catalog.unnest($1) AS u(id)
       CROSS JOIN LATERAL (SELECT t.task_no FROM taskq.task t WHERE t.id = u.id OFFSET 0) AS t",
    &[TEXTARRAYOID],
);

/// The numbers of those of the ids that are in the queue.
pub(crate) fn by_id(ids: &[&str]) -> HashMap<String, i64> {
    if ids.is_empty() {
        return HashMap::new();
    }
    BY_ID.query(args![ids], |row| (row.need::<String>(1), row.need::<i64>(2))).into_iter().collect()
}

static IDS: Statement =
    Statement::new(c"SELECT t.task_no, t.id FROM taskq.task t WHERE t.task_no = ANY ($1)", &[INT8ARRAYOID]);

/// The ids of tasks, by number.
pub(crate) fn ids(task_nos: &[i64]) -> HashMap<i64, String> {
    if task_nos.is_empty() {
        return HashMap::new();
    }
    IDS.query(args![task_nos], |row| (row.need(1), row.need(2))).into_iter().collect()
}
