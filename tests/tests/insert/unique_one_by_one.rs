//! Each element of an array means what it would mean alone, behind those before it.
//!
//! Why: who has a key was decided early and late, by id, and anew where the call could begin anew. So a task was lost when another
//! transaction took the id of the one that had the key, in a call that could not; a dependency, where an id of a stored task was that
//! of an element; and a task that was left out for one that the same call took away.

use serde_json::{Value, json};
use taskq_tests::{Db, Progress, Session, sqlstate};

use crate::unique::report;

/// What became of each, with this `on_conflict`.
fn reported(session: &mut Session, tasks: Value, on_conflict: &str) -> Vec<String> {
    let query = "SELECT concat_ws(' ', task_id, outcome, existing_id)
                   FROM taskq.insert_tasks_report($1, on_conflict => $2)";
    session.query(query, &[&tasks, &on_conflict]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn keyed(id: &str, unique_by: Value) -> Value {
    json!({"id": id, "action": "a", "unique_by": unique_by})
}

/// Arrays of which `y` is to be inserted where the id `x` turns out to be taken; with what the stored task `r` depends on, and `z`.
fn arrays() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let plain = || (keyed("x", json!("k")), keyed("y", json!("k")));
    let period = || json!({"key": "k", "period": "1 hour"});
    let newest = || json!({"key": "k", "on_conflict": "replace", "max_wait": "1 hour"});
    let (x, y) = plain();
    let mut before_r = y.clone();
    before_r["to_signal_after"] = json!(["r"]);
    vec![
        ("plain", json!([x, y]), vec![]),
        ("period", json!([keyed("x", period()), keyed("y", period())]), vec![]),
        ("replace", json!([keyed("y", newest()), keyed("x", newest())]), vec![]),
        ("named", json!([x, y, {"id": "z", "action": "d", "depends_on": ["y"]}]), vec!["y-z"]),
        ("taken", json!([x, y, {"id": "z", "action": "d", "depends_on": ["x"]}]), vec!["x-z"]),
        ("outside", json!([x, y, {"id": "z", "action": "d", "depends_on": ["r"]}]), vec!["r-z"]),
        ("before", json!([x, before_r]), vec!["y-r"]),
    ]
}

/// On wrong code `y` is left out for `x`, and that for the other transaction's `x`: no task has the key.
#[test]
fn an_id_that_another_transaction_takes_leaves_its_key_to_the_next() {
    let inserts = ["SELECT taskq.insert_task('x', 'other')", "SELECT taskq.signal('x')"];
    for start in ["", "BEGIN", "BEGIN; SAVEPOINT s", "many calls before"] {
        for (at, (what, tasks, edges)) in arrays().into_iter().enumerate() {
            let (_db, [mut other, mut session, mut watcher]) = Db::connected();
            watcher.run("SELECT taskq.insert_task('r', 'r'), taskq.insert_task('o', 'o')");
            other.run(&format!("BEGIN; {}", inserts[at % 2]));
            if start == "many calls before" {
                // Such a call is restartable; after some there are no subtransactions any more.
                session.run("BEGIN");
                for n in 0..40 {
                    let one = json!([{"id": format!("m{n}"), "action": "m", "depends_on": ["o"]}]);
                    session.insert_with(one, "on_conflict => 'skip'").unwrap();
                }
            } else {
                session.run(start);
            }
            let call = session.background(move |s| reported(s, tasks, "skip"));
            assert_eq!(call.settle_down(&mut watcher), Progress::Blocked, "{start} {what}");
            other.run("COMMIT");
            let (mut session, mut outcomes) = call.join();
            if !start.is_empty() {
                session.run("COMMIT");
            }
            outcomes.truncate(2);
            outcomes.sort();
            assert_eq!(outcomes, ["x skipped x", "y inserted"], "{start} {what}");
            let holder: Vec<String> = session.all("SELECT task_id FROM taskq.unique_keys WHERE held");
            assert_eq!(holder, ["y"], "{start} {what}");
            let got: Vec<String> = session
                .all("SELECT after || '-' || run FROM taskq.dependencies WHERE after <> 'o' ORDER BY 1");
            assert_eq!(got, edges, "{start} {what}");
        }
    }
}

/// On wrong code the call keeps its key through each new attempt, which is what the other waits for: it fails in the end.
#[test]
fn a_call_that_is_in_a_deadlock_gives_up_its_keys_as_well() {
    let (db, [mut first, mut two, one]) = Db::connected();
    let mut watcher = db.connect();
    let newest = || json!({"key": "k", "on_conflict": "replace"});
    watcher
        .insert(json!([{"id": "r", "action": "x"}, {"id": "q", "action": "x"}, keyed("old", newest())]))
        .unwrap();
    first.run("BEGIN; SELECT taskq.update_tasks('{r}', priority => 1)");
    two.run("BEGIN; SELECT taskq.update_tasks('{q}', priority => 2)");
    let mut before_r = keyed("s1", newest());
    before_r["to_signal_after"] = json!(["r"]);
    let tasks = json!([before_r, {"id": "s2", "action": "b", "to_signal_after": ["q"]}]);
    let one = one.background(|s| s.insert(tasks).map_err(|e| sqlstate(&e).to_owned()));
    assert_eq!(one.settle_down(&mut watcher), Progress::Blocked, "it has the key, and waits for r");
    let two = two.background(move |s| {
        let inserted = s.insert(json!([keyed("t1", newest())])).map_err(|e| sqlstate(&e).to_owned());
        s.run(if inserted.is_ok() { "COMMIT" } else { "ROLLBACK" });
        inserted
    });
    assert_eq!(two.settle_down(&mut watcher), Progress::Blocked, "it waits for the key");
    // The deadlock is the single call's to find, which comes last.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    first.run("COMMIT");
    assert_eq!(two.join().1, Ok(vec!["t1".to_owned()]));
    assert_eq!(one.join().1, Ok(vec!["s1".to_owned(), "s2".to_owned()]));
}

/// On wrong code the row of the key, which the removal passes over, points to a task that is gone, and the view has nothing.
#[test]
fn the_view_shows_who_holds_a_key_when_the_task_behind_it_has_gone() {
    let (_db, [mut inserter, mut session]) = Db::connected();
    let newest = || json!({"key": "k", "on_conflict": "replace"});
    session.insert(json!([keyed("first", newest())])).unwrap();
    session.own_one("a");
    session.insert(json!([keyed("second", newest())])).unwrap();
    inserter.run("BEGIN");
    assert_eq!(report(&mut inserter, json!([keyed("n", json!("k"))])), ["second skipped second"]);
    session.delete(&["second"]).unwrap();
    inserter.run("COMMIT");
    let view = "SELECT concat_ws(' ', key, task_id, state, held) FROM taskq.unique_keys";
    assert_eq!(session.all::<String>(view), ["k first in-progress t"]);
    assert_eq!(report(&mut session, json!([keyed("m", json!("k"))])), ["first skipped first"]);
    // And where the last one is there, but does not hold it.
    session.insert(json!([keyed("third", newest())])).unwrap();
    session.cancel(&["third"]).unwrap();
    assert_eq!(session.all::<String>(view), ["k first in-progress t"]);
}
