\echo Use "CREATE EXTENSION taskq_router" to load this file. \quit

-- taskq_router: the calls of taskq on a database that has no queue of its own, and hands each call to the server (the shard)
-- that it concerns. PL/Proxy carries the calls; here is only which shard that is. See README.md beside this file.
--
-- Nothing is kept here but the routing table: a router may be thrown away and made anew, and there may be several.
-- Each call reaches the shard as the role that has called, and does there what that role may do.

-- Nothing here is looked up but in pg_catalog, neither now nor, since all is qualified, when it is called.
SET LOCAL search_path TO pg_catalog, pg_temp;

-- Names and types are those of taskq; a database with a queue has this schema already, and is refused.
CREATE SCHEMA taskq;
CREATE SCHEMA taskq_router;

CREATE DOMAIN taskq.status_code AS text
    CONSTRAINT status_code_check CHECK (VALUE IN ('pending', 'in-progress', 'aborted', 'completed'));
CREATE DOMAIN taskq.dependency_condition AS text
    CONSTRAINT dependency_condition_check CHECK (VALUE IN ('completed', 'settled', 'aborted'));
CREATE TYPE taskq.named_only AS ENUM ();

-- The routing table ---------------------------------------------------------------------------------------------------

CREATE TABLE taskq_router.shards (
    shard integer PRIMARY KEY CHECK (shard BETWEEN 0 AND 4095),
    closed boolean NOT NULL DEFAULT false,
    added_at timestamptz NOT NULL DEFAULT pg_catalog.now());
COMMENT ON TABLE taskq_router.shards IS 'the shards; how to reach each is an option of the foreign server taskq_shard_<n>';
COMMENT ON COLUMN taskq_router.shards.closed IS 'not asked for work, and calls that need it are refused at once';

-- A version is one row, so that it comes as a whole: shards[i] has the keys whose hash is from lows[i] on.
CREATE TABLE taskq_router.versions (
    version integer PRIMARY KEY,
    lows bigint[] NOT NULL CHECK (lows[1] = 0),
    shards integer[] NOT NULL CHECK (pg_catalog.cardinality(shards) = pg_catalog.cardinality(lows)),
    made_at timestamptz NOT NULL DEFAULT pg_catalog.now());
COMMENT ON TABLE taskq_router.versions IS
    'which shard has which part of the hashes; the highest version is for new groups, the others are for those that they have still';

CREATE VIEW taskq_router.ranges AS
SELECT v.version, r.low, COALESCE(pg_catalog.lead(r.low) OVER (PARTITION BY v.version ORDER BY r.low), 4294967296) - 1 AS high, r.shard
  FROM taskq_router.versions AS v CROSS JOIN LATERAL unnest(v.lows, v.shards) AS r(low, shard);

CREATE TABLE taskq_router.moved (
    group_id text PRIMARY KEY,
    shard integer NOT NULL REFERENCES taskq_router.shards,
    going_to integer REFERENCES taskq_router.shards,
    left_on integer REFERENCES taskq_router.shards,
    undone boolean NOT NULL DEFAULT false,
    CHECK (going_to IS NULL OR left_on IS NULL));
COMMENT ON TABLE taskq_router.moved IS 'groups that were moved: they are where this says, whatever their hash';
COMMENT ON COLUMN taskq_router.moved.going_to IS 'a move has begun; the group is still on "shard", and is not written to meanwhile';
COMMENT ON COLUMN taskq_router.moved.left_on IS 'the move is done but for the copy on this shard, which is to be deleted';
COMMENT ON COLUMN taskq_router.moved.undone IS 'the copy on "left_on" is that of a move that was taken back';

SELECT pg_catalog.pg_extension_config_dump('taskq_router.shards', '');
SELECT pg_catalog.pg_extension_config_dump('taskq_router.versions', '');
SELECT pg_catalog.pg_extension_config_dump('taskq_router.moved', '');

-- Settings ------------------------------------------------------------------------------------------------------------

CREATE FUNCTION taskq_router._setting(name text, otherwise interval) RETURNS interval LANGUAGE sql STABLE
AS $$ SELECT COALESCE(NULLIF(pg_catalog.current_setting('taskq_router.' || $1, true), '')::interval, $2) $$;

-- From 0 to 2^32 - 1. Not hashtext: a hash that every version and platform computes alike.
CREATE FUNCTION taskq_router.hash(key text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT ('x' || pg_catalog.left(pg_catalog.md5($1), 8))::bit(32)::bigint $$;

-- Errors --------------------------------------------------------------------------------------------------------------

CREATE FUNCTION taskq_router._raise(state text, message text, detail text, hint text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    -- A part that is missing stays missing.
    IF NULLIF($3, '') IS NOT NULL AND NULLIF($4, '') IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = $1, MESSAGE = $2, DETAIL = $3, HINT = $4;
    ELSIF NULLIF($3, '') IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = $1, MESSAGE = $2, DETAIL = $3;
    ELSIF NULLIF($4, '') IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = $1, MESSAGE = $2, HINT = $4;
    END IF;
    RAISE EXCEPTION USING ERRCODE = $1, MESSAGE = $2;
END
$$;

-- What an error of PL/Proxy is: `remote`, an answer of the shard; `never`, no connection was had, so nothing was done;
-- `lost`, it broke, and what was done is unknown; `own`, an error of the router itself.
CREATE FUNCTION taskq_router._kind(state text, message text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN $1 = 'XX000' AND $2 ~ '^PL/Proxy function [^:]*: \[[^]]*\] (PQconnect|PQsocket)' THEN 'never'
                WHEN $1 = 'XX000' AND $2 ~ '^PL/Proxy function ' THEN 'lost'
                WHEN $2 !~ '^[^ ]+\([0-9]+\): \[[^]]*\] REMOTE ' THEN 'own'
                WHEN $1 IN ('XX000', '57P01', '57P02', '57P03', '57P05') OR $1 LIKE '08%' THEN 'lost'
                ELSE 'remote' END
$$;

-- Raises the error again as the shard has put it, or as one of the connection.
CREATE FUNCTION taskq_router._refuse(shard integer, state text, message text, detail text, hint text)
    RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    kind text := taskq_router._kind($2, $3);
BEGIN
    IF kind = 'never' THEN
        PERFORM taskq_router._down($1);
        PERFORM taskq_router._raise('08001', pg_catalog.format('shard %s cannot be reached', $1),
            pg_catalog.regexp_replace($3, '^PL/Proxy function [^:]*: ', ''),
            'Nothing was done there. The other shards go on; repeat the call when this one is back.');
    ELSIF kind = 'lost' THEN
        PERFORM taskq_router._down($1);
        PERFORM taskq_router._raise('08006', pg_catalog.format('the connection to shard %s broke during the call', $1),
            pg_catalog.regexp_replace($3, '^PL/Proxy function [^:]*: |^[^ ]+\([0-9]+\): ', ''),
            'Whether the call has taken effect is not known: look, or repeat what may be repeated.');
    ELSIF kind = 'remote' THEN
        PERFORM taskq_router._raise($2, pg_catalog.regexp_replace($3, '^[^ ]+\([0-9]+\): \[[^]]*\] REMOTE [^:]*: ', ''),
            pg_catalog.regexp_replace($4, '^Remote detail: ', ''), pg_catalog.regexp_replace($5, '^Remote hint: ', ''));
    END IF;
    PERFORM taskq_router._raise($2, $3, $4, $5);
END
$$;

-- Which shards are there -----------------------------------------------------------------------------------------------

CREATE FUNCTION taskq_router._server(shard integer) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT 'taskq_shard_' || $1 $$;

-- This session does not ask the shard for work for a while: looking in vain costs time. Calls that need it do not mind.
CREATE FUNCTION taskq_router._down(shard integer) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF $1 IS NOT NULL THEN
        PERFORM pg_catalog.set_config('taskq_router.down_' || $1,
            (pg_catalog.clock_timestamp() + taskq_router._setting('retry_after', '1 second'))::text, false);
    END IF;
END
$$;

-- Those to be asked for work, each call beginning with another one, which is as good as taking turns and needs no memory.
CREATE FUNCTION taskq_router._in_turn() RETURNS integer[] LANGUAGE plpgsql
AS $$
DECLARE
    up integer[];
    first integer;
BEGIN
    SELECT pg_catalog.array_agg(s.shard) INTO up FROM taskq_router.shards AS s
     WHERE NOT s.closed
       AND COALESCE(NULLIF(pg_catalog.current_setting('taskq_router.down_' || s.shard, true), '')::timestamptz
                    < pg_catalog.clock_timestamp(), true);
    IF pg_catalog.cardinality(up) > 1 THEN
        first := 1 + (pg_catalog.random() * pg_catalog.cardinality(up))::integer % pg_catalog.cardinality(up);
        up := up[first:] || up[:first - 1];
    END IF;
    RETURN COALESCE(up, '{}');
END
$$;

-- All of them, for what concerns all: a closed one is refused by the call that comes to it.
CREATE FUNCTION taskq_router._all() RETURNS integer[] LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.array_agg(s.shard ORDER BY s.shard) FROM taskq_router.shards AS s $$;

-- A shard that a call needs.
CREATE FUNCTION taskq_router._open(shard integer) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    closed boolean;
BEGIN
    SELECT s.closed INTO closed FROM taskq_router.shards AS s WHERE s.shard = $1;
    IF NOT FOUND THEN
        PERFORM taskq_router._raise('22023', pg_catalog.format('there is no shard %s', $1), 'The router does not know it.',
            'taskq_router.shards has those that it knows; taskq_router.add_shard adds one.');
    ELSIF closed THEN
        PERFORM taskq_router._raise('08001', pg_catalog.format('shard %s is closed', $1), 'An operator has closed it: nothing was done there.',
            'The other shards go on; repeat the call when it was opened with taskq_router.open_shard.');
    END IF;
    RETURN $1;
END
$$;

-- What the shards are asked --------------------------------------------------------------------------------------------
--
-- One function for each, `_x` for the x of a shard, with the shard as its first argument. PL/Proxy sends the SELECT as it
-- stands, with $2, $3 … as parameters.

CREATE FUNCTION taskq_router._proxy(name text, arguments text, answer text, query text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    -- The notices are of PL/Proxy, on connections that it drops.
    EXECUTE pg_catalog.format('CREATE FUNCTION taskq_router.%I(integer%s) RETURNS %s LANGUAGE plproxy SET client_min_messages = warning AS %L',
        $1, COALESCE(', ' || NULLIF($2, ''), ''), $3,
        pg_catalog.format('CLUSTER taskq_router._server($1); RUN ON 0; %s;', $4));
END
$$;

-- The same for functions that the shards have under the same name, called by position.
CREATE FUNCTION taskq_router._proxy_call(name text, arguments text, answer text) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    types text[] := pg_catalog.string_to_array($2, ', ');
    call text := pg_catalog.format('taskq.%I(%s)', $1, (SELECT pg_catalog.string_agg(pg_catalog.format('$%s::%s', t.n + 1, t.type), ', ' ORDER BY t.n)
                                               FROM pg_catalog.unnest(types) WITH ORDINALITY AS t(type, n)));
BEGIN
    PERFORM taskq_router._proxy('_' || $1, $2, $3,
        CASE WHEN $3 LIKE 'TABLE (%' OR $3 LIKE 'SETOF %' THEN 'SELECT * FROM ' || call ELSE 'SELECT ' || call END);
END
$$;

DO $define$
DECLARE
    options CONSTANT text := 'integer, integer, interval, timestamptz, interval, text[], text[], boolean, boolean, text, '
        || 'interval, jsonb, jsonb, text, text, boolean, text, text, jsonb, interval';
    more CONSTANT text := ', integer, boolean, timestamptz, interval, interval';
    granted CONSTANT text := 'task_id text, token uuid, action text, body text, num_tries integer, num_failures integer, '
        || 'action_deadline timestamptz, checkpoint jsonb, results jsonb, priority integer, metadata jsonb, body_json jsonb, steps jsonb';
    granted_names CONSTANT text := pg_catalog.regexp_replace(granted, ' (text|uuid|integer|timestamptz|jsonb)', '', 'g');
BEGIN
    PERFORM taskq_router._proxy_call('insert_task', 'text, text, text, ' || options || more, 'text');
    PERFORM taskq_router._proxy_call('insert_many', 'text, text[], text[], ' || options || ', jsonb' || more, 'SETOF text');
    PERFORM taskq_router._proxy_call('insert_tasks', 'jsonb, text, text', 'SETOF text');
    PERFORM taskq_router._proxy_call('replace_tasks', 'jsonb, text', 'SETOF text');
    PERFORM taskq_router._proxy_call('update_tasks',
        'text[], integer, timestamptz, interval, integer, interval, text, jsonb, text, text[], text[]', 'bigint');
    PERFORM taskq_router._proxy_call('add_dependencies', 'text[], text[], text, text', 'bigint');
    PERFORM taskq_router._proxy('_add_dependencies_json', 'jsonb, text', 'bigint',
        'SELECT taskq.add_dependencies($2::jsonb, if_missing => $3::text)');

    PERFORM taskq_router._proxy('_own_tasks', 'text, integer, text[], interval, interval, boolean, boolean', pg_catalog.format('TABLE (%s)', granted),
        pg_catalog.format('SELECT %s FROM taskq.own_tasks($2::text, $3::integer, $4::text[], $5::interval, $6::interval, $7::boolean, $8::boolean)',
               granted_names));
    PERFORM taskq_router._proxy('_return_and_own_tasks', 'text, jsonb, integer, text[], interval, boolean, boolean',
        pg_catalog.format('TABLE (%s, sqlstate text)', granted),
        pg_catalog.format('SELECT %s, sqlstate FROM taskq.return_and_own_tasks($2::text, $3::jsonb, $4::integer, $5::text[], $6::interval, $7::boolean, $8::boolean)',
               granted_names));
    PERFORM taskq_router._proxy('_return_arrays_and_own_tasks', 'text, text[], uuid[], integer, text[], interval, boolean, boolean',
        pg_catalog.format('TABLE (%s, sqlstate text)', granted),
        pg_catalog.format('SELECT %s, sqlstate FROM taskq.return_and_own_tasks($2::text, $3::text[], $4::uuid[], $5::integer, $6::text[], $7::interval, $8::boolean, $9::boolean)',
               granted_names));
    PERFORM taskq_router._proxy_call('extend_tasks_ownership', 'text, text[], uuid[], interval, interval', 'TABLE (task_id text, owned boolean)');
    PERFORM taskq_router._proxy_call('return_task',
        'text, uuid, text, text, jsonb, interval, jsonb, boolean, interval, interval, boolean, jsonb, interval',
        'taskq.status_code');
    PERFORM taskq_router._proxy_call('return_tasks', 'text[], uuid[], text, text, jsonb, interval, interval, boolean',
        'TABLE (task_id text, status_code taskq.status_code, sqlstate text)');
    PERFORM taskq_router._proxy('_return_tasks_json', 'jsonb', 'TABLE (task_id text, status_code taskq.status_code, sqlstate text)',
        'SELECT * FROM taskq.return_tasks($2::jsonb)');
    PERFORM taskq_router._proxy_call('report_status', 'text, uuid, text, double precision, jsonb', 'void');
    PERFORM taskq_router._proxy_call('save_step', 'text, uuid, text, jsonb, interval', 'jsonb');
    PERFORM taskq_router._proxy_call('rewind_task', 'text, text', 'bigint');
    PERFORM taskq_router._proxy_call('rerun_tasks', 'text[], boolean', 'bigint');

    PERFORM taskq_router._proxy_call('wait_for_task', 'text, interval',
        'TABLE (task_id text, status_code taskq.status_code, status text, result jsonb, settled_at timestamptz)');
    PERFORM taskq_router._proxy_call('complete_task', 'text, jsonb, text', 'taskq.status_code');
    PERFORM taskq_router._proxy_call('cancel_tasks', 'text[], text, text[], text[], text, integer', 'bigint');
    PERFORM taskq_router._proxy_call('release_tasks', 'text[], text[], text[], text', 'bigint');
    PERFORM taskq_router._proxy_call('delete_tasks',
        'text[], text[], text[], text, text[], timestamptz, timestamptz, integer', 'bigint');
    PERFORM taskq_router._proxy_call('retry_tasks',
        'text[], text[], text[], text, text[], timestamptz, timestamptz, integer', 'bigint');

    PERFORM taskq_router._proxy_call('pause_group', 'text', 'bigint');
    PERFORM taskq_router._proxy_call('resume_group', 'text', 'bigint');
    PERFORM taskq_router._proxy_call('cancel_group', 'text', 'bigint');
    PERFORM taskq_router._proxy_call('delete_group', 'text', 'bigint');
    PERFORM taskq_router._proxy_call('retry_group', 'text', 'bigint');
    PERFORM taskq_router._proxy_call('reset_group', 'text', 'bigint');
    PERFORM taskq_router._proxy_call('set_group', 'text, integer, integer, text[]', 'void');

    PERFORM taskq_router._proxy_call('set_action', 'text, integer, interval, jsonb, integer, integer, interval, interval, boolean, '
        || 'text, integer, text[], interval, boolean, integer, interval, interval', 'void');
    PERFORM taskq_router._proxy_call('pause_action', 'text', 'boolean');
    PERFORM taskq_router._proxy_call('resume_action', 'text', 'boolean');
    PERFORM taskq_router._proxy_call('forget_action', 'text', 'void');
    PERFORM taskq_router._proxy_call('delay_workgroup', 'text, interval', 'timestamptz');
    PERFORM taskq_router._proxy_call('maintain', '', 'bigint');

    PERFORM taskq_router._proxy_call('count_tasks', 'text[], text[], text[], text[]',
        'TABLE (action text, state text, count bigint)');
    PERFORM taskq_router._proxy_call('why', 'text', 'SETOF text');
    PERFORM taskq_router._proxy_call('graph', 'text, text, integer, integer', 'text');
    PERFORM taskq_router._proxy_call('metrics_rows', 'boolean', 'TABLE (name text, labels jsonb, value double precision)');
    PERFORM taskq_router._proxy('_health', '', 'SETOF jsonb', 'SELECT pg_catalog.to_jsonb(x) FROM taskq.health() AS x');
    PERFORM taskq_router._proxy('_check', '', 'SETOF text', 'SELECT x::text FROM taskq.check() AS x');
    PERFORM taskq_router._proxy('_tasks', '',
        'TABLE (id text, action text, body text, status_code taskq.status_code, status text, num_tries integer, max_tries integer, '
        || 'num_signals integer, total_dependencies integer, num_failures integer, actor_id text, action_deadline timestamptz, '
        || 'result jsonb, priority integer, not_before timestamptz, group_id text, workgroup text, merge_key text, metadata jsonb, '
        || 'inserted_at timestamptz, owned_at timestamptz, settled_at timestamptz, state text)',
        'SELECT id, action, body, status_code, status, num_tries, max_tries, num_signals, total_dependencies, num_failures, actor_id, '
        || 'action_deadline, result, priority, not_before, group_id, workgroup, merge_key, metadata, inserted_at, owned_at, '
        || 'settled_at, state FROM taskq.tasks');
    PERFORM taskq_router._proxy('_dependencies', '',
        'TABLE (after text, run text, condition taskq.dependency_condition, settled boolean)',
        'SELECT after, run, condition, settled FROM taskq.dependencies');
    PERFORM taskq_router._proxy('_actors', '',
        'TABLE (actor_id text, task_id text, action text, action_deadline timestamptz, overdue boolean)',
        'SELECT actor_id, task_id, action, action_deadline, overdue FROM taskq.actors');
    PERFORM taskq_router._proxy('_stats', '',
        'TABLE (action text, blocked bigint, scheduled bigint, ready bigint, "in-progress" bigint, completed bigint, aborted bigint, '
        || 'oldest_ready timestamptz, settled_last_minute bigint, waiting_p50 interval, waiting_p99 interval, '
        || 'running_p50 interval, running_p99 interval, skipped bigint)',
        'SELECT action, blocked, scheduled, ready, "in-progress", completed, aborted, oldest_ready, settled_last_minute, waiting_p50, '
        || 'waiting_p99, running_p50, running_p99, skipped FROM taskq.stats');
    PERFORM taskq_router._proxy('_groups', '',
        'TABLE (group_id text, paused boolean, blocked bigint, scheduled bigint, ready bigint, "in-progress" bigint, '
        || 'completed bigint, aborted bigint, progress double precision, skipped bigint)',
        'SELECT group_id, paused, blocked, scheduled, ready, "in-progress", completed, aborted, progress, skipped FROM taskq.groups');

    -- Where things are.
    PERFORM taskq_router._proxy('_find', 'text[]', 'TABLE (id text, group_id text)',
        'SELECT id, group_id FROM taskq.tasks WHERE id = ANY ($2::text[])');
    PERFORM taskq_router._proxy('_knows', 'text, text', 'boolean',
        'SELECT CASE WHEN $2::text IS NULL THEN EXISTS (SELECT FROM taskq.tasks WHERE id = $3::text) '
        || 'ELSE EXISTS (SELECT FROM taskq.tasks WHERE group_id = $2::text) END');
    PERFORM taskq_router._proxy('_shard', '', 'integer', 'SELECT taskq.shard()');
END
$define$;

-- Routing --------------------------------------------------------------------------------------------------------------

-- The shard of a group, or of a task without one. With several versions, one that an older version names keeps what it has.
-- `to_write`: a group that is being moved is refused, and none is moved before this transaction has ended.
CREATE FUNCTION taskq_router._home(group_id text, id text, to_write boolean) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    key bigint := taskq_router.hash(COALESCE($1, $2));
    homes integer[];
    moved taskq_router.moved;
    home integer;
BEGIN
    IF key IS NULL THEN
        RETURN NULL;
    END IF;
    IF $1 IS NOT NULL THEN
        IF $3 THEN
            PERFORM pg_catalog.pg_advisory_xact_lock_shared(taskq_router._lock_key(), pg_catalog.hashtext($1));
        END IF;
        SELECT * INTO moved FROM taskq_router.moved AS m WHERE m.group_id = $1;
        IF FOUND THEN
            IF $3 AND moved.going_to IS NOT NULL THEN
                PERFORM taskq_router._raise('TQ005', pg_catalog.format('group "%s" is being moved', $1),
                    pg_catalog.format('It is on its way from shard %s to shard %s.', moved.shard, moved.going_to),
                    'Try again in a moment; if the move was interrupted, CALL taskq_router.move_group again, or taskq_router.undo_move.');
            END IF;
            RETURN taskq_router._open(moved.shard);
        END IF;
    END IF;
    SELECT pg_catalog.array_agg(v.shards[pg_catalog.width_bucket(key, v.lows)] ORDER BY v.version) INTO homes
      FROM taskq_router.versions AS v;
    IF homes IS NULL THEN
        PERFORM taskq_router._raise('22023', 'the router has no shards', 'taskq_router.versions is empty.',
            'Make the routing table with taskq_router.add_shards.');
    END IF;
    -- The newest is for what no shard has yet.
    FOR n IN 1 .. pg_catalog.cardinality(homes) - 1 LOOP
        IF homes[n] <> homes[pg_catalog.cardinality(homes)] AND homes[n] <> ALL (homes[:n - 1]) THEN
            home := taskq_router._open(homes[n]);
            IF taskq_router._has(home, $1, $2) THEN
                RETURN home;
            END IF;
        END IF;
    END LOOP;
    RETURN taskq_router._open(homes[pg_catalog.cardinality(homes)]);
END
$$;

CREATE FUNCTION taskq_router._has(shard integer, group_id text, id text) RETURNS boolean LANGUAGE plpgsql
AS $$
DECLARE
    state text; message text; detail text; hint text;
BEGIN
    RETURN taskq_router._knows($1, $2, $3);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    PERFORM taskq_router._refuse($1, state, message, detail, hint);
END
$$;

CREATE FUNCTION taskq_router._lock_key() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1953719668';

CREATE FUNCTION taskq_router.shard_for(group_id text, id text = NULL) RETURNS integer LANGUAGE sql
AS $$ SELECT taskq_router._home($1, $2, false) $$;
COMMENT ON FUNCTION taskq_router.shard_for IS 'the shard to which a new task of this group, or of this id if it has none, goes';

-- The one shard of all these keys, in pairs; NULL where none is given; refused where there are several.
CREATE FUNCTION taskq_router._one_home(groups text[], ids text[]) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    k record;
    home integer;
    first integer;
    first_key text;
BEGIN
    FOR k IN SELECT DISTINCT u.g, CASE WHEN u.g IS NULL THEN u.i END AS i FROM unnest($1, $2) AS u(g, i)
              WHERE COALESCE(u.g, u.i) IS NOT NULL LOOP
        home := taskq_router._home(k.g, k.i, true);
        IF first IS NULL THEN
            first := home;
            first_key := COALESCE('group "' || k.g || '"', 'task "' || k.i || '"');
        ELSIF home <> first THEN
            PERFORM taskq_router._raise('22023', pg_catalog.format('the tasks of this call belong to several shards, %s and %s among them', first, home),
                pg_catalog.format('%s belongs to shard %s, %s to shard %s.', pg_catalog.left(first_key, 300), first,
                       pg_catalog.left(COALESCE('group "' || k.g || '"', 'task "' || k.i || '"'), 300), home),
                'Give tasks that belong together one group_id, or make a call for each shard: taskq_router.shard_for(group_id, id) tells which.');
        END IF;
    END LOOP;
    RETURN first;
END
$$;

CREATE FUNCTION taskq_router._home_of_tasks(tasks jsonb) RETURNS integer LANGUAGE sql
AS $$
    SELECT taskq_router._one_home(pg_catalog.array_agg(t.task ->> 'group_id'), pg_catalog.array_agg(t.task ->> 'id'))
      FROM pg_catalog.jsonb_array_elements(CASE pg_catalog.jsonb_typeof($1) WHEN 'array' THEN $1 ELSE '[]' END) AS t(task)
     WHERE pg_catalog.jsonb_typeof(t.task) = 'object'
$$;

-- Children go where their parent is, and have no group elsewhere.
CREATE FUNCTION taskq_router._children_of(shard integer, children jsonb) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    g text;
BEGIN
    IF pg_catalog.jsonb_typeof($2) = 'array' THEN
        FOR g IN SELECT DISTINCT c.child ->> 'group_id' FROM pg_catalog.jsonb_array_elements($2) AS c(child)
                  WHERE pg_catalog.jsonb_typeof(c.child) = 'object' AND c.child ->> 'group_id' IS NOT NULL LOOP
            IF taskq_router._home(g, NULL, true) <> $1 THEN
                PERFORM taskq_router._raise('22023', pg_catalog.format('children of group "%s" belong to another shard than their parent', g),
                    pg_catalog.format('The parent is on shard %s, the group on shard %s.', $1, taskq_router._home(g, NULL, false)),
                    'Give children the group of their parent or none, or insert them by a call of their own.');
            END IF;
        END LOOP;
    END IF;
END
$$;

-- Tasks that are named by their ids only may be on any shard: those of a group are where it is. All are asked, that of the id
-- first; none that is down is passed over, unless all were found elsewhere.
CREATE FUNCTION taskq_router._find(ids text[], OUT id text, OUT shard integer, OUT group_id text) RETURNS SETOF record LANGUAGE plpgsql
AS $$
DECLARE
    missing text[] := ARRAY(SELECT DISTINCT u.i FROM pg_catalog.unnest($1) AS u(i) WHERE u.i IS NOT NULL);
    s integer;
    state text; message text; detail text; hint text;
    first integer;
BEGIN
    IF pg_catalog.cardinality(missing) = 1 THEN
        SELECT v.shards[pg_catalog.width_bucket(taskq_router.hash(missing[1]), v.lows)] INTO first
          FROM taskq_router.versions AS v ORDER BY v.version DESC LIMIT 1;
    END IF;
    FOR s IN SELECT u.s FROM pg_catalog.unnest(taskq_router._all()) AS u(s) ORDER BY u.s IS DISTINCT FROM first, u.s LOOP
        EXIT WHEN pg_catalog.cardinality(missing) = 0;
        shard := s;
        BEGIN
            FOR id, group_id IN SELECT f.id, f.group_id FROM taskq_router._find(taskq_router._open(s), missing) AS f LOOP
                missing := pg_catalog.array_remove(missing, id);
                RETURN NEXT;
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
            IF taskq_router._kind(state, message) = 'remote' OR state <> '08001' AND taskq_router._kind(state, message) = 'own' THEN
                PERFORM taskq_router._refuse(s, state, message, detail, hint);
            END IF;
            first := s;
        END;
    END LOOP;
    IF pg_catalog.cardinality(missing) > 0 AND state IS NOT NULL THEN
        PERFORM taskq_router._refuse(first, state, message, detail, hint);
    END IF;
END
$$;

-- Where the tasks are that a call names, for a change that is made on one shard. Those that are nowhere are where they would
-- be inserted, and that shard says what it thinks of them.
CREATE FUNCTION taskq_router._one_place(ids text[]) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    f record;
    n integer := 0;
    place integer;
    first_id text;
BEGIN
    FOR f IN SELECT x.* FROM taskq_router._find($1) AS x LOOP
        IF f.group_id IS NOT NULL THEN
            PERFORM taskq_router._home(f.group_id, NULL, true);
        END IF;
        IF place IS NULL THEN
            place := f.shard;
            first_id := f.id;
        ELSIF place <> f.shard THEN
            PERFORM taskq_router._raise('22023', pg_catalog.format('the tasks of this call are on several shards, %s and %s among them', place, f.shard),
                pg_catalog.format('Task "%s" is on shard %s, task "%s" on shard %s.', first_id, place, f.id, f.shard),
                'Tasks of one group are on one shard: make a call for each, and link only what has one group_id.');
        END IF;
    END LOOP;
    RETURN COALESCE(place, (SELECT taskq_router._home(NULL, u.i, false) FROM pg_catalog.unnest($1) AS u(i) WHERE u.i IS NOT NULL LIMIT 1),
                    (taskq_router._all())[1]);
END
$$;

-- The shards that have something of a group: one, but that with several versions a group of which the last task went while
-- another came can be on two.
CREATE FUNCTION taskq_router._places_of_group(group_id text, to_write boolean) RETURNS integer[] LANGUAGE plpgsql
AS $$
DECLARE
    home integer := COALESCE(taskq_router._home($1, NULL, $2), (taskq_router._all())[1]);
    places integer[] := ARRAY[home];
    other integer;
BEGIN
    FOR other IN SELECT DISTINCT v.shards[pg_catalog.width_bucket(taskq_router.hash($1), v.lows)] FROM taskq_router.versions AS v LOOP
        IF other <> home AND NOT EXISTS (SELECT FROM taskq_router.moved AS m WHERE m.group_id = $1)
           AND taskq_router._has(taskq_router._open(other), $1, NULL) THEN
            places := places || other;
        END IF;
    END LOOP;
    RETURN places;
END
$$;

-- The first twelve bits of a token are its shard; it is a uuid of version 8.
CREATE FUNCTION taskq.shard_of(token uuid) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN pg_catalog.substr($1::text, 15, 1) = '8' AND pg_catalog.substr($1::text, 20, 1) IN ('8', '9', 'a', 'b')
                THEN ('x0' || pg_catalog.substr($1::text, 1, 3))::bit(16)::integer END
$$;

-- What is no token, or one of a shard that the router does not know, any shard will refuse.
CREATE FUNCTION taskq_router._shard_of(token uuid) RETURNS integer LANGUAGE sql STABLE
AS $$
    SELECT COALESCE((SELECT s.shard FROM taskq_router.shards AS s WHERE s.shard = taskq.shard_of($1)), (taskq_router._all())[1])
$$;

-- The same for all tokens of a call, by their places in it. Those of a shard have the same in what taskq.shard_of reads, but for
-- the variant of the uuid: the shard is looked for once.
CREATE FUNCTION taskq_router._shards_of(tokens uuid[]) RETURNS TABLE (n integer, shard integer) LANGUAGE plpgsql STABLE ROWS 100
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH token AS MATERIALIZED (
                SELECT x.n::integer AS n, x.t,
                       COALESCE(pg_catalog.substr(x.t, 1, 3) || pg_catalog.substr(x.t, 15, 1) || pg_catalog.substr(x.t, 20, 1), '') AS beginning
                  FROM (SELECT u.t::text AS t, u.n FROM pg_catalog.unnest($1) WITH ORDINALITY AS u(t, n)) AS x),
             beginning AS MATERIALIZED (
                SELECT t.beginning, taskq_router._shard_of(pg_catalog.min(t.t)::uuid) AS shard FROM token AS t GROUP BY t.beginning)
        SELECT t.n, b.shard FROM token AS t JOIN beginning AS b ON b.beginning = t.beginning;
END
$$;

-- Which shards they are.
CREATE FUNCTION taskq_router._homes_of(tokens uuid[]) RETURNS integer[] LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT pg_catalog.array_agg(DISTINCT s.shard) FROM taskq_router._shards_of($1) AS s);
END
$$;

CREATE FUNCTION taskq_router._parts(text[], uuid[])
    RETURNS TABLE (shard integer, ids text[], tokens uuid[], places integer[]) LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT s.shard, pg_catalog.array_agg(u.i ORDER BY s.n), pg_catalog.array_agg(u.t ORDER BY s.n), pg_catalog.array_agg(s.n ORDER BY s.n)
          FROM unnest($1, $2) WITH ORDINALITY AS u(i, t, n)
          JOIN taskq_router._shards_of($2) AS s ON s.n = u.n
         GROUP BY s.shard;
END
$$;

-- The tokens of returns as JSON, by their places. What has none that could be one is any shard's to refuse.
CREATE FUNCTION taskq_router._tokens_in(returns jsonb) RETURNS uuid[] LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(SELECT CASE WHEN x.e ->> 'token' ~ '^[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}$' THEN (x.e ->> 'token')::uuid END
                   FROM pg_catalog.jsonb_array_elements(CASE pg_catalog.jsonb_typeof($1) WHEN 'array' THEN $1 ELSE '[]' END)
                        WITH ORDINALITY AS x(e, n) ORDER BY x.n);
END
$$;

CREATE FUNCTION taskq_router._parts_of_returns(jsonb)
    RETURNS TABLE (shard integer, returns jsonb, places integer[]) LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT s.shard, pg_catalog.jsonb_agg(x.e ORDER BY s.n), pg_catalog.array_agg(s.n ORDER BY s.n)
          FROM pg_catalog.jsonb_array_elements($1) WITH ORDINALITY AS x(e, n)
          JOIN taskq_router._shards_of(taskq_router._tokens_in($1)) AS s ON s.n = x.n
         GROUP BY s.shard;
END
$$;

-- The shard of a task that is to be looked at; of one that is nowhere, the one that would have it.
CREATE FUNCTION taskq_router._place_of(id text) RETURNS integer LANGUAGE sql
AS $$
    SELECT taskq_router._open(COALESCE((SELECT f.shard FROM taskq_router._find(ARRAY[$1]) AS f LIMIT 1),
                                       taskq_router._home(NULL, $1, false), (taskq_router._all())[1]))
$$;

-- The shards that a call with filters concerns, in order.
CREATE FUNCTION taskq_router._places(ids text[], groups text[]) RETURNS integer[] LANGUAGE plpgsql
AS $$
DECLARE
    places integer[];
    g text;
BEGIN
    IF $1 IS NOT NULL THEN
        places := ARRAY(SELECT DISTINCT f.shard FROM taskq_router._find($1) AS f ORDER BY 1);
        FOR g IN SELECT DISTINCT f.group_id FROM taskq_router._find($1) AS f WHERE f.group_id IS NOT NULL LOOP
            PERFORM taskq_router._home(g, NULL, true);
        END LOOP;
    ELSIF $2 IS NOT NULL THEN
        FOR g IN SELECT DISTINCT u.g FROM pg_catalog.unnest($2) AS u(g) WHERE u.g IS NOT NULL LOOP
            places := places || taskq_router._places_of_group(g, true);
        END LOOP;
        places := ARRAY(SELECT DISTINCT u.p FROM pg_catalog.unnest(places) AS u(p) ORDER BY 1);
    ELSE
        places := taskq_router._all();
    END IF;
    -- One at least is asked, if only for its opinion of the arguments.
    IF COALESCE(pg_catalog.cardinality(places), 0) = 0 THEN
        places := (taskq_router._all())[:1];
    END IF;
    RETURN ARRAY(SELECT taskq_router._open(u.p) FROM pg_catalog.unnest(places) WITH ORDINALITY AS u(p, n) ORDER BY u.n);
END
$$;

-- The calls -------------------------------------------------------------------------------------------------------------

-- Each in one frame: `shard` is the one that is asked, and what it refuses reaches the caller as it was put.
CREATE FUNCTION taskq_router._define(head text, variables text, body text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE pg_catalog.format('CREATE FUNCTION %s LANGUAGE plpgsql AS %L', $1, pg_catalog.format($frame$
#variable_conflict use_column
DECLARE
    at_shard integer;
    err_state text; err_message text; err_detail text; err_hint text;
    %s
BEGIN
    %s
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS err_state = RETURNED_SQLSTATE, err_message = MESSAGE_TEXT, err_detail = PG_EXCEPTION_DETAIL,
                            err_hint = PG_EXCEPTION_HINT;
    PERFORM taskq_router._refuse(at_shard, err_state, err_message, err_detail, err_hint);
    RAISE;
END
$frame$, $2, $3));
END
$$;

-- Whether a shard that was asked for anything it has, or given what any may have, is passed over for now.
CREATE FUNCTION taskq_router._pass_over(shard integer, state text, message text, lost_too boolean) RETURNS boolean LANGUAGE plpgsql
AS $$
DECLARE
    kind text := taskq_router._kind($2, $3);
BEGIN
    IF kind = 'never' OR kind = 'lost' AND $4 THEN
        PERFORM taskq_router._down($1);
        RETURN true;
    END IF;
    RETURN kind = 'own' AND $2 = '08001';
END
$$;

CREATE FUNCTION taskq_router._none_up() RETURNS void LANGUAGE sql
AS $$
    SELECT taskq_router._raise('08001', 'no shard can be reached', 'Of all shards none is open, or none has answered.',
        'taskq_router.shards has those that are closed; SELECT * FROM taskq_router.look() tells what is wrong with the others.')
$$;

-- `try` is tried with at_shard; where any shard will do, with one after the other until one is there.
CREATE FUNCTION taskq_router._define_insertion(head text, home text, try text) RETURNS void LANGUAGE sql
AS $$
    SELECT taskq_router._define($1, 'any_shard integer;', pg_catalog.format($body$
    at_shard := %1$s;
    IF at_shard IS NOT NULL THEN
        %2$s;
        RETURN;
    END IF;
    -- No id and no group: whichever is up. What was lost half-way is not tried elsewhere: it may be there.
    FOREACH any_shard IN ARRAY taskq_router._in_turn() LOOP
        at_shard := any_shard;
        BEGIN
            %2$s;
            RETURN;
        EXCEPTION WHEN OTHERS THEN
            IF NOT taskq_router._pass_over(any_shard, SQLSTATE, SQLERRM, false) THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    PERFORM taskq_router._none_up();$body$, $2, $3))
$$;

-- Inserting.

SELECT taskq_router._define_insertion($head$taskq_router._insert_one(
        id text,
        action text,
        body text,
        priority integer,
        max_tries integer,
        max_duration interval,
        not_before timestamptz,
        delay interval,
        depends_on text[],
        to_signal_after text[],
        spontaneous boolean,
        post_result boolean,
        group_id text,
        retention interval,
        metadata jsonb,
        backoff jsonb,
        workgroup text,
        merge_key text,
        seed boolean,
        on_conflict text,
        if_missing text,
        unique_by jsonb,
        retention_aborted interval,
        num_required integer,
        signal boolean,
        expires_at timestamptz,
        expires_in interval,
        max_run_time interval)
    RETURNS SETOF text$head$,
    $home$taskq_router._home($13, $1, true)$home$,
    $try$RETURN QUERY SELECT taskq_router._insert_task(at_shard, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28)$try$);

CREATE FUNCTION taskq.insert_task(
        id text,
        action text,
        body text = NULL,
        priority integer = 0,
        max_tries integer = NULL,
        max_duration interval = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        depends_on text[] = NULL,
        to_signal_after text[] = NULL,
        spontaneous boolean = false,
        post_result boolean = false,
        group_id text = NULL,
        retention interval = NULL,
        metadata jsonb = NULL,
        backoff jsonb = NULL,
        workgroup text = NULL,
        merge_key text = NULL,
        seed boolean = false,
        on_conflict text = 'error',
        if_missing text = 'error',
        unique_by jsonb = NULL,
        retention_aborted interval = NULL,
        num_required integer = NULL,
        signal boolean = false,
        expires_at timestamptz = NULL,
        expires_in interval = NULL,
        max_run_time interval = NULL)
    RETURNS text LANGUAGE sql
    AS 'SELECT taskq_router._insert_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
        $24, $25, $26, $27, $28)';

CREATE FUNCTION taskq_router._text_of(body jsonb) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN pg_catalog.jsonb_typeof($1) IN ('string', 'null') THEN $1 #>> '{}' ELSE $1::text END $$;

CREATE FUNCTION taskq.insert_task(
        id text,
        action text,
        body jsonb,
        priority integer = 0,
        max_tries integer = NULL,
        max_duration interval = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        depends_on text[] = NULL,
        to_signal_after text[] = NULL,
        spontaneous boolean = false,
        post_result boolean = false,
        group_id text = NULL,
        retention interval = NULL,
        metadata jsonb = NULL,
        backoff jsonb = NULL,
        workgroup text = NULL,
        merge_key text = NULL,
        seed boolean = false,
        on_conflict text = 'error',
        if_missing text = 'error',
        unique_by jsonb = NULL,
        retention_aborted interval = NULL,
        num_required integer = NULL,
        signal boolean = false,
        expires_at timestamptz = NULL,
        expires_in interval = NULL,
        max_run_time interval = NULL)
    RETURNS text LANGUAGE sql
    AS 'SELECT taskq_router._insert_one($1, $2, taskq_router._text_of($3), $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
        $24, $25, $26, $27, $28)';

SELECT taskq_router._define_insertion($head$taskq.insert_many(
        action text,
        bodies text[],
        ids text[] = NULL,
        priority integer = 0,
        max_tries integer = NULL,
        max_duration interval = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        depends_on text[] = NULL,
        to_signal_after text[] = NULL,
        spontaneous boolean = false,
        post_result boolean = false,
        group_id text = NULL,
        retention interval = NULL,
        metadata jsonb = NULL,
        backoff jsonb = NULL,
        workgroup text = NULL,
        merge_key text = NULL,
        seed boolean = false,
        on_conflict text = 'error',
        if_missing text = 'error',
        unique_by jsonb = NULL,
        retention_aborted interval = NULL,
        bodies_json jsonb = NULL,
        num_required integer = NULL,
        signal boolean = false,
        expires_at timestamptz = NULL,
        expires_in interval = NULL,
        max_run_time interval = NULL)
    RETURNS SETOF text$head$,
    $home$taskq_router._one_home(CASE WHEN $13 IS NULL THEN pg_catalog.array_fill(NULL::text, ARRAY[COALESCE(pg_catalog.cardinality($3), 0)]) ELSE ARRAY[$13] END,
        CASE WHEN $13 IS NULL THEN $3 END)$home$,
    $try$RETURN QUERY SELECT * FROM taskq_router._insert_many(at_shard, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)$try$);

SELECT taskq_router._define_insertion($head$taskq.insert_tasks(tasks jsonb, on_conflict text = 'error', if_missing text = 'error') RETURNS SETOF text$head$,
    $home$taskq_router._home_of_tasks($1)$home$,
    $try$RETURN QUERY SELECT * FROM taskq_router._insert_tasks(at_shard, $1, $2, $3)$try$);

SELECT taskq_router._define_insertion($head$taskq.replace_tasks(tasks jsonb, if_missing text = 'error') RETURNS SETOF text$head$,
    $home$taskq_router._home_of_tasks($1)$home$,
    $try$RETURN QUERY SELECT * FROM taskq_router._replace_tasks(at_shard, $1, $2)$try$);

SELECT taskq_router._define($head$taskq.update_tasks(
        task_ids text[] = NULL,
        priority integer = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        max_tries integer = NULL,
        max_duration interval = NULL,
        body text = NULL,
        metadata jsonb = NULL,
        if_started text = 'error',
        groups text[] = NULL,
        actions text[] = NULL)
    RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    IF $1 IS NOT NULL THEN
        at_shard := taskq_router._one_place($1);
        RETURN taskq_router._update_tasks(at_shard, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
    END IF;
    FOREACH at_shard IN ARRAY taskq_router._places($1, $10) LOOP
        done := done + taskq_router._update_tasks(at_shard, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
    END LOOP;
    RETURN done;$body$);

-- Dependencies: within a shard.

SELECT taskq_router._define($head$taskq.add_dependencies(after text[], run text[], condition text = 'completed', if_missing text = 'error')
    RETURNS bigint$head$,
    $variables$$variables$, $body$
    at_shard := taskq_router._one_place($1 || $2);
    RETURN taskq_router._add_dependencies(at_shard, $1, $2, $3, $4);$body$);

SELECT taskq_router._define($head$taskq.add_dependencies(dependencies jsonb, named_only anyenum = NULL::taskq.named_only, if_missing text = 'error')
    RETURNS bigint$head$,
    $variables$$variables$, $body$
    at_shard := taskq_router._one_place(ARRAY(
        SELECT x.id FROM pg_catalog.jsonb_array_elements(CASE pg_catalog.jsonb_typeof($1) WHEN 'array' THEN $1 ELSE '[]' END) AS d(edge)
         CROSS JOIN LATERAL (VALUES (CASE pg_catalog.jsonb_typeof(d.edge) WHEN 'object' THEN d.edge ->> 'after' END),
                                    (CASE pg_catalog.jsonb_typeof(d.edge) WHEN 'object' THEN d.edge ->> 'run' END)) AS x(id)));
    RETURN taskq_router._add_dependencies_json(at_shard, $1, $3);$body$);

-- Owning: first what each has now, then a slice of the time asleep on one after the other.

SELECT taskq_router._define($head$taskq.own_tasks(
        actor_id text,
        max_tasks integer,
        actions text[],
        max_duration interval = NULL,
        wait interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text, token uuid, action text, body text, num_tries integer, num_failures integer, action_deadline timestamptz,
        checkpoint jsonb, results jsonb, priority integer, metadata jsonb, body_json jsonb, steps jsonb)$head$,
    $variables$more integer := $2;
    got integer;
    answered boolean := false;
    slice interval := taskq_router._setting('wait_slice', '200 milliseconds');
    until timestamptz := pg_catalog.clock_timestamp() + $5;
    nap interval;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._in_turn() LOOP
        BEGIN
            -- A negative wait is the shard's to refuse.
            RETURN QUERY SELECT * FROM taskq_router._own_tasks(at_shard, $1, more, $3, $4, CASE WHEN $5 < '0' THEN $5 END, $6, $7);
            GET DIAGNOSTICS got = ROW_COUNT;
            more := more - got;
            answered := true;
        EXCEPTION WHEN OTHERS THEN
            IF NOT taskq_router._pass_over(at_shard, SQLSTATE, SQLERRM, true) THEN
                RAISE;
            END IF;
        END;
        EXIT WHEN more <= 0;
    END LOOP;
    IF NOT answered THEN
        PERFORM taskq_router._none_up();
    END IF;
    WHILE more = $2 AND more > 0 AND until > pg_catalog.clock_timestamp() LOOP
        answered := false;
        FOREACH at_shard IN ARRAY taskq_router._in_turn() LOOP
            nap := LEAST(slice, until - pg_catalog.clock_timestamp());
            EXIT WHEN nap <= '0';
            BEGIN
                RETURN QUERY SELECT * FROM taskq_router._own_tasks(at_shard, $1, more, $3, $4, nap, $6, $7);
                GET DIAGNOSTICS got = ROW_COUNT;
                more := more - got;
                answered := true;
            EXCEPTION WHEN OTHERS THEN
                IF NOT taskq_router._pass_over(at_shard, SQLSTATE, SQLERRM, true) THEN
                    RAISE;
                END IF;
            END;
            EXIT WHEN more < $2;
        END LOOP;
        -- All of them are down: they are looked for again when retry_after has passed.
        IF NOT answered THEN
            PERFORM pg_catalog.pg_sleep_for(GREATEST(LEAST(slice, until - pg_catalog.clock_timestamp()), '0'));
        END IF;
    END LOOP;$body$);

SELECT taskq_router._define($head$taskq.extend_tasks_ownership(actor_id text, task_ids text[], tokens uuid[], max_duration interval, wait interval = NULL)
    RETURNS TABLE (task_id text, owned boolean)$head$,
    $variables$homes integer[];
    parts record;
    held boolean[];
    answers boolean[];
    failed_at integer;$variables$, $body$
    homes := taskq_router._homes_of($3);
    IF pg_catalog.cardinality(homes) <= 1 OR pg_catalog.cardinality($2) IS DISTINCT FROM pg_catalog.cardinality($3) THEN
        at_shard := COALESCE(homes[1], (taskq_router._all())[1]);
        RETURN QUERY SELECT * FROM taskq_router._extend_tasks_ownership(taskq_router._open(at_shard), $1, $2, $3, $4, $5);
        RETURN;
    END IF;
    -- Of several shards none is waited for: such a call only extends. Each gets its own; if one is down, the others have been extended when the error comes.
    FOR parts IN SELECT * FROM taskq_router._parts($2, $3) LOOP
        BEGIN
            at_shard := parts.shard;
            held := ARRAY(SELECT e.owned FROM taskq_router._extend_tasks_ownership(taskq_router._open(at_shard), $1, parts.ids, parts.tokens, $4, NULL) AS e);
            FOR n IN 1 .. pg_catalog.cardinality(held) LOOP
                answers[parts.places[n]] := held[n];
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS err_state = RETURNED_SQLSTATE, err_message = MESSAGE_TEXT, err_detail = PG_EXCEPTION_DETAIL,
                                    err_hint = PG_EXCEPTION_HINT;
            IF NOT taskq_router._pass_over(at_shard, err_state, err_message, true) THEN
                RAISE;
            END IF;
            failed_at := at_shard;
        END;
    END LOOP;
    IF failed_at IS NOT NULL THEN
        PERFORM taskq_router._refuse(failed_at, err_state, err_message, err_detail, err_hint);
    END IF;
    RETURN QUERY SELECT u.id, answers[u.n] FROM pg_catalog.unnest($2) WITH ORDINALITY AS u(id, n);$body$);

-- Returning: a token says where.

SELECT taskq_router._define($head$taskq.return_task(
        task_id text,
        token uuid,
        status_code text = 'completed',
        status text = NULL,
        result jsonb = NULL,
        retry_after interval = NULL,
        children jsonb = NULL,
        children_block boolean = false,
        delay_children interval = NULL,
        delay_workgroup interval = NULL,
        count_try boolean = true,
        depends_on jsonb = NULL,
        wait_at_most interval = NULL)
    RETURNS taskq.status_code$head$,
    $variables$$variables$, $body$
    at_shard := taskq_router._open(taskq_router._shard_of($2));
    IF $7 IS NOT NULL THEN
        PERFORM taskq_router._children_of(at_shard, $7);
    END IF;
    RETURN taskq_router._return_task(at_shard, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);$body$);

SELECT taskq_router._define($head$taskq.report_status(
        task_id text,
        token uuid,
        status text = NULL,
        progress double precision = NULL,
        checkpoint jsonb = NULL)
    RETURNS void$head$,
    $variables$$variables$, $body$
    at_shard := taskq_router._open(taskq_router._shard_of($2));
    PERFORM taskq_router._report_status(at_shard, $1, $2, $3, $4, $5);$body$);

SELECT taskq_router._define($head$taskq.save_step(
        task_id text,
        token uuid,
        step text,
        result jsonb = NULL,
        max_duration interval = NULL)
    RETURNS jsonb$head$,
    $variables$$variables$, $body$
    at_shard := taskq_router._open(taskq_router._shard_of($2));
    RETURN taskq_router._save_step(at_shard, $1, $2, $3, $4, $5);$body$);

SELECT taskq_router._define($head$taskq.rewind_task(task_id text, step text) RETURNS bigint$head$,
    $variables$$variables$, $body$
    at_shard := taskq_router._one_place(ARRAY[$1]);
    RETURN taskq_router._rewind_task(at_shard, $1, $2);$body$);

-- `return_tasks` and the like, of which each row says what became of it: one of a shard that is down says 08001 or 08006.

SELECT taskq_router._define($head$taskq_router._return_arrays(text[], uuid[], text, text, jsonb, interval, interval, boolean)
    RETURNS TABLE (task_id text, status_code taskq.status_code, sqlstate text)$head$,
    $variables$homes integer[] := taskq_router._homes_of($2);
    parts record;
    row record;
    n integer;
    codes text[];
    states text[];$variables$, $body$
    IF pg_catalog.cardinality(homes) <= 1 OR pg_catalog.cardinality($1) IS DISTINCT FROM pg_catalog.cardinality($2) THEN
        at_shard := taskq_router._open(COALESCE(homes[1], (taskq_router._all())[1]));
        RETURN QUERY SELECT * FROM taskq_router._return_tasks(at_shard, $1, $2, $3, $4, $5, $6, $7, $8);
        RETURN;
    END IF;
    FOR parts IN SELECT * FROM taskq_router._parts($1, $2) LOOP
        BEGIN
            at_shard := parts.shard;
            n := 0;
            FOR row IN SELECT * FROM taskq_router._return_tasks(taskq_router._open(at_shard), parts.ids, parts.tokens, $3, $4, $5, $6, $7, $8) LOOP
                n := n + 1;
                codes[parts.places[n]] := row.status_code;
                states[parts.places[n]] := row.sqlstate;
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            IF NOT taskq_router._pass_over(at_shard, SQLSTATE, SQLERRM, true) THEN
                RAISE;
            END IF;
            FOREACH n IN ARRAY parts.places LOOP
                states[n] := CASE taskq_router._kind(SQLSTATE, SQLERRM) WHEN 'lost' THEN '08006' ELSE '08001' END;
            END LOOP;
        END;
    END LOOP;
    RETURN QUERY SELECT u.id, codes[u.n]::taskq.status_code, states[u.n] FROM pg_catalog.unnest($1) WITH ORDINALITY AS u(id, n);$body$);

CREATE FUNCTION taskq.return_tasks(
        task_ids text[],
        tokens uuid[],
        status_code text = 'completed',
        status text = NULL,
        result jsonb = NULL,
        retry_after interval = NULL,
        delay_workgroup interval = NULL,
        count_try boolean = true)
    RETURNS TABLE (task_id text, status_code taskq.status_code, sqlstate text) LANGUAGE sql
    AS 'SELECT * FROM taskq_router._return_arrays($1, $2, $3, $4, $5, $6, $7, $8)';

SELECT taskq_router._define($head$taskq.return_tasks(returns jsonb)
    RETURNS TABLE (task_id text, status_code taskq.status_code, sqlstate text)$head$,
    $variables$homes integer[] := taskq_router._homes_of(taskq_router._tokens_in($1));
    parts record;
    row record;
    n integer;
    codes text[];
    states text[];$variables$, $body$
    IF pg_catalog.cardinality(homes) <= 1 THEN
        at_shard := taskq_router._open(COALESCE(homes[1], (taskq_router._all())[1]));
        PERFORM taskq_router._children_of(at_shard, x.e -> 'children') FROM pg_catalog.jsonb_array_elements(
            CASE WHEN homes[1] IS NOT NULL THEN $1 ELSE '[]' END) AS x(e) WHERE x.e ? 'children';
        RETURN QUERY SELECT * FROM taskq_router._return_tasks_json(at_shard, $1);
        RETURN;
    END IF;
    FOR parts IN SELECT * FROM taskq_router._parts_of_returns($1) LOOP
        BEGIN
            at_shard := parts.shard;
            PERFORM taskq_router._children_of(at_shard, x.e -> 'children') FROM pg_catalog.jsonb_array_elements(parts.returns) AS x(e)
             WHERE x.e ? 'children';
            n := 0;
            FOR row IN SELECT * FROM taskq_router._return_tasks_json(taskq_router._open(at_shard), parts.returns) LOOP
                n := n + 1;
                codes[parts.places[n]] := row.status_code;
                states[parts.places[n]] := row.sqlstate;
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            IF NOT taskq_router._pass_over(at_shard, SQLSTATE, SQLERRM, true) THEN
                RAISE;
            END IF;
            FOREACH n IN ARRAY parts.places LOOP
                states[n] := CASE taskq_router._kind(SQLSTATE, SQLERRM) WHEN 'lost' THEN '08006' ELSE '08001' END;
            END LOOP;
        END;
    END LOOP;
    RETURN QUERY SELECT u.e ->> 'task_id', codes[u.n]::taskq.status_code, states[u.n]
                   FROM pg_catalog.jsonb_array_elements($1) WITH ORDINALITY AS u(e, n);$body$);

-- Returns and owns on the shard of the tokens, so that a worker in steady state makes one call; one call in four owns elsewhere, so
-- that no shard is left out while another always has something. What it comes short of the others are asked for.

SELECT taskq_router._define($head$taskq.return_and_own_tasks(
        actor_id text,
        returns jsonb,
        max_tasks integer,
        actions text[],
        max_duration interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text, token uuid, action text, body text, num_tries integer, num_failures integer, action_deadline timestamptz,
        checkpoint jsonb, results jsonb, priority integer, metadata jsonb, body_json jsonb, steps jsonb, sqlstate text)$head$,
    $variables$homes integer[] := taskq_router._homes_of(taskq_router._tokens_in($2));
    more integer := $3;
    got integer;$variables$, $body$
    -- What is malformed a shard refuses.
    IF homes IS NULL OR more IS NULL OR more < 0 OR pg_catalog.cardinality(homes) = 1 AND pg_catalog.random() < 0.75 THEN
        at_shard := taskq_router._open(COALESCE(homes[1], (taskq_router._all())[1]));
        PERFORM taskq_router._children_of(at_shard, x.e -> 'children') FROM pg_catalog.jsonb_array_elements(
            CASE WHEN homes IS NOT NULL THEN $2 ELSE '[]' END) AS x(e) WHERE x.e ? 'children';
        RETURN QUERY SELECT * FROM taskq_router._return_and_own_tasks(at_shard, $1, $2, $3, $4, $5, $6, $7);
        GET DIAGNOSTICS got = ROW_COUNT;
    ELSE
        RETURN QUERY SELECT r.task_id, NULL::uuid, NULL::text, NULL::text, NULL::integer, NULL::integer, NULL::timestamptz, NULL::jsonb,
                            NULL::jsonb, NULL::integer, NULL::jsonb, NULL::jsonb, NULL::jsonb, r.sqlstate
                       FROM taskq.return_tasks($2) AS r WHERE r.sqlstate IS NOT NULL;
        got := 0;
    END IF;
    -- Where the returns are done, a shard that cannot be reached is no reason to say otherwise.
    more := more - got;
    FOREACH at_shard IN ARRAY taskq_router._in_turn() LOOP
        EXIT WHEN more <= 0;
        BEGIN
            RETURN QUERY SELECT o.*, NULL::text FROM taskq_router._own_tasks(at_shard, $1, more, $4, $5, NULL, $6, $7) AS o;
            GET DIAGNOSTICS got = ROW_COUNT;
            more := more - got;
        EXCEPTION WHEN OTHERS THEN
            IF NOT taskq_router._pass_over(at_shard, SQLSTATE, SQLERRM, true) THEN
                RAISE;
            END IF;
        END;
    END LOOP;$body$);

SELECT taskq_router._define($head$taskq.return_and_own_tasks(
        actor_id text,
        task_ids text[],
        tokens uuid[],
        max_tasks integer,
        actions text[],
        max_duration interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text, token uuid, action text, body text, num_tries integer, num_failures integer, action_deadline timestamptz,
        checkpoint jsonb, results jsonb, priority integer, metadata jsonb, body_json jsonb, steps jsonb, sqlstate text)$head$,
    $variables$homes integer[] := CASE WHEN pg_catalog.cardinality($2) = pg_catalog.cardinality($3) THEN taskq_router._homes_of($3) END;
    more integer := $4;
    got integer;$variables$, $body$
    -- What is malformed a shard refuses.
    IF homes IS NULL OR more IS NULL OR more < 0 OR pg_catalog.cardinality(homes) = 1 AND pg_catalog.random() < 0.75 THEN
        at_shard := taskq_router._open(COALESCE(homes[1], (taskq_router._all())[1]));
        RETURN QUERY SELECT * FROM taskq_router._return_arrays_and_own_tasks(at_shard, $1, $2, $3, $4, $5, $6, $7, $8);
        GET DIAGNOSTICS got = ROW_COUNT;
    ELSE
        RETURN QUERY SELECT r.task_id, NULL::uuid, NULL::text, NULL::text, NULL::integer, NULL::integer, NULL::timestamptz, NULL::jsonb,
                            NULL::jsonb, NULL::integer, NULL::jsonb, NULL::jsonb, NULL::jsonb, r.sqlstate
                       FROM taskq.return_tasks($2, $3) AS r WHERE r.sqlstate IS NOT NULL;
        got := 0;
    END IF;
    -- Where the returns are done, a shard that cannot be reached is no reason to say otherwise.
    more := more - got;
    FOREACH at_shard IN ARRAY taskq_router._in_turn() LOOP
        EXIT WHEN more <= 0;
        BEGIN
            RETURN QUERY SELECT o.*, NULL::text FROM taskq_router._own_tasks(at_shard, $1, more, $5, $6, NULL, $7, $8) AS o;
            GET DIAGNOSTICS got = ROW_COUNT;
            more := more - got;
        EXCEPTION WHEN OTHERS THEN
            IF NOT taskq_router._pass_over(at_shard, SQLSTATE, SQLERRM, true) THEN
                RAISE;
            END IF;
        END;
    END LOOP;$body$);

-- Waiting.

SELECT taskq_router._define($head$taskq_router._wait_for_task(text, interval)
    RETURNS TABLE (task_id text, status_code taskq.status_code, status text, result jsonb, settled_at timestamptz)$head$,
    $variables$slice CONSTANT interval := '1 minute';
    until timestamptz;$variables$, $body$
    -- In parts: the task may be moved meanwhile.
    IF $2 > slice THEN
        until := pg_catalog.clock_timestamp() + $2;
    END IF;
    LOOP
        at_shard := taskq_router._place_of($1);
        RETURN QUERY SELECT * FROM taskq_router._wait_for_task(at_shard, $1, CASE WHEN until IS NULL THEN $2
            ELSE GREATEST(LEAST(slice, until - pg_catalog.clock_timestamp()), '0') END);
        EXIT WHEN FOUND OR until IS NULL OR until <= pg_catalog.clock_timestamp();
    END LOOP;$body$);

CREATE FUNCTION taskq.wait_for_task(task_id text, timeout interval = '10 seconds')
    RETURNS TABLE (task_id text, status_code taskq.status_code, status text, result jsonb, settled_at timestamptz) LANGUAGE sql
    AS 'SELECT * FROM taskq_router._wait_for_task($1, $2)';

-- All of them are settled when each is; they are waited for one after the other, and no transaction is open in between.
CREATE PROCEDURE taskq.wait_for_tasks(task_ids text[], timeout interval, INOUT num_settled integer = NULL) LANGUAGE plpgsql
AS $$
DECLARE
    until timestamptz := pg_catalog.clock_timestamp() + $2;
    id text;
    settled integer := 0;
BEGIN
    IF $1 IS NULL OR $2 IS NULL THEN
        PERFORM taskq_router._raise('22004', 'arguments must not be NULL', 'NULL was given.', 'Give ids and a time.');
    ELSIF $2 < '0' THEN
        PERFORM taskq_router._raise('22023', 'argument "timeout" must not be negative', pg_catalog.format('It is %s.', $2), 'Give 0 to look once.');
    END IF;
    COMMIT;
    FOR id IN SELECT DISTINCT u.i FROM pg_catalog.unnest($1) AS u(i) LOOP
        IF EXISTS (SELECT FROM taskq.wait_for_task(id, GREATEST(until - pg_catalog.clock_timestamp(), '0'))) THEN
            settled := settled + 1;
        END IF;
        COMMIT;
    END LOOP;
    num_settled := settled;
END
$$;

-- By id.

SELECT taskq_router._define($head$taskq.complete_task(task_id text, result jsonb = NULL, status text = NULL) RETURNS taskq.status_code$head$,
    $variables$$variables$, $body$
    at_shard := taskq_router._one_place(ARRAY[$1]);
    RETURN taskq_router._complete_task(at_shard, $1, $2, $3);$body$);

-- By filters: on every shard, or, where only ids or groups are given, on those that have them; the sum. There is one transaction
-- on each, one after the other: what is done on some stays done if a later one refuses.

SELECT taskq_router._define($head$taskq.cancel_tasks(
        task_ids text[] = NULL,
        status text = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        max_tasks integer = NULL)
    RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places($1, $4) LOOP
        done := done + taskq_router._cancel_tasks(at_shard, $1, $2, $3, $4, $5, ($6 - done)::integer);
        EXIT WHEN done >= $6;
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.release_tasks(
        task_ids text[] = NULL,
        actors text[] = NULL,
        actions text[] = NULL,
        status text = NULL)
    RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places($1, NULL) LOOP
        done := done + taskq_router._release_tasks(at_shard, $1, $2, $3, $4);
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.delete_tasks(
        task_ids text[] = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        causes text[] = NULL,
        settled_since timestamptz = NULL,
        settled_until timestamptz = NULL,
        max_tasks integer = NULL)
    RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places($1, $3) LOOP
        done := done + taskq_router._delete_tasks(at_shard, $1, $2, $3, $4, $5, $6, $7, ($8 - done)::integer);
        EXIT WHEN done >= $8;
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.retry_tasks(
        task_ids text[] = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        causes text[] = NULL,
        settled_since timestamptz = NULL,
        settled_until timestamptz = NULL,
        max_tasks integer = NULL)
    RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places($1, $3) LOOP
        done := done + taskq_router._retry_tasks(at_shard, $1, $2, $3, $4, $5, $6, $7, ($8 - done)::integer);
        EXIT WHEN done >= $8;
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.rerun_tasks(task_ids text[], downstream boolean = true) RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places($1, NULL) LOOP
        done := done + taskq_router._rerun_tasks(at_shard, $1, $2);
    END LOOP;
    RETURN done;$body$);

-- Groups: where they are.

SELECT taskq_router._define($head$taskq.pause_group(group_id text) RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places_of_group($1, true) LOOP
        done := done + taskq_router._pause_group(at_shard, $1);
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.resume_group(group_id text) RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places_of_group($1, true) LOOP
        done := done + taskq_router._resume_group(at_shard, $1);
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.cancel_group(group_id text) RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places_of_group($1, true) LOOP
        done := done + taskq_router._cancel_group(at_shard, $1);
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.delete_group(group_id text) RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places_of_group($1, true) LOOP
        done := done + taskq_router._delete_group(at_shard, $1);
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.retry_group(group_id text) RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places_of_group($1, true) LOOP
        done := done + taskq_router._retry_group(at_shard, $1);
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.reset_group(group_id text) RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places_of_group($1, true) LOOP
        done := done + taskq_router._reset_group(at_shard, $1);
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.set_group(group_id text, max_concurrency integer = NULL, weight integer = NULL, clear text[] = NULL) RETURNS void$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._places_of_group($1, true) LOOP
        PERFORM taskq_router._set_group(at_shard, $1, $2, $3, $4);
    END LOOP;$body$);

-- Settings for actions go to all shards, the closed ones excepted, and count on each: a limit of 10 on three shards is one of 30. A
-- shard that is down refuses; then those before it have them, and the call may be repeated.

SELECT taskq_router._define($head$taskq.set_action(
        action text,
        max_tries integer = NULL,
        max_duration interval = NULL,
        backoff jsonb = NULL,
        max_concurrency integer = NULL,
        rate_limit integer = NULL,
        rate_period interval = NULL,
        retention interval = NULL,
        notify boolean = NULL,
        on_timeout text = NULL,
        max_timeouts integer = NULL,
        clear text[] = NULL,
        retention_aborted interval = NULL,
        fair boolean = NULL,
        max_per_group integer = NULL,
        expires_in interval = NULL,
        max_run_time interval = NULL)
    RETURNS void$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        PERFORM taskq_router._set_action(taskq_router._open(at_shard), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);
    END LOOP;$body$);

SELECT taskq_router._define($head$taskq.pause_action(action text) RETURNS boolean$head$,
    $variables$done boolean := false;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        done := taskq_router._pause_action(taskq_router._open(at_shard), $1) OR done;
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.resume_action(action text) RETURNS boolean$head$,
    $variables$done boolean := false;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        done := taskq_router._resume_action(taskq_router._open(at_shard), $1) OR done;
    END LOOP;
    RETURN done;$body$);

SELECT taskq_router._define($head$taskq.forget_action(action text) RETURNS void$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        PERFORM taskq_router._forget_action(taskq_router._open(at_shard), $1);
    END LOOP;$body$);

SELECT taskq_router._define($head$taskq.delay_workgroup(workgroup text, delay interval) RETURNS timestamptz$head$,
    $variables$til timestamptz;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        til := GREATEST(til, taskq_router._delay_workgroup(taskq_router._open(at_shard), $1, $2));
    END LOOP;
    RETURN til;$body$);

SELECT taskq_router._define($head$taskq.maintain() RETURNS bigint$head$,
    $variables$done bigint := 0;$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        done := done + taskq_router._maintain(taskq_router._open(at_shard));
    END LOOP;
    RETURN done;$body$);

-- Looking. Of several shards, so each as it was when it was asked, one after the other.

SELECT taskq_router._define($head$taskq_router._counts(text[], text[], text[], text[]) RETURNS TABLE (action text, state text, count bigint)$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        RETURN QUERY SELECT c.action, c.state, c.count FROM taskq_router._count_tasks(taskq_router._open(at_shard), $1, $2, $3, $4) AS c;
    END LOOP;$body$);

CREATE FUNCTION taskq.count_tasks(actions text[] = NULL, ids text[] = NULL, groups text[] = NULL, states text[] = NULL)
    RETURNS TABLE (action text, state text, count bigint) LANGUAGE sql
    AS 'SELECT c.action, c.state, pg_catalog.sum(c.count)::bigint FROM taskq_router._counts($1, $2, $3, $4) AS c GROUP BY 1, 2 ORDER BY 1, 2';

SELECT taskq_router._define($head$taskq.why(task_id text) RETURNS SETOF text$head$,
    $variables$$variables$, $body$
    at_shard := taskq_router._place_of($1);
    RETURN QUERY SELECT * FROM taskq_router._why(at_shard, $1);$body$);

SELECT taskq_router._define($head$taskq.graph(task_id text, format text = 'text', max_tasks integer = 500, skip integer = 0) RETURNS text$head$,
    $variables$$variables$, $body$
    -- A task, or a group.
    SELECT f.shard INTO at_shard FROM taskq_router._find(ARRAY[$1]) AS f LIMIT 1;
    at_shard := COALESCE(at_shard, taskq_router._home($1, NULL, false), (taskq_router._all())[1]);
    RETURN taskq_router._graph(at_shard, $1, $2, $3, $4);$body$);

SELECT taskq_router._define($head$taskq_router._all_metrics(boolean) RETURNS TABLE (shard integer, name text, labels jsonb, value double precision)$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        RETURN QUERY SELECT at_shard, m.* FROM taskq_router._metrics_rows(taskq_router._open(at_shard), $1) AS m;
    END LOOP;$body$);

-- Sums, but for the age of the oldest, which is that of the oldest of all.
CREATE FUNCTION taskq.metrics_rows(kept boolean = true) RETURNS TABLE (name text, labels jsonb, value double precision) LANGUAGE sql
AS $$
    SELECT m.name, m.labels, CASE WHEN m.name LIKE '%age_seconds' THEN pg_catalog.max(m.value) ELSE pg_catalog.sum(m.value) END
      FROM taskq_router._all_metrics($1) AS m GROUP BY m.name, m.labels ORDER BY m.name, m.labels
$$;
CREATE FUNCTION taskq.metrics(kept boolean = true) RETURNS text LANGUAGE sql
AS $$
    WITH family AS MATERIALIZED (
        SELECT pg_catalog.regexp_replace(m.name, '_total$', '') AS name, m.name LIKE '%\_total' AS counts,
               m.name || COALESCE('{' || (SELECT pg_catalog.string_agg(
                   l.key || '="' || pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(l.value, '\', '\\'), '"', '\"'), E'\n', '\n') || '"', ','
                   ORDER BY l.key) FROM pg_catalog.jsonb_each_text(m.labels) AS l) || '}', '') || ' ' || m.value AS line
          FROM taskq.metrics_rows($1) AS m)
    SELECT COALESCE(pg_catalog.string_agg(f.text, '' ORDER BY f.name), '') || E'# EOF\n'
      FROM (SELECT x.name, '# TYPE ' || x.name || CASE WHEN x.counts THEN ' counter' ELSE ' gauge' END || E'\n'
                   || pg_catalog.string_agg(x.line, E'\n' ORDER BY x.line) || E'\n' AS text
              FROM family AS x GROUP BY x.name, x.counts) AS f
$$;

SELECT taskq_router._define($head$taskq_router._all_tasks() RETURNS TABLE (id text, action text, body text, status_code taskq.status_code, status text, num_tries integer, max_tries integer,
        num_signals integer, total_dependencies integer, num_failures integer, actor_id text, action_deadline timestamptz, result jsonb,
        priority integer, not_before timestamptz, group_id text, workgroup text, merge_key text, metadata jsonb, inserted_at timestamptz,
        owned_at timestamptz, settled_at timestamptz, state text, shard integer)$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        RETURN QUERY SELECT x.*, at_shard FROM taskq_router._tasks(taskq_router._open(at_shard)) AS x;
    END LOOP;$body$);

CREATE VIEW taskq.tasks AS SELECT * FROM taskq_router._all_tasks();
COMMENT ON VIEW taskq.tasks IS 'every task of every shard, all of them brought here before any condition is looked at: for small queues';

SELECT taskq_router._define($head$taskq_router._all_dependencies() RETURNS TABLE (after text, run text, condition taskq.dependency_condition, settled boolean)$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        RETURN QUERY SELECT x.* FROM taskq_router._dependencies(taskq_router._open(at_shard)) AS x;
    END LOOP;$body$);

CREATE VIEW taskq.dependencies AS SELECT * FROM taskq_router._all_dependencies();

SELECT taskq_router._define($head$taskq_router._all_actors() RETURNS TABLE (actor_id text, task_id text, action text, action_deadline timestamptz, overdue boolean)$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        RETURN QUERY SELECT x.* FROM taskq_router._actors(taskq_router._open(at_shard)) AS x;
    END LOOP;$body$);

CREATE VIEW taskq.actors AS SELECT * FROM taskq_router._all_actors();

SELECT taskq_router._define($head$taskq_router._all_groups() RETURNS TABLE (group_id text, paused boolean, blocked bigint, scheduled bigint, ready bigint, "in-progress" bigint, completed bigint,
        aborted bigint, progress double precision, skipped bigint, shard integer)$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        RETURN QUERY SELECT x.*, at_shard FROM taskq_router._groups(taskq_router._open(at_shard)) AS x;
    END LOOP;$body$);

CREATE VIEW taskq.groups AS
SELECT g.group_id, pg_catalog.bool_and(g.paused) AS paused, pg_catalog.sum(g.blocked)::bigint AS blocked, pg_catalog.sum(g.scheduled)::bigint AS scheduled,
       pg_catalog.sum(g.ready)::bigint AS ready, pg_catalog.sum(g."in-progress")::bigint AS "in-progress", pg_catalog.sum(g.completed)::bigint AS completed,
       pg_catalog.sum(g.aborted)::bigint AS aborted,
       pg_catalog.sum(g.completed + g.aborted + g.skipped)
           / pg_catalog.sum(g.blocked + g.scheduled + g.ready + g."in-progress" + g.completed + g.aborted + g.skipped)::double precision AS progress,
       pg_catalog.array_agg(g.shard ORDER BY g.shard) AS shards,
       pg_catalog.sum(g.skipped)::bigint AS skipped
  FROM taskq_router._all_groups() AS g
 -- What is on its way is counted once.
 WHERE NOT EXISTS (SELECT FROM taskq_router.moved AS m WHERE m.group_id = g.group_id AND g.shard IN (m.going_to, m.left_on))
 GROUP BY g.group_id;

SELECT taskq_router._define($head$taskq_router._all_stats() RETURNS TABLE (action text, blocked bigint, scheduled bigint, ready bigint, "in-progress" bigint, completed bigint, aborted bigint,
        oldest_ready timestamptz, settled_last_minute bigint, waiting_p50 interval, waiting_p99 interval, running_p50 interval,
        running_p99 interval, skipped bigint)$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        RETURN QUERY SELECT x.* FROM taskq_router._stats(taskq_router._open(at_shard)) AS x;
    END LOOP;$body$);

-- Percentiles of parts do not make one of the whole: the greatest of them is what it does not exceed.
CREATE VIEW taskq.stats AS
SELECT s.action, pg_catalog.sum(s.blocked)::bigint AS blocked, pg_catalog.sum(s.scheduled)::bigint AS scheduled, pg_catalog.sum(s.ready)::bigint AS ready,
       pg_catalog.sum(s."in-progress")::bigint AS "in-progress", pg_catalog.sum(s.completed)::bigint AS completed, pg_catalog.sum(s.aborted)::bigint AS aborted,
       pg_catalog.min(s.oldest_ready) AS oldest_ready, pg_catalog.sum(s.settled_last_minute)::bigint AS settled_last_minute,
       pg_catalog.max(s.waiting_p50) AS waiting_p50, pg_catalog.max(s.waiting_p99) AS waiting_p99, pg_catalog.max(s.running_p50) AS running_p50,
       pg_catalog.max(s.running_p99) AS running_p99, pg_catalog.sum(s.skipped)::bigint AS skipped
  FROM taskq_router._all_stats() AS s GROUP BY s.action;

SELECT taskq_router._define($head$taskq.check() RETURNS TABLE (violation text, shard integer)$head$,
    $variables$$variables$, $body$
    FOREACH at_shard IN ARRAY taskq_router._all() LOOP
        RETURN QUERY SELECT x, at_shard FROM taskq_router._check(taskq_router._open(at_shard)) AS x;
    END LOOP;$body$);

-- The problems of all shards; one that cannot be asked is one, and not an error.
CREATE FUNCTION taskq.health()
    RETURNS TABLE (severity text, problem text, advice text, kind text, subject text, since timestamptz, shard integer) LANGUAGE plpgsql
AS $$
DECLARE
    s record;
BEGIN
    FOR s IN SELECT l.* FROM taskq_router.look() AS l WHERE l.problem IS NOT NULL LOOP
        RETURN QUERY SELECT 'error'::text, s.problem, 'Nothing is owned there and calls that need it are refused, until it is back.'::text,
                            'shard'::text, s.shard::text, NULL::timestamptz, s.shard;
    END LOOP;
    FOR s IN SELECT l.* FROM taskq_router.look() AS l WHERE l.problem IS NULL LOOP
        RETURN QUERY SELECT h ->> 'severity', h ->> 'problem', h ->> 'advice', h ->> 'kind', h ->> 'subject', (h ->> 'since')::timestamptz, s.shard
                       FROM taskq_router._health(s.shard) AS h;
    END LOOP;
END
$$;
CREATE FUNCTION taskq.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp()';

-- What reads no table is here: the builders ----------------------------------------------------------------------------
--
-- taskq.chain and its like make arrays for insert_tasks and touch no queue; a client that wants them asks any shard.

-- Administering ----------------------------------------------------------------------------------------------------------

-- How each shard is: NULL in `problem` if it answers and is what the table says.
CREATE FUNCTION taskq_router.look() RETURNS TABLE (shard integer, connect text, problem text) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    s record;
    n integer;
BEGIN
    FOR s IN SELECT x.shard, x.closed, (SELECT f.srvoptions FROM pg_catalog.pg_foreign_server AS f
                                        WHERE f.srvname = taskq_router._server(x.shard)) AS options
               FROM taskq_router.shards AS x ORDER BY x.shard LOOP
        shard := s.shard;
        connect := (SELECT pg_catalog.substr(o, 4) FROM pg_catalog.unnest(s.options) AS o WHERE o LIKE 'p0=%');
        problem := NULL;
        IF s.closed THEN
            problem := pg_catalog.format('shard %s is closed', s.shard);
        ELSE
            BEGIN
                n := taskq_router._shard(s.shard);
                IF n <> s.shard THEN
                    problem := pg_catalog.format('the server of shard %s is shard %s', s.shard, n);
                END IF;
            EXCEPTION WHEN OTHERS THEN
                problem := pg_catalog.format('shard %s: %s', s.shard, pg_catalog.regexp_replace(SQLERRM, '^PL/Proxy function [^:]*: ', ''));
            END;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION taskq_router.connect_shard(shard integer, connect text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_foreign_server AS f WHERE f.srvname = taskq_router._server($1)) THEN
        EXECUTE pg_catalog.format('ALTER SERVER %I OPTIONS (SET p0 %L)', taskq_router._server($1), $2);
    ELSE
        EXECUTE pg_catalog.format('CREATE SERVER %I FOREIGN DATA WRAPPER plproxy OPTIONS (p0 %L)', taskq_router._server($1), $2);
        -- The role that calls; ALTER USER MAPPING gives others and passwords.
        EXECUTE pg_catalog.format('CREATE USER MAPPING FOR PUBLIC SERVER %I', taskq_router._server($1));
        EXECUTE pg_catalog.format('GRANT USAGE ON FOREIGN SERVER %I TO PUBLIC', taskq_router._server($1));
    END IF;
END
$$;
COMMENT ON FUNCTION taskq_router.connect_shard IS 'point the router at the server of a shard: its first, or one that has taken its place';

-- Shards that the router does not know yet. With the first ones the hashes are divided among them; later each of those
-- that are there gives a part of its hashes to the new ones, which from then on have groups that no shard has yet.
CREATE FUNCTION taskq_router.add_shards(VARIADIC connects text[]) RETURNS SETOF integer LANGUAGE plpgsql
AS $$
DECLARE
    whole CONSTANT bigint := 4294967296;
    n integer;
    number integer;
    new integer[];
    last taskq_router.versions;
BEGIN
    LOCK TABLE taskq_router.shards, taskq_router.versions IN SHARE ROW EXCLUSIVE MODE;
    FOR n IN 1 .. pg_catalog.cardinality($1) LOOP
        -- Its number it knows itself.
        number := taskq_router._number_of($1[n]);
        IF EXISTS (SELECT FROM taskq_router.shards AS s WHERE s.shard = number) THEN
            PERFORM taskq_router._raise('22023', pg_catalog.format('there is a shard %s already', number), pg_catalog.format('It is asked for at %s.', $1[n]),
                'Give each server a number of its own with taskq.set_shard before its first task; connect_shard changes where a shard is.');
        END IF;
        PERFORM taskq_router.connect_shard(number, $1[n]);
        INSERT INTO taskq_router.shards (shard) VALUES (number);
        new := new || number;
        RETURN NEXT number;
    END LOOP;
    SELECT * INTO last FROM taskq_router.versions AS v ORDER BY v.version DESC LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO taskq_router.versions (version, lows, shards)
        SELECT 1, pg_catalog.array_agg(whole * (u.n - 1) / pg_catalog.cardinality(new) ORDER BY u.n), pg_catalog.array_agg(u.s ORDER BY u.n)
          FROM pg_catalog.unnest(new) WITH ORDINALITY AS u(s, n);
    ELSE
        INSERT INTO taskq_router.versions (version, lows, shards)
        SELECT last.version + 1, d.lows, d.shards FROM taskq_router._divided(last.lows, last.shards, new) AS d;
    END IF;
END
$$;
COMMENT ON FUNCTION taskq_router.add_shards IS 'add servers, each with a number that taskq.set_shard has given it; returns the numbers';

-- Each shard gives of its longest ranges what is too much; the new ones take that in turn.
CREATE FUNCTION taskq_router._divided(INOUT lows bigint[], INOUT shards integer[], new integer[]) LANGUAGE plpgsql
AS $$
DECLARE
    whole CONSTANT bigint := 4294967296;
    fair bigint := whole / (pg_catalog.cardinality(new) + (SELECT pg_catalog.count(DISTINCT u.s) FROM pg_catalog.unnest($2) AS u(s)));
    pool bigint[] := ARRAY(SELECT fair FROM pg_catalog.unnest(new)); -- what each new one has still to get
    old integer;
    much bigint;
    r record;
    piece bigint;
    i integer;
BEGIN
    FOR old IN SELECT DISTINCT u.s FROM pg_catalog.unnest($2) AS u(s) ORDER BY u.s LOOP
        LOOP
            SELECT pg_catalog.sum(x.size) - fair INTO much FROM taskq_router._sizes(lows, shards) AS x WHERE x.shard = old;
            EXIT WHEN much <= 0;
            SELECT x.* INTO r FROM taskq_router._sizes(lows, shards) AS x WHERE x.shard = old ORDER BY x.size DESC, x.low LIMIT 1;
            SELECT u.n INTO i FROM pg_catalog.unnest(pool) WITH ORDINALITY AS u(p, n) WHERE u.p > 0 ORDER BY u.n LIMIT 1;
            EXIT WHEN i IS NULL;
            -- The upper end of it; all of it, if it is no longer.
            piece := LEAST(much, r.size, pool[i]);
            IF piece = r.size THEN
                shards[r.place] := new[i];
            ELSE
                lows := lows[:r.place] || (r.low + r.size - piece) || lows[r.place + 1:];
                shards := shards[:r.place] || new[i] || shards[r.place + 1:];
            END IF;
            pool[i] := pool[i] - piece;
        END LOOP;
    END LOOP;
END
$$;

CREATE FUNCTION taskq_router._sizes(lows bigint[], shards integer[]) RETURNS TABLE (place integer, low bigint, size bigint, shard integer)
LANGUAGE sql IMMUTABLE
AS $$
    SELECT u.n::integer, u.low, COALESCE(pg_catalog.lead(u.low) OVER (ORDER BY u.n), 4294967296) - u.low, u.s
      FROM unnest($1, $2) WITH ORDINALITY AS u(low, s, n)
$$;

CREATE FUNCTION taskq_router._number_of(connect text) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    number integer;
BEGIN
    EXECUTE pg_catalog.format('CREATE SERVER taskq_shard_new FOREIGN DATA WRAPPER plproxy OPTIONS (p0 %L)', $1);
    CREATE USER MAPPING FOR PUBLIC SERVER taskq_shard_new;
    number := taskq_router._new_shard();
    DROP SERVER taskq_shard_new CASCADE;
    RETURN number;
END
$$;
CREATE FUNCTION taskq_router._new_shard() RETURNS integer LANGUAGE plproxy SET client_min_messages = warning
AS $$ CLUSTER 'taskq_shard_new'; RUN ON 0; SELECT taskq.shard(); $$;

-- Forgets older versions that no group needs any more; returns how many are left.
CREATE FUNCTION taskq_router.forget_versions() RETURNS bigint LANGUAGE plpgsql
AS $$
DECLARE
    v record;
    newest taskq_router.versions;
    s integer;
    key text;
BEGIN
    LOCK TABLE taskq_router.versions IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO newest FROM taskq_router.versions AS x ORDER BY x.version DESC LIMIT 1;
    FOR v IN SELECT * FROM taskq_router.versions AS x WHERE x.version < newest.version ORDER BY x.version LOOP
        FOREACH s IN ARRAY ARRAY(SELECT DISTINCT u.s FROM pg_catalog.unnest(v.shards) AS u(s)) LOOP
            FOR key IN SELECT x.key FROM taskq_router._keys(taskq_router._open(s)) AS x(key) LOOP
                IF v.shards[pg_catalog.width_bucket(taskq_router.hash(key), v.lows)] = s
                   AND newest.shards[pg_catalog.width_bucket(taskq_router.hash(key), newest.lows)] <> s
                   AND NOT EXISTS (SELECT FROM taskq_router.moved AS m WHERE m.group_id = key) THEN
                    RETURN (SELECT pg_catalog.count(*) FROM taskq_router.versions);
                END IF;
            END LOOP;
        END LOOP;
        DELETE FROM taskq_router.versions AS x WHERE x.version = v.version;
    END LOOP;
    RETURN (SELECT pg_catalog.count(*) FROM taskq_router.versions);
END
$$;
SELECT taskq_router._proxy('_keys', '', 'SETOF text',
    'SELECT group_id FROM taskq.groups UNION ALL SELECT id FROM taskq.tasks WHERE group_id IS NULL');

CREATE FUNCTION taskq_router.close_shard(shard integer) RETURNS void LANGUAGE sql
AS $$ UPDATE taskq_router.shards SET closed = true WHERE shards.shard = $1 $$;
COMMENT ON FUNCTION taskq_router.close_shard IS 'ask a shard for nothing: for one that hangs, or is being repaired';
CREATE FUNCTION taskq_router.open_shard(shard integer) RETURNS void LANGUAGE sql
AS $$ UPDATE taskq_router.shards SET closed = false WHERE shards.shard = $1 $$;

CREATE FUNCTION taskq_router.grant_use(role regrole) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA taskq, taskq_router TO %s', $1);
END
$$;
COMMENT ON FUNCTION taskq_router.grant_use IS
    'let a role call; what it may do on the shards is said there, with taskq.grant_worker and the like for the role of the same name';

-- Moving a group --------------------------------------------------------------------------------------------------------

-- All that moves with a group, in one look; each task as insert_tasks takes it, and how it ended.
SELECT taskq_router._proxy('_read_group', 'text', 'jsonb', $query$
    SELECT pg_catalog.jsonb_build_object(
        'paused', (SELECT g.paused FROM taskq.groups AS g WHERE g.group_id = $2::text),
        'busy', (SELECT pg_catalog.count(*) FROM taskq.tasks AS t WHERE t.group_id = $2::text AND t.state = 'in-progress'),
        'durable', (SELECT pg_catalog.min(x.id) FROM (SELECT w.task_id AS id FROM taskq.waits AS w WHERE w.group_id = $2::text
                                                      UNION ALL
                                                      SELECT e.task_id FROM taskq.steps AS e JOIN taskq.tasks AS t ON t.id = e.task_id
                                                       WHERE t.group_id = $2::text) AS x),
        'unique', (SELECT pg_catalog.count(*) FROM taskq.tasks AS t WHERE t.group_id = $2::text AND t.unique_key IS NOT NULL),
        'outside', (SELECT pg_catalog.min(d.after || ' -> ' || d.run) FROM taskq.dependencies AS d
                      JOIN taskq.tasks AS a ON a.id = d.after JOIN taskq.tasks AS r ON r.id = d.run
                     WHERE (a.group_id IS NOT DISTINCT FROM $2::text) <> (r.group_id IS NOT DISTINCT FROM $2::text)),
        'limits', (SELECT pg_catalog.jsonb_build_object('max_concurrency', g.max_concurrency, 'weight', g.weight)
                     FROM taskq.groups AS g WHERE g.group_id = $2::text AND (g.max_concurrency IS NOT NULL OR g.weight IS NOT NULL)),
        'tasks', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
                    'id', t.id, 'action', t.action, 'body', t.body, 'priority', t.priority, 'max_tries', t.max_tries,
                    'max_duration', t.max_duration, 'not_before', t.not_before, 'spontaneous', NULLIF(t.spontaneous, false),
                    'signal', NULLIF(t.signal, false), 'num_required', t.num_required, 'max_run_time', t.max_run_time,
                    'expires_at', CASE WHEN t.settled_at IS NULL THEN t.expires_at END,
                    'post_result', NULLIF(t.post_result, false), 'group_id', t.group_id, 'workgroup', t.workgroup,
                    'merge_key', t.merge_key, 'seed', NULLIF(t.seed, false), 'backoff', t.backoff,
                    'retention', CASE WHEN t.retention IS NOT NULL AND t.retention_aborted IS NOT NULL
                                      THEN pg_catalog.jsonb_build_object('completed', t.retention, 'aborted', t.retention_aborted)
                                      ELSE pg_catalog.to_jsonb(t.retention) END))
                    || COALESCE((SELECT pg_catalog.jsonb_build_object('depends_on', pg_catalog.jsonb_agg(
                                            pg_catalog.jsonb_build_object('id', d.after, 'condition', d.condition)))
                                   FROM taskq.dependencies AS d WHERE d.run = t.id HAVING pg_catalog.count(*) > 0), '{}')
                    || CASE WHEN t.metadata IS NULL THEN '{}' ELSE pg_catalog.jsonb_build_object('metadata', t.metadata) END
                    ORDER BY t.inserted_at, t.id)
                    FROM taskq.tasks AS t WHERE t.group_id = $2::text),
        'ends', (SELECT COALESCE(pg_catalog.jsonb_agg(
                            pg_catalog.jsonb_build_object('id', t.id, 'code', t.status_code, 'status', t.status, 'result', t.result)
                            -- What aborts by itself, because of others, does so in the copy, too: it comes after what ended at the same time.
                            ORDER BY t.settled_at, COALESCE(t.cause IN ('skipped', 'dependency'), false), t.id), '[]')
                   FROM taskq.tasks AS t WHERE t.group_id = $2::text AND t.settled_at IS NOT NULL AND NOT (t.spontaneous AND t.status_code = 'completed')))
$query$);

-- What is compared of the two: everything but times, tries and what is said on the way. A cancellation says no result:
-- an aborted task has none in the copy.
SELECT taskq_router._proxy('_digest_group', 'text', 'text', $query$
    SELECT pg_catalog.md5(COALESCE((SELECT pg_catalog.string_agg(pg_catalog.jsonb_build_array(t.id, t.action, t.body, t.priority, t.status_code,
                                                      t.workgroup, t.merge_key, t.metadata,
                                                      CASE t.status_code WHEN 'completed' THEN t.result END)::text, ',' ORDER BY t.id COLLATE "C")
                                      FROM taskq.tasks AS t WHERE t.group_id = $2::text), '')
           || ';' || COALESCE((SELECT pg_catalog.string_agg(pg_catalog.jsonb_build_array(d.after, d.run, d.condition)::text, ','
                                                            ORDER BY d.after COLLATE "C", d.run COLLATE "C")
                                 FROM taskq.dependencies AS d JOIN taskq.tasks AS t ON t.id = d.run WHERE t.group_id = $2::text), ''))
$query$);

-- In one statement, and so in one transaction: no session sees the copy before it is paused. The lock is for the
-- session that deletes the copy later: a router that dies leaves its statement running on the shard.
SELECT taskq_router._proxy('_write_group', 'text, jsonb, integer', 'bigint', $query$
    SELECT ends.n + groups.n
      FROM (SELECT pg_catalog.count(pg_catalog.pg_advisory_xact_lock($4::integer, pg_catalog.hashtext($2::text))::text) AS n OFFSET 0) AS locked
     CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS n FROM taskq.insert_tasks(CASE WHEN locked.n = 1 THEN $3::jsonb -> 'tasks' END)) AS inserted
     CROSS JOIN LATERAL (SELECT taskq.pause_group($2::text) AS n WHERE inserted.n >= 0) AS paused
     CROSS JOIN LATERAL (SELECT pg_catalog.count(CASE WHEN pg_catalog.jsonb_typeof(g.x) = 'object' THEN taskq.set_group($2::text,
                                    max_concurrency => (g.x ->> 'max_concurrency')::integer, weight => (g.x ->> 'weight')::integer)::text END) AS n
                           FROM (SELECT $3::jsonb -> 'limits' AS x WHERE paused.n >= 0) AS g) AS groups
     CROSS JOIN LATERAL (SELECT pg_catalog.count(CASE e.x ->> 'code'
                                    WHEN 'completed' THEN taskq.complete_task(e.x ->> 'id', NULLIF(e.x -> 'result', 'null'), e.x ->> 'status')::text
                                    ELSE taskq.cancel_tasks(ARRAY[e.x ->> 'id'], e.x ->> 'status')::text END) AS n
                           FROM (SELECT j.x FROM pg_catalog.jsonb_array_elements($3::jsonb -> 'ends') WITH ORDINALITY AS j(x, n)
                                  WHERE groups.n >= 0 ORDER BY j.n OFFSET 0) AS e) AS ends
$query$);

-- Until a copy that is being written is there, or is not.
SELECT taskq_router._proxy('_await_copy', 'text, integer', 'text',
    'SELECT pg_catalog.pg_advisory_xact_lock($3::integer, pg_catalog.hashtext($2::text))::text');
SELECT taskq_router._proxy('_ids_of_group', 'text', 'SETOF text', 'SELECT id FROM taskq.tasks WHERE group_id = $2::text');

CREATE FUNCTION taskq_router._not_movable(group_id text, why text, hint text) RETURNS void LANGUAGE sql
AS $$ SELECT taskq_router._raise('TQ005', pg_catalog.format('group "%s" cannot be moved', pg_catalog.left($1, 300)), $2, $3) $$;

-- One session at a time moves a group or takes a move back. It has this lock while it changes anything, lets it go at each commit,
-- and looks again behind it.
CREATE FUNCTION taskq_router._moving(group_id text) RETURNS taskq_router.moved LANGUAGE plpgsql
AS $$
DECLARE
    m taskq_router.moved;
BEGIN
    IF $1 IS NULL THEN
        PERFORM taskq_router._raise('22004', 'argument "group_id" must not be NULL', 'NULL was given.', 'Name a group.');
    ELSIF NOT pg_catalog.pg_try_advisory_xact_lock(taskq_router._lock_key() + 1, pg_catalog.hashtext($1)) THEN
        PERFORM taskq_router._not_movable($1, 'Another session is moving it, or takes a move back.',
            'Wait for that session, or end it with pg_terminate_backend and call again: pg_locks has it as an advisory lock.');
    END IF;
    SELECT * INTO m FROM taskq_router.moved AS x WHERE x.group_id = $1;
    RETURN m;
END
$$;

-- Until those who have written to the group and had not seen the mark are done: with their transactions on the router, too.
CREATE FUNCTION taskq_router._await_writers(group_id text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', (1000 * EXTRACT(epoch FROM taskq_router._setting('writers_timeout', '1 minute')))::bigint::text, true);
    PERFORM pg_catalog.pg_advisory_xact_lock(taskq_router._lock_key(), pg_catalog.hashtext($1));
EXCEPTION WHEN lock_not_available THEN
    PERFORM taskq_router._not_movable($1, 'A transaction on the router that has written to it, or to one that shares its lock, is still open, or is prepared.',
        'Look into pg_stat_activity and pg_prepared_xacts, end it, and call again; or CALL taskq_router.undo_move. Until then no session writes to the group.');
END
$$;

-- Reads a group that is to be moved, or says why it may not be.
SELECT taskq_router._define($head$taskq_router._movable(group_id text, shard integer) RETURNS jsonb$head$,
    $variables$g jsonb;$variables$, $body$
    at_shard := $2;
    g := taskq_router._read_group($2, $1);
    IF g -> 'tasks' = 'null' THEN
        PERFORM taskq_router._raise('TQ007', pg_catalog.format('group "%s" does not exist', pg_catalog.left($1, 300)),
            pg_catalog.format('It belongs to shard %s, which has no task of it.', $2), 'A group without tasks needs no move.');
    ELSIF NOT (g ->> 'paused')::boolean THEN
        PERFORM taskq_router._not_movable($1, 'It is not paused.', 'Pause it with taskq.pause_group first, and resume it afterwards.');
    ELSIF (g ->> 'busy')::bigint > 0 THEN
        PERFORM taskq_router._not_movable($1, pg_catalog.format('%s of its tasks are in progress, with tokens of shard %s.', g ->> 'busy', $2),
            'Wait until they are returned, or cancel them; the group stays paused meanwhile.');
    ELSIF g ->> 'outside' IS NOT NULL THEN
        PERFORM taskq_router._not_movable($1, pg_catalog.format('A dependency leads out of it: %s.', g ->> 'outside'),
            'Dependencies hold within a shard: only a group that is linked with nothing else can be moved.');
    ELSIF g ->> 'durable' IS NOT NULL THEN
        PERFORM taskq_router._not_movable($1, pg_catalog.format('Task "%s" is suspended, or has saved steps.', g ->> 'durable'),
            'What such a task has done and waits for stays on its shard: move the group when it has ended, and was removed.');
    END IF;
    RETURN g;$body$);

-- Makes the copy; false if it is not the same, and then there is none.
SELECT taskq_router._define($head$taskq_router._copy_group(group_id text, from_shard integer, to_shard integer) RETURNS boolean$head$,
    $variables$g jsonb;
    digest text;
    same boolean;$variables$, $body$
    g := taskq_router._movable($1, $2);
    at_shard := $2;
    digest := taskq_router._digest_group($2, $1);
    at_shard := $3;
    PERFORM taskq_router._write_group($3, $1, g, taskq_router._lock_key());
    same := digest IS NOT DISTINCT FROM taskq_router._digest_group($3, $1);
    at_shard := $2;
    same := same AND digest IS NOT DISTINCT FROM taskq_router._digest_group($2, $1);
    IF NOT same THEN
        at_shard := $3;
        PERFORM taskq_router._delete_group($3, $1);
    END IF;
    RETURN same;$body$);

-- Deletes a copy: what its group has, too, and, where asked, what is settled, which the other one may have forgotten by its
-- retention. What has come to it by another way stays; true if there is such.
SELECT taskq_router._define($head$taskq_router._drop_copy(group_id text, copy_on integer, home integer, settled boolean) RETURNS boolean$head$,
    $variables$ids text[];$variables$, $body$
    at_shard := taskq_router._open($2);
    PERFORM taskq_router._await_copy(at_shard, $1, taskq_router._lock_key());
    IF NOT taskq_router._knows(at_shard, $1, NULL) THEN
        RETURN false;
    END IF;
    at_shard := taskq_router._open($3);
    ids := ARRAY(SELECT i.id FROM taskq_router._ids_of_group(at_shard, $1) AS i(id));
    at_shard := $2;
    PERFORM taskq_router._delete_tasks(at_shard, ids, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    IF $4 THEN
        PERFORM taskq_router._delete_tasks(at_shard, NULL, NULL, ARRAY[$1], NULL, NULL, NULL, 'infinity', NULL);
    END IF;
    IF taskq_router._knows(at_shard, $1, NULL) THEN
        RETURN true;
    END IF;
    -- Its pause and its limits.
    PERFORM taskq_router._delete_group(at_shard, $1);
    RETURN false;$body$);

CREATE FUNCTION taskq_router._strangers(group_id text, shard integer) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    RAISE WARNING USING MESSAGE = pg_catalog.format('shard %s still has tasks of group "%s"', $2, pg_catalog.left($1, 300)),
        DETAIL = 'They came while it was moved, and not through this router.',
        HINT = 'Insert them through the router, and delete them there.';
END
$$;

-- Moves a paused group, in steps, each of which is one transaction here or there:
--
--   1 mark      from now on this router refuses to write to the group; the calls that were at it have ended
--   2 copy      with one statement on the new shard, paused; compared with what it was made of
--   3 switch    the routing table says the new shard
--   4 delete    what was copied, and nothing else, goes from the old shard
--   5 unmark
--
-- Up to 3 the old shard has the group, from 3 on the new one; the other copy is paused and no call is led to it. So a
-- move that stops anywhere has lost nothing and doubled nothing, and the same call goes on where it stopped.
CREATE PROCEDURE taskq_router.move_group(group_id text, to_shard integer) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    m taskq_router.moved := taskq_router._moving($1);
    from_shard integer;
BEGIN
    PERFORM taskq_router._open($2);
    IF m.undone THEN
        PERFORM taskq_router._not_movable($1, pg_catalog.format('A move to shard %s was taken back, and may have left a copy there.', m.left_on),
            'Let that one end first: CALL taskq_router.undo_move.');
    ELSIF m.going_to IS NOT NULL AND m.going_to <> $2 OR m.left_on IS NOT NULL AND m.shard <> $2 THEN
        PERFORM taskq_router._not_movable($1, pg_catalog.format('A move to shard %s has begun.', COALESCE(m.going_to, m.shard)),
            'Let that one end first: CALL taskq_router.move_group with the same shard as then, or taskq_router.undo_move.');
    END IF;
    from_shard := COALESCE(m.left_on, taskq_router._home($1, NULL, false));
    IF from_shard = $2 THEN
        RETURN;
    END IF;

    IF m.left_on IS NULL THEN
        -- 1
        PERFORM taskq_router._movable($1, from_shard);
        IF m.going_to IS NULL THEN
            IF taskq_router._has($2, $1, NULL) THEN
                PERFORM taskq_router._not_movable($1, pg_catalog.format('There are tasks of it on shard %s already.', $2),
                    'They were inserted there directly, or with an older routing table: delete or finish them first.');
            END IF;
            INSERT INTO taskq_router.moved AS x (group_id, shard, going_to) VALUES ($1, from_shard, $2)
                ON CONFLICT (group_id) DO UPDATE SET going_to = EXCLUDED.going_to;
        END IF;
        COMMIT;
        PERFORM taskq_router._await_writers($1);
        COMMIT;
        -- 2: a copy that is there already was made by a move that stopped here, and may be out of date.
        m := taskq_router._moving($1);
        IF m.going_to IS DISTINCT FROM $2 THEN
            PERFORM taskq_router._not_movable($1, 'The move was taken back, or done, by another session.', 'Look at taskq_router.moved.');
        ELSIF taskq_router._drop_copy($1, $2, from_shard, true) THEN
            PERFORM taskq_router._not_movable($1, pg_catalog.format('There are tasks of it on shard %s that are not in the group.', $2),
                'They were inserted there directly: delete them there, or CALL taskq_router.undo_move.');
        ELSIF NOT taskq_router._copy_group($1, from_shard, $2) THEN
            UPDATE taskq_router.moved AS x SET going_to = NULL WHERE x.group_id = $1;
            COMMIT;
            PERFORM taskq_router._not_movable($1, 'Its copy is not the same: it was changed meanwhile, or has ends that cannot be repeated.',
                'It is where it was. Try again when no session changes it.');
        END IF;
        -- 3
        UPDATE taskq_router.moved AS x SET shard = $2, going_to = NULL, left_on = from_shard WHERE x.group_id = $1;
        COMMIT;
        m := taskq_router._moving($1);
    END IF;
    -- 4: by the ids of the new shard, so that what has come to the old one by another way stays, and is reported.
    IF m.left_on = from_shard AND m.shard = $2 THEN
        IF taskq_router._drop_copy($1, from_shard, $2, false) THEN
            PERFORM taskq_router._strangers($1, from_shard);
        END IF;
        -- 5
        UPDATE taskq_router.moved AS x SET left_on = NULL WHERE x.group_id = $1;
        COMMIT;
    END IF;
END
$$;
COMMENT ON PROCEDURE taskq_router.move_group IS 'move a paused group to another shard; the same call goes on with a move that has stopped';

-- Takes back a move that has failed, or was interrupted. Before the switch the old shard has the group: it may be written to again
-- at once, also if the new shard is gone, and the copy there goes now or by a later call. Behind the switch the new shard has it, and may
-- have changed it: that is refused.
CREATE PROCEDURE taskq_router.undo_move(group_id text) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    m taskq_router.moved := taskq_router._moving($1);
    message text;
BEGIN
    IF m.going_to IS NULL AND m.left_on IS NULL THEN
        RETURN;
    ELSIF m.left_on IS NOT NULL AND NOT m.undone THEN
        PERFORM taskq_router._not_movable($1,
            pg_catalog.format('It is on shard %s already, where it may have changed; what is left to do is to delete the copy on shard %s.', m.shard, m.left_on),
            pg_catalog.format('Finish the move with CALL taskq_router.move_group(…, %s), and move the group back then.', m.shard));
    ELSIF m.going_to IS NOT NULL THEN
        UPDATE taskq_router.moved AS x SET going_to = NULL, left_on = m.going_to, undone = true WHERE x.group_id = $1;
        COMMIT;
        m := taskq_router._moving($1);
        IF NOT COALESCE(m.undone, false) THEN
            RETURN;
        END IF;
    END IF;
    BEGIN
        IF taskq_router._drop_copy($1, m.left_on, m.shard, true) THEN
            PERFORM taskq_router._strangers($1, m.left_on);
        END IF;
        UPDATE taskq_router.moved AS x SET left_on = NULL, undone = false WHERE x.group_id = $1;
    EXCEPTION WHEN SQLSTATE '08001' OR SQLSTATE '08006' THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
        RAISE WARNING USING MESSAGE = pg_catalog.format('the copy of group "%s" on shard %s is still to be deleted', pg_catalog.left($1, 300), m.left_on),
            DETAIL = pg_catalog.format('The group is on shard %s, and may be written to: %s.', m.shard, message),
            HINT = 'The copy is paused and not asked. CALL taskq_router.undo_move again when that shard is back.';
    END;
END
$$;
COMMENT ON PROCEDURE taskq_router.undo_move IS 'take back a move that has failed or was interrupted, and has not come to the switch';

-- Each role that may call may route; what changes the routing is the owner's.
REVOKE ALL ON FUNCTION taskq_router.connect_shard, taskq_router.add_shards, taskq_router._number_of, taskq_router._new_shard,
    taskq_router.forget_versions, taskq_router.close_shard, taskq_router.open_shard, taskq_router.grant_use FROM PUBLIC;
REVOKE ALL ON PROCEDURE taskq_router.move_group, taskq_router.undo_move FROM PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA taskq, taskq_router TO PUBLIC;
DROP FUNCTION taskq_router._proxy, taskq_router._proxy_call, taskq_router._define, taskq_router._define_insertion;
