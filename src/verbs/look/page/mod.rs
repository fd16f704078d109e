//! `page`: the queue at a glance, as one HTML page without anything from elsewhere.
//!
//! What users wrote goes through [`html`] and is never markup. Most numbers come from tallies, bounded looks along
//! indexes and, of what is very many and has not settled, from samples.

mod actions;
mod anchors;
mod chart;
mod ends;
mod hour;
mod html;
pub(super) mod layers;
mod legend;
mod now;
mod style;
mod table;
mod waits;

use std::fmt::Write;
use std::time::Duration;

use pgrx::datum::Interval;
use pgrx::prelude::*;

use super::picture::Picture;
use crate::error::{Refusal, Result, or_throw};
use crate::input::check_interval;
use crate::pg::clock::length;
use crate::pg::statement::Statement;
use anchors::Anchors;
pub(super) use html::fit_for_a_page;
use html::{Escaped, short};
use style::STYLE;
use table::{STATES, Section, key};

/// `taskq.page(graph_of, title, refresh) -> text`
#[pg_extern(sql = "")]
fn taskq_page(graph_of: Option<&str>, title: Option<&str>, refresh: Option<Interval>) -> String {
    or_throw(page(graph_of, title, refresh))
}

/// How many characters a title has at most.
const LONGEST_TITLE: usize = 200;

/// How many tasks a graph has at most.
const MOST: usize = 200;

/// Should markup come into the page in spite of all escapes: it runs no script, and loads nothing into the page.
const POLICY: &str =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";

fn page(graph_of: Option<&str>, title: Option<&str>, refresh: Option<Interval>) -> Result<String> {
    let refresh = reload(refresh)?;
    let graph = graph_of.map(|name| Ok((name, Picture::of(name, MOST, 0)?))).transpose()?;
    let (database, at) = HEADER.first(()).unwrap_or_default();
    let title = title.filter(|title| !title.trim().is_empty()).unwrap_or(&database);
    let title = short(title, LONGEST_TITLE);
    let actions = actions::actions();
    let mut anchors = Anchors::default();
    actions::anchors(&actions, &mut anchors);
    if let Some((_, picture)) = &graph {
        anchors.tasks.extend(picture.ids());
    }
    let mut sections = vec![actions::section(&actions)];
    sections.extend(now::at_work(&anchors));
    sections.extend(now::asleep(&anchors));
    sections.extend(now::failing(&anchors));
    sections.extend(waits::stopped(&anchors));
    sections.extend(waits::suspended(&anchors));
    sections.extend(waits::schedules(&anchors));
    sections.extend(ends::groups());
    sections.extend(ends::aborted(&anchors));
    if let Some((name, picture)) = &graph {
        let name = format!("<p class=\"soft\">of {}</p>", short(name, 80));
        let inside = format!("{name}<div class=\"wide\">{}</div>", picture.boxes());
        sections.push(Section::of("graph", "Graph", key(&STATES), inside));
    }
    sections.push(legend::section());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{POLICY}<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">{refresh}<title>{title}: taskq</title><style>{STYLE}</style></head><body><main>\
         <header><h1>{title}</h1><p class=\"soft\">taskq, {at}</p></header>",
        at = Escaped(&at)
    );
    out.push_str(&contents(&sections));
    out.push_str(&health(&sections));
    out.push_str(&hour::charts());
    for section in &sections {
        out.push_str(&section.html());
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

static HEADER: Statement<(), (String, String)> = Statement::new(
    c"SELECT pg_catalog.current_database()::text, pg_catalog.to_char(taskq.clock(), 'YYYY-MM-DD HH24:MI:SS OF')",
);

/// Links to parts of the page.
fn contents(sections: &[Section]) -> String {
    let mut out = String::from("<nav><a href=\"#hour\">Last hour</a>");
    for section in sections {
        let _ = write!(out, "<a href=\"#{}\">{}</a>", section.id, section.name);
    }
    out.push_str("</nav>");
    out
}

static HEALTH: Statement<(), (String, String, String, String)> = Statement::planned_each_time(
    c"SELECT h.severity, h.problem, h.advice, h.kind FROM taskq.health() AS h LIMIT 50",
);

fn health(sections: &[Section]) -> String {
    let problems = HEALTH.query(());
    if problems.is_empty() {
        return "<section class=\"card\" id=\"health\"><h2>Health</h2><p>All is well.</p></section>"
            .to_owned();
    }
    let items: String = problems
        .iter()
        .map(|(severity, problem, advice, kind)| {
            let at = place(kind).filter(|place| sections.iter().any(|section| section.id == *place));
            let severity_there = match at {
                Some(place) => format!("<a href=\"#{place}\">{severity}</a>"),
                None => severity.clone(),
            };
            format!(
                "<li class=\"{severity}\"><strong>{severity_there}</strong>: {}<br><span class=\"soft\">{}</span></li>",
                short(problem, 400),
                Escaped(advice)
            )
        })
        .collect();
    format!("<section class=\"card\" id=\"health\"><h2>Health</h2><ul>{items}</ul></section>")
}

/// The part of the page that shows more of a kind of problem.
fn place(kind: &str) -> Option<&'static str> {
    match kind {
        "overdue" | "unleased" => Some("work"),
        "starving" | "growing" => Some("actions"),
        "aborting" => Some("aborted"),
        "schedule" => Some("schedules"),
        "suspended" => Some("suspended"),
        _ => None,
    }
}
