//! Statements that change rows of `run`: what is not worth direct access, or asks other tables.

use crate::number::{Position, ReasonNo, TaskNo};
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::store::freed::Freed;
use pgrx::datum::Interval;

/// Removes the entries of these tasks.
pub(crate) static REMOVE: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.run r WHERE r.task_no = ANY ($1)");

/// Back to what they were before they were taken, into the lanes of their groups, in the order given. No column
/// that others refer to is changed, so a transaction that adds dependents is not in the way.
pub(crate) static GIVE_TO_LANES: Statement<&[TaskNo]> = Statement::new(
    c"UPDATE taskq.run r
         SET nonce = r.prev_nonce, grantable = true, limited = false, tries = r.tries - 1,
             deadline = COALESCE(r.prev_deadline, 'infinity'), granted_at = r.prev_granted_at,
             actor_id = r.prev_actor_id, lane = u.lane, position = u.position
        FROM (SELECT u.task_no, l.lane,
                     pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass) AS position
                FROM pg_catalog.unnest($1) AS u(task_no)
               CROSS JOIN LATERAL (SELECT taskq._lane(t.group_id) AS lane FROM taskq.task t
                                    WHERE t.task_no = u.task_no OFFSET 0) AS l) AS u
       WHERE r.task_no = u.task_no",
);

/// Moves those of the first $2 entries of an action's lane 0 that belong into lanes there, in their order, without waiting: all
/// that have a group if $3, else those whose group has a limit of its own; from priority $4 and position $5 on, since others may have
/// locked any number of those before (in two parts, so that the index begins there). A new position: a call that has passed the
/// old one already could overlook an entry that comes there.
pub(crate) static MOVE_INTO_LANES: Statement<(i32, i32, bool, i32, Position)> = Statement::new(
    c"WITH here AS MATERIALIZED (
        SELECT r.task_no, r.priority, r.position, r.gated FROM taskq.run r
         WHERE r.action_no = $1 AND r.lane = 0 AND r.grantable AND r.priority = $4 AND r.position >= $5
         ORDER BY r.position LIMIT $2),
      below AS MATERIALIZED (
        SELECT r.task_no, r.priority, r.position, r.gated FROM taskq.run r
         WHERE r.action_no = $1 AND r.lane = 0 AND r.grantable AND r.priority < $4
         ORDER BY r.priority DESC, r.position LIMIT $2 - (SELECT pg_catalog.count(*) FROM here)),
      seen AS MATERIALIZED (
        SELECT c.task_no, c.priority, c.position, t.group_id
          FROM (SELECT * FROM here UNION ALL SELECT * FROM below) AS c
         CROSS JOIN LATERAL (SELECT t.group_id FROM taskq.task t WHERE t.task_no = c.task_no OFFSET 0) AS t
         WHERE c.gated AND t.group_id IS NOT NULL
           AND ($3 OR EXISTS (SELECT FROM taskq.task_group g
                               WHERE g.group_id = t.group_id AND g.max_concurrency IS NOT NULL OFFSET 0))),
      locked AS MATERIALIZED (
        SELECT s.task_no, s.priority, s.position, taskq._lane(s.group_id) AS lane
          FROM seen AS s
         CROSS JOIN LATERAL (SELECT FROM taskq.run r
                              WHERE r.task_no = s.task_no AND r.grantable AND r.lane = 0
                                FOR NO KEY UPDATE SKIP LOCKED) AS r)
      UPDATE taskq.run r SET lane = m.lane, position = m.position
        FROM (SELECT o.task_no, o.lane,
                     pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass) AS position
                FROM (SELECT l.task_no, l.lane FROM locked AS l ORDER BY l.priority DESC, l.position) AS o) AS m
       WHERE r.task_no = m.task_no AND r.grantable AND r.lane = 0",
);

/// Adds to what these tasks have of dependencies, and of such as have aborted; both may be negative.
pub(crate) static RECOUNT: Statement<(&[TaskNo], i32, i32)> = Statement::new(
    c"UPDATE taskq.run r SET dependencies = r.dependencies + $2, failures = r.failures + $3
       WHERE r.task_no = ANY ($1)",
);

/// Everything that is ready with these keys, or backs off after a deadline ($6), and whose workgroup is not held back now ($5), if it
/// can be removed: no other transaction has it locked, as to add a dependent. With its leader, and whether its deadline has ended its
/// last try.
pub(crate) static TAKE_RIDERS: Statement<
    (&[&str], &[&str], &[&str], &[TaskNo], Time, ReasonNo),
    (TaskNo, bool, Position, Freed),
> = Statement::new(
    c"WITH ready AS MATERIALIZED (
        SELECT u.leader_no, r.task_no, r.nonce, r.position, r.tries, r.failures, r.dependencies
          FROM unnest($1, $2, $3, $4) AS u(action, group_id, key, leader_no)
         CROSS JOIN LATERAL (
               SELECT r.task_no, r.nonce, r.position, r.tries, r.failures, r.dependencies FROM taskq.run r
                WHERE r.key_hash = taskq._key_hash(u.action, u.group_id, u.key) AND (r.grantable OR r.aside = $6)
                  AND (SELECT t.merge_key = u.key AND COALESCE(t.group_id, '') = u.group_id AND a.name = u.action
                              AND NOT EXISTS (SELECT FROM taskq.workgroup w
                                               WHERE w.name = t.workgroup AND w.not_before > $5 OFFSET 0)
                         FROM taskq.task t, taskq.action a
                        WHERE t.task_no = r.task_no AND a.action_no = t.action_no)
                  FOR UPDATE SKIP LOCKED) AS r),
      gone AS (DELETE FROM taskq.run d USING ready AS r WHERE d.task_no = r.task_no)
      SELECT r.leader_no, r.nonce <> 0, r.position, r.task_no, r.tries, r.failures, r.dependencies FROM ready AS r",
);

/// Those of the others that no transaction has locked for a change stay where they are, under their leaders and without a token.
pub(crate) static PARK_RIDERS: Statement<(&[&str], &[&str], &[&str], &[TaskNo], Time, ReasonNo)> = Statement::new(
    c"WITH ready AS MATERIALIZED (
        SELECT u.leader_no, r.task_no
          FROM unnest($1, $2, $3, $4) AS u(action, group_id, key, leader_no)
         CROSS JOIN LATERAL (
               SELECT r.task_no FROM taskq.run r
                WHERE r.key_hash = taskq._key_hash(u.action, u.group_id, u.key) AND (r.grantable OR r.aside = $6)
                  AND (SELECT t.merge_key = u.key AND COALESCE(t.group_id, '') = u.group_id AND a.name = u.action
                              AND NOT EXISTS (SELECT FROM taskq.workgroup w
                                               WHERE w.name = t.workgroup AND w.not_before > $5 OFFSET 0)
                         FROM taskq.task t, taskq.action a
                        WHERE t.task_no = r.task_no AND a.action_no = t.action_no)
                  FOR NO KEY UPDATE SKIP LOCKED) AS r)
      UPDATE taskq.run d
         SET grantable = false, aside = -r.leader_no, nonce = 0, deadline = 'infinity', granted_at = NULL,
             actor_id = NULL
        FROM ready AS r WHERE d.task_no = r.task_no AND (d.grantable OR d.aside = $6)",
);

/// Entries whose try has ended with its deadline are grantable again, behind those of their priority; returns
/// their actions. The token stays, for a worker that comes late.
pub(crate) static REQUEUE: Statement<&[TaskNo], i32> = Statement::new(
    c"UPDATE taskq.run r
         SET grantable = true, limited = false, keyed = false,
             position = pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass)
       WHERE r.task_no = ANY ($1)
      RETURNING r.action_no",
);

/// Those of the tasks in progress whose try before has ended with its deadline as well: they were granted with a token of it, and
/// nothing has been said in this one ([`SAID`]). One that was returned in between has another row.
pub(crate) static MISSED_BEFORE: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT r.task_no FROM taskq.run r WHERE r.task_no = ANY ($1) AND r.prev_nonce <> 0");

/// The worker of a task has reported, or saved a step: deadlines in a row are counted anew. Only where there is one.
pub(crate) static SAID: Statement<TaskNo> =
    Statement::new(c"UPDATE taskq.run r SET prev_nonce = 0 WHERE r.task_no = $1 AND r.prev_nonce <> 0");

/// A task whose deadline has passed, and that has not been granted since, is held again: until when, by which
/// worker, and whether with slots.
pub(crate) static HOLD_AGAIN: Statement<(TaskNo, Time, &str, bool)> = Statement::new(
    c"UPDATE taskq.run r SET deadline = $2, actor_id = $3, grantable = false, aside = NULL, limited = $4
       WHERE r.task_no = $1",
);

/// Another row in the place of each, for tasks that keep theirs (`verbs::update`). What is parked in place stays so.
pub(crate) static KEEP_PLACE: Statement<(&[TaskNo], Interval, i32), i32> = Statement::new(
    c"WITH gone AS (DELETE FROM taskq.run r WHERE r.task_no = ANY ($1) RETURNING r.*)
      INSERT INTO taskq.run (task_no, position, nonce, prev_nonce, deadline, action_no, priority, tries, failures,
                             dependencies, grantable, limited, gated, keyed, lease, max_run_time, lane, key_hash,
                             aside)
      SELECT g.task_no, g.position, 0, 0, 'infinity', g.action_no, COALESCE($3, g.priority), g.tries, g.failures,
             g.dependencies, g.grantable, false, g.gated, false, COALESCE($2, g.lease), g.max_run_time,
             g.lane, g.key_hash, g.aside
        FROM gone AS g
      RETURNING action_no",
);
