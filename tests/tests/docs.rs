//! docs/reference describes everything that the extension has. (That its examples run is the business of `pages`.)
//!
//! On one of the pages of that folder each function, view, type and setting has a heading of its own (`## taskq.name`); the
//! section below it must name every argument, every result column and every column of a view in backticks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use taskq_tests::{Db, Session};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

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
    assert!(described.is_empty(), "docs/reference describes what does not exist: {described:?}");
}

#[test]
fn the_reference_lists_every_key_of_a_task_a_dependency_and_a_return() {
    let (_db, [mut session]) = Db::connected();
    let keys = page("task");
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
        assert!(missing.is_empty(), "docs/reference/task.md lacks the keys {missing:?} of {call}");
    }
}

#[test]
fn the_reference_lists_every_sqlstate() {
    let files = ["error.rs", "error/arguments.rs", "error/rights.rs", "error/tasks.rs"];
    let code: String =
        files.iter().map(|file| fs::read_to_string(format!("{ROOT}/src/{file}")).unwrap()).collect();
    let states: BTreeSet<&str> = code
        .split('"')
        .filter(|text| text.len() == 5 && (text.starts_with("TQ0") || text.starts_with("220")))
        .collect();
    assert!(states.len() >= 8, "{states:?}");
    let reference = page("errors");
    for state in states {
        assert!(reference.contains(&format!("`{state}`")), "docs/reference/errors.md lacks {state}");
    }
}

/// The text of the reference below each heading `## taskq.name`, up to the next heading. Headings that follow each other
/// without text between them share what comes then.
fn sections() -> BTreeMap<String, String> {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut pages = 0;
    for entry in fs::read_dir(format!("{ROOT}/docs/reference")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages += 1;
            sections_of_page(&fs::read_to_string(path).unwrap(), &mut sections);
        }
    }
    assert!(pages >= 18, "docs/reference has only {pages} pages");
    sections
}

fn sections_of_page(page: &str, sections: &mut BTreeMap<String, String>) {
    let mut current: Vec<String> = Vec::new();
    let mut text = false;
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## taskq.") {
            if text {
                current.clear();
            }
            text = false;
            current.push(name.to_owned());
            sections.entry(name.to_owned()).or_default();
        } else {
            text |= !line.trim().is_empty();
            for name in &current {
                let section = sections.entry(name.clone()).or_default();
                section.push_str(line);
                section.push('\n');
            }
        }
    }
}

/// A page of the reference.
fn page(name: &str) -> String {
    fs::read_to_string(format!("{ROOT}/docs/reference/{name}.md")).unwrap()
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
    assert!(missing.is_empty(), "docs/reference lacks {missing:#?}");
}

/// Whether a section has the name in backticks, alone or among others.
fn names_part(section: &str, part: &str) -> bool {
    section.split('`').skip(1).step_by(2).any(|code| code == part)
}

fn pairs(session: &mut Session, query: &str) -> Vec<(String, Option<String>)> {
    let rows = session.query(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}
