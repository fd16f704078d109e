-- taskq: rights. PUBLIC has none; a role gets a part of the functions and views with one call, and no table.

REVOKE ALL ON ALL ROUTINES IN SCHEMA taskq FROM PUBLIC;

-- What each part may call and read, in one place. The views run with the owner's rights. Of what is about tasks a narrowed part
-- has only what asks for their actions (src/rights.rs): no views, and nothing that reports on all tasks.
CREATE FUNCTION taskq._rights(part text)
    RETURNS TABLE (kind text, name text)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.oid::regprocedure::text
          FROM pg_catalog.pg_proc AS p
         WHERE p.pronamespace = 'taskq'::regnamespace
           AND (p.proname IN ('_is_' OPERATOR(pg_catalog.||) part, 'lost_channel')
                -- Inserting.
                OR (part IN ('inserter', 'producer', 'worker', 'narrowed_inserter', 'narrowed_producer', 'narrowed_worker')
                    AND p.proname IN ('insert_task', 'insert_many', 'insert_tasks', 'insert_tasks_report',
                                      'chain', '_chain', 'parallel', '_parallel', 'chord', 'map'))
                OR (part IN ('producer', 'worker', 'narrowed_producer', 'narrowed_worker') AND p.proname = 'replace_tasks')
                -- Changing what is there.
                OR (part IN ('producer', 'worker', 'operator', 'narrowed_producer', 'narrowed_worker')
                    AND p.proname IN ('update_tasks', 'add_dependencies', 'cancel_tasks', 'delete_tasks', 'complete_task', 'signal', 'signal_tasks',
                                      'retry_tasks', 'rerun_tasks', 'rewind_task', 'pause_group', 'resume_group', 'cancel_group', 'delete_group',
                                      'retry_group', 'reset_group'))
                -- Performing.
                OR (part IN ('worker', 'narrowed_worker')
                    AND p.proname IN ('own_tasks', 'extend_tasks_ownership', 'return_task', 'return_tasks',
                                      'return_and_own_tasks', 'report_status', 'save_step', 'wait_for_work', '_action_channels',
                                      '_look_for_work', '_left_behind'))
                OR (part IN ('worker', 'narrowed_worker', 'operator') AND p.proname = 'stop_waiting')
                -- Waiting for others, and what says nothing of tasks.
                OR (part NOT IN ('inserter', 'narrowed_inserter')
                    AND p.proname IN ('clock', 'next_times', 'shard', 'shard_of', 'task_channel', 'action_channel', 'wait_for_task', 'wait_for_tasks', 'endings',
                                      '_task_channels', '_num_settled'))
                -- Looking.
                OR (part IN ('producer', 'worker', 'operator', 'monitor')
                    AND p.proname IN ('_body_json', '_same', '_many', '_about', '_pages', '_counted_pages', '_percentiles', '_ended', '_pace', '_age', '_short', '_roughly', '_status_code', '_cause', '_origin', 'count_tasks', 'find_tasks', 'series', 'failures', 'why', 'graph', 'ancestors', 'descendants',
                                      'dependency_results'))
                OR (part IN ('operator', 'monitor') AND p.proname IN ('check', 'metrics', 'metrics_rows', 'health', 'page'))
                -- Administering.
                OR (part IN ('worker', 'operator') AND p.proname = 'maintain')
                OR (part = 'operator'
                    AND p.proname IN ('recount', 'set_action', 'set_group', 'pause_action', 'resume_action', 'forget_action',
                                      'delay_workgroup', 'release_tasks', 'schedule', 'unschedule', 'pause_schedule', 'resume_schedule',
                                      'run_schedule', 'set_shard')))
        UNION ALL
        SELECT 'TABLE', c.oid::regclass::text
          FROM pg_catalog.pg_class AS c
         WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'v'
           AND part IN ('producer', 'worker', 'operator', 'monitor');
    END;
COMMENT ON FUNCTION taskq._rights IS 'internal: the functions and views that a part of the users may use';

-- Which parts a role has: those whose marker it may call. Rights are dumped with the extension, so this
-- survives a restore.
CREATE FUNCTION taskq._is_inserter() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_inserter IS 'internal: a role that may call it has the part of an inserter';
CREATE FUNCTION taskq._is_producer() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_producer IS 'internal: a role that may call it has the part of a producer';
CREATE FUNCTION taskq._is_worker() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_worker IS 'internal: a role that may call it has the part of a worker';
CREATE FUNCTION taskq._is_operator() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_operator IS 'internal: a role that may call it has the part of an operator';
CREATE FUNCTION taskq._is_monitor() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_monitor IS 'internal: a role that may call it has the part of a monitor';
CREATE FUNCTION taskq._is_narrowed_inserter() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_narrowed_inserter IS
    'internal: a role that may call it has the part of an inserter for some actions';
CREATE FUNCTION taskq._is_narrowed_producer() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_narrowed_producer IS
    'internal: a role that may call it has the part of a producer for some actions';
CREATE FUNCTION taskq._is_narrowed_worker() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_narrowed_worker IS
    'internal: a role that may call it has the part of a worker for some actions';

CREATE FUNCTION taskq._has_part(part text, role regrole)
    RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT EXISTS (SELECT FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS x
                        WHERE p.pronamespace = 'taskq'::regnamespace AND p.proname = '_is_' || part
                          AND x.grantee = role::oid);
    END;
COMMENT ON FUNCTION taskq._has_part IS 'internal: whether a role was given a part';

CREATE FUNCTION taskq._grant(part text, role regrole, give boolean)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r record;
    other text;
BEGIN
    IF give THEN
        EXECUTE format('GRANT USAGE ON SCHEMA taskq TO %s', role);
    END IF;
    FOR r IN SELECT x.kind, x.name FROM taskq._rights(part) AS x LOOP
        EXECUTE format(CASE WHEN give THEN 'GRANT %s ON %s %s TO %s' ELSE 'REVOKE %s ON %s %s FROM %s' END,
                       CASE r.kind WHEN 'TABLE' THEN 'SELECT' ELSE 'EXECUTE' END, r.kind, r.name, role);
    END LOOP;
    IF NOT give THEN
        -- The parts overlap: what the others contain is given back.
        FOREACH other IN ARRAY ARRAY['inserter', 'producer', 'worker', 'operator', 'monitor', 'narrowed_inserter',
                                     'narrowed_producer', 'narrowed_worker'] LOOP
            IF taskq._has_part(other, role) THEN
                PERFORM taskq._grant(other, role, true);
                part := NULL;
            END IF;
        END LOOP;
        IF part IS NOT NULL THEN
            EXECUTE format('REVOKE USAGE ON SCHEMA taskq FROM %s', role);
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION taskq._grant IS 'internal: gives or takes the rights of a part';

CREATE FUNCTION taskq._grant_part(part text, role regrole, actions text[])
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    narrowed text := 'narrowed_' || part;
BEGIN
    IF array_position(actions, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'argument "actions" must not be NULL'
            USING ERRCODE = '22004', DETAIL = 'An element of "actions" is NULL.', HINT = 'Give names of actions.';
    ELSIF cardinality(actions) = 0 OR '' = ANY (actions) THEN
        RAISE EXCEPTION 'argument "actions" is not valid'
            USING ERRCODE = '22023', DETAIL = 'It is empty, or has an empty name in it.',
                  HINT = 'Name the actions, or leave the argument out for all of them.';
    END IF;
    IF EXISTS (SELECT FROM unnest(actions) AS u(action) WHERE octet_length(u.action) > 1000) THEN
        RAISE EXCEPTION 'argument "actions" is not valid'
            USING ERRCODE = '22023', DETAIL = 'A name in it has more than 1,000 bytes.', HINT = 'Give names of 1 to 1,000 bytes.';
    END IF;
    -- One of the two, and the other one not: what is given last holds.
    PERFORM taskq._grant(CASE WHEN actions IS NULL THEN part ELSE narrowed END, role, true);
    IF taskq._has_part(CASE WHEN actions IS NULL THEN narrowed ELSE part END, role) THEN
        PERFORM taskq._grant(CASE WHEN actions IS NULL THEN narrowed ELSE part END, role, false);
    END IF;
    DELETE FROM taskq.part_action AS x
     WHERE (x.part = part AND x.role = role)
        OR NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS o WHERE o.oid = x.role::oid);
    INSERT INTO taskq.part_action SELECT DISTINCT part, role, u.action FROM unnest(actions) AS u(action);
END
$$;
COMMENT ON FUNCTION taskq._grant_part IS 'internal: gives a part, for all actions or for some';

CREATE FUNCTION taskq._revoke_part(part text, role regrole)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
    IF part IN ('inserter', 'producer', 'worker') THEN
        PERFORM taskq._grant('narrowed_' || part, role, false);
        DELETE FROM taskq.part_action AS x
         WHERE (x.part = part AND x.role = role)
            OR NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS o WHERE o.oid = x.role::oid);
    END IF;
    PERFORM taskq._grant(part, role, false);
END
$$;
COMMENT ON FUNCTION taskq._revoke_part IS 'internal: takes a part back';

-- Text, not regrole: that is what drivers send, and what current_user and pg_roles have. A name as it is comes first.
CREATE FUNCTION taskq._role(role text)
    RETURNS regrole
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found regrole := (SELECT x.oid FROM pg_catalog.pg_roles AS x WHERE x.rolname = role);
BEGIN
    IF role IS NULL THEN
        RAISE EXCEPTION 'argument "role" must not be NULL'
            USING ERRCODE = '22004', DETAIL = 'NULL was given for "role".', HINT = 'Give the name of a role.';
    END IF;
    IF found IS NULL THEN
        BEGIN
            found := to_regrole(role);
        EXCEPTION WHEN invalid_name OR syntax_error THEN
            NULL;                                   -- nothing that could be a name
        END;
    END IF;
    -- Some versions take a number or "-" for a regrole.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS x WHERE x.oid = found) THEN
        RAISE EXCEPTION 'role "%" does not exist', left(role, 300)
            USING ERRCODE = '42704', DETAIL = 'A part is given to, and taken from, one role of the cluster.',
                  HINT = 'Give the name of a role; pg_roles shows those there are.';
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION taskq._role IS 'internal: the role with this name, as it is or as SQL has it; refuses what is none';

CREATE FUNCTION taskq.grant_inserter(role text, actions text[] = NULL) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant_part('inserter', taskq._role(role), actions) $$;
COMMENT ON FUNCTION taskq.grant_inserter IS
    'let a role insert tasks, and nothing else; with actions, only tasks of these';

CREATE FUNCTION taskq.revoke_inserter(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('inserter', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_inserter IS 'take back what grant_inserter gave';

CREATE FUNCTION taskq.grant_producer(role text, actions text[] = NULL) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant_part('producer', taskq._role(role), actions) $$;
COMMENT ON FUNCTION taskq.grant_producer IS
    'let a role insert, link, change, cancel, delete and wait for tasks; with actions, only with tasks of these';

CREATE FUNCTION taskq.revoke_producer(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('producer', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_producer IS 'take back what grant_producer gave';

CREATE FUNCTION taskq.grant_worker(role text, actions text[] = NULL) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant_part('worker', taskq._role(role), actions) $$;
COMMENT ON FUNCTION taskq.grant_worker IS
    'let a role perform tasks: own, extend and return them; and all that a producer may; with actions, only with tasks of these';

CREATE FUNCTION taskq.revoke_worker(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('worker', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_worker IS 'take back what grant_worker gave';

CREATE FUNCTION taskq.grant_operator(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('operator', taskq._role(role), true) $$;
COMMENT ON FUNCTION taskq.grant_operator IS
    'let a role administer the queue: settings, groups, workgroups, schedules, upkeep, and tasks that are there';

CREATE FUNCTION taskq.revoke_operator(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('operator', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_operator IS 'take back what grant_operator gave';

CREATE FUNCTION taskq.grant_monitor(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('monitor', taskq._role(role), true) $$;
COMMENT ON FUNCTION taskq.grant_monitor IS
    'let a role look at the views, count, check and wait';

CREATE FUNCTION taskq.revoke_monitor(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('monitor', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_monitor IS 'take back what grant_monitor gave';

-- What ALTER DEFAULT PRIVILEGES has given away of these kinds while this script ran is taken back, as is what PUBLIC has from the
-- start: a role that may read taskq.run can make tokens.
DO $$
DECLARE
    o record;
BEGIN
    FOR o IN
        SELECT DISTINCT x.kind, x.name, x.grantee
          FROM (SELECT 'SCHEMA' AS kind, n.oid::regnamespace::text AS name, n.nspowner AS owner, (a.acl).grantee AS grantee
                  FROM pg_catalog.pg_namespace AS n
                 CROSS JOIN LATERAL (SELECT aclexplode(COALESCE(n.nspacl, acldefault('n', n.nspowner))) AS acl) AS a
                 WHERE n.nspname = 'taskq'
                UNION ALL
                SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner,
                       (a.acl).grantee
                  FROM pg_catalog.pg_class AS c
                 CROSS JOIN LATERAL (SELECT aclexplode(c.relacl) AS acl) AS a
                 WHERE c.relnamespace = 'taskq'::regnamespace
                UNION ALL
                SELECT 'ROUTINE', p.oid::regprocedure::text, p.proowner, (a.acl).grantee
                  FROM pg_catalog.pg_proc AS p
                 CROSS JOIN LATERAL (SELECT aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) AS acl) AS a
                 WHERE p.pronamespace = 'taskq'::regnamespace
                UNION ALL
                SELECT 'TYPE', t.oid::regtype::text, t.typowner, (a.acl).grantee
                  FROM pg_catalog.pg_type AS t
                 CROSS JOIN LATERAL (SELECT aclexplode(COALESCE(t.typacl, acldefault('T', t.typowner))) AS acl) AS a
                 WHERE t.typnamespace = 'taskq'::regnamespace AND t.typtype IN ('d', 'e', 'r')) AS x
         WHERE x.grantee <> x.owner
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s', o.kind, o.name,
                       CASE o.grantee WHEN 0 THEN 'PUBLIC' ELSE o.grantee::regrole::text END);
    END LOOP;
END
$$;
