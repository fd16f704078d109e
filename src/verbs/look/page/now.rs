//! What goes on at this moment: workers and their tasks, waiting calls, tasks that are failing.

use super::anchors::{Anchors, NAME};
use super::html::{Escaped, folded, short};
use super::table::{self, Section, age, table, text};
use crate::pg::statement::{Statement, record};

record! {
    struct Held {
        actor: String,
        task: String,
        action: String,
        tries: i32,
        since: String,
        since_at: String,
        /// How long until the deadline, or since; empty: it has none.
        left: String,
        deadline: String,
        overdue: bool,
        status: String,
        progress: Option<f64>,
        number: i64,
        actors: i64,
    }
}

static AT_WORK: Statement<(), Held> = Statement::planned_each_time(
    c"SELECT COALESCE(w.actor_id, ''), t.id, a.name, w.tries, COALESCE(taskq._age(n.at - w.granted_at), ''),
             COALESCE(pg_catalog.to_char(w.granted_at, 'YYYY-MM-DD HH24:MI:SS OF'), ''),
             CASE WHEN w.deadline < 'infinity' THEN taskq._age(GREATEST(w.deadline - n.at, n.at - w.deadline)) ELSE '' END,
             CASE WHEN w.deadline < 'infinity' THEN pg_catalog.to_char(w.deadline, 'YYYY-MM-DD HH24:MI:SS OF') ELSE '' END,
             w.deadline <= n.at,
             COALESCE((SELECT p.status FROM taskq.progress AS p WHERE p.task_no = w.task_no), ''),
             (SELECT p.progress FROM taskq.progress AS p WHERE p.task_no = w.task_no), w.number, w.actors
        FROM (SELECT taskq.clock() AS at OFFSET 0) AS n
       CROSS JOIN taskq._at_work(51) WITH ORDINALITY AS w(task_no, actor_id, granted_at, deadline, tries, number, actors, place)
       CROSS JOIN LATERAL (SELECT t.id, t.action_no FROM taskq.task AS t WHERE t.task_no = w.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = t.action_no OFFSET 0) AS a
       ORDER BY w.place",
);

/// Tasks in progress with their workers, those that have been so for longest first, as far as they are looked through.
pub(super) fn at_work(anchors: &Anchors) -> Option<Section> {
    let held = AT_WORK.query(());
    let first = held.first()?;
    let aside = format!("{} of {}", count(first.number, "task"), count(first.actors, "worker"));
    let rows: Vec<[String; 7]> = held
        .iter()
        .map(|h| {
            let left = match (h.left.as_str(), h.overdue) {
                ("", _) => "<span class=\"zero\">none</span>".to_owned(),
                (left, false) => age(&format!("in {left}"), &h.deadline),
                (left, true) => table::late(&format!("{left} ago"), &h.deadline),
            };
            let progress = h.progress.map_or_else(String::new, |part| format!("{:.0} % ", 100.0 * part));
            [
                short(&h.actor, NAME),
                anchors.task(&h.task),
                anchors.action(&h.action),
                h.tries.to_string(),
                age(&h.since, &h.since_at),
                left,
                format!("{progress}{}", folded(&h.status)),
            ]
        })
        .collect();
    let columns = [
        text("worker"),
        text("task"),
        text("action"),
        table::short("try"),
        table::short("for"),
        table::short("deadline"),
        text("last report"),
    ];
    Some(Section::of("work", "In progress", aside, table(&columns, &rows)))
}

/// How many of something.
fn count(number: i64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// How many sessions, role, application, actions; what they wait for if no actions are known;
/// and for how long the one that sleeps longest has slept.
static ASLEEP: Statement<(), (i64, String, String, Vec<String>, String, String)> = Statement::planned_each_time(
    c"SELECT pg_catalog.count(*), COALESCE(w.role, ''), COALESCE(w.application_name, ''), COALESCE(w.actions[1:11], '{}'), w.else_for,
             COALESCE(taskq._age(pg_catalog.clock_timestamp() - pg_catalog.min(w.asleep_since)), '')
        FROM (SELECT w.role, w.application_name, w.actions, w.asleep_since,
                     CASE WHEN s.pid IS NULL THEN 'the end of a task'
                          WHEN s.for_any THEN 'tasks of more actions than can be listed'
                          ELSE 'tasks of actions that have had none' END AS else_for
                FROM taskq.workers AS w
                LEFT JOIN (SELECT s.pid, pg_catalog.bool_or(s.for_any) AS for_any FROM taskq._asking AS s GROUP BY s.pid) AS s ON s.pid = w.pid
               WHERE w.pid IS NOT NULL) AS w
       GROUP BY w.role, w.application_name, w.actions, w.else_for ORDER BY 1 DESC, 2, 3, 4, 5 LIMIT 51",
);

/// How many names of actions are listed at most.
const LISTED: usize = 10;

/// The sessions that sleep in waiting calls, alike ones together.
pub(super) fn asleep(anchors: &Anchors) -> Option<Section> {
    let asleep = ASLEEP.query(());
    if asleep.is_empty() {
        return None;
    }
    let rows: Vec<[String; 5]> = asleep
        .iter()
        .map(|(number, role, application, actions, else_for, longest)| {
            let names: Vec<String> =
                actions.iter().take(LISTED).map(|action| anchors.action(action)).collect();
            let wait_for = match actions.len() {
                0 => else_for.clone(),
                listed => format!("{}{}", names.join(", "), if listed > LISTED { ", …" } else { "" }),
            };
            [short(application, NAME), short(role, NAME), number.to_string(), wait_for, longest.clone()]
        })
        .collect();
    let columns = [
        text("application"),
        text("role"),
        table::short("sessions"),
        text("wait for"),
        table::short("longest"),
    ];
    Some(Section::new("asleep", "Waiting calls", table(&columns, &rows)))
}

record! {
    struct Failing {
        task: String,
        action: String,
        tries: i32,
        outcome: String,
        status: String,
        actor: String,
        ago: String,
        at: String,
        /// When the next try comes; empty: it is ready.
        next: String,
        due: String,
        number: i64,
    }
}

static FAILING: Statement<(), Failing> = Statement::planned_each_time(
    c"SELECT t.id, a.name, f.tries, f.outcome, COALESCE(f.status, ''), COALESCE(f.actor_id, ''), taskq._age(n.at - f.ended_at),
             pg_catalog.to_char(f.ended_at, 'YYYY-MM-DD HH24:MI:SS OF'),
             CASE WHEN f.due = 'infinity' THEN 'at no time' WHEN f.due > n.at THEN 'in ' || taskq._age(f.due - n.at) ELSE '' END,
             COALESCE(pg_catalog.to_char(f.due, 'YYYY-MM-DD HH24:MI:SS OF'), ''), f.number
        FROM (SELECT taskq.clock() AS at OFFSET 0) AS n
       CROSS JOIN taskq._failing(51) WITH ORDINALITY AS f(task_no, tries, due, outcome, status, actor_id, ended_at, number, place)
       CROSS JOIN LATERAL (SELECT t.id, t.action_no FROM taskq.task AS t WHERE t.task_no = f.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = t.action_no OFFSET 0) AS a
       ORDER BY f.place",
);

/// Tasks of which a try has failed, and which wait for another, as far as they are found.
pub(super) fn failing(anchors: &Anchors) -> Option<Section> {
    let failing = FAILING.query(());
    let aside = count(failing.first()?.number, "task") + " with a try that failed, and another to come";
    let rows: Vec<[String; 7]> = failing
        .iter()
        .map(|f| {
            let next = match f.next.as_str() {
                "" => "ready".to_owned(),
                next => age(next, &f.due),
            };
            let what = match f.outcome.as_str() {
                "timeout" => "its deadline passed".to_owned(),
                _ => folded(&f.status),
            };
            [
                anchors.task(&f.task),
                anchors.action(&f.action),
                what,
                short(&f.actor, NAME),
                f.tries.to_string(),
                age(&f.ago, &f.at),
                next,
            ]
        })
        .collect();
    let columns = [
        text("task"),
        text("action"),
        text("what its last try said"),
        text("worker"),
        table::short("tries"),
        table::short("ago"),
        table::short("next try"),
    ];
    Some(Section::of("failing", "Failing now", Escaped(&aside).to_string(), table(&columns, &rows)))
}
