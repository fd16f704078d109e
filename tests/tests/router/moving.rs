//! A shard is added, and a group is moved: where tasks are afterwards, and after a move that has stopped at any of its steps.

use serde_json::json;
use taskq_tests::{Session, refused, sqlstate, until};

use super::{Rig, Servers};

/// Everything of a group that a move keeps.
const CONTENT: &str = "SELECT jsonb_build_array(id, action, body, priority, status_code, status, \
     CASE status_code WHEN 'completed' THEN result END, metadata, max_tries, \
     total_dependencies, num_failures)::text FROM taskq.tasks WHERE group_id = 'g' ORDER BY id COLLATE \"C\"";
const EDGES: &str = "SELECT after || ' ' || run || ' ' || condition FROM taskq.dependencies ORDER BY 1";

fn content(session: &mut Session) -> (Vec<String>, Vec<String>) {
    (session.all(CONTENT), session.all(EDGES))
}

/// A group `g` with tasks in every state but in progress, on whichever shard it belongs to, and paused.
fn fill(router: &mut Session) {
    router
        .insert(json!([
            {"id": "done", "action": "a", "group_id": "g", "body": {"n": [1, "two"]}},
            {"id": "failed", "action": "b", "group_id": "g", "metadata": {"trace": null}},
            {"id": "skipped", "action": "c", "group_id": "g", "depends_on": ["failed"]},
            {"id": "after", "action": "c", "group_id": "g", "priority": 5,
             "depends_on": ["done", {"id": "failed", "condition": "settled"}]},
            {"id": "blocked", "action": "c", "group_id": "g", "depends_on": ["done", "after"], "max_tries": 7},
            {"id": "handler", "action": "c", "group_id": "g", "depends_on": [{"id": "after", "condition": "aborted"}]},
            {"id": "join", "action": "s", "group_id": "g", "spontaneous": true, "depends_on": ["done"]},
            {"id": "late", "action": "c", "group_id": "g", "not_before": "2099-01-01"},
        ]))
        .unwrap();
    let grant = router.own_one("a");
    router
        .give_with(&grant.task_id, grant.token, "completed", "result => '{\"bytes\": 7}', status => 'fine'")
        .unwrap();
    let grant = router.own_one("b");
    router.give_with(&grant.task_id, grant.token, "aborted", "status => 'no disk', result => '[1]'").unwrap();
    assert!(router.one::<i64>("SELECT taskq.pause_group('g')") > 0);
}

/// Works the moved group off, and says in which order.
fn finish(router: &mut Session) -> Vec<String> {
    router.run("SELECT taskq.resume_group('g')");
    let mut order = Vec::new();
    while let Some(grant) = router.own("w", 1, &["a", "b", "c"]).unwrap().pop() {
        router.complete(&grant);
        order.push(grant.task_id);
    }
    order
}

/// The shard of `g`, and another one.
fn ends(router: &mut Session) -> (usize, usize) {
    let from = router.one::<i32>("SELECT taskq_router.shard_for('g')");
    (usize::try_from(from).unwrap(), usize::try_from((from + 1) % 3).unwrap())
}

#[test]
fn a_group_is_moved_with_tasks_edges_and_results() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    let (from, to) = ends(&mut router);
    fill(&mut router);
    router.run("SELECT taskq.set_group('g', max_concurrency => 3)");
    router
        .query(
            "SELECT taskq.insert_task('other', 'o', group_id => $1)",
            &[&rig.groups_of(from).find(|g| g != "g").unwrap()],
        )
        .unwrap();
    let before = content(&mut rig.shard(from));
    assert_eq!(before.0.len(), 8);
    router.run(&format!("CALL taskq_router.move_group('g', {to})"));
    assert_eq!(content(&mut rig.shard(to)), before);
    assert_eq!(rig.shard(from).all::<String>("SELECT id FROM taskq.tasks"), ["other"]);
    assert_eq!(ends(&mut router).0, to);
    assert_eq!(rig.shard(to).one::<i32>("SELECT max_concurrency FROM taskq.groups WHERE group_id = 'g'"), 3);
    // By its id, by its group, and by its end.
    let after = router.wait("done", "0").unwrap().unwrap();
    assert_eq!((after.status.as_deref(), after.result), (Some("fine"), Some(json!({"bytes": 7}))));
    assert!(router.own("w", 9, &["c"]).unwrap().is_empty(), "it is paused as it was");
    router.insert(json!([{"id": "new", "action": "c", "group_id": "g", "depends_on": ["blocked"]}])).unwrap();
    assert_eq!(finish(&mut router), ["after", "blocked", "new"]);
    assert_eq!(router.state("handler"), "aborted");
    // And back.
    router.run("SELECT taskq.pause_group('g')");
    router.run(&format!("CALL taskq_router.move_group('g', {from})"));
    assert_eq!(rig.shard(to).tasks().len(), 0);
    assert_eq!(rig.shard(from).tasks().len(), 10);
}

#[test]
fn what_cannot_be_moved_stays_as_it_is() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    let (from, to) = ends(&mut router);
    let call = format!("CALL taskq_router.move_group('g', {to})");
    let unmoved = |router: &mut Session, sqlstate: &str, naming: &str| {
        let before = content(&mut rig.shard(from));
        refused(router, sqlstate, naming, &call, &[]);
        assert_eq!(content(&mut rig.shard(from)), before);
        assert_eq!(rig.shard(to).tasks().len(), 0);
    };
    unmoved(&mut router, "TQ007", "\"g\"");
    fill(&mut router);
    router.run("SELECT taskq.resume_group('g')");
    unmoved(&mut router, "TQ005", "\"g\"");
    let grant = router.own_one("c");
    router.run("SELECT taskq.pause_group('g')");
    unmoved(&mut router, "TQ005", "\"g\"");
    router.complete(&grant);
    // A dependency that leads out.
    rig.shard(from).insert(json!([{"id": "stranger", "action": "c", "depends_on": ["blocked"]}])).unwrap();
    unmoved(&mut router, "TQ005", "\"g\"");
    rig.shard(from).delete(&["stranger"]).unwrap();
    // Tasks of it that are where they should not be.
    rig.shard(to).insert(json!([{"id": "odd", "action": "c", "group_id": "g"}])).unwrap();
    refused(&mut router, "TQ005", "\"g\"", &call, &[]);
    rig.shard(to).delete(&["odd"]).unwrap();
    router.run(&call);
    assert_eq!(rig.shard(from).tasks().len(), 0);
}

/// Lets a move of `g` die behind this step: a trigger, or a function that is not there, stands for the death.
fn stop_behind(step: &str, rig: &Rig, from: usize, to: usize) {
    let mut router = rig.router();
    let call = format!("CALL taskq_router.move_group('g', {to})");
    // The statement that the step behind sends is no function of the shard's for a while.
    let without = |router: &mut Session, shard: usize, function: &str| {
        let name = function.split(['.', '(']).nth(1).unwrap();
        let mut shard = rig.shard(shard);
        shard.run(&format!("ALTER FUNCTION {function} RENAME TO gone"));
        assert_eq!(sqlstate(&router.batch_execute(&call).unwrap_err()), "42883");
        shard.run(&format!("ALTER FUNCTION {} RENAME TO {name}", function.replace(name, "gone")));
    };
    let dying = |router: &mut Session, when: &str| {
        router.run(&format!(
            "CREATE FUNCTION public.die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'it dies'; END $$; \
             CREATE TRIGGER die BEFORE UPDATE ON taskq_router.moved FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION public.die()"
        ));
        assert_eq!(sqlstate(&router.batch_execute(&call).unwrap_err()), "P0001");
        router.run("DROP TRIGGER die ON taskq_router.moved; DROP FUNCTION public.die()");
    };
    match step {
        "marked" => without(&mut router, to, "taskq.pause_group(text)"),
        "copied" => dying(&mut router, "NEW.left_on IS NOT NULL"),
        "switched" => without(
            &mut router,
            from,
            "taskq.delete_tasks(text[],text[],text[],text,text[],timestamptz,timestamptz,integer)",
        ),
        "deleted" => dying(&mut router, "OLD.left_on IS NOT NULL AND NEW.left_on IS NULL"),
        _ => unreachable!(),
    }
}

/// The router dies at each of the steps. Meanwhile nothing can be owned twice, and the same call goes on to the end.
#[test]
fn a_move_that_stops_at_any_step_goes_on() {
    let Some(servers) = Servers::get() else { return };
    for step in ["marked", "copied", "switched", "deleted"] {
        let rig = Rig::new(&servers, 3);
        let mut router = rig.router();
        let (from, to) = ends(&mut router);
        fill(&mut router);
        let before = content(&mut rig.shard(from));
        let call = format!("CALL taskq_router.move_group('g', {to})");
        stop_behind(step, &rig, from, to);
        // Whichever shard has it now: no worker gets any of it, and a call that waits or looks sees it once.
        let mut client = rig.router();
        assert!(client.own("w", 9, &["a", "b", "c"]).unwrap().is_empty(), "{step}");
        assert_eq!(client.wait("done", "0").unwrap().unwrap().status_code, "completed", "{step}");
        let counted: i64 = client.one("SELECT (blocked + scheduled + ready + completed + aborted)::bigint FROM taskq.groups WHERE group_id = 'g'");
        assert_eq!(counted, 8, "{step}");
        let home = ends(&mut client).0;
        assert_eq!(home, if ["marked", "copied"].contains(&step) { from } else { to }, "{step}");
        let insertion = client.insert(json!([{"id": "meanwhile", "action": "c", "group_id": "g"}]));
        if home == from {
            // Between the mark and the switch nothing is written to it.
            assert_eq!(sqlstate(&insertion.unwrap_err()), "TQ005", "{step}");
            assert_eq!(sqlstate(&client.cancel(&["blocked"]).unwrap_err()), "TQ005", "{step}");
            assert_eq!(content(&mut rig.shard(from)), before, "{step}");
        } else {
            insertion.unwrap();
            assert_eq!(content(&mut rig.shard(to)).0.len(), 9, "{step}");
        }
        // Nor may it go elsewhere now.
        let third = 3 - from - to;
        let error = client.batch_execute(&format!("CALL taskq_router.move_group('g', {third})")).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ005", "{step}");

        client.run(&call);
        client.run(&call);
        assert_eq!(rig.shard(from).tasks().len(), 0, "{step}");
        client.delete(&["meanwhile"]).unwrap();
        assert_eq!(content(&mut rig.shard(to)), before, "{step}");
        assert_eq!(finish(&mut client), ["after", "blocked"], "{step}");
    }
}

/// Taken back at each of the steps: before the switch the group is where it was and as it was, and nothing of it elsewhere; behind
/// it that is refused, and the move can be finished. A second call does nothing.
#[test]
fn a_move_that_stops_at_any_step_is_taken_back_or_cannot_be() {
    let Some(servers) = Servers::get() else { return };
    let undo = "CALL taskq_router.undo_move('g')";
    for step in ["none", "marked", "copied", "switched", "deleted"] {
        let rig = Rig::new(&servers, 3);
        let mut router = rig.router();
        let (from, to) = ends(&mut router);
        fill(&mut router);
        let before = content(&mut rig.shard(from));
        if step != "none" {
            stop_behind(step, &rig, from, to);
        }
        if ["switched", "deleted"].contains(&step) {
            let said = refused(&mut router, "TQ005", "\"g\"", undo, &[]);
            assert!(said.hint().unwrap().contains("move_group"), "{said:?}");
            assert_eq!(content(&mut rig.shard(to)), before, "{step}");
            router.run(&format!("CALL taskq_router.move_group('g', {to})"));
            router.run(undo);
            assert_eq!(content(&mut rig.shard(to)), before, "{step}: it is done, and stays done");
            assert_eq!(rig.shard(from).tasks().len(), 0, "{step}");
        } else {
            for _ in 0..2 {
                router.run(undo);
                assert_eq!(ends(&mut router).0, from, "{step}");
                assert_eq!(content(&mut rig.shard(from)), before, "{step}");
                assert_eq!(rig.shard(to).tasks().len(), 0, "{step}");
                let left = "SELECT count(*) FROM taskq_router.moved WHERE going_to IS NOT NULL OR left_on IS NOT NULL OR undone";
                assert_eq!(router.one::<i64>(left), 0, "{step}");
            }
            let mut there = rig.shard(to);
            there.run("SELECT taskq.insert_task('own', 'y', group_id => 'g')");
            assert_eq!(there.own_one("y").task_id, "own", "{step}: the pause of the copy went with it");
            router.insert(json!([{"id": "new", "action": "c", "group_id": "g"}])).unwrap();
        }
        let order = finish(&mut router);
        let ours: Vec<&String> = order.iter().filter(|id| *id != "new").collect();
        assert_eq!(ours, ["after", "blocked"], "{step}");
    }
}

/// The new shard goes in the midst of a move and does not come back for long: the group is used again at once, and moved elsewhere
/// only when the copy is gone.
#[test]
fn a_move_is_taken_back_without_the_shard_that_it_went_to() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    let (from, to) = ends(&mut router);
    fill(&mut router);
    stop_behind("copied", &rig, from, to);
    assert_eq!(rig.shard(to).tasks().len(), 8);
    router.run(&format!("SELECT taskq_router.close_shard({to})"));
    let undo = "CALL taskq_router.undo_move('g')";
    router.run(undo);
    router.insert(json!([{"id": "new", "action": "c", "group_id": "g"}])).unwrap();
    let third = 3 - from - to;
    for shard in [to, third] {
        let call =
            format!("SELECT taskq_router.open_shard({to}); CALL taskq_router.move_group('g', {shard})");
        let error = router.batch_execute(&call).unwrap_err();
        assert!(["TQ005", "2D000"].contains(&sqlstate(&error)), "{error:?}");
    }
    router.run(undo);
    refused(&mut router, "TQ005", "\"g\"", &format!("CALL taskq_router.move_group('g', {third})"), &[]);
    assert_eq!(finish(&mut router).len(), 3);
    // Tasks of it that were given to the other shard directly are not the copy's.
    rig.shard(to).insert(json!([{"id": "stranger", "action": "c", "group_id": "g"}])).unwrap();
    router.run(&format!("SELECT taskq_router.open_shard({to})"));
    router.run(undo);
    assert_eq!(rig.shard(to).all::<String>("SELECT id FROM taskq.tasks"), ["stranger"]);
    rig.shard(to).delete(&["stranger"]).unwrap();
    router.run("SELECT taskq.pause_group('g')");
    router.run(&format!("CALL taskq_router.move_group('g', {third})"));
    assert_eq!(rig.shard(third).tasks().len(), 9);
}

/// One session at a time; and a copy that is being written by a session that died is waited for.
#[test]
fn a_move_is_not_taken_back_while_a_session_makes_it() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    let (from, to) = ends(&mut router);
    fill(&mut router);
    let before = content(&mut rig.shard(from));
    // The session that writes the copy has to wait.
    let mut in_the_way = rig.shard(to);
    in_the_way.batch_execute("BEGIN; LOCK TABLE taskq.task IN SHARE MODE").unwrap();
    let mover = rig.router();
    let pid = mover.pid();
    let call = format!("CALL taskq_router.move_group('g', {to})");
    let moving = mover.background(move |session| session.batch_execute(&call).is_err());
    until("it writes the copy", || {
        rig.shard(to)
            .one::<bool>("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'taskq.task'::regclass)")
            .then_some(())
    });
    let undo = "CALL taskq_router.undo_move('g')";
    for call in [undo, &format!("CALL taskq_router.move_group('g', {to})")] {
        let error = router.batch_execute(call).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ005", "{error:?}");
        assert!(error.as_db_error().unwrap().hint().unwrap().contains("pg_terminate_backend"));
    }
    // It dies; what it has sent is still at work on the shard.
    router.query("SELECT pg_terminate_backend($1)", &[&pid]).unwrap();
    assert!(moving.join().1);
    let undoing = rig.router().background(move |session| {
        until("the dead one's lock is gone", || session.batch_execute(undo).ok());
    });
    // The group is not the copy's prisoner.
    until("the mark is off", || router.insert(json!([{"id": "new", "action": "c", "group_id": "g"}])).ok());
    in_the_way.batch_execute("COMMIT").unwrap();
    undoing.join();
    assert_eq!(rig.shard(to).tasks().len(), 0);
    router.delete(&["new"]).unwrap();
    assert_eq!(content(&mut rig.shard(from)), before);
}

/// A transaction that has written to the group and does not end, or is prepared and forgotten, does not hold a move for ever.
#[test]
fn a_move_does_not_wait_for_ever_for_an_open_writer() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    let (from, to) = ends(&mut router);
    fill(&mut router);
    let mut writer = rig.router();
    let write = "BEGIN; SELECT taskq.insert_task('new', 'c', group_id => 'g')";
    let call = format!("CALL taskq_router.move_group('g', {to})");
    router.run("SET taskq_router.writers_timeout = '200 ms'");
    for end in ["COMMIT", "PREPARE TRANSACTION 'forgotten'"] {
        writer.batch_execute(write).unwrap();
        let session = if end == "COMMIT" { None } else { Some(end) };
        if let Some(prepare) = session {
            writer.batch_execute(prepare).unwrap();
        }
        let error = router.batch_execute(&call).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ005", "{error:?}");
        assert!(error.as_db_error().unwrap().hint().unwrap().contains("pg_prepared_xacts"), "{error:?}");
        assert_eq!(router.one::<String>("SHOW lock_timeout"), "0");
        writer.batch_execute(if session.is_some() { "COMMIT PREPARED 'forgotten'" } else { end }).unwrap();
        router.run("CALL taskq_router.undo_move('g')");
        assert_eq!(rig.shard(from).state("new"), "ready");
        router.delete(&["new"]).unwrap();
    }
    router.run(&call);
    assert_eq!(rig.shard(to).tasks().len(), 8);
}

/// With a shard more: groups that are there stay, also when they get more tasks; new ones go to it as well.
#[test]
fn a_shard_is_added() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 2);
    let mut router = rig.router();
    for n in 0..30 {
        router
            .insert(json!([{"id": format!("t{n}"), "action": "x", "group_id": format!("old{n}")}]))
            .unwrap();
        router.insert(json!([{"id": format!("alone{n}"), "action": "x"}])).unwrap();
    }
    let sleeper = rig.router().background(|session| {
        session.own_with("w", 1, &["new"], "wait => '30 s'").unwrap().remove(0).task_id
    });
    router.query("SELECT taskq_router.add_shards($1)", &[&rig.connect_string(rig.server(2))]).unwrap();
    for n in 0..30 {
        let again = json!([{"id": format!("u{n}"), "action": "x", "group_id": format!("old{n}"), "depends_on": [format!("t{n}")]}]);
        router.insert(again).unwrap();
        // Also a task without a group: it is there already.
        let error = router.insert(json!([{"id": format!("alone{n}"), "action": "x"}])).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ002");
        router
            .insert(json!([{"id": format!("v{n}"), "action": "x", "group_id": format!("new{n}")}]))
            .unwrap();
    }
    let third = rig.shard(2).all::<String>("SELECT id FROM taskq.tasks");
    assert!(third.iter().all(|id| id.starts_with('v')), "{third:?}");
    assert!((2..25).contains(&third.len()), "{third:?}");
    // A call that slept as it came is woken by it.
    rig.shard(2).run("SELECT taskq.insert_task('first', 'new')");
    assert_eq!(sleeper.join().1, "first");
    // The older version is kept while a group needs it.
    assert_eq!(router.one::<i64>("SELECT taskq_router.forget_versions()"), 2);
    loop {
        let grants = router.own("w", 100, &["x"]).unwrap();
        if grants.is_empty() {
            break;
        }
        grants.iter().for_each(|grant| router.complete(grant));
    }
    assert_eq!(router.one::<i64>("SELECT taskq.delete_tasks(actions => '{x}')"), 120);
    assert_eq!(router.one::<i64>("SELECT taskq_router.forget_versions()"), 1);
}
