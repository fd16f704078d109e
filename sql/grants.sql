-- taskq: rights. PUBLIC has none; a role gets a part of the surface with one call, and never the tables.

REVOKE ALL ON ALL ROUTINES IN SCHEMA taskq FROM PUBLIC;

-- What each part may call, in one place. The views of the monitor run with the owner's rights.
CREATE FUNCTION taskq._rights(part text)
    RETURNS TABLE (kind text, name text)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.oid::regprocedure::text
          FROM pg_catalog.pg_proc AS p
         WHERE p.pronamespace = 'taskq'::regnamespace
           AND (p.proname IN ('clock', 'task_channel', 'action_channel', 'wait_for_task', 'wait_for_tasks', '_task_channels', '_num_settled',
                                 'count_tasks', 'why', 'graph', 'ancestors',
                                 'descendants', 'critical_path')
                OR (part IN ('producer', 'worker')
                    AND p.proname IN ('insert_task', 'insert_tasks', 'insert_tasks_report', 'replace_tasks', 'update_tasks', 'add_dependencies',
                                      'cancel_tasks', 'delete_tasks', 'complete_task', 'retry_tasks',
                                      'schedule', 'unschedule', 'pause_schedule', 'resume_schedule', 'run_schedule', 'delay_workgroup', 'pause_group', 'resume_group', 'cancel_group', 'delete_group',
                                      'retry_group', 'reset_group', 'set_action', 'set_group', 'forget_action', 'pause_action', 'resume_action',
                                      'chain', '_chain', 'parallel', '_parallel', 'chord', 'map'))
                OR (part = 'worker'
                    AND p.proname IN ('own_tasks', 'extend_tasks_ownership', 'return_task', 'return_tasks',
                                      'report_status', 'dependency_results', 'wait_for_work', '_action_channels',
                                      '_look_for_work', '_left_behind', '_next_due', 'maintain'))
                OR (part = 'monitor' AND p.proname IN ('check', 'metrics'))
                OR p.proname = '_is_' OPERATOR(pg_catalog.||) part)
        UNION ALL
        SELECT 'TABLE', c.oid::regclass::text
          FROM pg_catalog.pg_class AS c
         WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'v' AND c.relname NOT LIKE '\_%'
           AND part IN ('producer', 'worker', 'monitor');
    END;
COMMENT ON FUNCTION taskq._rights IS 'internal: the functions and views that a part of the users may use';

-- Which parts a role has: those whose marker it may call. Rights are dumped with the extension, so this
-- survives a restore.
CREATE FUNCTION taskq._is_producer() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_producer IS 'internal: whoever may call it was given the part of a producer';
CREATE FUNCTION taskq._is_worker() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_worker IS 'internal: whoever may call it was given the part of a worker';
CREATE FUNCTION taskq._is_monitor() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_monitor IS 'internal: whoever may call it was given the part of a monitor';

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
    IF role IS NULL THEN
        RAISE EXCEPTION 'argument "role" must not be NULL'
            USING ERRCODE = '22004', DETAIL = 'NULL was given for "role".', HINT = 'Give the name of a role.';
    END IF;
    -- A regrole may be any number.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS x WHERE x.oid = role) THEN
        RAISE EXCEPTION 'role "%" does not exist', role
            USING ERRCODE = '42704', DETAIL = 'A part is given to, and taken from, one role of the cluster.',
                  HINT = 'Give the name of a role; pg_roles shows those there are.';
    END IF;
    IF give THEN
        EXECUTE format('GRANT USAGE ON SCHEMA taskq TO %s', role);
    END IF;
    FOR r IN SELECT x.kind, x.name FROM taskq._rights(part) AS x LOOP
        EXECUTE format(CASE WHEN give THEN 'GRANT %s ON %s %s TO %s' ELSE 'REVOKE %s ON %s %s FROM %s' END,
                       CASE r.kind WHEN 'TABLE' THEN 'SELECT' ELSE 'EXECUTE' END, r.kind, r.name, role);
    END LOOP;
    IF NOT give THEN
        -- The parts overlap: what the others contain is given back.
        FOREACH other IN ARRAY ARRAY['producer', 'worker', 'monitor'] LOOP
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

CREATE FUNCTION taskq.grant_producer(role regrole) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('producer', role, true) $$;
COMMENT ON FUNCTION taskq.grant_producer IS 'let a role insert, link, cancel, delete and wait for tasks';

CREATE FUNCTION taskq.revoke_producer(role regrole) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('producer', role, false) $$;
COMMENT ON FUNCTION taskq.revoke_producer IS 'take back what grant_producer gave';

CREATE FUNCTION taskq.grant_worker(role regrole) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('worker', role, true) $$;
COMMENT ON FUNCTION taskq.grant_worker IS 'let a role own, extend and return tasks, and all that a producer may';

CREATE FUNCTION taskq.revoke_worker(role regrole) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('worker', role, false) $$;
COMMENT ON FUNCTION taskq.revoke_worker IS 'take back what grant_worker gave';

CREATE FUNCTION taskq.grant_monitor(role regrole) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('monitor', role, true) $$;
COMMENT ON FUNCTION taskq.grant_monitor IS 'let a role look at the views, count, check and wait';

CREATE FUNCTION taskq.revoke_monitor(role regrole) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('monitor', role, false) $$;
COMMENT ON FUNCTION taskq.revoke_monitor IS 'take back what grant_monitor gave';

-- Whatever ALTER DEFAULT PRIVILEGES has given away while this script ran is taken back, as is what PUBLIC has by itself:
-- who may read taskq.run can make tokens.
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
