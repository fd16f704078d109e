-- taskq: what there is to see, readable in psql. Tokens are never shown.

-- Where tasks are, and what that means: each place once or more for each of the states that a task in it may be in, so that
-- `state` is a constant of each part. A condition on it excludes parts before anything is read; a task that is joined is looked
-- up in each of the rest. The parts are tables without a WHERE, or neither would be possible: a view that reads this one has the
-- condition itself, as taskq.tasks has. `applies`: this row is there in that state. It is written in such a way that no index can
-- be asked for it, or the planner might take the whole of that index for as cheap as a look-up (see src/pg/lookup.rs).
-- `held_back`: it is in that state if the task's workgroup is held back (true), or is not (false); NULL: that does not matter.
CREATE VIEW taskq._places AS
SELECT s.task_no, 'completed' AS state, CASE s.code WHEN 'c' THEN true ELSE false END AS applies, NULL::boolean AS held_back,
       s.tries AS num_tries, s.signals AS num_signals, s.dependencies AS total_dependencies,
       s.failures AS num_failures, s.actor_id, NULL::timestamptz AS deadline, NULL::timestamptz AS due, s.granted_at,
       s.settled_at, s.status, s.result, s.leader_no, NULL::"char" AS cause
  FROM taskq.settled AS s
UNION ALL
SELECT s.task_no, 'aborted', CASE s.code WHEN 'a' THEN true ELSE false END, NULL, s.tries, s.signals, s.dependencies, s.failures, s.actor_id,
       NULL, NULL, s.granted_at, s.settled_at, s.status, s.result, s.leader_no, s.cause
  FROM taskq.settled AS s
UNION ALL
SELECT r.task_no, 'in-progress', r.nonce <> 0, NULL, r.tries, r.dependencies, r.dependencies, r.failures,
       r.actor_id, r.deadline, NULL, r.granted_at, NULL, NULL, NULL, NULL, NULL
  FROM taskq.run AS r
UNION ALL
SELECT r.task_no, 'ready', r.nonce = 0, false, r.tries, r.dependencies, r.dependencies, r.failures, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, CASE WHEN r.aside < 0 THEN -r.aside END, NULL
  FROM taskq.run AS r
UNION ALL
SELECT r.task_no, 'scheduled',
       r.nonce = 0 AND r.gated AND EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()), true,
       r.tries, r.dependencies, r.dependencies, r.failures, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       CASE WHEN r.aside < 0 THEN -r.aside END, NULL
  FROM taskq.run AS r
UNION ALL
SELECT b.task_no, 'blocked', b.remaining > 0, NULL, b.tries, b.dependencies - b.remaining - b.spare, b.dependencies, b.failures,
       NULL, NULL, b.not_before, NULL, NULL, NULL, NULL, NULL, NULL
  FROM taskq.blocked AS b
UNION ALL
-- A timer is never ready: it completes.
SELECT d.task_no, 'scheduled', CASE WHEN d.timer OR d.due > (SELECT taskq.clock()) THEN true ELSE false END, NULL, d.tries, d.dependencies, d.dependencies,
       d.failures, NULL, NULL, d.due, NULL, NULL, NULL, NULL, NULL, NULL
  FROM taskq.scheduled AS d
UNION ALL
SELECT d.task_no, 'ready', CASE WHEN d.timer OR d.due > (SELECT taskq.clock()) THEN false ELSE true END, false, d.tries, d.dependencies, d.dependencies,
       d.failures, NULL, NULL, d.due, NULL, NULL, NULL, NULL, NULL, NULL
  FROM taskq.scheduled AS d
UNION ALL
SELECT d.task_no, 'scheduled',
       CASE WHEN d.timer OR d.due > (SELECT taskq.clock()) THEN false ELSE true END
       AND EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()), true,
       d.tries, d.dependencies, d.dependencies, d.failures, NULL, NULL, d.due, NULL, NULL, NULL, NULL, NULL, NULL
  FROM taskq.scheduled AS d
UNION ALL
SELECT k.task_no, 'ready', k.tries >= 0, false, k.tries, k.dependencies, k.dependencies, k.failures, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, k.leader_no, NULL
  FROM taskq.parked AS k
UNION ALL
SELECT k.task_no, 'scheduled',
       k.tries >= 0 AND EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()), true, k.tries, k.dependencies, k.dependencies, k.failures, NULL, NULL, NULL, NULL, NULL, NULL, NULL, k.leader_no, NULL
  FROM taskq.parked AS k;
COMMENT ON VIEW taskq._places IS 'internal: the places of tasks, and the states that a task in them may be in';


-- `taskq.===` is `=`, and a look-up: see src/pg/lookup.rs. To count tasks by state, taskq.count_tasks reads
-- less.
CREATE VIEW taskq.tasks AS
SELECT t.id,
       a.name AS action,
       p.state,
       t.body,
       taskq._status_code(p.state) AS status_code,
       COALESCE(p.status, (SELECT g.status FROM taskq.progress AS g WHERE g.task_no = t.task_no)) AS status,
       p.num_tries,
       t.max_tries,
       -- Of a blocked one with the signals that are committed but not counted yet.
       CASE p.state WHEN 'blocked'
            THEN p.num_signals + (SELECT COALESCE(sum(g.satisfied + g.lost), 0)::integer
                                    FROM taskq.countdown AS g WHERE g.run_no = p.task_no)
            ELSE p.num_signals END AS num_signals,
       p.total_dependencies,
       CASE p.state WHEN 'blocked'
            THEN p.num_failures + (SELECT COALESCE(sum(g.failed), 0)::integer
                                     FROM taskq.countdown AS g WHERE g.run_no = p.task_no)
            ELSE p.num_failures END AS num_failures,
       p.actor_id,
       NULLIF(p.deadline, 'infinity') AS action_deadline,
       p.result,
       t.priority,
       t.lease,
       CASE WHEN p.state = 'blocked' THEN GREATEST(t.not_before, p.due)
            WHEN p.state IN ('scheduled', 'ready')
            THEN COALESCE((SELECT GREATEST(p.due, t.not_before, max(w.not_before)) FROM taskq.workgroup AS w
                            WHERE w.name = t.workgroup AND w.not_before > taskq.clock() HAVING count(*) > 0), p.due, t.not_before)
            ELSE t.not_before END AS not_before,
       t.retention,
       t.spontaneous,
       t.post_result,
       t.group_id,
       t.workgroup,
       t.merge_key,
       t.seed,
       t.backoff,
       t.metadata,
       (SELECT g.progress FROM taskq.progress AS g WHERE g.task_no = t.task_no) AS progress,
       t.inserted_at,
       p.granted_at AS owned_at,
       p.settled_at,
       t.unique_key,
       t.retention_aborted,
       (SELECT l.id FROM taskq.task AS l WHERE l.task_no = p.leader_no) AS merged_into,
       taskq._body_json(t.body) AS body_json,
       taskq._cause(p.cause) AS cause,
       (SELECT COALESCE(sum(h.releases), 0)::integer FROM taskq.attempt AS h
         WHERE h.task_no = t.task_no AND NOT h.past) AS num_releases,
       NULLIF(t.expires_at, 'infinity') AS expires_at,
       t.max_run_time,
       t.signal,
       t.num_required,
       t.id AS task_id,
       (SELECT g.checkpoint FROM taskq.progress AS g WHERE g.task_no = t.task_no) AS checkpoint
  FROM taskq._places AS p
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) p.task_no
  JOIN taskq.action AS a ON a.action_no = t.action_no
 WHERE p.applies
   AND CASE WHEN p.held_back IS NULL THEN true
            ELSE p.held_back = (t.workgroup IS NOT NULL
                                AND EXISTS (SELECT FROM taskq.workgroup AS w
                                             WHERE w.name = t.workgroup AND w.not_before > taskq.clock())) END;
COMMENT ON VIEW taskq.tasks IS 'every task, one row';

CREATE VIEW taskq.dependencies AS
SELECT after.id AS after,
       run.id AS run,
       (CASE d.condition WHEN 'c' THEN 'completed' WHEN 's' THEN 'settled' ELSE 'aborted' END)::taskq.dependency_condition
           AS condition,
       EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = d.after_no OFFSET 0) AS settled
  FROM taskq.dependency AS d
  JOIN taskq.task AS after ON after.task_no OPERATOR(taskq.===) d.after_no
  JOIN taskq.task AS run ON run.task_no OPERATOR(taskq.===) d.run_no
 -- Always so: columns that no index has. What is dropped is no dependency any more.
 WHERE d.condition IN ('c', 's', 'a') AND d.state <> 'd' AND after.seed IN (true, false) AND run.seed IN (true, false);
COMMENT ON VIEW taskq.dependencies IS 'which task runs after which, on what condition, and whether the one waited for has settled';

-- Suspended tasks, and what each waits for: dependencies of this wait that have not ended.
CREATE VIEW taskq.waits AS
SELECT t.id AS task_id,
       (SELECT a.name FROM taskq.action AS a WHERE a.action_no = b.action_no) AS action,
       t.group_id,
       b.since,
       b.until,
       -- An array of more could be too large to be sent.
       ARRAY(SELECT after.id
               FROM taskq.dependency AS d
              CROSS JOIN LATERAL (SELECT x.id FROM taskq.task AS x WHERE x.task_no = d.after_no OFFSET 0) AS after
              WHERE d.run_no = b.task_no AND d.wait_no = b.wait_no AND d.state = 'w'
                AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = d.after_no OFFSET 0)
              ORDER BY after.id LIMIT 100000) AS waits_for,
       t.id
  FROM taskq.blocked AS b
  JOIN taskq.task AS t ON t.task_no = b.task_no
 WHERE b.since IS NOT NULL;
COMMENT ON VIEW taskq.waits IS 'suspended tasks: since when, until when at most, and for what';

-- What the dependencies of a task amount to, except those that it has gone on without; and what its counter has yet to count of
-- ends that have come. All of it is of one snapshot. What works a counter out (src/recount.rs) and what checks it ask this. A task
-- that has no dependency has no row.
CREATE VIEW taskq._standing AS
SELECT e.run_no AS task_no, e.stored, e.own, e.open, e.own_open, e.met, e.failed,
       c.met AS met_left, c.lost AS lost_left, c.failed AS failed_left
  -- `own`: those that no suspension has added, the others without which it went on included. `met`: those of them that have ended
  -- as they should. What settles after the time-out of a suspension counts for nothing, and is open to it.
  FROM (SELECT d.run_no,
               count(*) FILTER (WHERE d.state = 'w')::integer AS stored,
               count(*) FILTER (WHERE NOT d.suspending)::integer AS own,
               count(*) FILTER (WHERE d.state = 'w' AND d.code IS NULL)::integer AS open,
               count(*) FILTER (WHERE d.state = 'w' AND d.code IS NULL AND NOT d.suspending)::integer AS own_open,
               count(*) FILTER (WHERE d.state = 'w' AND NOT d.suspending AND d.condition IN ('s', d.code)
                                  AND d.code IS NOT NULL)::integer AS met,
               count(*) FILTER (WHERE d.state = 'w' AND d.code = 'a')::integer AS failed
          FROM (SELECT d.run_no, d.state, d.suspending, d.condition,
                       CASE WHEN (b.until < s.settled_at) IS NOT TRUE THEN s.code END AS code
                  FROM taskq.dependency AS d
                  LEFT JOIN taskq.blocked AS b ON b.task_no = d.run_no AND b.since IS NOT NULL
                  LEFT JOIN taskq.settled AS s ON s.task_no = d.after_no) AS d
         GROUP BY d.run_no) AS e
 CROSS JOIN LATERAL (SELECT COALESCE(sum(g.satisfied), 0)::integer AS met, COALESCE(sum(g.lost), 0)::integer AS lost,
                            COALESCE(sum(g.failed), 0)::integer AS failed
                       FROM taskq.blocked AS b
                      CROSS JOIN LATERAL (SELECT g.satisfied, g.lost, g.failed FROM taskq.countdown AS g
                                           WHERE g.run_no = b.task_no AND g.wait_no = b.wait_no OFFSET 0) AS g
                      WHERE b.task_no = e.run_no) AS c;
COMMENT ON VIEW taskq._standing IS 'internal: what the dependencies of a task amount to';

-- Those that were skipped have a state of their own here.
CREATE VIEW taskq._counts AS
SELECT l.action_no, l.state, l.number, l.first, 0::bigint AS recent, l.exact
  FROM taskq._about() AS l
UNION ALL
SELECT e.action_no, CASE WHEN e.code = 'c' THEN 'completed' WHEN e.cause = 'k' THEN 'skipped' ELSE 'aborted' END,
       COALESCE(e.number, 0), NULL, COALESCE(e.recent, 0), true
  FROM taskq._ended() AS e WHERE e.number <> 0 OR e.recent <> 0;
COMMENT ON VIEW taskq._counts IS 'internal: how many tasks there are, by number of the action and state, and whether that is exact';

-- `estimates`: the states of which the number may be an estimate.
CREATE VIEW taskq._numbers AS
SELECT a.name AS action,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'blocked'), 0)::bigint AS blocked,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'scheduled'), 0)::bigint AS scheduled,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'ready'), 0)::bigint AS ready,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'in-progress'), 0)::bigint AS in_progress,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'completed'), 0)::bigint AS completed,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'aborted'), 0)::bigint AS aborted,
       min((SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = c.first))
           FILTER (WHERE c.state = 'ready') AS oldest_ready,
       sum(c.recent)::bigint AS settled_last_minute,
       COALESCE(array_agg(c.state) FILTER (WHERE NOT c.exact), '{}') AS estimates,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'skipped'), 0)::bigint AS skipped
  FROM taskq._counts AS c
 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = c.action_no OFFSET 0) AS a
 GROUP BY a.name;
COMMENT ON VIEW taskq._numbers IS 'internal: how many tasks there are, by action';

-- Medians and 99th percentiles, in seconds, of what has been granted and is kept: of all that has settled, up to 1 MB (some 8,000
-- tasks), of more of a part of the pages.
CREATE FUNCTION taskq._percentiles()
    RETURNS TABLE (action text, waiting double precision[], running double precision[])
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        SELECT a.name,
               percentile_cont('{0.5,0.99}'::double precision[])
                   WITHIN GROUP (ORDER BY date_part('epoch', s.granted_at - t.inserted_at)),
               percentile_cont('{0.5,0.99}'::double precision[])
                   WITHIN GROUP (ORDER BY date_part('epoch', s.settled_at - s.granted_at))
          FROM taskq.settled AS s
               TABLESAMPLE SYSTEM (LEAST(100, 100 * 1e6 / GREATEST(pg_relation_size('taskq.settled'), 1))) REPEATABLE (1)
         CROSS JOIN LATERAL (SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = s.task_no OFFSET 0) AS t
         CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = s.action_no OFFSET 0) AS a
         WHERE s.granted_at IS NOT NULL
         GROUP BY a.name;
    END;
COMMENT ON FUNCTION taskq._percentiles IS 'internal: how long tasks that are kept have waited and run, by action';

-- The percentiles are worked out only if their columns are asked for.
CREATE VIEW taskq.stats AS
SELECT n.action, n.blocked, n.scheduled, n.ready, n.in_progress, n.completed, n.aborted, n.oldest_ready,
       n.settled_last_minute,
       p.waiting[1] * interval '1 second' AS waiting_p50,
       p.waiting[2] * interval '1 second' AS waiting_p99,
       p.running[1] * interval '1 second' AS running_p50,
       p.running[2] * interval '1 second' AS running_p99,
       n.skipped
  FROM taskq._numbers AS n
 CROSS JOIN LATERAL taskq._many(n.action) AS many(action)
  -- Grouped once more: a join with what has one row for each name goes where nothing of it is asked for.
  LEFT JOIN (SELECT x.action AS name, min(x.waiting) AS waiting, min(x.running) AS running
               FROM taskq._percentiles() AS x GROUP BY x.action) AS p ON p.name = n.action AND p.name = many.action;
COMMENT ON VIEW taskq.stats IS
    'per action: tasks per state (of very many an estimate), the oldest ready one, how many settled in the last minute, and how long those kept have waited and run';

CREATE VIEW taskq.actors AS
SELECT r.actor_id,
       t.id AS task_id,
       a.name AS action,
       NULLIF(r.deadline, 'infinity') AS action_deadline,
       r.deadline <= taskq.clock() AS overdue,
       r.granted_at AS owned_at,
       r.tries AS num_tries,
       t.id
  FROM taskq.run AS r
  -- One look-up each (OFFSET 0), whatever the statistics say.
 CROSS JOIN LATERAL (SELECT t.id, t.action_no FROM taskq.task AS t WHERE t.task_no = r.task_no OFFSET 0) AS t
  JOIN taskq.action AS a ON a.action_no = t.action_no
 WHERE r.nonce <> 0;
COMMENT ON VIEW taskq.actors IS 'which worker holds which task, until when';

-- Calls that sleep are found by what they are registered for, which are locks of a class of their own (src/pg/latch.rs): the kind
-- of what they wait for stands in the upper bits, and the number of an action in the lower ones (src/wake/channels.rs). Each waiting
-- call is there with each action that it asks for and that is known: one that asks for more actions than it is registered for may
-- ask for any; an action that has had no task has no number.
CREATE VIEW taskq._asking AS
SELECT k.pid,
       CASE WHEN k.classid::bigint = 1 << 24 THEN k.objid::bigint::integer END AS action_no,
       k.classid::bigint >> 24 = 6 AS for_any,
       k.classid::bigint >> 24 = 7 AS for_ends
  FROM pg_locks AS k
 WHERE k.locktype = 'advisory' AND k.objsubid = 29809
   AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
   AND (k.classid::bigint >> 24 IN (4, 6, 7) OR k.classid::bigint = 1 << 24);
COMMENT ON VIEW taskq._asking IS
    'internal: calls that wait for tasks, and the numbers of the actions that they ask for; and calls that wait for the ends of tasks';

-- Since when a session of another role sleeps the server shows to members of pg_read_all_stats. Which actor a session sleeps
-- for, and which session an actor has, is stored nowhere: so the two are rows of their own.
CREATE VIEW taskq.workers AS
SELECT k.pid,
       s.usename::text AS role,
       s.application_name,
       NULL::text AS actor_id,
       k.actions,
       -- Between two looks of one call the sleep goes on.
       s.query_start AS asleep_since,
       NULL::bigint AS tasks_held
  FROM (SELECT k.pid,
               CASE WHEN NOT bool_or(k.for_any)
                    THEN array_agg(DISTINCT a.name ORDER BY a.name) FILTER (WHERE a.name IS NOT NULL) END AS actions
          FROM taskq._asking AS k LEFT JOIN taskq.action AS a ON a.action_no = k.action_no
         GROUP BY k.pid) AS k
  LEFT JOIN pg_stat_activity AS s ON s.pid = k.pid
UNION ALL
SELECT NULL, NULL, NULL, r.actor_id, array_agg(DISTINCT a.name ORDER BY a.name), NULL, count(*)
  FROM taskq.run AS r
  JOIN taskq.action AS a ON a.action_no = r.action_no
 WHERE r.nonce <> 0
 GROUP BY r.actor_id;
COMMENT ON VIEW taskq.workers IS
    'sessions that sleep in a call of this queue, and actors that hold tasks; NULL where it cannot be known or may not be seen';

-- How much two names have in common, from 0 to 1: pairs of neighbouring characters.
CREATE FUNCTION taskq._alike(a text, b text)
    RETURNS double precision
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT 2.0 * count(*) / (length(a) + length(b) + 2)
          FROM (SELECT lower(substr(a, i, 2)) FROM generate_series(0, LEAST(length(a), 100)) AS i
                INTERSECT
                SELECT lower(substr(b, i, 2)) FROM generate_series(0, LEAST(length(b), 100)) AS i) AS x;
    END;
COMMENT ON FUNCTION taskq._alike IS 'internal: how much two names have in common';

-- Which of so many waiting calls ask for an action, in words, where `it` stands for it: how many do, how many may since they ask for very
-- many, and else the names that are most like it, of those that most calls ask for, with how many do.
CREATE FUNCTION taskq._asked_for(action text, it text, calls bigint, for_it bigint, for_any bigint, names text[], numbers bigint[])
    RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE WHEN calls = 0 THEN 'no call waits for tasks'
                    WHEN for_it > 0 THEN format('%s waiting call%s for %s', for_it, CASE for_it WHEN 1 THEN ' asks' ELSE 's ask' END, it)
                    WHEN for_any > 0 THEN format('%s waiting call%s for very many actions, "%s" perhaps among them%s',
                                                 for_any, CASE for_any WHEN 1 THEN ' asks' ELSE 's ask' END, action, '; of the others ' || o.names)
                    ELSE format('no waiting call asks for %s: of %s waiting call%s %s', it, calls, CASE calls WHEN 1 THEN '' ELSE 's' END,
                                COALESCE(o.names, 'none asks for one that has tasks'))
               END
          FROM (SELECT string_agg(format('%s ask%s for "%s"', x.number, CASE x.number WHEN 1 THEN 's' ELSE '' END, x.name), ', ' ORDER BY x.place)
                       || CASE WHEN cardinality(numbers) > 3 THEN ', and others' ELSE '' END AS names
                  FROM (SELECT n.name, n.number, row_number() OVER (ORDER BY taskq._alike(n.name, action) DESC, n.number DESC, n.name) AS place
                          FROM unnest(names, numbers[1:cardinality(names)]) AS n(name, number) WHERE calls > 0 AND for_it = 0) AS x
                 WHERE x.place <= 3) AS o;
    END;
COMMENT ON FUNCTION taskq._asked_for IS 'internal: which of so many waiting calls ask for an action, in words';

-- The same for one action, of a hundred that most calls ask for.
CREATE FUNCTION taskq._who_asks(action text)
    RETURNS text
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        WITH asking AS MATERIALIZED (SELECT s.pid, a.name, s.for_any FROM taskq._asking AS s
                                       LEFT JOIN taskq.action AS a ON a.action_no = s.action_no
                                      WHERE NOT s.for_ends)
        SELECT taskq._asked_for(_who_asks.action, format('action "%s"', _who_asks.action), c.number, c.for_it, c.for_any, n.names, n.numbers)
          FROM (SELECT count(DISTINCT s.pid) AS number, count(DISTINCT s.pid) FILTER (WHERE s.for_any) AS for_any,
                       count(DISTINCT s.pid) FILTER (WHERE s.name = _who_asks.action) AS for_it FROM asking AS s) AS c
         CROSS JOIN (SELECT array_agg(x.name) AS names, array_agg(x.number) AS numbers
                       FROM (SELECT s.name, count(DISTINCT s.pid) AS number FROM asking AS s
                              WHERE s.name IS NOT NULL GROUP BY s.name ORDER BY 2 DESC, 1 LIMIT 100) AS x) AS n;
    END;
COMMENT ON FUNCTION taskq._who_asks IS 'internal: which waiting calls ask for an action, in words';

-- What has settled is read from the tally, whatever the size of the group; what is alive is counted, and only
-- if its columns are asked for. Ready is what is left.
CREATE VIEW taskq.groups AS
SELECT y.group_id,
       COALESCE((SELECT g.paused FROM taskq.task_group AS g WHERE g.group_id = y.group_id), false) AS paused,
       COALESCE(x.blocked, 0) AS blocked,
       COALESCE(x.scheduled, 0) AS scheduled,
       y.tasks - y.settled - COALESCE(x.blocked + x.scheduled + x.in_progress, 0) AS ready,
       COALESCE(x.in_progress, 0) AS in_progress,
       y.completed,
       y.aborted,
       y.settled::double precision / y.tasks AS progress,
       y.first_at AS first_inserted_at,
       y.last_at AS last_settled_at,
       -- At the pace of the last ten minutes.
       CASE WHEN y.tasks > y.settled
            THEN taskq.clock() + GREATEST(taskq.clock() - y.since, interval '1 second')
                 * ((y.tasks - y.settled)::double precision / y.recent) END AS estimated_end,
       y.tasks,
       (SELECT g.max_concurrency FROM taskq.task_group AS g WHERE g.group_id = y.group_id) AS max_concurrency,
       (SELECT g.weight FROM taskq.task_group AS g WHERE g.group_id = y.group_id) AS weight,
       y.skipped
  FROM (SELECT g.group_id,
               sum(g.tasks)::bigint AS tasks,
               sum(g.completed)::bigint AS completed,
               sum(g.aborted)::bigint AS aborted,
               sum(g.skipped)::bigint AS skipped,
               sum(g.completed + g.aborted + g.skipped)::bigint AS settled,
               NULLIF(min(g.first_at), 'infinity') AS first_at,
               NULLIF(max(g.last_at), '-infinity') AS last_at,
               sum(g.completed + g.aborted + g.skipped) FILTER (WHERE g.span > taskq.clock() - interval '10 minutes')
                   ::double precision AS recent,
               min(g.span) FILTER (WHERE g.span > taskq.clock() - interval '10 minutes') AS since
          FROM taskq.group_tally AS g
         WHERE g.folded IN (false, true)
         GROUP BY g.group_id
        HAVING sum(g.tasks) > 0) AS y
 CROSS JOIN LATERAL taskq._many(y.group_id) AS many(group_id)
  LEFT JOIN (SELECT t.group_id,
                    count(*) FILTER (WHERE p.state = 'blocked') AS blocked,
                    count(*) FILTER (WHERE p.state = 'scheduled') AS scheduled,
                    count(*) FILTER (WHERE p.state = 'in-progress') AS in_progress
               FROM taskq._places AS p
               JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) p.task_no
              WHERE p.state IN ('blocked', 'scheduled', 'in-progress') AND p.applies
                AND CASE WHEN t.group_id IS NULL THEN false ELSE true END
                AND (p.held_back IS NULL
                     OR EXISTS (SELECT FROM taskq.workgroup AS w
                                 WHERE w.name = t.workgroup AND w.not_before > taskq.clock()))
              GROUP BY t.group_id) AS x ON x.group_id = y.group_id AND x.group_id = many.group_id;
COMMENT ON VIEW taskq.groups IS 'groups: tasks per state, the part that has settled, and when the rest will at this pace';

CREATE VIEW taskq.actions AS
SELECT n.name AS action,
       COALESCE(s.paused, false) AS paused,
       s.max_tries,
       s.lease,
       s.backoff,
       s.max_concurrency,
       (SELECT count(*) FROM taskq.slot AS l
         WHERE l.group_id = '' AND l.name = n.name AND l.task_no IS NOT NULL) AS slots_held,
       s.rate_limit,
       s.rate_period,
       s.retention,
       COALESCE(s.notify, false) AS notify,
       COALESCE(s.on_timeout, 'retry') AS on_timeout,
       s.max_timeouts,
       s.retention_aborted,
       COALESCE(s.fair, false) AS fair,
       s.max_per_group,
       s.expires_in,
       s.max_run_time
  FROM (SELECT a.name FROM taskq.action AS a WHERE NOT a.forgotten UNION SELECT s.name FROM taskq.action_setting AS s) AS n
  LEFT JOIN taskq.action_setting AS s ON s.name = n.name;
COMMENT ON VIEW taskq.actions IS 'actions and what is set for them; NULL where nothing is';

CREATE VIEW taskq.schedules AS
SELECT s.name, s.cron, s.timezone, s.task, s.overlap, s.backfill,
       NULLIF(s.next_at, 'infinity') AS next_at, s.last_at, s.last_task_id, s.problem, s.max_backfill,
       s.paused_next_at IS NOT NULL AS paused
  FROM taskq.schedule AS s;
COMMENT ON VIEW taskq.schedules IS 'schedules: when they run next, which run was inserted last, and why one could not be';

-- The tries of the history that are shown. A deadline that has passed makes an attempt, and more may follow under the same token: a late
-- return, another deadline, or the task is still in progress. Then the later row says more, and this one is not shown.
CREATE VIEW taskq._told_attempt AS
SELECT h.task_no, h.num_try, h.actor_id, h.started_at, h.ended_at, h.outcome, h.status
  FROM taskq.attempt AS h
 WHERE h.outcome <> 'timeout'
    OR NOT EXISTS (SELECT FROM taskq.attempt AS l
                    WHERE l.task_no = h.task_no AND l.started_at = h.started_at
                      AND (l.outcome <> 'timeout' OR l.ended_at > h.ended_at)
                   UNION ALL
                   SELECT FROM taskq.settled AS l
                    WHERE l.task_no = h.task_no AND l.granted_at = h.started_at
                   UNION ALL
                   SELECT FROM taskq.run AS l
                    WHERE l.task_no = h.task_no AND l.granted_at = h.started_at AND l.nonce <> 0 AND NOT l.grantable
                      AND l.aside IS NULL
                   OFFSET 0);
COMMENT ON VIEW taskq._told_attempt IS 'internal: tries of the history, each once';

-- Each part has the id in it, so that a condition on that gets to the tables. `seed` is always one of the two, and in no
-- index.
CREATE VIEW taskq.attempts AS
SELECT t.id AS task_id, h.num_try, h.actor_id, h.started_at, h.ended_at, h.outcome, h.status, t.id
  FROM taskq._told_attempt AS h
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) h.task_no
 WHERE t.seed IN (true, false)
UNION ALL
SELECT t.id, s.tries, s.actor_id, s.granted_at, s.settled_at,
       CASE WHEN s.code = 'c' THEN 'completed' WHEN s.cause = 't' THEN 'timeout'
            WHEN s.cause = 'c' THEN 'cancelled' ELSE 'aborted' END,
       s.status, t.id
  FROM taskq.settled AS s
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) s.task_no
 WHERE s.granted_at IS NOT NULL AND t.seed IN (true, false)
   -- A last try that was revoked is shown by its own row.
   AND NOT (s.cause = 'x' AND EXISTS (SELECT FROM taskq.attempt AS h
                                       WHERE h.task_no = s.task_no AND h.started_at = s.granted_at AND h.outcome = 'revoked'))
UNION ALL
SELECT t.id, r.tries, r.actor_id, r.granted_at, NULL, 'in-progress',
       (SELECT p.status FROM taskq.progress AS p WHERE p.task_no = r.task_no), t.id
  FROM taskq.run AS r
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) r.task_no
 -- One that is parked in place has passed its deadline.
 WHERE r.nonce <> 0 AND NOT r.grantable AND r.aside IS NULL AND t.seed IN (true, false);
COMMENT ON VIEW taskq.attempts IS 'tries of tasks, those that are kept: worker, from when to when, and how each ended';

CREATE VIEW taskq.steps AS
SELECT t.id AS task_id, s.position, s.name AS step, s.num_try, s.result, s.saved_at, t.id
  FROM taskq.step AS s
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) s.task_no
 WHERE t.seed IN (true, false);
COMMENT ON VIEW taskq.steps IS 'results that durable tasks have saved, step by step';

-- What the abort of a task began with: from each to the first dependency that it has lost, up to one that has lost none. (A thousand
-- steps at most.)
CREATE FUNCTION taskq._origin(task_no bigint)
    RETURNS bigint
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    origin bigint := task_no;
    lost bigint;
BEGIN
    FOR step IN 1..1000 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = origin AND s.cause IN ('d', 'k'));
        SELECT e.after_no INTO lost
          FROM taskq.dependency AS e
         CROSS JOIN LATERAL (SELECT s.code FROM taskq.settled AS s WHERE s.task_no = e.after_no OFFSET 0) AS s
         WHERE e.run_no = origin AND e.state <> 'd'
           AND ((e.condition = 'c' AND s.code = 'a') OR (e.condition = 'a' AND s.code = 'c'))
         ORDER BY e.after_no LIMIT 1;
        EXIT WHEN NOT FOUND;
        origin := lost;
    END LOOP;
    RETURN origin;
END
$$;
COMMENT ON FUNCTION taskq._origin IS 'internal: the number of the task that the abort of this one began with, perhaps its own';

CREATE VIEW taskq.dead_ends AS
SELECT t.id AS task_id,
       a.name AS action,
       t.group_id,
       t.body,
       taskq._cause(s.cause) AS cause,
       s.status,
       s.result,
       s.tries AS num_tries,
       s.actor_id,
       t.inserted_at,
       s.settled_at,
       NULLIF(s.expires_at, 'infinity') AS kept_until,
       -- Worked out only if it is asked for.
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'num_try', x.num_try, 'actor_id', x.actor_id, 'started_at', x.started_at, 'ended_at', x.ended_at,
                   'outcome', x.outcome, 'status', x.status) ORDER BY x.started_at, x.num_try), '[]')
          FROM taskq.attempts AS x WHERE x.task_id = t.id) AS attempts,
       t.id,
       -- Likewise.
       CASE WHEN s.cause IN ('d', 'k') THEN (SELECT o.id FROM taskq.task AS o WHERE o.task_no = taskq._origin(s.task_no))
            ELSE t.id END AS root
  FROM taskq.settled AS s
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) s.task_no
  JOIN taskq.action AS a ON a.action_no = t.action_no
 WHERE s.code = 'a' AND s.cause <> 'k';
COMMENT ON VIEW taskq.dead_ends IS
    'tasks that have aborted, without those that were skipped: why, and what became of their tries';

CREATE VIEW taskq.workgroups AS
SELECT n.name AS workgroup,
       w.not_before,
       COALESCE(w.not_before > taskq.clock(), false) AS held_back
  FROM (SELECT w.name FROM taskq.workgroup AS w
        UNION SELECT t.workgroup FROM taskq.task AS t WHERE t.workgroup IS NOT NULL) AS n
  LEFT JOIN (SELECT w.name, max(w.not_before) AS not_before FROM taskq.workgroup AS w GROUP BY w.name) AS w ON w.name = n.name;
COMMENT ON VIEW taskq.workgroups IS 'workgroups and until when they are held back';

CREATE VIEW taskq.unique_keys AS
-- Of the task that was inserted with the key last, and the one behind which that came: the one that holds it.
SELECT DISTINCT ON (h.action, h.key) h.action, h.key, h.task_id, h.state, h.held, h.held_until, h.task_id AS id
  FROM (SELECT k.action,
               k.key,
               t.id AS task_id,
               p.state,
               -- A rider has begun with its leader.
               CASE WHEN p.leader_no IS NOT NULL AND p.state IN ('ready', 'scheduled') THEN 8
                    ELSE CASE p.state WHEN 'blocked' THEN 1 WHEN 'scheduled' THEN 2 WHEN 'ready' THEN 4
                                      WHEN 'in-progress' THEN 8 WHEN 'completed' THEN 16 ELSE 32 END END & t.unique_states <> 0
                   AND (t.unique_until IS NULL OR taskq.clock() < t.unique_until) AS held,
               t.unique_until AS held_until,
               n.is_last
          FROM taskq.unique_key AS k
         CROSS JOIN LATERAL (VALUES (k.task_no, true), (k.behind_no, false)) AS n(task_no, is_last)
          JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) n.task_no AND t.unique_states IS NOT NULL
          JOIN taskq._places AS p ON p.task_no OPERATOR(taskq.===) n.task_no
         WHERE p.applies
           AND CASE WHEN p.held_back IS NULL THEN true
                    ELSE p.held_back = (t.workgroup IS NOT NULL
                                        AND EXISTS (SELECT FROM taskq.workgroup AS w
                                                     WHERE w.name = t.workgroup AND w.not_before > taskq.clock())) END) AS h
 ORDER BY h.action, h.key, h.held DESC, h.is_last DESC;
COMMENT ON VIEW taskq.unique_keys IS 'keys of unique tasks: which task holds one, else which was inserted with it last';

CREATE FUNCTION taskq.count_tasks(
        actions text[] = NULL,
        ids text[] = NULL,
        groups text[] = NULL,
        states text[] = NULL)
    RETURNS TABLE (action text, state text, count bigint)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 20
    SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    known CONSTANT text[] := '{blocked,scheduled,ready,in-progress,completed,aborted}';
BEGIN
    IF states IS NOT NULL THEN
        PERFORM taskq._check_words('states', ARRAY(SELECT u.s FROM unnest(states) AS u(s) WHERE u.s IS NOT NULL), known);
    END IF;
    IF ids IS NULL AND groups IS NULL THEN
        RETURN QUERY
        SELECT a.name, c.state, sum(c.number)::bigint
          -- Neither half is read where none of its states is asked for.
          FROM (SELECT l.action_no, l.state, l.number
                  FROM taskq._live() AS l WHERE states IS NULL OR states && '{blocked,scheduled,ready,in-progress}'
                UNION ALL
                SELECT e.action_no, CASE e.code WHEN 'c' THEN 'completed' ELSE 'aborted' END, e.number
                  FROM taskq._ended() AS e WHERE states IS NULL OR states && '{completed,aborted}') AS c
         CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = c.action_no OFFSET 0) AS a
         WHERE (actions IS NULL OR a.name = ANY (actions)) AND (states IS NULL OR c.state = ANY (states))
         GROUP BY a.name, c.state
        HAVING sum(c.number) > 0
         ORDER BY a.name, c.state;
    ELSE
        RETURN QUERY
        SELECT t.action, t.state, count(*)
          FROM taskq.tasks AS t
         WHERE (actions IS NULL OR t.action = ANY (actions))
           AND (ids IS NULL OR t.id = ANY (ids))
           AND (groups IS NULL OR t.group_id = ANY (groups))
           AND (states IS NULL OR t.state = ANY (states))
         GROUP BY t.action, t.state
         ORDER BY t.action, t.state;
    END IF;
END
$$;
COMMENT ON FUNCTION taskq.count_tasks IS
    'number of tasks per action and state; a NULL argument does not filter';

-- The reasons in words, one a row.
CREATE FUNCTION taskq.why(task_id text)
    RETURNS SETOF text
    LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000 ROWS 5
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    t taskq.tasks%ROWTYPE;
    number bigint;
    d record;
    n bigint;
    its_lane bigint;
    its_max_tries integer;
    last_grant timestamptz;
    origin bigint;
    lost bigint;
    steps integer := 0;
    is_signal boolean := false;
BEGIN
    IF task_id IS NULL THEN
        RAISE EXCEPTION 'argument "task_id" must not be NULL'
            USING ERRCODE = '22004', DETAIL = 'NULL was given for "task_id".', HINT = 'Give the id of a task.';
    END IF;
    SELECT x.* INTO t FROM taskq.tasks AS x WHERE x.id = task_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'task "%" does not exist', pg_catalog.left(task_id, 300)
            USING ERRCODE = 'TQ003',
                  DETAIL = 'It was never inserted, or it was deleted, or its retention is over.',
                  HINT = 'Check the id; taskq.tasks shows the tasks there are.';
    END IF;
    SELECT x.task_no INTO number FROM taskq.task AS x WHERE x.id = task_id;
    its_max_tries := COALESCE(t.max_tries, (SELECT s.max_tries FROM taskq.action_setting AS s WHERE s.name = t.action),
                              NULLIF(current_setting('taskq.max_tries', true)::integer, -1));

    IF t.state IN ('completed', 'aborted') THEN
        RETURN NEXT format('it %s at %s%s', CASE WHEN t.state = 'completed' THEN 'completed'
                                                 WHEN t.cause = 'skipped' THEN 'was aborted, as skipped,' ELSE 'was aborted' END,
                           t.settled_at, COALESCE(': ' || t.status, ''));
        IF EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = number AND s.cause = 'm') THEN
            RETURN NEXT format('it did not run itself: %s with the same merge key "%s" ran for it',
                               COALESCE('"' || t.merged_into || '"', 'a task that is gone'), t.merge_key);
        END IF;
        -- One look-up per edge (OFFSET 0): the planner is not to join all tasks first.
        FOR d IN SELECT o.id AS after, CASE e.condition WHEN 'c' THEN 'completed' ELSE 'aborted' END AS condition,
                        s.code, s.cause
                   FROM taskq.dependency AS e
                  CROSS JOIN LATERAL (SELECT s.code, s.cause FROM taskq.settled AS s WHERE s.task_no = e.after_no OFFSET 0) AS s
                  CROSS JOIN LATERAL (SELECT o.id FROM taskq.task AS o WHERE o.task_no = e.after_no OFFSET 0) AS o
                  WHERE e.run_no = number AND t.state = 'aborted' AND e.state <> 'd'
                    AND ((e.condition = 'c' AND s.code = 'a') OR (e.condition = 'a' AND s.code = 'c'))
                  ORDER BY o.id LIMIT 20
        LOOP
            RETURN NEXT format('its dependency "%s" %s, and it runs only if that is %s', d.after,
                               CASE WHEN d.code <> 'a' THEN 'completed' WHEN d.cause = 'k' THEN 'was skipped'
                                    ELSE 'was aborted' END, d.condition);
        END LOOP;
        -- What it began with, where that lies further up than what it has lost itself.
        origin := taskq._origin(number);
        IF origin <> number AND NOT EXISTS (SELECT FROM taskq.dependency AS e WHERE e.run_no = number AND e.after_no = origin) THEN
            RETURN NEXT (SELECT format('it began with "%s", which %s%s', o.id,
                                       CASE s.code WHEN 'a' THEN 'was aborted' ELSE 'completed' END, COALESCE(': ' || s.status, ''))
                           FROM taskq.settled AS s JOIN taskq.task AS o ON o.task_no = s.task_no WHERE s.task_no = origin);
        END IF;
        IF t.state = 'aborted' AND t.num_tries >= its_max_tries THEN
            RETURN NEXT format('no tries are left: %s of %s are used up', t.num_tries, its_max_tries);
        END IF;
        RETURN;
    END IF;

    IF t.state = 'in-progress' THEN
        RETURN NEXT format('it is in progress: actor "%s" has owned it since %s, %s', t.actor_id, t.owned_at,
                           CASE WHEN t.action_deadline IS NULL THEN 'without a deadline'
                                WHEN EXISTS (SELECT FROM taskq.run AS r WHERE r.task_no = number AND r.aside = 1152921504606846976) THEN
                                    format('and its deadline passed at %s: it backs off, since the try before has ended with its deadline as well',
                                           t.action_deadline)
                                WHEN t.action_deadline <= taskq.clock() THEN
                                    format('and its deadline passed at %s: the next own_tasks for "%s" may take it over',
                                           t.action_deadline, t.action)
                                ELSE format('until %s', t.action_deadline) END);
        RETURN;
    END IF;

    IF t.state = 'blocked' THEN
        FOR d IN SELECT b.since, b.until, o.signal, b.remaining, o.num_required
                   FROM taskq.blocked AS b
                  CROSS JOIN LATERAL (SELECT o.signal, o.num_required FROM taskq.task AS o WHERE o.task_no = b.task_no OFFSET 0) AS o
                  WHERE b.task_no = number
        LOOP
            is_signal := d.signal;
            IF d.since IS NOT NULL THEN
                RETURN NEXT format('it is suspended since %s%s', d.since, COALESCE(', and goes on at ' || d.until || ' at the latest', ''));
            END IF;
            IF d.signal THEN
                RETURN NEXT format('it is a signal: it waits for taskq.signal(%L)', t.id);
            END IF;
            IF d.num_required IS NOT NULL AND d.since IS NULL THEN
                RETURN NEXT format(CASE WHEN d.num_required <= t.total_dependencies THEN 'it needs %s of its %s dependencies: %s more'
                                        ELSE 'it needs %s dependencies; %s are left, and others that it had are gone: %s more' END,
                                   d.num_required, t.total_dependencies, d.remaining);
            END IF;
        END LOOP;
        FOR d IN SELECT y.id AS after, y.state, y.actor_id, y.action_deadline, u.waits,
                        CASE u.condition WHEN 'c' THEN 'completed' WHEN 's' THEN 'settled' ELSE 'aborted' END AS condition
                   FROM (SELECT e.after_no, e.condition, count(*) OVER () AS waits
                           FROM taskq.dependency AS e
                          WHERE e.run_no = number AND e.state = 'w'
                            AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = e.after_no OFFSET 0)
                          ORDER BY e.after_no LIMIT 20) AS u
                  CROSS JOIN LATERAL (SELECT o.id FROM taskq.task AS o WHERE o.task_no = u.after_no OFFSET 0) AS o
                  CROSS JOIN LATERAL (SELECT y.* FROM taskq.tasks AS y WHERE y.id = o.id OFFSET 0) AS y
                  ORDER BY u.after_no
        LOOP
            RETURN NEXT format('it waits for "%s" to be %s, which is %s%s', d.after, d.condition, d.state,
                               CASE WHEN d.state = 'in-progress' THEN
                                    format(' (actor "%s"%s)', d.actor_id, COALESCE(', until ' || d.action_deadline, ''))
                                    ELSE '' END);
            n := d.waits;
        END LOOP;
        IF n > 20 THEN
            RETURN NEXT format('it waits for %s more tasks; see taskq.dependencies', n - 20);
        END IF;
        -- What stands at the end of the line: from each to the first dependency that it still waits for.
        origin := number;
        WHILE steps < 1000 LOOP
            SELECT e.after_no INTO lost
              FROM taskq.blocked AS b
             CROSS JOIN LATERAL (SELECT e.after_no FROM taskq.dependency AS e
                                  WHERE e.run_no = b.task_no AND e.wait_no = b.wait_no AND e.state = 'w'
                                    AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = e.after_no OFFSET 0)
                                  ORDER BY e.after_no LIMIT 1) AS e
             WHERE b.task_no = origin;
            EXIT WHEN NOT FOUND;
            origin := lost;
            steps := steps + 1;
        END LOOP;
        IF steps > 1 THEN
            RETURN NEXT (SELECT format('it comes down to "%s", which is %s%s', y.id,
                                       CASE WHEN y.signal AND y.state = 'blocked' THEN 'a signal that has not come' ELSE y.state END,
                                       CASE WHEN y.state = 'in-progress'
                                            THEN format(' (actor "%s"%s)', y.actor_id, COALESCE(', until ' || y.action_deadline, '')) ELSE '' END)
                           FROM taskq.task AS o JOIN taskq.tasks AS y ON y.id = o.id WHERE o.task_no = origin);
        END IF;
        IF n IS NULL AND NOT is_signal THEN
            RETURN NEXT 'its last dependencies have settled just now; the next call of the queue frees it';
        END IF;
    END IF;

    -- Of one that has been granted the row may still be there.
    IF t.num_tries = 0 AND t.num_releases = 0 THEN
        FOR d IN SELECT x.due, CASE WHEN y.signal THEN 'signalled' ELSE 'granted' END AS done
                   FROM taskq.expiry AS x JOIN taskq.task AS y ON y.task_no = x.task_no WHERE x.task_no = number
        LOOP
            RETURN NEXT CASE WHEN d.due > taskq.clock() THEN format('it expires at %s, unless it is %s before', d.due, d.done)
                             ELSE format('it expired at %s; the next call of the queue aborts it', d.due) END;
        END LOOP;
    END IF;

    FOR d IN SELECT w.name, max(w.not_before) AS not_before FROM taskq.workgroup AS w
              WHERE w.name = t.workgroup AND w.not_before > taskq.clock() GROUP BY w.name
    LOOP
        RETURN NEXT format('its workgroup "%s" is held back until %s', d.name, d.not_before);
    END LOOP;

    IF t.spontaneous AND t.state = 'scheduled' AND t.not_before <= taskq.clock() THEN
        RETURN NEXT format('its time has come at %s; the next call of the queue completes it', t.not_before);
    ELSIF t.not_before > taskq.clock() THEN
        RETURN NEXT CASE WHEN t.spontaneous THEN format('the queue completes it at %s', t.not_before)
                         ELSE format('it is not to be owned before %s', t.not_before) END;
    END IF;

    IF t.state = 'ready' THEN
        FOR d IN SELECT CASE k.kind
                        WHEN 'g' THEN format('its group "%s" is paused', k.name)
                        WHEN 'k' THEN format('a task with the same merge key "%s" runs: "%s"', k.key,
                                             (SELECT y.id FROM taskq.merge_key AS m JOIN taskq.task AS y ON y.task_no = m.holder_no
                                               WHERE m.action = k.action AND m.group_id = k.name AND m.key = k.key))
                        ELSE format('it shares the end of "%s", which has the same merge key',
                                    (SELECT y.id FROM taskq.task AS y WHERE y.task_no = k.leader_no)) END AS reason
                   FROM taskq.parked AS k WHERE k.task_no = number
                 UNION ALL
                 -- What is parked in place, or has not been met by a claim.
                 SELECT CASE WHEN r.aside < 0
                             THEN format('it shares the end of "%s", which has the same merge key',
                                         (SELECT y.id FROM taskq.task AS y WHERE y.task_no = -r.aside))
                             ELSE (SELECT format('a task with the same merge key "%s" runs: "%s"', m.key, y.id)
                                     FROM taskq.task AS me
                                     JOIN taskq.action AS a ON a.action_no = me.action_no
                                     JOIN taskq.merge_key AS m ON m.action = a.name AND m.key = me.merge_key
                                                              AND m.group_id = COALESCE(me.group_id, '')
                                     JOIN taskq.task AS y ON y.task_no = m.holder_no
                                    WHERE me.task_no = number) END
                   FROM taskq.run AS r
                  WHERE r.task_no = number
                    AND (r.aside < 0 OR EXISTS (SELECT FROM taskq.task AS me
                                                  JOIN taskq.action AS a ON a.action_no = me.action_no
                                                  JOIN taskq.merge_key AS m ON m.action = a.name AND m.key = me.merge_key
                                                                           AND m.group_id = COALESCE(me.group_id, '')
                                                 WHERE me.task_no = number AND m.holder_no <> number))
                 UNION ALL
                 SELECT format('its group "%s" is paused', g.group_id) FROM taskq.task_group AS g
                  WHERE g.group_id = t.group_id AND g.paused
                    AND NOT EXISTS (SELECT FROM taskq.parked AS k WHERE k.task_no = number)
                 UNION ALL
                 SELECT format('its action "%s" is paused', a.action) FROM taskq.actions AS a
                  WHERE a.action = t.action AND a.paused
                 UNION ALL
                 SELECT format('the limit of its action is full: %s of %s tasks are in progress%s',
                               a.slots_held, a.max_concurrency,
                               ', held by ' || (SELECT string_agg(DISTINCT format('"%s"', r.actor_id), ', ')
                                                  FROM taskq.slot AS l JOIN taskq.run AS r ON r.task_no = l.task_no
                                                 WHERE l.group_id = '' AND l.name = a.action))
                   FROM taskq.actions AS a
                  WHERE a.action = t.action AND a.slots_held >= a.max_concurrency
                 UNION ALL
                 -- The limits of its group: in its action, and of its own.
                 SELECT format('the limit of its group "%s"%s is full: %s of %s tasks are in progress%s',
                               t.group_id, m.what, h.held, m.most, ', held by ' || h.actors)
                   FROM (SELECT a.action AS name, ' in its action' AS what, a.max_per_group AS most
                           FROM taskq.actions AS a WHERE a.action = t.action
                         UNION ALL
                         SELECT '', '', g.max_concurrency FROM taskq.task_group AS g WHERE g.group_id = t.group_id) AS m
                  CROSS JOIN LATERAL (
                        SELECT count(*) AS held, string_agg(DISTINCT format('"%s"', r.actor_id), ', ') AS actors
                          FROM taskq.slot AS l JOIN taskq.run AS r ON r.task_no = l.task_no
                         WHERE l.group_id = t.group_id AND l.name = m.name) AS h
                  WHERE h.held >= m.most
                 UNION ALL
                 SELECT format('the rate limit of its action (%s per %s) is used up; the next may go at %s',
                               a.rate_limit, a.rate_period,
                               b.measured_at + (1 - b.level) / a.rate_limit * EXTRACT(epoch FROM a.rate_period)
                                               * interval '1 second')
                   FROM taskq.actions AS a
                   JOIN taskq.bucket AS b ON b.name = a.action
                  WHERE a.action = t.action
                    AND b.level + EXTRACT(epoch FROM taskq.clock() - b.measured_at) * a.rate_limit
                                  / EXTRACT(epoch FROM a.rate_period) < 1
        LOOP
            RETURN NEXT d.reason;
        END LOOP;
        IF t.num_tries > 0 THEN
            RETURN NEXT format('it was given back after try %s%s%s', t.num_tries,
                               COALESCE(' of ' || its_max_tries, ''), COALESCE(': ' || t.status, ''));
        END IF;
        IF t.num_releases > 0 THEN
            RETURN NEXT format('it was given back %s without the try being counted%s',
                               CASE t.num_releases WHEN 1 THEN 'once' ELSE t.num_releases || ' times' END,
                               CASE WHEN t.num_tries = 0 THEN COALESCE(': ' || t.status, '') ELSE '' END);
        END IF;
        -- What is in the lane of a group goes by the order of that lane.
        its_lane := COALESCE((SELECT r.lane FROM taskq.run AS r WHERE r.task_no = number), 0);
        SELECT count(*) INTO n
          FROM (SELECT FROM taskq.run AS me
                 CROSS JOIN LATERAL (
                       SELECT FROM taskq.run AS r
                        WHERE its_lane = 0 AND r.action_no = me.action_no AND r.lane = 0 AND r.grantable
                          AND (r.priority > me.priority OR (r.priority = me.priority AND r.position < me.position))
                       UNION ALL
                       SELECT FROM taskq.run AS r
                        WHERE its_lane <> 0 AND r.action_no = me.action_no AND r.lane = me.lane AND r.lane <> 0
                          AND r.grantable
                          AND (r.priority > me.priority OR (r.priority = me.priority AND r.position < me.position))) AS r
                 WHERE me.task_no = number
                 LIMIT 1000) AS ahead;
        -- A transaction that has changed or locked a row has its id in xmax, and holds a lock on that id, unless the id is that
        -- of a savepoint that has been released. (Where several have locked the row, xmax has another kind of number, which is
        -- hardly ever that of a transaction in progress.) A transaction that only makes another task depend on the row's has
        -- locked it, too.
        FOR d IN SELECT l.pid
                   FROM (SELECT r.xmax::text::bigint AS id FROM taskq.run AS r WHERE r.task_no = number
                         UNION ALL
                         SELECT s.xmax::text::bigint FROM taskq.scheduled AS s WHERE s.task_no = number) AS x
                  CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS latest) AS n
                  -- How far behind what has ended last; transactions that began after that are ahead.
                  CROSS JOIN LATERAL (SELECT ((n.latest - x.id + 2147483648) & 4294967295) - 2147483648 AS behind) AS b
                   LEFT JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid::text::bigint = x.id AND l.granted
                  WHERE x.id <> 0 AND l.pid IS DISTINCT FROM pg_backend_pid()
                    AND CASE WHEN b.behind > 0 AND n.latest > b.behind
                             THEN pg_xact_status((n.latest - b.behind)::text::xid8) = 'in progress'
                             ELSE b.behind > -1000000 END
        LOOP
            RETURN NEXT format('a transaction that is open has it in hand%s: it may have been granted there and not committed, or the transaction is changing it, or has another task depend on it',
                               COALESCE(' (pid ' || d.pid || ')', ''));
        END LOOP;
        RETURN NEXT format('it is ready, with %s before it among the tasks of its %s',
                           CASE WHEN n >= 1000 THEN '1000 or more' ELSE n::text END,
                           CASE its_lane WHEN 0 THEN 'action' ELSE 'group in its action' END);
        -- Among what stands first in the queue and the last thousand tasks that have settled: mostly enough to see
        -- whether a worker asks for the action, without reading all that is settled.
        SELECT max(x.granted_at) INTO last_grant
          FROM (SELECT r.granted_at FROM taskq.action AS a
                 CROSS JOIN LATERAL ((SELECT r.granted_at FROM taskq.run AS r
                                       WHERE r.action_no = a.action_no AND r.lane = 0
                                       ORDER BY r.priority DESC, r.position LIMIT 1000)
                                     UNION ALL
                                     (SELECT r.granted_at FROM taskq.run AS r
                                       WHERE r.action_no = a.action_no AND r.lane <> 0
                                       ORDER BY r.priority DESC, r.lane, r.position LIMIT 1000)) AS r
                 WHERE a.name = t.action
                UNION ALL
                SELECT s.granted_at
                  FROM (SELECT s.action_no, s.granted_at FROM taskq.settled AS s
                         ORDER BY s.settled_at DESC LIMIT 1000) AS s
                  JOIN taskq.action AS a ON a.action_no = s.action_no
                 WHERE a.name = t.action) AS x;
        RETURN NEXT CASE WHEN last_grant IS NULL
                         THEN format('no recent grant of a task of action "%s" is to be seen', t.action)
                         ELSE format('the last grant of a task of action "%s" was at %s', t.action, last_grant) END;
        RETURN NEXT taskq._who_asks(t.action);
    END IF;
END
$$;
COMMENT ON FUNCTION taskq.why IS 'why a task is not running (or how it ended), one reason a row';

CREATE FUNCTION taskq.dependency_results(task_id text)
    RETURNS TABLE (task_id text, action text, status_code taskq.status_code, status text, result jsonb)
    LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER COST 100 ROWS 10
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT t.id, t.name, CASE s.code WHEN 'c' THEN 'completed' ELSE 'aborted' END::taskq.status_code,
               s.status, s.result
          FROM taskq.task AS me
         CROSS JOIN LATERAL (SELECT d.after_no, d.condition FROM taskq.dependency AS d
                              WHERE d.run_no OPERATOR(taskq.===) me.task_no AND d.state <> 'd' OFFSET 0) AS d
         CROSS JOIN LATERAL (SELECT s.code, s.status, s.result FROM taskq.settled AS s
                              WHERE s.task_no = d.after_no OFFSET 0) AS s
         CROSS JOIN LATERAL (SELECT t.id, a.name FROM taskq.task AS t, taskq.action AS a
                              WHERE t.task_no = d.after_no AND a.action_no = t.action_no OFFSET 0) AS t
         WHERE me.id = dependency_results.task_id
         ORDER BY d.after_no;
    END;
COMMENT ON FUNCTION taskq.dependency_results IS
    'what the settled dependencies of a task left, in the order in which they were inserted';

CREATE FUNCTION taskq.check()
    RETURNS TABLE (problem text, task_id text, detail text)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 1
    SET search_path = pg_catalog, pg_temp
    -- It reads whole tables, and statistics may be those of an empty queue: each part reads its tables as a whole, and joins them
    -- by hash or by merge, whatever they say. So nothing in here may be looked up per row: no LATERAL to a table, no EXISTS that is
    -- not a condition alone.
    SET enable_nestloop = off SET enable_hashjoin = on SET enable_mergejoin = on SET enable_sort = on
    SET enable_seqscan = on SET jit = off
    BEGIN ATOMIC
        -- A task is in exactly one place.
        SELECT 'task is in ' || x.places || ' places', x.id, 'run, blocked, scheduled, parked, settled'
          FROM (SELECT t.id,
                       (r.task_no IS NOT NULL)::integer + (b.task_no IS NOT NULL)::integer
                       + (d.task_no IS NOT NULL)::integer + (k.task_no IS NOT NULL)::integer
                       + (s.task_no IS NOT NULL)::integer AS places
                  FROM taskq.task AS t
                  LEFT JOIN taskq.run AS r ON r.task_no = t.task_no
                  LEFT JOIN taskq.blocked AS b ON b.task_no = t.task_no
                  LEFT JOIN taskq.scheduled AS d ON d.task_no = t.task_no
                  LEFT JOIN taskq.parked AS k ON k.task_no = t.task_no
                  LEFT JOIN taskq.settled AS s ON s.task_no = t.task_no) AS x
         WHERE x.places <> 1
        UNION ALL
        -- All numbers are of this shard.
        SELECT 'task has a number of another shard', t.id, t.task_no::text
          FROM taskq.task AS t
         WHERE t.task_no >> 48 <> (SELECT p.last_value >> 48 FROM taskq.position_seq AS p)
        UNION ALL
        -- Live rows and edges belong to tasks.
        SELECT 'row without a task', NULL, x.place || ' ' || x.task_no
          FROM (SELECT 'run' AS place, r.task_no FROM taskq.run AS r
                UNION ALL SELECT 'blocked', b.task_no FROM taskq.blocked AS b
                UNION ALL SELECT 'scheduled', d.task_no FROM taskq.scheduled AS d
                UNION ALL SELECT 'parked', k.task_no FROM taskq.parked AS k
                UNION ALL SELECT 'dependency', e.after_no FROM taskq.dependency AS e
                UNION ALL SELECT 'dependency', e.run_no FROM taskq.dependency AS e
                UNION ALL SELECT 'step', s.task_no FROM taskq.step AS s
                UNION ALL SELECT 'expiry', y.task_no FROM taskq.expiry AS y) AS x
         WHERE NOT EXISTS (SELECT FROM taskq.task AS t WHERE t.task_no = x.task_no)
        UNION ALL
        -- What has ended does not expire, and what the queue completes is known as such while it waits for its time.
        SELECT 'settled task that expires', t.id, y.due::text
          FROM taskq.expiry AS y
          JOIN taskq.settled AS s ON s.task_no = y.task_no
          JOIN taskq.task AS t ON t.task_no = y.task_no
        UNION ALL
        SELECT 'scheduled task is wrongly a timer, or none', t.id, d.due::text
          FROM taskq.scheduled AS d
          JOIN taskq.task AS t ON t.task_no = d.task_no
         WHERE d.timer <> t.spontaneous
        UNION ALL
        -- What a blocked task has left to count is what has not settled of this wait, and ends that are not counted yet.
        SELECT 'wrong count of dependencies', t.id,
               'remaining ' || b.remaining || ', to spare ' || b.spare || ', deferred ' || COALESCE(n.met_left + n.lost_left, 0)
               || ', unsettled ' || COALESCE(n.open, 0)
          FROM taskq.blocked AS b
          JOIN taskq.task AS t ON t.task_no = b.task_no
          LEFT JOIN taskq._standing AS n ON n.task_no = b.task_no
         WHERE b.remaining + b.spare - COALESCE(n.met_left + n.lost_left, 0) <> COALESCE(n.open, 0)
            -- Of those of which some suffice none may be gone: what has gone counts as it did.
            OR t.num_required IS NOT NULL AND NOT t.signal AND b.since IS NULL AND b.dependencies = n.stored
               AND t.num_required - b.remaining + n.met_left <> n.met
        UNION ALL
        SELECT 'open dependency of another wait', t.id, e.after_no::text
          FROM taskq.dependency AS e
          JOIN taskq.blocked AS b ON b.task_no = e.run_no
          JOIN taskq.task AS t ON t.task_no = b.task_no
         WHERE e.state = 'w' AND e.wait_no <> b.wait_no
           AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = e.after_no)
        UNION ALL
        -- The numbers of a live task are those of its dependencies; where some are gone, they may be greater.
        SELECT 'wrong numbers of dependencies', t.id,
               x.dependencies || ' with ' || x.failures || ' failed, stored ' || n.stored || ' with ' || n.failed
               || ', deferred ' || n.failed_left
          FROM (SELECT b.task_no, b.dependencies, b.failures FROM taskq.blocked AS b
                UNION ALL SELECT r.task_no, r.dependencies, r.failures FROM taskq.run AS r
                UNION ALL SELECT k.task_no, k.dependencies, k.failures FROM taskq.parked AS k
                UNION ALL SELECT d.task_no, d.dependencies, d.failures FROM taskq.scheduled AS d) AS x
          JOIN taskq.task AS t ON t.task_no = x.task_no
          JOIN taskq._standing AS n ON n.task_no = x.task_no
         WHERE x.dependencies < n.stored OR x.failures + n.failed_left < n.failed
            OR x.dependencies = n.stored AND x.failures + n.failed_left <> n.failed
            OR x.dependencies - n.stored < x.failures + n.failed_left - n.failed
        UNION ALL
        -- What is in `run`, parked or scheduled waits for nothing.
        SELECT 'task has an unsettled dependency but is not blocked', t.id, after.id
          FROM taskq.dependency AS e
          JOIN taskq.task AS t ON t.task_no = e.run_no
          JOIN taskq.task AS after ON after.task_no = e.after_no
          JOIN (SELECT r.task_no FROM taskq.run AS r
                UNION ALL SELECT k.task_no FROM taskq.parked AS k
                UNION ALL SELECT d.task_no FROM taskq.scheduled AS d) AS x ON x.task_no = e.run_no
         WHERE NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = e.after_no)
           -- Else it has gone on without it.
           AND e.state = 'w'
        UNION ALL
        -- A dependency that was lost has aborted the task that waited, unless some of its dependencies suffice.
        SELECT 'task waits although a dependency is lost', t.id, after.id
          FROM taskq.dependency AS e
          JOIN taskq.settled AS s ON s.task_no = e.after_no
          JOIN taskq.task AS t ON t.task_no = e.run_no
          JOIN taskq.task AS after ON after.task_no = e.after_no
         WHERE ((e.condition = 'c' AND s.code = 'a') OR (e.condition = 'a' AND s.code = 'c'))
           AND t.num_required IS NULL
           AND e.state = 'w'
           AND NOT EXISTS (SELECT FROM taskq.settled AS z WHERE z.task_no = e.run_no)
           AND NOT EXISTS (SELECT FROM taskq.countdown AS g WHERE g.run_no = e.run_no AND g.lost > 0)
           AND NOT EXISTS (SELECT FROM taskq.blocked AS b
                            WHERE b.task_no = e.run_no AND b.since IS NOT NULL AND b.until < s.settled_at)
        UNION ALL
        -- A task that the queue or a signal completes is never in a worker's hands.
        SELECT CASE WHEN t.signal THEN 'signal is not blocked and not settled'
                    ELSE 'spontaneous task is ready or in progress' END, t.id, NULL
          FROM taskq.task AS t
          JOIN (SELECT r.task_no, true AS ready FROM taskq.run AS r
                UNION ALL SELECT k.task_no, true FROM taskq.parked AS k
                UNION ALL SELECT d.task_no, false FROM taskq.scheduled AS d) AS x ON x.task_no = t.task_no
         WHERE t.signal OR t.spontaneous AND x.ready
        UNION ALL
        -- What is held with a deadline has a lease, which ends the try once it has passed.
        SELECT 'deadline without a lease', t.id, r.deadline::text
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.nonce <> 0 AND NOT r.grantable AND r.aside IS NULL AND r.deadline < 'infinity'
           AND NOT EXISTS (SELECT FROM (SELECT n.task_no, l.base # n.task_no AS nonce, l.deadline, l.keeper_no
                                          FROM taskq.lease AS l
                                         CROSS JOIN LATERAL unnest(l.keeper_no || l.others) AS n(task_no)) AS l
                            WHERE l.task_no = r.task_no AND l.nonce = r.nonce
                              AND (l.deadline = r.deadline OR l.keeper_no = r.task_no AND l.deadline > r.deadline))
        UNION ALL
        SELECT 'task is neither held nor grantable', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.nonce = 0 AND NOT r.grantable AND r.aside IS NULL
        UNION ALL
        -- What is parked in place is not held, and has a reason, or a lease after which it is tried again.
        SELECT 'task parked in place although it is held', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.aside IS NOT NULL AND (r.grantable OR r.limited OR r.keyed)
        UNION ALL
        SELECT 'task parked in place without a reason', t.id, r.aside::text
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE r.aside IS NOT NULL
           AND NOT CASE WHEN r.aside < 0
                   THEN EXISTS (SELECT FROM taskq.run AS l WHERE l.task_no = -r.aside AND l.keyed)
                   ELSE EXISTS (SELECT FROM taskq.task_group AS g WHERE g.group_id = t.group_id AND g.paused)
                     OR EXISTS (SELECT FROM taskq.merge_key AS m
                                 WHERE m.action = a.name AND m.group_id = COALESCE(t.group_id, '')
                                   AND m.key = t.merge_key AND m.holder_no IS NOT NULL) END
           AND NOT EXISTS (SELECT FROM taskq.lease AS l
                            WHERE l.keeper_no = r.task_no AND (l.base # r.task_no) = r.nonce)
        UNION ALL
        -- A rider has no token.
        SELECT 'rider with a token', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.aside < 0 AND r.nonce <> 0
        UNION ALL
        -- What is held is held by a performance.
        SELECT 'slot of a task that is not held', t.id, l.name || ' ' || l.group_id || ' ' || l.slot_no
          FROM taskq.slot AS l
          LEFT JOIN taskq.task AS t ON t.task_no = l.task_no
         WHERE l.task_no IS NOT NULL
           AND NOT EXISTS (SELECT FROM taskq.run AS r WHERE r.task_no = l.task_no AND r.limited AND NOT r.grantable)
        UNION ALL
        SELECT 'limited task without a slot', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.limited AND NOT EXISTS (SELECT FROM taskq.slot AS l WHERE l.task_no = r.task_no)
        UNION ALL
        SELECT 'slot of a limit that is not the task''s', t.id, l.name || ' ' || l.group_id || ' ' || l.slot_no
          FROM taskq.slot AS l
          JOIN taskq.task AS t ON t.task_no = l.task_no
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE l.name NOT IN ('', a.name) OR (l.group_id <> '' AND l.group_id IS DISTINCT FROM t.group_id)
        UNION ALL
        SELECT 'two slots of one limit', t.id, l.name || ' ' || l.group_id
          FROM taskq.slot AS l
          JOIN taskq.task AS t ON t.task_no = l.task_no
         GROUP BY t.id, l.name, l.group_id HAVING count(*) > 1
        UNION ALL
        SELECT 'two slots with one number', NULL, l.name || ' ' || l.group_id || ' ' || l.slot_no
          FROM taskq.slot AS l
         GROUP BY l.name, l.group_id, l.slot_no HAVING count(*) > 1
        UNION ALL
        -- A lane is that of a group.
        SELECT 'lane that is not of its group', t.id, r.lane::text
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.lane <> 0 AND r.lane IS DISTINCT FROM taskq._lane(t.group_id)
        UNION ALL
        SELECT 'merge key held by a task that is not held', t.id, m.key
          FROM taskq.merge_key AS m
          LEFT JOIN taskq.task AS t ON t.task_no = m.holder_no
         WHERE m.holder_no IS NOT NULL
           AND NOT EXISTS (SELECT FROM taskq.run AS r WHERE r.task_no = m.holder_no AND r.keyed AND NOT r.grantable)
        UNION ALL
        -- What runs with a key has it, and entries with a key are found by it.
        SELECT 'task runs without its merge key', t.id, t.merge_key
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE t.merge_key IS NOT NULL AND r.aside IS NULL AND NOT r.grantable
           AND NOT EXISTS (SELECT FROM taskq.merge_key AS m WHERE m.holder_no = r.task_no)
        UNION ALL
        SELECT 'wrong number of a merge key', t.id, t.merge_key
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE r.key_hash IS DISTINCT FROM taskq._key_hash(a.name, t.group_id, t.merge_key)
        UNION ALL
        SELECT 'merge key that has no row', t.id, t.merge_key
          FROM taskq.task AS t
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE t.merge_key IS NOT NULL
           AND NOT EXISTS (SELECT FROM taskq.merge_key AS m
                            WHERE m.action = a.name AND m.group_id = COALESCE(t.group_id, '') AND m.key = t.merge_key)
        UNION ALL
        -- What is parked has a reason.
        SELECT 'task parked without a reason', t.id, k.kind::text || ' ' || COALESCE(k.name, k.leader_no::text)
          FROM taskq.parked AS k
          JOIN taskq.task AS t ON t.task_no = k.task_no
          LEFT JOIN taskq.task_group AS g ON g.group_id = k.name AND g.paused
          LEFT JOIN taskq.merge_key AS m ON m.action = k.action AND m.group_id = k.name AND m.key = k.key AND m.holder_no IS NOT NULL
          LEFT JOIN taskq.run AS r ON r.task_no = k.leader_no AND r.keyed
         WHERE NOT CASE k.kind WHEN 'g' THEN g.group_id IS NOT NULL
                               WHEN 'k' THEN m.key IS NOT NULL
                               ELSE r.task_no IS NOT NULL END
        UNION ALL
        -- The tallies of what has settled add up to what there is.
        SELECT 'wrong tally of an action', NULL,
               format('%s %s%s: %s instead of %s', a.name, COALESCE(y.code, x.code), COALESCE(y.cause, x.cause),
                      COALESCE(y.number, 0), COALESCE(x.number, 0))
          FROM (SELECT e.action_no, e.code, e.cause, e.number FROM taskq._ended() AS e) AS y
          FULL JOIN (SELECT s.action_no, s.code, s.cause, count(*) AS number
                       FROM taskq.settled AS s WHERE s.cause <> 'r' GROUP BY s.action_no, s.code, s.cause) AS x
            ON x.action_no = y.action_no AND x.code = y.code AND x.cause = y.cause
          JOIN taskq.action AS a ON a.action_no = COALESCE(y.action_no, x.action_no)
         WHERE COALESCE(y.number, 0) <> COALESCE(x.number, 0)
        UNION ALL
        -- A counter knows the action of its task.
        SELECT 'counter of another action', t.id, NULL
          FROM (SELECT b.task_no, b.action_no FROM taskq.blocked AS b
                UNION ALL SELECT k.task_no, k.action_no FROM taskq.parked AS k) AS x
          JOIN taskq.task AS t ON t.task_no = x.task_no
         WHERE x.action_no <> t.action_no
        UNION ALL
        -- The tallies of groups add up to what there is.
        SELECT 'wrong tally of a group', NULL,
               COALESCE(y.group_id, x.group_id) || ': ' || COALESCE(y.numbers, 'none') || ' instead of ' || COALESCE(x.numbers, 'none')
          FROM (SELECT g.group_id, sum(g.tasks) || '/' || sum(g.completed) || '/' || sum(g.aborted) || '/' || sum(g.skipped) AS numbers
                  FROM taskq.group_tally AS g GROUP BY g.group_id
                HAVING sum(g.tasks) <> 0 OR sum(g.completed) <> 0 OR sum(g.aborted) <> 0 OR sum(g.skipped) <> 0) AS y
          FULL JOIN (SELECT t.group_id, count(*) || '/' || count(*) FILTER (WHERE s.code = 'c') || '/'
                            || count(*) FILTER (WHERE s.code = 'a' AND s.cause <> 'k') || '/'
                            || count(*) FILTER (WHERE s.cause = 'k') AS numbers
                       FROM taskq.task AS t LEFT JOIN taskq.settled AS s ON s.task_no = t.task_no
                      WHERE t.group_id IS NOT NULL GROUP BY t.group_id) AS x ON x.group_id = y.group_id
         WHERE y.numbers IS DISTINCT FROM x.numbers
        UNION ALL
        SELECT 'settled task without its group', t.id, t.group_id
          FROM taskq.settled AS s
          JOIN taskq.task AS t ON t.task_no = s.task_no
         WHERE s.grouped <> (t.group_id IS NOT NULL)
        UNION ALL
        -- A unique key points to a task that has it, or to one that is gone.
        SELECT 'unique key points to a task without it', t.id, k.action || ' ' || k.key
          FROM taskq.unique_key AS k
          JOIN taskq.task AS t ON t.task_no = k.task_no
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE (k.action, k.key) IS DISTINCT FROM (a.name, t.unique_key)
        UNION ALL
        -- Claiming looks at the task's own action and priority.
        SELECT 'claiming row differs from its task', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE (r.action_no, r.priority) IS DISTINCT FROM (t.action_no, t.priority);
    END;
COMMENT ON FUNCTION taskq.check IS 'contradictions in the stored state; no row means that it is sound';
