//! Calls that name tasks act on what there is now, also where the transaction's snapshot is older.
//!
//! Why: under REPEATABLE READ a task may have been inserted, freed, retried or granted after the snapshot. Wrong code
//! looks for its row with that snapshot, does not find it, knows that it is not settled, and looks again, for ever:
//! here it runs into the statement timeout. Or it fails with 40001, although no other transaction changes the task at
//! the same time.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

type Step = fn(&mut Session);

/// What came of "z" before the snapshot, and what after it.
const PASTS: [(&str, Step, Step); 7] = [
    ("inserted", |_| (), |s| drop(s.insert(json!([{"id": "z", "action": "z"}])).unwrap())),
    ("replaced", ready, |s| drop(s.replace(json!([{"id": "z", "action": "z"}])).unwrap())),
    ("given back", ready, |s| {
        let grant = s.own_one("z");
        s.give_with("z", grant.token, "pending", "retry_after => '0'").unwrap();
    }),
    ("changed", ready, |s| s.run("SELECT taskq.update_tasks('{z}', priority => 3)")),
    (
        "due",
        |s| s.run("SELECT taskq.insert_task('z', 'z', delay => '1 hour')"),
        |s| s.run("SELECT taskq.update_tasks('{z}', delay => '0')"),
    ),
    (
        "freed",
        |s| {
            s.insert(json!([{"id": "y", "action": "y"}, {"id": "z", "action": "z", "depends_on": ["y"]}]))
                .unwrap();
        },
        |s| drop(s.perform("y", "completed")),
    ),
    (
        "retried",
        |s| {
            ready(s);
            s.cancel(&["z"]).unwrap();
        },
        |s| s.run("SELECT taskq.retry_tasks('{z}')"),
    ),
];

const CALLS: [&str; 9] = [
    "SELECT taskq.cancel_tasks('{z}')",
    "SELECT taskq.delete_tasks('{z}')",
    "SELECT taskq.replace_tasks('[{\"id\": \"z\", \"action\": \"z\"}]')",
    "SELECT taskq.update_tasks('{z}', priority => 7)",
    "SELECT taskq.complete_task('z')",
    "SELECT taskq.add_dependencies('{n}', '{z}')",
    "SELECT taskq.insert_task('m', 'm', depends_on => '{z}')",
    "SELECT taskq.insert_task('m', 'm', to_signal_after => '{z}')",
    "SELECT taskq.insert_tasks('[{\"id\": \"z\", \"action\": \"z\"}, {\"id\": \"m\", \"action\": \"m\", \"depends_on\": [\"z\"]}]',
                               on_conflict => 'skip')",
];

fn ready(session: &mut Session) {
    session.insert(json!([{"id": "z", "action": "z"}])).unwrap();
}

#[test]
fn what_came_after_the_snapshot_is_found() {
    let (db, [mut old, mut main]) = Db::connected();
    old.run("SET statement_timeout = '5s'");
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        for (past, before, after) in PASTS {
            for call in CALLS {
                db.clear();
                main.insert(json!([{"id": "n", "action": "n"}])).unwrap();
                before(&mut main);
                old.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM taskq.tasks"));
                after(&mut main);
                let done = old.batch_execute(call).and_then(|()| old.batch_execute("COMMIT"));
                old.run("ROLLBACK");
                match done {
                    Ok(()) => (),
                    // What this transaction has read and the other has written may close a cycle.
                    Err(error) if isolation == "SERIALIZABLE" => assert_eq!(sqlstate(&error), "40001"),
                    Err(error) => panic!("{past}: {call}: {error:?}"),
                }
                assert!(main.broken().is_empty(), "{past}: {call}");
            }
        }
    }
}
