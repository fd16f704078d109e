//! Cancelling aborts whatever is not settled, also in progress, and revokes tokens: a worker that still believes to
//! hold the task can do nothing to it any more, and learns of it when it extends.

use serde_json::json;
use taskq_tests::Db;

#[test]
fn the_status_of_the_call_is_kept() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]));
    assert_eq!(session.one::<i64>("SELECT taskq.cancel_tasks('{a}', 'the customer left')"), 1);
    assert_eq!(session.cancel(&["b"]).unwrap(), 1);
    assert_eq!(session.wait("a", "0").unwrap().unwrap().status.as_deref(), Some("the customer left"));
}

#[test]
fn a_whole_chain_listed_is_counted_whole() {
    let (_db, [mut session]) = Db::connected();
    let task = |i: i32| {
        let after: Vec<String> = (0..i).next_back().map(|before| before.to_string()).into_iter().collect();
        json!({"id": i.to_string(), "action": "x", "depends_on": after})
    };
    session.insert((0..50).map(task).collect()).unwrap();
    let ids: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    assert_eq!(session.cancel(&ids.iter().map(String::as_str).collect::<Vec<_>>()).unwrap(), 50);
}

/// Where the order of locks does not help, a call that is a transaction by itself gives up what it has locked, and begins anew.
#[test]
fn a_call_alone_that_is_the_victim_of_a_deadlock_begins_anew() {
    let (db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]));
    let lock = |id: &str| {
        format!(
            "SELECT FROM taskq.run r JOIN taskq.task t USING (task_no) WHERE t.id = '{id}' FOR UPDATE OF r"
        )
    };
    let mut other = db.connect();
    // The call is the one that looks for a deadlock.
    other.run("SET deadlock_timeout = '30s'; BEGIN");
    other.run(&lock("b"));
    let mut caller = db.connect();
    caller.run("SET deadlock_timeout = '4s'");
    let call = caller.background(|s| s.cancel(&["a", "b"]));
    call.settle_down(&mut session);
    other.run(&lock("a"));
    other.run("COMMIT");
    assert_eq!(call.join().1.unwrap(), 2);
}
