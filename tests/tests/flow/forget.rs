//! `forget_action`: names that are not used any more.
//!
//! Why: a misspelt name would stay in the views and the metrics for ever. On wrong code a task of a forgotten name is
//! lost to claims and views, or a name comes back that is not used.

use serde_json::json;
use taskq_tests::{Db, Progress, Session, refused};

use crate::{call, owned};

fn names(session: &mut Session) -> Vec<String> {
    session.all("SELECT action FROM taskq.actions ORDER BY 1")
}

#[test]
fn a_name_goes_with_what_was_set_for_it_and_may_come_back() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "maek"}, {"id": "b", "action": "make"}]));
    call(&mut session, "set_action('maek', max_concurrency => 1, rate_limit => 1, rate_period => '1 hour')");
    session.delete(&["a"]).unwrap();
    call(&mut session, "forget_action('maek')");
    assert_eq!(names(&mut session), ["make"]);
    assert!(!session.one::<String>("SELECT taskq.metrics()").contains("maek"));
    session.insert(json!([{"id": "a", "action": "maek"}, {"id": "c", "action": "maek"}])).unwrap();
    assert_eq!(names(&mut session), ["maek", "make"]);
    assert_eq!(owned(&mut session, 5, &["maek"]), ["a", "c"], "without the old limits");
}

#[test]
fn a_name_that_only_has_settings_goes_too() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "pause_action('typo')");
    call(&mut session, "forget_action('typo')");
    assert!(names(&mut session).is_empty());
}

#[test]
fn names_in_use_and_names_that_there_are_not() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y"}]));
    session.perform("y", "completed");
    call(&mut session, r#"schedule('s', '0 * * * *', '{"action": "z"}')"#);
    call(&mut session, "set_action('z', max_tries => 2)");
    for name in ["x", "y", "z"] {
        refused(&mut session, "TQ005", name, &format!("SELECT taskq.forget_action('{name}')"), &[]);
    }
    refused(&mut session, "TQ007", "nope", "SELECT taskq.forget_action('nope')", &[]);
    refused(&mut session, "22004", "action", "SELECT taskq.forget_action(NULL)", &[]);
    session.delete(&["a"]).unwrap();
    call(&mut session, "forget_action('x')");
    refused(&mut session, "TQ007", "x", "SELECT taskq.forget_action('x')", &[]);
}

/// An insertion that has the number already, and is not committed: its task is as good as any.
#[test]
fn a_task_that_slips_in_is_not_lost() {
    let (db, [mut open, other]) = Db::with_tasks(json!([{"id": "old", "action": "x"}]));
    open.delete(&["old"]).unwrap();
    open.run("BEGIN");
    open.insert(json!([{"id": "new", "action": "x"}])).unwrap();
    let mut watcher = db.connect();
    let forget = other.background(|s| s.query("SELECT taskq.forget_action('x')", &[]).map(drop));
    assert_eq!(forget.settle_down(&mut watcher), Progress::Done, "no call waits because of names");
    forget.join().1.unwrap();
    open.run("COMMIT");
    watcher.insert(json!([{"id": "newer", "action": "x"}])).unwrap();
    assert_eq!(names(&mut watcher), ["x"]);
    assert_eq!(owned(&mut watcher, 5, &["x"]), ["new", "newer"]);
}
