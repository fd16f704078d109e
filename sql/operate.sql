-- taskq: at a glance. What is wrong, and what goes on per action: by looks along indexes, at tallies and at samples, most of them bounded.

-- An interval in a word: of four characters at most, if it is shorter than a thousand years.
CREATE FUNCTION taskq._age(age interval)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE WHEN s < 0.0995 THEN round(GREATEST(s, 0) * 1000) || 'ms' WHEN s < 9.95 THEN round(s, 1) || 's'
                    WHEN s < 99.5 THEN round(s) || 's'
                    WHEN s < 99.5 * 60 THEN round(s / 60) || 'm' WHEN s < 47.5 * 3600 THEN round(s / 3600) || 'h'
                    WHEN s < 999.5 * 86400 THEN round(s / 86400) || 'd' ELSE round(s / 31557600) || 'y' END
          FROM (SELECT EXTRACT(epoch FROM age) AS s) AS x;
    END;
COMMENT ON FUNCTION taskq._age IS 'internal: an interval in a word';

-- A number from 0 up in at most four characters, if it is below 999.5 thousand million.
CREATE FUNCTION taskq._short(number double precision)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE WHEN number < 9.95 AND number <> round(number) THEN round(number::numeric, 1)::text
                    WHEN number < 999.5 THEN round(number)::text
                    WHEN number < 9950 THEN round((number / 1e3)::numeric, 1) || 'k'
                    WHEN number < 999500 THEN round(number / 1e3) || 'k'
                    WHEN number < 9.95e6 THEN round((number / 1e6)::numeric, 1) || 'M'
                    WHEN number < 999.5e6 THEN round(number / 1e6) || 'M'
                    ELSE round(number / 1e9) || 'G' END;
    END;
COMMENT ON FUNCTION taskq._short IS 'internal: a number in few characters';

-- The same; an estimate has a sign that says so: at most five characters with that, or four where it is to be narrow.
CREATE FUNCTION taskq._roughly(number double precision, exact boolean, narrow boolean)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE WHEN exact THEN taskq._short(number)
                    WHEN NOT narrow OR length(taskq._short(number)) <= 3 THEN '~' || taskq._short(number)
                    WHEN number < 9950 THEN '~' || round(number / 1e3) || 'k'
                    WHEN number < 950e3 THEN '~.' || GREATEST(round(number / 1e5), 1) || 'M'
                    WHEN number < 99.5e6 OR number BETWEEN 950e6 AND 999.5e6 THEN '~' || round(number / 1e6) || 'M'
                    ELSE '~.' || GREATEST(round(number / 1e8), 1) || 'G' END;
    END;
COMMENT ON FUNCTION taskq._roughly IS 'internal: a number that may be an estimate, in at most four or five characters';

-- Tries of the history that are shown, by outcome: of very many an estimate. Each that ended with its deadline is looked up in
-- three places, so that the sample has a tenth of the pages here.
CREATE FUNCTION taskq._about_tries()
    RETURNS TABLE (outcome text, number bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 5
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_nestloop = on SET enable_hashagg = on
    SET enable_memoize = off
    BEGIN ATOMIC
        WITH size AS MATERIALIZED (
                SELECT s.pages, s.pages <= taskq._sampled_pages() / 10 AS whole
                  FROM (SELECT taskq._pages('taskq.attempt') AS pages) AS s)
        SELECT a.outcome, count(*) FROM taskq._told_attempt AS a WHERE (SELECT s.whole FROM size AS s) GROUP BY a.outcome
        UNION ALL
        SELECT x.outcome, round(sum(x.number) * 10 * min(x.pages) / taskq._sampled_pages())::bigint
          FROM (SELECT h.outcome, h.number, s.pages
                  FROM size AS s
                 CROSS JOIN LATERAL taskq._sample(s.pages, taskq._sampled_pages()) WITH ORDINALITY AS p(first, behind, i)
                 CROSS JOIN LATERAL (
                       SELECT h.outcome, count(*) AS number
                         FROM taskq.attempt AS h
                        WHERE h.ctid >= p.first AND h.ctid < p.behind
                          -- As in taskq._told_attempt.
                          AND (h.outcome <> 'timeout'
                               OR NOT EXISTS (SELECT FROM taskq.attempt AS l
                                               WHERE l.task_no = h.task_no AND l.started_at = h.started_at
                                                 AND (l.outcome <> 'timeout' OR l.ended_at > h.ended_at)
                                              UNION ALL
                                              SELECT FROM taskq.settled AS l
                                               WHERE l.task_no = h.task_no AND l.granted_at = h.started_at
                                              UNION ALL
                                              SELECT FROM taskq.run AS l
                                               WHERE l.task_no = h.task_no AND l.granted_at = h.started_at
                                                 AND l.nonce <> 0 AND NOT l.grantable AND l.aside IS NULL
                                              OFFSET 0))
                        GROUP BY h.outcome OFFSET 0) AS h
                 WHERE NOT s.whole AND p.i % 10 = 5) AS x
         GROUP BY x.outcome;
    END;
COMMENT ON FUNCTION taskq._about_tries IS 'internal: about how many tries the history shows, by outcome';

-- What has ended, kept or not, in this time up to now: from the tallies, and row by row what is not sealed, 100,000 at most.
CREATE FUNCTION taskq._ends(within interval)
    RETURNS TABLE (action_no integer, code "char", cause "char", at timestamptz, number bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    BEGIN ATOMIC
        SELECT y.action_no, y.code, y.cause, y.span, CASE WHEN y.span < e.until THEN y.ended ELSE y.ended - y.number END
          FROM taskq.end_tally AS y
         CROSS JOIN (SELECT COALESCE(min(e.until), '-infinity') AS until FROM taskq.seal AS e) AS e
         WHERE y.span > (SELECT taskq.clock()) - within
        UNION ALL
        (SELECT s.action_no, s.code, s.cause, s.settled_at, 1
           FROM taskq.settled AS s
          WHERE s.settled_at >= COALESCE((SELECT e.until FROM taskq.seal AS e), '-infinity')
            AND s.settled_at > (SELECT taskq.clock()) - within AND s.cause <> 'r'
          ORDER BY s.settled_at DESC LIMIT 100000);
    END;
COMMENT ON FUNCTION taskq._ends IS 'internal: tasks that have ended lately, in numbers';

-- How fast tasks come and end. Those that come are the newest in `task`, 20,000 at most: where there were more in the last five
-- minutes, their pace is that of these. Waits and runs are those of the last 2,000 of the last hour that have ended after a grant.
CREATE FUNCTION taskq._pace()
    RETURNS TABLE (action_no integer, came double precision, ended double precision, ended_hour bigint, lost_hour bigint,
                   waiting double precision[], running double precision[], worked bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = on
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH newest AS MATERIALIZED (
                SELECT t.action_no, t.inserted_at FROM taskq.task AS t
                 WHERE t.inserted_at > (SELECT taskq.clock()) - interval '5 minutes' ORDER BY t.inserted_at DESC LIMIT 20000),
             reach AS MATERIALIZED (
                SELECT CASE WHEN count(*) < 20000 THEN 5
                            ELSE GREATEST(EXTRACT(epoch FROM (SELECT taskq.clock()) - min(n.inserted_at)) / 60, 1.0 / 60) END
                           ::double precision AS minutes
                  FROM newest AS n),
             recent AS MATERIALIZED (
                SELECT s.task_no, s.action_no, s.settled_at, s.granted_at FROM taskq.settled AS s
                 WHERE s.settled_at > (SELECT taskq.clock()) - interval '1 hour' AND s.granted_at IS NOT NULL
                 ORDER BY s.settled_at DESC LIMIT 2000),
             ended AS MATERIALIZED (SELECT e.action_no, e.code, e.cause, e.at, e.number FROM taskq._ends('1 hour') AS e)
        SELECT x.action_no, sum(x.came), sum(x.ended), sum(x.ended_hour)::bigint, sum(x.lost_hour)::bigint,
               min(x.waiting), min(x.running), sum(x.worked)::bigint
          FROM (SELECT n.action_no, count(*) / (SELECT r.minutes FROM reach AS r) AS came, 0::double precision AS ended,
                       0::numeric AS ended_hour, 0::numeric AS lost_hour,
                       NULL::double precision[] AS waiting, NULL::double precision[] AS running, 0::numeric AS worked
                  FROM newest AS n GROUP BY n.action_no
                UNION ALL
                SELECT e.action_no, 0, COALESCE(sum(e.number) FILTER (WHERE e.at > (SELECT taskq.clock()) - interval '5 minutes'), 0) / 5.0,
                       COALESCE(sum(e.number) FILTER (WHERE e.cause <> 'k'), 0),
                       COALESCE(sum(e.number) FILTER (WHERE e.code = 'a' AND e.cause IN ('w', 't', 'x')), 0), NULL, NULL,
                       -- What expires, or is cancelled, takes no worker.
                       COALESCE(sum(e.number) FILTER (WHERE e.cause IN ('w', 't', 'x', 'm')
                                                        AND e.at > (SELECT taskq.clock()) - interval '5 minutes'), 0)
                  FROM ended AS e GROUP BY e.action_no
                UNION ALL
                SELECT r.action_no, 0, 0, 0, 0,
                       percentile_cont('{0.5,0.99}'::double precision[])
                           WITHIN GROUP (ORDER BY date_part('epoch', r.granted_at - t.inserted_at)),
                       percentile_cont('{0.5,0.99}'::double precision[])
                           WITHIN GROUP (ORDER BY date_part('epoch', r.settled_at - r.granted_at)), 0
                  FROM recent AS r
                 CROSS JOIN LATERAL (SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = r.task_no OFFSET 0) AS t
                 GROUP BY r.action_no) AS x
         GROUP BY x.action_no;
    END;
COMMENT ON FUNCTION taskq._pace IS
    'internal: tasks of an action that come and end in a minute (of the last five); that ended (without skipped ones), and that aborted by a try, in the last hour; times; that ended in the last five minutes and had a worker, or rode on a task that had';

-- What is first in the queue of each action, and what stands before it: shows a task that comes back late, an action for
-- which no worker asks, and a task that a worker has held without a deadline for a day or longer.
CREATE FUNCTION taskq._heads()
    RETURNS TABLE (action_no integer, task_no bigint, inserted_at timestamptz, in_hand boolean, unleased bigint[], crowded boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        -- Groups whose limit is used up by tasks that are in a worker's hands.
        WITH full_group AS MATERIALIZED (
                SELECT l.group_id
                  FROM taskq.slot AS l
                 CROSS JOIN LATERAL (SELECT r.deadline FROM taskq.run AS r WHERE r.task_no = l.task_no OFFSET 0) AS r
                 WHERE l.name = '' AND l.group_id <> '' AND l.task_no IS NOT NULL AND r.deadline > (SELECT taskq.clock())
                 GROUP BY l.group_id
                HAVING count(*) >= (SELECT g.max_concurrency FROM taskq.task_group AS g WHERE g.group_id = l.group_id))
        SELECT a.action_no, h.task_no, h.inserted_at, h.in_hand, h.unleased, h.crowded
          FROM taskq.action AS a
         CROSS JOIN LATERAL (
               -- The oldest of the first hundred in no lane and of a hundred in lanes (by priority, then lane after lane), except what its
               -- group or workgroup holds back. What has been overdue for long waits as what is ready does.
               SELECT min(x.task_no) FILTER (WHERE x.inserted_at IS NOT NULL) AS task_no,
                      min(x.inserted_at) AS inserted_at,
                      -- A performance whose deadline has passed is in no worker's hands, whether its try has been
                      -- ended or not.
                      bool_or(NOT x.grantable AND x.nonce <> 0 AND x.deadline > (SELECT taskq.clock())) AS in_hand,
                      array_agg(x.task_no) FILTER (WHERE x.nonce <> 0 AND x.deadline = 'infinity'
                                                   AND x.granted_at < (SELECT taskq.clock()) - interval '1 day') AS unleased,
                      count(*) >= 100 AS crowded
                 FROM (SELECT r.task_no, r.grantable, r.nonce, r.deadline, r.granted_at,
                              (SELECT t.inserted_at FROM taskq.task AS t
                                WHERE t.task_no = r.task_no
                                  AND (r.grantable OR r.nonce <> 0 AND r.deadline <= (SELECT taskq.clock()) - interval '5 minutes')
                                  AND NOT EXISTS (SELECT FROM taskq.task_group AS g
                                                   WHERE r.gated AND g.group_id = t.group_id AND (g.paused OR g.max_concurrency = 0))
                                  AND NOT COALESCE(r.gated AND t.group_id IN (SELECT f.group_id FROM full_group AS f), false)
                                  AND NOT EXISTS (SELECT FROM taskq.workgroup AS w
                                                   WHERE r.gated AND w.name = t.workgroup AND w.not_before > (SELECT taskq.clock()))) AS inserted_at
                         FROM ((SELECT r.task_no, r.grantable, r.gated, r.nonce, r.deadline, r.granted_at FROM taskq.run AS r
                                 WHERE r.action_no = a.action_no AND r.lane = 0
                                 ORDER BY r.priority DESC, r.position LIMIT 100)
                               UNION ALL
                               (SELECT r.task_no, r.grantable, r.gated, r.nonce, r.deadline, r.granted_at FROM taskq.run AS r
                                 WHERE r.action_no = a.action_no AND r.lane <> 0
                                 ORDER BY r.priority DESC, r.lane, r.position LIMIT 100)) AS r) AS x) AS h
         WHERE h.task_no IS NOT NULL OR h.unleased IS NOT NULL;
    END;
COMMENT ON FUNCTION taskq._heads IS
    'internal: which task to be granted of an action was inserted first, of those that come next, whether some are in progress, and which for long; and whether there may be more';

CREATE FUNCTION taskq.health()
    RETURNS TABLE (severity text, problem text, advice text, kind text, subject text, since timestamptz)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 5
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (SELECT taskq.clock() AS at, clock_timestamp() AS wall),
             heads AS MATERIALIZED (SELECT h.action_no, h.task_no, h.inserted_at, h.in_hand, h.unleased, h.crowded FROM taskq._heads() AS h),
             -- Grouped and not joined, which would take each with each: there may be thousands of actions.
             pace AS MATERIALIZED (
                SELECT x.action_no, sum(x.came) AS came, sum(x.ended) AS ended, sum(x.ended_hour)::bigint AS ended_hour,
                       sum(x.lost_hour)::bigint AS lost_hour, min(x.task_no) AS task_no, min(x.inserted_at) AS inserted_at,
                       bool_or(x.in_hand) AS in_hand, bool_or(x.crowded) AS crowded, sum(x.worked) AS worked
                  FROM (SELECT p.action_no, p.came, p.ended, p.ended_hour, p.lost_hour, p.worked,
                               NULL::bigint AS task_no, NULL::timestamptz AS inserted_at, NULL::boolean AS in_hand, NULL::boolean AS crowded
                          FROM taskq._pace() AS p
                        UNION ALL
                        SELECT h.action_no, 0, 0, 0, 0, 0, h.task_no, h.inserted_at, h.in_hand, h.crowded FROM heads AS h) AS x
                 GROUP BY x.action_no),
             -- Of which a task has a deadline ahead, wherever in the queue it stands.
             leased AS MATERIALIZED (
                SELECT DISTINCT r.action_no
                  FROM (SELECT l.base, l.keeper_no || l.others AS task_nos FROM taskq.lease AS l
                         WHERE l.deadline > (SELECT n.at FROM now AS n)
                         ORDER BY l.deadline LIMIT 10000) AS l
                 CROSS JOIN LATERAL unnest(l.task_nos) AS u(task_no)
                 CROSS JOIN LATERAL (SELECT r.action_no FROM taskq.run AS r
                                      WHERE r.task_no = u.task_no AND r.nonce = l.base # u.task_no AND NOT r.grantable
                                        AND r.deadline > (SELECT n.at FROM now AS n) OFFSET 0) AS r),
             -- Held without a deadline for long: of what comes next in each action, and of what was inserted first of all.
             unleased AS MATERIALIZED (
                SELECT r.action_no, count(*) AS number, min(r.granted_at) AS since,
                       (array_agg(r.actor_id ORDER BY r.granted_at))[1] AS actor
                  FROM (SELECT u.task_no FROM heads AS h CROSS JOIN LATERAL unnest(h.unleased) AS u(task_no)
                        UNION
                        SELECT o.task_no
                          FROM (SELECT r.task_no, r.nonce, r.deadline, r.granted_at FROM taskq.run AS r
                                 ORDER BY r.task_no LIMIT 2000) AS o
                         WHERE o.nonce <> 0 AND o.deadline = 'infinity'
                           AND o.granted_at < (SELECT n.at FROM now AS n) - interval '1 day') AS u
                 CROSS JOIN LATERAL (SELECT r.action_no, r.granted_at, r.actor_id FROM taskq.run AS r
                                      WHERE r.task_no = u.task_no OFFSET 0) AS r
                 GROUP BY r.action_no),
             -- What goes on as long as there are calls.
             late AS MATERIALIZED (
                SELECT x.one, x.what, x.number, x.since
                  FROM (SELECT 'a schedule' AS one, 'schedules' AS what, count(*) AS number, min(s.next_at) AS since
                          FROM (SELECT s.next_at FROM taskq.schedule AS s, now AS n
                                 WHERE s.next_at <= n.at - interval '5 seconds' ORDER BY s.next_at LIMIT 1000) AS s
                        UNION ALL
                        SELECT 'a timer', 'timers', count(*), min(d.due)
                          FROM (SELECT d.due FROM taskq.scheduled AS d
                                 WHERE d.timer AND d.due <= (SELECT n.at FROM now AS n) - interval '5 seconds'
                                 ORDER BY d.due LIMIT 1000) AS d
                        UNION ALL
                        SELECT 'the time-out of a suspended task', 'time-outs of suspended tasks', count(*), min(b.until)
                          FROM (SELECT b.until FROM taskq.blocked AS b
                                 WHERE b.since IS NOT NULL AND b.until <= (SELECT n.at FROM now AS n) - interval '5 seconds'
                                 ORDER BY b.until LIMIT 1000) AS b
                        UNION ALL
                        SELECT 'a task that expires', 'tasks that expire', count(*), min(e.due)
                          FROM (SELECT e.due FROM taskq.expiry AS e
                                 WHERE e.due <= (SELECT n.at FROM now AS n) - interval '5 seconds' ORDER BY e.due LIMIT 1000) AS e
                        UNION ALL
                        SELECT 'a task whose retention is over', 'tasks whose retention is over', count(*), min(s.expires_at)
                          FROM (SELECT s.expires_at FROM taskq.settled AS s
                                 WHERE s.expires_at <= (SELECT n.at FROM now AS n) - interval '10 minutes'
                                 ORDER BY s.expires_at LIMIT 1000) AS s
                        UNION ALL
                        -- These are for calls that ask for their action.
                        SELECT 'a task whose time has come', 'tasks whose time has come', count(*), min(d.due)
                          FROM taskq.action AS a
                         CROSS JOIN LATERAL (SELECT d.due FROM taskq.scheduled AS d
                                              WHERE d.action_no = a.action_no AND NOT d.timer
                                                AND d.due <= (SELECT n.at FROM now AS n) - interval '1 minute'
                                              ORDER BY d.due LIMIT 100) AS d
                         WHERE NOT EXISTS (SELECT FROM taskq.action_setting AS s WHERE s.name = a.name AND s.paused)) AS x
                 WHERE x.number > 0),
             overdue AS MATERIALIZED (
                SELECT r.action_no, count(*) AS number, min(r.deadline) AS since,
                       (array_agg(r.actor_id ORDER BY r.deadline))[1] AS actor
                  FROM (SELECT l.base, l.keeper_no || l.others AS task_nos FROM taskq.lease AS l
                         WHERE l.deadline <= (SELECT n.at FROM now AS n) - interval '5 seconds'
                         ORDER BY l.deadline LIMIT 1000) AS l
                 CROSS JOIN LATERAL unnest(l.task_nos) AS u(task_no)
                 CROSS JOIN LATERAL (SELECT r.action_no, r.deadline, r.actor_id FROM taskq.run AS r
                                      WHERE r.task_no = u.task_no AND r.nonce = l.base # u.task_no AND NOT r.grantable
                                        AND r.deadline <= (SELECT n.at FROM now AS n) - interval '5 seconds' OFFSET 0) AS r
                 GROUP BY r.action_no),
             -- Tries that their deadlines have ended in the last hour, the latest ten thousand; and the task of which most were.
             missed AS MATERIALIZED (
                SELECT a.name, sum(m.number) AS number, min(m.since) AS since, (array_agg(m.id ORDER BY m.number DESC, m.task_no))[1] AS id,
                       max(m.number) AS most
                  FROM (SELECT t.action_no, t.id, x.task_no, x.number, x.since
                          FROM (SELECT o.task_no, count(*) AS number, min(o.ended_at) AS since
                                  FROM (SELECT o.task_no, o.ended_at FROM taskq.attempt AS o
                                         WHERE o.outcome = 'timeout' AND o.ended_at > (SELECT n.at FROM now AS n) - interval '1 hour'
                                         ORDER BY o.ended_at DESC LIMIT 10000) AS o
                                 GROUP BY o.task_no) AS x
                         CROSS JOIN LATERAL (SELECT t.action_no, t.id FROM taskq.task AS t WHERE t.task_no = x.task_no OFFSET 0) AS t) AS m
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = m.action_no OFFSET 0) AS a
                 GROUP BY a.name HAVING sum(m.number) >= 3),
             asking AS MATERIALIZED (SELECT s.pid, s.action_no, s.for_any FROM taskq._asking AS s WHERE NOT s.for_ends),
             asked AS MATERIALIZED (SELECT s.action_no, count(DISTINCT s.pid) AS number FROM asking AS s
                                     WHERE s.action_no IS NOT NULL GROUP BY s.action_no),
             -- A hundred that most calls ask for.
             named AS MATERIALIZED (
                SELECT array_agg(x.name ORDER BY x.number DESC, x.name) AS names, array_agg(x.number ORDER BY x.number DESC, x.name) AS numbers
                  FROM (SELECT a.name, max(s.number) AS number FROM asked AS s
                         CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = s.action_no OFFSET 0) AS a
                         GROUP BY a.name ORDER BY 2 DESC, 1 LIMIT 100) AS x),
             waiting AS MATERIALIZED (SELECT count(DISTINCT s.pid) AS number, count(DISTINCT s.pid) FILTER (WHERE s.for_any) AS for_any
                                        FROM asking AS s)
        SELECT x.severity, x.problem, x.advice, x.kind, x.subject, x.since
          FROM (
                -- Deadlines that have passed, and no call has ended these tries.
                SELECT CASE WHEN o.since < n.at - interval '10 minutes' THEN 'critical' ELSE 'warning' END AS severity,
                       CASE WHEN o.number = 1
                            THEN format('a task of action "%s" has been past its deadline for %s (actor "%s"), and no worker has taken it over',
                                        a.name, taskq._age(n.at - o.since), o.actor)
                            ELSE format('%s tasks of action "%s" are past their deadlines, the first for %s (actor "%s"), and no worker'
                                        ' has taken them over', o.number, a.name, taskq._age(n.at - o.since), o.actor) END AS problem,
                       'No worker calls own_tasks: start workers, call taskq.maintain() every minute, or name the database in taskq.databases.' AS advice,
                       'overdue' AS kind, a.name AS subject, o.since
                  FROM overdue AS o CROSS JOIN now AS n
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = o.action_no OFFSET 0) AS a
                UNION ALL
                -- Ready, and no worker asks: nothing of it is in progress, nothing has ended
                -- lately. More than three names are compared for the first twenty alone: there may be thousands of actions.
                SELECT CASE WHEN h.inserted_at < n.at - interval '1 hour' THEN 'critical' ELSE 'warning' END,
                       format('no worker claims tasks of action "%s": one has been in the queue for %s, and %s', a.name, taskq._age(n.at - h.inserted_at),
                              taskq._asked_for(a.name, 'it', w.number, COALESCE((SELECT s.number FROM asked AS s WHERE s.action_no = h.action_no), 0),
                                               w.for_any,
                                               CASE WHEN row_number() OVER (ORDER BY h.inserted_at) <= 20 THEN m.names ELSE m.names[1:3] END,
                                               m.numbers)),
                       'Start workers that ask for this action, or pause or delete what is not wanted; taskq.why(id) tells of a task.',
                       'starving', a.name, h.inserted_at
                  FROM pace AS h CROSS JOIN now AS n CROSS JOIN waiting AS w CROSS JOIN named AS m
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = h.action_no OFFSET 0) AS a
                 WHERE h.inserted_at < n.at - interval '5 minutes' AND NOT h.in_hand AND h.worked = 0
                   -- Of those that come next there were more than have been looked at.
                   AND NOT CASE WHEN h.crowded THEN h.action_no IN (SELECT l.action_no FROM leased AS l)
                                                    OR EXISTS (SELECT FROM taskq._front(h.action_no) AS f WHERE f.in_progress AND f.deadline > n.at)
                                ELSE false END
                   AND NOT EXISTS (SELECT FROM taskq.action_setting AS s WHERE s.name = a.name AND (s.paused OR s.max_concurrency = 0))
                   -- A rate that is used up: the next grant is not due yet.
                   AND NOT EXISTS (SELECT FROM taskq.action_setting AS s JOIN taskq.bucket AS b ON b.name = s.name
                                    WHERE s.name = a.name
                                      AND b.level + extract(epoch FROM n.at - b.measured_at) * s.rate_limit
                                                    / extract(epoch FROM s.rate_period) < 1)
                UNION ALL
                -- No time gives it to another worker, whatever has become of the one that has it.
                SELECT 'notice',
                       CASE u.number WHEN 1
                            THEN format('a task of action "%s" has been held without a deadline for %s (actor "%s")',
                                        a.name, taskq._age(n.at - u.since), u.actor)
                            ELSE format('%s tasks of action "%s" are held without a deadline, the first for %s (actor "%s")',
                                        u.number, a.name, taskq._age(n.at - u.since), u.actor) END,
                       format('If that actor is gone, no other worker gets it: SELECT taskq.release_tasks(actors => ARRAY[%L]) makes what it held'
                              ' ready again. With a lease the queue does so.', u.actor),
                       'unleased', a.name, u.since
                  FROM unleased AS u CROSS JOIN now AS n
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = u.action_no OFFSET 0) AS a
                UNION ALL
                -- More comes than ends, and it waits.
                SELECT 'warning',
                       format('the queue of action "%s" grows: %s tasks come and %s in a minute, and one has waited for %s',
                              a.name, taskq._short(p.came),
                              CASE taskq._short(p.ended) WHEN '1' THEN '1 ends' ELSE taskq._short(p.ended) || ' end' END,
                              taskq._age(n.at - p.inserted_at)),
                       'Add workers, or let each take more tasks at a time; look at limits and rates in taskq.actions.',
                       'growing', a.name, p.inserted_at
                  FROM pace AS p CROSS JOIN now AS n
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = p.action_no OFFSET 0) AS a
                 WHERE p.came > 1.2 * p.ended + 10 AND p.ended > 0 AND p.inserted_at < n.at - interval '1 minute'
                UNION ALL
                SELECT CASE WHEN p.lost_hour * 2 > p.ended_hour THEN 'critical' ELSE 'warning' END,
                       format('%s of %s tasks of action "%s" that ended in the last hour have aborted',
                              p.lost_hour, p.ended_hour, a.name),
                       'taskq.dead_ends tells why; mend it, and taskq.retry_tasks brings them back.',
                       'aborting', a.name, NULL
                  FROM pace AS p
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = p.action_no OFFSET 0) AS a
                 WHERE p.lost_hour >= 5 AND p.lost_hour * 10 > p.ended_hour
                UNION ALL
                -- Workers that die, or take longer than their leases.
                SELECT CASE WHEN m.number >= 10 THEN 'warning' ELSE 'notice' END,
                       format('%s tries of action "%s" have ended by their deadlines in the last hour, %s of them of task "%s"',
                              m.number, m.name, m.most, m.id),
                       format('If the task kills its workers, SELECT taskq.set_action(%L, max_timeouts => 3) aborts it with the third deadline; if '
                              'they need longer, give them a longer lease or have them extend it.', m.name),
                       'timeouts', m.name, m.since
                  FROM missed AS m
                UNION ALL
                SELECT 'warning', format('schedule "%s" had a problem with its last run: %s', s.name, s.problem),
                       'Mend the task of the schedule with taskq.schedule(), and try taskq.run_schedule().', 'schedule', s.name, NULL
                  FROM taskq.schedule AS s WHERE s.problem IS NOT NULL
                UNION ALL
                SELECT 'warning',
                       CASE WHEN l.number = 1
                            THEN format('%s has been due for %s and is not handled', l.one, taskq._age(n.at - l.since))
                            ELSE format('%s %s are due and not handled, the first for %s',
                                        CASE WHEN l.number >= 1000 THEN '1000 and more' ELSE l.number::text END,
                                        l.what, taskq._age(n.at - l.since)) END,
                       'No worker calls own_tasks, or only in long transactions: call taskq.maintain() every minute, or name the database in taskq.databases.',
                       'late', l.what, l.since
                  FROM late AS l CROSS JOIN now AS n
                UNION ALL
                -- What is due while calls sleep is done by a background process, and the server has none left.
                SELECT 'warning',
                       format('no background process is free for what is due while calls sleep: %s are there', b.number),
                       'Raise max_worker_processes (now ' || current_setting('max_worker_processes') || ') and restart the server.',
                       'no_worker', 'max_worker_processes', NULL
                  FROM (SELECT count(*) AS number FROM pg_stat_activity AS s
                         WHERE s.backend_type NOT IN ('client backend', 'walsender', 'autovacuum launcher', 'autovacuum worker',
                                                      'checkpointer', 'background writer', 'walwriter', 'walsummarizer', 'archiver',
                                                      'startup', 'walreceiver', 'slotsync worker', 'io worker', 'logger')) AS b
                 CROSS JOIN LATERAL (SELECT count(*) AS number FROM pg_locks AS l
                                      WHERE l.locktype = 'advisory' AND l.objsubid = 29811 AND l.database = 0) AS p
                 WHERE (b.number >= current_setting('max_worker_processes')::int
                        OR p.number >= LEAST(GREATEST(current_setting('max_worker_processes')::int / 4, 1), 8))
                   AND current_setting('taskq.background_worker')::boolean
                   AND (EXISTS (SELECT FROM overdue) OR EXISTS (SELECT FROM late))
                   AND NOT EXISTS (SELECT FROM pg_stat_activity AS s
                                    WHERE s.datname = current_database() AND s.backend_type = 'taskq worker')
                UNION ALL
                -- What holds others up.
                SELECT CASE WHEN s.xact_start < n.wall - interval '1 hour' THEN 'critical' ELSE 'warning' END,
                       format('%s of %s (pid %s%s) has been open for %s and %s',
                              CASE WHEN s.state LIKE 'idle in transaction%' THEN 'an idle transaction' ELSE 'a transaction' END,
                              COALESCE(quote_ident(s.usename), 'an unknown user'), s.pid,
                              CASE WHEN s.application_name <> '' THEN ', ' || s.application_name ELSE '' END,
                              taskq._age(n.wall - s.xact_start),
                              CASE WHEN s.backend_xid IS NOT NULL THEN 'has written: claims walk further, and nothing is sealed'
                                   ELSE 'holds a snapshot: vacuum removes nothing that died since' END),
                       format('End it, or SELECT pg_terminate_backend(%s); idle_in_transaction_session_timeout ends such in time.', s.pid),
                       CASE WHEN s.backend_xid IS NOT NULL THEN 'transaction' ELSE 'snapshot' END, s.pid::text, s.xact_start
                  FROM pg_stat_activity AS s CROSS JOIN now AS n
                 WHERE s.pid <> pg_backend_pid() AND s.backend_type IN ('client backend', 'background worker', 'walsender')
                   AND (s.backend_xid IS NOT NULL AND s.xact_start < n.wall - interval '5 minutes'
                        OR s.backend_xmin IS NOT NULL AND s.xact_start < n.wall - interval '15 minutes'
                           AND s.datname IS NOT DISTINCT FROM current_database())
                UNION ALL
                SELECT CASE WHEN x.prepared < n.wall - interval '1 hour' THEN 'critical' ELSE 'warning' END,
                       format('transaction "%s" was prepared %s ago and is still open', x.gid, taskq._age(n.wall - x.prepared)),
                       'COMMIT PREPARED or ROLLBACK PREPARED it; nothing else ends it.', 'transaction', x.gid, x.prepared
                  FROM pg_prepared_xacts AS x CROSS JOIN now AS n WHERE x.prepared < n.wall - interval '5 minutes'
                UNION ALL
                SELECT 'warning', format('replication slot "%s" holds back vacuum by %s transactions', s.slot_name, x.age),
                       'See that its consumer works, or drop the slot.', 'snapshot', s.slot_name, NULL
                  FROM pg_replication_slots AS s
                 CROSS JOIN LATERAL (SELECT GREATEST(age(s.xmin), age(s.catalog_xmin)) AS age) AS x
                 WHERE x.age > 10000000
                UNION ALL
                SELECT 'warning',
                       format('table taskq.%s has %s dead rows, and of live ones %s', c.relname,
                              taskq._short(pg_stat_get_dead_tuples(c.oid)), taskq._short(pg_stat_get_live_tuples(c.oid))),
                       'See that autovacuum runs and that nothing above holds it back; then VACUUM the table.', 'bloat', c.relname, NULL
                  FROM pg_class AS c
                 WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'r'
                   AND pg_stat_get_dead_tuples(c.oid) > 100000 + 2 * pg_stat_get_live_tuples(c.oid)
                UNION ALL
                SELECT CASE WHEN x.left < 0.05 THEN 'critical' ELSE 'warning' END,
                       format('only %s percent of the numbers for tasks are left', round(x.left * 100)),
                       'Move to a new queue, in another database or of another shard, before they are used up.', 'positions', NULL, NULL
                  -- Of the 48 bits that are a shard's own, and without those that no new task gets (src/token.rs).
                  FROM (SELECT GREATEST(1 - (p.last_value & 281474976710655)::numeric / 280375465082880, 0) AS left
                          FROM taskq.position_seq AS p) AS x
                 WHERE x.left < 0.2
                UNION ALL
                SELECT CASE WHEN x.age > 1500000000 THEN 'critical' ELSE 'warning' END,
                       format('the oldest transaction id of this database is %s transactions back, and about two thousand million is the end',
                              taskq._short(x.age)),
                       'VACUUM (FREEZE) what is oldest, and see what holds vacuum back.', 'transaction ids', NULL, NULL
                  FROM (SELECT age(d.datfrozenxid) AS age FROM pg_database AS d WHERE d.datname = current_database()) AS x
                 WHERE x.age > 2 * current_setting('autovacuum_freeze_max_age')::bigint OR x.age > 1500000000
                UNION ALL
                -- Of those that wait without a limit, the first thousand by their place in the index: mostly the oldest.
                SELECT 'notice',
                       format('%s suspended without a limit for longer than a week, %s since %s',
                              CASE b.number WHEN 1 THEN 'a task is' WHEN 1000 THEN '1000 tasks or more are' ELSE b.number || ' tasks are' END,
                              CASE b.number WHEN 1 THEN 'that is' ELSE 'the first' END, b.since),
                       'See taskq.waits for what they wait for; signal it, cancel them, or give wait_at_most the next time.',
                       'suspended', NULL, b.since
                  FROM (SELECT count(*) AS number, min(b.since) AS since
                          FROM (SELECT b.since FROM taskq.blocked AS b
                                 WHERE b.since IS NOT NULL AND b.until IS NULL ORDER BY b.until LIMIT 1000) AS b
                         WHERE b.since < (SELECT n.at FROM now AS n) - interval '7 days') AS b
                 WHERE b.number > 0
                UNION ALL
                -- Stopped by hand, and perhaps forgotten.
                SELECT 'notice',
                       format('action "%s" has %s for %s, and %s of its tasks wait', s.name,
                              CASE WHEN s.paused THEN 'been paused' ELSE 'had max_concurrency 0' END, taskq._age(n.at - s.stopped_at),
                              CASE WHEN w.number >= 1000 THEN '1000 or more' ELSE w.number::text END),
                       CASE WHEN s.paused THEN format('If it may go on: SELECT taskq.resume_action(%L).', s.name)
                            ELSE format('If it may go on: SELECT taskq.set_action(%L, max_concurrency => ...), or clear => ''{max_concurrency}''.', s.name) END,
                       'paused', s.name, s.stopped_at
                  FROM taskq.action_setting AS s CROSS JOIN now AS n
                 -- What is ready, and what is due; of each number of the action the first thousand.
                 CROSS JOIN LATERAL (
                       SELECT count(*) AS number
                         FROM taskq.action AS a
                        CROSS JOIN LATERAL (
                              (SELECT 1 FROM taskq.run AS r WHERE r.action_no = a.action_no AND r.lane = 0 AND r.nonce = 0 LIMIT 1000)
                              UNION ALL
                              (SELECT 1 FROM taskq.run AS r WHERE r.action_no = a.action_no AND r.lane <> 0 AND r.nonce = 0 LIMIT 1000)
                              UNION ALL
                              (SELECT 1 FROM taskq.scheduled AS d WHERE d.action_no = a.action_no AND d.due <= n.at LIMIT 1000)) AS x
                        WHERE a.name = s.name) AS w
                 WHERE s.stopped_at < n.at - interval '1 hour' AND w.number > 0
                UNION ALL
                SELECT 'notice',
                       format('group "%s" has %s for %s, and %s of its tasks have not ended', g.group_id,
                              CASE WHEN g.paused THEN 'been paused' ELSE 'had max_concurrency 0' END, taskq._age(n.at - g.stopped_at), w.number),
                       CASE WHEN g.paused THEN format('If it may go on: SELECT taskq.resume_group(%L).', g.group_id)
                            ELSE format('If it may go on: SELECT taskq.set_group(%L, max_concurrency => ...), or clear => ''{max_concurrency}''.', g.group_id) END,
                       'paused', g.group_id, g.stopped_at
                  FROM taskq.task_group AS g CROSS JOIN now AS n
                 CROSS JOIN LATERAL (SELECT sum(y.tasks - y.completed - y.aborted - y.skipped) AS number FROM taskq.group_tally AS y
                                      WHERE y.folded IN (false, true) AND y.group_id = g.group_id) AS w
                 WHERE g.stopped_at < n.at - interval '1 hour' AND w.number > 0
                UNION ALL
                SELECT 'notice', format('schedule "%s" has been paused for %s', s.name, taskq._age(n.at - s.paused_at)),
                       format('SELECT taskq.resume_schedule(%L), or taskq.unschedule(%L) if it is not wanted any more.', s.name, s.name),
                       'paused', s.name, s.paused_at
                  FROM taskq.schedule AS s CROSS JOIN now AS n WHERE s.paused_at < n.at - interval '1 day'
                UNION ALL
                -- One that came early, or was inserted, under an id that is misspelt perhaps. Of each kind the ten thousand are looked at
                -- that came last before that day, and that were inserted first.
                SELECT 'notice',
                       CASE g.number WHEN 1 THEN format('signal "%s" has been there for %s, and no task waits for it', g.id, taskq._age(n.at - g.since))
                            ELSE format('%s signals have been there for more than a day, and no task waits for them: "%s" for one', g.number, g.id) END,
                       'See that its id is that which a task waits for (taskq.waits); taskq.delete_tasks removes what is not wanted.',
                       'signal', g.id, g.since
                  FROM now AS n
                 CROSS JOIN LATERAL (
                       SELECT count(*) AS number, min(x.since) AS since, (array_agg(x.id ORDER BY x.since DESC))[1] AS id
                         FROM (SELECT t.id, t.inserted_at AS since
                                 FROM ((SELECT s.task_no FROM (SELECT s.task_no, s.cause FROM taskq.settled AS s
                                                               WHERE s.settled_at < n.at - interval '1 day'
                                                               ORDER BY s.settled_at DESC LIMIT 10000) AS s
                                         WHERE s.cause = 'g')
                                       UNION ALL
                                       (SELECT b.task_no FROM (SELECT b.task_no, b.spare FROM taskq.blocked AS b
                                                               ORDER BY b.task_no LIMIT 10000) AS b
                                         WHERE b.spare < 0)) AS s
                                CROSS JOIN LATERAL (SELECT t.id, t.inserted_at FROM taskq.task AS t WHERE t.task_no = s.task_no OFFSET 0) AS t
                                WHERE t.inserted_at < n.at - interval '1 day'
                                  AND NOT EXISTS (SELECT FROM taskq.dependency AS d WHERE d.after_no = s.task_no OFFSET 0)) AS x) AS g
                 WHERE g.number > 0
                UNION ALL
                -- Their numbers would be other roles' after a restore; so they are not dumped (sql/grants.sql).
                SELECT 'notice', format('%s rows of narrowed rights are of roles that do not exist any more', p.number),
                       'The next grant or revocation of a part with actions removes them.', 'rights', NULL, NULL
                  FROM (SELECT count(*) AS number FROM taskq.part_action AS p
                         WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = p.role::oid)) AS p
                 WHERE p.number > 0
                UNION ALL
                SELECT 'warning', format('the server''s clock was put back by %s', taskq._age(e.mark_at - n.wall)),
                       'Mend the clock; if taskq.check() tells of wrong tallies after that, SELECT taskq.recount().', 'clock', NULL, NULL
                  FROM taskq.seal AS e CROSS JOIN now AS n WHERE e.mark_at > n.wall + interval '1 second'
                UNION ALL
                SELECT 'notice', format('this session has set the queue''s clock to %s', n.at), 'RESET taskq.now, unless this is a test.',
                       'clock', NULL, NULL
                  FROM now AS n WHERE abs(EXTRACT(epoch FROM n.at - n.wall)) > 60) AS x
         ORDER BY CASE x.severity WHEN 'critical' THEN 1 WHEN 'warning' THEN 2 ELSE 3 END, x.since, x.kind, x.subject;
    END;
COMMENT ON FUNCTION taskq.health IS 'what is wrong, a problem a row, the worst first, with what to do; no row: none is found';

CREATE FUNCTION taskq.page(graph_of text = NULL, title text = NULL, refresh interval = NULL)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 100000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_page_wrapper';
COMMENT ON FUNCTION taskq.page IS
    'the queue at a glance as one HTML page, which a browser may load anew, with the graph of a task or group if one is named';

-- For \watch, in 100 columns; what is stuck comes first, what was stopped on purpose last. Long names are cut in the middle:
-- many begin alike.
CREATE VIEW taskq.top AS
SELECT CASE WHEN length(x.action) > 16 THEN left(x.action, 8) || chr(8230) || right(x.action, 7) ELSE x.action END AS action,
       rpad(repeat(chr(9608), CASE WHEN x.ready = 0 THEN 0 ELSE GREATEST(1, round(4 * ln(1 + x.ready) / NULLIF(ln(1 + max(x.ready) OVER ()), 0)))::integer END), 4)
           || lpad(taskq._roughly(x.ready, NOT 'ready' = ANY (x.estimates), false), 5) AS ready,
       lpad(taskq._roughly(x.busy, NOT 'in-progress' = ANY (x.estimates), true), 4) AS busy,
       lpad(taskq._roughly(x.blocked, NOT 'blocked' = ANY (x.estimates), false), 7) AS blocked,
       lpad(taskq._roughly(x.scheduled, NOT 'scheduled' = ANY (x.estimates), false), 5) AS later,
       lpad(COALESCE(x.stopped, taskq._age(taskq.clock() - x.oldest), ''), 6) AS oldest,
       lpad(taskq._short(x.came) || '/' || taskq._short(x.ended), 9) AS in_out,
       lpad(COALESCE(taskq._age(x.waiting[1] * interval '1 second') || '/' || taskq._age(x.waiting[2] * interval '1 second'), ''), 9) AS wait,
       lpad(COALESCE(taskq._age(x.running[1] * interval '1 second') || '/' || taskq._age(x.running[2] * interval '1 second'), ''), 9) AS run
  FROM (SELECT a.name AS action,
               COALESCE(sum(y.number) FILTER (WHERE y.state = 'ready'), 0)::double precision AS ready,
               COALESCE(sum(y.number) FILTER (WHERE y.state = 'in-progress'), 0)::double precision AS busy,
               COALESCE(sum(y.number) FILTER (WHERE y.state = 'blocked'), 0)::double precision AS blocked,
               COALESCE(sum(y.number) FILTER (WHERE y.state = 'scheduled'), 0)::double precision AS scheduled,
               min((SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = y.first)) FILTER (WHERE y.state = 'ready') AS oldest,
               COALESCE(array_agg(y.state) FILTER (WHERE NOT y.exact), '{}')
               -- Of these an action of which the sample has none may have some.
               || CASE WHEN taskq._pages('taskq.blocked') > taskq._counted_pages() / 3 THEN '{blocked}'::text[] END AS estimates,
               COALESCE(sum(y.came), 0) AS came,
               COALESCE(sum(y.ended), 0) AS ended,
               min(y.waiting) AS waiting,
               min(y.running) AS running,
               (SELECT CASE WHEN s.paused THEN 'paused' WHEN s.max_concurrency = 0 THEN 'closed' END
                  FROM taskq.action_setting AS s WHERE s.name = a.name) AS stopped
          FROM (SELECT l.action_no, l.state, l.number, l.first, l.exact, NULL::double precision AS came, NULL::double precision AS ended,
                       NULL::double precision[] AS waiting, NULL::double precision[] AS running
                  FROM taskq._about() AS l
                UNION ALL
                SELECT p.action_no, NULL, NULL, NULL, NULL, p.came, p.ended, p.waiting, p.running FROM taskq._pace() AS p) AS y
         CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = y.action_no OFFSET 0) AS a
         GROUP BY a.name) AS x
 ORDER BY x.stopped IS NULL AND x.ready > 0 AND x.busy = 0 AND x.ended = 0 DESC, x.stopped IS NOT NULL, x.oldest NULLS LAST, x.action;
COMMENT ON VIEW taskq.top IS
    'per action in a terminal of 100 columns: ready, in progress, blocked and scheduled tasks, the oldest ready one (or that no worker gets any), tasks that come and end in a minute, waiting and running (median/99th percentile); what is stuck first; ~: an estimate';
