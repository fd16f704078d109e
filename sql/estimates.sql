-- taskq: about how many tasks there are that have not settled, for views that are read often. A table of up to so many
-- pages is counted (taskq._live). A larger one is not: that would take seconds where there are ten million. There
--
-- * an action with few tasks in `run` or `scheduled` is counted, by index, as long as all that is counted so is not too much:
--   so it is not wrong beside a huge one;
-- * what is in progress is counted up to ten thousand from its leases, and from the front of the queue where it has no
--   deadline;
-- * the rest is estimated from a sample of pages, evenly spread, so that it matters little how actions lie in the table, and what
--   is gone from it.
--
-- Each number says whether it is exact. taskq.count_tasks counts, however long that takes.

-- Up to how many pages `run` is counted: some 180,000 tasks; `scheduled`, `parked` and `blocked`, up to a third of these pages each.
CREATE FUNCTION taskq._counted_pages()
    RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 6000;
COMMENT ON FUNCTION taskq._counted_pages IS 'internal: up to how many pages views that are read often count a table';

-- How many pages a sample of `run` has; one of `scheduled`, `parked` or `blocked` has a third.
CREATE FUNCTION taskq._sampled_pages()
    RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN LEAST(1500, taskq._counted_pages());
COMMENT ON FUNCTION taskq._sampled_pages IS 'internal: how many pages a sample of `run` has';

CREATE FUNCTION taskq._pages(relation regclass)
    RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL SAFE STRICT
    SET search_path = pg_catalog, pg_temp
    RETURN pg_relation_size(relation) / current_setting('block_size')::integer;
COMMENT ON FUNCTION taskq._pages IS 'internal: how many pages a table has';

-- The pages of a sample: one at a place of its own, always the same, in each of so many equal parts. Evenly spread, a sample
-- knows the size of what lies together to a part, and at places that differ it hardly falls into step with anything. Of ten
-- thousand parts at most.
CREATE FUNCTION taskq._sample(pages bigint, number integer)
    RETURNS TABLE (first tid, behind tid)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT ROWS 1000
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT ('(' || x.page || ',0)')::tid, ('(' || x.page + 1 || ',0)')::tid
          FROM (SELECT floor(pages * (i.i + (hashint4(i.i) & 1023) / 1024.0) / LEAST(number, 10000))::bigint AS page
                  FROM generate_series(0, LEAST(number, 10000) - 1) AS i(i)) AS x;
    END;
COMMENT ON FUNCTION taskq._sample IS 'internal: the pages, of so many, that are looked into to estimate the rest';

-- The front of an action's queue, lanes aside: priority by priority what is in progress in it and what is not, until a
-- hundred of the latter stand one behind the other; 10,000 tasks of a hundred priorities at most. A claim takes the first
-- that is to be had, so that what stands behind a hundred others is hardly ever in progress. `whole`: the front was
-- walked to its end.
CREATE FUNCTION taskq._front(of integer)
    RETURNS TABLE (task_no bigint, in_progress boolean, deadline timestamptz, actor_id text, whole boolean)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
DECLARE
    most CONSTANT integer := 10000;
    seen integer := 0;
    waiting integer;
    at integer;
    x record;
BEGIN
    whole := true;
    SELECT r.priority INTO at FROM taskq.run AS r
     WHERE r.action_no = of AND r.lane = 0 ORDER BY r.priority DESC LIMIT 1;
    FOR i IN 1..100 LOOP
        EXIT WHEN NOT FOUND OR seen >= most;
        waiting := 0;
        FOR x IN SELECT r.task_no, r.nonce <> 0 AS in_progress, r.deadline, r.actor_id
                   FROM taskq.run AS r WHERE r.action_no = of AND r.lane = 0 AND r.priority = at ORDER BY r.position
        LOOP
            task_no := x.task_no;
            in_progress := x.in_progress;
            deadline := x.deadline;
            actor_id := x.actor_id;
            seen := seen + 1;
            waiting := CASE WHEN in_progress THEN 0 ELSE waiting + 1 END;
            -- Behind the hundredth priority may be more.
            whole := seen < most AND i < 100;
            RETURN NEXT;
            EXIT WHEN waiting >= 100 OR seen >= most;
        END LOOP;
        SELECT r.priority INTO at FROM taskq.run AS r
         WHERE r.action_no = of AND r.lane = 0 AND r.priority < at ORDER BY r.priority DESC LIMIT 1;
    END LOOP;
END
$$;
COMMENT ON FUNCTION taskq._front IS 'internal: what is in progress at the front of the queue of an action, and what comes next';

-- What leases name as in progress: of those with the first deadlines, up to ten thousand names. `whole`: there are no more.
CREATE FUNCTION taskq._leased()
    RETURNS TABLE (task_no bigint, action_no integer, deadline timestamptz, actor_id text, whole boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on SET enable_hashagg = on
    BEGIN ATOMIC
        WITH named AS MATERIALIZED (
                SELECT u.task_no, l.base
                  FROM (SELECT l.base, l.keeper_no || l.others AS task_nos FROM taskq.lease AS l
                         ORDER BY l.deadline LIMIT 10001) AS l
                 CROSS JOIN LATERAL unnest(l.task_nos) AS u(task_no) LIMIT 10001)
        -- An extension has a lease of its own: a task may be named twice.
        SELECT DISTINCT r.task_no, r.action_no, r.deadline, r.actor_id, (SELECT count(*) <= 10000 FROM named)
          FROM named AS n
         CROSS JOIN LATERAL (SELECT r.task_no, r.action_no, r.deadline, r.actor_id FROM taskq.run AS r
                              WHERE r.task_no = n.task_no AND r.nonce = n.base # n.task_no AND NOT r.grantable
                                AND r.deadline < 'infinity' OFFSET 0) AS r;
    END;
COMMENT ON FUNCTION taskq._leased IS 'internal: what leases name as in progress, some ten thousand tasks at most';

-- Of `run`, with so many pages.
CREATE FUNCTION taskq._about_run(pages bigint)
    RETURNS TABLE (action_no integer, state text, number bigint, first bigint, overdue bigint, exact boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on SET enable_memoize = off
    SET enable_hashagg = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (
                SELECT taskq.clock() AS at, EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()) AS held_back),
             -- In progress in three ways: with a deadline, without one, and still under a token whose deadline has passed, at
             -- the end of the queue.
             sample AS MATERIALIZED (
                SELECT s.action_no, sum(s.ready) * pages / taskq._sampled_pages() AS ready,
                       sum(s.leased) * pages / taskq._sampled_pages() AS leased,
                       sum(s.endless) * pages / taskq._sampled_pages() AS endless,
                       sum(s.lapsed) * pages / taskq._sampled_pages() AS lapsed,
                       sum(s.overdue) * pages / taskq._sampled_pages() AS overdue
                  FROM taskq._sample(pages, taskq._sampled_pages()) AS p
                 CROSS JOIN LATERAL (
                       SELECT r.action_no, count(*) FILTER (WHERE r.nonce = 0) AS ready,
                              count(*) FILTER (WHERE r.nonce <> 0 AND NOT r.grantable AND r.deadline < 'infinity') AS leased,
                              count(*) FILTER (WHERE r.nonce <> 0 AND r.deadline = 'infinity') AS endless,
                              count(*) FILTER (WHERE r.nonce <> 0 AND r.grantable AND r.deadline < 'infinity') AS lapsed,
                              count(*) FILTER (WHERE r.nonce <> 0 AND NOT r.grantable AND r.deadline <= (SELECT n.at FROM now AS n)) AS overdue
                         FROM taskq.run AS r WHERE r.ctid >= p.first AND r.ctid < p.behind
                        GROUP BY r.action_no OFFSET 0) AS s
                 GROUP BY s.action_no),
             -- The part of what is ready that a workgroup holds back, from a tenth of the sample.
             back AS MATERIALIZED (
                SELECT r.action_no, count(*) FILTER (WHERE r.held_back)::double precision / count(*) AS part
                  FROM (SELECT p.first, p.behind FROM taskq._sample(pages, taskq._sampled_pages()) WITH ORDINALITY AS p(first, behind, i)
                         WHERE p.i % 10 = 5 AND (SELECT n.held_back FROM now AS n)) AS p
                 CROSS JOIN LATERAL (
                       SELECT r.action_no,
                              r.gated AND EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                WHERE t.task_no = r.task_no OFFSET 0) AS t
                                                    JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                   WHERE w.not_before > (SELECT n.at FROM now AS n)) AS held_back
                         FROM taskq.run AS r WHERE r.ctid >= p.first AND r.ctid < p.behind AND r.nonce = 0 OFFSET 0) AS r
                 GROUP BY r.action_no),
             -- Those that may have few tasks here, fewest first, as long as it is not too much to count them.
             few AS MATERIALIZED (
                SELECT x.action_no
                  FROM (SELECT a.action_no, e.about, sum(20 + LEAST(e.about, 10001)) OVER (ORDER BY e.about, a.action_no) AS cost
                          FROM taskq.action AS a
                          LEFT JOIN sample AS s ON s.action_no = a.action_no
                         CROSS JOIN LATERAL (SELECT COALESCE(s.ready + s.leased + s.endless + s.lapsed, 0) AS about) AS e) AS x
                 -- A few that lie together may be on a page of the sample, which then stands for very many.
                 WHERE x.about <= 8000 + 100 * pages / taskq._sampled_pages() AND x.cost <= 40000),
             counted AS MATERIALIZED (
                SELECT f.action_no, c.number, c.ready, c.back, c.in_progress, c.overdue, c.first, c.first_back
                  FROM few AS f
                 CROSS JOIN LATERAL (
                       SELECT count(*) AS number,
                              count(*) FILTER (WHERE x.nonce = 0 AND NOT x.held_back) AS ready,
                              count(*) FILTER (WHERE x.nonce = 0 AND x.held_back) AS back,
                              count(*) FILTER (WHERE x.nonce <> 0) AS in_progress,
                              count(*) FILTER (WHERE x.nonce <> 0 AND x.deadline <= (SELECT n.at FROM now AS n)) AS overdue,
                              min(x.task_no) FILTER (WHERE x.nonce = 0 AND NOT x.held_back) AS first,
                              min(x.task_no) FILTER (WHERE x.nonce = 0 AND x.held_back) AS first_back
                         FROM (SELECT r.task_no, r.nonce, r.deadline,
                                      r.nonce = 0 AND r.gated AND (SELECT n.held_back FROM now AS n)
                                      AND EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                WHERE t.task_no = r.task_no OFFSET 0) AS t
                                                    JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                   WHERE w.not_before > (SELECT n.at FROM now AS n)) AS held_back
                                 FROM ((SELECT r.task_no, r.nonce, r.deadline, r.gated FROM taskq.run AS r
                                         WHERE r.action_no = f.action_no AND r.lane = 0
                                         ORDER BY r.priority DESC, r.position LIMIT 10001)
                                       UNION ALL
                                       (SELECT r.task_no, r.nonce, r.deadline, r.gated FROM taskq.run AS r
                                         WHERE r.action_no = f.action_no AND r.lane <> 0
                                         ORDER BY r.priority DESC, r.lane, r.position LIMIT 10001)) AS r) AS x
                       OFFSET 0) AS c),
             -- The others.
             many AS MATERIALIZED (
                SELECT s.action_no, s.ready, s.leased, s.endless, s.lapsed, s.overdue, COALESCE(b.part, 0) AS back,
                       COALESCE(c.number, 0) AS least,
                       rank() OVER (ORDER BY s.ready + s.leased + s.endless + s.lapsed DESC, s.action_no) AS place
                  FROM sample AS s
                  LEFT JOIN counted AS c ON c.action_no = s.action_no
                  LEFT JOIN back AS b ON b.action_no = s.action_no
                 WHERE c.number IS NULL OR c.number > 10000),
             leased AS MATERIALIZED (SELECT l.action_no, l.deadline, l.whole FROM taskq._leased() AS l),
             leases AS MATERIALIZED (
                SELECT l.action_no, count(*) AS number, count(*) FILTER (WHERE l.deadline <= (SELECT n.at FROM now AS n)) AS overdue
                  FROM leased AS l GROUP BY l.action_no),
             front AS MATERIALIZED (
                SELECT m.action_no, f.endless, f.first, f.whole
                  FROM many AS m
                 CROSS JOIN LATERAL (
                       SELECT count(*) FILTER (WHERE f.in_progress AND f.deadline = 'infinity') AS endless,
                              min(f.task_no) FILTER (WHERE NOT f.in_progress) AS first, COALESCE(bool_and(f.whole), true) AS whole
                         FROM taskq._front(m.action_no) AS f OFFSET 0) AS f
                 WHERE m.place <= 20),
             -- And in lanes.
             lanes AS MATERIALIZED (
                SELECT m.action_no, l.first
                  FROM many AS m
                 CROSS JOIN LATERAL (
                       SELECT min(l.task_no) AS first
                         FROM (SELECT r.task_no FROM taskq.run AS r WHERE r.action_no = m.action_no AND r.lane <> 0 AND r.nonce = 0
                                ORDER BY r.priority DESC, r.lane, r.position LIMIT 100) AS l OFFSET 0) AS l
                 WHERE m.place <= 200),
             -- What was inserted first, of the first 2,000.
             oldest AS MATERIALIZED (
                SELECT o.action_no, min(o.task_no) AS first
                  FROM (SELECT r.action_no, r.task_no, r.nonce FROM taskq.run AS r ORDER BY r.task_no LIMIT 2000) AS o
                 WHERE o.nonce = 0 GROUP BY o.action_no),
             about AS MATERIALIZED (
                SELECT m.action_no, m.back, LEAST(o.first, f.first, l.first) AS first,
                       -- Of many that are in progress the sample knows more than what has been seen.
                       CASE WHEN x.whole THEN COALESCE(e.number, 0) ELSE GREATEST(m.leased, e.number, 0) END
                       + CASE WHEN f.whole AND m.endless <= 2 * f.endless + 10000 THEN f.endless ELSE GREATEST(m.endless, f.endless, 0) END
                       + m.lapsed AS in_progress,
                       CASE WHEN x.whole OR x.latest > (SELECT n.at FROM now AS n) THEN COALESCE(e.overdue, 0)
                            ELSE GREATEST(m.overdue, e.overdue, 0) END + m.lapsed AS overdue,
                       x.whole AND f.whole AND m.lapsed = 0 AND m.endless <= 2 * f.endless + 10000 AS exact,
                       GREATEST(m.ready, m.least - m.leased - m.endless - m.lapsed, 0) AS ready
                  FROM many AS m
                  LEFT JOIN leases AS e ON e.action_no = m.action_no
                  LEFT JOIN front AS f ON f.action_no = m.action_no
                  LEFT JOIN lanes AS l ON l.action_no = m.action_no
                  LEFT JOIN oldest AS o ON o.action_no = m.action_no
                 CROSS JOIN (SELECT COALESCE(bool_and(l.whole), true) AS whole, max(l.deadline) AS latest FROM leased AS l) AS x)
        SELECT c.action_no, x.state, x.number, x.first, x.overdue, true
          FROM counted AS c
         CROSS JOIN LATERAL (VALUES ('ready', c.ready, c.first, 0::bigint), ('scheduled', c.back, c.first_back, 0),
                                    ('in-progress', c.in_progress, NULL, c.overdue)) AS x(state, number, first, overdue)
         WHERE c.number <= 10000 AND x.number > 0
        UNION ALL
        SELECT a.action_no, x.state, x.number::bigint, x.first, x.overdue::bigint, x.exact
          FROM about AS a
         CROSS JOIN LATERAL (VALUES ('ready', round(a.ready * (1 - a.back)), a.first, 0::numeric, false),
                                    ('scheduled', round(a.ready * a.back), NULL, 0, false),
                                    ('in-progress', round(a.in_progress), NULL, round(a.overdue), COALESCE(a.exact, false)))
                    AS x(state, number, first, overdue, exact)
         WHERE x.number > 0;
    END;
COMMENT ON FUNCTION taskq._about_run IS 'internal: about how many tasks are ready and in progress';

-- Of the others, of which the sample is all that is known: `blocked` and `parked` have no index by action.
CREATE FUNCTION taskq._about_blocked(pages bigint)
    RETURNS TABLE (action_no integer, number bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_memoize = off
    SET enable_hashagg = on
    BEGIN ATOMIC
        SELECT s.action_no, round(sum(s.number) * pages / (taskq._sampled_pages() / 3))::bigint
          FROM taskq._sample(pages, taskq._sampled_pages() / 3) AS p
         CROSS JOIN LATERAL (SELECT b.action_no, count(*) AS number FROM taskq.blocked AS b
                              WHERE b.ctid >= p.first AND b.ctid < p.behind GROUP BY b.action_no OFFSET 0) AS s
         GROUP BY s.action_no;
    END;
COMMENT ON FUNCTION taskq._about_blocked IS 'internal: about how many tasks are blocked';

CREATE FUNCTION taskq._about_parked(pages bigint)
    RETURNS TABLE (action_no integer, held_back boolean, number bigint, first bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_memoize = off SET enable_hashagg = on SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (
                SELECT taskq.clock() AS at, EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()) AS held_back),
             sample AS MATERIALIZED (
                SELECT s.action_no, sum(s.number) * pages / (taskq._sampled_pages() / 3) AS number, min(s.first) AS first
                  FROM taskq._sample(pages, taskq._sampled_pages() / 3) AS p
                 CROSS JOIN LATERAL (SELECT k.action_no, count(*) AS number, min(k.task_no) AS first FROM taskq.parked AS k
                                      WHERE k.ctid >= p.first AND k.ctid < p.behind GROUP BY k.action_no OFFSET 0) AS s
                 GROUP BY s.action_no),
             back AS MATERIALIZED (
                SELECT k.action_no, avg(k.held_back) AS part
                  FROM (SELECT p.first, p.behind FROM taskq._sample(pages, taskq._sampled_pages() / 3) WITH ORDINALITY AS p(first, behind, i)
                         WHERE p.i % 50 = 25 AND (SELECT n.held_back FROM now AS n)) AS p
                 CROSS JOIN LATERAL (
                       SELECT k.action_no,
                              CASE WHEN EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                              WHERE t.task_no = k.task_no OFFSET 0) AS t
                                                  JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                 WHERE w.not_before > (SELECT n.at FROM now AS n)) THEN 1 ELSE 0 END AS held_back
                         FROM taskq.parked AS k WHERE k.ctid >= p.first AND k.ctid < p.behind OFFSET 0) AS k
                 GROUP BY k.action_no)
        SELECT s.action_no, x.held_back, round(s.number * x.part)::bigint, s.first
          FROM sample AS s
          LEFT JOIN back AS b ON b.action_no = s.action_no
         CROSS JOIN LATERAL (VALUES (true, COALESCE(b.part, 0)), (false, 1 - COALESCE(b.part, 0))) AS x(held_back, part)
         WHERE x.part > 0;
    END;
COMMENT ON FUNCTION taskq._about_parked IS 'internal: about how many tasks are parked';

-- `scheduled` has an index by action and time: an action with few tasks in it is counted, and so is what is due, if it is few. Before
-- they are due, tasks that a workgroup holds back as well have the same state. Of tasks that are due, and counted, the workgroup
-- is looked up; they are few as long as workers claim.
CREATE FUNCTION taskq._about_scheduled(pages bigint)
    RETURNS TABLE (action_no integer, due boolean, number bigint, first bigint, exact boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_memoize = off SET enable_hashagg = on SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (
                SELECT taskq.clock() AS at, EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()) AS held_back),
             sample AS MATERIALIZED (
                SELECT s.action_no, sum(s.later) * pages / (taskq._sampled_pages() / 3) AS later,
                       sum(s.due) * pages / (taskq._sampled_pages() / 3) AS due
                  FROM taskq._sample(pages, taskq._sampled_pages() / 3) AS p
                 CROSS JOIN LATERAL (
                       SELECT d.action_no, count(*) FILTER (WHERE d.due > (SELECT n.at FROM now AS n)) AS later,
                              count(*) FILTER (WHERE d.due <= (SELECT n.at FROM now AS n)) AS due
                         FROM taskq.scheduled AS d
                        WHERE d.ctid >= p.first AND d.ctid < p.behind GROUP BY d.action_no OFFSET 0) AS s
                 GROUP BY s.action_no),
             -- Both kinds apart, fewest first, as long as it is not too much to count them.
             kinds AS MATERIALIZED (
                SELECT x.action_no, x.due, x.about, sum(20 + LEAST(x.about, 10001)) OVER (ORDER BY x.about, x.due DESC, x.action_no) AS cost
                  FROM (SELECT a.action_no, k.due, COALESCE(k.about, 0) AS about
                          FROM taskq.action AS a
                          LEFT JOIN sample AS s ON s.action_no = a.action_no
                         CROSS JOIN LATERAL (VALUES (true, s.due), (false, s.later)) AS k(due, about)) AS x),
             counted AS MATERIALIZED (
                SELECT k.action_no, k.due, c.number, c.back, c.first
                  FROM kinds AS k
                 CROSS JOIN LATERAL (
                       SELECT count(*) AS number, count(*) FILTER (WHERE x.held_back) AS back, min(x.task_no) AS first
                         FROM (SELECT d.task_no,
                                      k.due AND (SELECT n.held_back FROM now AS n)
                                      AND EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                WHERE t.task_no = d.task_no OFFSET 0) AS t
                                                    JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                   WHERE w.not_before > (SELECT n.at FROM now AS n)) AS held_back
                                 FROM ((SELECT d.task_no FROM taskq.scheduled AS d
                                         WHERE k.due AND d.action_no = k.action_no AND d.due <= (SELECT n.at FROM now AS n)
                                         ORDER BY d.action_no, d.due LIMIT 10001)
                                       UNION ALL
                                       (SELECT d.task_no FROM taskq.scheduled AS d
                                         WHERE NOT k.due AND d.action_no = k.action_no AND d.due > (SELECT n.at FROM now AS n)
                                         ORDER BY d.action_no, d.due LIMIT 10001)) AS d) AS x OFFSET 0) AS c
                 WHERE k.about <= 8000 + 400 * pages / (taskq._sampled_pages() / 3) AND k.cost <= 40000)
        SELECT k.action_no, x.due, x.number::bigint, c.first, COALESCE(c.number <= 10000, false)
          FROM kinds AS k
          LEFT JOIN counted AS c ON c.action_no = k.action_no AND c.due = k.due
         CROSS JOIN LATERAL (VALUES (k.due, CASE WHEN c.number <= 10000 THEN c.number - c.back ELSE GREATEST(round(k.about), c.number) END),
                                    (false, CASE WHEN c.number <= 10000 THEN c.back ELSE 0 END)) AS x(due, number)
         WHERE x.number > 0;
    END;
COMMENT ON FUNCTION taskq._about_scheduled IS 'internal: about how many tasks wait for their time';

-- As taskq._live, except that `exact` says whether a number is; actions and states may be there several times.
CREATE FUNCTION taskq._about()
    RETURNS TABLE (action_no integer, state text, number bigint, first bigint, overdue bigint, exact boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH pages AS MATERIALIZED (
                SELECT x.run, x.scheduled, x.parked, x.blocked,
                       -- Any action may have tasks in there that the sample has not.
                       x.parked <= taskq._counted_pages() / 3 AS counted
                  FROM (SELECT taskq._pages('taskq.run') AS run, taskq._pages('taskq.scheduled') AS scheduled,
                               taskq._pages('taskq.parked') AS parked, taskq._pages('taskq.blocked') AS blocked) AS x)
        SELECT l.action_no, l.state, l.number, l.first, l.overdue, p.counted OR l.state IN ('in-progress', 'blocked')
          FROM pages AS p
         CROSS JOIN LATERAL taskq._live(p.run <= taskq._counted_pages(), p.scheduled <= taskq._counted_pages() / 3,
                                        p.parked <= taskq._counted_pages() / 3, p.blocked <= taskq._counted_pages() / 3) AS l
        UNION ALL
        SELECT r.action_no, r.state, r.number, r.first, r.overdue, r.exact AND (p.counted OR r.state = 'in-progress')
          FROM pages AS p CROSS JOIN LATERAL taskq._about_run(p.run) AS r WHERE p.run > taskq._counted_pages()
        UNION ALL
        SELECT d.action_no, CASE WHEN d.due THEN 'ready' ELSE 'scheduled' END, d.number, d.first, 0, d.exact AND p.counted
          FROM pages AS p CROSS JOIN LATERAL taskq._about_scheduled(p.scheduled) AS d WHERE p.scheduled > taskq._counted_pages() / 3
        UNION ALL
        SELECT k.action_no, CASE WHEN k.held_back THEN 'scheduled' ELSE 'ready' END, k.number, k.first, 0, false
          FROM pages AS p CROSS JOIN LATERAL taskq._about_parked(p.parked) AS k WHERE p.parked > taskq._counted_pages() / 3
        UNION ALL
        SELECT b.action_no, 'blocked', b.number, NULL, 0, false
          FROM pages AS p CROSS JOIN LATERAL taskq._about_blocked(p.blocked) AS b WHERE p.blocked > taskq._counted_pages() / 3;
    END;
COMMENT ON FUNCTION taskq._about IS 'internal: about how many tasks have not settled, by number of the action and state';

-- How many actors hold tasks. Of many tasks: those that leases name, and that are seen at the fronts of 50 actions.
CREATE FUNCTION taskq._actors()
    RETURNS bigint
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = on SET enable_nestloop = on SET enable_hashagg = on
    BEGIN ATOMIC
        WITH counted AS MATERIALIZED (SELECT taskq._pages('taskq.run') <= taskq._counted_pages() AS whole)
        SELECT count(DISTINCT x.actor_id)
          FROM (SELECT r.actor_id FROM taskq.run AS r WHERE r.nonce <> 0 AND (SELECT c.whole FROM counted AS c)
                UNION ALL
                SELECT l.actor_id FROM counted AS c CROSS JOIN LATERAL taskq._leased() AS l WHERE NOT c.whole
                UNION ALL
                SELECT f.actor_id
                  FROM counted AS c
                 CROSS JOIN (SELECT a.action_no FROM taskq.action AS a ORDER BY a.action_no DESC LIMIT 50) AS a
                 CROSS JOIN LATERAL taskq._front(a.action_no) AS f
                 WHERE NOT c.whole AND f.in_progress) AS x;
    END;
COMMENT ON FUNCTION taskq._actors IS 'internal: how many actors hold tasks, at least';
