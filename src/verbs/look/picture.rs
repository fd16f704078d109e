//! `graph`: a picture of a task's surroundings, or of a group, as text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use pgrx::prelude::*;

use super::walk::{Link, Node, Way, links, most, most_of, nodes, reach};
use crate::error::{Refusal, Result, or_throw, required};
use crate::number::TaskNo;
use crate::store::{numbers, task};
use crate::words::word;

/// `taskq.graph(name, format, max_tasks, skip) -> text`
#[pg_extern(sql = "")]
fn taskq_graph(
    name: Option<&str>,
    format: Option<&str>,
    max_tasks: Option<i32>,
    skip: Option<i32>,
) -> String {
    or_throw((|| {
        let name = required("task_id", name)?;
        let format = word("format", format, &["dot", "mermaid", "text"])?;
        let picture = Picture::of(name, most(max_tasks)?, most_of("skip", Some(skip.unwrap_or(0)))?)?;
        match format {
            "dot" => Ok(picture.dot()),
            "mermaid" => Ok(picture.mermaid()),
            _ => Ok(picture.text()),
        }
    })())
}

/// How far those are counted that are left out of a task's surroundings.
const COUNTED: usize = 10_000;

/// The part of the graph that is shown.
pub(super) struct Picture {
    /// In the order of their numbers.
    shown: Vec<TaskNo>,
    nodes: HashMap<TaskNo, Node>,
    links: Vec<Link>,
    left_out: usize,
}

impl Picture {
    /// A task with its ancestors and descendants, the nearest first; or, if no task has this id, the tasks of a
    /// group in the order of their numbers.
    pub(super) fn of(name: &str, most: usize, skip: usize) -> Result<Self> {
        let all = match numbers::by_id(&[name]).get(name) {
            Some(number) => surroundings(*number, most.saturating_add(skip).saturating_add(COUNTED)),
            None => task::of_group(name),
        };
        if all.is_empty() {
            return Err(Refusal::no_such_task(name));
        }
        let mut shown: Vec<TaskNo> = all.iter().copied().skip(skip).take(most).collect();
        shown.sort_unstable();
        let inside: HashSet<TaskNo> = shown.iter().copied().collect();
        let links = links(&shown, Way::Down).into_iter().filter(|l| inside.contains(&l.run)).collect();
        Ok(Picture { left_out: all.len() - shown.len(), nodes: nodes(&shown), shown, links })
    }

    /// The tasks that are shown, in the order of their numbers.
    pub(super) fn known(&self) -> impl Iterator<Item = (TaskNo, &Node)> {
        self.shown.iter().filter_map(|n| Some((*n, self.nodes.get(n)?)))
    }

    fn left_out_note(&self, comment: &str) -> String {
        if self.left_out == 0 {
            return String::new();
        }
        let or_more = if self.left_out >= COUNTED { " or" } else { "" };
        format!("{comment}{}{or_more} more tasks are not shown; see max_tasks and skip\n", self.left_out)
    }

    /// The edges between tasks that are shown.
    pub(super) fn links(&self) -> &[Link] {
        &self.links
    }

    /// Whether all tasks are shown.
    pub(super) fn is_whole(&self) -> bool {
        self.left_out == 0
    }

    fn dot(&self) -> String {
        let mut out = String::from("digraph taskq {\n    rankdir=LR; node [shape=box, style=filled];\n");
        for (n, node) in self.known() {
            let _ = writeln!(
                out,
                "    t{n} [label=\"{}\\n{}\\n{}\", fillcolor=\"{}\"];",
                escaped(&node.id),
                escaped(&node.action),
                node.shown(),
                colour(node.shown())
            );
        }
        for link in &self.links {
            let label = condition_name(link.condition);
            let attribute = if label.is_empty() { String::new() } else { format!(" [label=\"{label}\"]") };
            let _ = writeln!(out, "    t{} -> t{}{attribute};", link.after, link.run);
        }
        out.push_str(&self.left_out_note("    // "));
        out.push_str("}\n");
        out
    }

    fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        for (n, node) in self.known() {
            let (id, action, state) = (entities(&node.id), entities(&node.action), node.shown());
            let _ = writeln!(out, "    t{n}[\"{id}<br/>{action}<br/>{state}\"]:::{}", class(state));
        }
        for link in &self.links {
            let label = condition_name(link.condition);
            let arrow = if label.is_empty() { "-->".to_owned() } else { format!("-->|{label}|") };
            let _ = writeln!(out, "    t{} {arrow} t{}", link.after, link.run);
        }
        for state in STATES {
            let _ = writeln!(out, "    classDef {} fill:{}", class(state), colour(state));
        }
        out.push_str(&self.left_out_note("    %% "));
        out
    }

    /// Tasks indented under those they run after. One that runs after several is shown in full once, and
    /// by its id alone, with an arrow, elsewhere.
    fn text(&self) -> String {
        let mut below: BTreeMap<TaskNo, Vec<&Link>> = BTreeMap::new();
        let mut has_parent = HashSet::new();
        for link in &self.links {
            below.entry(link.after).or_default().push(link);
            has_parent.insert(link.run);
        }
        let mut out = String::new();
        let mut seen = HashSet::new();
        let roots = self.shown.iter().copied().filter(|n| !has_parent.contains(n));
        // A stack instead of recursion: chains may be very long.
        let mut stack: Vec<(TaskNo, usize, i8)> = roots.map(|n| (n, 0, b'c' as i8)).collect();
        stack.reverse();
        while let Some((n, depth, condition)) = stack.pop() {
            let Some(node) = self.nodes.get(&n) else { continue };
            let label = condition_name(condition);
            let when = if label.is_empty() { String::new() } else { format!("if {label}: ") };
            let indent = indent(depth);
            if !seen.insert(n) {
                let _ = writeln!(out, "{indent}{when}-> {}", harmless(&node.id));
                continue;
            }
            let _ = writeln!(
                out,
                "{indent}{when}{} ({}) {}",
                harmless(&node.id),
                harmless(&node.action),
                node.shown()
            );
            for link in below.get(&n).into_iter().flatten().rev() {
                stack.push((link.run, depth + 1, link.condition));
            }
        }
        out.push_str(&self.left_out_note(""));
        out
    }
}

/// What an edge says of its condition; empty for the default.
pub(super) fn condition_name(condition: i8) -> &'static str {
    match condition as u8 {
        b'a' => "aborted",
        b's' => "settled",
        _ => "",
    }
}

/// A task and what it is connected to, up or down, by distance and number: `enough` of it, so that a huge graph
/// is not walked for a page of it.
fn surroundings(number: TaskNo, enough: usize) -> Vec<TaskNo> {
    let (up, down) = (reach(number, Way::Up, enough), reach(number, Way::Down, enough));
    let mut all: Vec<(i32, TaskNo)> =
        up.into_iter().chain(down).map(|(n, distance)| (distance, n)).chain([(0, number)]).collect();
    all.sort_unstable();
    all.truncate(enough);
    all.into_iter().map(|(_, n)| n).collect()
}

/// The character, or one that stands for it: for controls other than line feed and tab, for what is no character (the last two of each
/// plane, and 32 in between), and for what embeds, overrides or isolates a direction.
pub(super) fn fit_for_a_page(c: char) -> char {
    let is_control = c.is_control() && !matches!(c, '\n' | '\t');
    let is_noncharacter = matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    let is_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if is_control || is_noncharacter || is_direction { '\u{fffd}' } else { c }
}

/// For a quoted label in DOT, which reads entities in it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '&' => out.push_str("&amp;"),
            c => out.push(fit_for_a_page(c)),
        }
    }
    out
}

/// For a quoted label in Mermaid. It reads HTML and entities in it, Markdown after a backtick, formulas between dollars,
/// and, before it knows of any quotes, directives after two percent signs; of a line with `style` or `classDef` and a colon
/// it takes the last semicolon away. Entities it keeps between characters that have no business in a label.
fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '"' => out.push_str("#quot;"),
            '<' => out.push_str("#lt;"),
            '>' => out.push_str("#gt;"),
            '&' => out.push_str("#amp;"),
            '#' | ':' | ';' | '%' | '$' | '`' | '\\' | '\u{fb02}' | '\u{b6}' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c => out.push(fit_for_a_page(c)),
        }
    }
    out
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// For a terminal, in one line: controls, which could move its cursor or colour it, are escaped, and so are most marks of direction.
fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            c if c.is_control() => out.extend(c.escape_default()),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_default())
            }
            c => out.push(c),
        }
    }
    out
}

/// Two blanks a level; below forty levels the level is a number, or a long chain would be a text of the
/// square of its length.
fn indent(depth: usize) -> String {
    const DEEPEST: usize = 40;
    if depth <= DEEPEST {
        return "  ".repeat(depth);
    }
    format!("{}[{depth}] ", "  ".repeat(DEEPEST))
}

/// The states as pictures tell them.
const STATES: [&str; 9] = [
    "blocked",
    "suspended",
    "signal",
    "scheduled",
    "ready",
    "in-progress",
    "completed",
    "aborted",
    "skipped",
];

/// A name that Mermaid accepts as a class.
fn class(state: &str) -> String {
    state.replace('-', "")
}

fn colour(state: &str) -> &'static str {
    match state {
        "completed" => "#c8e6c9",
        "aborted" => "#ffcdd2",
        "skipped" => "#d7ccc8",
        "in-progress" => "#bbdefb",
        "ready" => "#fff9c4",
        "suspended" => "#e1bee7",
        "signal" => "#ffe0b2",
        _ => "#eeeeee",
    }
}
