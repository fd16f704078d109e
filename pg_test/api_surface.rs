//! The surface, frozen: functions, procedures, tables, sequences, types and views of the extension stand in `SURFACE`.

/// One line per object, in the order of the query in the test below: functions and procedures with their
/// arguments and results, sequences, tables, types, views with their columns. Where a name does not begin with `_`, names and
/// defaults of arguments and names of a view's columns are API: what disappears from this list breaks a client.
#[cfg(any(test, feature = "pg_test"))]
const SURFACE: &str = r#"
function _about() -> TABLE(action_no integer, state text, number bigint, first bigint, overdue bigint, exact boolean)
function _about_blocked(pages bigint) -> TABLE(action_no integer, number bigint)
function _about_parked(pages bigint) -> TABLE(action_no integer, held_back boolean, number bigint, first bigint)
function _about_run(pages bigint) -> TABLE(action_no integer, state text, number bigint, first bigint, overdue bigint, exact boolean)
function _about_scheduled(pages bigint) -> TABLE(action_no integer, due boolean, number bigint, first bigint, exact boolean)
function _about_tries() -> TABLE(outcome text, number bigint)
function _action_channels(actions text[]) -> SETOF integer
function _actors() -> bigint
function _age(age interval) -> text
function _alike(a text, b text) -> double precision
function _asked_for(action text, it text, calls bigint, for_it bigint, for_any bigint, names text[], numbers bigint[]) -> text
function _before_commit() -> void
function _body_json(body text) -> jsonb
function _cause(cause "char") -> text
function _chain(blocks jsonb) -> jsonb
function _check_words(argument text, given text[], known text[]) -> void
function _counted_pages() -> integer
function _ended() -> TABLE(action_no integer, code "char", cause "char", number bigint, recent bigint, ever bigint)
function _ends(within interval) -> TABLE(action_no integer, code "char", cause "char", at timestamp with time zone, number bigint)
function _front(of integer) -> TABLE(task_no bigint, in_progress boolean, deadline timestamp with time zone, actor_id text, whole boolean)
function _grant(part text, role regrole, give boolean) -> void
function _grant_part(part text, role regrole, actions text[]) -> void
function _has_part(part text, role regrole) -> boolean
function _heads() -> TABLE(action_no integer, task_no bigint, inserted_at timestamp with time zone, in_hand boolean, unleased bigint[], crowded boolean)
function _held_back() -> SETOF bigint
function _is_inserter() -> boolean
function _is_monitor() -> boolean
function _is_narrowed_inserter() -> boolean
function _is_narrowed_producer() -> boolean
function _is_narrowed_worker() -> boolean
function _is_operator() -> boolean
function _is_producer() -> boolean
function _is_worker() -> boolean
function _key_hash(action text, group_id text, key text) -> bigint
function _lane(group_id text) -> bigint
function _leased() -> TABLE(task_no bigint, action_no integer, deadline timestamp with time zone, actor_id text, whole boolean)
function _left_behind(actions text[], action_nos integer[]) -> SETOF integer
function _live(in_run boolean DEFAULT true, in_scheduled boolean DEFAULT true, in_parked boolean DEFAULT true, in_blocked boolean DEFAULT true) -> TABLE(action_no integer, state text, number bigint, first bigint, overdue bigint)
function _look_for_work(actions text[], keep_up boolean) -> TABLE(ready boolean, owed boolean, due timestamp with time zone, shared timestamp with time zone, rest bigint)
function _many(value text) -> SETOF text
function _num_settled(task_nos bigint[], task_ids text[]) -> integer
function _origin(task_no bigint) -> bigint
function _pace() -> TABLE(action_no integer, came double precision, ended double precision, ended_hour bigint, lost_hour bigint, waiting double precision[], running double precision[], worked bigint)
function _pages(relation regclass) -> bigint
function _parallel(blocks jsonb) -> jsonb
function _percentiles() -> TABLE(action text, waiting double precision[], running double precision[])
function _restart_numbers(first bigint) -> void
function _revoke_part(part text, role regrole) -> void
function _rights(part text) -> TABLE(kind text, name text)
function _role(role text) -> regrole
function _roughly(number double precision, exact boolean, narrow boolean) -> text
function _same(bigint, bigint) -> boolean
function _same_support(internal) -> internal
function _sample(pages bigint, number integer) -> TABLE(first tid, behind tid)
function _sampled_pages() -> integer
function _session() -> TABLE(memory text, entries bigint, valid_until timestamp with time zone, version bigint)
function _short(number double precision) -> text
function _status_code(state text) -> taskq.status_code
function _task_channels(task_ids text[]) -> SETOF bigint
function _tidy_before_commit() -> void
function _who_asks(action text) -> text
function action_channel(action text) -> text
function add_dependencies(after text[], run text[], condition text DEFAULT 'completed'::text, if_missing text DEFAULT 'error'::text) -> bigint
function add_dependencies(dependencies jsonb, named_only anyenum DEFAULT NULL::taskq.named_only, if_missing text DEFAULT 'error'::text) -> bigint
function ancestors(task_id text, max_tasks integer DEFAULT NULL::integer) -> TABLE(task_id text, action text, state text, depth integer)
function cancel_group(group_id text) -> bigint
function cancel_tasks(task_ids text[] DEFAULT NULL::text[], status text DEFAULT NULL::text, actions text[] DEFAULT NULL::text[], groups text[] DEFAULT NULL::text[], status_like text DEFAULT NULL::text, max_tasks integer DEFAULT NULL::integer) -> bigint
function chain(VARIADIC blocks jsonb[]) -> jsonb
function check() -> TABLE(problem text, task_id text, detail text)
function chord(header jsonb, callback jsonb) -> jsonb
function clock() -> timestamp with time zone
function complete_task(task_id text, result jsonb DEFAULT NULL::jsonb, status text DEFAULT NULL::text) -> taskq.status_code
function count_tasks(actions text[] DEFAULT NULL::text[], ids text[] DEFAULT NULL::text[], groups text[] DEFAULT NULL::text[], states text[] DEFAULT NULL::text[]) -> TABLE(action text, state text, count bigint)
function delay_workgroup(workgroup text, delay interval) -> timestamp with time zone
function delete_group(group_id text) -> bigint
function delete_tasks(task_ids text[] DEFAULT NULL::text[], actions text[] DEFAULT NULL::text[], groups text[] DEFAULT NULL::text[], status_like text DEFAULT NULL::text, causes text[] DEFAULT NULL::text[], settled_since timestamp with time zone DEFAULT NULL::timestamp with time zone, settled_until timestamp with time zone DEFAULT NULL::timestamp with time zone, max_tasks integer DEFAULT NULL::integer) -> bigint
function dependency_results(task_id text) -> TABLE(task_id text, action text, status_code taskq.status_code, status text, result jsonb)
function descendants(task_id text, max_tasks integer DEFAULT NULL::integer) -> TABLE(task_id text, action text, state text, depth integer)
function endings(after text DEFAULT NULL::text, max_tasks integer DEFAULT 1000, actions text[] DEFAULT NULL::text[]) -> TABLE(cursor text, task_id text, action text, group_id text, status_code taskq.status_code, cause text, status text, result jsonb, num_tries integer, settled_at timestamp with time zone)
function extend_tasks_ownership(actor_id text, task_ids text[], tokens uuid[], lease interval) -> TABLE(task_id text, owned boolean, action_deadline timestamp with time zone)
function failures(within interval DEFAULT '1 day'::interval, max_looked integer DEFAULT 50000) -> TABLE(action text, cause text, status text, number bigint, first_at timestamp with time zone, last_at timestamp with time zone, status_like text, last_task_id text)
function find_tasks(actions text[] DEFAULT NULL::text[], groups text[] DEFAULT NULL::text[], states text[] DEFAULT NULL::text[], causes text[] DEFAULT NULL::text[], status_like text DEFAULT NULL::text, body jsonb DEFAULT NULL::jsonb, metadata jsonb DEFAULT NULL::jsonb, inserted_since timestamp with time zone DEFAULT NULL::timestamp with time zone, inserted_until timestamp with time zone DEFAULT NULL::timestamp with time zone, id_prefix text DEFAULT NULL::text, before text DEFAULT NULL::text, max_tasks integer DEFAULT 50, max_looked integer DEFAULT 20000) -> TABLE(cursor text, task_id text)
function forget_action(action text) -> void
function grant_inserter(role text, actions text[] DEFAULT NULL::text[]) -> void
function grant_monitor(role text) -> void
function grant_operator(role text) -> void
function grant_producer(role text, actions text[] DEFAULT NULL::text[]) -> void
function grant_worker(role text, actions text[] DEFAULT NULL::text[]) -> void
function graph(task_id text, format text DEFAULT 'text'::text, max_tasks integer DEFAULT 500, skip integer DEFAULT 0) -> text
function health() -> TABLE(severity text, problem text, advice text, kind text, subject text, since timestamp with time zone)
function insert_many(action text, bodies text[], ids text[] DEFAULT NULL::text[], priority integer DEFAULT 0, max_tries integer DEFAULT NULL::integer, lease interval DEFAULT NULL::interval, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, depends_on text[] DEFAULT NULL::text[], to_signal_after text[] DEFAULT NULL::text[], spontaneous boolean DEFAULT false, post_result boolean DEFAULT false, group_id text DEFAULT NULL::text, retention interval DEFAULT NULL::interval, metadata jsonb DEFAULT NULL::jsonb, backoff jsonb DEFAULT NULL::jsonb, workgroup text DEFAULT NULL::text, merge_key text DEFAULT NULL::text, seed boolean DEFAULT false, on_conflict text DEFAULT 'error'::text, if_missing text DEFAULT 'error'::text, unique_by jsonb DEFAULT NULL::jsonb, retention_aborted interval DEFAULT NULL::interval, bodies_json jsonb DEFAULT NULL::jsonb, num_required integer DEFAULT NULL::integer, signal boolean DEFAULT false, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, expires_in interval DEFAULT NULL::interval, max_run_time interval DEFAULT NULL::interval) -> SETOF text
function insert_task(id text, action text, body jsonb, priority integer DEFAULT 0, max_tries integer DEFAULT NULL::integer, lease interval DEFAULT NULL::interval, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, depends_on text[] DEFAULT NULL::text[], to_signal_after text[] DEFAULT NULL::text[], spontaneous boolean DEFAULT false, post_result boolean DEFAULT false, group_id text DEFAULT NULL::text, retention interval DEFAULT NULL::interval, metadata jsonb DEFAULT NULL::jsonb, backoff jsonb DEFAULT NULL::jsonb, workgroup text DEFAULT NULL::text, merge_key text DEFAULT NULL::text, seed boolean DEFAULT false, on_conflict text DEFAULT 'error'::text, if_missing text DEFAULT 'error'::text, unique_by jsonb DEFAULT NULL::jsonb, retention_aborted interval DEFAULT NULL::interval, num_required integer DEFAULT NULL::integer, signal boolean DEFAULT false, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, expires_in interval DEFAULT NULL::interval, max_run_time interval DEFAULT NULL::interval) -> text
function insert_task(id text, action text, body text DEFAULT NULL::text, priority integer DEFAULT 0, max_tries integer DEFAULT NULL::integer, lease interval DEFAULT NULL::interval, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, depends_on text[] DEFAULT NULL::text[], to_signal_after text[] DEFAULT NULL::text[], spontaneous boolean DEFAULT false, post_result boolean DEFAULT false, group_id text DEFAULT NULL::text, retention interval DEFAULT NULL::interval, metadata jsonb DEFAULT NULL::jsonb, backoff jsonb DEFAULT NULL::jsonb, workgroup text DEFAULT NULL::text, merge_key text DEFAULT NULL::text, seed boolean DEFAULT false, on_conflict text DEFAULT 'error'::text, if_missing text DEFAULT 'error'::text, unique_by jsonb DEFAULT NULL::jsonb, retention_aborted interval DEFAULT NULL::interval, num_required integer DEFAULT NULL::integer, signal boolean DEFAULT false, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, expires_in interval DEFAULT NULL::interval, max_run_time interval DEFAULT NULL::interval) -> text
function insert_tasks(tasks jsonb, on_conflict text DEFAULT 'error'::text, if_missing text DEFAULT 'error'::text) -> SETOF text
function insert_tasks_report(tasks jsonb, on_conflict text DEFAULT 'error'::text, if_missing text DEFAULT 'error'::text) -> TABLE(task_id text, outcome text, existing_id text)
function lost_channel(actor_id text) -> text
function maintain() -> bigint
function map(action text, bodies jsonb) -> jsonb
function metrics(kept boolean DEFAULT true) -> text
function metrics_rows(kept boolean DEFAULT true) -> TABLE(name text, labels jsonb, value double precision)
function next_times(cron text, timezone text DEFAULT 'UTC'::text, number integer DEFAULT 10) -> SETOF timestamp with time zone
function own_tasks(actor_id text, max_tasks integer, actions text[], lease interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, with_results boolean DEFAULT false, with_steps boolean DEFAULT false) -> TABLE(task_id text, token uuid, action text, body text, num_tries integer, num_failures integer, action_deadline timestamp with time zone, checkpoint jsonb, results jsonb, priority integer, metadata jsonb, body_json jsonb, steps jsonb, incomplete boolean)
function page(graph_of text DEFAULT NULL::text, title text DEFAULT NULL::text, refresh interval DEFAULT NULL::interval) -> text
function parallel(VARIADIC blocks jsonb[]) -> jsonb
function pause_action(action text) -> boolean
function pause_group(group_id text) -> bigint
function pause_schedule(name text) -> boolean
function recount() -> void
function release_tasks(task_ids text[] DEFAULT NULL::text[], actors text[] DEFAULT NULL::text[], actions text[] DEFAULT NULL::text[], status text DEFAULT NULL::text) -> bigint
function replace_tasks(tasks jsonb, if_missing text DEFAULT 'error'::text) -> SETOF text
function report_status(task_id text, token uuid, status text DEFAULT NULL::text, progress double precision DEFAULT NULL::double precision, checkpoint jsonb DEFAULT NULL::jsonb) -> void
function rerun_tasks(task_ids text[], downstream boolean DEFAULT true) -> bigint
function reset_group(group_id text) -> bigint
function resume_action(action text) -> boolean
function resume_group(group_id text) -> bigint
function resume_schedule(name text) -> boolean
function retry_group(group_id text) -> bigint
function retry_tasks(task_ids text[] DEFAULT NULL::text[], actions text[] DEFAULT NULL::text[], groups text[] DEFAULT NULL::text[], status_like text DEFAULT NULL::text, causes text[] DEFAULT NULL::text[], settled_since timestamp with time zone DEFAULT NULL::timestamp with time zone, settled_until timestamp with time zone DEFAULT NULL::timestamp with time zone, max_tasks integer DEFAULT NULL::integer) -> bigint
function return_and_own_tasks(actor_id text, returns jsonb, max_tasks integer, actions text[], lease interval DEFAULT NULL::interval, with_results boolean DEFAULT false, with_steps boolean DEFAULT false) -> TABLE(task_id text, token uuid, action text, body text, num_tries integer, num_failures integer, action_deadline timestamp with time zone, checkpoint jsonb, results jsonb, priority integer, metadata jsonb, body_json jsonb, steps jsonb, incomplete boolean, sqlstate text)
function return_and_own_tasks(actor_id text, task_ids text[], tokens uuid[], max_tasks integer, actions text[], lease interval DEFAULT NULL::interval, with_results boolean DEFAULT false, with_steps boolean DEFAULT false) -> TABLE(task_id text, token uuid, action text, body text, num_tries integer, num_failures integer, action_deadline timestamp with time zone, checkpoint jsonb, results jsonb, priority integer, metadata jsonb, body_json jsonb, steps jsonb, incomplete boolean, sqlstate text)
function return_task(task_id text, token uuid, status_code text DEFAULT 'completed'::text, status text DEFAULT NULL::text, result jsonb DEFAULT NULL::jsonb, retry_after interval DEFAULT NULL::interval, children jsonb DEFAULT NULL::jsonb, children_block boolean DEFAULT false, delay_children interval DEFAULT NULL::interval, delay_workgroup interval DEFAULT NULL::interval, count_try boolean DEFAULT true, depends_on jsonb DEFAULT NULL::jsonb, wait_at_most interval DEFAULT NULL::interval) -> taskq.status_code
function return_tasks(returns jsonb) -> TABLE(task_id text, status_code taskq.status_code, sqlstate text)
function return_tasks(task_ids text[], tokens uuid[], status_code text DEFAULT 'completed'::text, status text DEFAULT NULL::text, result jsonb DEFAULT NULL::jsonb, retry_after interval DEFAULT NULL::interval, delay_workgroup interval DEFAULT NULL::interval, count_try boolean DEFAULT true) -> TABLE(task_id text, status_code taskq.status_code, sqlstate text)
function revoke_inserter(role text) -> void
function revoke_monitor(role text) -> void
function revoke_operator(role text) -> void
function revoke_producer(role text) -> void
function revoke_worker(role text) -> void
function rewind_task(task_id text, step text) -> bigint
function run_schedule(name text) -> text
function save_step(task_id text, token uuid, step text, result jsonb DEFAULT NULL::jsonb, lease interval DEFAULT NULL::interval) -> jsonb
function schedule(name text, cron text, task jsonb, timezone text DEFAULT 'UTC'::text, overlap text DEFAULT 'skip'::text, backfill text DEFAULT 'one'::text, max_backfill integer DEFAULT NULL::integer) -> timestamp with time zone
function series(within interval DEFAULT '01:00:00'::interval, actions text[] DEFAULT NULL::text[]) -> TABLE(at timestamp with time zone, completed bigint, aborted bigint, skipped bigint, waiting_p50 interval, waiting_p99 interval, running_p50 interval, running_p99 interval)
function set_action(action text, max_tries integer DEFAULT NULL::integer, lease interval DEFAULT NULL::interval, backoff jsonb DEFAULT NULL::jsonb, max_concurrency integer DEFAULT NULL::integer, rate_limit integer DEFAULT NULL::integer, rate_period interval DEFAULT NULL::interval, retention interval DEFAULT NULL::interval, notify boolean DEFAULT NULL::boolean, on_timeout text DEFAULT NULL::text, max_timeouts integer DEFAULT NULL::integer, clear text[] DEFAULT NULL::text[], retention_aborted interval DEFAULT NULL::interval, fair boolean DEFAULT NULL::boolean, max_per_group integer DEFAULT NULL::integer, expires_in interval DEFAULT NULL::interval, max_run_time interval DEFAULT NULL::interval) -> void
function set_group(group_id text, max_concurrency integer DEFAULT NULL::integer, weight integer DEFAULT NULL::integer, clear text[] DEFAULT NULL::text[]) -> void
function set_shard(n integer) -> void
function shard() -> integer
function shard_of(token uuid) -> integer
function signal(task_id text, result jsonb DEFAULT NULL::jsonb, status text DEFAULT NULL::text, action text DEFAULT 'signal'::text, retention interval DEFAULT NULL::interval) -> boolean
function signal_tasks(signals jsonb) -> bigint
function stop_waiting(actor_id text) -> bigint
function task_channel(id text) -> text
function unschedule(name text) -> void
function update_tasks(task_ids text[] DEFAULT NULL::text[], priority integer DEFAULT NULL::integer, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, max_tries integer DEFAULT NULL::integer, lease interval DEFAULT NULL::interval, body text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, if_started text DEFAULT 'error'::text, groups text[] DEFAULT NULL::text[], actions text[] DEFAULT NULL::text[]) -> bigint
function wait_for_task(task_id text, timeout interval DEFAULT '00:00:10'::interval) -> TABLE(task_id text, status_code taskq.status_code, status text, result jsonb, settled_at timestamp with time zone)
function why(task_id text) -> SETOF text
procedure wait_for_tasks(IN task_ids text[], IN timeout interval, INOUT num_settled integer DEFAULT NULL::integer)
procedure wait_for_work(IN actions text[], IN timeout interval, INOUT ready boolean DEFAULT NULL::boolean)
sequence action_no_seq
sequence position_seq
table action
table action_setting
table attempt
table blocked
table bucket
table countdown
table dependency
table end_tally
table expiry
table graph_guard
table group_tally
table lease
table merge_key
table parked
table part_action
table progress
table run
table schedule
table scheduled
table seal
table settled
table slot
table step
table task
table task_group
table unique_key
table workgroup
type _schema_1
type dependency_condition
type named_only
type status_code
view _asking(pid, action_no, for_any, for_ends)
view _counts(action_no, state, number, first, recent, exact)
view _numbers(action, blocked, scheduled, ready, in_progress, completed, aborted, oldest_ready, settled_last_minute, estimates, skipped)
view _places(task_no, state, applies, held_back, num_tries, num_signals, total_dependencies, num_failures, actor_id, deadline, due, granted_at, settled_at, status, result, leader_no, cause)
view _standing(task_no, stored, own, open, own_open, met, failed, met_left, lost_left, failed_left)
view _told_attempt(task_no, num_try, actor_id, started_at, ended_at, outcome, status)
view actions(action, paused, max_tries, lease, backoff, max_concurrency, slots_held, rate_limit, rate_period, retention, notify, on_timeout, max_timeouts, retention_aborted, fair, max_per_group, expires_in, max_run_time)
view actors(actor_id, task_id, action, action_deadline, overdue, owned_at, num_tries, id)
view attempts(task_id, num_try, actor_id, started_at, ended_at, outcome, status, id)
view dead_ends(task_id, action, group_id, body, cause, status, result, num_tries, actor_id, inserted_at, settled_at, kept_until, attempts, id, root)
view dependencies(after, run, condition, settled)
view groups(group_id, paused, blocked, scheduled, ready, in_progress, completed, aborted, progress, first_inserted_at, last_settled_at, estimated_end, tasks, max_concurrency, weight, skipped)
view inbox(task_id, action, group_id, body, metadata, inserted_at, expires_at, waited_by, position, id)
view schedules(name, cron, timezone, task, overlap, backfill, next_at, last_at, last_task_id, problem, max_backfill, paused)
view stats(action, blocked, scheduled, ready, in_progress, completed, aborted, oldest_ready, settled_last_minute, waiting_p50, waiting_p99, running_p50, running_p99, skipped)
view steps(task_id, position, step, num_try, result, saved_at, id)
view tasks(id, action, state, body, status_code, status, num_tries, max_tries, num_signals, total_dependencies, num_failures, actor_id, action_deadline, result, priority, lease, not_before, retention, spontaneous, post_result, group_id, workgroup, merge_key, seed, backoff, metadata, progress, inserted_at, owned_at, settled_at, unique_key, retention_aborted, merged_into, body_json, cause, num_releases, expires_at, max_run_time, signal, num_required, task_id, checkpoint)
view top(action, ready, busy, blocked, later, oldest, in_out, wait, run)
view unique_keys(action, key, task_id, state, held, held_until, id)
view waits(task_id, action, group_id, since, until, waits_for, id)
view workers(pid, role, application_name, actor_id, actions, asleep_since, tasks_held)
view workgroups(workgroup, not_before, held_back)
"#;

#[pgrx::pg_schema]
mod tests {
    use super::SURFACE;
    use crate::pg_test::queue::{all, one};
    use pgrx::prelude::*;

    fn owned() -> Vec<String> {
        all("SELECT line FROM (
                SELECT CASE p.prokind WHEN 'p' THEN 'procedure ' ELSE 'function ' END || p.proname
                       || '(' || pg_get_function_arguments(p.oid) || ')'
                       || COALESCE(' -> ' || pg_get_function_result(p.oid), '')
                  FROM pg_proc AS p
                  JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
                 WHERE p.pronamespace = 'taskq'::regnamespace
                UNION ALL
                SELECT CASE c.relkind WHEN 'v' THEN 'view ' WHEN 'S' THEN 'sequence ' ELSE 'table ' END || c.relname
                       || CASE c.relkind WHEN 'v' THEN
                              '(' || (SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_attribute AS a
                                       WHERE a.attrelid = c.oid AND a.attnum > 0) || ')' ELSE '' END
                  FROM pg_class AS c
                  JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
                 WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
                UNION ALL
                -- Without those that tables and views bring along, and arrays: since PostgreSQL 17 these are members as well.
                SELECT 'type ' || t.typname
                  FROM pg_type AS t
                  JOIN pg_depend AS d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
                 WHERE t.typnamespace = 'taskq'::regnamespace AND t.typcategory <> 'A'
                   AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = t.typrelid AND c.relkind <> 'c')) AS surface(line)
              ORDER BY line COLLATE \"C\"")
    }

    #[pg_test]
    fn the_surface_is_the_one_that_is_written_down() {
        let owned = owned();
        let listed: Vec<&str> = SURFACE.trim().lines().collect();
        let new: Vec<&str> = owned.iter().map(String::as_str).filter(|line| !listed.contains(line)).collect();
        let gone: Vec<&str> =
            listed.iter().copied().filter(|line| !owned.iter().any(|o| o == line)).collect();
        assert!(
            new.is_empty() && gone.is_empty(),
            "the extension's surface differs from SURFACE in pg_test/api_surface.rs.\n\
             If that is what you want, change the list (sorted by bytes), docs/reference and CHANGELOG.md.\n\
             Lines to add:\n{}\nLines to remove:\n{}\n",
            new.join("\n"),
            gone.join("\n"),
        );
        assert!(
            owned.iter().zip(&listed).all(|(a, b)| a == b),
            "SURFACE is not sorted by bytes, or has a line twice"
        );
    }

    #[pg_test]
    fn everything_in_the_schema_belongs_to_the_extension() {
        let strays: Vec<String> = all("SELECT p.oid::regprocedure::text FROM pg_proc AS p
              WHERE p.pronamespace = 'taskq'::regnamespace
                AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e')");
        assert!(strays.is_empty(), "{strays:#?}");
        let schema: i64 = one("SELECT count(*) FROM pg_depend WHERE classid = 'pg_namespace'::regclass
              AND objid = 'taskq'::regnamespace AND deptype = 'e'");
        assert_eq!(schema, 1, "DROP EXTENSION takes the schema along");
    }

    #[pg_test]
    fn everything_in_the_schema_has_a_comment() {
        let silent: Vec<String> = all("SELECT p.oid::regprocedure::text FROM pg_proc AS p
              WHERE p.pronamespace = 'taskq'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
             UNION ALL
             SELECT c.oid::regclass::text FROM pg_class AS c
              WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
                AND obj_description(c.oid, 'pg_class') IS NULL
             UNION ALL
             SELECT t.oid::regtype::text FROM pg_type AS t
              WHERE t.typnamespace = 'taskq'::regnamespace AND t.typtype IN ('d', 'e')
                AND obj_description(t.oid, 'pg_type') IS NULL");
        assert!(silent.is_empty(), "{silent:#?}\nCOMMENT ON … belongs behind each CREATE");
    }

    #[pg_test]
    fn every_column_of_a_view_has_a_comment_and_a_name_without_quotes() {
        let columns = "SELECT v.relname || '.' || a.attname FROM pg_class AS v
              JOIN pg_attribute AS a ON a.attrelid = v.oid AND a.attnum > 0
             WHERE v.relnamespace = 'taskq'::regnamespace AND v.relkind = 'v' AND v.relname NOT LIKE '\\_%'";
        let silent: Vec<String> = all(&format!("{columns} AND col_description(v.oid, a.attnum) IS NULL"));
        assert!(silent.is_empty(), "{silent:#?}\nA line of sql/comments.sql is for each");
        // Whether a name needs quotes in a list of columns.
        let quoted: Vec<String> = all(&format!(
            "{columns} AND (a.attname !~ '^[a-z_0-9]+$' OR EXISTS (SELECT FROM pg_get_keywords() AS k WHERE k.word = a.attname AND k.catcode = 'R'))
             UNION ALL
             SELECT p.proname || '.' || o.name FROM pg_proc AS p CROSS JOIN unnest(p.proargnames, p.proargmodes) AS o(name, mode)
              WHERE p.pronamespace = 'taskq'::regnamespace AND p.proname NOT LIKE '\\_%' AND o.mode IN ('o', 'b', 't')
                AND (o.name !~ '^[a-z_0-9]+$' OR EXISTS (SELECT FROM pg_get_keywords() AS k WHERE k.word = o.name AND k.catcode = 'R'))"
        ));
        assert!(quoted.is_empty(), "{quoted:#?}");
    }

    /// A worker of a parallel plan calls what its function calls.
    #[pg_test]
    fn what_calls_a_parallel_unsafe_function_is_unsafe_itself() {
        let wrong: Vec<String> = all("WITH bodies AS (
                SELECT p.proname AS name, COALESCE(pg_get_function_sqlbody(p.oid), p.prosrc) AS body
                  FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
                 WHERE p.pronamespace = 'taskq'::regnamespace AND l.lanname IN ('sql', 'plpgsql') AND p.proparallel = 's'),
              callees AS (
                SELECT p.proname AS name FROM pg_proc AS p
                 WHERE p.pronamespace = 'taskq'::regnamespace AND p.proparallel = 'u')
             SELECT DISTINCT b.name || ' calls ' || c.name
               FROM bodies AS b JOIN callees AS c ON b.body ~ ('taskq\\.' || c.name || '\\(')");
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[pg_test]
    fn functions_that_write_are_volatile_and_never_parallel() {
        let wrong: Vec<String> = all("SELECT p.oid::regprocedure::text FROM pg_proc AS p
               JOIN pg_language AS l ON l.oid = p.prolang
              WHERE p.pronamespace = 'taskq'::regnamespace AND p.proname NOT LIKE '\\_%' AND l.lanname = 'c' AND p.provolatile = 'v'
                AND (p.proparallel <> 'u' OR p.proisstrict)");
        assert!(
            wrong.is_empty(),
            "{wrong:#?}\nNULL is refused by the function itself, and work is never repeated"
        );
    }
}
