-- taskq: the numbers of the moment, as rows and as OpenMetrics text.

-- A report, not a step of the queue: it is planned anew at each call, for what groups best is another plan as the tables grow.
-- Each table of what is alive is read once, from end to end as long as it is small and else in part (taskq._about); what has
-- settled is summed up in tallies, except the latest. A name of an action may have several numbers: their counts add up.
CREATE FUNCTION taskq.metrics_rows(kept boolean = true)
    RETURNS TABLE (name text, labels jsonb, value double precision)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    IF kept IS NULL THEN
        PERFORM taskq._check_words('kept', '{NULL}', '{}');
    END IF;
    RETURN QUERY
    WITH action AS MATERIALIZED (SELECT a.action_no, a.name FROM taskq.action AS a WHERE NOT a.forgotten),
         live AS MATERIALIZED (
            SELECT a.name, l.state, sum(l.number) AS number, min(l.first) AS first, sum(l.overdue) AS overdue
              FROM taskq._about() AS l JOIN action AS a ON a.action_no = l.action_no GROUP BY a.name, l.state),
         -- Those that were skipped are none of the failures. Without a name: of actions that were forgotten.
         ended AS MATERIALIZED (
            SELECT a.name, e.cause, e.number, e.ever,
                   CASE WHEN e.code = 'c' THEN 'completed' WHEN e.cause = 'k' THEN 'skipped' ELSE 'aborted' END AS outcome
              FROM taskq._ended() AS e LEFT JOIN action AS a ON a.action_no = e.action_no WHERE kept),
         tasks AS (
            SELECT l.name, l.state, l.number FROM live AS l
            UNION ALL
            SELECT e.name, e.outcome, e.number FROM ended AS e
            -- What is shown although there may be none of it.
            UNION ALL
            SELECT a.name, s.state, 0 FROM action AS a CROSS JOIN unnest('{blocked,scheduled,ready,in-progress}'::text[]) AS s(state)
            UNION ALL
            SELECT a.name, s.state, 0 FROM action AS a CROSS JOIN unnest('{completed,aborted,skipped}'::text[]) AS s(state) WHERE kept),
         cause AS (
            SELECT c.letter::"char" AS letter,
                   COALESCE(taskq._cause(c.letter::"char"), CASE c.letter WHEN 's' THEN 'spontaneous' ELSE 'signalled' END) AS name
              FROM unnest('{w,t,x,d,k,c,o,m,e,s,g}'::text[]) AS c(letter) WHERE kept),
         schedule AS (
            SELECT count(*) AS number, count(*) FILTER (WHERE s.next_at <= taskq.clock()) AS due, count(s.problem) AS failing
              FROM taskq.schedule AS s),
         setting AS (SELECT DISTINCT a.name, s.paused, s.max_concurrency
                       FROM action AS a LEFT JOIN taskq.action_setting AS s ON s.name = a.name)
    SELECT 'taskq_tasks', jsonb_build_object('action', t.name, 'state', t.state), sum(t.number)::double precision
      FROM tasks AS t WHERE t.name IS NOT NULL GROUP BY t.name, t.state
    UNION ALL
    SELECT 'taskq_overdue_tasks', jsonb_build_object('action', s.name), COALESCE(sum(l.overdue), 0)
      FROM setting AS s LEFT JOIN live AS l ON l.name = s.name GROUP BY s.name
    UNION ALL
    SELECT 'taskq_oldest_ready_age_seconds', jsonb_build_object('action', l.name),
           GREATEST(EXTRACT(epoch FROM taskq.clock() - t.inserted_at), 0)
      FROM live AS l
     CROSS JOIN LATERAL (SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = l.first OFFSET 0) AS t
     WHERE l.state = 'ready'
    UNION ALL
    SELECT 'taskq_paused_actions', jsonb_build_object('action', s.name), COALESCE(s.paused, false)::integer FROM setting AS s
    UNION ALL
    SELECT x.name, jsonb_build_object('action', s.name), x.number
      FROM setting AS s
     CROSS JOIN LATERAL (VALUES ('taskq_concurrency_limit', s.max_concurrency::bigint),
                                ('taskq_concurrency_slots_held',
                                 (SELECT count(*) FROM taskq.slot AS l
                                   WHERE l.group_id = '' AND l.name = s.name AND l.task_no IS NOT NULL))) AS x(name, number)
     WHERE s.max_concurrency IS NOT NULL
    UNION ALL
    SELECT 'taskq_settled_tasks', jsonb_build_object('cause', c.name), COALESCE(sum(e.number), 0)
      FROM cause AS c LEFT JOIN ended AS e ON e.cause = c.letter GROUP BY c.name
    UNION ALL
    SELECT 'taskq_ended_tasks_total', jsonb_build_object('action', e.name, 'outcome', e.outcome, 'cause', c.name), sum(e.ever)
      FROM ended AS e JOIN cause AS c ON c.letter = e.cause WHERE e.name IS NOT NULL GROUP BY e.name, e.outcome, c.name
    UNION ALL
    SELECT 'taskq_earlier_tries', jsonb_build_object('outcome', t.outcome), t.number FROM taskq._about_tries() AS t WHERE kept
    UNION ALL
    SELECT 'taskq_expired_tasks', '{}', count(*)
      FROM (SELECT FROM taskq.settled AS s WHERE s.expires_at <= taskq.clock() ORDER BY s.expires_at LIMIT 10000) AS s
    UNION ALL
    SELECT 'taskq_deferred_signals', '{}', count(*) FROM taskq.countdown AS c
    UNION ALL
    SELECT x.name, '{}', x.number
      FROM schedule AS s
     CROSS JOIN LATERAL (VALUES ('taskq_schedules', s.number), ('taskq_due_schedules', s.due),
                                ('taskq_failing_schedules', s.failing)) AS x(name, number)
    UNION ALL
    SELECT 'taskq_paused_groups', '{}', count(*) FROM taskq.task_group AS g WHERE g.paused
    UNION ALL
    SELECT 'taskq_actors', '{}', taskq._actors()
    UNION ALL
    -- Those who sleep hold a lock that says what for, see taskq._asking: each call that waits for work is registered for what is due.
    SELECT 'taskq_waiters', jsonb_build_object('for', x.channel),
           (SELECT count(DISTINCT l.pid)
              FROM pg_locks AS l
             WHERE l.locktype = 'advisory' AND l.objsubid = 29809 AND l.classid::bigint >> 24 = x.kind
               AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
      FROM (VALUES ('work', 4), ('end_of_task', 2)) AS x(channel, kind)
    UNION ALL
    SELECT x.name, '{}', pg_stat_get_tuples_inserted(x.relation)
      FROM (VALUES ('taskq_inserted_tasks_total', 'taskq.task'::regclass), ('taskq_endings_total', 'taskq.settled'),
                   ('taskq_unsettled_tries_total', 'taskq.attempt')) AS x(name, relation);
END
$$;
COMMENT ON FUNCTION taskq.metrics_rows IS
    'the numbers that metrics gives as text, one a row, for exporters that make metrics of columns';

CREATE FUNCTION taskq.metrics(kept boolean = true)
    RETURNS text
    LANGUAGE sql STABLE PARALLEL UNSAFE COST 10000
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        WITH family AS (
                SELECT f.place, f.name, f.help, regexp_replace(f.name, '_total$', '') AS family
                  FROM (VALUES
                    (1, 'taskq_tasks', 'Tasks in the queue, settled ones that are kept included, by state.'),
                    (2, 'taskq_overdue_tasks', 'Tasks in progress whose deadline has passed.'),
                    (3, 'taskq_oldest_ready_age_seconds', 'Time since the insertion of the oldest ready task.'),
                    (4, 'taskq_paused_actions', 'Whether the action is paused.'),
                    (5, 'taskq_concurrency_limit', 'Performances that max_concurrency allows.'),
                    (6, 'taskq_concurrency_slots_held', 'Performances that count against max_concurrency.'),
                    (7, 'taskq_settled_tasks', 'Settled tasks that are kept, by what ended them.'),
                    (8, 'taskq_ended_tasks_total', 'Tasks that have settled, kept or not, by outcome and cause.'),
                    (9, 'taskq_earlier_tries', 'Tries before the last one, of tasks that are in the queue, by how they ended.'),
                    (10, 'taskq_expired_tasks', 'Settled tasks whose retention is over and that are still there, 10000 at most.'),
                    (11, 'taskq_deferred_signals', 'Signals that wait to be counted.'),
                    (12, 'taskq_schedules', 'Schedules.'),
                    (13, 'taskq_due_schedules', 'Schedules whose next run is due.'),
                    (14, 'taskq_failing_schedules', 'Schedules whose last run could not be inserted.'),
                    (15, 'taskq_paused_groups', 'Groups that are paused.'),
                    (16, 'taskq_actors', 'Actors that hold tasks.'),
                    (17, 'taskq_waiters', 'Sessions that sleep until there is work, or until a task has ended.'),
                    (18, 'taskq_inserted_tasks_total', 'Tasks inserted, by the server''s statistics.'),
                    (19, 'taskq_endings_total', 'Tasks settled, by the server''s statistics.'),
                    (20, 'taskq_unsettled_tries_total', 'Tries that ended without settling their task, by the server''s statistics.'))
                    AS f(place, name, help)),
             sample AS (
                SELECT m.name, m.value,
                       (SELECT '{' || string_agg(l.key || '="' || replace(replace(replace(
                                                     l.value, chr(92), repeat(chr(92), 2)), '"', chr(92) || '"'), chr(10), chr(92) || 'n')
                                                 || '"', ',' ORDER BY l.key) || '}'
                          FROM jsonb_each_text(m.labels) AS l) AS labels
                  FROM taskq.metrics_rows(kept) AS m),
             shown AS (
                SELECT f.place,
                       '# HELP ' || f.family || ' ' || f.help || chr(10)
                       || '# TYPE ' || f.family || CASE WHEN f.family = f.name THEN ' gauge' ELSE ' counter' END || chr(10)
                       || CASE WHEN right(f.name, 8) = '_seconds' THEN '# UNIT ' || f.family || ' seconds' || chr(10) ELSE '' END
                       || string_agg(f.name || COALESCE(s.labels, '') || ' ' || s.value || chr(10), '' ORDER BY s.labels) AS text
                  FROM family AS f JOIN sample AS s ON s.name = f.name GROUP BY f.place, f.name, f.family, f.help)
        SELECT COALESCE(string_agg(s.text, '' ORDER BY s.place), '') || '# EOF' || chr(10) FROM shown AS s;
    END;
COMMENT ON FUNCTION taskq.metrics IS
    'the numbers of the moment as OpenMetrics text; without kept, nothing is counted that has settled';
