//! What has ended: groups on their way, and tasks that aborted.

use super::anchors::{Anchors, NAME};
use super::html::{Escaped, folded, short};
use super::table::{self, Section, age, bar, key, table, text};
use crate::pg::statement::Statement;

static GROUPS: Statement<(), (String, bool, i64, i64, i64, i64, String)> = Statement::planned_each_time(
    c"SELECT g.group_id, g.paused, g.tasks, g.completed, g.aborted, g.skipped,
             COALESCE(taskq._age(g.estimated_end - taskq.clock()), '')
        FROM taskq.groups AS g WHERE g.progress < 1
       ORDER BY g.last_settled_at DESC NULLS LAST, g.group_id LIMIT 51",
);

/// Whether there are so many tallies that adding them up would take long.
static TOO_MANY_GROUPS: Statement<(), bool> =
    Statement::new(c"SELECT 6 * taskq._pages('taskq.group_tally') > taskq._sampled_pages()");

/// Groups that have tasks which have not settled; a note instead if there are too many groups to look through.
pub(super) fn groups() -> Option<Section> {
    let name = "Groups that are not done";
    if TOO_MANY_GROUPS.first(()).unwrap_or_default() {
        let note = "<p class=\"soft\">There are too many groups to look through here. See taskq.groups.</p>"
            .to_owned();
        return Some(Section::new("groups", name, note));
    }
    let groups = GROUPS.query(());
    if groups.is_empty() {
        return None;
    }
    let rows: Vec<[String; 6]> = groups
        .iter()
        .map(|(name, paused, tasks, completed, aborted, skipped, left)| {
            let open = tasks - completed - aborted - skipped;
            let paused = if *paused { " <span class=\"soft\">(paused)</span>" } else { "" };
            [
                format!("{}{paused}", short(name, NAME)),
                bar(&[
                    ("completed", *completed),
                    ("skipped", *skipped),
                    ("aborted", *aborted),
                    ("blocked", open),
                ]),
                format!("{} %", 100 * (tasks - open) / tasks.max(&1)),
                open.to_string(),
                aborted.to_string(),
                left.clone(),
            ]
        })
        .collect();
    let columns = [
        text("group"),
        table::short(""),
        table::short("done"),
        table::short("left"),
        table::short("aborted"),
        table::short("done in"),
    ];
    let colours = key(&[
        ("completed", "completed"),
        ("skipped", "skipped"),
        ("aborted", "aborted"),
        ("blocked", "left"),
    ]);
    Some(Section::of("groups", name, colours, table(&columns, &rows)))
}

/// Twenty at most, of the last 20,000 that have ended, or hardly more. What was skipped, or has aborted because of a dependency, is
/// left out.
static DEAD_ENDS: Statement<(), (String, String, String, String, i32, String, String)> = Statement::planned_each_time(
    c"SELECT d.task_id, d.action, d.cause, COALESCE(d.status, ''), d.num_tries, taskq._age(taskq.clock() - d.settled_at),
             pg_catalog.to_char(d.settled_at, 'YYYY-MM-DD HH24:MI:SS OF')
        FROM (SELECT d.task_id, d.action, d.cause, d.status, d.num_tries, d.settled_at
                FROM taskq.dead_ends AS d
               WHERE d.cause <> 'dependency'
                 AND d.settled_at >= COALESCE((SELECT s.settled_at FROM taskq.settled AS s
                                                ORDER BY s.settled_at DESC OFFSET 20000 LIMIT 1), '-infinity')
               ORDER BY d.settled_at DESC LIMIT 20) AS d
       ORDER BY d.settled_at DESC",
);

/// Those of the tasks that aborted last which [`DEAD_ENDS`] finds.
pub(super) fn aborted(anchors: &Anchors) -> Option<Section> {
    let dead_ends = DEAD_ENDS.query(());
    if dead_ends.is_empty() {
        return None;
    }
    let rows: Vec<[String; 6]> = dead_ends
        .iter()
        .map(|(id, action, cause, status, tries, ago, at)| {
            [
                anchors.task(id),
                anchors.action(action),
                Escaped(cause).to_string(),
                folded(status),
                tries.to_string(),
                age(ago, at),
            ]
        })
        .collect();
    let columns = [
        text("task"),
        text("action"),
        text("cause"),
        text("status"),
        table::short("tries"),
        table::short("ago"),
    ];
    Some(Section::new("aborted", "What aborted last", table(&columns, &rows)))
}
