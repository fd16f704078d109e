//! `page`: the queue at a glance, as one HTML page without anything from elsewhere.
//!
//! What users wrote goes through [`html`] and is never markup. The numbers come from tallies, bounded looks along indexes and,
//! of what is very many and has not settled, from samples.

mod chart;
mod html;
pub(super) mod layers;

use std::fmt::Write;

use pgrx::prelude::*;

use super::picture::Picture;
use crate::error::{Result, or_throw};
use crate::pg::statement::{Statement, record};
use chart::MINUTES;
pub(super) use html::fit_for_a_page;
use html::{Escaped, STYLE, short};

/// `taskq.page(graph_of, title) -> text`
#[pg_extern(sql = "")]
fn taskq_page(graph_of: Option<&str>, title: Option<&str>) -> String {
    or_throw(page(graph_of, title))
}

/// How many characters a title has at most.
const LONGEST_TITLE: usize = 200;

/// How many tasks a graph has at most.
const MOST: usize = 200;

/// Whatever came into the page in spite of all escapes: it runs nothing, and fetches nothing.
const POLICY: &str =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";

fn page(graph_of: Option<&str>, title: Option<&str>) -> Result<String> {
    let graph = graph_of.map(|name| Ok((name, Picture::of(name, MOST, 0)?.boxes()))).transpose()?;
    let (database, at) = HEADER.first(()).unwrap_or_default();
    let title = short(title.unwrap_or(&database), LONGEST_TITLE);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{POLICY}<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}: taskq</title><style>{STYLE}</style></head><body><main>\
         <header><h1>{title}</h1><p class=\"soft\">taskq, {at}</p></header>"
    );
    out.push_str(&health());
    out.push_str(&charts());
    out.push_str(&actions());
    out.push_str(&groups());
    out.push_str(&dead_ends());
    if let Some((name, picture)) = graph {
        let _ = write!(
            out,
            "<section class=\"card\"><h2>Graph of {}</h2><div class=\"wide\">{picture}</div></section>",
            short(name, 80)
        );
    }
    out.push_str("</main></body></html>\n");
    Ok(out)
}

static HEADER: Statement<(), (String, String)> = Statement::new(
    c"SELECT pg_catalog.current_database()::text, pg_catalog.to_char(taskq.clock(), 'YYYY-MM-DD HH24:MI:SS TZ')",
);

static HEALTH: Statement<(), (String, String, String)> =
    Statement::planned_each_time(c"SELECT h.severity, h.problem, h.advice FROM taskq.health() AS h LIMIT 50");

fn health() -> String {
    let problems = HEALTH.query(());
    if problems.is_empty() {
        return "<section class=\"card\"><h2>Health</h2><p>All is well.</p></section>".to_owned();
    }
    let items: String = problems
        .iter()
        .map(|(severity, problem, advice)| {
            format!(
                "<li class=\"{severity}\"><strong>{severity}</strong>: {}<br><span class=\"soft\">{}</span></li>",
                short(problem, 400),
                Escaped(advice)
            )
        })
        .collect();
    format!("<section class=\"card\"><h2>Health</h2><ul>{items}</ul></section>")
}

/// Minutes ago, and how many completed, were skipped and aborted then.
static ENDS: Statement<(), (i32, f64, f64, f64)> = Statement::planned_each_time(
    c"SELECT x.ago, COALESCE(pg_catalog.sum(x.number) FILTER (WHERE x.code = 'c'), 0)::double precision,
             COALESCE(pg_catalog.sum(x.number) FILTER (WHERE x.code = 'a' AND x.cause = 'k'), 0)::double precision,
             COALESCE(pg_catalog.sum(x.number) FILTER (WHERE x.code = 'a' AND x.cause <> 'k'), 0)::double precision
        FROM (SELECT pg_catalog.floor(EXTRACT(epoch FROM taskq.clock() - e.at) / 60)::integer AS ago, e.code, e.cause, e.number
                FROM taskq._ends('1 hour') AS e) AS x
       WHERE x.ago BETWEEN 0 AND 59 GROUP BY x.ago",
);

/// Minutes ago, and median and 99th percentile of waiting and running, in seconds, of some that settled then.
static TIMES: Statement<(), (i32, f64, f64, f64, f64)> = Statement::planned_each_time(
    c"SELECT m.ago, x.waiting[1], x.waiting[2], x.running[1], x.running[2] FROM pg_catalog.generate_series(0, 59) AS m(ago)
       CROSS JOIN LATERAL taskq._times(taskq.clock() - (m.ago + 1) * interval '1 minute', interval '1 minute') AS x
       WHERE x.waiting IS NOT NULL",
);

fn charts() -> String {
    let mut ends = [[0.0; chart::ENDS.len()]; MINUTES];
    for (ago, completed, skipped, aborted) in ENDS.query(()) {
        if let Some(minute) = minute(ago) {
            ends[minute] = [completed, skipped, aborted].map(|number| number.max(0.0));
        }
    }
    let (mut waiting, mut running) = ([None; MINUTES], [None; MINUTES]);
    for (ago, waiting_p50, waiting_p99, running_p50, running_p99) in TIMES.query(()) {
        if let Some(minute) = minute(ago) {
            waiting[minute] = Some((waiting_p50.max(0.0), waiting_p99.max(0.0)));
            running[minute] = Some((running_p50.max(0.0), running_p99.max(0.0)));
        }
    }
    let key = |entries: &[(&str, &str)]| {
        entries
            .iter()
            .map(|(colour, name)| format!("<span><i style=\"background:var(--{colour})\"></i>{name}</span> "))
            .collect::<String>()
    };
    let percentiles = key(&[("progress", "median"), ("ready", "99th percentile")]);
    format!(
        "<div class=\"charts\">\
         <section class=\"card\"><h2>Ended per minute<span class=\"soft key\">{}</span></h2>{}</section>\
         <section class=\"card\"><h2>Waiting<span class=\"soft key\">{percentiles}</span></h2>{}</section>\
         <section class=\"card\"><h2>Running<span class=\"soft key\">{percentiles}</span></h2>{}</section></div>",
        key(&chart::ENDS.map(|end| (end, end))),
        chart::ends(&ends),
        chart::times("time from insertion to grant", &waiting),
        chart::times("time from grant to end", &running),
    )
}

/// The place of a minute in a chart.
fn minute(ago: i32) -> Option<usize> {
    MINUTES.checked_sub(1 + usize::try_from(ago).ok()?)
}

record! {
    struct Action {
        name: String,
        ready: i64,
        in_progress: i64,
        blocked: i64,
        scheduled: i64,
        completed: i64,
        aborted: i64,
        skipped: i64,
        oldest: String,
        pace: String,
        waiting: String,
        running: String,
        paused: bool,
        /// The states of which the number is an estimate.
        estimates: Vec<String>,
    }
}

/// How many actions, groups and dead ends are listed at most.
const LISTED: usize = 50;

static ACTIONS: Statement<(), Action> = Statement::planned_each_time(
    c"SELECT s.action, s.ready, s.\"in-progress\", s.blocked, s.scheduled, s.completed,
             s.aborted - s.skipped, s.skipped, COALESCE(taskq._age(taskq.clock() - s.oldest_ready), ''),
             COALESCE(taskq._short(p.came) || ' / ' || taskq._short(p.ended), '0 / 0'),
             COALESCE(taskq._age(p.waiting[1] * interval '1 second') || ' / ' || taskq._age(p.waiting[2] * interval '1 second'), ''),
             COALESCE(taskq._age(p.running[1] * interval '1 second') || ' / ' || taskq._age(p.running[2] * interval '1 second'), ''),
             EXISTS (SELECT FROM taskq.action_setting AS x WHERE x.name = s.action AND x.paused),
             s.estimates || CASE WHEN taskq._pages('taskq.blocked') > taskq._counted_pages() / 3 THEN '{blocked}'::text[] END
        FROM taskq._numbers AS s
        LEFT JOIN (SELECT a.name, pg_catalog.sum(p.came) AS came, pg_catalog.sum(p.ended) AS ended,
                          pg_catalog.min(p.waiting) AS waiting, pg_catalog.min(p.running) AS running
                     FROM taskq._pace() AS p JOIN taskq.action AS a ON a.action_no = p.action_no GROUP BY a.name) AS p ON p.name = s.action
       ORDER BY s.ready + s.\"in-progress\" > 0 DESC, COALESCE(p.ended, 0) DESC, s.ready DESC, s.action
       LIMIT 51",
);

fn actions() -> String {
    let actions = ACTIONS.query(());
    if actions.is_empty() {
        return "<section class=\"card\"><h2>Actions</h2><p class=\"soft\">There are no tasks.</p></section>"
            .to_owned();
    }
    let rows: String = actions
        .iter()
        .take(LISTED)
        .map(|a| {
            let parts = [
                ("completed", a.completed),
                ("skipped", a.skipped),
                ("aborted", a.aborted),
                ("in-progress", a.in_progress),
                ("ready", a.ready),
                ("scheduled", a.scheduled),
                ("blocked", a.blocked),
            ];
            let paused = if a.paused { " <span class=\"soft\">(paused)</span>" } else { "" };
            let mut row =
                format!("<tr><td class=\"t\">{}{paused}</td><td>{}</td>", short(&a.name, 80), bar(&parts));
            for state in ["ready", "in-progress", "blocked", "scheduled", "completed", "skipped", "aborted"] {
                let number = parts.iter().find(|(name, _)| *name == state).map_or(0, |(_, number)| *number);
                let about = if a.estimates.iter().any(|estimate| estimate == state) { "~" } else { "" };
                let _ = write!(row, "<td>{about}{number}</td>");
            }
            let _ = write!(
                row,
                "<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                a.oldest, a.pace, a.waiting, a.running
            );
            row
        })
        .collect();
    format!(
        "<section class=\"card\"><h2>Actions</h2><div class=\"wide\"><table><tr><th class=\"t\">action</th><th></th><th>ready</th>\
         <th>in progress</th><th>blocked</th><th>scheduled</th><th>completed</th><th>skipped</th><th>aborted</th><th>oldest ready</th>\
         <th>in / out a minute</th><th>waiting</th><th>running</th></tr>{rows}</table></div>{}</section>",
        more(actions.len())
    )
}

/// Parts of a whole, side by side.
fn bar(parts: &[(&str, i64)]) -> String {
    let all: i64 = parts.iter().map(|(_, number)| number.max(&0)).sum();
    let mut out = String::from("<svg class=\"bar\" viewBox=\"0 0 100 6\" preserveAspectRatio=\"none\">");
    let mut at = 0.0;
    for (class, number) in parts.iter().filter(|(_, number)| *number > 0) {
        let wide = 100.0 * *number as f64 / all as f64;
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{at:.2}\" y=\"0\" width=\"{wide:.2}\" height=\"6\"><title>{number} {class}</title></rect>"
        );
        at += wide;
    }
    out.push_str("</svg>");
    out
}

fn more(found: usize) -> &'static str {
    if found > LISTED { "<p class=\"soft\">There are more.</p>" } else { "" }
}

static GROUPS: Statement<(), (String, bool, i64, i64, i64, i64, String)> = Statement::planned_each_time(
    c"SELECT g.group_id, g.paused, g.tasks, g.completed, g.aborted, g.skipped,
             COALESCE(taskq._age(g.estimated_end - taskq.clock()), '')
        FROM taskq.groups AS g WHERE g.progress < 1
       ORDER BY g.last_settled_at DESC NULLS LAST, g.group_id LIMIT 51",
);

/// Whether there are so many tallies that adding them up would take long.
static TOO_MANY_GROUPS: Statement<(), bool> =
    Statement::new(c"SELECT 6 * taskq._pages('taskq.group_tally') > taskq._sampled_pages()");

fn groups() -> String {
    if TOO_MANY_GROUPS.first(()).unwrap_or_default() {
        return "<section class=\"card\"><h2>Groups that are not done</h2>\
                <p class=\"soft\">There are too many groups to look through here. See taskq.groups.</p></section>"
            .to_owned();
    }
    let groups = GROUPS.query(());
    if groups.is_empty() {
        return String::new();
    }
    let rows: String = groups
        .iter()
        .take(LISTED)
        .map(|(name, paused, tasks, completed, aborted, skipped, left)| {
            let open = tasks - completed - aborted - skipped;
            let paused = if *paused { " <span class=\"soft\">(paused)</span>" } else { "" };
            let done = 100 * (tasks - open) / tasks.max(&1);
            format!(
                "<tr><td class=\"t\">{}{paused}</td><td>{}</td><td>{done} %</td><td>{open}</td><td>{aborted}</td><td>{left}</td></tr>",
                short(name, 80),
                bar(&[("completed", *completed), ("skipped", *skipped), ("aborted", *aborted), ("blocked", open)]),
            )
        })
        .collect();
    format!(
        "<section class=\"card\"><h2>Groups that are not done</h2><div class=\"wide\"><table><tr><th class=\"t\">group</th><th></th>\
         <th>done</th><th>left</th><th>aborted</th><th>done in</th></tr>{rows}</table></div>{}</section>",
        more(groups.len())
    )
}

/// Of the last 20,000 that have ended. What has aborted only because of another is left out.
static DEAD_ENDS: Statement<(), (String, String, String, String, i32, String)> = Statement::planned_each_time(
    c"SELECT d.task_id, d.action, d.cause, COALESCE(d.status, ''), d.num_tries, taskq._age(taskq.clock() - d.settled_at)
        FROM (SELECT d.task_id, d.action, d.cause, d.status, d.num_tries, d.settled_at
                FROM taskq.dead_ends AS d
               WHERE d.cause <> 'dependency'
                 AND d.settled_at >= COALESCE((SELECT s.settled_at FROM taskq.settled AS s
                                                ORDER BY s.settled_at DESC OFFSET 20000 LIMIT 1), '-infinity')
               ORDER BY d.settled_at DESC LIMIT 20) AS d
       ORDER BY d.settled_at DESC",
);

fn dead_ends() -> String {
    let dead_ends = DEAD_ENDS.query(());
    if dead_ends.is_empty() {
        return String::new();
    }
    let rows: String = dead_ends
        .iter()
        .map(|(id, action, cause, status, tries, ago)| {
            format!(
                "<tr><td class=\"t\">{}</td><td class=\"t\">{}</td><td class=\"t\">{}</td><td class=\"t\">{}</td><td>{tries}</td><td>{ago}</td></tr>",
                short(id, 80),
                short(action, 80),
                Escaped(cause),
                short(status, 300),
            )
        })
        .collect();
    format!(
        "<section class=\"card\"><h2>What aborted last</h2><div class=\"wide\"><table><tr><th class=\"t\">task</th><th class=\"t\">action</th>\
         <th class=\"t\">cause</th><th class=\"t\">status</th><th>tries</th><th>ago</th></tr>{rows}</table></div></section>"
    )
}
