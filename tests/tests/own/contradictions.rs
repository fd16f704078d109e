//! A row that contradicts another, made by hand: it stays as it is, `check()` names it, and all else goes on.
//!
//! Why: what time makes necessary is done by each call for work, for all. On wrong code one such row fails every
//! `own_tasks` of every action and session, with an internal error, until it is mended.

use serde_json::json;
use taskq_tests::{Db, Session, until};

/// A row of `run` for this task, in the hands of a worker whose deadline has passed, with its lease.
fn overdue(session: &mut Session, id: &str, tries: i32) {
    session.run(&format!(
        "INSERT INTO taskq.run (task_no, position, lane, prev_nonce, action_no, priority, failures, dependencies, gated,
                                tries, nonce, deadline, granted_at, grantable, limited, keyed, actor_id)
         SELECT t.task_no, t.task_no, 0, 0, t.action_no, t.priority, 0, 0, false,
                {tries}, 4711 # t.task_no, now() - interval '1 minute', now() - interval '2 minutes', false, false, false, 'ghost'
           FROM taskq.task AS t WHERE t.id = '{id}';
         INSERT INTO taskq.lease (deadline, base, keeper_no)
         SELECT now() - interval '1 minute', 4711, t.task_no FROM taskq.task AS t WHERE t.id = '{id}'"
    ));
}

/// Takes the row of `run` away, after which the queue is sound again.
fn mend(session: &mut Session, id: &str) {
    let number = format!("(SELECT t.task_no FROM taskq.task AS t WHERE t.id = '{id}')");
    session.run(&format!(
        "DELETE FROM taskq.run WHERE task_no = {number}; DELETE FROM taskq.lease WHERE keeper_no = {number}"
    ));
    assert_eq!(session.broken(), [""; 0]);
}

/// `bad` has completed, and is in progress as well; others are overdue before and after it, in the same batch.
fn settled_and_in_progress(session: &mut Session) {
    session
        .insert(json!([
            {"id": "bad", "action": "b", "max_tries": 1}, {"id": "wait", "action": "w", "depends_on": ["last 3"]},
            {"id": "last 1", "action": "l", "max_tries": 1}, {"id": "last 2", "action": "l", "max_tries": 1},
            {"id": "last 3", "action": "l", "max_tries": 1}, {"id": "again", "action": "l"}, {"id": "free", "action": "f"},
        ]))
        .unwrap();
    session.perform("b", "completed");
    session.own_with("ghost", 9, &["l"], "lease => '1 millisecond'").unwrap();
    session.run("SELECT pg_sleep(0.01)");
    overdue(session, "bad", 1);
}

/// In a transaction block it is a worker that ends them, which the call has sent for.
fn assert_ends(session: &mut Session, call: &str) {
    for id in ["last 1", "last 2", "last 3", "wait"] {
        if call.starts_with("BEGIN") {
            until("a worker ends it", || (session.state(id) == "aborted").then_some(()));
        }
        assert_eq!(session.state(id), "aborted", "{id}, by {call}");
    }
    let problems: Vec<String> = session.all("SELECT concat_ws(': ', task_id, problem) FROM taskq.check()");
    assert_eq!(problems, ["bad: task is in 2 places"], "{call}");
}

/// On wrong code each of these calls fails with 23505.
#[test]
fn upkeep_goes_past_a_task_that_is_in_two_places() {
    let calls = [
        "SELECT count(*) FROM taskq.own_tasks('w', 1, '{l}')",
        "BEGIN; SELECT count(*) FROM taskq.own_tasks('w', 9, '{l}'); COMMIT",
        "BEGIN; SAVEPOINT s; SELECT count(*) FROM taskq.own_tasks('w', 9, '{l}'); RELEASE s; COMMIT",
        "SELECT count(*) FROM taskq.own_tasks('w', 1, '{l}', wait => '10 s')",
        "SELECT count(*) FROM taskq.return_and_own_tasks('w', '[]', 1, '{l}')",
        "SELECT taskq.maintain()",
        "SELECT taskq.maintain(); SELECT taskq.maintain(); SELECT count(*) FROM taskq.own_tasks('w', 1, '{b,f}')",
    ];
    for call in calls {
        let (_db, [mut session]) = Db::connected();
        settled_and_in_progress(&mut session);
        session.run(call);
        if call.contains("wait =>") {
            // It ends what is of use to it.
            session.run("SELECT taskq.maintain()");
        }
        assert_ends(&mut session, call);
        let states: Vec<String> = session.all("SELECT state FROM taskq.tasks WHERE id = 'bad' ORDER BY 1");
        assert_eq!(states, ["completed", "in-progress"], "{call}: it is as it was");
        mend(&mut session, "bad");
    }
}

/// What has nothing to do with it is granted by any session, awake or asleep; and again and again.
#[test]
fn others_work_on_beside_it() {
    let (db, [mut session]) = Db::connected();
    settled_and_in_progress(&mut session);
    for _ in 0..3 {
        let mut other = db.connect();
        session.insert(json!([{"id": "n", "action": "n"}])).unwrap();
        let grant = other.own_one("n");
        other.complete(&grant);
        session.delete(&["n"]).unwrap();
        other.run("CALL taskq.wait_for_work('{f}', '1 s', NULL)");
        assert_eq!(other.own("w", 1, &["b"]).unwrap().len(), 0, "its last try is over");
    }
    let sleeper = db.connect();
    let pid = sleeper.pid();
    let sleeper = sleeper.background(|session| session.own_one_with("late", "wait => '30 s'").task_id);
    session.until_asleep(pid);
    session.insert(json!([{"id": "late", "action": "late"}])).unwrap();
    assert_eq!(sleeper.join().1, "late");
    session.run("SELECT taskq.maintain()");
    assert_ends(&mut session, "all of them");
    mend(&mut session, "bad");
}

/// A backend that has met it leaves it alone, and so do others, as long as nothing is to be expected: on wrong code each call of
/// each session tries it once more, and all that is overdue with it.
#[test]
fn it_is_not_tried_again_by_each_call() {
    let (_db, [mut session]) = Db::connected();
    settled_and_in_progress(&mut session);
    session.own("w", 9, &["l"]).unwrap();
    let next: bool = session.one("SELECT min(deadline) > now() + interval '30 s' FROM taskq.lease");
    assert!(next, "its lease is for a minute from now");
    mend(&mut session, "bad");
}

#[test]
fn the_views_show_the_queue_all_the_same() {
    let (_db, [mut session]) = Db::connected();
    settled_and_in_progress(&mut session);
    for report in [
        "taskq.tasks",
        "taskq.actions",
        "taskq.actors",
        "taskq.groups",
        "taskq.stats",
        "taskq.attempts",
        "taskq.dead_ends",
        "taskq.dependencies",
        "taskq.check()",
        "taskq.count_tasks()",
        "taskq.health()",
        "taskq.metrics(true)",
        "taskq.why('bad')",
        "taskq.descendants('bad')",
        "taskq.ancestors('wait')",
        "taskq.graph('bad')",
        "taskq.page()",
        "taskq.top",
    ] {
        session.run(&format!("SELECT * FROM {report}"));
    }
    mend(&mut session, "bad");
}

/// A delayed task that is ready as well: on wrong code each call for its action fails as soon as it is due.
#[test]
fn a_task_that_is_due_and_ready_keeps_no_other_from_its_time() {
    for call in ["taskq.own_tasks('w', 9, '{a}')", "taskq.maintain()"] {
        let (_db, [mut session]) = Db::with_tasks(json!([
            {"id": "before", "action": "a", "delay": "1 hour"}, {"id": "bad", "action": "x"},
            {"id": "after", "action": "a", "delay": "2 hours"},
        ]));
        session.run(
            "INSERT INTO taskq.scheduled
             SELECT (jsonb_populate_record(s, jsonb_build_object('task_no', (SELECT task_no FROM taskq.task WHERE id = 'bad')))).*
               FROM taskq.scheduled AS s LIMIT 1;
             UPDATE taskq.scheduled SET due = now() - interval '1 minute'",
        );
        session.run(&format!("SELECT count(*) FROM {call}"));
        let ready: i64 = session.one(
            "SELECT count(*) FROM taskq.run AS r JOIN taskq.task AS t USING (task_no) WHERE t.id IN ('before', 'after')",
        );
        assert_eq!(ready, 2, "{call}");
        let problems: Vec<String> =
            session.all("SELECT concat_ws(': ', task_id, problem) FROM taskq.check()");
        assert_eq!(problems, ["bad: task is in 2 places"], "{call}");
        session.run("DELETE FROM taskq.scheduled");
    }
}

/// A task that waits, and is ready as well; the signal for which it waits was left uncounted.
#[test]
fn a_signal_for_a_task_that_is_ready_keeps_no_other_from_being_counted() {
    for call in [
        "taskq.own_tasks('w', 9, '{c}')",
        "taskq.own_tasks('w', 9, '{c}', wait => '2 s')",
        "taskq.maintain()",
    ] {
        let (db, [mut session]) = Db::with_tasks(json!([
            {"id": "p", "action": "p"}, {"id": "bad", "action": "b", "depends_on": ["p"]},
            {"id": "c", "action": "c", "depends_on": ["p"]}, {"id": "r", "action": "r"},
        ]));
        let parent = session.own_one("p");
        // The holder has both counters, so that the return leaves signals.
        let mut holder = db.connect();
        holder.run("BEGIN; SELECT FROM taskq.blocked FOR UPDATE");
        session.complete(&parent);
        holder.run("ROLLBACK");
        session.run(
            "INSERT INTO taskq.run SELECT (jsonb_populate_record(r, jsonb_build_object('task_no', t.task_no, 'position', t.task_no,
                    'action_no', t.action_no))).*
               FROM taskq.run AS r, taskq.task AS t WHERE t.id = 'bad' LIMIT 1",
        );
        session.run(&format!("SELECT count(*) FROM {call}"));
        let free: i64 = session
            .one("SELECT count(*) FROM taskq.run AS r JOIN taskq.task AS t USING (task_no) WHERE t.id = 'c'");
        assert_eq!(free, 1, "{call}");
        let problems: Vec<String> =
            session.all("SELECT concat_ws(': ', task_id, problem) FROM taskq.check()");
        assert!(problems.contains(&"bad: task is in 2 places".to_owned()), "{call}: {problems:?}");
        session.run(
            "DELETE FROM taskq.run AS r USING taskq.task AS t WHERE r.task_no = t.task_no AND t.id = 'bad'",
        );
        // The next one frees it: a backend that has not met it.
        until("it is counted", || {
            db.connect().run("SELECT taskq.maintain()");
            (session.state("bad") == "ready").then_some(())
        });
    }
}

/// An entry without a task: on wrong code each claim that comes to it fails, and nothing behind it is ever granted.
#[test]
fn an_entry_without_a_task_keeps_no_other_from_being_granted() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "bad", "action": "a"}, {"id": "good", "action": "a"}]));
    session.run("DELETE FROM taskq.task WHERE id = 'bad'");
    let grant = session.own_one("a");
    assert_eq!(grant.task_id, "good");
    session.complete(&grant);
    let problems: Vec<String> = session.all("SELECT problem FROM taskq.check()");
    assert_eq!(problems, ["row without a task"]);
    session.run("DELETE FROM taskq.run");
}
