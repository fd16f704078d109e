//! The first block of SQL in README.md does what its comments promise.
//!
//! A promise is the comment behind the last line of a statement: the columns of a row separated by ` | `, rows by `, `.
//! A change of a name, a default or a result column fails here: the first thing that a newcomer types would be wrong.

use std::fs;

use postgres::SimpleQueryMessage;
use taskq_tests::{Db, Session};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");

#[test]
fn the_first_example_of_the_readme_keeps_its_promises() {
    let statements = statements(&first_block(&fs::read_to_string(README).unwrap()));
    assert!((5..=12).contains(&statements.len()), "about ten lines are promised: {statements:#?}");
    assert!(statements.iter().filter(|(_, promise)| promise.is_some()).count() >= 5, "{statements:#?}");

    // A database without the extension: the example creates it.
    let db = Db::empty();
    let mut session = db.connect();
    for (statement, promise) in statements {
        let result = result(&mut session, &statement);
        if let Some(promise) = promise {
            assert_eq!(result, promise, "{statement}");
        }
    }
}

/// The lines between the first fence that is exactly "```sql" and its end.
fn first_block(text: &str) -> String {
    let block = text.lines().skip_while(|line| *line != "```sql").skip(1).take_while(|line| *line != "```");
    block.collect::<Vec<_>>().join("\n")
}

/// Statements end at a line with a semicolon; what follows it in a comment is the promise.
fn statements(block: &str) -> Vec<(String, Option<String>)> {
    let mut statements = Vec::new();
    let mut statement = String::new();
    for line in block.lines() {
        let (code, comment) =
            line.split_once("--").map_or((line, None), |(code, comment)| (code, Some(comment)));
        statement.push_str(code.trim_end());
        statement.push('\n');
        if code.trim_end().ends_with(';') {
            statements
                .push((std::mem::take(&mut statement), comment.map(|comment| comment.trim().to_owned())));
        }
    }
    assert_eq!(statement.trim(), "", "every statement ends with a semicolon");
    statements
}

/// What psql would show of the statement's rows; an empty string where there are none.
fn result(session: &mut Session, statement: &str) -> String {
    let messages = session.simple_query(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len()).map(|column| row.get(column).unwrap_or("NULL")).collect::<Vec<_>>().join(" | "),
        ),
        _ => None,
    });
    rows.collect::<Vec<_>>().join(", ")
}
