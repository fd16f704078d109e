-- taskq: how many tasks there are. Functions and not views, since a function can bring settings of the planner along: neither those
-- of the session that asks nor statistics of an empty queue are to make another plan. Each looks with the snapshot of the query that asks.

-- The tasks of the workgroups that are held back, settled ones too, and 20,001 at most.
CREATE FUNCTION taskq._held_back()
    RETURNS SETOF bigint
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        SELECT t.task_no
          FROM (SELECT DISTINCT w.name FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()) AS w
         CROSS JOIN LATERAL (SELECT t.task_no FROM taskq.task AS t WHERE t.workgroup = w.name OFFSET 0) AS t
         LIMIT 20001;
    END;
COMMENT ON FUNCTION taskq._held_back IS 'internal: the tasks of workgroups that are held back, 20,001 at most';

-- What has not settled: counted in the tables that are asked for, each read once. Which of it a workgroup holds back is known from
-- the workgroups' tasks, if those are few: they are hashed. If they are many, what may be ready is looked up, task by
-- task. `first`: the lowest number of these tasks: mostly of the one that was inserted first.
CREATE FUNCTION taskq._live(in_run boolean = true, in_scheduled boolean = true, in_parked boolean = true, in_blocked boolean = true)
    RETURNS TABLE (action_no integer, state text, number bigint, first bigint, overdue bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = on SET enable_hashagg = on SET enable_sort = off SET work_mem = '4MB'
    BEGIN ATOMIC
        WITH held AS MATERIALIZED (SELECT h.task_no FROM taskq._held_back() AS h(task_no)),
             few AS MATERIALIZED (SELECT count(*) <= 20000 AS few FROM held)
        SELECT x.action_no, CASE x.kind WHEN 1 THEN 'in-progress' WHEN 2 THEN 'scheduled' WHEN 3 THEN 'ready' ELSE 'blocked' END,
               sum(x.number)::bigint, min(x.first), sum(x.overdue)::bigint
          FROM (SELECT r.action_no,
                       CASE WHEN r.nonce <> 0 THEN 1
                            WHEN r.gated
                                 AND CASE WHEN (SELECT f.few FROM few AS f) THEN r.task_no IN (SELECT h.task_no FROM held AS h)
                                          ELSE EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                     WHERE t.task_no = r.task_no OFFSET 0) AS t
                                                         JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                        WHERE w.not_before > taskq.clock()) END THEN 2
                            ELSE 3 END AS kind,
                       count(*) AS number,
                       min(r.task_no) AS first,
                       count(*) FILTER (WHERE r.nonce <> 0 AND r.deadline <= (SELECT taskq.clock())) AS overdue
                  FROM taskq.run AS r WHERE in_run GROUP BY 1, 2
                UNION ALL
                SELECT d.action_no,
                       CASE WHEN d.timer OR d.due > (SELECT taskq.clock()) THEN 2
                            WHEN CASE WHEN (SELECT f.few FROM few AS f) THEN d.task_no IN (SELECT h.task_no FROM held AS h)
                                      ELSE EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                 WHERE t.task_no = d.task_no OFFSET 0) AS t
                                                     JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                    WHERE w.not_before > taskq.clock()) END THEN 2
                            ELSE 3 END,
                       count(*), min(d.task_no), 0
                  FROM taskq.scheduled AS d WHERE in_scheduled GROUP BY 1, 2
                UNION ALL
                SELECT k.action_no,
                       CASE WHEN CASE WHEN (SELECT f.few FROM few AS f) THEN k.task_no IN (SELECT h.task_no FROM held AS h)
                                      ELSE EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                 WHERE t.task_no = k.task_no OFFSET 0) AS t
                                                     JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                    WHERE w.not_before > taskq.clock()) END THEN 2
                            ELSE 3 END,
                       count(*), min(k.task_no), 0
                  FROM taskq.parked AS k WHERE in_parked GROUP BY 1, 2
                UNION ALL
                SELECT b.action_no, 4, count(*), min(b.task_no), 0
                  FROM taskq.blocked AS b WHERE in_blocked GROUP BY 1) AS x
         GROUP BY x.action_no, x.kind;
    END;
COMMENT ON FUNCTION taskq._live IS 'internal: how many tasks have not settled, by number of the action and state';

-- What has settled: the tallies of what is sealed, and what is not, along the index: see src/store/ends.rs. (Where
-- there is no row of `seal`, nothing is sealed.) `recent`: how many of them settled in the last minute, of what is sealed to ten
-- seconds, whether they are kept or not. `ever`: how many have settled since the queue was made, restored, or counted anew.
CREATE FUNCTION taskq._ended()
    RETURNS TABLE (action_no integer, code "char", cause "char", number bigint, recent bigint, ever bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = on
    SET enable_sort = off
    BEGIN ATOMIC
        SELECT x.action_no, x.code, x.cause, sum(x.number)::bigint, sum(x.recent)::bigint, sum(x.ever)::bigint
          FROM (SELECT y.action_no, y.code, y.cause,
                       sum(y.number) FILTER (WHERE y.span < COALESCE((SELECT e.until FROM taskq.seal AS e), '-infinity')) AS number,
                       sum(y.ended) FILTER (WHERE y.span > (SELECT taskq.clock()) - interval '1 minute') AS recent,
                       sum(y.ended) AS ever
                  FROM (SELECT y.span, y.action_no, y.code, y.cause, y.number,
                               CASE WHEN y.span < COALESCE((SELECT e.until FROM taskq.seal AS e), '-infinity')
                                    THEN y.ended ELSE y.ended - y.number END AS ended
                          FROM taskq.end_tally AS y) AS y
                 GROUP BY y.action_no, y.code, y.cause
                UNION ALL
                -- What is left of a replaced task is not a task.
                SELECT s.action_no, s.code, s.cause, count(*),
                       count(*) FILTER (WHERE s.settled_at > (SELECT taskq.clock()) - interval '1 minute'), count(*)
                  FROM taskq.settled AS s
                 WHERE s.settled_at >= COALESCE((SELECT e.until FROM taskq.seal AS e), '-infinity') AND s.cause <> 'r'
                 GROUP BY s.action_no, s.code, s.cause) AS x
         GROUP BY x.action_no, x.code, x.cause
        HAVING sum(x.number) <> 0 OR sum(x.ever) <> 0;
    END;
COMMENT ON FUNCTION taskq._ended IS 'internal: how many tasks have settled, by number of the action, code and cause';
