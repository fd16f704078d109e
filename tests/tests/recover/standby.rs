//! A hot standby: it answers who looks, and refuses who would change something.

use std::collections::BTreeSet;

use taskq_tests::full::{fill, snapshot};
use taskq_tests::{Cluster, sqlstate};

use crate::TMP;
use crate::failover::catch_up;

/// What looks, with what it is asked.
const LOOKS: [(&str, &str); 31] = [
    ("action_channel", "taskq.action_channel('x')"),
    ("ancestors", "taskq.ancestors('below')"),
    ("chain", "taskq.chain('{\"id\": \"1\", \"action\": \"x\"}')"),
    ("check", "taskq.check()"),
    ("chord", "jsonb_array_length(taskq.chord('[{\"action\": \"x\"}]', '{\"action\": \"y\"}'))"),
    ("clock", "taskq.clock() IS NOT NULL"),
    ("count_tasks", "taskq.count_tasks()"),
    ("dependency_results", "taskq.dependency_results('blocked')"),
    ("descendants", "taskq.descendants('held 1')"),
    ("endings", "taskq.endings()"),
    ("failures", "(SELECT count(*) FROM taskq.failures()) >= 0"),
    ("find_tasks", "(SELECT count(*) > 1 FROM taskq.find_tasks())"),
    ("graph", "taskq.graph('mark', 'mermaid')"),
    ("health", "(SELECT count(*) FROM taskq.health()) >= 0"),
    ("lost_channel", "taskq.lost_channel('w')"),
    ("map", "jsonb_array_length(taskq.map('x', '[1, 2]'))"),
    ("metrics", "length(taskq.metrics()) > 1000"),
    ("metrics_rows", "(SELECT count(*) > 10 FROM taskq.metrics_rows())"),
    ("next_times", "(SELECT count(*) = 3 FROM taskq.next_times('@daily', number => 3))"),
    ("page", "length(taskq.page()) > 1000"),
    ("parallel", "taskq.parallel('{\"id\": \"1\", \"action\": \"x\"}')"),
    ("series", "(SELECT count(*) = 60 FROM taskq.series())"),
    ("shard", "taskq.shard()"),
    ("shard_of", "taskq.shard_of('00000000-0000-4000-8000-000000000000')"),
    ("stop_waiting", "taskq.stop_waiting('w')"),
    ("task_channel", "taskq.task_channel('done')"),
    ("wait_for_task", "taskq.wait_for_task('done', '10 seconds')"),
    ("wait_for_tasks", "CALL taskq.wait_for_tasks('{done,failed}', '10 seconds')"),
    ("why", "taskq.why('blocked')"),
    ("why", "taskq.why('scheduled')"),
    ("wait_for_task", "taskq.wait_for_task('held 1', '10 milliseconds')"),
];

/// What changes something.
const CHANGES: [(&str, &str); 54] = [
    ("add_dependencies", "taskq.add_dependencies('{held 1}', '{ready 1}')"),
    ("cancel_group", "taskq.cancel_group('a')"),
    ("cancel_tasks", "taskq.cancel_tasks('{ready 1}')"),
    ("complete_task", "taskq.complete_task('ready 1')"),
    ("delay_workgroup", "taskq.delay_workgroup('w', '1 hour')"),
    ("delete_group", "taskq.delete_group('b')"),
    ("delete_tasks", "taskq.delete_tasks('{ready 1}')"),
    (
        "extend_tasks_ownership",
        "taskq.extend_tasks_ownership('w', '{held 1}', ARRAY['$token$'::uuid], '1 hour')",
    ),
    ("forget_action", "taskq.forget_action('nothing')"),
    ("grant_inserter", "taskq.grant_inserter('pg_monitor')"),
    ("grant_monitor", "taskq.grant_monitor('pg_monitor')"),
    ("grant_operator", "taskq.grant_operator('pg_monitor')"),
    ("grant_producer", "taskq.grant_producer('pg_monitor')"),
    ("grant_worker", "taskq.grant_worker('pg_monitor')"),
    ("insert_many", "taskq.insert_many('x', '{a}')"),
    ("insert_task", "taskq.insert_task('new', 'x')"),
    ("insert_tasks", "taskq.insert_tasks('[{\"action\": \"x\"}]')"),
    ("insert_tasks_report", "taskq.insert_tasks_report('[{\"action\": \"x\"}]')"),
    ("maintain", "taskq.maintain()"),
    ("own_tasks", "taskq.own_tasks('w', 1, '{x}')"),
    ("pause_action", "taskq.pause_action('x')"),
    ("pause_group", "taskq.pause_group('a')"),
    ("pause_schedule", "taskq.pause_schedule('paused')"),
    ("recount", "taskq.recount()"),
    ("release_tasks", "taskq.release_tasks('{held 1}')"),
    ("replace_tasks", "taskq.replace_tasks('[{\"id\": \"ready 1\", \"action\": \"x\"}]')"),
    ("report_status", "taskq.report_status('held 1', '$token$', 'half', 0.5)"),
    ("rerun_tasks", "taskq.rerun_tasks('{failed}')"),
    ("reset_group", "taskq.reset_group('a')"),
    ("resume_action", "taskq.resume_action('x')"),
    ("resume_group", "taskq.resume_group('a')"),
    ("resume_schedule", "taskq.resume_schedule('paused')"),
    ("retry_group", "taskq.retry_group('a')"),
    ("retry_tasks", "taskq.retry_tasks('{failed}')"),
    ("return_and_own_tasks", "taskq.return_and_own_tasks('w', '{held 1}', ARRAY['$token$'::uuid], 1, '{x}')"),
    ("return_task", "taskq.return_task('held 1', '$token$')"),
    ("return_tasks", "taskq.return_tasks('{held 1}', ARRAY['$token$'::uuid])"),
    ("revoke_inserter", "taskq.revoke_inserter('pg_monitor')"),
    ("revoke_monitor", "taskq.revoke_monitor('pg_monitor')"),
    ("revoke_operator", "taskq.revoke_operator('pg_monitor')"),
    ("revoke_producer", "taskq.revoke_producer('pg_monitor')"),
    ("revoke_worker", "taskq.revoke_worker('pg_monitor')"),
    ("rewind_task", "taskq.rewind_task('done', 'pay')"),
    ("run_schedule", "taskq.run_schedule('paused')"),
    ("save_step", "taskq.save_step('held 1', '$token$', 'one', '1')"),
    ("schedule", "taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}')"),
    ("set_action", "taskq.set_action('x', max_concurrency => 3)"),
    ("set_group", "taskq.set_group('a', 4)"),
    ("set_shard", "taskq.set_shard(3)"),
    ("signal", "taskq.signal('early', '1')"),
    ("signal_tasks", "taskq.signal_tasks('[{\"task_id\": \"s\"}]')"),
    ("unschedule", "taskq.unschedule('paused')"),
    ("update_tasks", "taskq.update_tasks('{ready 1}', priority => 9)"),
    ("wait_for_work", "CALL taskq.wait_for_work('{x}', '10 milliseconds')"),
];

fn statement(call: &str) -> String {
    match call.starts_with("CALL") {
        true => call.to_owned(),
        // Ages are those of the moment.
        false => format!(
            r"SELECT regexp_replace(COALESCE(x::text, 'NULL'), '\d\d:\d\d:\d\d\.\d+', 'age', 'g') FROM (SELECT {call} AS x) AS t"
        ),
    }
}

#[test]
fn a_hot_standby_answers_looks_and_refuses_changes() {
    let primary = Cluster::start(TMP, "recover-seen", &[]);
    let standby = Cluster::standby(TMP, "recover-seeing", &primary, &[]);
    let (mut session, mut there) = (primary.connect(), standby.connect());
    let held = fill(&mut session);
    catch_up(&mut session, &mut there);
    assert_eq!(snapshot(&mut there), snapshot(&mut session));
    let views: Vec<String> = session.all(
        "SELECT c.relname::text FROM pg_class AS c WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'v'",
    );
    assert!(views.len() > 10);
    for view in views {
        there
            .query(&format!("SELECT * FROM taskq.{view}"), &[])
            .unwrap_or_else(|error| panic!("{view}: {error:?}"));
    }
    for (name, call) in LOOKS {
        let rows = |session: &mut taskq_tests::Session| -> Vec<String> {
            session.all::<String>(&match call.starts_with("CALL") {
                true => "SELECT ''".to_owned(),
                false => statement(call),
            })
        };
        if call.starts_with("CALL") {
            there.query(call, &[]).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
        assert_eq!(rows(&mut there), rows(&mut session), "{call}: the standby, and the primary");
    }
    let before = taskq_tests::state_of_all(&mut session);
    for (_, call) in CHANGES {
        let call = call.replace("$token$", &held[0].token.to_string());
        let done = there.query(&statement(&call), &[]);
        let error = done.err().unwrap_or_else(|| panic!("{call}: it was not refused"));
        // A queue that has had tasks keeps its number, wherever it is asked.
        let expected = if call.contains("set_shard") { "TQ005" } else { "25006" };
        assert_eq!(sqlstate(&error), expected, "{call}: {error:?}");
        // The session goes on, and so it does in a transaction that goes back to a savepoint.
        there.run("BEGIN; SAVEPOINT s");
        there.query(&statement(&call), &[]).unwrap_err();
        there.run("ROLLBACK TO s; SELECT count(*) FROM taskq.tasks; COMMIT");
    }
    assert_eq!(taskq_tests::state_of_all(&mut session), before);
    // Each function stands in one of the lists.
    let listed: BTreeSet<String> = LOOKS.iter().chain(&CHANGES).map(|(name, _)| (*name).to_owned()).collect();
    let functions: BTreeSet<String> = session
        .all("SELECT DISTINCT p.proname::text FROM pg_proc AS p WHERE p.pronamespace = 'taskq'::regnamespace AND p.proname !~ '^_'")
        .into_iter()
        .collect();
    assert_eq!(listed, functions);
}
