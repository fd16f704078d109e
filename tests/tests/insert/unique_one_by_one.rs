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
            let db = Db::new();
            let (mut other, mut session, mut watcher) = (db.connect(), db.connect(), db.connect());
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
            assert_eq!(session.broken(), Vec::<String>::new(), "{start} {what}");
        }
    }
}

/// On wrong code what `n1` is left out for, the stored `S4`, is taken for the element `S4`, which is left out for `n6` itself.
#[test]
fn a_stored_task_is_not_an_element_with_its_id() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([keyed("S4", json!("k")), keyed("T1", json!("l"))])).unwrap();
    let mut n6 = keyed("n6", json!({"key": "l", "on_conflict": "replace"}));
    n6["depends_on"] = json!([{"id": "n1", "condition": "settled"}]);
    let tasks = json!([keyed("n1", json!("k")), n6, keyed("S4", json!("l"))]);
    for (on_conflict, last) in [("skip", "S4 skipped S4"), ("replace", "n6 skipped n6")] {
        session.run("BEGIN");
        let outcomes = reported(&mut session, tasks.clone(), on_conflict);
        assert_eq!(outcomes, ["S4 skipped S4", "n6 replaced T1", last]);
        let edges: Vec<String> = session.all("SELECT after || '-' || run FROM taskq.dependencies");
        assert_eq!((edges, session.state("n6")), (vec!["S4-n6".to_owned()], "blocked".to_owned()));
        session.run("ROLLBACK");
    }
    // The id comes first.
    assert_eq!(sqlstate(&session.insert(tasks).unwrap_err()), "TQ002");
}

/// On wrong code `i0` is left out for the old `i6`: no task has the key.
#[test]
fn what_the_call_takes_away_holds_no_key_also_behind_another_task() {
    let db = Db::new();
    let mut session = db.connect();
    let kept = json!({"key": "k", "states": ["pending", "in-progress", "completed"]});
    session.insert(json!([keyed("i6", kept)])).unwrap();
    let grant = session.own_one("a");
    let newest = json!({"key": "k", "states": ["pending"], "on_conflict": "replace"});
    session.insert(json!([keyed("j", newest)])).unwrap();
    session.complete(&grant);
    assert_eq!(session.own_one("a").task_id, "j");
    let tasks = json!([keyed("i6", json!("l")), keyed("i0", json!("k"))]);
    assert_eq!(reported(&mut session, tasks, "replace"), ["i6 replaced i6", "i0 inserted"]);
    let held: Vec<String> =
        session.all("SELECT key || ' ' || task_id FROM taskq.unique_keys WHERE held ORDER BY 1");
    assert_eq!(held, ["k i0", "l i6"]);
}

#[test]
fn an_id_that_stands_twice_is_refused_and_one_of_a_task_that_is_left_out_is_free() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([keyed("held", json!("k"))])).unwrap();
    let twice = json!([keyed("e", json!("k")), {"id": "e", "action": "b"}, {"id": "e", "action": "c"}]);
    assert_eq!(sqlstate(&session.insert(twice.clone()).unwrap_err()), "TQ002");
    assert_eq!(sqlstate(&session.replace(twice.clone()).unwrap_err()), "TQ002");
    assert_eq!(reported(&mut session, twice, "skip"), ["held skipped held", "e inserted", "e skipped e"]);
    // An id is asked first, also that of an element which its key would leave out.
    session.insert(json!([{"id": "there", "action": "b"}])).unwrap();
    assert_eq!(sqlstate(&session.insert(json!([keyed("there", json!("k"))])).unwrap_err()), "TQ002");
}

/// The state of an element counts that it is in once it is inserted alone.
#[test]
fn an_element_that_is_settled_from_the_start_gives_its_key_up() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "done", "action": "s", "spontaneous": true}])).unwrap();
    let mut spontaneous = keyed("s", json!("k"));
    spontaneous["spontaneous"] = json!(true);
    assert_eq!(
        report(&mut session, json!([spontaneous, keyed("a", json!("k"))])),
        ["s inserted", "a inserted"]
    );
    let mut lost = keyed("lost", json!("l"));
    lost["depends_on"] = json!([{"id": "done", "condition": "aborted"}]);
    assert_eq!(report(&mut session, json!([lost, keyed("b", json!("l"))])), ["lost inserted", "b inserted"]);
    assert_eq!(session.state("lost"), "aborted");
    // Not one that another element makes wait.
    spontaneous["id"] = json!("t");
    spontaneous["unique_by"] = json!("m");
    let tasks = json!([{"id": "before", "action": "b", "to_signal_after": ["t"]}, spontaneous, keyed("c", json!("m"))]);
    assert_eq!(report(&mut session, tasks), ["before inserted", "t inserted", "t skipped t"]);
}

/// On wrong code the call keeps its key through each new attempt, which is what the other waits for: it fails in the end.
#[test]
fn a_call_that_is_in_a_deadlock_gives_up_its_keys_as_well() {
    let db = Db::new();
    let (mut first, mut two, one) = (db.connect(), db.connect(), db.connect());
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
    let db = Db::new();
    let (mut inserter, mut session) = (db.connect(), db.connect());
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
