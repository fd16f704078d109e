//! Replacing while others wait for, own or return the old task.

use serde_json::json;
use taskq_tests::{Db, Progress, sqlstate};

/// A transaction that holds a new id for which a replace waits may ask for an old one that the same replace is about to
/// remove.
#[test]
fn a_replace_that_waits_for_an_id_has_removed_nothing_yet() {
    let db = Db::new();
    for (new, old) in [("a", "b"), ("b", "a")] {
        db.clear();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher.insert(json!([{"id": old, "action": "x"}])).unwrap();
        first.run("BEGIN");
        first.insert(json!([{"id": new, "action": "x"}])).unwrap();
        let both =
            json!([{"id": new, "action": "x", "body": "new"}, {"id": old, "action": "x", "body": "new"}]);
        let call = second.background(move |session| session.replace(both).map(|ids| ids.len()));
        assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
        first.run("SAVEPOINT s");
        let error = first.insert(json!([{"id": old, "action": "x"}])).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ002", "it is there, and no session is removing it");
        first.run("ROLLBACK TO SAVEPOINT s; COMMIT");
        assert_eq!(call.join().1.unwrap(), 2);
        let bodies = watcher.all::<Option<String>>("SELECT body FROM taskq.tasks ORDER BY id");
        assert_eq!(bodies, [Some("new".to_owned()), Some("new".to_owned())]);
    }
}
