//! What waits on purpose: what is paused, held back or at its limit, suspended tasks, and schedules.

use super::anchors::{Anchors, NAME};
use super::html::{Escaped, folded, short};
use super::table::{self, Section, age, table, text};
use crate::pg::statement::{Statement, record};

/// What, its name, the action for which that holds, why, and until when.
static STOPPED: Statement<(), (String, String, String, String, String, String)> =
    Statement::planned_each_time(
        c"SELECT s.what, s.name, COALESCE(s.of, ''), s.why, COALESCE(taskq._age(s.until - n.at), ''),
             COALESCE(pg_catalog.to_char(s.until, 'YYYY-MM-DD HH24:MI:SS OF'), '')
        FROM (SELECT taskq.clock() AS at OFFSET 0) AS n
       CROSS JOIN taskq._stopped(51) WITH ORDINALITY AS s(what, name, of, why, until, place)
       ORDER BY s.place",
    );

/// What keeps tasks that are ready from being granted, busy merge keys aside: what was stopped on purpose, and limits that are full.
pub(super) fn stopped(anchors: &Anchors) -> Option<Section> {
    let stopped = STOPPED.query(());
    if stopped.is_empty() {
        return None;
    }
    let rows: Vec<[String; 5]> = stopped
        .iter()
        .map(|(what, name, of, why, left, until)| {
            let name = if what == "action" { anchors.action(name) } else { short(name, NAME) };
            let left = if left.is_empty() { String::new() } else { age(&format!("for {left}"), until) };
            [what.clone(), name, anchors.action(of), Escaped(why).to_string(), left]
        })
        .collect();
    let columns = [text("what"), text("name"), text("in action"), text("why"), table::short("")];
    Some(Section::new("stopped", "Held back, paused, at a limit", table(&columns, &rows)))
}

record! {
    struct Wait {
        task: String,
        action: String,
        group: String,
        since: String,
        since_at: String,
        until: String,
        until_at: String,
        waits_for: Vec<String>,
        number: i64,
    }
}

/// Of the thousand whose time is up first. Of what one waits for, one more than is shown, at most.
static SUSPENDED: Statement<(), Wait> = Statement::planned_each_time(
    c"SELECT t.id, a.name, COALESCE(t.group_id, ''), taskq._age(n.at - b.since), pg_catalog.to_char(b.since, 'YYYY-MM-DD HH24:MI:SS OF'),
             COALESCE(taskq._age(b.until - n.at), ''), COALESCE(pg_catalog.to_char(b.until, 'YYYY-MM-DD HH24:MI:SS OF'), ''),
             ARRAY(SELECT o.id FROM taskq.dependency AS d
                    CROSS JOIN LATERAL (SELECT o.id FROM taskq.task AS o WHERE o.task_no = d.after_no OFFSET 0) AS o
                    WHERE d.run_no = b.task_no AND d.wait_no = b.wait_no AND d.counts = 'w'
                      AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = d.after_no OFFSET 0)
                    LIMIT 4), b.number
        FROM (SELECT taskq.clock() AS at OFFSET 0) AS n
       CROSS JOIN (SELECT b.task_no, b.action_no, b.since, b.until, b.wait_no, pg_catalog.count(*) OVER () AS number
                     FROM (SELECT b.task_no, b.action_no, b.since, b.until, b.wait_no FROM taskq.blocked AS b
                            WHERE b.since IS NOT NULL ORDER BY b.until LIMIT 1000) AS b
                    ORDER BY b.since, b.task_no LIMIT 51) AS b
       CROSS JOIN LATERAL (SELECT t.id, t.group_id FROM taskq.task AS t WHERE t.task_no = b.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = b.action_no OFFSET 0) AS a
       ORDER BY b.since, b.task_no",
);

/// Tasks that wait in the middle for others, or for a time.
pub(super) fn suspended(anchors: &Anchors) -> Option<Section> {
    let waits = SUSPENDED.query(());
    let aside = match waits.first()?.number {
        1 => "1 task".to_owned(),
        1000 => "1000 tasks or more".to_owned(),
        number => format!("{number} tasks"),
    };
    let rows: Vec<[String; 6]> = waits
        .iter()
        .map(|w| {
            let mut names: Vec<String> = w.waits_for.iter().take(3).map(|id| anchors.task(id)).collect();
            if w.waits_for.len() > 3 {
                names.push("…".to_owned());
            }
            let until =
                if w.until.is_empty() { String::new() } else { age(&format!("in {}", w.until), &w.until_at) };
            [
                anchors.task(&w.task),
                anchors.action(&w.action),
                short(&w.group, NAME),
                names.join(", "),
                age(&w.since, &w.since_at),
                until,
            ]
        })
        .collect();
    let columns = [
        text("task"),
        text("action"),
        text("group"),
        text("waits for"),
        table::short("for"),
        table::short("goes on at the latest"),
    ];
    Some(Section::of("suspended", "Suspended", aside, table(&columns, &rows)))
}

record! {
    struct Schedule {
        name: String,
        cron: String,
        zone: String,
        action: String,
        /// How long until the next run, or since it was due; empty: there is none, or the schedule is paused.
        next: String,
        next_at: String,
        due: bool,
        paused: bool,
        last: String,
        last_at: String,
        last_task: String,
        problem: String,
    }
}

static SCHEDULES: Statement<(), Schedule> = Statement::planned_each_time(
    c"SELECT s.name, s.cron, s.timezone, COALESCE(s.task ->> 'action', ''),
             CASE WHEN s.next_at < 'infinity' THEN taskq._age(GREATEST(s.next_at - n.at, n.at - s.next_at)) ELSE '' END,
             CASE WHEN s.next_at < 'infinity' THEN pg_catalog.to_char(s.next_at, 'YYYY-MM-DD HH24:MI:SS OF') ELSE '' END,
             s.next_at <= n.at, s.paused_next_at IS NOT NULL, COALESCE(taskq._age(n.at - s.last_at), ''),
             COALESCE(pg_catalog.to_char(s.last_at, 'YYYY-MM-DD HH24:MI:SS OF'), ''), COALESCE(s.last_task_id, ''), COALESCE(s.problem, '')
        FROM (SELECT taskq.clock() AS at OFFSET 0) AS n
       CROSS JOIN taskq.schedule AS s
       ORDER BY s.problem IS NULL, s.next_at, s.name LIMIT 51",
);

/// When schedules run next, those with a problem first.
pub(super) fn schedules(anchors: &Anchors) -> Option<Section> {
    let schedules = SCHEDULES.query(());
    if schedules.is_empty() {
        return None;
    }
    let rows: Vec<[String; 6]> = schedules
        .iter()
        .map(|s| {
            let next = match (s.paused, s.next.as_str(), s.due) {
                (true, ..) => "paused".to_owned(),
                (_, "", _) => "never".to_owned(),
                (_, next, false) => age(&format!("in {next}"), &s.next_at),
                (_, next, true) => table::late(&format!("due for {next}"), &s.next_at),
            };
            let last = match s.last.as_str() {
                "" => String::new(),
                last => format!("{} {}", age(&format!("{last} ago"), &s.last_at), anchors.task(&s.last_task)),
            };
            let problem = match s.problem.as_str() {
                "" => String::new(),
                problem => format!("<div class=\"late\">{}</div>", folded(problem)),
            };
            [
                short(&s.name, NAME),
                format!("{} <span class=\"soft\">{}</span>", short(&s.cron, NAME), short(&s.zone, NAME)),
                anchors.action(&s.action),
                next,
                last,
                problem,
            ]
        })
        .collect();
    let columns = [
        text("schedule"),
        text("when"),
        text("action"),
        table::short("next run"),
        text("last run"),
        text("problem"),
    ];
    Some(Section::new("schedules", "Schedules", table(&columns, &rows)))
}
