//! The examples of docs/workflows.md run, in their order on one database, and do what the page says.
//!
//! An example is a fenced block marked "```sql,example". A comment behind the end of a statement is its result: columns
//! separated by ` | `, rows by `, `; an explanation may follow after `: `. A longer result is in a block of its own, marked
//! "```text,result", behind the example, a row a line.

use std::fs;

use postgres::SimpleQueryMessage;
use taskq_tests::{Db, Session};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/workflows.md");

#[test]
fn the_examples_of_the_page_run_and_keep_their_promises() {
    let page = fs::read_to_string(PAGE).unwrap();
    let db = Db::new();
    let mut session = db.connect();
    let examples = examples(&page);
    let promises = examples.iter().filter(|example| !matches!(example.promise, Promise::None)).count();
    assert!(examples.len() >= 60 && promises >= 40, "{} examples with {promises} promises", examples.len());
    for Example { line, statement, promise } in examples {
        let place = format!("docs/workflows.md, line {line}: {statement}");
        let rows = rows(&mut session, &statement, &place);
        match promise {
            Promise::None => {}
            Promise::Comment(promise) => {
                let result = rows.join(", ");
                let kept = promise == result || promise.starts_with(&format!("{result}: "));
                assert!(kept, "{place}promises {promise}, but gives {result}");
            }
            Promise::Block(promise) => assert_eq!(promise.trim_end(), rows.join("\n").trim_end(), "{place}"),
        }
    }
    assert!(session.broken().is_empty());
}

/// One statement of the examples.
#[derive(Default)]
struct Example {
    /// The number of the line where it begins.
    line: usize,
    statement: String,
    promise: Promise,
}

/// The result that the page shows.
#[derive(Default)]
enum Promise {
    #[default]
    None,
    /// The comment behind the statement's end.
    Comment(String),
    /// The block after the example.
    Block(String),
}

/// The statements of all examples. A statement ends at a line with a semicolon outside of dollar quotes.
fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let (mut fence, mut quoted, mut example) = ("", false, Example::default());
    for (n, line) in page.lines().enumerate() {
        match (fence, line) {
            ("", "```text,result") => {
                fence = line;
                let last = examples.last_mut().expect("an example before its result");
                last.promise = Promise::Block(String::new());
            }
            ("", _) => fence = if line.starts_with("```") { line } else { "" },
            (_, "```") => {
                let end = n + 1;
                assert!(
                    example.statement.is_empty(),
                    "the example that ends in line {end} ends with a semicolon"
                );
                fence = "";
            }
            ("```text,result", _) => {
                if let Some(Example { promise: Promise::Block(block), .. }) = examples.last_mut() {
                    block.push_str(line);
                    block.push('\n');
                }
            }
            ("```sql,example", _) => {
                let (code, comment) =
                    line.split_once("--").map_or((line, None), |(code, comment)| (code, Some(comment)));
                let code = code.trim_end();
                if code.is_empty() && example.statement.is_empty() {
                    continue;
                }
                if example.statement.is_empty() {
                    example.line = n + 1;
                }
                quoted ^= code.matches("$$").count() % 2 == 1;
                example.statement.push_str(line);
                example.statement.push('\n');
                if code.ends_with(';') && !quoted {
                    if let Some(comment) = comment {
                        example.promise = Promise::Comment(comment.trim().to_owned());
                    }
                    examples.push(std::mem::take(&mut example));
                }
            }
            _ => {}
        }
    }
    examples
}

/// What psql would show of the statement's rows.
fn rows(session: &mut Session, statement: &str, place: &str) -> Vec<String> {
    let messages = session.simple_query(statement).unwrap_or_else(|error| panic!("{place}{error:?}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let columns = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL"));
            Some(columns.collect::<Vec<_>>().join(" | "))
        }
        _ => None,
    });
    rows.collect()
}
