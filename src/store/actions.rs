//! Names of actions and their numbers. A name has several numbers if two transactions used it for the
//! first time at once; see `sql/schema.sql`.

use std::collections::{BTreeSet, HashMap};

use crate::pg::statement::Statement;
use crate::pg::table::look;
use crate::store::action_setting;
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

static INTERN: Statement<&str, i32> = Statement::new(
    c"INSERT INTO taskq.action (action_no, name)
      VALUES (pg_catalog.nextval('taskq.action_no_seq'::pg_catalog.regclass), $1) RETURNING action_no",
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
    let mut numbers: HashMap<String, Interned> = HashMap::with_capacity(names.len());
    let known: Vec<_> = look(|look| names.iter().map(|name| action_setting::in_use(look, name)).collect());
    for (name, (mut found, notify, gives_lanes)) in names.into_iter().zip(known) {
        if found.is_none() {
            found = INTERN.first(name);
            wake::new_number(name);
        }
        if let Some(action_no) = found {
            numbers.insert(name.to_owned(), Interned { action_no, notify, gives_lanes });
        }
    }
    numbers
}

pub(crate) static FORGET: Statement<&[i32]> =
    Statement::new(c"UPDATE taskq.action a SET forgotten = true WHERE a.action_no = ANY ($1)");
