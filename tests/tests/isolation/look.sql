-- What is looked at after each order of steps. Looking is most of the work, and planning most of looking: so in PL/pgSQL,
-- which plans once in a session.

-- The body of taskq.check().
DO $$
BEGIN
    EXECUTE format('CREATE FUNCTION public.sound() RETURNS TABLE (problem text, task_id text, detail text) LANGUAGE plpgsql
                    SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS %L',
                   '#variable_conflict use_column' || E'\nBEGIN RETURN QUERY '
                   || regexp_replace(regexp_replace(pg_get_function_sqlbody('taskq.check'::regproc), '^\s*BEGIN ATOMIC', ''),
                                     '\s*END\s*$', ' END'));
END
$$;

-- By names alone: no numbers, no tokens, and times by the ten minutes. Of settings what a call here can change.
CREATE FUNCTION public.look(prefix text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT line COLLATE "C" FROM (
        SELECT 'task ' || (to_jsonb(t) - ARRAY['inserted_at', 'owned_at', 'settled_at', 'action_deadline', 'not_before', 'body_json']
                           || jsonb_build_object('lease', round(extract(epoch FROM t.action_deadline - now()) / 600),
                                                 'due', round(extract(epoch FROM t.not_before - now()) / 600),
                                                 'owned', t.owned_at IS NOT NULL, 'ended', t.settled_at IS NOT NULL))::text
          FROM taskq.tasks AS t
        UNION ALL
        SELECT 'dependency ' || to_jsonb(d)::text FROM taskq.dependencies AS d
        UNION ALL
        SELECT 'attempt ' || (to_jsonb(a) - ARRAY['started_at', 'ended_at'])::text FROM taskq.attempts AS a
        UNION ALL
        SELECT 'key ' || (to_jsonb(k) - 'held_until')::text FROM taskq.unique_keys AS k
        UNION ALL
        SELECT 'group ' || (to_jsonb(g) - ARRAY['first_inserted_at', 'last_settled_at', 'estimated_end'])::text
          FROM taskq.groups AS g WHERE starts_with(g.group_id, prefix)
        UNION ALL
        SELECT 'action ' || (to_jsonb(a) - 'slots_held')::text
          FROM taskq.actions AS a WHERE starts_with(a.action, prefix) AND (a.max_concurrency, a.paused) IS DISTINCT FROM (NULL, false)
        UNION ALL
        SELECT 'workgroup ' || w.workgroup || ' ' || round(extract(epoch FROM w.not_before - now()) / 600)
          FROM taskq.workgroups AS w WHERE starts_with(w.workgroup, prefix) AND w.held_back
        UNION ALL
        SELECT 'schedule ' || concat_ws(' ', s.name, s.cron, s.task, s.overlap, s.backfill, s.paused, s.problem) FROM taskq.schedules AS s
) AS state (line)
     ORDER BY 1;
END
$$;
