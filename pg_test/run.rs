//! Calls a test in the server, from the test program: in a transaction that is rolled back.

use std::process::{Command, Output};

/// Runs a test in the database that `PGHOST`, `PGPORT` and `PGDATABASE` name, which has the extension, the library with the tests
/// in it, and a schema `tests`. With `expected` the test has to fail, with an error of these words.
///
/// # Errors
/// What the server said, if the test has failed.
pub fn run_test(name: &str, expected: Option<&str>, _settings: Vec<&'static str>) -> Result<(), Failure> {
    let function = format!(
        "CREATE OR REPLACE FUNCTION tests.{name}() RETURNS void LANGUAGE c AS '$libdir/taskq', '{name}_wrapper'"
    );
    let declared = psql(&[&function]);
    if !declared.status.success() {
        return Err(Failure(said(&declared)));
    }
    let done = psql(&["BEGIN", &format!("SELECT tests.{name}()"), "ROLLBACK"]);
    let said = said(&done);
    match expected {
        None if done.status.success() => Ok(()),
        Some(words) if !done.status.success() && message(&said).starts_with(words) => Ok(()),
        Some(words) => Err(Failure(format!("expected was the error {words:?}, and not:\n{said}"))),
        None => Err(Failure(said)),
    }
}

/// Shown as it is, over as many lines as it has.
pub struct Failure(String);

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Each of these statements by itself, on one connection, as long as none fails.
fn psql(statements: &[&str]) -> Output {
    let mut command = Command::new("psql");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-o", "/dev/null"]);
    for statement in statements {
        command.args(["-c", statement]);
    }
    command.output().expect("psql is on the path")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

/// The error's message: behind `ERROR:  XX000: `.
fn message(said: &str) -> &str {
    let error = said.split_once("ERROR:  ").map_or(said, |(_, error)| error);
    error.split_once(": ").map_or(error, |(_, message)| message)
}
