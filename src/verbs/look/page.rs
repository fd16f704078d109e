//! `page`: the queue at a glance, as one HTML page without anything from elsewhere: health, tables, and a graph.
//!
//! What users wrote goes through [`escaped`] and is never markup. A table is any SELECT of [`LISTED`] rows at most; each looks along an
//! index, at tallies, or at a sample, so that the page takes no longer where there is more.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use pgrx::datum::Interval;
use pgrx::prelude::*;

use super::picture::{Picture, condition_name, fit_for_a_page};
use crate::error::{Refusal, Result, or_throw};
use crate::input::check_interval;
use crate::number::TaskNo;
use crate::pg::clock::length;
use crate::pg::statement::{Statement, sql};

/// How many rows a table has at most. Each statement asks for one more, so that it is known whether there are more.
const LISTED: usize = 50;

/// How many characters a title has at most, and how many of a cell are shown.
const LONGEST_TITLE: usize = 200;
const LONGEST_CELL: usize = 300;

/// How many tasks a graph has at most.
const MOST_TASKS_DRAWN: usize = 200;

/// The names of the columns of a row, and what is in them; empty for NULL.
type Row = (Vec<String>, Vec<String>);

/// A table of what a SELECT returns, in its order and under its names.
macro_rules! rows_of {
    ($($select:literal),+) => {
        Statement::planned_each_time(sql!(
            "SELECT ARRAY(SELECT pg_catalog.json_object_keys(pg_catalog.row_to_json(x))), \
                    ARRAY(SELECT COALESCE(e.value, '') FROM pg_catalog.json_each_text(pg_catalog.row_to_json(x)) AS e) FROM (",
            $($select),+,
            " LIMIT 51) AS x"
        ))
    };
}

static HEALTH: Statement<(), Row> =
    rows_of!("SELECT h.severity, h.problem, h.advice FROM taskq.health() AS h");

/// What there is to see, and its heading. A table without rows is left out.
static TABLES: [(&str, Statement<(), Row>); 8] = [
    (
        "Actions",
        rows_of!(
            "SELECT s.action || COALESCE(' (' || x.stopped || ')', '') AS action, e.ready || s.ready AS ready, e.busy || s.in_progress AS \"in progress\",
                    e.blocked || s.blocked AS blocked, e.later || s.scheduled AS scheduled, s.completed, s.skipped, s.aborted,
                    taskq._age(taskq.clock() - s.oldest_ready) AS \"oldest ready\",
                    taskq._short(COALESCE(p.came, 0)) AS \"come a minute\", taskq._short(COALESCE(p.ended, 0)) AS \"end a minute\",
                    taskq._age(p.waiting[1] * interval '1 second') AS \"median wait\", taskq._age(p.running[1] * interval '1 second') AS \"median run\"
               FROM taskq._numbers AS s
               LEFT JOIN (SELECT a.name, pg_catalog.sum(p.came) AS came, pg_catalog.sum(p.ended) AS ended,
                                 pg_catalog.min(p.waiting) AS waiting, pg_catalog.min(p.running) AS running
                            FROM taskq._pace() AS p JOIN taskq.action AS a ON a.action_no = p.action_no GROUP BY a.name) AS p ON p.name = s.action
               LEFT JOIN (SELECT y.name, CASE WHEN y.paused THEN 'paused' WHEN y.max_concurrency = 0 THEN 'closed' END AS stopped
                            FROM taskq.action_setting AS y) AS x ON x.name = s.action
              CROSS JOIN LATERAL (SELECT CASE WHEN 'ready' = ANY (s.estimates) THEN '~' ELSE '' END AS ready,
                                         CASE WHEN 'in-progress' = ANY (s.estimates) THEN '~' ELSE '' END AS busy,
                                         CASE WHEN 'blocked' = ANY (s.estimates) OR taskq._pages('taskq.blocked') > taskq._counted_pages() / 3
                                              THEN '~' ELSE '' END AS blocked,
                                         CASE WHEN 'scheduled' = ANY (s.estimates) THEN '~' ELSE '' END AS later) AS e
              ORDER BY s.ready + s.in_progress > 0 DESC, COALESCE(p.ended, 0) DESC, s.ready DESC, s.action"
        ),
    ),
    (
        // Of a large table those that leases name.
        "In progress, the first deadlines first",
        rows_of!(
            "SELECT r.actor_id AS actor, t.id AS task, a.name AS action, r.tries AS try, taskq._age(n.at - r.granted_at) AS \"for\",
                    CASE WHEN r.deadline = 'infinity' THEN 'none' WHEN r.deadline > n.at THEN 'in ' || taskq._age(r.deadline - n.at)
                         ELSE 'overdue for ' || taskq._age(n.at - r.deadline) END AS deadline,
                    pg_catalog.concat_ws(' ', pg_catalog.round((100 * p.progress)::numeric) || ' %', p.status) AS \"last report\"
               FROM (SELECT taskq.clock() AS at OFFSET 0) AS n
              CROSS JOIN (SELECT l.task_no FROM taskq._leased() AS l
                           UNION
                          SELECT r.task_no FROM taskq.run AS r
                           WHERE r.nonce <> 0 AND (SELECT taskq._pages('taskq.run') <= taskq._counted_pages())) AS h
              CROSS JOIN LATERAL (SELECT r.* FROM taskq.run AS r WHERE r.task_no = h.task_no AND r.nonce <> 0 OFFSET 0) AS r
              CROSS JOIN LATERAL (SELECT t.id FROM taskq.task AS t WHERE t.task_no = r.task_no OFFSET 0) AS t
              CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = r.action_no OFFSET 0) AS a
               LEFT JOIN taskq.progress AS p ON p.task_no = r.task_no
              ORDER BY r.deadline, r.granted_at, r.task_no"
        ),
    ),
    (
        "Waiting calls",
        rows_of!(
            "SELECT w.application_name AS application, w.role, pg_catalog.count(*) AS sessions,
                    pg_catalog.array_to_string(w.actions[1:10], ', ') AS actions,
                    taskq._age(pg_catalog.clock_timestamp() - pg_catalog.min(w.asleep_since)) AS longest
               FROM taskq.workers AS w WHERE w.pid IS NOT NULL GROUP BY 1, 2, w.actions ORDER BY 3 DESC, 1, 2, 4"
        ),
    ),
    (
        "Limits of actions, and workgroups that are held back",
        rows_of!(
            "SELECT x.name, x.places, x.rate, x.held AS \"held back for\"
               FROM (SELECT a.action AS name, a.slots_held || ' of ' || a.max_concurrency AS places,
                            a.rate_limit || ' in ' || taskq._age(a.rate_period) AS rate, NULL AS held
                       FROM taskq.actions AS a WHERE a.max_concurrency IS NOT NULL OR a.rate_limit IS NOT NULL
                      UNION ALL
                     SELECT w.name, NULL, NULL, taskq._age(max(w.not_before) - taskq.clock()) FROM taskq.workgroup AS w
                      WHERE w.not_before > taskq.clock() GROUP BY w.name) AS x ORDER BY x.name"
        ),
    ),
    (
        "Suspended, the first to go on first",
        rows_of!(
            "SELECT t.id AS task, a.name AS action, t.group_id AS \"group\", taskq._age(taskq.clock() - b.since) AS \"for\",
                    taskq._age(b.until - taskq.clock()) AS \"goes on in\",
                    pg_catalog.array_to_string(ARRAY(
                        SELECT o.id FROM taskq.dependency AS d
                         CROSS JOIN LATERAL (SELECT o.id FROM taskq.task AS o WHERE o.task_no = d.after_no OFFSET 0) AS o
                         WHERE d.run_no = b.task_no AND d.wait_no = b.wait_no AND d.state = 'w'
                           AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = d.after_no OFFSET 0)
                         LIMIT 4), ', ') AS \"waits for\"
               FROM (SELECT b.* FROM taskq.blocked AS b WHERE b.since IS NOT NULL ORDER BY b.until LIMIT 51) AS b
              CROSS JOIN LATERAL (SELECT t.id, t.group_id FROM taskq.task AS t WHERE t.task_no = b.task_no OFFSET 0) AS t
              CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = b.action_no OFFSET 0) AS a
              ORDER BY b.until, b.task_no"
        ),
    ),
    (
        "Schedules",
        rows_of!(
            "SELECT s.name AS schedule, s.cron, s.timezone AS \"time zone\", s.task ->> 'action' AS action,
                    CASE WHEN s.paused THEN 'paused' WHEN s.next_at IS NULL THEN 'never'
                         WHEN s.next_at > taskq.clock() THEN 'in ' || taskq._age(s.next_at - taskq.clock())
                         ELSE 'overdue for ' || taskq._age(taskq.clock() - s.next_at) END AS \"next run\",
                    taskq._age(taskq.clock() - s.last_at) || ' ago' AS \"last run\", s.last_task_id AS \"last task\", s.problem
               FROM taskq.schedules AS s ORDER BY s.problem IS NULL, s.next_at, s.name"
        ),
    ),
    (
        // Adding up very many tallies takes long.
        "Groups that are not done",
        rows_of!(
            "SELECT g.group_id || CASE WHEN g.paused THEN ' (paused)' ELSE '' END AS \"group\", pg_catalog.floor(100 * g.progress) || ' %' AS done, g.tasks - g.completed - g.aborted - g.skipped AS \"left\",
                    g.completed, g.skipped, g.aborted, taskq._age(g.estimated_end - taskq.clock()) AS \"done in\"
               FROM taskq.groups AS g
              WHERE g.progress < 1 AND (SELECT 6 * taskq._pages('taskq.group_tally') <= taskq._sampled_pages())
              ORDER BY g.last_settled_at DESC NULLS LAST, g.group_id"
        ),
    ),
    (
        // Of the last 20,000 that have ended; what only followed is left out.
        "What aborted last",
        rows_of!(
            "SELECT d.task_id AS task, d.action, d.cause, d.status, d.num_tries AS tries, taskq._age(taskq.clock() - d.settled_at) AS ago
               FROM taskq.dead_ends AS d
              WHERE d.cause <> 'dependency'
                AND d.settled_at >= COALESCE((SELECT s.settled_at FROM taskq.settled AS s
                                               ORDER BY s.settled_at DESC OFFSET 20000 LIMIT 1), '-infinity')
              ORDER BY d.settled_at DESC"
        ),
    ),
];

/// `taskq.page(graph_of, title, refresh) -> text`
#[pg_extern(sql = "")]
fn taskq_page(graph_of: Option<&str>, title: Option<&str>, refresh: Option<Interval>) -> String {
    or_throw(page(graph_of, title, refresh))
}

static HEADER: Statement<(), (String, String)> = Statement::new(
    c"SELECT pg_catalog.current_database()::text, pg_catalog.to_char(taskq.clock(), 'YYYY-MM-DD HH24:MI:SS OF')",
);

/// Should markup come into the page in spite of all escapes: it runs no script, and loads nothing into the page.
const POLICY: &str =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";

const STYLE: &str = "
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2128; --soft: #616b78; --line: #dde1e7; --bad: #c2313a;
  --completed: #2f9e5d; --aborted: #d0393e; --in-progress: #2f6fd0; --ready: #c98a00; --skipped: #a9c7b3; --scheduled: #7a5bc2; --blocked: #8b95a3 }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --card: #1d2126; --text: #e4e8ed; --soft: #98a2af; --line: #333a43; --bad: #f0666a } }
body { margin: 0; padding: 1rem; background: var(--page); color: var(--text); font: 15px/1.45 system-ui, sans-serif }
main { max-width: 90rem; margin: 0 auto } h1 { font-size: 1.35rem } h2 { font-size: 1rem; margin: 0 0 .5rem } p { margin: 0; color: var(--soft) }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .9rem 1rem; margin: 1rem 0; overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .25rem .55rem; border-top: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; min-width: 5rem }
th { border: 0; color: var(--soft); font-weight: 500; font-size: .85em; overflow-wrap: normal } .n { text-align: right; white-space: nowrap; min-width: 0 } td:first-child { min-width: 10rem } .bad { color: var(--bad) }
svg { display: block; width: 100%; margin: 0 auto } svg text { fill: var(--text); font: 13px system-ui, sans-serif } svg .soft { fill: var(--soft) }
.box { fill: var(--card); stroke: var(--line) } .edge { fill: none; stroke: var(--blocked) } .edge.settled { stroke-dasharray: 7 3 } .edge.aborted { stroke: var(--aborted); stroke-dasharray: 2 3 }
";

fn page(graph_of: Option<&str>, title: Option<&str>, refresh: Option<Interval>) -> Result<String> {
    let refresh = reload(refresh)?;
    let graph = graph_of.map(|name| Ok((name, Picture::of(name, MOST_TASKS_DRAWN, 0)?))).transpose()?;
    let (database, at) = HEADER.first(()).unwrap_or_default();
    let title = title.filter(|title| !title.trim().is_empty()).unwrap_or(&database);
    let title = short(title, LONGEST_TITLE);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{POLICY}\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         {refresh}<title>{title}: taskq</title><style>{STYLE}</style></head><body><main><h1>{title}</h1><p>taskq, {}</p>",
        escaped(&at)
    );
    let health = table(&HEALTH.query(()));
    section(&mut out, "Health", health.as_deref().unwrap_or("<p>All is well.</p>"));
    if let Some((name, picture)) = &graph {
        section(&mut out, "Graph", &format!("<p>of {}</p>{}", short(name, LONGEST_TITLE), drawn(picture)));
    }
    for (heading, rows) in &TABLES {
        if let Some(table) = table(&rows.query(())) {
            section(&mut out, heading, &table);
        }
    }
    out.push_str("</main></body></html>\n");
    Ok(out)
}

/// What has a browser load the page anew, after a second or more. Browsers count in whole seconds.
fn reload(refresh: Option<Interval>) -> Result<String> {
    let Some(every) = refresh else {
        return Ok(String::new());
    };
    if length(every) < Duration::from_secs(1) {
        return Err(Refusal::out_of_range("refresh", "less than a second", "Give a second or more."));
    }
    check_interval("refresh", refresh)?;
    let seconds = length(every).as_millis().div_ceil(1000);
    Ok(format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">"))
}

fn section(out: &mut String, heading: &str, inside: &str) {
    let _ = write!(out, "<section><h2>{heading}</h2>{inside}</section>");
}

/// Rows as a table; `None` if there are none.
fn table(rows: &[Row]) -> Option<String> {
    let (names, first) = rows.first()?;
    let mut out = String::from("<table><thead><tr>");
    for (name, cell) in names.iter().zip(first) {
        let class = if is_number(cell) { " class=\"n\"" } else { "" };
        let _ = write!(out, "<th{class}>{}</th>", escaped(name));
    }
    out.push_str("</tr></thead><tbody>");
    for (_, row) in rows.iter().take(LISTED) {
        out.push_str("<tr>");
        for cell in row {
            let class = match cell.split(' ').next() {
                _ if is_number(cell) => " class=\"n\"",
                Some("critical" | "warning" | "overdue") => " class=\"bad\"",
                _ => "",
            };
            let _ = write!(out, "<td{class}>{}</td>", short(cell, LONGEST_CELL));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    if rows.len() > LISTED {
        out.push_str("<p>There are more.</p>");
    }
    Some(out)
}

/// A number, a time in a word, or a percentage: it stands on the right.
fn is_number(cell: &str) -> bool {
    cell.len() <= 12
        && cell.starts_with(|c: char| c.is_ascii_digit() || c == '~')
        && cell.chars().all(|c| c.is_ascii_digit() || "~.% smhdykMG".contains(c))
}

/// A text that users wrote, as a page or a picture in it may have it: never markup, in an element or in an attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\r' => {}
            c => out.push(fit_for_a_page(c)),
        }
    }
    out
}

/// The same, of so many characters at most. Of a longer text the middle is left out: how an error begins and ends says most.
fn short(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return escaped(text);
    }
    let tail = most / 3;
    let begin: String = text.chars().take(most - tail - 1).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{}…{}", escaped(&begin), escaped(&end))
}

/// How many boxes stand side by side in a graph, and their sizes: the drawing is as wide as a page, and scales with it.
const SIDE_BY_SIDE: usize = 6;
const WIDE: usize = 210;
const HIGH: usize = 46;
const STEP: (usize, usize) = (228, 96);

/// The layer of each task: one more than the last of those that it runs after. Where links close a circle, which they should not, the
/// layers of its tasks mean nothing.
fn layers(numbers: &[TaskNo], links: &[(TaskNo, TaskNo)]) -> HashMap<TaskNo, usize> {
    let mut layer: HashMap<TaskNo, usize> = numbers.iter().map(|n| (*n, 0)).collect();
    let (mut left, mut after) = (HashMap::<TaskNo, usize>::new(), HashMap::<TaskNo, Vec<TaskNo>>::new());
    for (from, to) in links {
        *left.entry(*to).or_default() += 1;
        after.entry(*from).or_default().push(*to);
    }
    let mut free: Vec<TaskNo> = numbers.iter().copied().filter(|n| !left.contains_key(n)).collect();
    while let Some(number) = free.pop() {
        let next = layer.get(&number).map_or(0, |layer| layer + 1);
        for to in after.get(&number).into_iter().flatten() {
            layer.entry(*to).and_modify(|place| *place = next.max(*place));
            if let Some(count) = left.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    free.push(*to);
                }
            }
        }
    }
    layer
}

/// The graph in SVG: a task stands below all that it runs after, and edges show their conditions.
fn drawn(picture: &Picture) -> String {
    let numbers: Vec<TaskNo> = picture.known().map(|(number, _)| number).collect();
    let links: Vec<(TaskNo, TaskNo)> = picture.links().iter().map(|link| (link.after, link.run)).collect();
    let layer = layers(&numbers, &links);
    let mut order = numbers;
    order.sort_by_key(|number| layer[number]);
    // A layer that is full goes on in the next row.
    let mut corner: HashMap<TaskNo, (usize, usize)> = HashMap::new();
    let (mut column, mut row, mut widest, mut before) = (0, 0, 1, 0);
    for number in order {
        if layer[&number] != before || column == SIDE_BY_SIDE {
            (column, row, before) = (0, row + 1, layer[&number]);
        }
        corner.insert(number, (8 + column * STEP.0, 8 + row * STEP.1));
        column += 1;
        widest = widest.max(column);
    }
    let (width, height) = (widest * STEP.0, (row + 1) * STEP.1 - 30);
    let mut out = format!(
        "<svg viewBox=\"0 0 {width} {height}\" style=\"max-width:{width}px\" role=\"img\" aria-label=\"graph\">"
    );
    let mut labels = String::new();
    for link in picture.links() {
        let (Some((x, y)), Some((to_x, to_y))) = (corner.get(&link.after), corner.get(&link.run)) else {
            continue;
        };
        let (x, y, to_x) = (x + WIDE / 2, y + HIGH, to_x + WIDE / 2);
        let condition = condition_name(link.condition);
        let (bend, to_bend) = (y + 30, to_y.saturating_sub(30));
        let _ = write!(
            out,
            "<path class=\"edge {condition}\" d=\"M{x} {y}C{x} {bend} {to_x} {to_bend} {to_x} {to_y}\"/>"
        );
        if !condition.is_empty() {
            let (at_x, at_y) = ((x + 3 * to_x) / 4 + 4, to_y.saturating_sub(14));
            let _ = write!(labels, "<text class=\"soft\" x=\"{at_x}\" y=\"{at_y}\">{condition}</text>");
        }
    }
    for (number, node) in picture.known() {
        let ((x, y), state) = (corner[&number], node.shown());
        let _ = write!(
            out,
            "<g><title>{id} {action} {state}</title><rect class=\"box\" x=\"{x}\" y=\"{y}\" width=\"{WIDE}\" height=\"{HIGH}\" rx=\"6\"/>\
             <rect style=\"fill:var(--{state}, var(--blocked))\" x=\"{x}\" y=\"{y}\" width=\"6\" height=\"{HIGH}\" rx=\"3\"/>\
             <text x=\"{at}\" y=\"{first}\">{shown}</text><text class=\"soft\" x=\"{at}\" y=\"{second}\">{what}</text></g>",
            id = escaped(&node.id),
            action = escaped(&node.action),
            at = x + 14,
            first = y + 19,
            second = y + 37,
            shown = short(&node.id, 26),
            what = short(&format!("{} · {state}", node.action), 30),
        );
    }
    out + &labels
        + "</svg>"
        + if picture.is_whole() { "" } else { "<p>There are more tasks than are shown.</p>" }
}
