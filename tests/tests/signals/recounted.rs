//! A counter is worked out anew while others end what the task waits for.

use serde_json::json;
use taskq_tests::Db;

/// Each deletion works the counter of `all` and that of `some` out. On code that looks at the ends without what they have left to be
/// counted, an end that comes in between counts twice, and the tasks go on too early.
#[test]
fn deletions_beside_ends_count_each_end_once() {
    const EACH: usize = 120;
    let (db, [mut session]) = Db::connected();
    let ids = |kind: &str| (0..EACH).map(|n| format!("{kind}{n}")).collect::<Vec<_>>();
    let (ends, going) = (ids("e"), ids("g"));
    let mut tasks: Vec<_> = ends.iter().map(|id| json!({"id": id, "action": "e"})).collect();
    tasks.extend(going.iter().map(|id| json!({"id": id, "action": "g"})));
    let depends_on: Vec<_> = ends
        .iter()
        .chain(&going)
        .chain([&"last".to_owned()])
        .map(|id| json!({"id": id, "condition": "settled"}))
        .collect();
    tasks.push(json!({"id": "last", "action": "last"}));
    tasks.push(json!({"id": "all", "action": "t", "depends_on": depends_on}));
    tasks.push(json!({"id": "some", "action": "t", "depends_on": depends_on, "num_required": EACH + 1}));
    session.insert(json!(tasks)).unwrap();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            db.connect().background(|session| {
                while let Some(grant) = session.own("w", 1, &["e"]).unwrap().pop() {
                    session.give(&grant.task_id, grant.token, "aborted").unwrap();
                }
            })
        })
        .collect();
    for id in &going {
        assert_eq!(session.delete(&[id.as_str()]).unwrap(), 1);
    }
    workers.into_iter().for_each(|worker| drop(worker.join()));
    session.run("SELECT taskq.maintain()");
    for id in ["all", "some"] {
        let task = session.task(id).unwrap();
        let (signals, failures) = (task.num_signals as usize, task.num_failures as usize);
        assert_eq!((task.state.as_str(), signals, failures), ("blocked", EACH, EACH), "{id}");
    }
    session.perform("last", "completed");
    assert_eq!((session.state("all"), session.state("some")), ("ready".to_owned(), "ready".to_owned()));
}
