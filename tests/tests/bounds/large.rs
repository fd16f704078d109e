//! Values that are too large: refused where they come in, before anything is stored, so that no row is too large to be granted, shown
//! or dumped. A role that may only insert could end the claims of all workers with such a row, and the dumps of the database.

use taskq_tests::{Db, refused};

/// An expression for a text one byte longer than the largest body.
const BODY: &str = "repeat('x', 64 * 1024 * 1024 + 1)";
/// The same for a jsonb, the quotes of which count.
const RESULT: &str = "to_jsonb(repeat('x', 64 * 1024 * 1024 - 1))";
const METADATA: &str = "jsonb_build_object('a', repeat('x', 1024 * 1024))";

#[test]
fn what_is_too_large_is_refused_before_anything_is_stored() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT taskq.insert_task('ready', 'x'), taskq.insert_task('held', 'w'), taskq.insert_task('signal', 's', signal => true)",
    );
    let held = session.own_one("w");
    let token = held.token;
    for (call, naming) in [
        (format!("taskq.insert_task('n', 'x', {BODY})"), "body of task \"n\""),
        (format!("taskq.insert_task('n', 'x', {RESULT})"), ""),
        (format!("taskq.insert_task('n', 'x', jsonb_build_array({RESULT}))"), "body of task \"n\""),
        (format!("taskq.insert_task('n', 'x', metadata => {METADATA})"), "metadata of task \"n\""),
        (format!("taskq.insert_many('x', ARRAY['a', {BODY}])"), "body of element 2"),
        (
            format!("taskq.insert_many('x', NULL, bodies_json => jsonb_build_array(1, ARRAY[{BODY}]))"),
            "body of element 2",
        ),
        (
            format!(
                "taskq.insert_tasks(jsonb_build_array('{{\"action\": \"x\"}}'::jsonb, jsonb_build_object('action', 'x', 'body', {BODY})))"
            ),
            "body of element 2",
        ),
        (
            format!(
                "taskq.insert_tasks(jsonb_build_array(jsonb_build_object('action', 'x', 'metadata', {METADATA})))"
            ),
            "metadata of element 1",
        ),
        (
            format!(
                "taskq.insert_tasks_report(jsonb_build_array(jsonb_build_object('action', 'x', 'body', {BODY})))"
            ),
            "body",
        ),
        (
            format!(
                "taskq.replace_tasks(jsonb_build_array(jsonb_build_object('id', 'ready', 'action', 'x', 'body', {BODY})))"
            ),
            "body of task \"ready\"",
        ),
        (format!("taskq.update_tasks('{{ready}}', body => {BODY})"), "body"),
        (format!("taskq.update_tasks('{{ready}}', metadata => {METADATA})"), "metadata"),
        (format!("taskq.update_tasks(NULL, body => {BODY}, actions => '{{x}}')"), "body"),
        (format!("taskq.report_status('held', '{token}', checkpoint => to_jsonb({BODY}))"), "checkpoint"),
        (format!("taskq.save_step('held', '{token}', 'load', to_jsonb({BODY}))"), "step \"load\""),
        (
            format!("taskq.return_task('held', '{token}', result => to_jsonb({BODY}))"),
            "result of task \"held\"",
        ),
        (
            format!(
                "taskq.return_task('held', '{token}', children => jsonb_build_array(jsonb_build_object('action', 'x', 'body', {BODY})))"
            ),
            "body",
        ),
        (format!("taskq.complete_task('ready', to_jsonb({BODY}))"), "result"),
        (format!("taskq.signal('signal', to_jsonb({BODY}))"), "result"),
        (format!("taskq.signal('early', to_jsonb({BODY}))"), "result"),
        (
            format!("taskq.schedule('s', '* * * * *', jsonb_build_object('action', 'x', 'body', {BODY}))"),
            "task of the schedule",
        ),
    ] {
        if naming.is_empty() {
            // A JSON string is stored without its quotes: this one fits.
            session.run(&format!("BEGIN; SELECT {call}; ROLLBACK"));
        } else {
            refused(&mut session, "54000", naming, &format!("SELECT {call}"), &[]);
        }
    }
    session.complete(&held);
}

#[test]
fn of_many_returns_one_that_is_too_large_spoils_no_other() {
    let (_db, [mut session]) = Db::connected();
    let held = |session: &mut taskq_tests::Session| {
        session.run(
            "DROP TABLE IF EXISTS held;
             SELECT count(*) FROM taskq.insert_many('x', '{1,2,3}', ids => '{a,b,c}', on_conflict => 'skip');
             CREATE TEMPORARY TABLE held AS SELECT task_id, token FROM taskq.own_tasks('w', 3, '{x}')",
        );
    };
    held(&mut session);
    let returns = format!(
        "(SELECT jsonb_agg(jsonb_build_object('task_id', task_id, 'token', token, 'result',
              CASE task_id WHEN 'b' THEN {RESULT} || '[]' ELSE '1' END) ORDER BY task_id) FROM held)"
    );
    let codes = "string_agg(format('%s %s', task_id, COALESCE(sqlstate, status_code::text)), ', ')";
    let answer: String = session.one(&format!("SELECT {codes} FROM taskq.return_tasks({returns})"));
    assert_eq!(answer, "a completed, b 54000, c completed");
    assert_eq!(session.state("b"), "in-progress");
    session.run("SELECT taskq.delete_tasks('{a,c}'), taskq.release_tasks('{b}')");
    held(&mut session);
    let answer: String = session.one(&format!(
        "SELECT string_agg(task_id || ' ' || sqlstate, ', ') FROM taskq.return_and_own_tasks('w', {returns}, 0, '{{x}}')"
    ));
    assert_eq!(answer, "b 54000");
    // All with the same result.
    let answer: String = session.one(&format!(
        "SELECT {codes} FROM taskq.return_tasks(ARRAY['b'], ARRAY(SELECT token FROM held WHERE task_id = 'b'), result => {RESULT} || '[]')"
    ));
    assert_eq!(answer, "b 54000");
    assert_eq!(session.state("b"), "in-progress");
}

#[test]
#[ignore = "long"]
fn values_of_one_task_are_bounded_together() {
    let (_db, [mut session]) = Db::connected();
    const FIFTY: &str = "repeat('x', 50000000)";
    session.run(&format!("SELECT taskq.insert_task('t', 'x', {FIFTY})"));
    let held = session.own_one("x");
    let token = held.token;
    session.run(&format!("SELECT taskq.report_status('t', '{token}', checkpoint => to_jsonb({FIFTY}))"));
    let too_much =
        format!("SELECT taskq.return_task('t', '{token}', 'aborted', result => to_jsonb({FIFTY}))");
    let error = session.batch_execute(&too_much).unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "54000");
    // Given back, another body does not fit beside the checkpoint, nor a larger checkpoint beside the body.
    session.run(&format!("SELECT taskq.return_task('t', '{token}', 'pending', retry_after => '0')"));
    let wide = "repeat('x', 64 * 1024 * 1024)";
    session.run(&format!("SELECT taskq.update_tasks('{{t}}', body => {wide})"));
    let held = session.own_one("x");
    let token = held.token;
    let more =
        format!("SELECT taskq.report_status('t', '{token}', checkpoint => to_jsonb(left({wide}, -1)))");
    let error = session.batch_execute(&more).unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "54000");
    // The checkpoint goes with a task that completes.
    session.run(&format!("SELECT taskq.return_task('t', '{token}', result => to_jsonb({FIFTY}))"));
    assert_eq!(session.state("t"), "completed");
    session.run("SELECT taskq.insert_task('u', 'x', metadata => jsonb_build_object('a', repeat('x', 1000000))), taskq.insert_task('v', 'x')");
    let held = session.own_one("x");
    session.run(&format!(
        "SELECT taskq.report_status('u', '{}', checkpoint => to_jsonb(left({wide}, -2)))",
        held.token
    ));
    session.run(&format!("SELECT taskq.return_task('u', '{}', 'pending', retry_after => '0')", held.token));
    let error =
        session.batch_execute(&format!("SELECT taskq.update_tasks('{{v,u}}', body => {wide})")).unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "54000");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE body IS NULL"), 2);
}

#[test]
fn names_have_a_thousand_bytes_at_most() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'x')");
    const NAME: &str = "repeat('n', 1001)";
    for (code, call) in [
        ("22023", "taskq.own_tasks(N, 1, '{x}')"),
        ("22023", "taskq.own_tasks('w', 1, ARRAY[N])"),
        ("22023", "taskq.return_and_own_tasks(N, '[]', 1, '{x}')"),
        ("22023", "taskq.extend_tasks_ownership(N, '{}', '{}', '1 s')"),
        ("22023", "taskq.set_action(N, max_tries => 1)"),
        ("22023", "taskq.pause_action(N)"),
        ("22023", "taskq.set_group(N, weight => 1)"),
        ("22023", "taskq.pause_group(N)"),
        ("22023", "taskq.delay_workgroup(N, '1 s')"),
        ("22023", "taskq.schedule(N, '* * * * *', '{\"action\": \"x\"}')"),
        ("22023", "taskq.unschedule(N)"),
        ("22023", "taskq.forget_action(N)"),
        ("22023", "taskq.lost_channel(N)"),
        ("22023", "taskq.stop_waiting(N)"),
        ("22023", "taskq.wait_for_task(N, '0')"),
        ("22023", "taskq.return_task(N, gen_random_uuid())"),
        ("22023", "taskq.update_tasks(ARRAY[N], priority => 1)"),
        ("22023", "taskq.complete_task(N)"),
        ("22023", "taskq.rewind_task(N, 's')"),
        ("22023", "taskq.signal(N)"),
        ("22023", "taskq.signal('s', action => N)"),
        ("TQ006", "taskq.signal_tasks(jsonb_build_array(jsonb_build_object('task_id', N)))"),
        ("TQ006", "taskq.insert_many('x', '{b}', ARRAY[N])"),
        ("22023", "taskq.grant_worker('pg_monitor', ARRAY[N])"),
        ("TQ006", "taskq.insert_task(N, 'x')"),
        ("TQ006", "taskq.insert_task('i', N)"),
        ("TQ006", "taskq.insert_task('i', 'x', group_id => N)"),
        ("TQ006", "taskq.insert_task('i', 'x', workgroup => N)"),
        ("TQ006", "taskq.insert_task('i', 'x', merge_key => N)"),
        ("TQ006", "taskq.insert_task('i', 'x', unique_by => to_jsonb(N))"),
        ("TQ006", "taskq.insert_task('i', 'x', depends_on => ARRAY[N], if_missing => 'ignore')"),
        (
            "TQ006",
            "taskq.insert_task('i', 'x', backoff => jsonb_build_object('kind', 'fixed', 'initial', '1 s' || repeat(' ', 2000)))",
        ),
        (
            "TQ006",
            "taskq.add_dependencies(jsonb_build_array(jsonb_build_object('after', N, 'run', 't')), if_missing => 'ignore')",
        ),
        (
            "22023",
            "taskq.set_action('x', backoff => jsonb_build_object('kind', 'fixed', 'initial', '1 s' || repeat(' ', 2000)))",
        ),
    ] {
        refused(&mut session, code, "", &format!("SELECT {}", call.replace('N', NAME)), &[]);
    }
    refused(
        &mut session,
        "22023",
        "1001 bytes",
        &format!("CALL taskq.wait_for_tasks(ARRAY['t', {NAME}], '0', NULL)"),
        &[],
    );
}

#[test]
fn and_one_at_least() {
    let (_db, [mut session]) = Db::connected();
    for call in [
        "own_tasks('', 1, '{x}')",
        "lost_channel('')",
        "wait_for_task('', '0')",
        "return_task('', gen_random_uuid())",
        "signal('')",
        "signal('s', action => '')",
    ] {
        refused(&mut session, "22023", "0 bytes", &format!("SELECT taskq.{call}"), &[]);
    }
}

#[test]
fn a_status_is_cut() {
    let (_db, [mut session]) = Db::connected();
    const STATUS: &str = "repeat('ä', 40000)";
    let length = |session: &mut taskq_tests::Session, of: &str| -> i32 {
        session.one(&format!("SELECT max(octet_length(status)) FROM taskq.{of}"))
    };
    for end in ["'aborted'", "'pending'", "'pending', depends_on => '[]'"] {
        session.run("SELECT taskq.insert_task('t', 'x')");
        let token = session.own_one("x").token;
        session.run(&format!("SELECT taskq.report_status('t', '{token}', {STATUS} || 'x')"));
        assert_eq!(length(&mut session, "tasks"), 65536, "reported");
        session.run(&format!(
            "SELECT taskq.return_task('t', '{token}', status_code => {end}, status => 'x' || {STATUS})"
        ));
        assert_eq!(length(&mut session, "tasks"), 65535, "{end}");
        session.run("SELECT taskq.delete_tasks('{t}')");
    }
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_many('y', '{{1,2,3}}');
         SELECT taskq.insert_task('s', 'y', signal => true), taskq.insert_task('c', 'y');
         SELECT taskq.signal('s', status => {STATUS}), taskq.signal('early', status => {STATUS}), taskq.complete_task('c', status => {STATUS});
         SELECT taskq.release_tasks((SELECT array_agg(task_id) FROM taskq.own_tasks('w', 1, '{{y}}')), status => {STATUS});
         SELECT taskq.cancel_tasks(NULL, {STATUS}, actions => '{{y}}')"
    ));
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE octet_length(status) = 65536"), 6);
    assert_eq!(length(&mut session, "attempts"), 65536);
}

/// Stored in a few bytes, and long as text: numbers with very many digits.
#[test]
fn what_does_not_fit_into_a_grant_is_told_apart_from_nothing() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.backoff = ''"); // deadlines pass in a row
    const DIGITS: &str =
        "(SELECT jsonb_agg(v) FROM (SELECT '1e131071'::jsonb AS v FROM generate_series(1, 500)) AS v)";
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks(taskq.chord(
             (SELECT jsonb_agg(jsonb_build_object('id', 'p' || i, 'action', 'p')) FROM generate_series(1, 4) i),
             '{{\"id\": \"sum\", \"action\": \"sum\", \"priority\": 1}}'));
         SELECT count(*) FROM taskq.own_tasks('w', 4, '{{p}}') AS o, taskq.return_task(o.task_id, o.token, result => {DIGITS});
         SELECT taskq.insert_task('few', 'sum', '[1e131071]', depends_on => '{{p1}}'),
                taskq.insert_task('body', 'sum', (SELECT format('[%s]', string_agg('1e131071', ',')) FROM generate_series(1, 2000)));"
    ));
    let rows = |session: &mut taskq_tests::Session, with: &str| -> Vec<String> {
        session.all(&format!(
            "SELECT format('%s %s %s %s %s', task_id, jsonb_array_length(results), steps, jsonb_typeof(body_json), incomplete)
               FROM taskq.own_tasks('w', 3, '{{sum}}', '0', {with})"
        ))
    };
    assert_eq!(rows(&mut session, "with_results => true"), ["sum    t", "few 1  array f", "body 0   f"]);
    session.run("SELECT count(*) FROM taskq.maintain()");
    assert_eq!(rows(&mut session, "with_steps => true"), ["sum  {}  f", "few  {} array f", "body  {}  f"]);
    session.run("SELECT taskq.cancel_tasks('{few,body}')");
    let token = session.own_one("sum").token;
    session.run(&format!(
        "SELECT taskq.save_step('sum', '{token}', 'step ' || i, {DIGITS}) FROM generate_series(1, 4) AS i"
    ));
    session.run(&format!("SELECT taskq.return_task('sum', '{token}', 'pending', retry_after => '0')"));
    assert_eq!(rows(&mut session, "with_steps => true"), ["sum    t"]);
}
