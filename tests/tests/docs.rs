//! The documentation is true as far as a machine can tell: its examples run, and docs/reference.md describes everything
//! that the extension has.
//!
//! Examples are the fenced blocks marked "```sql,example". Those of a page run in its order on a fresh database. A comment
//! behind the last line of a statement is its result: columns separated by ` | `, rows by `, `; an explanation may follow
//! after `: `.
//! In docs/reference.md each function, view, type and setting has a heading of its own (`### taskq.name`); the section
//! below it must name every argument, every result column and every column of a view in backticks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use postgres::SimpleQueryMessage;
use taskq_tests::{Db, Session};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn the_examples_of_the_reference_run() {
    run_examples("docs/reference.md");
}

#[test]
fn the_examples_of_the_readme_run() {
    run_examples("README.md");
}

#[test]
fn the_examples_of_the_security_page_run() {
    run_examples("SECURITY.md");
}

#[test]
fn the_reference_describes_every_function_with_its_arguments_and_columns() {
    complete(
        "SELECT p.proname::text, a.name \
           FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' \
           JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'taskq' \
           LEFT JOIN LATERAL unnest(p.proargnames) AS a(name) ON true \
          WHERE p.proname NOT LIKE '\\_%' ORDER BY 1",
        20,
    );
}

#[test]
fn the_reference_describes_every_view_with_its_columns() {
    complete(
        "SELECT c.relname::text, a.attname::text \
           FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e' \
           JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'taskq' \
           JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 \
          WHERE c.relkind IN ('v', 'm') AND c.relname NOT LIKE '\\_%' ORDER BY 1, a.attnum",
        4,
    );
}

#[test]
fn the_reference_describes_every_type() {
    complete(
        "SELECT t.typname::text, NULL::text \
           FROM pg_type t JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e' \
           JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'taskq' \
          WHERE t.typtype IN ('d', 'e') ORDER BY 1",
        2,
    );
}

#[test]
fn the_reference_describes_every_setting() {
    // Settings are known once the library is loaded, which the first call does.
    complete(
        "SELECT substring(s.name FROM 7), NULL::text FROM taskq.clock(), pg_settings s WHERE s.name LIKE 'taskq.%'",
        2,
    );
}

#[test]
fn the_reference_describes_nothing_that_does_not_exist() {
    let db = Db::new();
    let there: BTreeSet<String> = db
        .connect()
        .all::<String>(
            "SELECT p.proname::text FROM taskq.clock(), pg_proc p WHERE p.pronamespace = 'taskq'::regnamespace \
             UNION SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind IN ('v', 'm') \
             UNION SELECT t.typname::text FROM pg_type t WHERE t.typnamespace = 'taskq'::regnamespace \
             UNION SELECT substring(s.name FROM 7) FROM pg_settings s WHERE s.name LIKE 'taskq.%'",
        )
        .into_iter()
        .collect();
    let described: Vec<String> = sections().into_keys().filter(|name| !there.contains(name)).collect();
    assert!(described.is_empty(), "docs/reference.md describes what does not exist: {described:?}");
}

#[test]
fn the_reference_lists_every_key_of_a_task_a_dependency_and_a_return() {
    let db = Db::new();
    let mut session = db.connect();
    let keys = section("A task as JSON");
    for (call, least) in [
        ("taskq.insert_tasks('[{\"no such key\": 1}]'::jsonb)", 10),
        ("taskq.add_dependencies('[{\"no such key\": 1}]'::jsonb)", 3),
        ("taskq.return_tasks('[{\"no such key\": 1}]'::jsonb)", 4),
    ] {
        let error = session.simple_query(&format!("SELECT {call}")).expect_err("an unknown key is refused");
        // The hint lists the keys there are, in quotes.
        let hint = error.as_db_error().expect("by the server").hint().unwrap_or_default().to_owned();
        let known: Vec<&str> = hint.split('"').skip(1).step_by(2).collect();
        assert!(known.len() >= least, "the refusal of {call} lists the keys: {hint}");
        let missing: Vec<_> = known.iter().filter(|key| !keys.contains(&format!("`{key}`"))).collect();
        assert!(missing.is_empty(), "section 3 of docs/reference.md lacks the keys {missing:?} of {call}");
    }
}

#[test]
fn the_reference_and_the_readme_list_every_sqlstate() {
    let code = fs::read_to_string(format!("{ROOT}/src/error.rs")).unwrap();
    let states: BTreeSet<&str> = code
        .split('"')
        .filter(|text| text.len() == 5 && (text.starts_with("TQ0") || text.starts_with("220")))
        .collect();
    assert!(states.len() >= 8, "{states:?}");
    let readme = fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let reference = section("Errors");
    for state in states {
        for (page, text) in [("docs/reference.md", &reference), ("README.md", &readme)] {
            assert!(text.contains(&format!("`{state}`")), "{page} lacks {state}");
        }
    }
}

/// Runs the examples of a page.
fn run_examples(page: &str) {
    let text = fs::read_to_string(format!("{ROOT}/{page}")).unwrap();
    let db = Db::new();
    let mut session = db.connect();
    let examples = examples(&text);
    assert!(!examples.is_empty(), "{page} has examples");
    for Example { line, statement, promise } in examples {
        let place = format!("{page}, line {line}: {statement}");
        let result = result(&mut session, &statement, &place);
        if let Some(promise) = promise {
            assert!(
                promise == result || promise.starts_with(&format!("{result}: ")),
                "{place}promises {promise}, but gives {result}"
            );
        }
    }
}

/// One statement of the examples.
struct Example {
    /// The number of the line where it begins.
    line: usize,
    statement: String,
    /// The comment behind its end.
    promise: Option<String>,
}

/// The statements of all examples of a page. A statement ends at a line with a semicolon outside of dollar quotes.
fn examples(page: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut inside = false;
    let (mut first, mut quoted, mut statement) = (0, false, String::new());
    for (n, line) in page.lines().enumerate() {
        if !inside {
            inside = line == "```sql,example";
            continue;
        }
        if line == "```" {
            assert_eq!(statement.trim(), "", "the example that ends in line {} ends with a semicolon", n + 1);
            inside = false;
            continue;
        }
        let (code, comment) =
            line.split_once("--").map_or((line, None), |(code, comment)| (code, Some(comment)));
        let code = code.trim_end();
        if code.is_empty() && statement.is_empty() {
            continue;
        }
        if statement.is_empty() {
            first = n + 1;
        }
        quoted ^= code.matches("$$").count() % 2 == 1;
        statement.push_str(line);
        statement.push('\n');
        if code.ends_with(';') && !quoted {
            let promise = comment.map(|comment| comment.trim().to_owned());
            examples.push(Example { line: first, statement: std::mem::take(&mut statement), promise });
        }
    }
    examples
}

/// What psql would show of the statement's rows; an empty string where there are none.
fn result(session: &mut Session, statement: &str, place: &str) -> String {
    let messages = session.simple_query(statement).unwrap_or_else(|error| panic!("{place}{error:?}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len()).map(|column| row.get(column).unwrap_or("NULL")).collect::<Vec<_>>().join(" | "),
        ),
        _ => None,
    });
    rows.collect::<Vec<_>>().join(", ")
}

/// The text of the reference below each heading `### taskq.name`, up to the next heading. Headings that follow each other
/// without text between them share what comes then.
fn sections() -> BTreeMap<String, String> {
    let reference = fs::read_to_string(format!("{ROOT}/docs/reference.md")).unwrap();
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut current: Vec<String> = Vec::new();
    let mut text = false;
    for line in reference.lines() {
        if let Some(name) = line.strip_prefix("### taskq.") {
            if text {
                current.clear();
            }
            text = false;
            current.push(name.to_owned());
            sections.entry(name.to_owned()).or_default();
        } else if line.starts_with("## ") {
            current.clear();
        } else {
            text |= !line.trim().is_empty();
            for name in &current {
                let section = sections.entry(name.clone()).or_default();
                section.push_str(line);
                section.push('\n');
            }
        }
    }
    sections
}

/// The text of the reference below the numbered heading with this name.
fn section(name: &str) -> String {
    let reference = fs::read_to_string(format!("{ROOT}/docs/reference.md")).unwrap();
    let heading = |line: &&str| line.starts_with("## ") && line.ends_with(&format!(". {name}"));
    let lines = reference.lines().skip_while(|line| !heading(line)).skip(1);
    lines.take_while(|line| !line.starts_with("## ")).collect::<Vec<_>>().join("\n")
}

/// Checks that each name of the query (first column) has a section, and that this names each part (second column).
fn complete(query: &str, least: usize) {
    let db = Db::new();
    let sections = sections();
    let mut names = BTreeSet::new();
    let mut missing = Vec::new();
    for (name, part) in pairs(&mut db.connect(), query) {
        match (sections.get(&name), part) {
            (None, _) => missing.push(format!("### taskq.{name}")),
            (Some(section), Some(part)) if !names_part(section, &part) => {
                missing.push(format!("`{part}` in the section of taskq.{name}"));
            }
            _ => {}
        }
        names.insert(name);
    }
    missing.dedup();
    assert!(names.len() >= least, "the query finds what there is: {names:?}");
    assert!(missing.is_empty(), "docs/reference.md lacks {missing:#?}");
}

/// Whether a section has the name in backticks, alone or among others.
fn names_part(section: &str, part: &str) -> bool {
    section.split('`').skip(1).step_by(2).any(|code| code == part)
}

fn pairs(session: &mut Session, query: &str) -> Vec<(String, Option<String>)> {
    let rows = session.query(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}
