//! `graph`: DOT, Mermaid and indented text. Ids are anything that a caller makes up: quotes, angle brackets, line ends must
//! not break the picture. A huge graph must give a page of it, with a note of what is left out, and not a gigabyte.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

/// A diamond with a handler, in all kinds of states, and a task beside it in the same group.
fn diamond(session: &mut Session) {
    session
        .insert(json!([
            {"id": "top", "action": "x", "group_id": "g"},
            {"id": "left", "action": "l", "group_id": "g", "depends_on": ["top"]},
            {"id": "right", "action": "r", "group_id": "g", "depends_on": [{"id": "top", "condition": "settled"}]},
            {"id": "bottom", "action": "b", "group_id": "g", "depends_on": ["left", "right"]},
            {"id": "undo", "action": "u", "group_id": "g", "depends_on": [{"id": "left", "condition": "aborted"}]},
            {"id": "beside", "action": "z", "group_id": "g", "delay": "1 day"},
        ]))
        .unwrap();
    session.perform("x", "completed");
    session.own_one("l");
}

fn graph(session: &mut Session, name: &str, arguments: &str) -> String {
    session.query_one(&format!("SELECT taskq.graph($1, {arguments})"), &[&name]).unwrap().get(0)
}

/// The number of a task in `dot` and `mermaid`: `t7`.
fn number(picture: &str, id: &str) -> String {
    let line = picture
        .lines()
        .find(|line| line.contains(&format!("\"{id}")))
        .unwrap_or_else(|| panic!("{id}: {picture}"));
    line.trim().split(['[', ' ']).next().unwrap().to_owned()
}

#[test]
fn text_shows_tasks_under_those_they_run_after_and_each_in_full_once() {
    let (_db, [mut session]) = Db::connected();
    diamond(&mut session);
    let expected = "\
top (x) completed
  left (l) in-progress
    bottom (b) blocked
    if aborted: undo (u) blocked
  if settled: right (r) ready
    -> bottom
";
    for task in ["top", "bottom"] {
        let shown = graph(&mut session, task, "'text'");
        let expected = if task == "top" {
            expected.to_owned()
        } else {
            expected.replace("    if aborted: undo (u) blocked\n", "")
        };
        assert_eq!(shown, expected);
    }
    assert_eq!(graph(&mut session, "g", "'text'"), format!("{expected}beside (z) scheduled\n"));
    assert_eq!(graph(&mut session, "beside", "'text'"), "beside (z) scheduled\n");
}

#[test]
fn dot_has_a_box_for_each_task_and_an_arrow_for_each_edge() {
    let (_db, [mut session]) = Db::connected();
    diamond(&mut session);
    let dot = graph(&mut session, "g", "'dot'");
    assert!(dot.starts_with("digraph ") && dot.trim_end().ends_with('}'), "{dot}");
    assert_eq!(dot.matches(" -> ").count(), 5);
    for (id, rest) in [
        ("top", "x\\ncompleted"),
        ("left", "l\\nin-progress"),
        ("right", "r\\nready"),
        ("beside", "z\\nscheduled"),
    ] {
        assert!(dot.contains(&format!("label=\"{id}\\n{rest}\"")), "{id}: {dot}");
    }
    let [top, left, right, bottom, undo] =
        ["top", "left", "right", "bottom", "undo"].map(|id| number(&dot, id));
    for edge in [
        format!("{top} -> {left};"),
        format!("{top} -> {right} [label=\"settled\"];"),
        format!("{left} -> {bottom};"),
        format!("{left} -> {undo} [label=\"aborted\"];"),
    ] {
        assert!(dot.contains(&edge), "{edge}: {dot}");
    }
}

#[test]
fn mermaid_has_a_node_for_each_task_an_arrow_for_each_edge_and_a_class_for_each_state() {
    let (_db, [mut session]) = Db::connected();
    diamond(&mut session);
    let mermaid = graph(&mut session, "g", "'mermaid'");
    assert!(mermaid.starts_with("flowchart "), "{mermaid}");
    let [top, left, right, bottom, undo] =
        ["top", "left", "right", "bottom", "undo"].map(|id| number(&mermaid, id));
    for line in [
        format!("{top} --> {left}"),
        format!("{top} -->|settled| {right}"),
        format!("{left} --> {bottom}"),
        format!("{left} -->|aborted| {undo}"),
        format!("{left}[\"left<br/>l<br/>in-progress\"]:::inprogress"),
    ] {
        assert!(mermaid.lines().any(|shown| shown.trim() == line), "{line}: {mermaid}");
    }
    for class in ["blocked", "scheduled", "ready", "inprogress", "completed", "aborted"] {
        assert!(mermaid.contains(&format!("classDef {class} ")), "{class}");
    }
}

#[test]
fn ids_and_actions_of_any_kind_do_not_break_a_picture() {
    let (_db, [mut session]) = Db::connected();
    let odd = [
        "say \"hi\"",
        "back\\slash",
        "two\nlines",
        "<b>&#1;",
        "`code`",
        "o'clock; -- [x] {y} |z|",
        "ünï",
        "-->",
        "->",
    ];
    for (n, id) in odd.iter().enumerate() {
        session.insert(json!([{"id": id, "action": id}, {"id": format!("end {n}"), "action": "x", "depends_on": [id]}])).unwrap();
        let text = graph(&mut session, id, "'text'");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with(&format!("  end {n} ")), "{text}");

        let dot = graph(&mut session, id, "'dot'");
        assert_eq!(dot.lines().count(), 6, "{dot}");
        let label = dot.lines().nth(2).unwrap();
        // Without escaped characters there are exactly the four quotes of the two attributes.
        assert_eq!(label.replace("\\\\", "").replace("\\\"", "").matches('"').count(), 4, "{label}");

        let mermaid = graph(&mut session, id, "'mermaid'");
        let label = mermaid.lines().nth(1).unwrap();
        assert_eq!(label.matches('"').count(), 2, "{label}");
        let inner = label.split('"').nth(1).unwrap().replace("<br/>", "");
        assert!(!inner.contains(['<', '>', '`']), "{label}");
        let entities = inner.split('#').skip(1).all(|rest| {
            rest.split_once(';')
                .is_some_and(|(name, _)| name.chars().all(char::is_alphanumeric) && name.len() <= 5)
        });
        assert!(entities, "each # begins an entity that mermaid knows: {label}");
    }
}

/// A reader of a text in a terminal sees what is in an id, and the terminal is not moved, coloured or turned by it.
#[test]
fn a_text_has_no_control_characters() {
    let (_db, [mut session]) = Db::connected();
    let odd = "a\u{1b}[31mred\u{7}\u{9b}2J\tb\u{202e}c\u{7f}";
    session
        .insert(json!([
            {"id": odd, "action": odd}, {"id": "two", "action": "x"},
            {"id": format!("{odd}!"), "action": "x", "depends_on": [odd, "two"]},
        ]))
        .unwrap();
    let text = graph(&mut session, &format!("{odd}!"), "'text'");
    let bad = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.contains(bad), "{text:?}");
    let shown = r"a\u{1b}[31mred\u{7}\u{9b}2J\tb\u{202e}c\u{7f}";
    assert_eq!(text.matches(shown).count(), 4, "{text}");
    assert_eq!(text.lines().next().unwrap(), format!("{shown} ({shown}) ready"));
}

/// What Graphviz draws for a label: it takes a backslash before a quote or a backslash away, and reads entities.
fn drawn(label: &str) -> String {
    let mut out = String::new();
    let mut rest = label.chars();
    while let Some(c) = rest.next() {
        out.push(if c == '\\' { rest.next().unwrap() } else { c });
    }
    // Names of entities and numbers, of which these tests have no others.
    out.replace("&lt;", "<").replace("&#65;", "A").replace("&amp;", "&")
}

/// On wrong code `<b>` and `&lt;b&gt;` are drawn alike.
#[test]
fn different_ids_are_drawn_differently_in_dot() {
    let (_db, [mut session]) = Db::connected();
    for id in ["<b>", "&lt;b>", "&amp;lt;b>", "&#65;", "A", "a&b", "\\N \\\"&#65;\\"] {
        session.insert(json!([{"id": id, "action": "x"}])).unwrap();
        let dot = graph(&mut session, id, "'dot'");
        assert!(dot.contains("rankdir=LR"), "{dot}");
        let label = dot.split("label=\"").nth(1).unwrap().split("\\nx\\nready\"").next().unwrap();
        assert_eq!(drawn(label), id, "{label}");
    }
}

/// What Mermaid does to a text before it reads it, and what it draws for a label. It does not know of quotes yet then: it looks for
/// directives, and of lines with `style` or `classDef`, a colon and an entity it takes the last semicolon away.
fn mermaid_draws(line: &str) -> String {
    assert!(!line.contains("%%{"), "a directive: {line}");
    for word in ["style", "classDef"] {
        let begins = line.find(word).and_then(|at| line[at..].find(':').map(|colon| at + colon + 1));
        let rest = begins.map_or("", |at| &line[at..]);
        assert!(!rest.contains('#'), "an entity after {word} and a colon: {line}");
    }
    let label = line.split('"').nth(1).unwrap().split("<br/>").next().unwrap();
    let mut out = String::new();
    let mut rest = label;
    while let Some((before, after)) = rest.split_once('#') {
        let (entity, after) = after.split_once(';').unwrap();
        out += before;
        match entity {
            "quot" => out.push('"'),
            "lt" => out.push('<'),
            "gt" => out.push('>'),
            "amp" => out.push('&'),
            number => out.push(char::from_u32(number.parse().unwrap()).unwrap()),
        }
        rest = after;
    }
    out + rest
}

#[test]
fn ids_are_drawn_as_they_are_in_mermaid() {
    let (_db, [mut session]) = Db::connected();
    for id in [
        "style a:b>c",
        "style:#quot;>",
        "classDef x:#;",
        "a;b;c",
        "%%{init: {\"theme\": \"dark\"}}%%",
        "$$x^2$$",
        "&lt;b&gt; #35; #lt;",
        "\u{fb02}\u{b0}lt\u{b6}\u{df}",
        "fa:fa-car",
        "back\\slash `code`",
    ] {
        session.insert(json!([{"id": id, "action": "style x:>"}])).unwrap();
        let mermaid = graph(&mut session, id, "'mermaid'");
        assert_eq!(mermaid_draws(mermaid.lines().nth(1).unwrap()), id, "{mermaid}");
        assert!(!mermaid.contains('\u{fb02}'), "{mermaid}");
    }
}

#[test]
fn a_large_graph_comes_in_pages_with_a_note_of_how_many_more_there_are() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'x', 'group_id', 'chain',
            'depends_on', CASE i WHEN 1 THEN '[]' ELSE jsonb_build_array('c' || i - 1) END)) FROM generate_series(1, 2000) i))",
    );
    for format in ["text", "dot", "mermaid"] {
        // A group in the order of insertion; of what surrounds a task the nearest.
        let first = [("chain", 1..=500), ("c1000", 750..=1249)];
        let last = [[1996, 1997, 1998, 1999, 2000], [1, 2, 1998, 1999, 2000]];
        for ((name, first), last) in first.into_iter().zip(last) {
            let shown = graph(&mut session, name, &format!("'{format}'"));
            assert!(shown.contains("1500 more"), "{format}: the default is 500 and the note says so");
            let ids = |shown: &str| -> Vec<u32> {
                let ids = shown
                    .split(|c: char| !c.is_alphanumeric())
                    .filter_map(|word| word.strip_prefix('c')?.parse().ok());
                ids.collect()
            };
            assert_eq!(ids(&shown), first.collect::<Vec<_>>(), "{format}");
            let page = graph(&mut session, name, &format!("'{format}', max_tasks => 10, skip => 1995"));
            assert_eq!(ids(&page), last, "{format}");
            let none = graph(&mut session, name, &format!("'{format}', max_tasks => 0"));
            assert!(none.contains("2000 more") && ids(&none).is_empty(), "{format}: {none}");
            let all = graph(&mut session, name, &format!("'{format}', max_tasks => NULL"));
            assert!(!all.contains("more tasks") && ids(&all).len() == 2000, "{format}");
        }
    }
}

#[test]
fn the_picture_of_a_deep_chain_does_not_grow_with_the_square_of_its_depth() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'x',
            'depends_on', CASE i WHEN 1 THEN '[]' ELSE jsonb_build_array('c' || i - 1) END)) FROM generate_series(1, 10000) i))",
    );
    let bytes: i32 = session.one("SELECT octet_length(taskq.graph('c1', 'text', NULL))");
    assert!(bytes < 5_000_000, "{bytes} bytes for 10,000 tasks");
}

#[test]
fn a_task_is_meant_before_a_group_of_the_same_name() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "same", "action": "x"}, {"id": "member", "action": "x", "group_id": "same"}]),
    );
    assert_eq!(graph(&mut session, "same", "'text'"), "same (x) ready\n");
    session.delete(&["same"]).unwrap();
    assert_eq!(graph(&mut session, "same", "'text'"), "member (x) ready\n");
}

#[test]
fn a_picture_of_nothing_or_in_no_known_form_is_refused() {
    let (_db, [mut session]) = Db::connected();
    diamond(&mut session);
    for (sqlstate, naming, arguments) in [
        ("TQ003", "absent", "'absent'"),
        ("22004", "task_id", "NULL"),
        ("22004", "format", "'top', NULL"),
        ("22023", "format", "'top', 'svg'"),
        ("22023", "max_tasks", "'top', max_tasks => -1"),
        ("22023", "skip", "'top', skip => -1"),
    ] {
        refused(&mut session, sqlstate, naming, &format!("SELECT taskq.graph({arguments})"), &[]);
    }
}
