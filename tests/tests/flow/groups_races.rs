//! `delete_group` and `reset_group` beside a transaction that brings a settled member back, replaces it, or makes a
//! task wait for it. A settled task has no live row: a call that locks only those goes on while the other transaction
//! is open, and leaves a ghost that is granted and belongs to no task, or a counter that is wrong for ever. `check()`
//! at the end of each test finds both.

use std::thread;
use std::time::Duration;

use serde_json::json;
use taskq_tests::{Background, Db, Progress, Session};

/// `z` of the group has completed, `y` has aborted, and `x` aborted because of `y`; `q` is ready, and `out` waits for it.
fn setup(session: &mut Session) {
    session
        .insert(json!([
            {"id": "z", "action": "z", "group_id": "g"}, {"id": "y", "action": "y", "group_id": "g"},
            {"id": "x", "action": "x", "group_id": "g", "depends_on": ["y"]},
            {"id": "q", "action": "q"}, {"id": "out", "action": "out", "depends_on": ["z", "q"]},
            {"id": "parent", "action": "parent"},
        ]))
        .unwrap();
    session.perform("z", "completed");
    session.perform("y", "aborted");
}

/// Runs `beside` in an open transaction, then the call on the group, which must wait for it; then ends the transaction.
fn race(db: &Db, isolation: &str, beside: &str, call: &'static str, end: &str) -> Session {
    let (mut open, other, mut watcher) = (db.connect(), db.connect(), db.connect());
    setup(&mut watcher);
    open.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
    open.run(beside);
    let call: Background<()> = other.background(move |session| session.run(call));
    assert_eq!(
        call.settle_down(&mut watcher),
        Progress::Blocked,
        "{beside}: the change of members is waited for"
    );
    open.run(end);
    call.join();
    watcher
}

/// What may be under way beside the call.
const BESIDE: [&str; 7] = [
    "SELECT taskq.retry_tasks('{y}')",
    "SELECT taskq.retry_group('g')",
    "SELECT taskq.replace_tasks('[{\"id\": \"z\", \"action\": \"z\"}]')",
    "SELECT taskq.replace_tasks('[{\"id\": \"z\", \"action\": \"z\", \"group_id\": \"g\"}]')",
    "SELECT taskq.insert_tasks('[{\"id\": \"n\", \"action\": \"n\", \"depends_on\": [\"z\"]},
                                 {\"id\": \"m\", \"action\": \"m\", \"depends_on\": [\"z\", \"q\"]}]')",
    "SELECT taskq.return_task(task_id, token, children => '[{\"id\": \"n\", \"action\": \"n\", \"depends_on\": [\"z\", \"q\"]}]')
       FROM taskq.own_tasks('w', 1, '{parent}')",
    "SELECT taskq.delete_tasks('{z}')",
];

/// Does all that can be done; what is left is stuck.
fn all_ends(session: &mut Session, case: &str) {
    let actions = ["z", "y", "x", "q", "out", "n", "m", "parent"];
    while let Some(grant) = session.own("w", 1, &actions).unwrap().pop() {
        session.complete(&grant);
    }
    let stuck: Vec<String> =
        session.all("SELECT id || ' ' || state FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
    assert!(stuck.is_empty(), "{case}: {stuck:?}");
}

#[test]
#[ignore = "long"]
fn a_group_is_deleted_with_what_comes_back_into_it() {
    for beside in BESIDE {
        for end in ["COMMIT", "ROLLBACK"] {
            let db = Db::new();
            let mut watcher = race(&db, "READ COMMITTED", beside, "SELECT taskq.delete_group('g')", end);
            let left: i64 = watcher.one("SELECT count(*) FROM taskq.tasks WHERE group_id = 'g'");
            assert_eq!(left, 0, "{beside}, {end}");
            all_ends(&mut watcher, beside);
        }
    }
}

#[test]
#[ignore = "long"]
fn a_group_is_reset_with_all_that_waits_for_it() {
    for beside in BESIDE {
        for end in ["COMMIT", "ROLLBACK"] {
            let db = Db::new();
            let mut watcher = race(&db, "READ COMMITTED", beside, "SELECT taskq.reset_group('g')", end);
            let case = format!("{beside}, {end}");
            // A task that waits for z waits again: z has not been done since.
            for id in ["n", "m", "out"] {
                let waits: bool = watcher.one(&format!(
                    "SELECT EXISTS (SELECT FROM taskq.dependencies d JOIN taskq.tasks t ON t.id = d.after
                                     WHERE d.run = '{id}' AND t.state NOT IN ('completed', 'aborted'))"
                ));
                if let Some(task) = watcher.task(id) {
                    assert_eq!(task.state == "blocked", waits, "{case}: {id} is {}", task.state);
                }
            }
            let broken = watcher.broken();
            assert!(broken.is_empty(), "{case}: {broken:?}");
            all_ends(&mut watcher, &case);
        }
    }
}

#[test]
fn what_an_older_snapshot_inserts_is_seen_by_the_reset() {
    let db = Db::new();
    let beside = "SELECT taskq.insert_task('n', 'n', depends_on => '{z,q}')";
    let mut watcher = race(&db, "REPEATABLE READ", beside, "SELECT taskq.reset_group('g')", "COMMIT");
    assert_eq!(watcher.task("n").map(|task| task.num_signals), Some(0));
    watcher.perform("q", "completed");
    assert_eq!(watcher.state("n"), "blocked");
    all_ends(&mut watcher, beside);
}

/// Both orders: here the reset is the open one.
#[test]
#[ignore = "long"]
fn what_comes_while_a_group_is_being_reset_or_deleted_waits_for_it() {
    for call in ["reset_group", "delete_group"] {
        for beside in BESIDE {
            let (_db, [mut open, other, mut watcher]) = Db::connected();
            setup(&mut watcher);
            open.run(&format!("BEGIN; SELECT taskq.{call}('g')"));
            let beside_call = other.background(move |session| drop(session.batch_execute(beside)));
            beside_call.settle_down(&mut watcher);
            open.run("COMMIT");
            beside_call.join();
            let broken = watcher.broken();
            assert!(broken.is_empty(), "{call} and {beside}: {broken:?}");
            all_ends(&mut watcher, &format!("{call} and {beside}"));
        }
    }
}

/// A seed that is inserted while the group is being reset is none of the reset's tasks. On wrong code it is placed once more:
/// `23505` comes out of the reset, or the seed is settled and ready at once; or all others are deleted for it. The moment is one
/// between two looks at the group, of which the first takes some milliseconds: it is met by one of several trials.
#[test]
fn a_seed_that_comes_while_its_group_is_being_reset_stays_as_it_is() {
    const TASKS: i64 = 5_000;
    let (db, [mut watcher, mut holder, mut inserter]) = Db::connected();
    let fill = format!(
        "SELECT taskq.insert_many('t', array_fill('{{}}'::text, ARRAY[{TASKS}]), group_id => 'g');
         SELECT taskq.insert_task('done', 'd', group_id => 'g')"
    );
    watcher.run(&fill);
    let mut resetting = db.connect();
    for (n, after) in [0, 300, 600, 1_000, 1_500, 2_000, 3_000, 4_500, 6_000, 9_000].into_iter().enumerate() {
        // The reset has locked the others, and waits for this one. After that it looks whether there are still the same.
        watcher.perform("d", "completed");
        holder.run("BEGIN; SELECT FROM taskq.settled FOR UPDATE");
        inserter
            .run(&format!("BEGIN; SELECT taskq.insert_task('seed {n}', 's', group_id => 'g', seed => true)"));
        let reset = resetting.background(|session| {
            session.query_one("SELECT taskq.reset_group('g')", &[]).map(|row| row.get::<_, i64>(0))
        });
        assert_eq!(reset.settle_down(&mut watcher), Progress::Blocked);
        holder.run("COMMIT");
        thread::sleep(Duration::from_micros(after));
        inserter.run("COMMIT");
        let (session, number) = reset.join();
        resetting = session;
        let number = number.unwrap_or_else(|error| panic!("a seed after {after} us: {error:?}"));
        if number > TASKS + 1 {
            // It came before: only seeds stay.
            assert_eq!(watcher.one::<i64>("SELECT count(*) FROM taskq.tasks"), 1, "after {after} us");
            watcher.run(&fill);
        }
        assert_eq!(watcher.one::<i64>("SELECT count(*) FROM taskq.tasks"), TASKS + 2, "after {after} us");
        assert_eq!(watcher.delete(&[&format!("seed {n}")]).unwrap(), 1);
    }
}
