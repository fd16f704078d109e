//! Keys where several tasks of one call, ids that are replaced, and tasks that have ended meet.
//!
//! Why: whether a task is inserted is decided by its id and by its key, and each may take it out for the sake of another. On wrong
//! code two tasks hold one key, none does though one was inserted for it, or a task is left out for one that is left out itself.

use serde_json::{Value, json};
use taskq_tests::{Db, Progress, Session};

use crate::unique::report;

/// What became of each, with this `on_conflict`.
fn reported(session: &mut Session, tasks: Value, on_conflict: &str) -> Vec<String> {
    let query = "SELECT concat_ws(' ', task_id, outcome, existing_id)
                   FROM taskq.insert_tasks_report($1, on_conflict => $2)";
    session.query(query, &[&tasks, &on_conflict]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn stored(session: &mut Session) -> Vec<String> {
    session.all("SELECT concat_ws(' ', id, state) FROM taskq.tasks ORDER BY id COLLATE \"C\"")
}

/// A task of action `x`, of which only one is to be there at a time; the newest.
fn newest(id: &str) -> Value {
    json!({"id": id, "action": "x", "unique_by": {"key": "k", "on_conflict": "replace"}})
}

/// A task of action `x` that is left out where there is one with its key.
fn another(id: &str) -> Value {
    json!({"id": id, "action": "x", "unique_by": "k"})
}

#[test]
fn a_new_form_that_loses_the_key_takes_the_old_one_along() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([another("h")])).unwrap();
    let outcomes = reported(&mut session, json!([another("h"), newest("new")]), "replace");
    assert_eq!(outcomes, ["new skipped new", "new replaced h"]);
    assert_eq!(stored(&mut session), ["new ready"]);
}

#[test]
fn a_successor_that_is_replaced_by_its_id_stays_behind_what_has_begun() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([newest("h")])).unwrap();
    let grant = session.own_one("x");
    session.insert(json!([newest("b")])).unwrap();
    for form in [newest("b"), another("b")] {
        session.replace(json!([form])).unwrap();
        assert_eq!(stored(&mut session), ["b blocked", "h in-progress"]);
    }
    // Another element takes its key away.
    session.replace(json!([{"id": "b", "action": "x"}, newest("n")])).unwrap();
    assert_eq!(stored(&mut session), ["b ready", "h in-progress", "n blocked"]);
    session.complete(&grant);
    assert_eq!(session.state("n"), "ready");
}

#[test]
fn what_has_begun_holds_its_key_when_the_task_behind_it_has_gone() {
    for end in ["SELECT taskq.cancel_tasks('{b}')", "SELECT taskq.delete_tasks('{b}')"] {
        let db = Db::new();
        let mut session = db.connect();
        session.insert(json!([newest("h")])).unwrap();
        let grant = session.own_one("x");
        session.insert(json!([newest("b")])).unwrap();
        session.run(end);
        assert_eq!(report(&mut session, json!([another("c")])), ["h skipped h"], "{end}");
        assert_eq!(report(&mut session, json!([newest("d")])), ["d inserted h"], "{end}");
        assert_eq!(session.state("d"), "blocked", "{end}");
        session.complete(&grant);
        assert_eq!(session.state("d"), "ready", "{end}");
    }
}

#[test]
fn the_rules_of_one_array_go_by_the_state_that_a_task_will_be_in() {
    let db = Db::new();
    let mut session = db.connect();
    let scheduled = json!({"key": "k", "states": ["scheduled"]});
    let tasks = json!([{"id": "b", "action": "x", "unique_by": scheduled}, another("c"), another("d")]);
    assert_eq!(report(&mut session, tasks), ["b inserted", "c inserted", "c skipped c"]);
    // What is left out stays so for the sake of the one that had the key then.
    let completed = json!({"key": "l", "states": ["completed"], "on_conflict": "replace"});
    let tasks = json!([
        {"id": "e", "action": "x", "unique_by": "l"}, {"id": "f", "action": "x", "unique_by": completed},
        {"id": "g", "action": "x", "unique_by": "l"}]);
    assert_eq!(report(&mut session, tasks), ["f skipped f", "f inserted", "g inserted"]);
    session.delete(&["f", "g"]).unwrap();
    // Behind one in progress each of them waits.
    session.delete(&["b", "c"]).unwrap();
    session.insert(json!([newest("h")])).unwrap();
    session.own_one("x");
    let completed = json!({"key": "k", "states": ["completed"], "on_conflict": "replace"});
    let tasks = json!([{"id": "a", "action": "x", "unique_by": completed}, newest("b")]);
    assert_eq!(report(&mut session, tasks), ["a inserted h", "b inserted h"]);
    assert_eq!(stored(&mut session), ["a blocked", "b blocked", "h in-progress"]);
}

#[test]
fn a_task_that_is_left_out_stands_for_what_stands_for_it() {
    let db = Db::new();
    let mut session = db.connect();
    let pending = json!({"key": "k1", "states": ["pending"]});
    session
        .insert(json!([{"id": "a", "action": "x", "unique_by": "k2"}, {"id": "z", "action": "x", "unique_by": pending}]))
        .unwrap();
    let tasks = json!([
        {"id": "a", "action": "x", "unique_by": "k1"},
        {"id": "c", "action": "x", "unique_by": {"key": "k2", "on_conflict": "replace"}},
        {"id": "d", "action": "y", "depends_on": ["a"]}]);
    assert_eq!(reported(&mut session, tasks, "replace"), ["z skipped z", "c replaced a", "d inserted"]);
    let after: Vec<String> = session.all("SELECT after FROM taskq.dependencies WHERE run = 'd'");
    assert_eq!(after, ["z"]);
    // An id that stands twice, of which the first is left out.
    let twice = json!([{"id": "e", "action": "x", "unique_by": "k1"}, {"id": "e", "action": "x"}]);
    assert_eq!(reported(&mut session, twice, "skip"), ["z skipped z", "e inserted"]);
}

#[test]
fn a_task_that_replaces_itself_stands_for_others() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([another("a")])).unwrap();
    assert_eq!(report(&mut session, json!([newest("a"), another("b")])), ["a replaced a", "a skipped a"]);
    assert_eq!(stored(&mut session), ["a ready"]);
}

/// On wrong code the second is left out for the sake of the first, which is left out for its id.
#[test]
fn a_key_goes_to_the_next_where_its_task_turns_out_to_exist() {
    let db = Db::new();
    let (mut holder, mut session) = (db.connect(), db.connect());
    holder.run("BEGIN; SELECT taskq.insert_task('x', 'z')");
    let second = db.connect().background(|s| reported(s, json!([newest("x"), another("y")]), "skip"));
    assert_eq!(second.settle_down(&mut session), Progress::Blocked);
    holder.run("COMMIT");
    assert_eq!(second.join().1, ["x skipped x", "y inserted"]);
}
