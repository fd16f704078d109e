-- taskq: what a console asks for, whatever the size of the queue: some of the tasks that a filter finds, and how things went in the
-- last hour or day.

-- Goes from the newest number down, in chunks that grow. A chunk is so many rows of each of the tables that tasks stand in, each
-- read down its primary key; from the highest of the numbers at which one of these stops, everything has been seen (`floor`). So a
-- state that few tasks are in is found at once, however many are in others. Where ids or groups name 20,000 tasks at most, the
-- chunks are of these instead. What needs the wide row is asked last.
CREATE FUNCTION taskq.find_tasks(
        actions text[] = NULL,
        groups text[] = NULL,
        states text[] = NULL,
        causes text[] = NULL,
        status_like text = NULL,
        body jsonb = NULL,
        metadata jsonb = NULL,
        inserted_since timestamptz = NULL,
        inserted_until timestamptz = NULL,
        id_prefix text = NULL,
        before text = NULL,
        max_tasks integer = 50,
        max_looked integer = 20000)
    RETURNS TABLE (cursor text, task_id text)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 50
    SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
    SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = on
    SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_variable
DECLARE
    now CONSTANT timestamptz := taskq.clock();
    limited CONSTANT integer := LEAST(max_looked, 1000000);
    low bigint := 9223372036854775807;
    floor bigint;
    chunk integer := LEAST(200, limited);
    looked integer := 0;
    found integer := 0;
    numbers integer[];
    members bigint[];
    narrow text[] := states;
    any_held boolean;
    whole boolean;
    r record;
BEGIN
    IF max_tasks IS NULL OR max_looked IS NULL OR max_tasks < 1 OR max_looked < 1 THEN
        RAISE EXCEPTION 'max_tasks and max_looked have to be 1 or more'
            USING ERRCODE = CASE WHEN max_tasks IS NULL OR max_looked IS NULL THEN '22004' ELSE '22023' END,
                  DETAIL = format('They are %s and %s.', COALESCE(max_tasks::text, 'NULL'), COALESCE(max_looked::text, 'NULL')),
                  HINT = 'Leave them out for 50 tasks among 20,000.';
    END IF;
    PERFORM taskq._check_words('states', ARRAY(SELECT u.s FROM unnest(states) AS u(s) WHERE u.s IS NOT NULL),
                               '{blocked,scheduled,ready,in-progress,completed,aborted}');
    IF before IS NOT NULL THEN
        IF before !~ '^[0-9]{1,18}$' THEN
            RAISE EXCEPTION 'this is no cursor of find_tasks: %', left(before, 100)
                USING ERRCODE = '22023', DETAIL = 'The argument before takes what the column cursor gave.',
                      HINT = 'Leave it out to begin with the newest task.';
        END IF;
        low := before::bigint;
    END IF;
    IF actions IS NOT NULL THEN
        numbers := ARRAY(SELECT a.action_no FROM taskq.action AS a WHERE a.name = ANY (actions));
    END IF;
    any_held := EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > now);
    -- What its workgroup holds back stands where ready tasks stand.
    IF any_held AND 'scheduled' = ANY (states) THEN
        narrow := narrow || 'ready'::text;
    END IF;
    IF id_prefix IS NOT NULL THEN
        members := ARRAY(SELECT t.task_no FROM taskq.task AS t
                          WHERE t.id >= id_prefix AND t.id < id_prefix || U&'\+10FFFF' LIMIT 20001);
    ELSIF groups IS NOT NULL THEN
        members := ARRAY(SELECT t.task_no FROM taskq.task AS t WHERE t.group_id = ANY (groups) LIMIT 20001);
    ELSIF states <@ '{in-progress}' THEN
        -- These are the oldest where many are ready.
        whole := taskq._pages('taskq.run') <= taskq._counted_pages();
        members := ARRAY(
            SELECT q.task_no FROM taskq.run AS q WHERE q.nonce <> 0 AND whole
            UNION
            SELECT l.task_no FROM taskq._leased() AS l WHERE NOT whole
            UNION
            SELECT f.task_no
              FROM (SELECT a.action_no FROM taskq.action AS a ORDER BY a.action_no DESC LIMIT 50) AS a
             CROSS JOIN LATERAL taskq._front(a.action_no) AS f
             WHERE f.in_progress AND NOT whole
             LIMIT 20001);
    END IF;
    members := CASE WHEN cardinality(members) <= 20000 THEN ARRAY(SELECT u.n FROM unnest(members) AS u(n) ORDER BY u.n DESC) END;
    LOOP
        floor := 0;
        FOR r IN
            WITH seen AS MATERIALIZED (
                    (SELECT 1 AS place, s.task_no, s.action_no, CASE s.code WHEN 'c' THEN 'completed' ELSE 'aborted' END AS state,
                            s.cause, s.status
                       FROM taskq.settled AS s
                      WHERE members IS NULL AND s.task_no < low AND (states IS NULL OR states && '{completed,aborted}')
                      ORDER BY s.task_no DESC LIMIT chunk)
                    UNION ALL
                    (SELECT 2, q.task_no, q.action_no, CASE WHEN q.nonce <> 0 THEN 'in-progress' ELSE 'ready' END, NULL, NULL
                       FROM taskq.run AS q
                      WHERE members IS NULL AND q.task_no < low AND (narrow IS NULL OR narrow && '{ready,in-progress}')
                      ORDER BY q.task_no DESC LIMIT chunk)
                    UNION ALL
                    (SELECT 3, b.task_no, b.action_no, 'blocked', NULL, NULL
                       FROM taskq.blocked AS b
                      WHERE members IS NULL AND b.task_no < low AND (states IS NULL OR 'blocked' = ANY (states))
                      ORDER BY b.task_no DESC LIMIT chunk)
                    UNION ALL
                    (SELECT 4, d.task_no, d.action_no, CASE WHEN d.timer OR d.due > now THEN 'scheduled' ELSE 'ready' END, NULL, NULL
                       FROM taskq.scheduled AS d
                      WHERE members IS NULL AND d.task_no < low AND (states IS NULL OR states && '{scheduled,ready}')
                      ORDER BY d.task_no DESC LIMIT chunk)
                    UNION ALL
                    (SELECT 5, k.task_no, k.action_no, 'ready', NULL, NULL
                       FROM taskq.parked AS k
                      WHERE members IS NULL AND k.task_no < low AND (narrow IS NULL OR 'ready' = ANY (narrow))
                      ORDER BY k.task_no DESC LIMIT chunk)
                    UNION ALL
                    SELECT 6, m.task_no, p.action_no, p.state, p.cause, p.status
                      FROM (SELECT u.n AS task_no FROM unnest(members) WITH ORDINALITY AS u(n, place)
                             WHERE u.n < low ORDER BY u.place LIMIT chunk) AS m
                     CROSS JOIN LATERAL (
                           SELECT s.action_no, CASE s.code WHEN 'c' THEN 'completed' ELSE 'aborted' END AS state, s.cause, s.status
                             FROM taskq.settled AS s WHERE s.task_no = m.task_no
                           UNION ALL
                           SELECT q.action_no, CASE WHEN q.nonce <> 0 THEN 'in-progress' ELSE 'ready' END, NULL, NULL
                             FROM taskq.run AS q WHERE q.task_no = m.task_no
                           UNION ALL
                           SELECT b.action_no, 'blocked', NULL, NULL FROM taskq.blocked AS b WHERE b.task_no = m.task_no
                           UNION ALL
                           SELECT d.action_no, CASE WHEN d.timer OR d.due > now THEN 'scheduled' ELSE 'ready' END, NULL, NULL
                             FROM taskq.scheduled AS d WHERE d.task_no = m.task_no
                           UNION ALL
                           SELECT k.action_no, 'ready', NULL, NULL FROM taskq.parked AS k WHERE k.task_no = m.task_no
                           OFFSET 0) AS p),
                 ends AS MATERIALIZED (
                    -- Of a place of which there is more, down to where.
                    SELECT COALESCE(max(x.least), 0) AS floor
                      FROM (SELECT min(s.task_no) AS least FROM seen AS s GROUP BY s.place HAVING count(*) >= chunk) AS x)
            SELECT e.floor, f.task_no, f.id
              FROM ends AS e
              LEFT JOIN LATERAL (
                   SELECT s.task_no, t.id
                     FROM seen AS s
                    CROSS JOIN LATERAL (
                          SELECT t.id FROM taskq.task AS t
                           WHERE t.task_no = s.task_no
                             AND (groups IS NULL OR t.group_id = ANY (groups))
                             AND (id_prefix IS NULL OR starts_with(t.id, id_prefix))
                             AND (inserted_since IS NULL OR t.inserted_at >= inserted_since)
                             AND (inserted_until IS NULL OR t.inserted_at < inserted_until)
                             AND (states IS NULL OR s.state = ANY (states) OR s.state = 'ready')
                             AND (states IS NULL OR NOT any_held OR s.state <> 'ready'
                                  OR CASE WHEN EXISTS (SELECT FROM taskq.workgroup AS w
                                                        WHERE w.name = t.workgroup AND w.not_before > now)
                                          THEN 'scheduled' ELSE 'ready' END = ANY (states))
                             AND (metadata IS NULL OR t.metadata @> metadata)
                             AND (body IS NULL OR taskq._body_json(t.body) @> body)
                             AND (status_like IS NULL
                                  OR COALESCE(s.status, (SELECT g.status FROM taskq.progress AS g WHERE g.task_no = t.task_no))
                                     LIKE status_like)
                           OFFSET 0) AS t
                    WHERE s.task_no >= e.floor
                      AND (numbers IS NULL OR s.action_no = ANY (numbers))
                      AND (narrow IS NULL OR s.state = ANY (narrow))
                      AND (causes IS NULL OR s.state = 'aborted' AND taskq._cause(s.cause) = ANY (causes))
                    ORDER BY s.task_no DESC LIMIT max_tasks - found) AS f ON true
             ORDER BY f.task_no DESC
        LOOP
            floor := r.floor;
            IF r.id IS NOT NULL THEN
                found := found + 1;
                cursor := r.task_no::text;
                task_id := r.id;
                RETURN NEXT;
            END IF;
        END LOOP;
        EXIT WHEN found >= max_tasks OR floor = 0;
        looked := looked + chunk;
        low := floor;
        chunk := LEAST(chunk * 4, limited - looked);
        IF chunk < 1 THEN
            -- There may be more: from here on.
            cursor := low::text;
            task_id := NULL;
            RETURN NEXT;
            EXIT;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION taskq.find_tasks IS
    'tasks that meet all the filters, the newest first; a last row without a task: enough was looked at, and there may be more behind its cursor';

-- Ends are counted (src/store/ends.rs); times are those of the first hundred that ended in a bucket after a grant.
CREATE FUNCTION taskq.series(within interval = '1 hour', actions text[] = NULL)
    RETURNS TABLE (at timestamptz, completed bigint, aborted bigint, skipped bigint,
                   waiting_p50 interval, waiting_p99 interval, running_p50 interval, running_p99 interval)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 60
    SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
    SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = on
    SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_variable
DECLARE
    width interval;
    numbers integer[];
BEGIN
    IF within IS NULL OR within < interval '1 minute' OR within > interval '1 day' THEN
        RAISE EXCEPTION 'within has to be from a minute to a day'
            USING ERRCODE = CASE WHEN within IS NULL THEN '22004' ELSE '22023' END,
                  DETAIL = format('It is %s.', COALESCE(within::text, 'NULL')),
                  HINT = 'Up to an hour is told by minutes, more by half hours.';
    END IF;
    width := CASE WHEN within <= interval '1 hour' THEN interval '1 minute' ELSE interval '30 minutes' END;
    IF actions IS NOT NULL THEN
        numbers := ARRAY(SELECT a.action_no FROM taskq.action AS a WHERE a.name = ANY (actions));
    END IF;
    RETURN QUERY
    WITH buckets AS MATERIALIZED (
            SELECT g.at FROM generate_series(date_bin(width, taskq.clock() - within, '2000-01-01') + width,
                                             date_bin(width, taskq.clock(), '2000-01-01'), width) AS g(at)),
         ended AS MATERIALIZED (
            SELECT date_bin(width, e.at, '2000-01-01') AS at,
                   sum(e.number) FILTER (WHERE e.code = 'c') AS completed,
                   sum(e.number) FILTER (WHERE e.code = 'a' AND e.cause <> 'k') AS aborted,
                   sum(e.number) FILTER (WHERE e.code = 'a' AND e.cause = 'k') AS skipped
              -- A span that began before this time is whole in the bucket before.
              FROM taskq._ends(within + width) AS e
             WHERE numbers IS NULL OR e.action_no = ANY (numbers)
             GROUP BY 1)
    SELECT b.at, COALESCE(e.completed, 0)::bigint, COALESCE(e.aborted, 0)::bigint, COALESCE(e.skipped, 0)::bigint,
           t.waiting[1] * interval '1 second', t.waiting[2] * interval '1 second',
           t.running[1] * interval '1 second', t.running[2] * interval '1 second'
      FROM buckets AS b
      LEFT JOIN ended AS e ON e.at = b.at
      LEFT JOIN LATERAL (
           SELECT percentile_cont('{0.5,0.99}'::double precision[])
                      WITHIN GROUP (ORDER BY date_part('epoch', s.granted_at - t.inserted_at)) AS waiting,
                  percentile_cont('{0.5,0.99}'::double precision[])
                      WITHIN GROUP (ORDER BY date_part('epoch', s.settled_at - s.granted_at)) AS running
             FROM (SELECT x.task_no, x.granted_at, x.settled_at
                     -- Of very many that a filter passes over no more than these are read.
                     FROM (SELECT s.task_no, s.granted_at, s.settled_at, s.action_no FROM taskq.settled AS s
                            WHERE s.settled_at >= b.at AND s.settled_at < b.at + width
                            ORDER BY s.settled_at LIMIT 1000) AS x
                    WHERE x.granted_at IS NOT NULL AND (numbers IS NULL OR x.action_no = ANY (numbers))
                    LIMIT 100) AS s
            CROSS JOIN LATERAL (SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = s.task_no OFFSET 0) AS t) AS t ON true
     ORDER BY b.at;
END
$$;
COMMENT ON FUNCTION taskq.series IS
    'what has ended in the last hour by minutes, or in up to a day by half hours, and how long a hundred of each had waited and run';

-- The order of `position` is that of an index.
CREATE VIEW taskq.inbox AS
SELECT t.id AS task_id,
       (SELECT a.name FROM taskq.action AS a WHERE a.action_no = b.action_no) AS action,
       t.group_id,
       t.body,
       t.metadata,
       t.inserted_at,
       NULLIF(t.expires_at, 'infinity') AS expires_at,
       -- A signal may have very many.
       ARRAY(SELECT run.id
               FROM (SELECT d.run_no FROM taskq.dependency AS d
                      WHERE d.after_no = b.task_no AND d.state = 'w' ORDER BY d.run_no LIMIT 20) AS d
              CROSS JOIN LATERAL (SELECT x.id FROM taskq.task AS x WHERE x.task_no = d.run_no OFFSET 0) AS run) AS waited_by,
       b.task_no AS position,
       t.id
  FROM taskq.blocked AS b
 CROSS JOIN LATERAL (SELECT t.id, t.group_id, t.body, t.metadata, t.inserted_at, t.expires_at
                       FROM taskq.task AS t WHERE t.task_no = b.task_no AND t.signal OFFSET 0) AS t
 WHERE b.spare < 0;
COMMENT ON VIEW taskq.inbox IS 'signals that have not come: what waits for each, and until when';

-- By what stands in `settled` alone, along the index by time. What aborted through another task is left out: it comes back with that.
CREATE FUNCTION taskq.failures(within interval = '1 day', max_looked integer = 50000)
    RETURNS TABLE (action text, cause text, status text, number bigint, first_at timestamptz, last_at timestamptz,
                   status_like text, last_task_id text)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 20
    SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
    SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = on
    SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    IF within IS NULL OR max_looked IS NULL OR within <= interval '0' OR max_looked < 1 THEN
        RAISE EXCEPTION 'within has to be more than nothing, and max_looked 1 or more'
            USING ERRCODE = CASE WHEN within IS NULL OR max_looked IS NULL THEN '22004' ELSE '22023' END,
                  DETAIL = format('They are %s and %s.', COALESCE(within::text, 'NULL'), COALESCE(max_looked::text, 'NULL')),
                  HINT = 'Leave them out for the last 50,000 ends of a day.';
    END IF;
    RETURN QUERY
    SELECT a.name, taskq._cause(x.cause), x.text, x.number, x.first_at, x.last_at,
           -- What differs in numbers only, or in the middle of a long one.
           regexp_replace(regexp_replace(x.sample, '([\\%_])', '\\\1', 'g'), '[0-9]+|' || chr(8230), '%', 'g'),
           t.id
      FROM (SELECT s.action_no, s.cause, regexp_replace(s.status, '[0-9]+', 'N', 'g') AS text, count(*) AS number,
                   min(s.settled_at) AS first_at, max(s.settled_at) AS last_at, min(s.status) AS sample, max(s.task_no) AS last_no
              FROM (SELECT s.action_no, s.code, s.cause, s.settled_at, s.task_no,
                           -- The beginning tells what it is, or the end does, of a trace.
                           CASE WHEN length(s.status) > 300 THEN left(s.status, 150) || chr(8230) || right(s.status, 150)
                                ELSE s.status END AS status
                      FROM taskq.settled AS s
                     WHERE s.settled_at > taskq.clock() - within
                     ORDER BY s.settled_at DESC LIMIT max_looked) AS s
             WHERE s.code = 'a' AND s.cause NOT IN ('k', 'd', 'r')
             GROUP BY s.action_no, s.cause, 3
             ORDER BY 4 DESC LIMIT 200) AS x
     CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = x.action_no OFFSET 0) AS a
      LEFT JOIN LATERAL (SELECT t.id FROM taskq.task AS t WHERE t.task_no = x.last_no OFFSET 0) AS t ON true
     ORDER BY x.number DESC, x.last_at DESC;
END
$$;
COMMENT ON FUNCTION taskq.failures IS
    'tasks that aborted lately, by action, cause and text with N for numbers: how many, and when';
