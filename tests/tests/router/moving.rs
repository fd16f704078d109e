//! A shard is added, and a group is moved: where tasks are afterwards, and after a move that has stopped at any of its steps.

use serde_json::json;
use taskq_tests::{Session, refused, sqlstate};

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

/// The router dies at each of the steps: a trigger stands for the death. Meanwhile nothing can be owned twice, and the same call
/// goes on to the end.
#[test]
fn a_move_that_stops_at_any_step_goes_on() {
    let Some(servers) = Servers::get() else { return };
    for step in ["marked", "copied", "switched", "deleted"] {
        let rig = Rig::new(&servers, 3);
        let mut router = rig.router();
        let (from, to) = ends(&mut router);
        fill(&mut router);
        let before = content(&mut rig.shard(from));
        let stop = match step {
            // Before the copy is written: the new shard does not answer.
            "marked" => "true",
            // Behind it, before the table says so.
            "copied" => "NEW.left_on IS NOT NULL",
            // The old one does not answer when it is to delete.
            "switched" => "true",
            // Behind it, before the table says so.
            _ => "OLD.left_on IS NOT NULL AND NEW.left_on IS NULL",
        };
        let call = format!("CALL taskq_router.move_group('g', {to})");
        match step {
            "marked" | "switched" => {
                // The statement that the step sends is no function of the shard's for a while.
                let (shard, function) = if step == "marked" {
                    (to, "taskq.pause_group(text)")
                } else {
                    (
                        from,
                        "taskq.delete_tasks(text[],text[],text[],text,text[],timestamptz,timestamptz,integer)",
                    )
                };
                let name = function.split(['.', '(']).nth(1).unwrap();
                let mut shard = rig.shard(shard);
                shard.run(&format!("ALTER FUNCTION {function} RENAME TO gone"));
                assert_eq!(sqlstate(&router.batch_execute(&call).unwrap_err()), "42883");
                shard.run(&format!("ALTER FUNCTION {} RENAME TO {name}", function.replace(name, "gone")));
            }
            _ => {
                router.run(&format!(
                    "CREATE FUNCTION public.die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'it dies'; END $$; \
                     CREATE TRIGGER die BEFORE UPDATE ON taskq_router.moved FOR EACH ROW WHEN ({stop}) EXECUTE FUNCTION public.die()"
                ));
                assert_eq!(sqlstate(&router.batch_execute(&call).unwrap_err()), "P0001");
                router.run("DROP TRIGGER die ON taskq_router.moved");
            }
        }
        // Whichever shard has it now: nobody gets any of it, and who waits or looks sees it once.
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
    // Whoever slept as it came is woken by it.
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
