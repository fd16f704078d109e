//! Rules of the house, held by tests: which module may use which (inside a folder: [`inside`]), where functions of SQL and
//! what writes to a table stand, and that the latter stands once, how hooks are called, what has a doc line
//! ([`documented`]), and what a session may remember ([`variables`]).
//!
//! They read the source. What they find wrong they name by file, where they can with its line; and most of them count what they have
//! looked at, so that a search that finds nothing any more fails as well.

#![cfg(test)]

mod documented;
mod inside;
mod source;
mod uses;
mod variables;

use source::{code, files};

/// The modules from the bottom up: each may use those before it, and none behind it except [`ALLOWED`]. (Uses of `pg_test` are not
/// looked at.) docs/architecture.md has them with what lives where.
const FLOORS: [&str; 31] = [
    "pg",
    "memory",
    "state",
    "number",
    "token",
    "graph",
    "error",
    "input",
    "words",
    "guc",
    "clock",
    "allowance",
    "wake",
    "ends",
    "store",
    "locks",
    "rights",
    "flow",
    "settle",
    "claim",
    "insert",
    "recount",
    "revive",
    "remove",
    "returns",
    "schedules",
    "upkeep",
    "background",
    "verbs",
    "lib",
    "pg_test",
];

/// Uses that go up, each with its reason. A use that is not there any more has to go from here, too.
const ALLOWED: [(&str, &str, &str); 1] =
    [("input", "clock", "a delay counts from the moment at which it is read")];

/// The modules that a line names after `crate::`, also in braces.
fn used(line: &str) -> Vec<String> {
    let name =
        |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut modules = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let mut depth = 0;
                let parts = list.split(|c: char| {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    c == ',' && depth == 0
                });
                modules.extend(parts.map(|part| name(part.trim())));
            }
            None => modules.push(name(rest)),
        }
    }
    modules.retain(|module| !module.is_empty());
    modules
}

fn floor(module: &str) -> usize {
    let floor = FLOORS.iter().position(|name| *name == module);
    floor.unwrap_or_else(|| {
        panic!("module {module} has no place in the list of modules (tests/rules/src/lib.rs)")
    })
}

#[test]
fn modules_use_those_below_them_and_nothing_else() {
    let (mut wrong, mut looked_at, mut allowed) = (Vec::new(), 0, Vec::new());
    for file in files() {
        let own = floor(&file.module);
        for (number, line) in code(&file.text) {
            // Macros and tests name themselves so.
            for module in used(line.trim_start().trim_start_matches('$')) {
                if !FLOORS.contains(&module.as_str()) || module == file.module || module == "pg_test" {
                    continue;
                }
                looked_at += 1;
                if floor(&module) > own {
                    match ALLOWED.iter().find(|(from, to, _)| *from == file.module && *to == module) {
                        Some(exception) => allowed.push(*exception),
                        None => wrong.push(format!("src/{}:{number}: {}", file.path.display(), line.trim())),
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "modules use others above them:\n{}", wrong.join("\n"));
    assert!(looked_at > 500, "only {looked_at} uses were found");
    for exception in ALLOWED {
        assert!(allowed.contains(&exception), "{exception:?} is not needed any more");
    }
}

#[test]
fn sql_functions_are_in_verbs() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for file in files() {
        for (number, line) in
            code(&file.text).filter(|(_, line)| line.trim_start().starts_with("#[pg_extern"))
        {
            looked_at += 1;
            // The one in `pg` is called by the planner.
            if file.module != "verbs" && file.module != "pg" {
                wrong.push(format!("src/{}:{number}: {line}", file.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these belong to src/verbs:\n{}", wrong.join("\n"));
    assert!(looked_at > 50, "only {looked_at} functions were found");
}

/// What a line writes to a table of the queue, as SQL.
fn writes(line: &str) -> impl Iterator<Item = &str> {
    ["INSERT INTO taskq.", "UPDATE taskq.", "DELETE FROM taskq."]
        .into_iter()
        .flat_map(|words| line.match_indices(words).map(|(at, _)| &line[at..]))
}

#[test]
fn tables_are_written_to_in_store() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for file in files() {
        for (number, line) in code(&file.text) {
            for write in writes(line) {
                looked_at += 1;
                if file.module != "store" {
                    wrong.push(format!("src/{}:{number}: {write}", file.path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these statements belong to src/store:\n{}", wrong.join("\n"));
    assert!(looked_at > 80, "only {looked_at} statements were found");
}

/// Whether a line writes to a table of the queue directly.
fn writes_directly(line: &str) -> bool {
    let calls = [
        "insert(&TABLE",
        "insert_unless_there(&",
        "into.row(",
        ".row_unless_there(",
        ".update(&",
        ".delete(Wait",
        ".delete_newest(",
    ];
    calls.into_iter().any(|call| line.contains(call))
}

#[test]
fn rows_are_written_to_in_store() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for file in files().into_iter().filter(|file| file.module != "pg") {
        for (number, line) in code(&file.text).filter(|(_, line)| writes_directly(line)) {
            looked_at += 1;
            if file.module != "store" {
                wrong.push(format!("src/{}:{number}: {}", file.path.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "these changes belong to src/store:\n{}", wrong.join("\n"));
    assert!(looked_at > 20, "only {looked_at} changes were found");
}

/// How often a text takes a hook of the server, and how often it calls something behind a guard.
fn hooks(text: &str) -> (usize, usize) {
    let taken = code(text).filter(|(_, line)| line.contains("_hook = Some(")).count();
    (taken, code(text).filter(|(_, line)| line.contains("pg_guard_ffi_boundary(||")).count())
}

/// What had the hook before us may be another library's. An error in it is a jump, which must not pass our frames.
#[test]
fn who_had_a_hook_before_us_is_called_behind_a_guard() {
    let mut looked_at = 0;
    for file in files().into_iter().filter(|file| file.module == "pg") {
        let (taken, guarded) = hooks(&file.text);
        looked_at += taken;
        assert!(taken <= guarded, "src/{}: a hook is called without a guard", file.path.display());
    }
    assert!(looked_at > 0, "no hook was found");
}

/// Where a string that begins here ends: behind its second quotation mark.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Where the arguments of a macro that begin here end: behind the parenthesis that closes them.
fn end_of_arguments(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while let Some(c) = text[at..].chars().next() {
        match c {
            '"' => at += end_of_string(&text[at..]) - 1,
            '(' => depth += 1,
            ')' if depth == 1 => return at + 1,
            ')' => depth -= 1,
            _ => {}
        }
        at += c.len_utf8();
    }
    at
}

/// The texts of statements with their lines: strings, and what `sql!` makes one of, as it stands there, with the macros in
/// it. Spaces count as one.
fn statements(text: &str) -> Vec<(usize, String)> {
    const SQL: &str = "sql!(";
    let mut clean = vec![""; text.lines().count()];
    code(text).for_each(|(number, line)| clean[number - 1] = line);
    let clean = clean.join("\n");
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let rest = &clean[at..];
        let (begin, end) = match (rest.find(SQL), rest.find('"')) {
            (Some(sql), quoted) if quoted.is_none_or(|quoted| sql < quoted) => {
                let begin = sql + SQL.len() - 1;
                (begin, begin + end_of_arguments(&rest[begin..]))
            }
            (_, Some(quoted)) => (quoted, quoted + end_of_string(&rest[quoted..])),
            (_, None) => return found,
        };
        let statement = rest[begin..end].split_whitespace().collect::<Vec<_>>().join(" ");
        found.push((clean[..at + begin].lines().count(), statement));
        at += end;
    }
}

#[test]
fn statements_that_write_stand_once() {
    let (mut seen, mut wrong) = (Vec::<(String, String)>::new(), Vec::new());
    for file in files().into_iter().filter(|file| file.module == "store") {
        for (line, sql) in statements(&file.text) {
            if writes(&sql).next().is_none() {
                continue;
            }
            let here = format!("src/{}:{line}", file.path.display());
            if let Some((_, there)) = seen.iter().find(|(same, _)| *same == sql) {
                wrong.push(format!("{here} and {there}: {sql}"));
            }
            seen.push((sql, here));
        }
    }
    assert!(wrong.is_empty(), "the same statement twice:\n{}", wrong.join("\n"));
    assert!(seen.len() > 60, "only {} statements were found", seen.len());
}

#[test]
fn the_rules_would_see_what_they_forbid() {
    assert_eq!(used("use crate::verbs::cancel;"), ["verbs"]);
    assert_eq!(used("use crate::{store::{live, numbers}, wake};"), ["store", "wake"]);
    assert_eq!(used("    crate::guc::now().max(crate::clock::now())"), ["guc", "clock"]);
    assert!(floor("store") < floor("verbs") && floor("pg") == 0);
    assert_eq!(writes("c\"DELETE FROM taskq.run r\"").count(), 1);
    assert_eq!(writes("c\"SELECT FROM taskq.run r FOR UPDATE\"").count(), 0);
    for line in [
        "    table::insert(&TABLE, |into| {",
        "    insert_unless_there(&BY_ID, |into| {",
        "            into.row(|| {",
        "        let change = row.update(&[REMAINING.to(remaining), FAILURES.to(failures)]);",
        "        let change = if held { row.update(&values()) } else { Change::Busy };",
        "    match row.delete(Wait::Yes) {",
        "            rows.of_each(TASK_NO, task_nos.iter().copied(), |_, row| row.delete_newest());",
    ] {
        assert!(writes_directly(line), "{line}");
    }
    assert!(!writes_directly("held.insert(1);") && !writes_directly("    let row = rows.next();"));
    assert_eq!(
        hooks("a_hook = Some(f);\n  before();\nb_hook = Some(g);\n  pg_guard_ffi_boundary(|| before());"),
        (2, 1)
    );
    let text = "// \"no\"\nstatic A: S =\n    S::new(c\"UPDATE  taskq.run\n   SET x = '\\\"'\");\n\
                static B: S = S::new(sql!(\n  \"DELETE FROM taskq.run WHERE (\",\n of!(\"r)\"), \")\" ));\nlet c = \"c\";";
    let statements = statements(text);
    let expected = [
        (3, "\"UPDATE taskq.run SET x = '\\\"'\""),
        (5, "( \"DELETE FROM taskq.run WHERE (\", of!(\"r)\"), \")\" )"),
        (8, "\"c\""),
    ];
    assert_eq!(statements.iter().map(|(line, sql)| (*line, sql.as_str())).collect::<Vec<_>>(), expected);
    assert_eq!(code("// crate::verbs\n  /// crate::verbs\nlet x;").count(), 1);
}
