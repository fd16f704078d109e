//! Names of actions and their numbers. A name has several numbers if transactions that overlap used it for the first
//! time, or if it was used again after it had been forgotten; see `sql/schema.sql`.

use std::collections::{BTreeSet, HashMap};

use pgrx::datum::Interval;

use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::table_changes::will_change;
use crate::store::action_setting::{Setting, action};
use crate::store::known_actions;
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
      VALUES (pg_catalog.nextval('taskq.action_no_seq'::pg_catalog.regclass), $1)
      ON CONFLICT (action_no) DO NOTHING RETURNING action_no",
);

/// A new number for a name. The sequence begins anew at its end: what is rolled back uses numbers up as well, so that one role could
/// have used up all. Those that are in use are passed over; one that was rolled back stands for nothing.
fn new_number(name: &str) -> i32 {
    loop {
        check_for_interrupts();
        if let Some(action_no) = INTERN.first(name) {
            return action_no;
        }
    }
}

/// A number that stands for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interned {
    /// The number that new tasks of the action have.
    pub(crate) action_no: i32,
    /// Whether the action is set to `notify`.
    pub(crate) notify: bool,
    /// Whether every task of it that has a group belongs into the lane of that.
    pub(crate) gives_lanes: bool,
    /// After how long a task that is not spontaneous expires, if it has not been granted (a signal: signalled) and says nothing
    /// about it.
    pub(crate) expires_in: Option<Interval>,
}

/// A number for each of the names, made where this transaction can see none that new tasks may have.
///
/// A name that another transaction is inserting is not waited for: it gets a second number.
pub(crate) fn intern<'a>(names: impl Iterator<Item = &'a str>) -> HashMap<String, Interned> {
    let names: BTreeSet<&str> = names.collect();
    let mut numbers: HashMap<String, Interned> = HashMap::with_capacity(names.len());
    let mut told = false;
    for known in known_actions::named(names.into_iter()) {
        let found = known.in_use.or_else(|| {
            if !std::mem::replace(&mut told, true) {
                will_change(&action::TABLE);
            }
            wake::new_number(&known.name);
            Some(new_number(&known.name))
        });
        if let Some(action_no) = found {
            let Setting { notify, expires_in, .. } = known.setting;
            let gives_lanes = known.setting.gives_lanes();
            numbers.insert(known.name.clone(), Interned { action_no, notify, gives_lanes, expires_in });
        }
    }
    numbers
}

static FORGET: Statement<&[i32]> =
    Statement::new(c"UPDATE taskq.action a SET forgotten = true WHERE a.action_no = ANY ($1)");

/// No insertion that sees this takes these numbers for new tasks.
pub(crate) fn forget(action_nos: Vec<i32>) {
    will_change(&action::TABLE);
    FORGET.execute(action_nos);
}
