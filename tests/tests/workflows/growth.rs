//! Graphs that their own tasks change while they run: an actor inserts tasks and puts them before blocked ones, under its
//! own task, with `insert_tasks` and `add_dependencies` instead of `children`. The barrier it holds shut is its own task.

use serde_json::json;
use taskq_tests::{Db, refused};

use super::{states, work_off};

#[test]
fn a_task_in_progress_may_put_new_tasks_before_what_it_blocks() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "plan", "action": "plan"}, {"id": "finish", "action": "finish", "depends_on": ["plan"]},
               {"id": "report", "action": "report", "depends_on": [{"id": "finish", "condition": "settled"}]}]),
    );
    let plan = session.own_one("plan");
    // In two calls, each of its own transaction; the plan itself keeps `finish` blocked meanwhile.
    session
        .insert(
            json!([{"id": "part 1", "action": "part", "depends_on": ["plan"], "to_signal_after": ["finish"]},
                       {"id": "part 2", "action": "part", "to_signal_after": ["finish"]}]),
        )
        .unwrap();
    session.insert(json!([{"id": "part 3", "action": "part"}])).unwrap();
    assert_eq!(
        session
            .depend(json!([{"after": "part 3", "run": "finish", "condition": "settled"},
                                     {"after": "part 2", "run": "part 3"}]))
            .unwrap(),
        2
    );
    assert_eq!(states(&mut session, ["part 1", "part 2", "part 3"]), ["blocked", "ready", "blocked"]);
    session.complete(&plan);
    assert_eq!(session.task("finish").unwrap().total_dependencies, 4);
    let waves = work_off(&mut session, &["part", "finish", "report"]);
    assert_eq!(waves, [vec!["part 1", "part 2"], vec!["part 3"], vec!["finish"], vec!["report"]]);
}

#[test]
fn inserting_and_returning_in_one_transaction_leave_no_moment_in_between() {
    for rollback in [true, false] {
        let (_db, [mut session, mut other]) = Db::with_tasks(
            json!([{"id": "plan", "action": "plan"}, {"id": "finish", "action": "finish", "depends_on": ["plan"]}]),
        );
        let plan = session.own_one("plan");
        session.run("BEGIN");
        session.insert(json!([{"id": "part", "action": "part", "to_signal_after": ["finish"]}])).unwrap();
        session.complete(&plan);
        assert_eq!(states(&mut other, ["plan", "part", "finish"]), ["in-progress", "gone", "blocked"]);
        session.run(if rollback { "ROLLBACK" } else { "COMMIT" });
        if rollback {
            session.complete(&plan);
            assert_eq!(states(&mut other, ["part", "finish"]), ["gone", "ready"]);
        } else {
            assert_eq!(states(&mut other, ["part", "finish"]), ["ready", "blocked"]);
            other.perform("part", "completed");
            assert_eq!(other.state("finish"), "ready");
        }
    }
}

#[test]
fn returning_first_and_inserting_then_is_too_late_for_what_is_free() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "plan", "action": "plan"}, {"id": "barrier", "action": "b", "spontaneous": true, "depends_on": ["plan"]},
               {"id": "finish", "action": "finish", "depends_on": ["plan"]}]),
    );
    session.perform("plan", "completed");
    let late = |target: &str| {
        format!(
            "SELECT * FROM taskq.insert_tasks('[{{\"id\": \"part\", \"action\": \"part\", \"to_signal_after\": [\"{target}\"]}}]')"
        )
    };
    refused(&mut session, "TQ005", "barrier", &late("barrier"), &[]);
    // What is only ready, and not owned, can still be made to wait.
    session.run(&late("finish"));
    assert_eq!(session.state("finish"), "blocked");
    session.perform("part", "completed");
    session.own_one("finish");
    refused(
        &mut session,
        "TQ005",
        "finish",
        "SELECT taskq.add_dependencies('[{\"after\": \"plan\", \"run\": \"finish\"}]'::jsonb)",
        &[],
    );
}

#[test]
fn a_task_cannot_put_another_before_itself() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "plan", "action": "plan"}, {"id": "sub", "action": "sub"}]));
    let plan = session.own_one("plan");
    let query = "SELECT taskq.add_dependencies('[{\"after\": \"sub\", \"run\": \"plan\"}]'::jsonb)";
    refused(&mut session, "TQ005", "plan", query, &[]);
    // It gives itself back, and waits then.
    session.run("BEGIN");
    assert_eq!(session.give("plan", plan.token, "pending").unwrap(), "pending");
    assert_eq!(session.depend_on("sub", "plan").unwrap(), 1);
    session.run("COMMIT");
    assert_eq!(work_off(&mut session, &["plan", "sub"]), [vec!["sub"], vec!["plan"]]);
    assert_eq!(session.task("plan").unwrap().num_tries, 2);
}

#[test]
fn a_graph_that_grows_at_its_end_stays_sound_while_many_work() {
    // Every task of a generation inserts one of the next, before the common end, and then returns: two calls, two commits.
    let (db, [mut session]) = Db::connected();
    let mut tasks = vec![json!({"id": "end", "action": "end"})];
    tasks.extend(
        (0..10).map(|i| json!({"id": format!("0 {i}"), "action": "step", "to_signal_after": ["end"]})),
    );
    session.insert(json!(tasks)).unwrap();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            db.connect().background(|session| {
                while let [grant, ..] = session.own("w", 1, &["step"]).unwrap().as_slice() {
                    let (generation, i) = grant.task_id.split_once(' ').unwrap();
                    let next: u32 = generation.parse::<u32>().unwrap() + 1;
                    if next < 12 {
                        let task = json!([{"id": format!("{next} {i}"), "action": "step", "to_signal_after": ["end"]}]);
                        session.insert(task).unwrap();
                    }
                    session.complete(grant);
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| drop(worker.join()));
    super::work_off(&mut session, &["step"]);
    let end = session.task("end").unwrap();
    assert_eq!((end.state.as_str(), end.num_signals, end.total_dependencies), ("ready", 120, 120));
}
