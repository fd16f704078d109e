-- taskq: functions. (Those of counting, views, health and rights are in files of their own.)
--
-- Functions that grants.sql gives to roles touch tables with the rights of the extension's owner, so that roles need EXECUTE on functions
-- and nothing on tables. Some are SECURITY DEFINER. Others, above all those that have to know the calling role
-- because its part may be narrowed to some actions, switch to the owner themselves (src/rights.rs). The search path is pinned either
-- way: by the SET clause of a SECURITY DEFINER function, by a statement of the others (src/pg/search_path.rs), which have no such
-- clause. The settings of the planner are not here: they belong to the plans, see src/pg/statement.

CREATE FUNCTION taskq.insert_task(
        id text,
        action text,
        body text = NULL,
        priority integer = 0,
        max_tries integer = NULL,
        lease interval = NULL,
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
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_insert_task_wrapper';
COMMENT ON FUNCTION taskq.insert_task(
        text, text, text, integer, integer, interval, timestamptz, interval, text[], text[], boolean,
        boolean, text, interval, jsonb, jsonb, text, text, boolean, text, text, jsonb, interval, integer, boolean,
        timestamptz, interval, interval) IS
    'insert one task; returns its id, or NULL where an existing one was left alone';

-- A body without a type is text: this form has no default, and PostgreSQL prefers text for what it knows nothing of.
CREATE FUNCTION taskq.insert_task(
        id text,
        action text,
        body jsonb,
        priority integer = 0,
        max_tries integer = NULL,
        lease interval = NULL,
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
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_insert_task_wrapper';
COMMENT ON FUNCTION taskq.insert_task(
        text, text, jsonb, integer, integer, interval, timestamptz, interval, text[], text[], boolean,
        boolean, text, interval, jsonb, jsonb, text, text, boolean, text, text, jsonb, interval, integer, boolean,
        timestamptz, interval, interval) IS
    'the same with a body that is JSON: a string is stored as it is, null as no body, anything else as its JSON text';

CREATE FUNCTION taskq.insert_many(
        action text,
        bodies text[],
        ids text[] = NULL,
        priority integer = 0,
        max_tries integer = NULL,
        lease interval = NULL,
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
    RETURNS SETOF text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100
    AS 'MODULE_PATHNAME', 'taskq_insert_many_wrapper';
COMMENT ON FUNCTION taskq.insert_many IS
    'insert tasks that differ only in id and body, or refuse them all; returns the inserted ids in the order given';

CREATE FUNCTION taskq.insert_tasks(tasks jsonb, on_conflict text = 'error', if_missing text = 'error')
    RETURNS SETOF text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100
    AS 'MODULE_PATHNAME', 'taskq_insert_tasks_wrapper';
COMMENT ON FUNCTION taskq.insert_tasks IS
    'insert a JSON array of tasks, or refuse them all; returns the inserted ids in the order given';

CREATE FUNCTION taskq.insert_tasks_report(tasks jsonb, on_conflict text = 'error', if_missing text = 'error')
    RETURNS TABLE (task_id text, outcome text, existing_id text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100
    AS 'MODULE_PATHNAME', 'taskq_insert_tasks_report_wrapper';
COMMENT ON FUNCTION taskq.insert_tasks_report IS
    'insert a JSON array of tasks, or refuse them all; tells of each element what became of it, in the order given';

CREATE FUNCTION taskq.replace_tasks(tasks jsonb, if_missing text = 'error')
    RETURNS SETOF text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100
    AS 'MODULE_PATHNAME', 'taskq_replace_tasks_wrapper';
COMMENT ON FUNCTION taskq.replace_tasks IS
    'insert tasks in place of those with the same ids, which end as aborted unless they have settled before';

CREATE FUNCTION taskq.update_tasks(
        task_ids text[] = NULL,
        priority integer = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        max_tries integer = NULL,
        lease interval = NULL,
        body text = NULL,
        metadata jsonb = NULL,
        if_started text = 'error',
        groups text[] = NULL,
        actions text[] = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_update_tasks_wrapper';
COMMENT ON FUNCTION taskq.update_tasks IS
    'change tasks that meet all the filters and are neither in progress nor settled, in place; NULL leaves as it is; returns how many they are';

CREATE FUNCTION taskq.endings(
        after text = NULL,
        max_tasks integer = 1000,
        actions text[] = NULL)
    RETURNS TABLE (cursor text, task_id text, action text, group_id text, status_code taskq.status_code, cause text, status text,
                   result jsonb, num_tries integer, settled_at timestamptz)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 1000
    AS 'MODULE_PATHNAME', 'taskq_endings_wrapper';
COMMENT ON FUNCTION taskq.endings IS
    'the tasks that have settled behind a cursor, in an order to which nothing is added before a cursor that was given out';

CREATE FUNCTION taskq.own_tasks(
        actor_id text,
        max_tasks integer,
        actions text[],
        lease interval = NULL,
        wait interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text,
        token uuid,
        action text,
        body text,
        num_tries integer,
        num_failures integer,
        action_deadline timestamptz,
        checkpoint jsonb,
        results jsonb,
        priority integer,
        metadata jsonb,
        body_json jsonb,
        steps jsonb,
        incomplete boolean)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_own_tasks_wrapper';
COMMENT ON FUNCTION taskq.own_tasks IS
    'grant up to max_tasks tasks of these actions to an actor: ready ones, or those whose deadline has passed; with wait, sleep until there are some or the time is up';

CREATE FUNCTION taskq.extend_tasks_ownership(
        actor_id text,
        task_ids text[],
        tokens uuid[],
        lease interval)
    RETURNS TABLE (task_id text, owned boolean, action_deadline timestamptz)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_extend_tasks_ownership_wrapper';
COMMENT ON FUNCTION taskq.extend_tasks_ownership IS
    'move the deadlines of tasks still held to now + lease, no further than max_run_time allows; tells which are held, and until when';

CREATE FUNCTION taskq.stop_waiting(actor_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_stop_waiting_wrapper';
COMMENT ON FUNCTION taskq.stop_waiting IS
    'end the calls of an actor that sleep for work, with nothing; returns how many';

CREATE FUNCTION taskq.lost_channel(actor_id text)
    RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 5
    AS 'MODULE_PATHNAME', 'taskq_lost_channel_wrapper';
COMMENT ON FUNCTION taskq.lost_channel IS
    'the channel that LISTEN needs to hear that tasks were taken from an actor: cancelled, released or reset';

CREATE FUNCTION taskq.return_task(
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
    RETURNS taskq.status_code
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_return_task_wrapper';
COMMENT ON FUNCTION taskq.return_task IS
    'end a performance: completed, aborted, or pending to go on later; returns the code the task really got';

CREATE FUNCTION taskq.return_tasks(
        task_ids text[],
        tokens uuid[],
        status_code text = 'completed',
        status text = NULL,
        result jsonb = NULL,
        retry_after interval = NULL,
        delay_workgroup interval = NULL,
        count_try boolean = true)
    RETURNS TABLE (task_id text, status_code taskq.status_code, sqlstate text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_return_tasks_wrapper';
COMMENT ON FUNCTION taskq.return_tasks(text[], uuid[], text, text, jsonb, interval, interval, boolean) IS
    'end many performances alike; a bad token spoils only its own row';

CREATE FUNCTION taskq.return_tasks(returns jsonb)
    RETURNS TABLE (task_id text, status_code taskq.status_code, sqlstate text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_return_tasks_json_wrapper';
COMMENT ON FUNCTION taskq.return_tasks(jsonb) IS
    'end many performances, each in its own way; a bad token spoils only its own row';

CREATE FUNCTION taskq.return_and_own_tasks(
        actor_id text,
        returns jsonb,
        max_tasks integer,
        actions text[],
        lease interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text,
        token uuid,
        action text,
        body text,
        num_tries integer,
        num_failures integer,
        action_deadline timestamptz,
        checkpoint jsonb,
        results jsonb,
        priority integer,
        metadata jsonb,
        body_json jsonb,
        steps jsonb,
        incomplete boolean,
        sqlstate text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_return_and_own_tasks_json_wrapper';
COMMENT ON FUNCTION taskq.return_and_own_tasks(text, jsonb, integer, text[], interval, boolean, boolean) IS
    'return_tasks, then own_tasks without a wait, in one call; a row for each return that was refused comes first';

CREATE FUNCTION taskq.return_and_own_tasks(
        actor_id text,
        task_ids text[],
        tokens uuid[],
        max_tasks integer,
        actions text[],
        lease interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text,
        token uuid,
        action text,
        body text,
        num_tries integer,
        num_failures integer,
        action_deadline timestamptz,
        checkpoint jsonb,
        results jsonb,
        priority integer,
        metadata jsonb,
        body_json jsonb,
        steps jsonb,
        incomplete boolean,
        sqlstate text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_return_and_own_tasks_wrapper';
COMMENT ON FUNCTION taskq.return_and_own_tasks(text, text[], uuid[], integer, text[], interval, boolean, boolean) IS
    'the same for tasks that have all completed';

CREATE FUNCTION taskq.wait_for_task(task_id text, timeout interval = '10 seconds')
    RETURNS TABLE (
        task_id text,
        status_code taskq.status_code,
        status text,
        result jsonb,
        settled_at timestamptz)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 1
    AS 'MODULE_PATHNAME', 'taskq_wait_for_task_wrapper';
COMMENT ON FUNCTION taskq.wait_for_task IS
    'sleep until the task is settled and tell how it ended; no row on time-out';

-- Procedures that commit can have neither SECURITY DEFINER nor SET: they sleep, and look through the functions below,
-- which are theirs.
CREATE PROCEDURE taskq.wait_for_tasks(task_ids text[], timeout interval, INOUT num_settled integer = NULL)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'taskq_wait_for_tasks_wrapper';
COMMENT ON PROCEDURE taskq.wait_for_tasks IS
    'sleep, holding no snapshot, until all the tasks are settled or the time is up; tells how many are';

CREATE PROCEDURE taskq.wait_for_work(actions text[], timeout interval, INOUT ready boolean = NULL)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'taskq_wait_for_work_wrapper';
COMMENT ON PROCEDURE taskq.wait_for_work IS
    'sleep, holding no snapshot, until own_tasks for these actions would find something or the time is up';

CREATE FUNCTION taskq._task_channels(task_ids text[])
    RETURNS SETOF bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_task_channels_wrapper';
COMMENT ON FUNCTION taskq._task_channels IS
    'internal: the look of wait_for_tasks';

CREATE FUNCTION taskq._action_channels(actions text[])
    RETURNS SETOF integer
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_action_channels_wrapper';
COMMENT ON FUNCTION taskq._action_channels IS
    'internal: the look of wait_for_work';

CREATE FUNCTION taskq._num_settled(task_nos bigint[], task_ids text[])
    RETURNS integer
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_num_settled_wrapper';
COMMENT ON FUNCTION taskq._num_settled IS
    'internal: the look of wait_for_tasks';

CREATE FUNCTION taskq._look_for_work(actions text[], keep_up boolean)
    RETURNS TABLE (ready boolean, owed boolean, due timestamptz, shared timestamptz, rest bigint)
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_look_for_work_wrapper';
COMMENT ON FUNCTION taskq._look_for_work IS
    'internal: the look of wait_for_work';

CREATE FUNCTION taskq._left_behind(actions text[], action_nos integer[])
    RETURNS SETOF integer
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_left_behind_wrapper';
COMMENT ON FUNCTION taskq._left_behind IS
    'internal: what wait_for_work leaves to other waiters';

-- Two literals or parameters without a type, '{a}' and '{b}' or $1 and $2, are the two arrays of the form below.
-- PostgreSQL would call that ambiguous if they could be an array of dependencies and "if_missing" as well; nothing
-- without a type can be an enum, so "if_missing" is given by its name here.
CREATE FUNCTION taskq.add_dependencies(
        dependencies jsonb,
        named_only anyenum = NULL::taskq.named_only,
        if_missing text = 'error')
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_add_dependencies_json_wrapper';
COMMENT ON FUNCTION taskq.add_dependencies(jsonb, anyenum, text) IS
    'make stored tasks wait for others; returns how many of the dependencies block now';

CREATE FUNCTION taskq.add_dependencies(
        after text[],
        run text[],
        condition text = 'completed',
        if_missing text = 'error')
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_add_dependencies_wrapper';
COMMENT ON FUNCTION taskq.add_dependencies(text[], text[], text, text) IS
    'make stored tasks wait for others; returns how many of the dependencies block now';

CREATE FUNCTION taskq.cancel_tasks(
        task_ids text[] = NULL,
        status text = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        max_tasks integer = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_cancel_tasks_wrapper';
COMMENT ON FUNCTION taskq.cancel_tasks IS
    'abort those of the tasks that meet all the filters and are not settled, in progress or not; returns how many';

CREATE FUNCTION taskq.release_tasks(
        task_ids text[] = NULL,
        actors text[] = NULL,
        actions text[] = NULL,
        status text = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_release_tasks_wrapper';
COMMENT ON FUNCTION taskq.release_tasks IS
    'take tasks in progress that meet all the filters from actors that are dead: each is ready for another try, or aborts if it has none left; returns how many';

CREATE FUNCTION taskq.delete_tasks(
        task_ids text[] = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        causes text[] = NULL,
        settled_since timestamptz = NULL,
        settled_until timestamptz = NULL,
        max_tasks integer = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_delete_tasks_wrapper';
COMMENT ON FUNCTION taskq.delete_tasks IS
    'remove tasks that meet all the filters, and blocked ones that are left without any dependency; returns how many went';

CREATE FUNCTION taskq.report_status(
        task_id text,
        token uuid,
        status text = NULL,
        progress double precision = NULL,
        checkpoint jsonb = NULL)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_report_status_wrapper';
COMMENT ON FUNCTION taskq.report_status IS
    'say how a performance is getting on, and save a checkpoint for a next try; NULL keeps what was said before';

CREATE FUNCTION taskq.save_step(
        task_id text,
        token uuid,
        step text,
        result jsonb = NULL,
        lease interval = NULL)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_save_step_wrapper';
COMMENT ON FUNCTION taskq.save_step IS
    'keep the result of a step of a task in progress; returns what is kept: an earlier result, if the step was saved before';

CREATE FUNCTION taskq.complete_task(task_id text, result jsonb = NULL, status text = NULL)
    RETURNS taskq.status_code
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_complete_task_wrapper';
COMMENT ON FUNCTION taskq.complete_task IS
    'complete by hand a task that waits for no other and that no worker owns, or a signal';

CREATE FUNCTION taskq.signal_tasks(signals jsonb)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_signal_tasks_wrapper';
COMMENT ON FUNCTION taskq.signal_tasks IS
    'complete many signals from outside, or insert them completed; returns how many have not settled before';

CREATE FUNCTION taskq.signal(
        task_id text,
        result jsonb = NULL,
        status text = NULL,
        action text = 'signal',
        retention interval = NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_signal_wrapper';
COMMENT ON FUNCTION taskq.signal IS
    'complete a signal, which may come before anything waits for it; false: it has ended before, or its time has passed';

CREATE FUNCTION taskq._chain(blocks jsonb)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_chain_wrapper';
COMMENT ON FUNCTION taskq._chain IS
    'internal: the body of taskq.chain';

CREATE FUNCTION taskq._parallel(blocks jsonb)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_parallel_wrapper';
COMMENT ON FUNCTION taskq._parallel IS
    'internal: the body of taskq.parallel';

-- The builders touch no table: they run with the caller's rights.
CREATE FUNCTION taskq.chain(VARIADIC blocks jsonb[])
    RETURNS jsonb
    LANGUAGE sql VOLATILE PARALLEL UNSAFE COST 100
    RETURN taskq._chain(pg_catalog.to_jsonb(blocks));
COMMENT ON FUNCTION taskq.chain IS
    'tasks, or arrays of tasks, one after the other; yields an array for insert_tasks';

CREATE FUNCTION taskq.parallel(VARIADIC blocks jsonb[])
    RETURNS jsonb
    LANGUAGE sql VOLATILE PARALLEL UNSAFE COST 100
    RETURN taskq._parallel(pg_catalog.to_jsonb(blocks));
COMMENT ON FUNCTION taskq.parallel IS
    'tasks, or arrays of tasks, side by side; yields an array for insert_tasks';

CREATE FUNCTION taskq.chord(header jsonb, callback jsonb)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_chord_wrapper';
COMMENT ON FUNCTION taskq.chord IS
    'the callback after all of the header; yields an array for insert_tasks';

CREATE FUNCTION taskq.map(action text, bodies jsonb)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_map_wrapper';
COMMENT ON FUNCTION taskq.map IS
    'one task of this action for each body; yields an array for insert_tasks';

CREATE FUNCTION taskq.retry_tasks(
        task_ids text[] = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        causes text[] = NULL,
        settled_since timestamptz = NULL,
        settled_until timestamptz = NULL,
        max_tasks integer = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_retry_tasks_wrapper';
COMMENT ON FUNCTION taskq.retry_tasks IS
    'give aborted tasks that meet all the filters new tries, and bring back what aborted because of them; returns how many came back';

CREATE FUNCTION taskq.rerun_tasks(task_ids text[], downstream boolean = true)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_rerun_tasks_wrapper';
COMMENT ON FUNCTION taskq.rerun_tasks IS
    'start settled tasks over, completed ones too; with downstream also the settled ones that depend on them; returns how many start over';

CREATE FUNCTION taskq.rewind_task(task_id text, step text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_rewind_task_wrapper';
COMMENT ON FUNCTION taskq.rewind_task IS
    'forget a step of a task and all that were saved after it; a settled task starts over; returns how many are forgotten';

CREATE FUNCTION taskq.ancestors(task_id text, max_tasks integer = NULL)
    RETURNS TABLE (task_id text, action text, state text, depth integer)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_ancestors_wrapper';
COMMENT ON FUNCTION taskq.ancestors IS
    'the tasks that a task runs after, directly or not, nearest first';

CREATE FUNCTION taskq.descendants(task_id text, max_tasks integer = NULL)
    RETURNS TABLE (task_id text, action text, state text, depth integer)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_descendants_wrapper';
COMMENT ON FUNCTION taskq.descendants IS
    'the tasks that run after a task, directly or not, nearest first';

CREATE FUNCTION taskq.graph(task_id text, format text = 'text', max_tasks integer = 500, skip integer = 0)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_graph_wrapper';
COMMENT ON FUNCTION taskq.graph IS
    'a task with all that it depends on and that depends on it, or the tasks of a group, max_tasks at most, as dot, mermaid or text';

-- Flow control ------------------------------------------------------------------------------------------

CREATE FUNCTION taskq.set_action(
        action text,
        max_tries integer = NULL,
        lease interval = NULL,
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
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_set_action_wrapper';
COMMENT ON FUNCTION taskq.set_action IS
    'set defaults and limits of an action; what is left out stays as it was';

CREATE FUNCTION taskq.pause_action(action text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_pause_action_wrapper';
COMMENT ON FUNCTION taskq.pause_action IS
    'let no more tasks of an action be owned; tells whether that changed anything';

CREATE FUNCTION taskq.resume_action(action text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_resume_action_wrapper';
COMMENT ON FUNCTION taskq.resume_action IS
    'let tasks of an action be owned again; tells whether that changed anything';

CREATE FUNCTION taskq.forget_action(action text)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 10000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_forget_action_wrapper';
COMMENT ON FUNCTION taskq.forget_action IS
    'forget the name of an action without tasks, and what is set for it';

CREATE FUNCTION taskq.set_group(
        group_id text,
        max_concurrency integer = NULL,
        weight integer = NULL,
        clear text[] = NULL)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_set_group_wrapper';
COMMENT ON FUNCTION taskq.set_group IS
    'set the limit and the weight of a group; what is left out stays as it was';

CREATE FUNCTION taskq.pause_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_pause_group_wrapper';
COMMENT ON FUNCTION taskq.pause_group IS
    'let no more tasks of a group be owned; returns how many of its tasks are pending, or 0 if it is paused already';

CREATE FUNCTION taskq.resume_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_resume_group_wrapper';
COMMENT ON FUNCTION taskq.resume_group IS
    'let tasks of a group be owned again; returns how many of its tasks are pending, or 0 if it is not paused';

CREATE FUNCTION taskq.cancel_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_cancel_group_wrapper';
COMMENT ON FUNCTION taskq.cancel_group IS
    'abort the tasks of a group that are not settled; returns how many';

CREATE FUNCTION taskq.delete_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_delete_group_wrapper';
COMMENT ON FUNCTION taskq.delete_group IS
    'delete the tasks of a group; returns how many tasks went';

CREATE FUNCTION taskq.retry_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_retry_group_wrapper';
COMMENT ON FUNCTION taskq.retry_group IS
    'give the aborted tasks of a group new tries; returns how many came back';

CREATE FUNCTION taskq.reset_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_reset_group_wrapper';
COMMENT ON FUNCTION taskq.reset_group IS
    'put a group back to its start, or to its seed tasks; returns how many tasks it had';

CREATE FUNCTION taskq.delay_workgroup(workgroup text, delay interval)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_delay_workgroup_wrapper';
COMMENT ON FUNCTION taskq.delay_workgroup IS
    'let no more tasks of a workgroup be owned for a while from now; returns until when';

CREATE FUNCTION taskq.schedule(
        name text,
        cron text,
        task jsonb,
        timezone text = 'UTC',
        overlap text = 'skip',
        backfill text = 'one',
        max_backfill integer = NULL)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_schedule_wrapper';
COMMENT ON FUNCTION taskq.schedule IS
    'insert a task whenever a cron expression says so; returns when that is next, or NULL while the schedule is paused';

CREATE FUNCTION taskq.unschedule(name text)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_unschedule_wrapper';
COMMENT ON FUNCTION taskq.unschedule IS
    'end a schedule; tasks that it has inserted stay';

CREATE FUNCTION taskq.pause_schedule(name text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_pause_schedule_wrapper';
COMMENT ON FUNCTION taskq.pause_schedule IS
    'insert no more runs of a schedule when they are due; tells whether that changed anything';

CREATE FUNCTION taskq.resume_schedule(name text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_resume_schedule_wrapper';
COMMENT ON FUNCTION taskq.resume_schedule IS
    'insert runs of a schedule again, missed ones as its backfill policy says; tells whether that changed anything';

CREATE FUNCTION taskq.run_schedule(name text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_run_schedule_wrapper';
COMMENT ON FUNCTION taskq.run_schedule IS
    'insert a run of a schedule now, paused or not, whatever the run before does; returns its id';

CREATE FUNCTION taskq.next_times(cron text, timezone text = 'UTC', number integer = 10)
    RETURNS SETOF timestamptz
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_next_times_wrapper';
COMMENT ON FUNCTION taskq.next_times IS
    'the next times that a cron expression says, as a schedule would run';

CREATE FUNCTION taskq.action_channel(action text)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 5
    RETURN 'taskq_action_' OPERATOR(pg_catalog.||) pg_catalog.md5(action);
COMMENT ON FUNCTION taskq.action_channel IS
    'the channel that LISTEN needs for tasks of an action that is set to notify';

CREATE FUNCTION taskq.maintain()
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_maintain_wrapper';
COMMENT ON FUNCTION taskq.maintain IS
    'do what time has made necessary, for times when no worker claims tasks; returns how many steps found something to do';

CREATE FUNCTION taskq.recount()
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_recount_wrapper';
COMMENT ON FUNCTION taskq.recount IS
    'throw away the tallies of what has settled per action: it is counted row by row until upkeep has made them anew';

-- Inlined where it is used. Two groups with the same number share a lane, and keep their own limits.
CREATE FUNCTION taskq._lane(group_id text)
    RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE(NULLIF(pg_catalog.hashtextextended(group_id COLLATE pg_catalog."C", 0), 0), 1);
COMMENT ON FUNCTION taskq._lane IS 'internal: the lane of a group in taskq.run, never 0';

-- Inlined where it is used. Two keys may have the same number: what is found by it may be of another key.
CREATE FUNCTION taskq._key_hash(action text, group_id text, key text)
    RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN pg_catalog.hashtextextended(key COLLATE pg_catalog."C",
                                       pg_catalog.hashtextextended(COALESCE(group_id, '') COLLATE pg_catalog."C",
                                                                   pg_catalog.hashtextextended(action COLLATE pg_catalog."C", 0)));
COMMENT ON FUNCTION taskq._key_hash IS 'internal: what stands for an action, a group and a merge key in taskq.run';

CREATE FUNCTION taskq._body_json(body text)
    RETURNS jsonb
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'taskq_body_json_wrapper';
COMMENT ON FUNCTION taskq._body_json IS 'internal: a body as JSON, NULL if it is none';

-- A join of views by taskq.=== is by look-ups, whatever the statistics say: see src/pg/lookup.rs. The cost is for any other use.
CREATE FUNCTION taskq._same_support(internal)
    RETURNS internal
    LANGUAGE c STRICT
    AS 'MODULE_PATHNAME', 'taskq_same_support_wrapper';
COMMENT ON FUNCTION taskq._same_support IS 'internal: tells the planner how to use taskq.=== with an index';

CREATE FUNCTION taskq._same(bigint, bigint)
    RETURNS boolean
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE COST 10000
    SUPPORT taskq._same_support
    AS 'int8eq';
COMMENT ON FUNCTION taskq._same IS 'internal: whether two numbers are the same';

CREATE OPERATOR taskq.=== (
    FUNCTION = taskq._same, LEFTARG = bigint, RIGHTARG = bigint, COMMUTATOR = OPERATOR(taskq.===),
    RESTRICT = eqsel, JOIN = eqjoinsel);
COMMENT ON OPERATOR taskq.=== (bigint, bigint) IS 'internal: the same number, found by look-ups';

-- Inlined where it is used. src/state.rs has the same names, and others for causes that are NULL here.
CREATE FUNCTION taskq._cause(cause "char")
    RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE cause WHEN 'w' THEN 'returned' WHEN 't' THEN 'timeout' WHEN 'x' THEN 'tries' WHEN 'd' THEN 'dependency'
                      WHEN 'k' THEN 'skipped' WHEN 'c' THEN 'cancelled' WHEN 'o' THEN 'operator' WHEN 'm' THEN 'merged'
                      WHEN 'e' THEN 'expired' END;
COMMENT ON FUNCTION taskq._cause IS 'internal: why a task aborted, in a word';

-- A function that is not inlined: the planner works it out where the state is known, and would not look into a cast to a
-- domain.
CREATE FUNCTION taskq._status_code(state text)
    RETURNS taskq.status_code
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 1
    AS 'MODULE_PATHNAME', 'taskq_status_code_wrapper';
COMMENT ON FUNCTION taskq._status_code IS 'internal: the status code of a task in this state';

-- A value as it is, for one side of a join: it tells the planner that there may be many rows, whatever the statistics say,
-- so that the other side, if it is work to make, is made once and not once per row.
CREATE FUNCTION taskq._many(value text)
    RETURNS SETOF text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 1 ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS $$ BEGIN RETURN NEXT value; END $$;
COMMENT ON FUNCTION taskq._many IS 'internal: a value in one row, of which the planner thinks that there are a hundred';

CREATE FUNCTION taskq._check_words(argument text, given text[], known text[])
    RETURNS void
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'taskq_check_words_wrapper';
COMMENT ON FUNCTION taskq._check_words IS
    'internal: refuses an argument whose elements are to be some words if one of them is another';

CREATE FUNCTION taskq.clock()
    RETURNS timestamptz
    LANGUAGE c STABLE PARALLEL UNSAFE COST 1
    AS 'MODULE_PATHNAME', 'taskq_clock_wrapper';
COMMENT ON FUNCTION taskq.clock IS
    'now, by the clock of the queue (see the setting taskq.now)';

CREATE FUNCTION taskq._before_commit()
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_before_commit_wrapper';
COMMENT ON FUNCTION taskq._before_commit IS
    'internal: the last look at deferred signals; called by the queue itself before a commit';

CREATE FUNCTION taskq._tidy_before_commit()
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_tidy_before_commit_wrapper';
COMMENT ON FUNCTION taskq._tidy_before_commit IS
    'internal: what a transaction puts off to its end; called by the queue itself before a commit';

CREATE FUNCTION taskq._session()
    RETURNS TABLE (memory text, entries bigint, valid_until timestamptz, version bigint)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 20
    AS 'MODULE_PATHNAME', 'taskq_session_wrapper';
COMMENT ON FUNCTION taskq._session IS
    'internal: what this session remembers of the queue, for those who look for a mistake';

CREATE FUNCTION taskq.set_shard(n integer)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_set_shard_wrapper';
COMMENT ON FUNCTION taskq.set_shard IS
    'which of several servers this queue is, 0 to 4095; before its first task';

CREATE FUNCTION taskq.shard()
    RETURNS integer
    LANGUAGE c STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_shard_wrapper';
COMMENT ON FUNCTION taskq.shard IS
    'the shard that this queue is; 0 where none was set';

CREATE FUNCTION taskq.shard_of(token uuid)
    RETURNS integer
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 1
    AS 'MODULE_PATHNAME', 'taskq_shard_of_wrapper';
COMMENT ON FUNCTION taskq.shard_of IS
    'the shard on which a performance token was granted; NULL for what has not the form of one';

-- A command that takes no parameter. It locks the sequence against every session that takes a number, and a rollback
-- undoes it.
CREATE FUNCTION taskq._restart_numbers(first bigint)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('ALTER SEQUENCE taskq.position_seq RESTART WITH %s', first);
END
$$;
COMMENT ON FUNCTION taskq._restart_numbers IS
    'internal: where the numbers of tasks begin, of a queue that has had none';

-- A channel name has at most 63 bytes, an id up to 1,000: so a digest stands for the id.
CREATE FUNCTION taskq.task_channel(id text)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 5
    RETURN 'taskq_task_' OPERATOR(pg_catalog.||) pg_catalog.md5(id);
COMMENT ON FUNCTION taskq.task_channel IS
    'the channel that LISTEN needs for the end of a task inserted with post_result';
