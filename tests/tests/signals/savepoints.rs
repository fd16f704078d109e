//! A savepoint around every operation: rolled back, nothing of it is left, not even in what the backend remembers;
//! done again, it works as it did.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate, state_of_all};

/// A queue with something for every operation to do; the tokens of held and of held too.
fn scene(session: &mut Session) -> [String; 2] {
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let tasks = json!([
        {"id": "held", "action": "x"}, {"id": "held too", "action": "x", "max_tries": 1},
        {"id": "ready", "action": "y", "post_result": true},
        {"id": "blocked", "action": "y", "depends_on": ["held", "ready"]},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": [{"id": "held", "condition": "settled"}]},
        {"id": "behind", "action": "y", "depends_on": ["mark"]},
        {"id": "later", "action": "y", "delay": "1 hour"},
        {"id": "dead", "action": "z", "max_tries": 1, "lease": "1 minute"},
        {"id": "heir", "action": "y", "depends_on": [{"id": "dead", "condition": "aborted"}]},
        {"id": "done", "action": "d"}, {"id": "lost", "action": "d"},
        {"id": "grouped", "action": "g", "group_id": "g", "workgroup": "w"},
    ]);
    session.insert(tasks).unwrap();
    session.perform("d", "completed");
    session.perform("d", "aborted");
    let held = session.own("w", 2, &["x"]).unwrap();
    session.own_one("z");
    session.set_now(Some("2030-01-01 00:10:00Z"));
    [held[0].token.to_string(), held[1].token.to_string()]
}

/// Every operation; `$held` and `$too` stand for the tokens.
const OPERATIONS: &[&str] = &[
    "SELECT taskq.insert_task('new', 'y', 'body')",
    r#"SELECT taskq.insert_tasks('[{"id": "new", "action": "y", "depends_on": ["held"], "to_signal_after": ["ready"]}]')"#,
    r#"SELECT taskq.insert_tasks('[{"id": "ready", "action": "y"}, {"id": "new", "action": "y"}]', on_conflict => 'skip')"#,
    r#"SELECT taskq.replace_tasks('[{"id": "ready", "action": "y", "depends_on": ["later"]}]')"#,
    "SELECT taskq.own_tasks('v', 5, '{y,z}', '1 minute')",
    "SELECT taskq.extend_tasks_ownership('v', '{held}', ARRAY['$held']::uuid[], '1 hour')",
    "SELECT taskq.return_task('held', '$held', 'completed', 'good', result => '[1]')",
    "SELECT taskq.return_task('held', '$held', 'aborted', 'bad')",
    "SELECT taskq.return_task('held', '$held', 'pending', retry_after => interval '1 minute')",
    "SELECT taskq.return_task('held too', '$too', 'pending', retry_after => '0')",
    "SELECT taskq.return_tasks('{held,held too}', ARRAY['$held', '$too']::uuid[])",
    "SELECT taskq.add_dependencies(ARRAY['later'], ARRAY['ready'])",
    "SELECT taskq.delete_tasks('{ready,later,mark}')",
    "SELECT taskq.cancel_tasks('{held,ready,later}', 'no more')",
    "SELECT taskq.maintain()",
    "SELECT taskq.insert_many('y', '{1,2}', '{one,two}')",
    r#"SELECT taskq.insert_tasks('[{"id": "new", "action": "y", "unique_by": "k"}]')"#,
    "SELECT taskq.return_task('held', '$held', 'pending', count_try => false)",
    r#"SELECT taskq.return_task('held', '$held', 'pending', depends_on => '[{"id": "s", "signal": true}]')"#,
    r#"SELECT taskq.return_task('held', '$held', children => '[{"id": "c", "action": "y"}]', children_block => true,
                                delay_children => '1 hour')"#,
    "SELECT taskq.return_and_own_tasks('v', '{held}', ARRAY['$held']::uuid[], 5, '{y}', '1 minute')",
    "SELECT taskq.release_tasks('{held}')",
    "SELECT taskq.save_step('held', '$held', 'first', '1')",
    "SELECT taskq.update_tasks('{ready,later}', priority => 3, delay => '2 hours')",
    "SELECT taskq.complete_task('ready')",
    "SELECT taskq.signal('early')",
    "SELECT taskq.retry_tasks('{lost}')",
    "SELECT taskq.rerun_tasks('{done}')",
    "SELECT taskq.reset_group('g')",
    "SELECT taskq.pause_group('g')",
    "SELECT taskq.resume_group('g')",
    "SELECT taskq.delay_workgroup('w', '1 hour')",
    "SELECT taskq.pause_action('y')",
    "SELECT taskq.resume_action('y')",
    "SELECT taskq.set_action('y', max_concurrency => 2, rate_limit => 1, rate_period => '1 hour')",
    r#"SELECT taskq.schedule('s', '0 0 1 1 *', '{"action": "y"}')"#,
];

fn with_tokens(operation: &str, [held, too]: &[String; 2]) -> String {
    operation.replace("$held", held).replace("$too", too)
}

/// The state without what differs from run to run: tokens and positions.
fn visible(session: &mut Session) -> Vec<String> {
    session.all(
        "SELECT concat_ws(' ', id, state, num_tries, num_signals, num_failures, total_dependencies, actor_id, \
         action_deadline, not_before, status, result) FROM taskq.tasks ORDER BY id",
    )
}

#[test]
fn a_savepoint_rolled_back_leaves_nothing_of_any_operation() {
    let db = Db::new();
    for operation in OPERATIONS {
        db.clear();
        let (mut session, mut other) = (db.connect(), db.connect());
        let tokens = scene(&mut session);
        other.set_now(Some("2030-01-01 00:10:00Z"));
        let call = with_tokens(operation, &tokens);
        let before = state_of_all(&mut session);
        let seen_before = visible(&mut session);

        session.run("BEGIN; SAVEPOINT s");
        session.run(&call);
        let effect = visible(&mut session);
        session.run("ROLLBACK TO s");
        assert_eq!(state_of_all(&mut session), before, "rolled back: {call}");

        // Again, and committed: the same effect, for others too.
        session.run("SAVEPOINT s");
        session.run(&call);
        assert_eq!(visible(&mut session), effect, "again: {call}");
        session.run("RELEASE s");
        assert_eq!(visible(&mut other), seen_before, "not visible before the commit: {call}");
        session.run("COMMIT");
        assert_eq!(visible(&mut other), effect, "committed: {call}");
    }
}

#[test]
fn an_error_inside_a_savepoint_leaves_the_transaction_usable() {
    let (_db, [mut session]) = Db::connected();
    let tokens = scene(&mut session);
    session.run("BEGIN");
    session.run(&with_tokens("SELECT taskq.return_task('held', '$held')", &tokens));
    for refused in [
        "SELECT taskq.insert_task('ready', 'y')",
        r#"SELECT taskq.insert_tasks('[{"action": 5}]')"#,
        "SELECT taskq.add_dependencies(ARRAY['blocked'], ARRAY['ready'])",
        "SELECT taskq.delete_tasks('{held too}')",
        "SELECT taskq.return_task('held', gen_random_uuid())",
    ] {
        session.run("SAVEPOINT s");
        assert!(session.batch_execute(refused).is_err(), "{refused}");
        session.run("ROLLBACK TO s");
    }
    session.run("COMMIT");
    assert_eq!(["held", "mark", "behind"].map(|id| session.state(id)), ["completed", "completed", "ready"]);
}

#[test]
fn a_grant_in_a_rolled_back_savepoint_can_be_granted_again_in_the_same_transaction() {
    let (_db, [mut session, mut other]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]));
    session.run("BEGIN; SAVEPOINT s");
    let void = session.own_one("x");
    session.run("ROLLBACK TO s; SAVEPOINT s");
    let real = session.own_one("x");
    assert_eq!((real.task_id.as_str(), real.num_tries), ("a", 1));
    assert_eq!(sqlstate(&session.give("a", void.token, "completed").unwrap_err()), "TQ001");
    session.run("ROLLBACK TO s");
    assert_eq!(session.own_one("x").task_id, "a");
    session.run("COMMIT");
    assert_eq!(other.own_one("x").task_id, "b");
}

#[test]
fn what_a_savepoint_inserted_and_lost_can_be_inserted_again() {
    let (_db, [mut session]) = Db::connected();
    session.run("BEGIN");
    for round in 0..50 {
        session.run("SAVEPOINT s");
        let tasks = json!([
            {"id": "a", "action": "x", "body": round}, {"id": "b", "action": "x", "depends_on": ["a"]},
        ]);
        session.insert(tasks).unwrap();
        session.run(if round == 49 { "RELEASE s" } else { "ROLLBACK TO s" });
    }
    session.run("COMMIT");
    assert_eq!(session.own_one("x").body.as_deref(), Some("49"));
    assert_eq!(session.tasks().len(), 2);
}

#[test]
fn an_exception_block_is_a_savepoint_too() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]}]));
    session.run(
        "DO $$ DECLARE g record; BEGIN \
           SELECT * INTO g FROM taskq.own_tasks('w', 1, '{x}'); \
           BEGIN \
             PERFORM taskq.return_task('a', g.token); \
             PERFORM taskq.insert_task('b', 'y'); \
           EXCEPTION WHEN SQLSTATE 'TQ002' THEN NULL; END; \
           ASSERT (SELECT state FROM taskq.tasks WHERE id = 'a') = 'in-progress'; \
           PERFORM taskq.return_task('a', g.token, 'aborted'); \
         END $$",
    );
    assert_eq!([session.state("a"), session.state("b")], ["aborted", "aborted"]);
}
