//! The calls: a client does not know the difference, and a worker that only knows the router gets what any shard has.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use postgres::types::ToSql;
use serde_json::{Value, json};
use taskq_tests::Session;
use uuid::Uuid;

use super::{Rig, Servers};

type Refused = (String, String, Option<String>, Option<String>);

/// SQLSTATE, message, DETAIL and HINT.
fn refusal(session: &mut Session, query: &str, params: &[&(dyn ToSql + Sync)]) -> Refused {
    let error = session.query(query, params).map(|rows| rows.len()).expect_err(query);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{query}: {error:?}"));
    let [detail, hint] = [error.detail(), error.hint()].map(|text| text.map(str::to_owned));
    (error.code().code().to_owned(), error.message().to_owned(), detail, hint)
}

/// Each refusal of the shard, word for word; through PL/Proxy alone it begins with the name of a function of ours.
#[test]
fn refusals_reach_the_client_as_the_shard_put_them() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let group = rig.group_of(1);
    let (mut router, mut shard) = (rig.router(), rig.shard(1));
    router
        .insert(json!([{"id": "a", "action": "x", "group_id": group}, {"id": "b", "action": "x", "group_id": group}]))
        .unwrap();
    let grant = router.own_one("x");
    assert_eq!(grant.task_id, "a");
    let mut wrong = grant.token.as_u128();
    wrong ^= 1;
    let [wrong, unknown] = [Uuid::from_u128(wrong), grant.token];
    let again = json!([{"id": "b", "action": "x", "group_id": group}]);
    let circle = json!([{"id": "c", "action": "x", "group_id": group, "depends_on": ["d"]},
                        {"id": "d", "action": "x", "group_id": group, "depends_on": ["c"]}]);
    let odd = json!([{"id": "e", "action": "x", "group_id": group, "grup": 1}]);
    let cases: Vec<(&str, &str, Vec<&(dyn ToSql + Sync)>)> = vec![
        ("TQ001", "SELECT taskq.return_task('a', $1)", vec![&wrong]),
        ("TQ001", "SELECT taskq.report_status('a', $1)", vec![&wrong]),
        ("TQ002", "SELECT * FROM taskq.insert_tasks($1)", vec![&again]),
        ("TQ003", "SELECT taskq.return_task('absent', $1)", vec![&unknown]),
        ("TQ004", "SELECT * FROM taskq.insert_tasks($1)", vec![&circle]),
        ("TQ005", "SELECT taskq.update_tasks('{a}', priority => 1)", vec![]),
        ("TQ005", "SELECT taskq.delete_tasks('{a}')", vec![]),
        ("TQ006", "SELECT * FROM taskq.insert_tasks($1)", vec![&odd]),
        ("TQ003", "SELECT * FROM taskq.wait_for_task('absent', '0')", vec![]),
        ("22023", "SELECT * FROM taskq.own_tasks('w', -1, '{x}')", vec![]),
        ("22023", "SELECT * FROM taskq.own_tasks('w', 1, '{x}', wait => '-1 s')", vec![]),
        ("22004", "SELECT * FROM taskq.own_tasks('w', NULL, '{x}')", vec![]),
        ("22023", "SELECT * FROM taskq.return_tasks('{a,b}', ARRAY[$1::uuid])", vec![&wrong]),
        ("TQ007", "SELECT taskq.pause_group('no-such-group')", vec![]),
    ];
    for (sqlstate, query, params) in cases {
        let told = refusal(&mut router, query, &params);
        assert_eq!(told, refusal(&mut shard, query, &params), "{query}");
        assert_eq!(told.0, sqlstate, "{query}");
        assert!(told.2.is_some() && told.3.is_some(), "{told:?}");
    }
    // And the connection is as good as before.
    router.complete(&grant);
}

/// What the router offers has the arguments, their defaults and the columns of the extension.
#[test]
fn names_and_types_are_those_of_the_extension() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 1);
    let query = "SELECT p.proname || '(' || pg_get_function_arguments(p.oid) || ')' || COALESCE(' -> ' || pg_get_function_result(p.oid), '') \
                   FROM pg_proc AS p WHERE p.pronamespace = 'taskq'::regnamespace AND p.proname !~ '^_' ORDER BY 1";
    // A default of text shows its type or not, as the one who wrote it has.
    let normal = |line: String| {
        line.replace("::text", "").replace("'0'::", "").replace(" '00:00:10'::interval", " '10 seconds'")
    };
    let there: BTreeSet<String> = rig.shard(0).all::<String>(query).into_iter().map(normal).collect();
    let here: BTreeSet<String> = rig.router().all::<String>(query).into_iter().map(normal).collect();
    let other: Vec<&String> = here.difference(&there).collect();
    // Two have one column more, the shard.
    let more = ["check(", "health("];
    assert!(
        other
            .iter()
            .all(|line| more.iter().any(|name| line.starts_with(name)) && line.contains("shard integer")),
        "{other:#?} but {there:#?}"
    );
    let missing: BTreeSet<&str> = there
        .difference(&here)
        .map(|line| line.split('(').next().unwrap())
        .filter(|name| {
            !["check", "health"].contains(name) && !name.starts_with("grant_") && !name.starts_with("revoke_")
        })
        .collect();
    let readme = include_str!("../../../examples/sharding/README.md");
    let said = readme.split("<!-- not offered -->").nth(1).expect("README.md names what is not offered");
    let said: BTreeSet<&str> = said.split('`').skip(1).step_by(2).collect();
    assert_eq!(missing, said, "what the router does not offer is what its README.md says");
}

/// A life of a task, each call through the router, on each shard.
#[test]
fn every_call_of_a_task_s_life_works_on_each_shard() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    for shard in 0..3 {
        let group = rig.group_of(shard);
        let id = |name: &str| format!("{name}-{shard}");
        router
            .insert(json!([{"id": id("a"), "action": "x", "group_id": group, "max_tries": 3},
                           {"id": id("b"), "action": "x", "group_id": group, "depends_on": [id("a")]},
                           {"id": id("c"), "action": "x", "group_id": group}]))
            .unwrap();
        assert_eq!(router.depend_on(&id("b"), &id("c")).unwrap(), 1);
        let grant = router.own_one("x");
        assert_eq!(grant.task_id, id("a"));
        assert_eq!(
            router.one::<i32>(&format!("SELECT taskq.shard_of('{}')", grant.token)),
            i32::try_from(shard).unwrap()
        );
        assert!(router.extend("w", &[(&grant.task_id, grant.token)], "1 hour").unwrap()[0].1);
        let report = "SELECT taskq.report_status($1, $2, 'half', 0.5, '{\"at\": 1}')";
        router.query(report, &[&grant.task_id, &grant.token]).unwrap();
        assert_eq!(router.give(&grant.task_id, grant.token, "pending").unwrap(), "pending");
        let grant = router.own_one("x");
        assert_eq!(grant.num_tries, 2);
        assert_eq!(router.wait(&id("a"), "0").unwrap(), None);
        let children = format!(
            "children => '[{{\"id\": \"{}\", \"action\": \"x\", \"group_id\": \"{group}\"}}]'",
            id("child")
        );
        assert_eq!(
            router.give_with(&grant.task_id, grant.token, "completed", &children).unwrap(),
            "completed"
        );
        assert_eq!(router.wait(&id("a"), "1 s").unwrap().unwrap().status_code, "completed");
        assert_eq!(router.perform("x", "completed"), id("child"));
        assert_eq!(router.perform("x", "aborted"), id("b"));
        assert_eq!(router.state(&id("c")), "aborted");
        assert!(
            router
                .one::<String>(&format!("SELECT string_agg(w, ' ') FROM taskq.why('{}') AS w", id("c")))
                .contains("aborted")
        );
        assert!(router.one::<String>(&format!("SELECT taskq.graph('{group}')")).contains(&id("child")));
        assert_eq!(router.one::<i64>(&format!("SELECT taskq.retry_tasks('{{{}}}')", id("b"))), 2);
        assert_eq!(router.perform("x", "completed"), id("b"));
        assert_eq!(router.one::<i64>(&format!("SELECT taskq.pause_group('{group}')")), 1);
        assert!(router.own("w", 9, &["x"]).unwrap().is_empty());
        assert_eq!(router.one::<i64>(&format!("SELECT taskq.resume_group('{group}')")), 1);
        assert_eq!(router.cancel(&[&id("c"), "absent"]).unwrap(), 1);
        let replaced = router
            .replace(json!([{"id": id("c"), "action": "x", "group_id": group, "body": {"n": 1}}]))
            .unwrap();
        assert_eq!(replaced, [id("c")]);
        assert_eq!(
            router.one::<i64>(&format!("SELECT taskq.update_tasks('{{{}}}', priority => 7)", id("c"))),
            1
        );
        assert_eq!(router.task(&id("c")).unwrap().priority, 7);
        assert_eq!(router.one::<String>(&format!("SELECT taskq.complete_task('{}')", id("c"))), "completed");
        assert_eq!(router.delete(&[&id("child"), &id("c")]).unwrap(), 2);
        assert_eq!(rig.shard(shard).tasks().len(), 2, "a and b");
        assert_eq!(
            router.one::<f64>(&format!("SELECT progress FROM taskq.groups WHERE group_id = '{group}'")),
            1.0
        );
    }
    assert_eq!(router.one::<i64>("SELECT count::bigint FROM taskq.count_tasks(states => '{completed}')"), 6);
    assert_eq!(router.one::<i64>("SELECT completed FROM taskq.stats"), 6);
    let metric = "SELECT value::bigint FROM taskq.metrics_rows() WHERE name = 'taskq_tasks' AND labels ->> 'state' = 'completed'";
    assert_eq!(router.one::<i64>(metric), 6);
    assert!(
        router
            .one::<String>("SELECT taskq.metrics()")
            .contains("taskq_tasks{action=\"x\",state=\"completed\"} 6\n")
    );
    assert_eq!(router.broken(), [""; 0]);
    assert_eq!(router.one::<i64>("SELECT count(*) FROM taskq.health()"), 0);
}

#[test]
fn settings_for_actions_go_to_all_and_count_on_each() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    router.run("SELECT taskq.set_action('x', max_concurrency => 2)");
    for shard in 0..3 {
        let group = rig.group_of(shard);
        router.query("SELECT taskq.insert_many('x', '{1,2,3,4,5}', group_id => $1)", &[&group]).unwrap();
        let limit =
            rig.shard(shard).one::<i32>("SELECT max_concurrency FROM taskq.actions WHERE action = 'x'");
        assert_eq!(limit, 2, "shard {shard}");
    }
    let grants = router.own("w", 100, &["x"]).unwrap();
    assert_eq!(grants.len(), 6, "the limit is each shard's");
    assert!(router.one::<bool>("SELECT taskq.pause_action('x')"));
    assert!(!router.one::<bool>("SELECT taskq.pause_action('x')"));
    for grant in &grants {
        router.complete(grant);
    }
    assert!(router.own("w", 100, &["x"]).unwrap().is_empty());
    assert!(router.one::<bool>("SELECT taskq.resume_action('x')"));
    assert_eq!(router.own("w", 100, &["x"]).unwrap().len(), 6);
}

/// Tokens of several shards in one call, mixed, with one that is not good: rows in the order given.
#[test]
fn returns_and_extensions_of_several_shards_come_in_order() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    for shard in 0..3 {
        let tasks: Vec<Value> = (0..4)
            .map(|n| json!({"id": format!("{shard}-{n}"), "action": "x", "group_id": rig.group_of(shard)}))
            .collect();
        router.insert(json!(tasks)).unwrap();
    }
    let mut grants = router.own("w", 12, &["x"]).unwrap();
    assert_eq!(grants.len(), 12);
    grants.sort_by_key(|grant| grant.task_id.chars().rev().collect::<String>());
    let ids: Vec<&str> = grants.iter().map(|grant| grant.task_id.as_str()).collect();
    let mut tokens: Vec<Uuid> = grants.iter().map(|grant| grant.token).collect();
    tokens[5] = Uuid::from_u128(tokens[5].as_u128() ^ 1);
    let held: Vec<(&str, Uuid)> = ids.iter().copied().zip(tokens.iter().copied()).collect();
    let owned: Vec<(String, bool)> = router.extend("w", &held, "1 hour").unwrap();
    let expected: Vec<(String, bool)> =
        ids.iter().enumerate().map(|(n, id)| ((*id).to_owned(), n != 5)).collect();
    assert_eq!(owned, expected);
    let rows = router
        .query(
            "SELECT task_id, status_code::text, sqlstate FROM taskq.return_tasks($1, $2)",
            &[&&ids[..6], &&tokens[..6]],
        )
        .unwrap();
    for (n, row) in rows.iter().enumerate() {
        let (id, code, state): (&str, Option<&str>, Option<&str>) = (row.get(0), row.get(1), row.get(2));
        assert_eq!((id, code.is_some(), state), (ids[n], n != 5, (n == 5).then_some("TQ001")));
    }
    let returns: Vec<Value> =
        (5..12).map(|n| json!({"task_id": ids[n], "token": tokens[n], "status_code": "aborted"})).collect();
    let query = "SELECT task_id, status_code::text, sqlstate FROM taskq.return_tasks($1::jsonb)";
    let rows = router.query(query, &[&Value::from(returns)]).unwrap();
    assert_eq!(rows.len(), 7);
    for (n, row) in rows.iter().enumerate() {
        let (id, code, state): (&str, Option<&str>, Option<&str>) = (row.get(0), row.get(1), row.get(2));
        assert_eq!((id, code.is_some(), state), (ids[5 + n], n != 0, (n == 0).then_some("TQ001")));
    }
    assert_eq!(
        router
            .one::<i64>("SELECT sum(count)::bigint FROM taskq.count_tasks(states => '{completed,aborted}')"),
        11
    );
}

/// A worker that calls `return_and_own_tasks` again and again sees all shards, and refused returns come first.
#[test]
fn a_worker_in_steady_state_gets_all_that_there_is() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    for shard in 0..3 {
        router
            .query(
                "SELECT taskq.insert_many('x', array_fill('b'::text, '{200}'), group_id => $1)",
                &[&rig.group_of(shard)],
            )
            .unwrap();
    }
    let (mut ids, mut tokens): (Vec<String>, Vec<Uuid>) = (vec!["absent".into()], vec![Uuid::nil()]);
    let (mut done, mut seen) = (0, Vec::new());
    loop {
        let query = "SELECT task_id, token, sqlstate FROM taskq.return_and_own_tasks('w', $1, $2, 3, '{x}')";
        let rows = router.query(query, &[&ids, &tokens]).unwrap();
        let (refused, granted): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| row.get::<_, Option<&str>>(2).is_some());
        assert_eq!(refused.len(), usize::from(done == 0), "only the first one is refused");
        if granted.is_empty() {
            break;
        }
        (ids, tokens) = granted.iter().map(|row| (row.get::<_, String>(0), row.get::<_, Uuid>(1))).unzip();
        done += ids.len();
        seen.extend(tokens.iter().map(|token| token.as_u128() >> 116));
    }
    assert_eq!(done, 600);
    seen.dedup();
    assert!(seen.len() > 4, "it does not keep to one shard while that has work: {seen:?}");
    assert_eq!(router.one::<i64>("SELECT completed FROM taskq.stats"), 600);
}

/// Whichever shard gets the task, a call that sleeps on the router has it within the slices that the others take.
#[test]
fn a_sleeper_is_woken_by_any_shard() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    for shard in [2, 0, 1, 1, 0, 2] {
        let mut inserter = rig.shard(shard);
        let sleeper = rig.router().background(|session| {
            let grants = session.own_with("w", 1, &["x"], "wait => '20 s'").unwrap();
            let at = Instant::now();
            session.complete(&grants[0]);
            at
        });
        std::thread::sleep(Duration::from_millis(300));
        let since = Instant::now();
        inserter.run("SELECT taskq.insert_task(NULL, 'x')");
        let took = sleeper.join().1.duration_since(since);
        // Two slices of 200 ms at most, and what a busy machine adds.
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    let since = Instant::now();
    assert!(router.own_with("w", 1, &["x"], "wait => '700 ms'").unwrap().is_empty());
    assert!(since.elapsed() >= Duration::from_millis(700), "it comes back empty only when the time is up");
    // The end of one task wakes at once: there is one shard to wait on.
    rig.shard(1).run("SELECT taskq.insert_task('t', 'x')");
    let waiter = rig.router().background(|session| session.wait("t", "20 s").unwrap());
    let grant = router.own_one("x");
    router.complete(&grant);
    assert_eq!(waiter.join().1.unwrap().status_code, "completed");
    rig.shard(2).run("SELECT taskq.insert_task('u', 'x')");
    let mut calls = rig.router();
    let settled: i32 = calls.query_one("CALL taskq.wait_for_tasks('{t,u}', '10 ms')", &[]).unwrap().get(0);
    assert_eq!(settled, 1);
}

/// Asleep, a call costs each shard one call a round, not more: the wait is the shard's.
#[test]
fn sleeping_does_not_spin() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    rig.servers.clusters[0]
        .connect()
        .run(&format!("ALTER DATABASE {}_router SET track_functions = 'all'", rig.database));
    let mut router = rig.router();
    assert!(router.own_with("w", 1, &["x"], "wait => '2 s'").unwrap().is_empty());
    router.run("SELECT pg_stat_force_next_flush()");
    let calls = "SELECT calls FROM pg_stat_user_functions WHERE schemaname = 'taskq_router' AND funcname = '_own_tasks'";
    let calls = router.one::<i64>(calls);
    // A first look at each, then a slice of 200 ms each.
    assert!((3..=3 + 11).contains(&calls), "{calls} calls in two seconds");
}
