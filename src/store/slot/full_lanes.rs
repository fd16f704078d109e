//! Which groups are at a limit: their lanes are not looked into.

use super::Limit;
use super::known;
use crate::number::{Lane, Position};
use crate::pg::statement::Statement;

/// Walks `slot_held_idx`: as many rows as there are performances in progress that such limits count, and whatever is
/// dead. Groups of which none may run are full as well. The last row has how many slots of how many limits were
/// counted.
static FULL: Statement<&[&str], (Option<String>, Option<String>, i64, Option<i64>)> = Statement::new(
    c"WITH held AS MATERIALIZED (
        SELECT s.name, s.group_id, pg_catalog.count(*) AS held
          FROM taskq.slot s
         WHERE s.name = ANY ($1) AND s.task_no IS NOT NULL AND s.group_id <> ''
         GROUP BY s.name, s.group_id)
      SELECT h.name, h.group_id, taskq._lane(h.group_id), h.held
        FROM held AS h
       WHERE h.held >= CASE h.name
                       WHEN '' THEN (SELECT g.max_concurrency FROM taskq.task_group g WHERE g.group_id = h.group_id)
                       ELSE (SELECT s.max_per_group FROM taskq.action_setting s WHERE s.name = h.name) END
       UNION ALL
      SELECT '', NULL, taskq._lane(g.group_id), NULL FROM taskq.task_group g WHERE g.max_concurrency = 0
       UNION ALL
      SELECT NULL, NULL, pg_catalog.count(*), pg_catalog.sum(h.held)::bigint FROM held AS h",
);
/// Those of the limits, which were full, that still are: they allow no more than were held then, and nothing is free.
/// And groups of which none may run. Walks `slot_free_idx` from the marks on ($4).
static STILL_FULL: Statement<(&[&str], &[&str], &[i32], &[Position]), (String, Lane)> = Statement::new(
    c"SELECT u.name, taskq._lane(u.group_id)
        FROM unnest($1, $2, $3, $4) AS u(group_id, name, held, start)
       WHERE u.held >= CASE u.name
                       WHEN '' THEN (SELECT g.max_concurrency FROM taskq.task_group g WHERE g.group_id = u.group_id)
                       ELSE (SELECT s.max_per_group FROM taskq.action_setting s WHERE s.name = u.name) END
         AND (SELECT s.position FROM taskq.slot s
               WHERE s.group_id = u.group_id AND s.name = u.name AND s.task_no IS NULL AND s.position >= u.start
               ORDER BY s.position LIMIT 1) IS NULL
       UNION ALL
      SELECT '', taskq._lane(g.group_id) FROM taskq.task_group g WHERE g.max_concurrency = 0",
);

/// The lanes of groups that this transaction sees at a limit: at one in the action whose name comes
/// with it, or at their own, with an empty name. A hint: a limit that turns out to be full when its slots are to be
/// locked is as good.
pub(crate) fn full_lanes(actions: impl Iterator<Item = String>) -> Vec<(String, Lane)> {
    let names: Vec<String> = actions.chain([String::new()]).collect();
    match known::full(&names) {
        Some(limits) => still_full(limits),
        None => look(names),
    }
}

fn still_full(limits: Vec<(Limit, i32)>) -> Vec<(String, Lane)> {
    let starts: Vec<Position> = limits.iter().map(|(limit, held)| known::start(limit, *held)).collect();
    let held: Vec<i32> = limits.iter().map(|(_, held)| *held).collect();
    let (groups, actions): (Vec<String>, Vec<String>) =
        limits.into_iter().map(|(limit, _)| (limit.group, limit.action)).unzip();
    STILL_FULL.query((groups, actions, held, starts))
}

fn look(names: Vec<String>) -> Vec<(String, Lane)> {
    let (mut lanes, mut limits) = (Vec::new(), Vec::new());
    let (mut held, mut of) = (0, 0);
    let looked = FULL.look_each(names.clone(), |(action, group, number, slots)| match action {
        Some(action) => {
            // The row of a group of which none may run carries no count: slots that such a group still holds are counted in the row
            // of its full limit.
            if let (Some(group), Some(held)) = (group, slots) {
                let held = i32::try_from(held).unwrap_or(i32::MAX);
                limits.push((Limit { action: action.clone(), group }, held));
            }
            lanes.push((action, Lane(number)));
        }
        None => (of, held) = (number, slots.unwrap_or(0)),
    });
    known::remember_full(names, limits, looked.pages, held as usize, of as usize);
    lanes
}
