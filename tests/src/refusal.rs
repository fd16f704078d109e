//! A refused call: all three parts of the error, nothing changed, and the connection lives on.

use postgres::Error;
use postgres::error::DbError;
use postgres::types::ToSql;

use crate::session::Session;

/// Runs a query that the queue must refuse with this SQLSTATE, and hands back the error.
///
/// Where the contract leaves a choice, the SQLSTATEs are separated by `|`. `naming` must occur in the message: it
/// names the thing that is refused.
///
/// # Panics
/// If the call works, fails otherwise, lacks DETAIL or HINT, changes a stored row, or costs the connection.
pub fn refused(
    session: &mut Session,
    sqlstate: &str,
    naming: &str,
    query: &str,
    params: &[&(dyn ToSql + Sync)],
) -> DbError {
    let before = state_of_all(session);
    let error = match session.query(query, params) {
        Ok(rows) => panic!("{query} must be refused with {sqlstate}, but gave {} rows", rows.len()),
        Err(error) => error,
    };
    let error =
        error.as_db_error().unwrap_or_else(|| panic!("{query} cost the connection: {error:?}")).clone();
    assert!(
        sqlstate.split('|').any(|code| code == error.code().code()),
        "{query} must be {sqlstate}: {error:?}"
    );
    assert!(error.message().contains(naming), "the message of {query} must name {naming:?}: {error:?}");
    assert!(error.detail().is_some_and(|detail| !detail.is_empty()), "{query}: no DETAIL in {error:?}");
    assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{query}: no HINT in {error:?}");
    let pid = session.pid();
    assert_eq!(session.one::<i32>("SELECT pg_backend_pid()"), pid, "the backend lives on after {query}");
    let after = state_of_all(session);
    assert!(before == after, "{query} was refused, but changed the state:\n{before:#?}\nto\n{after:#?}");
    error
}

/// The SQLSTATE of a server error.
pub fn sqlstate(error: &Error) -> &str {
    error.code().unwrap_or_else(|| panic!("not an error of the server: {error:?}")).code()
}

/// Every row of every table of the extension, whatever the tables are, in an order that only depends on the rows.
pub fn state_of_all(session: &mut Session) -> Vec<String> {
    let tables: Vec<String> = session.all(
        "SELECT format('SELECT %L || '' '' || to_jsonb(r)::text FROM %s AS r', c.relname, c.oid::regclass) \
         FROM pg_class c WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY c.relname",
    );
    let mut rows: Vec<String> = tables.iter().flat_map(|table| session.all::<String>(table)).collect();
    rows.sort();
    rows
}
