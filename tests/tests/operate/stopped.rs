//! What was stopped by hand and perhaps forgotten, what is late, and signals that no task waits for.
//!
//! On wrong code a forgotten pause is found out by those whose tasks do not run; or health rings where all is as it should be.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::health::{no_problem, problems, set_back, the_problem};

fn some_time_ago(session: &mut Session, ago: &str, statements: &str) {
    set_back(session, ago);
    session.run(statements);
    session.set_now(None);
}

#[test]
fn an_action_or_group_that_is_stopped_for_an_hour_while_tasks_wait_is_told_of() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "group_id": "g"}]));
    for (stop, subject, go_on) in [
        ("pause_action('x')", "x", "resume_action('x')"),
        ("set_action('x', max_concurrency => 0)", "x", "set_action('x', clear => '{max_concurrency}')"),
        ("pause_group('g')", "g", "resume_group('g')"),
        ("set_group('g', max_concurrency => 0)", "g", "set_group('g', max_concurrency => 1)"),
    ] {
        some_time_ago(&mut session, "59 minutes", &format!("SELECT taskq.{stop}"));
        assert_eq!(problems(&mut session, "paused"), [], "{stop}");
        session.run(&format!("SELECT taskq.{go_on}"));
        some_time_ago(&mut session, "61 minutes", &format!("SELECT taskq.{stop}"));
        // Once more does not begin anew.
        session.run(&format!("SELECT taskq.{stop}"));
        let problem = the_problem(&mut session, "paused", "notice", subject);
        assert!(problem.contains(" 1 of its tasks "), "{problem}");
        session.run(&format!("SELECT taskq.{go_on}"));
        assert_eq!(problems(&mut session, "paused"), [], "{go_on}");
    }
    // Both at once: one goes, the other stays, and has been so all the time.
    some_time_ago(&mut session, "3 hours", "SELECT taskq.pause_action('x')");
    session.run("SELECT taskq.set_action('x', max_concurrency => 0), taskq.resume_action('x')");
    assert!(the_problem(&mut session, "paused", "notice", "x").contains("max_concurrency 0 for 3h"));
    session.run("SELECT taskq.set_action('x', max_concurrency => 2)");
    // Nothing waits.
    some_time_ago(
        &mut session,
        "3 hours",
        "SELECT taskq.pause_action('z'), taskq.pause_action('x'), taskq.pause_group('g')",
    );
    session.run("SELECT taskq.cancel_tasks('{a,b}')");
    assert_eq!(problems(&mut session, "paused"), []);
}

#[test]
fn a_schedule_that_is_paused_for_a_day_is_told_of() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.schedule('s', '0 0 1 1 *', '{\"action\": \"x\"}')");
    some_time_ago(&mut session, "23 hours", "SELECT taskq.pause_schedule('s')");
    assert_eq!(problems(&mut session, "paused"), []);
    session.run("SELECT taskq.resume_schedule('s')");
    some_time_ago(&mut session, "25 hours", "SELECT taskq.pause_schedule('s')");
    the_problem(&mut session, "paused", "notice", "s");
    session.run("SELECT taskq.resume_schedule('s')");
    assert_eq!(problems(&mut session, "paused"), []);
}

#[test]
fn what_is_due_and_not_handled_within_five_seconds_is_told_of() {
    let (_db, [mut session]) = Db::connected();
    set_back(&mut session, "1 minute");
    session
        .insert(json!([
            {"id": "timer", "action": "t", "spontaneous": true, "delay": "54 seconds"},
            {"id": "expires", "action": "e", "expires_in": "54 seconds"}, {"id": "sleeps", "action": "s"},
        ]))
        .unwrap();
    let token = session.own_one("s").token;
    session.run(&format!(
        "SELECT taskq.return_task('sleeps', '{token}', 'pending', depends_on => '[{{\"id\": \"word\", \"signal\": true}}]', \
                                  wait_at_most => '54 seconds');
         SELECT taskq.schedule('s', '* * * * * *', '{{\"action\": \"x\"}}')"
    ));
    set_back(&mut session, "4 seconds");
    assert_eq!(problems(&mut session, "late").len(), 1, "the schedule, which comes each second");
    session.set_now(None);
    let late = problems(&mut session, "late");
    let subjects: Vec<&str> = late
        .iter()
        .map(|(severity, subject, _)| {
            assert_eq!(severity, "warning");
            subject.as_str()
        })
        .collect();
    for subject in ["schedules", "tasks that expire", "time-outs of suspended tasks", "timers"] {
        assert!(subjects.contains(&subject), "{subject} in {late:?}");
    }
    // A timer whose time has come is not for workers.
    assert_eq!(session.state("timer"), "scheduled");
    assert_eq!(session.one::<i64>("SELECT count FROM taskq.count_tasks('{t}') WHERE state = 'scheduled'"), 1);
    session.run("SELECT taskq.unschedule('s'); SELECT taskq.maintain()");
    assert_eq!(problems(&mut session, "late"), []);
    assert_eq!(session.state("timer"), "completed");
}

#[test]
fn a_signal_that_no_task_waits_for_is_told_of_after_a_day() {
    let (_db, [mut session]) = Db::connected();
    some_time_ago(
        &mut session,
        "25 hours",
        "SELECT taskq.signal('aprove 7'), taskq.insert_task('approve 8', 's', signal => true), taskq.insert_task('approve 9', 's', signal => true)",
    );
    session.insert(json!([{"id": "w", "action": "x", "depends_on": ["approve 9"]}])).unwrap();
    session.run("SELECT taskq.signal('new'), taskq.cancel_tasks('{w}')");
    let found = problems(&mut session, "signal");
    assert!(found.len() == 1 && found[0].2.contains("2 signals"), "{found:?}");
    session.run("SELECT taskq.delete_tasks('{aprove 7}')");
    the_problem(&mut session, "signal", "notice", "approve 8");
    session.run("SELECT taskq.delete_tasks('{approve 8}')");
    no_problem(&mut session, "one that a task waits for");
}
