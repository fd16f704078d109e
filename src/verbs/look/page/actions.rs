//! The actions: how many tasks of each are in which state, and their pace.

use super::anchors::{Anchors, NAME};
use super::html::short;
use super::table::{self, LISTED, STATES, Section, bar, key, table, text};
use crate::pg::statement::{Statement, record};

record! {
    /// An action, and how it stands.
    pub(super) struct Action {
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

/// The actions in the order in which they are shown, up to one more than are.
pub(super) fn actions() -> Vec<Action> {
    ACTIONS.query(())
}

/// By which each that is shown is linked to.
pub(super) fn anchors(actions: &[Action], anchors: &mut Anchors) {
    anchors
        .actions
        .extend(actions.iter().take(LISTED).enumerate().map(|(n, action)| (action.name.clone(), n)));
}

/// The part of the page: a row per action.
pub(super) fn section(actions: &[Action]) -> Section {
    if actions.is_empty() {
        let none = "<p class=\"soft\">There are no tasks.</p>".to_owned();
        return Section::new("actions", "Actions", none);
    }
    let rows: Vec<[String; 13]> = actions.iter().enumerate().map(|(n, action)| row(n, action)).collect();
    let columns = [
        text("action"),
        table::short(""),
        table::short("ready"),
        table::short("in progress"),
        table::short("blocked"),
        table::short("scheduled"),
        table::short("completed"),
        table::short("skipped"),
        table::short("aborted"),
        table::short("oldest ready"),
        table::short("in / out a minute"),
        table::short("waiting, median / 99 %"),
        table::short("running, median / 99 %"),
    ];
    Section::of("actions", "Actions", key(&STATES), table(&columns, &rows))
}

fn row(n: usize, a: &Action) -> [String; 13] {
    let parts = [
        ("completed", a.completed),
        ("skipped", a.skipped),
        ("aborted", a.aborted),
        ("in-progress", a.in_progress),
        ("ready", a.ready),
        ("scheduled", a.scheduled),
        ("blocked", a.blocked),
    ];
    let number = |state: &str, number: i64| {
        let about = if a.estimates.iter().any(|estimate| estimate == state) { "~" } else { "" };
        format!("{about}{number}")
    };
    let paused = if a.paused { " <span class=\"soft\">(paused)</span>" } else { "" };
    [
        format!("<span id=\"a{n}\">{}</span>{paused}", short(&a.name, NAME)),
        bar(&parts),
        number("ready", a.ready),
        number("in-progress", a.in_progress),
        number("blocked", a.blocked),
        number("scheduled", a.scheduled),
        number("completed", a.completed),
        number("skipped", a.skipped),
        number("aborted", a.aborted),
        a.oldest.clone(),
        a.pace.clone(),
        a.waiting.clone(),
        a.running.clone(),
    ]
}
