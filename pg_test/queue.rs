//! What the tests say to the queue. No tests here.

use pgrx::datum::DatumWithOid;
use pgrx::prelude::*;
use pgrx::{FromDatum, IntoDatum};

/// Runs a statement that must work.
pub fn run(sql: &str) {
    Spi::run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The first column of a query's rows; NULL is left out.
pub fn all<T: FromDatum + IntoDatum>(sql: &str) -> Vec<T> {
    all_with(sql, &[])
}

/// [`all`] with arguments.
pub fn all_with<T: FromDatum + IntoDatum>(sql: &str, arguments: &[DatumWithOid]) -> Vec<T> {
    Spi::connect_mut(|client| {
        let rows = client.update(sql, None, arguments).unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.filter_map(|row| row.get::<T>(1).unwrap_or_else(|error| panic!("{sql}: {error}"))).collect()
    })
}

/// The single value of a query, which may not be NULL.
pub fn one<T: FromDatum + IntoDatum>(sql: &str) -> T {
    let mut values = all(sql);
    assert_eq!(values.len(), 1, "values of {sql}");
    values.remove(0)
}

/// Sets the queue's clock for the rest of the test.
pub fn set_now(time: &str) {
    run(&format!("SET LOCAL taskq.now = '{time}'"));
}

/// `insert_tasks`, which must work.
pub fn insert(tasks: &str) -> Vec<String> {
    all_with("SELECT taskq.insert_tasks($1::jsonb)", &[tasks.into()])
}

/// A grant.
pub struct Grant {
    pub id: String,
    pub token: String,
}

/// `own_tasks`, with further arguments as SQL.
pub fn own_with(max_tasks: i32, actions: &str, arguments: &str) -> Vec<Grant> {
    let pairs: Vec<Vec<String>> = all(&format!(
        "SELECT ARRAY[task_id, token::text] FROM taskq.own_tasks('worker', {max_tasks}, '{{{actions}}}'{arguments})"
    ));
    pairs.into_iter().map(|pair| Grant { id: pair[0].clone(), token: pair[1].clone() }).collect()
}

/// Ids that `own_tasks` grants, in its order.
pub fn owned_ids(max_tasks: i32, actions: &str) -> Vec<String> {
    own_with(max_tasks, actions, "").into_iter().map(|grant| grant.id).collect()
}

/// The one task of this action that `own_tasks` grants.
pub fn own_one(action: &str) -> Grant {
    own_one_with(action, "")
}

/// [`own_one`] with further arguments as SQL.
pub fn own_one_with(action: &str, arguments: &str) -> Grant {
    let mut grants = own_with(1, action, arguments);
    assert_eq!(grants.len(), 1, "a task of action {action} is there to own");
    grants.remove(0)
}

impl Grant {
    /// The call of `return_task` for this grant; further arguments as SQL.
    pub fn return_call(&self, arguments: &str) -> String {
        format!("SELECT taskq.return_task('{}', '{}'{arguments})::text", self.id, self.token)
    }

    /// Returns the task with this code; the code that it really got. What is given back comes back at once.
    pub fn give(&self, code: &str) -> String {
        let at_once = if code == "pending" { ", retry_after => '0'" } else { "" };
        one(&self.return_call(&format!(", '{code}'{at_once}")))
    }
}

/// Owns the next task of the action and returns it with this code; its id.
pub fn perform(action: &str, code: &str) -> String {
    let grant = own_one(action);
    assert_eq!(grant.give(code), code);
    grant.id
}

/// The state of a task in `taskq.tasks`.
pub fn state(id: &str) -> String {
    column(id, "state")
}

/// A column of a task in `taskq.tasks`, as text.
pub fn column(id: &str, name: &str) -> String {
    let values: Vec<String> = all_with(
        &format!("SELECT COALESCE(({name})::text, 'NULL') FROM taskq.tasks WHERE id = $1"),
        &[id.into()],
    );
    assert_eq!(values.len(), 1, "tasks with the id {id}");
    values[0].clone()
}

/// What an error tells the client.
#[derive(Debug)]
pub struct Refusal {
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

/// Runs a statement in a subtransaction; `None` if it works.
pub fn attempt(statement: &str) -> Option<Refusal> {
    if one::<bool>("SELECT to_regprocedure('pg_temp.refusal(text)') IS NULL") {
        run("CREATE FUNCTION pg_temp.refusal(statement text) RETURNS text[] LANGUAGE plpgsql AS $$
             DECLARE
                 message text; detail text; hint text;
             BEGIN
                 EXECUTE statement;
                 RETURN NULL;
             EXCEPTION WHEN OTHERS THEN
                 GET STACKED DIAGNOSTICS
                     message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
                 RETURN ARRAY[SQLSTATE, message, detail, hint];
             END $$");
    }
    let parts: Vec<Vec<String>> = all_with("SELECT pg_temp.refusal($1)", &[statement.into()]);
    let [sqlstate, message, detail, hint] =
        <[String; 4]>::try_from(parts.into_iter().next()?).expect("four parts");
    Some(Refusal { sqlstate, message, detail, hint })
}

/// Runs a statement that must be refused. The refusal must have changed nothing and, where the code is one
/// of the queue's own, must say all that the contract asks for.
pub fn refusal(statement: &str) -> Refusal {
    let before = everything();
    let refusal = attempt(statement).unwrap_or_else(|| panic!("{statement} works"));
    assert_eq!(everything(), before, "{statement} was refused and has changed something");
    if refusal.sqlstate.starts_with("TQ") {
        let full = [&refusal.message, &refusal.detail, &refusal.hint].iter().all(|part| !part.is_empty());
        assert!(full, "{statement}: a part is missing: {refusal:?}");
    }
    refusal
}

/// The SQLSTATE with which a statement is refused.
pub fn refused(statement: &str) -> String {
    refusal(statement).sqlstate
}

/// What is stored of tasks, dependencies, entries and leases, as texts.
fn everything() -> Vec<String> {
    all("SELECT x FROM (SELECT t::text AS x FROM taskq.tasks AS t
                        UNION ALL SELECT d::text FROM taskq.dependencies AS d
                        UNION ALL SELECT r::text FROM taskq.run AS r
                        UNION ALL SELECT l::text FROM taskq.lease AS l) AS s ORDER BY x")
}
