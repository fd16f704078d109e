//! What a session may set makes no difference to what the queue does and answers: neither the planner's choices, nor how
//! values are spelt, nor what is in the way of a name.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use taskq_tests::{Db, Session};

/// A scenario of which every answer is the same each time: at a time that stands still, without tokens. What is written for
/// people has times in the spelling of the session: these are cut off.
const SCENARIO: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[
        {"id": "a", "action": "x", "priority": 2, "lease": "1 hour 30 minutes", "metadata": {"a": 1.50}},
        {"id": "b", "action": "x", "depends_on": ["a"], "not_before": "2030-03-04 05:06:07+00", "retention": "P1DT2H"},
        {"id": "c", "action": "x", "depends_on": [{"id": "a", "condition": "settled"}, "b"], "group_id": "g"},
        {"id": "d", "action": "y", "delay": "1 day 02:03:04.5", "unique_by": {"key": "k", "period": "2 hours"}},
        {"id": "m", "action": "y", "spontaneous": true, "depends_on": ["c"], "post_result": true},
        {"id": "n", "action": "z", "merge_key": "m"}, {"id": "o", "action": "z", "merge_key": "m"}]')"#,
    r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "e", "action": "y", "unique_by": "k"}, {"id": "a", "action": "x"}]', 'skip')"#,
    "SELECT taskq.insert_task('f', 'x', E'a\\\\b\\n\"c\"', delay => '3 days', retention => '1 mon', depends_on => ARRAY['a', NULL])",
    "SELECT taskq.insert_task('f', 'x', E'a\\\\b\\n\"c\"', delay => '3 days', retention => '1 mon', depends_on => ARRAY['a'])",
    "SELECT taskq.insert_many('many', ARRAY['1', NULL, '3'], ARRAY['1', '2', '3'], lease => '90 seconds')",
    "SELECT taskq.set_action('x', max_concurrency => 2, lease => '1 day 1 hour', rate_limit => 10, rate_period => '1 minute', \
     backoff => '{\"kind\": \"exponential\", \"initial\": \"1.5 seconds\", \"max\": \"1 day\"}')",
    "SELECT task_id, action, body, num_tries, extract(epoch FROM action_deadline), metadata, body_json \
     FROM taskq.own_tasks('w', 5, '{x,z}', with_results => true)",
    "SELECT extract(epoch FROM action_deadline), progress, checkpoint FROM taskq.tasks WHERE id = 'a'",
    "SELECT taskq.report_status('a', @a, 'half', 0.1, '{\"at\": 0.1}')",
    "SELECT progress = 0.1, status FROM taskq.tasks WHERE id = 'a'",
    "SELECT task_id, owned FROM taskq.extend_tasks_ownership('v', '{a,n}', ARRAY[@a, @n], '2 hours 30 minutes')",
    "SELECT taskq.return_task('a', @a, 'pending', 'again', retry_after => '1 day 1 minute')",
    "SELECT id, state, status, extract(epoch FROM not_before) FROM taskq.tasks ORDER BY id COLLATE \"C\"",
    "SELECT regexp_replace(why, ' before .*', '') FROM taskq.why('a')",
    "SELECT regexp_replace(why, ' before .*', '') FROM taskq.why('c')",
    "SELECT regexp_replace(why, ' before .*', '') FROM taskq.why('d')",
    "SELECT taskq.return_task('n', @n, result => '{\"n\": 1.0}')",
    "SELECT taskq.complete_task('b', '[1, 2.50]')",
    "SELECT taskq.update_tasks('{a}', delay => '0', priority => 9)",
    "SELECT taskq.add_dependencies('{d}', '{c}')",
    "SELECT taskq.add_dependencies('{c}', '{d}')",
    "SELECT taskq.schedule('s', '0 5 * * *', '{\"action\": \"x\"}', 'Europe/Berlin') IS NOT NULL",
    "SELECT name, cron, timezone, task, extract(epoch FROM next_at) FROM taskq.schedules",
    "SELECT taskq.delay_workgroup('w', '1 hour') IS NOT NULL",
    "SELECT taskq.cancel_tasks(status_like => 'again')",
    "SELECT taskq.retry_tasks('{a}')",
    "SELECT taskq.set_group('g', max_concurrency => 3), taskq.pause_group('g'), taskq.resume_group('g')",
    "SELECT * FROM taskq.count_tasks() ORDER BY action, state",
    "SELECT after, run, condition, settled FROM taskq.dependencies ORDER BY 1, 2",
    "SELECT key, task_id, state, held, extract(epoch FROM held_until) FROM taskq.unique_keys",
    "SELECT task_id, num_try, outcome, extract(epoch FROM started_at) FROM taskq.attempts ORDER BY 1, 2",
    "SELECT taskq.graph('c'), taskq.graph('c', 'dot'), taskq.graph('c', 'mermaid')",
    "SELECT * FROM taskq.ancestors('m')",
    "SELECT severity, regexp_replace(problem, ' to .*', ''), advice FROM taskq.health() ORDER BY 1, 2",
    "SELECT name, labels, value FROM taskq.metrics_rows() WHERE right(name, 6) <> '_total' ORDER BY 1, 2",
    "SELECT task_id, status_code, status, result FROM taskq.wait_for_task('b', '0')",
    "SELECT * FROM taskq.dependency_results('c')",
    "SELECT taskq.chain('{\"id\": \"1\", \"action\": \"x\"}', '{\"id\": \"2\", \"action\": \"y\"}')",
    "SELECT taskq.insert_task('late', 'x', lease => '-1 day -02:03:04')",
    "SELECT taskq.insert_task('late', 'x', delay => '1001 years 2 mons')",
    "SELECT taskq.insert_task('late', 'x', delay => '1 day', not_before => '2031-01-01T00:00:00Z')",
    "SELECT taskq.delete_tasks('{a,b}')",
    "SELECT taskq.maintain() >= 0",
    "SELECT * FROM taskq.check()",
];

/// Beside every `enable_*` that the server has, off.
const SETTINGS: &[&str] = &[
    "DateStyle = 'SQL, DMY'",
    "DateStyle = 'German'",
    "DateStyle = 'Postgres, MDY'",
    "IntervalStyle = 'sql_standard'",
    "IntervalStyle = 'postgres_verbose'",
    "IntervalStyle = 'iso_8601'",
    "TimeZone = 'Pacific/Kiritimati'",
    "TimeZone = 'America/St_Johns'",
    "extra_float_digits = -15",
    "extra_float_digits = 3",
    "bytea_output = 'escape'",
    "search_path = ''",
    "search_path = 'pg_temp'",
    "search_path = 'evil, pg_catalog, taskq'",
    "plan_cache_mode = 'force_custom_plan'",
    "plan_cache_mode = 'force_generic_plan'",
    "session_replication_role = 'replica'",
    "session_replication_role = 'local'",
    "force_parallel_mode = 'on'",
    "debug_parallel_query = 'on'",
    "jit = on; SET jit_above_cost = 0",
    "standard_conforming_strings = off",
    "array_nulls = off",
    "transform_null_equals = on",
    "quote_all_identifiers = on",
    "row_security = off",
    "work_mem = '64kB'",
    "geqo_threshold = 2",
    "join_collapse_limit = 1",
    "from_collapse_limit = 1",
    "constraint_exclusion = 'on'",
    "cursor_tuple_fraction = 1",
    "random_page_cost = 1000",
    "seq_page_cost = 1000",
    "cpu_tuple_cost = 1000",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_isolation = 'repeatable read'",
    "synchronous_commit = off",
    "check_function_bodies = off",
    "xmloption = 'document'",
    "lc_monetary = 'C'",
    "lc_time = 'C'",
    "lc_numeric = 'C'",
    "effective_cache_size = '8kB'",
    "parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 4",
    "default_toast_compression = 'pglz'",
    "backend_flush_after = 1",
    "client_min_messages = 'debug1'",
    "debug_print_plan = on",
    "track_activities = off",
    "log_statement_stats = on",
    "idle_in_transaction_session_timeout = '1h'",
    "lock_timeout = '1min'",
];

/// What a careless or hostile schema may have in the way.
const EVIL: &str = "CREATE SCHEMA evil;
    CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1970-01-01' $$;
    CREATE FUNCTION evil.count(anyelement) RETURNS bigint LANGUAGE sql AS $$ SELECT 666::bigint $$;
    CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
    CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
    CREATE FUNCTION evil.jsonb_build_object(VARIADIC \"any\") RETURNS jsonb LANGUAGE internal AS 'jsonb_build_object';
    CREATE TABLE evil.task (id text); CREATE TABLE evil.settled (task_no bigint); CREATE VIEW evil.tasks AS SELECT 1 AS id;
    CREATE DOMAIN evil.text AS pg_catalog.text CHECK (VALUE = 'evil');";

/// What the scenario answers after a statement: a setting, or something else that is to make no difference.
fn answers(first: &str) -> Vec<String> {
    let (_db, [mut session]) = Db::connected();
    session.run(EVIL);
    session.run("SET taskq.now = '2030-01-01T00:00:00Z'; SET taskq.backoff = ''");
    session.run(first);
    let mut tokens: Vec<(String, String)> = Vec::new();
    SCENARIO.iter().map(|step| format!("{step}\n{}", answer(&mut session, step, &mut tokens))).collect()
}

fn answer(session: &mut Session, step: &str, tokens: &mut Vec<(String, String)>) -> String {
    let mut call = step.to_owned();
    for (task, token) in tokens.iter() {
        call = call.replace(&format!("@{task}"), &format!("'{token}'::uuid"));
    }
    if call.contains("own_tasks(") {
        call = call.replace("SELECT task_id,", "SELECT token, task_id,");
    }
    let rows = match session.simple_query(&call) {
        Ok(messages) => messages,
        Err(error) => {
            let error = error.as_db_error().unwrap_or_else(|| panic!("{call}: {error:?}"));
            return format!(
                "{} {} {:?} {:?}",
                error.code().code(),
                error.message(),
                error.detail(),
                error.hint()
            );
        }
    };
    let mut lines = Vec::new();
    for message in rows {
        let postgres::SimpleQueryMessage::Row(row) = message else { continue };
        let mut values = Vec::new();
        for (number, column) in row.columns().iter().enumerate() {
            let value = row.get(number).unwrap_or("NULL");
            if column.name() == "token" {
                tokens.push((row.get("task_id").unwrap_or_default().to_owned(), value.to_owned()));
            } else {
                values.push(value);
            }
        }
        lines.push(values.join(" | "));
    }
    lines.join("\n")
}

#[test]
fn what_a_session_sets_makes_no_difference() {
    let db = Db::new();
    let mut settings: Vec<String> = db
        .connect()
        .all("SELECT name || ' = off' FROM pg_settings WHERE name LIKE 'enable\\_%' AND vartype = 'bool' ORDER BY 1");
    // Some have other names on other versions.
    let known: Vec<String> = db.connect().all("SELECT lower(name) FROM pg_settings");
    let exists = |setting: &&&str| {
        let name = setting.split(' ').next().unwrap_or_default().to_lowercase();
        known.contains(&name)
    };
    settings.extend(SETTINGS.iter().filter(exists).map(|&setting| setting.to_owned()));
    let usual = answers("");
    assert_eq!(usual, answers(""), "the scenario is the same each time");
    let (next, different) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(setting) = settings.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for (seen, usual) in answers(&format!("SET {setting}")).iter().zip(&usual) {
                        if seen != usual {
                            let line = seen.lines().zip(usual.lines()).find(|(one, other)| one != other);
                            let text =
                                format!("SET {setting}\n{}\n{line:?}", usual.lines().next().unwrap_or(""));
                            different.lock().expect("no panic").push(text);
                        }
                    }
                }
            });
        }
    });
    let different = different.into_inner().expect("no panic");
    println!("{} settings, {} steps each", settings.len(), SCENARIO.len());
    assert!(different.is_empty(), "{}\n{}", different.len(), different.join("\n\n"));
}

/// Tools for change data capture, and upgrades by logical replication, publish all tables there are. PostgreSQL refuses each
/// UPDATE and DELETE of a published table without a replica identity, whatever `wal_level` is: a grant failed for that.
#[test]
fn a_publication_of_all_tables_makes_no_difference() {
    assert_eq!(answers("CREATE PUBLICATION everything FOR ALL TABLES"), answers(""));
    // Nor of tables that the scenario does not write to.
    let without: Vec<String> = Db::new().connect().all(
        "SELECT c.relname::text FROM pg_class c
          WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'r' AND c.relreplident <> 'f'
            AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)",
    );
    assert_eq!(without, [""; 0]);
}

/// A tool of the house has put columns of its own into our tables, and taken some away again.
const COLUMNS: &str = "DO $$
    DECLARE of_ours text;
    BEGIN
        FOR of_ours IN SELECT c.oid::regclass FROM pg_class AS c WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'r' LOOP
            FOR n IN 1..9 LOOP
                EXECUTE format('ALTER TABLE %s ADD COLUMN theirs_%s text', of_ours, n);
            END LOOP;
            EXECUTE format('ALTER TABLE %s DROP COLUMN theirs_4', of_ours);
        END LOOP;
    END $$";

#[test]
fn columns_that_are_added_to_tables_make_no_difference() {
    assert_eq!(answers(COLUMNS), answers(""));
    // Nor beside others, where a signal is left to the holder of the counter.
    let (_db, [mut session, mut other]) = Db::connected();
    session.run(COLUMNS);
    session
        .insert(serde_json::json!([{"id": "p", "action": "x"}, {"id": "q", "action": "x"},
            {"id": "child", "action": "y", "depends_on": ["p", "q"]}]))
        .unwrap();
    let grants = session.own("w", 2, &["x"]).unwrap();
    session.run("BEGIN");
    session.complete(&grants[0]);
    other.complete(&grants[1]);
    session.run("COMMIT");
    assert_eq!(session.state("child"), "ready");
}

/// What writes is refused as PostgreSQL refuses it, and what looks works.
#[test]
fn a_session_that_may_only_read() {
    let db = Db::new();
    let (mut session, grant) = crate::scene::set(&db);
    let before = taskq_tests::state_of_all(&mut session);
    session.run("SET default_transaction_read_only = on");
    let returning = format!("SELECT taskq.return_task('held', '{}')", grant.token);
    let writes = [
        "SELECT taskq.insert_task('new', 'x')",
        "SELECT taskq.insert_tasks('[{\"action\": \"x\"}]')",
        "SELECT taskq.replace_tasks('[{\"id\": \"ready\", \"action\": \"x\"}]')",
        "SELECT * FROM taskq.own_tasks('w', 1, '{x}')",
        &returning,
        "SELECT taskq.cancel_tasks('{ready}')",
        "SELECT taskq.delete_tasks('{ready}')",
        "SELECT taskq.retry_tasks('{failed}')",
        "SELECT taskq.update_tasks('{ready}', priority => 1)",
        "SELECT taskq.add_dependencies('{ready}', '{blocked}')",
        "SELECT taskq.pause_action('x')",
        "SELECT taskq.pause_group('g')",
        "SELECT taskq.delay_workgroup('w', '1 day')",
        "SELECT taskq.run_schedule('s')",
        "SELECT taskq.maintain()",
        "SELECT taskq.complete_task('ready')",
    ];
    for call in writes {
        let error = session.batch_execute(call).expect_err(call);
        assert_eq!(taskq_tests::sqlstate(&error), "25006", "{call}: {error:?}");
    }
    for look in [
        "SELECT * FROM taskq.tasks",
        "SELECT * FROM taskq.why('blocked')",
        "SELECT taskq.metrics()",
        "SELECT * FROM taskq.health()",
        "SELECT * FROM taskq.check()",
        "SELECT taskq.graph('blocked')",
        "SELECT * FROM taskq.wait_for_task('done', '0')",
    ] {
        session.run(look);
    }
    assert!(before == taskq_tests::state_of_all(&mut session), "nothing has changed");
}
