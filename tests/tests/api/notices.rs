//! What a call cannot do, but does not fail of, is said by a NOTICE with DETAIL and HINT: a pause of an action that has
//! never had a task, an argument that does nothing, a wait that no other session can end.
//!
//! On wrong code the typing error looks like success, the result is missed much later, and the sleeper sleeps on. Where
//! nothing is wrong nothing is said: a notice per return would fill the logs of every worker.

use std::sync::{Arc, Mutex};

use postgres::NoTls;
use serde_json::json;
use taskq_tests::{Db, Session};

/// A connection that hears notices, and what it has heard.
struct Ear {
    session: Session,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Ear {
    fn new(db: &Db) -> Ear {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = Arc::clone(&heard);
        let client = taskq_tests::db::config()
            .dbname(db.name())
            .options("-c client_min_messages=notice -c statement_timeout=60s")
            .notice_callback(move |notice| {
                assert!(notice.detail().is_some() && notice.hint().is_some(), "{notice:?}");
                sink.lock().unwrap().push(notice.message().to_owned());
            })
            .connect(NoTls)
            .expect("a connection to the test database");
        Ear { session: Session::new(client), heard }
    }

    /// What is said while this runs.
    fn hears(&mut self, statements: &str) -> Vec<String> {
        self.session.run(statements);
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

#[test]
fn to_pause_an_action_that_never_had_a_task_gives_a_notice() {
    let db = Db::new();
    let mut ear = Ear::new(&db);
    ear.session.insert(json!([{"id": "a", "action": "make"}])).unwrap();
    assert_eq!(
        ear.hears("SELECT taskq.pause_action('maek')"),
        ["no task of action \"maek\" was ever inserted"]
    );
    assert_eq!(ear.hears("SELECT taskq.pause_action('make')"), [""; 0]);
    assert_eq!(ear.hears("SELECT taskq.resume_action('maek')"), [""; 0]);
}

#[test]
fn an_argument_that_does_nothing_beside_the_code_is_noticed() {
    let db = Db::new();
    let mut ear = Ear::new(&db);
    let results = "the result of a task that is given back is not kept";
    let retries = "argument \"retry_after\" does nothing for a task that is settled";
    let one = "SELECT taskq.return_task(task_id, token, {}) FROM taskq.own_tasks('w', 1, '{x}')";
    let many = "SELECT taskq.return_tasks(array_agg(task_id), array_agg(token), {}) FROM taskq.own_tasks('w', 2, '{x}')";
    for call in [one, many] {
        for (arguments, said) in [
            ("'completed', retry_after => '1 minute'", vec![retries]),
            ("'aborted', retry_after => '0'", vec![retries]),
            ("'pending', result => '1', retry_after => '0'", vec![results]),
            ("'pending', retry_after => '0'", vec![]),
            ("'completed', result => '1'", vec![]),
        ] {
            ear.session.insert(json!([{"action": "x"}, {"action": "x"}])).unwrap();
            assert_eq!(ear.hears(&call.replace("{}", arguments)), said, "{call} {arguments}");
        }
    }
    // Of a thousand returns it is said once.
    ear.session.run("SELECT taskq.delete_tasks((SELECT array_agg(id) FROM taskq.tasks))");
    ear.session.insert((0..1000).map(|_| json!({"action": "x"})).collect()).unwrap();
    let each = "SELECT count(*) FROM taskq.return_tasks((SELECT jsonb_agg(jsonb_build_object(
            'task_id', task_id, 'token', token, 'status_code', CASE WHEN random() < 0.5 THEN 'pending' ELSE 'aborted' END,
            'result', 1, 'retry_after', '1 hour')) FROM taskq.own_tasks('w', 1000, '{x}')))";
    assert_eq!(ear.hears(each), [results, retries]);
}

#[test]
fn a_wait_that_no_other_session_can_end_gives_a_notice() {
    let db = Db::new();
    let mut ear = Ear::new(&db);
    let own = "this call waits for a task of its own transaction";
    let block = "this call sleeps inside a transaction block";
    ear.session.insert(json!([{"id": "old", "action": "x"}])).unwrap();
    let wait = "SELECT * FROM taskq.wait_for_task('old', '0.1 s')";
    assert_eq!(ear.hears(wait), [""; 0], "a call by itself may wait");
    assert_eq!(ear.hears(&format!("BEGIN; {wait}; COMMIT")), [block]);
    let new = |id: &str| {
        format!("SELECT taskq.insert_task('{id}', 'y'); SELECT * FROM taskq.wait_for_task('{id}', '0.1 s')")
    };
    assert_eq!(ear.hears(&format!("BEGIN; {}; ROLLBACK", new("a"))), [own, block]);
    assert_eq!(ear.hears(&format!("BEGIN; SAVEPOINT s; {}; ROLLBACK", new("b"))), [own, block]);
    // In a function or a DO block as well, though that is no transaction block.
    let inside =
        "DO $$ BEGIN PERFORM taskq.insert_task('c', 'y'); PERFORM taskq.wait_for_task('c', '0.1 s'); END $$";
    assert_eq!(ear.hears(inside), [own]);
    // What does not come to sleeping says nothing.
    assert_eq!(ear.hears("BEGIN; SELECT * FROM taskq.wait_for_task('old', '0'); COMMIT"), [""; 0]);
    ear.session.perform("x", "completed");
    assert_eq!(ear.hears(&format!("BEGIN; {wait}; COMMIT")), [""; 0]);
}

#[test]
fn a_worker_that_forgot_autocommit_is_noticed() {
    let db = Db::new();
    let mut ear = Ear::new(&db);
    let own = "SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '0.1 s')";
    assert_eq!(ear.hears(own), [""; 0]);
    // With autocommit the advice to use it helps no caller, whatever else its statement does.
    for call in [
        "SELECT * FROM taskq.own_tasks('w', 1, ARRAY(SELECT 'x'), wait => '0.1 s')",
        "SELECT t.task_id, upper(t.body) FROM taskq.own_tasks('w', 1, '{x}', wait => '0.1 s') AS t JOIN taskq.tasks ON true",
        "DO $$ BEGIN PERFORM taskq.own_tasks('w', 1, '{x}', wait => '0.1 s'); END $$",
    ] {
        assert_eq!(ear.hears(call), [""; 0], "{call}");
    }
    assert_eq!(ear.hears(&format!("BEGIN; {own}; COMMIT")), ["this call sleeps inside a transaction block"]);
    ear.session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_eq!(ear.hears(&format!("BEGIN; {own}; COMMIT")), [""; 0], "there was no need to sleep");
}

#[test]
fn an_action_that_is_json_gives_a_notice() {
    let db = Db::new();
    let mut ear = Ear::new(&db);
    let heard = ear.hears(r#"SELECT taskq.insert_task('mail', '{"to": "ann"}')"#);
    assert_eq!(heard, [r#"the action of this task is "{"to": "ann"}": is an id missing?"#]);
    for call in [r#"insert_task('1', '{mail}')"#, r#"insert_task('2', '[mail')"#, r#"insert_task('3', '7')"#]
    {
        assert_eq!(ear.hears(&format!("SELECT taskq.{call}")), [""; 0], "{call}");
    }
}

#[test]
fn a_dependency_of_a_schedule_that_does_not_exist_is_told_of_when_it_is_set_and_at_each_run() {
    let db = Db::new();
    let mut ear = Ear::new(&db);
    let schedule =
        r#"SELECT taskq.schedule('s', '0 0 1 1 *', '{"action": "x", "depends_on": ["no such load"]}')"#;
    let heard = ear.hears(schedule);
    assert!(heard.len() == 1 && heard[0].starts_with("task \"no such load\" does not exist"), "{heard:?}");
    let problem = |ear: &mut Ear| ear.session.one::<Option<String>>("SELECT problem FROM taskq.schedules");
    assert_eq!(problem(&mut ear), None);
    let run = |ear: &mut Ear| {
        ear.session.set_now(Some("2030-12-31 23:00:00Z"));
        ear.session.run(schedule);
        ear.session.set_now(Some("2031-01-01 00:00:10Z"));
        ear.session.run("SELECT taskq.maintain()");
        ear.session.set_now(None);
    };
    run(&mut ear);
    assert_eq!(ear.session.one::<String>("SELECT state FROM taskq.tasks WHERE id LIKE 's@%'"), "ready");
    assert!(problem(&mut ear).is_some_and(|problem| problem.contains("\"no such load\"")));
    ear.session.run("UPDATE taskq.schedule SET problem = NULL; SELECT taskq.run_schedule('s')");
    assert!(problem(&mut ear).is_some_and(|problem| problem.contains("\"no such load\"")));
    ear.session.run("SELECT taskq.insert_task('no such load', 'x')");
    ear.heard.lock().unwrap().clear();
    assert_eq!(ear.hears(schedule), [""; 0]);
}
