//! What stands on a page, in its order.

/// A fenced block.
#[derive(Debug)]
pub struct Block {
    /// The number of the line of its first fence.
    pub line: usize,
    /// What stands behind that fence, `sql,second` for instance.
    pub kind: String,
    /// The comment in the line above the fence.
    pub comment: Option<String>,
    pub text: String,
    /// The block "```text" that follows with nothing but empty lines in between: what this one prints.
    pub output: Option<String>,
    /// The same with "```text,result": the rows of the last statement.
    pub result: Option<String>,
}

/// The blocks of a page; those that are the output of others are a part of these.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines().enumerate();
    let mut comment = None;
    let mut follows = false;
    while let Some((n, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            comment = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            follows &= line.is_empty();
            continue;
        };
        let mut text = String::new();
        loop {
            match lines.next() {
                Some((_, "```")) => break,
                Some((_, line)) => text.extend([line, "\n"]),
                None => panic!("the block in line {} has no end", n + 1),
            }
        }
        match blocks.last_mut() {
            Some(last) if follows && kind == "text" => {
                last.output = Some(text);
                follows = false;
            }
            Some(last) if follows && kind == "text,result" => {
                last.result = Some(text);
                follows = false;
            }
            _ => {
                let (kind, comment) = (kind.to_owned(), comment.map(str::to_owned));
                blocks.push(Block { line: n + 1, kind, comment, text, output: None, result: None });
                follows = true;
            }
        }
        comment = None;
    }
    blocks
}

/// One statement of a block.
#[derive(Debug)]
pub struct Statement {
    /// The number of its first line, counted from that of the block's fence.
    pub line: usize,
    pub text: String,
    /// The comment behind its end.
    pub promise: Option<String>,
}

/// The statements of a block of SQL: each ends at a line with a semicolon outside of dollar quotes, or with a command of
/// psql.
pub fn statements(block: &str) -> Vec<Statement> {
    let mut statements = Vec::new();
    let (mut first, mut quoted, mut text) = (0, false, String::new());
    for (n, line) in block.lines().enumerate() {
        let (code, comment) =
            line.split_once("--").map_or((line, None), |(code, comment)| (code, Some(comment)));
        let code = code.trim_end();
        if code.is_empty() && text.is_empty() {
            continue;
        }
        if text.is_empty() {
            first = n + 1;
        }
        quoted ^= code.matches("$$").count() % 2 == 1;
        // A comment behind a command of psql would be an argument of it.
        text.push_str(if code.contains('\\') { code } else { line });
        text.push('\n');
        let command = code.starts_with('\\') || code.ends_with("\\gset") || code.contains("\\gset ");
        if !quoted && (code.ends_with(';') || command) {
            let promise = comment.map(|comment| comment.trim().to_owned());
            statements.push(Statement { line: first, text: std::mem::take(&mut text), promise });
        }
    }
    assert_eq!(text.trim(), "", "a block of SQL ends with a semicolon");
    statements
}

/// Whether a shown output is that of a program: spaces count as one, `…` stands for anything in a line, and a line of it
/// alone for any number of lines.
pub fn same(shown: &str, printed: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.trim_end().lines().map(line).filter(|line| !line.is_empty()).collect()
    };
    same_lines(&lines(shown), &lines(printed))
}

fn same_lines(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "…" => (0..=printed.len()).any(|n| same_lines(rest, &printed[n..])),
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, others)| same_line(line, first) && same_lines(rest, others)),
    }
}

fn same_line(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn an_output_is_compared_without_what_differs_each_time() {
    assert!(same(" a |  b\n---+---\n 1 | x\n", "a | b\n---+---\n1 | x"));
    assert!(!same("1 | x", "1 | y") && !same("1", "1\n2") && !same("1\n2", "1") && !same("", "1"));
    assert!(same("took …s, … rows", "took 0.3s, 7 rows") && !same("took …s, 8 rows", "took 0.3s, 7 rows"));
    assert!(same("a\n…\nz", "a\nb\nc\nz") && same("a\n…\nz", "a\nz") && !same("a\n…\nz", "a\nb"));
}

#[test]
fn a_block_is_cut_into_statements() {
    let block =
        "SELECT 1;  -- 1\n\n-- Two of them.\nDO $$\nBEGIN; END;\n$$;\nSELECT 2 AS two \\gset\n\\echo x\n";
    let statements: Vec<_> =
        statements(block).into_iter().map(|s| (s.line, s.text.trim().to_owned(), s.promise)).collect();
    assert_eq!(statements.len(), 4, "{statements:?}");
    assert_eq!(statements[0], (1, "SELECT 1;  -- 1".to_owned(), Some("1".to_owned())));
    assert_eq!((statements[1].0, statements[2].0, statements[3].0), (4, 7, 8), "{statements:?}");
}
