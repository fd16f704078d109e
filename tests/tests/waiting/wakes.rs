//! Every cause that makes a task ready, or settles it, wakes at once.

use taskq_tests::{Db, Session};

use crate::sleeper::{END, Sleeper, WORK};

/// What is there before a call sleeps, and what wakes it: SQL both.
struct Cause {
    name: &'static str,
    before: &'static str,
    event: &'static str,
}

const fn cause(name: &'static str, before: &'static str, event: &'static str) -> Cause {
    Cause { name, before, event }
}

/// Ways in which a task of action x becomes ready.
const READY: &[Cause] = &[
    cause("an insert", "", "SELECT taskq.insert_task('a', 'x')"),
    cause("a bulk insert", "", "SELECT taskq.insert_tasks('[{\"action\": \"x\"}, {\"action\": \"x\"}]')"),
    cause("an insert of many", "", "SELECT taskq.insert_many('x', '{1,2}')"),
    cause(
        "the signal that frees a task",
        "SELECT taskq.insert_task('p', 'y'), taskq.insert_task('a', 'x', depends_on => '{p}')",
        "SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('v', 1, '{y}')",
    ),
    cause(
        "a cancelled dependency",
        "SELECT taskq.insert_task('p', 'y'); SELECT taskq.insert_tasks('[{\"id\": \"a\", \"action\": \"x\", \
        \"depends_on\": [{\"id\": \"p\", \"condition\": \"aborted\"}]}]')",
        "SELECT taskq.cancel_tasks('{p}')",
    ),
    cause(
        "a give-back",
        "SELECT taskq.insert_task('a', 'x'); CREATE TABLE held AS SELECT * FROM taskq.own_tasks('v', 1, '{x}')",
        "SELECT taskq.return_task(task_id, token, 'pending', retry_after => '0') FROM held",
    ),
    cause(
        "children",
        "SELECT taskq.insert_task('p', 'y'); CREATE TABLE held AS SELECT * FROM taskq.own_tasks('v', 1, '{y}')",
        "SELECT taskq.return_task(task_id, token, children => '[{\"action\": \"x\"}]') FROM held",
    ),
    cause(
        "a replacement",
        "SELECT taskq.insert_task('a', 'y')",
        "SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"x\"}]')",
    ),
    cause(
        "a retry",
        "SELECT taskq.insert_task('a', 'x'); SELECT taskq.cancel_tasks('{a}')",
        "SELECT taskq.retry_tasks('{a}')",
    ),
    cause(
        "a release",
        "SELECT taskq.insert_task('a', 'x'); SELECT taskq.own_tasks('v', 1, '{x}')",
        "SELECT taskq.release_tasks('{a}')",
    ),
    cause(
        "an update",
        "SELECT taskq.insert_task('a', 'x', delay => '1 hour')",
        "SELECT taskq.update_tasks('{a}', delay => '0')",
    ),
    cause(
        "the removal of what was left to wait for",
        "SELECT taskq.insert_task('done', 'y'), taskq.insert_task('p', 'y'); SELECT taskq.complete_task('done'); \
        SELECT taskq.insert_task('a', 'x', depends_on => '{p,done}')",
        "SELECT taskq.delete_tasks('{p}')",
    ),
    cause(
        "the end of what a return has put off",
        "SELECT taskq.insert_task('p', 'y'), taskq.insert_task('a', 'x', depends_on => '{p}')",
        "SELECT taskq.return_task(task_id, token, delay_children => '1.5 seconds') FROM taskq.own_tasks('v', 1, '{y}')",
    ),
    cause("a due delay", "SELECT taskq.insert_task('a', 'x', delay => '1 second')", "SELECT 1"),
    cause(
        "a delay that comes later than the sleeper",
        "",
        "SELECT taskq.insert_task('a', 'x', delay => '0.5 seconds')",
    ),
    cause(
        "an elapsed lease",
        "SELECT taskq.insert_task('a', 'x'); SELECT taskq.own_tasks('v', 1, '{x}', '1 second')",
        "SELECT 1",
    ),
    cause(
        "a lease that begins and elapses meanwhile",
        "SELECT taskq.insert_task('a', 'x', delay => '0.3 seconds')",
        "SELECT pg_sleep(0.1); SELECT taskq.own_tasks('v', 1, '{x}', '0.5 seconds')",
    ),
    // More than a second ahead, less than five: no call looks in time by itself.
    cause(
        "a longer delay that comes later than the sleeper",
        "",
        "SELECT taskq.insert_task('a', 'x', delay => '1.5 seconds')",
    ),
    cause(
        "a lease that is made shorter",
        "SELECT taskq.insert_task('a', 'x'); CREATE TABLE held AS SELECT * FROM taskq.own_tasks('v', 1, '{x}', '1 hour')",
        "SELECT taskq.extend_tasks_ownership('v', ARRAY[task_id], ARRAY[token], '1.5 seconds') FROM held",
    ),
    cause(
        "a resumed action",
        "SELECT taskq.insert_task('a', 'x'), taskq.pause_action('x')",
        "SELECT taskq.resume_action('x')",
    ),
    cause(
        "a resumed group",
        "SELECT taskq.insert_task('a', 'x', group_id => 'g'); SELECT taskq.pause_group('g'); SELECT taskq.own_tasks('v', 1, '{x}')",
        "SELECT taskq.resume_group('g')",
    ),
    cause(
        "the end of a workgroup's delay",
        "SELECT taskq.insert_tasks('[{\"action\": \"x\", \"workgroup\": \"api\"}]'); \
        SELECT taskq.delay_workgroup('api', '1 second'); SELECT taskq.own_tasks('v', 1, '{x}')",
        "SELECT 1",
    ),
    cause(
        "a slot of a limit",
        "SELECT taskq.set_action('x', max_concurrency => 1); SELECT taskq.insert_task('a', 'x'), taskq.insert_task('b', 'x'); \
        CREATE TABLE held AS SELECT * FROM taskq.own_tasks('v', 1, '{x}')",
        "SELECT taskq.return_task(task_id, token) FROM held",
    ),
    cause(
        "a higher limit",
        "SELECT taskq.set_action('x', max_concurrency => 1); SELECT taskq.insert_task('a', 'x'), taskq.insert_task('b', 'x'); \
        SELECT taskq.own_tasks('v', 1, '{x}')",
        "SELECT taskq.set_action('x', max_concurrency => 2)",
    ),
    cause(
        "a place of a group",
        "SELECT taskq.set_group('g', max_concurrency => 1); SELECT taskq.insert_task('a', 'x', group_id => 'g'), \
        taskq.insert_task('b', 'x', group_id => 'g'); CREATE TABLE held AS SELECT * FROM taskq.own_tasks('v', 1, '{x}')",
        "SELECT taskq.return_task(task_id, token) FROM held",
    ),
    cause(
        "a higher limit of groups",
        "SELECT taskq.set_action('x', max_per_group => 1); SELECT taskq.insert_task('a', 'x', group_id => 'g'), \
        taskq.insert_task('b', 'x', group_id => 'g'); SELECT taskq.own_tasks('v', 1, '{x}')",
        "SELECT taskq.set_action('x', max_per_group => 2)",
    ),
    cause(
        "a refilled rate",
        "SELECT taskq.set_action('x', rate_limit => 1, rate_period => '1.5 seconds'); \
        SELECT taskq.insert_task('a', 'x'), taskq.insert_task('b', 'x'); SELECT taskq.own_tasks('v', 1, '{x}')",
        "SELECT 1",
    ),
    cause(
        "the key of a merge that ends",
        "SELECT taskq.insert_tasks('[{\"id\": \"a\", \"action\": \"x\", \"merge_key\": \"k\"}]'); \
        CREATE TABLE held AS SELECT * FROM taskq.own_tasks('v', 1, '{x}'); SELECT taskq.insert_tasks('[{\"id\": \"b\", \"action\": \"x\", \"merge_key\": \"k\"}]'); SELECT taskq.own_tasks('v', 1, '{x}')",
        "SELECT taskq.return_task(task_id, token) FROM held",
    ),
    cause("a schedule", "", "SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"x\"}')"),
    cause(
        "a run by hand",
        "SELECT taskq.schedule('s', '0 0 1 1 *', '{\"action\": \"x\"}')",
        "SELECT taskq.run_schedule('s')",
    ),
    cause(
        "a resumed schedule",
        "SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"x\"}'); SELECT taskq.pause_schedule('s')",
        "SELECT taskq.resume_schedule('s')",
    ),
    // The commits of subtransactions, in each of the ways there are.
    cause(
        "a released savepoint",
        "",
        "BEGIN; SAVEPOINT s; SELECT taskq.insert_task('a', 'x'); RELEASE s; COMMIT",
    ),
    cause(
        "a commit beside a savepoint that is rolled back",
        "",
        "BEGIN; SELECT taskq.insert_task('a', 'x'); SAVEPOINT s; SELECT taskq.insert_task('b', 'x'); ROLLBACK TO s; COMMIT",
    ),
    cause(
        "a block with an exception handler",
        "",
        "DO $$ BEGIN BEGIN PERFORM taskq.insert_task('a', 'x'); EXCEPTION WHEN OTHERS THEN RAISE; END; END $$",
    ),
    cause(
        "a commit after a refusal that was caught",
        "",
        "DO $$ BEGIN PERFORM taskq.insert_task('a', 'x'); BEGIN PERFORM taskq.insert_task('a', 'x'); EXCEPTION WHEN OTHERS THEN NULL; END; END $$",
    ),
    cause(
        "an insert under a plan that could be parallel",
        "CREATE TABLE many AS SELECT generate_series(1, 10000) AS n; ANALYZE many; ALTER TABLE many SET (parallel_workers = 2)",
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; \
        SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query'); \
        SELECT taskq.insert_task('a', 'x') FROM many HAVING count(*) = 10000",
    ),
    cause(
        "the commit of a procedure",
        "",
        "DO $$ BEGIN PERFORM taskq.insert_task('a', 'x'); COMMIT; PERFORM pg_sleep(6); END $$",
    ),
];

/// Ways in which task a settles.
const SETTLED: &[Cause] = &[
    cause(
        "a return",
        "SELECT taskq.insert_task('a', 'y')",
        "SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('v', 1, '{y}')",
    ),
    cause(
        "a return of many",
        "SELECT taskq.insert_task('a', 'y'), taskq.insert_task('b', 'y')",
        "SELECT taskq.return_tasks(array_agg(task_id), array_agg(token), 'aborted') FROM taskq.own_tasks('v', 2, '{y}')",
    ),
    cause("a cancellation", "SELECT taskq.insert_task('a', 'y')", "SELECT taskq.cancel_tasks('{a}')"),
    cause("a completion by hand", "SELECT taskq.insert_task('a', 'y')", "SELECT taskq.complete_task('a')"),
    cause(
        "an abort upstream",
        "SELECT taskq.insert_task('p', 'y'), taskq.insert_task('a', 'y', depends_on => '{p}')",
        "SELECT taskq.cancel_tasks('{p}')",
    ),
    cause(
        "a spontaneous end",
        "SELECT taskq.insert_task('p', 'y'), taskq.insert_task('a', 'y', depends_on => '{p}', spontaneous => true)",
        "SELECT taskq.complete_task('p')",
    ),
    cause(
        "the removal of what was left to wait for",
        "SELECT taskq.insert_task('done', 'y'), taskq.insert_task('p', 'y'); SELECT taskq.complete_task('done'); \
        SELECT taskq.insert_task('a', 'y', depends_on => '{p,done}', spontaneous => true)",
        "SELECT taskq.delete_tasks('{p}')",
    ),
    cause(
        "a replacement",
        "SELECT taskq.insert_task('a', 'y')",
        "SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"y\"}]')",
    ),
    cause(
        "a released savepoint",
        "SELECT taskq.insert_task('a', 'y')",
        "BEGIN; SAVEPOINT s; SELECT taskq.cancel_tasks('{a}'); RELEASE s; COMMIT",
    ),
];

/// Takes back what a cause has left behind: cheaper than another database.
const CLEAN: &str = "DROP TABLE IF EXISTS held, many; \
    SELECT taskq.unschedule(name) FROM taskq.schedules; \
    SELECT taskq.resume_group(group_id) FROM taskq.groups WHERE paused; \
    SELECT taskq.set_group(group_id, clear => '{max_concurrency}') FROM taskq.groups; \
    SELECT taskq.resume_action(action), taskq.set_action(action, clear => '{max_concurrency,max_per_group,rate_limit}') \
      FROM taskq.actions";

/// Lets a call sleep, and makes the event happen.
fn wake(causes: &[Cause], ways: &[crate::sleeper::Way]) {
    let db = Db::new();
    for cause in causes {
        for way in ways {
            let (mut session, mut watcher): (Session, Session) = (db.connect(), db.connect());
            eprintln!("{}, {}", way.name, cause.name); // shown only if the test fails
            session.run("SET client_min_messages = warning");
            session.run(CLEAN);
            db.clear();
            session.run(cause.before);
            let sleeper = Sleeper::start(&db, &mut watcher, *way);
            let event = cause.event;
            // On its way: an event may go on after what it wakes by.
            let event = session.background(move |session| session.run(event));
            drop(sleeper.woken_by(cause.name));
            drop(event.join());
        }
    }
}

#[test]
fn whatever_makes_a_task_ready_wakes_own_tasks() {
    wake(READY, &WORK[..1]);
}

#[test]
fn whatever_makes_a_task_ready_wakes_wait_for_work() {
    wake(READY, &WORK[1..]);
}

#[test]
fn whatever_settles_a_task_wakes_the_calls_that_wait_for_it() {
    wake(SETTLED, &END);
}
