//! Names of actions and their numbers. A name has several numbers if two transactions used it for the
//! first time at once; see `sql/schema.sql`.

use std::collections::{BTreeSet, HashMap};

use crate::pg::statement::Statement;
use crate::wake;

/// Not in an order: to have one by an index, each action there is would be compared with each of the names.
static NUMBERS: Statement<&[&str], i32> =
    Statement::new(c"SELECT a.action_no FROM taskq.action a WHERE a.name = ANY ($1)");

/// All numbers that stand for any of the names, in ascending order.
pub(crate) fn numbers(names: &[String]) -> Vec<i32> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut numbers: Vec<i32> = NUMBERS.query(names);
    numbers.sort_unstable();
    numbers
}

static LOOK_UP: Statement<&[&str], (String, i32, bool, bool)> = Statement::new(
    c"SELECT a.name, pg_catalog.min(a.action_no),
             COALESCE((SELECT s.notify FROM taskq.action_setting s WHERE s.name = a.name), false),
             COALESCE((SELECT s.fair OR s.max_per_group IS NOT NULL FROM taskq.action_setting s
                        WHERE s.name = a.name), false)
        FROM taskq.action a WHERE a.name = ANY ($1) AND NOT a.forgotten GROUP BY a.name",
);
static INTERN: Statement<&str, i32> = Statement::new(
    c"INSERT INTO taskq.action (action_no, name)
      VALUES (pg_catalog.nextval('taskq.action_no_seq'::pg_catalog.regclass), $1) RETURNING action_no",
);

static SETTINGS: Statement<&str, (bool, bool)> = Statement::new(
    c"SELECT s.notify, s.fair OR s.max_per_group IS NOT NULL FROM taskq.action_setting s WHERE s.name = $1",
);

/// A number that stands for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interned {
    pub(crate) action_no: i32,
    /// Whether the action is set to `notify`.
    pub(crate) notify: bool,
    /// Whether every task of it that has a group belongs into the lane of that.
    pub(crate) gives_lanes: bool,
}

/// A number for each of the names, made where there is none that this transaction can see.
///
/// Takes no lock and waits for nobody: a name that another transaction is inserting gets a second number.
pub(crate) fn intern<'a>(names: impl Iterator<Item = &'a str>) -> HashMap<String, Interned> {
    let names: BTreeSet<&str> = names.collect();
    let wanted: Vec<&str> = names.iter().copied().collect();
    let mut numbers: HashMap<String, Interned> = LOOK_UP
        .map(wanted, |(name, action_no, notify, gives_lanes)| {
            (name, Interned { action_no, notify, gives_lanes })
        })
        .into_iter()
        .collect();
    for name in names {
        if !numbers.contains_key(name) {
            if let Some(action_no) = INTERN.first(name) {
                let (notify, gives_lanes) = SETTINGS.first(name).unwrap_or((false, false));
                numbers.insert(name.to_owned(), Interned { action_no, notify, gives_lanes });
            }
            wake::new_number(name);
        }
    }
    numbers
}

pub(crate) static FORGET: Statement<&[i32]> =
    Statement::new(c"UPDATE taskq.action a SET forgotten = true WHERE a.action_no = ANY ($1)");
