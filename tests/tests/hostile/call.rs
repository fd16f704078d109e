//! One hostile call, and what may come of it.

use postgres::error::DbError;
use taskq_tests::Session;

/// The longest that all parts of a message may have together. What it repeats of a text is 300 characters at most.
const LONGEST: usize = 4_000;

/// Classes of errors that say that the input was bad: the queue's own, data exceptions, constraint (the domains), syntax, names and
/// rights, limits, what is not supported.
const CLASSES: &[&str] = &["TQ", "22", "42", "54", "0A"];

/// A procedure that commits, in a block; a domain's check.
const OTHERS: &[&str] = &["2D000", "23514"];

/// The caller.
#[derive(Clone, Copy, PartialEq)]
pub enum Caller {
    Plain,
    /// A function that may sleep: it is not waited for.
    Sleeper,
    /// A function that is for the extension itself: a caller that may call it at all is told less nicely.
    Inside,
    /// A program that knows the types only: it is not waited for, and what PostgreSQL itself says of its statements is its own.
    Smith,
}

/// What became of a call.
pub enum End {
    Worked,
    Refused(String),
}

/// Runs a call in a transaction that is rolled back, and looks at its error.
///
/// # Panics
/// If the server has gone, or the error is none that a caller should see.
pub fn hostile(session: &mut Session, call: &str, caller: Caller) -> End {
    let shown: String = call.chars().take(600).collect();
    session.run("BEGIN");
    if matches!(caller, Caller::Sleeper | Caller::Smith) {
        session.run("SET LOCAL statement_timeout = '100ms'");
    }
    let end = match session.simple_query(call) {
        Ok(_) => {
            // What is left of the time that a sleeper has would be the rollback's.
            session.simple_query("SET LOCAL statement_timeout = DEFAULT").ok();
            End::Worked
        }
        Err(error) => {
            let Some(error) = error.as_db_error() else { panic!("{shown}\ncost the connection: {error:?}") };
            readable(error, &shown, caller);
            End::Refused(error.code().code().to_owned())
        }
    };
    session.run("ROLLBACK");
    end
}

/// Whether it is an error for callers.
fn readable(error: &DbError, call: &str, caller: Caller) {
    let code = error.code().code();
    let asleep = matches!(caller, Caller::Sleeper | Caller::Smith) && code == "57014";
    let parts = [Some(error.message()), error.detail(), error.hint()];
    for trace in ["panicked", "unwrap", ".rs:", "src/", "internal error", "cache lookup", "unrecognized"] {
        let found = parts.iter().flatten().any(|part| part.contains(trace));
        assert!(!found, "{call}\nthe error tells of the inside: {error:?}");
    }
    // Where a caller cannot come, a constraint of a table may be the last to notice.
    let inside = caller == Caller::Inside && code.starts_with("23");
    // A MERGE of its own writing into a table of its own.
    let twice = caller == Caller::Smith && code == "21000" && error.message().starts_with("MERGE command");
    assert!(
        inside || CLASSES.contains(&&code[..2]) || OTHERS.contains(&code) || asleep || twice,
        "{call}\nfailed with {code}: {error:?}"
    );
    if caller == Caller::Inside {
        return;
    }
    let length: usize = parts.iter().flatten().map(|part| part.len()).sum();
    assert!(length <= LONGEST, "{call}\nan error of {length} bytes: {error:?}");
    assert!(error.message().lines().count() <= 3, "{call}\na message of many lines: {error:?}");
}
