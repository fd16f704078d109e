//! Tasks that wait in the middle: suspending, signals, some of many dependencies.

mod anew;
mod counted;
mod edges;
mod found;
mod meets;
mod named_again;
mod races;
mod refused;
mod signal_many;
mod signals;
mod sizes;
mod some_of_many;
mod suspend;
mod time_out;

use serde_json::Value;
use taskq_tests::{Answer, Grant, Session};
use uuid::Uuid;

/// Suspends a task that is held, with further arguments as SQL; the code that it has then.
fn suspend(session: &mut Session, grant: &Grant, arguments: &str) -> Answer<String> {
    session.give_with(&grant.task_id, grant.token, "pending", arguments)
}

/// A task of the action `work`, held; it is suspended until these tasks have ended.
fn suspended(session: &mut Session, id: &str, awaited: &str) {
    session.run(&format!("SELECT taskq.insert_task('{id}', 'work')"));
    let grant = session.own_one("work");
    assert_eq!(grant.task_id, id);
    assert_eq!(suspend(session, &grant, &format!("depends_on => '{awaited}'")).unwrap(), "pending");
}

/// What `taskq.waits` says for what a task waits; `None` if it is not suspended.
fn waits_for(session: &mut Session, id: &str) -> Option<Vec<String>> {
    session.all(&format!("SELECT waits_for FROM taskq.waits WHERE task_id = '{id}'")).pop()
}

/// What the dependencies of the next task of the action have left, and its grant.
fn own_with_results(session: &mut Session, action: &str) -> (Grant, Value) {
    let results = "SELECT task_id, token, results, num_tries, num_failures
                     FROM taskq.own_tasks('worker', 1, ARRAY[$1], with_results => true)";
    let row = session.query_one(results, &[&action]).unwrap();
    let grant = Grant {
        task_id: row.get(0),
        token: row.get::<_, Uuid>(1),
        action: action.to_owned(),
        body: None,
        num_tries: row.get(3),
        num_failures: row.get(4),
        action_deadline: None,
    };
    (grant, row.get(2))
}

fn signal(session: &mut Session, id: &str) -> bool {
    session.one(&format!("SELECT taskq.signal('{id}')"))
}
