//! `rerun_tasks` and `rewind_task` beside other transactions, in both orders, with commit and with rollback.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

use crate::{rerun, save, states};

const RERUN: &str = "SELECT taskq.rerun_tasks('{a}')";

fn chain(session: &mut Session) {
    session
        .insert(json!([
            {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]},
            {"id": "c", "action": "c", "depends_on": ["b", "z"]}, {"id": "z", "action": "z"},
        ]))
        .unwrap();
    session.perform("a", "completed");
}

#[test]
fn a_claim_beside_it_has_the_task_or_finds_it_blocked() {
    for (claim_first, commit) in [(true, true), (true, false), (false, true), (false, false)] {
        let (_db, [mut first, mut second, mut watcher]) = Db::connected();
        chain(&mut watcher);
        first.run("BEGIN");
        let end = if commit { "COMMIT" } else { "ROLLBACK" };
        if claim_first {
            let held = first.own_one("b");
            let call =
                second.background(|session| session.query_one(RERUN, &[]).map(|row| row.get::<_, i64>(0)));
            call.settle_down(&mut watcher);
            first.run(end);
            let outcome = call.join().1;
            if commit {
                assert_eq!(sqlstate(&outcome.unwrap_err()), "TQ005");
                assert_eq!(states(&mut watcher, ["a", "b"]), ["completed", "in-progress"]);
                watcher.complete(&held);
            } else {
                assert_eq!(outcome.unwrap(), 1);
                assert_eq!(states(&mut watcher, ["a", "b"]), ["ready", "blocked"]);
            }
        } else {
            first.run(RERUN);
            assert!(second.own("w", 1, &["b"]).unwrap().is_empty());
            first.run(end);
            let expected = if commit { ["ready", "blocked"] } else { ["completed", "ready"] };
            assert_eq!(states(&mut watcher, ["a", "b"]), expected);
        }
    }
}

#[test]
fn a_return_of_a_dependent_beside_it_is_taken_back_or_comes_too_late() {
    let (_db, [mut first, second, mut watcher]) = Db::connected();
    chain(&mut watcher);
    let held = watcher.own_one("b");
    first.run("BEGIN");
    first.complete(&held);
    let call = second.background(|session| session.query_one(RERUN, &[]).map(|row| row.get::<_, i64>(0)));
    call.settle_down(&mut watcher);
    first.run("COMMIT");
    // It is refused by what it saw before it waited, or takes the end of b back as well.
    match call.join().1 {
        Ok(count) => assert_eq!(count, 2),
        Err(error) => {
            assert_eq!(sqlstate(&error), "TQ005");
            assert_eq!(rerun(&mut watcher, &["a"]), 2);
        }
    }
    assert_eq!(states(&mut watcher, ["a", "b", "c"]), ["ready", "blocked", "blocked"]);
    for action in ["z", "a", "b"] {
        assert_eq!(watcher.state("c"), "blocked");
        watcher.perform(action, "completed");
    }
    assert_eq!(watcher.state("c"), "ready");
}

#[test]
fn the_end_of_another_dependency_beside_it_is_counted_once() {
    for rerun_first in [true, false] {
        for downstream in [true, false] {
            let (_db, [mut first, second, mut watcher]) = Db::connected();
            chain(&mut watcher);
            watcher.perform("b", "completed");
            let z = watcher.own_one("z");
            let call = format!("SELECT taskq.rerun_tasks('{{b}}', {downstream})");
            first.run("BEGIN");
            let waiting = if rerun_first {
                first.run(&call);
                second.background(move |session| session.complete(&z))
            } else {
                first.complete(&z);
                second.background(move |session| session.run(&call))
            };
            waiting.settle_down(&mut watcher);
            first.run("COMMIT");
            waiting.join();
            let case = format!("rerun first: {rerun_first}, downstream: {downstream}");
            let expected = if downstream { "blocked" } else { "ready" };
            assert_eq!(watcher.state("c"), expected, "{case}");
            watcher.perform("b", "completed");
            assert_eq!(watcher.state("c"), "ready", "{case}");
        }
    }
}

#[test]
fn of_two_reruns_at_once_the_second_finds_nothing_to_do() {
    let (_db, [mut first, second, mut watcher]) = Db::connected();
    chain(&mut watcher);
    first.run("BEGIN");
    first.run(RERUN);
    let call = second.background(|session| session.one::<i64>(RERUN));
    call.settle_down(&mut watcher);
    first.run("COMMIT");
    assert_eq!(call.join().1, 0);
}

#[test]
fn reruns_and_rewinds_beside_workers_end_in_a_sound_graph() {
    let (db, [mut session]) = Db::connected();
    let tasks: Vec<_> = (0..60)
        .map(|i: usize| {
            let after: Vec<String> =
                [3, 7, 20].iter().filter_map(|step| i.checked_sub(*step)).map(|n| n.to_string()).collect();
            json!({"id": i.to_string(), "action": "x", "spontaneous": i % 7 == 6, "depends_on": after})
        })
        .collect();
    session.insert(json!(tasks)).unwrap();
    let over = "SELECT count(*) FROM taskq.tasks WHERE id = 'over'";
    let workers: Vec<_> = (0..4)
        .map(|_| {
            db.connect().background(move |session| {
                while session.one::<i64>(over) == 0 {
                    for grant in session.own("w", 3, &["x"]).unwrap() {
                        for step in ["one", "two"] {
                            save(session, &grant, step, None).expect("the task is held");
                        }
                        session.give(&grant.task_id, grant.token, "completed").expect("no deadlock");
                    }
                }
            })
        })
        .collect();
    let rerunners: Vec<_> = (0..2)
        .map(|n: usize| {
            db.connect().background(move |session| {
                for turn in 0..60 {
                    let id = (turn * 7 + n * 11) % 60;
                    let call = match (turn + n) % 3 {
                        0 => format!("SELECT taskq.rerun_tasks('{{{id}}}')"),
                        1 => format!("SELECT taskq.rerun_tasks('{{{id}}}', false)"),
                        _ => format!("SELECT taskq.rewind_task('{id}', 'two')"),
                    };
                    if let Err(error) = session.query(&call, &[]) {
                        assert!(["TQ005", "TQ007"].contains(&sqlstate(&error)), "{call}: {error:?}");
                    }
                }
            })
        })
        .collect();
    rerunners.into_iter().for_each(|rerunner| drop(rerunner.join()));
    assert!(session.broken().is_empty(), "{:?}", session.broken());
    taskq_tests::until("all has completed", || {
        let open: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'");
        (open == 0).then_some(())
    });
    session.insert(json!([{"id": "over", "action": "y"}])).unwrap();
    workers.into_iter().for_each(|worker| drop(worker.join()));
}

/// Both take the dependencies of x, which has settled: the one changes them, the other removes them. On code that changes them in
/// another order than that in which they lie, each has one that the other wants.
#[test]
fn it_and_a_call_that_removes_a_settled_dependency_do_not_wait_for_each_other() {
    for removes in [
        "SELECT taskq.delete_tasks('{x}')",
        "SELECT count(*) FROM taskq.replace_tasks('[{\"id\": \"x\", \"action\": \"x\"}]')",
    ] {
        let (_db, [mut holder, rerun, remove, mut watcher]) = Db::connected();
        let task = |id: &str| json!({"id": id, "action": "r", "spontaneous": true, "num_required": 1, "depends_on": ["y"]});
        watcher
            .insert(json!([{"id": "y", "action": "y"}, {"id": "x", "action": "x"}, task("a"), task("b"), task("c")]))
            .unwrap();
        // They lie in the opposite order of the tasks.
        for id in ["c", "b", "a"] {
            watcher.depend_on("x", id).unwrap();
        }
        watcher.perform("y", "completed");
        watcher.perform("x", "completed");
        holder.run(
            "BEGIN; SELECT FROM taskq.dependency d JOIN taskq.task x ON x.task_no = d.after_no JOIN taskq.task b ON b.task_no = d.run_no \
             WHERE x.id = 'x' AND b.id = 'b' FOR UPDATE OF d",
        );
        let rerun = rerun.background(|session| {
            session.query_one("SELECT taskq.rerun_tasks('{a, b, c}')", &[]).map(|row| row.get::<_, i64>(0))
        });
        rerun.settle_down(&mut watcher);
        let remove =
            remove.background(move |session| session.query_one(removes, &[]).map(|row| row.get::<_, i64>(0)));
        remove.settle_down(&mut watcher);
        holder.run("COMMIT");
        assert_eq!((rerun.join().1.unwrap(), remove.join().1.unwrap()), (3, 1), "{removes}");
    }
}
