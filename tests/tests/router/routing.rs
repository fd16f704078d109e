//! Which shard a call goes to.

use serde_json::json;
use taskq_tests::{Session, sqlstate};

use super::{Rig, Servers};

fn homes(session: &mut Session, n: i32) -> Vec<i32> {
    session.all(&format!("SELECT taskq_router.shard_for('g' || n) FROM generate_series(1, {n}) AS n"))
}

#[test]
fn a_call_of_several_shards_is_refused_and_says_what_to_do() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    let [first, second] = [rig.group_of(0), rig.group_of(2)];
    let tasks = json!([{"id": "a", "action": "x", "group_id": first}, {"id": "b", "action": "x", "group_id": second}]);
    for error in [router.insert(tasks.clone()).unwrap_err(), router.replace(tasks).unwrap_err()] {
        let error = error.as_db_error().unwrap().clone();
        assert_eq!(error.code().code(), "22023");
        for group in [&first, &second] {
            assert!(error.detail().unwrap().contains(group.as_str()), "{error:?}");
        }
        assert!(error.hint().unwrap().contains("group_id"), "{error:?}");
    }
    router.insert(json!([{"id": "a", "action": "x", "group_id": first}])).unwrap();
    router.insert(json!([{"id": "b", "action": "x", "group_id": second}])).unwrap();
    assert_eq!(sqlstate(&router.depend_on("a", "b").unwrap_err()), "22023");
    let update = router.query("SELECT taskq.update_tasks('{a,b}', priority => 1)", &[]).unwrap_err();
    assert_eq!(sqlstate(&update), "22023");
    // Nothing was done by any of them.
    assert_eq!(rig.shard(0).tasks().len() + rig.shard(2).tasks().len(), 2);
    // Children go where their parent is.
    let grant =
        rig.router().own("w", 2, &["x"]).unwrap().into_iter().find(|grant| grant.task_id == "a").unwrap();
    let children = format!("children => '[{{\"action\": \"x\", \"group_id\": \"{second}\"}}]'");
    let error = router.give_with("a", grant.token, "completed", &children).unwrap_err();
    assert_eq!(sqlstate(&error), "22023");
    router
        .give_with("a", grant.token, "completed", "children => '[{\"id\": \"c\", \"action\": \"x\"}]'")
        .unwrap();
    assert_eq!(rig.shard(0).state("c"), "ready");
    // What is asked of several by their ids is done on each.
    assert_eq!(router.cancel(&["b", "c", "absent"]).unwrap(), 2);
}

#[test]
fn tasks_without_group_and_id_go_anywhere_and_together() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let mut router = rig.router();
    for _ in 0..40 {
        assert_eq!(router.insert(json!([{"action": "x"}, {"action": "x"}])).unwrap().len(), 2);
    }
    let each: Vec<usize> = (0..3).map(|n| rig.shard(n).tasks().len()).collect();
    assert_eq!(each.iter().sum::<usize>(), 80);
    assert!(each.iter().all(|&n| n > 0 && n % 2 == 0), "{each:?}");
    // One that names its place leads the others.
    let group = rig.group_of(1);
    let ids = router.insert(json!([{"action": "y"}, {"action": "y", "group_id": group}])).unwrap();
    assert_eq!(rig.shard(1).state(&ids[0]), "ready");
}

/// The ranges are a partition of the hashes, each shard has its part of them, and what a new one gets it gets from all.
#[test]
fn ranges_are_divided_fairly() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 1);
    let mut router = rig.router();
    let mut before = homes(&mut router, 200);
    for shards in 2..=3_usize {
        let connect = rig.connect_string(rig.server(shards - 1));
        router.query("SELECT taskq_router.add_shards($1)", &[&connect]).unwrap();
        let unsound = "SELECT count(*) FROM (SELECT version, low, lag(high) OVER (PARTITION BY version ORDER BY low) AS end_before \
                         FROM taskq_router.ranges) AS r WHERE low <> COALESCE(end_before + 1, 0)";
        assert_eq!(router.one::<i64>(unsound), 0);
        let parts: Vec<i64> = router.all(
            "SELECT sum(high - low + 1)::bigint FROM taskq_router.ranges \
              WHERE version = (SELECT max(version) FROM taskq_router.ranges) GROUP BY shard",
        );
        assert_eq!((parts.len(), parts.iter().sum::<i64>()), (shards, 1 << 32));
        let fair = (1_i64 << 32) / i64::try_from(shards).unwrap();
        assert!(parts.iter().all(|part| (part - fair).abs() <= 8), "{parts:?}");
        let after = homes(&mut router, 200);
        let new = i32::try_from(shards - 1).unwrap();
        let moved = before
            .iter()
            .zip(&after)
            .filter(|(old, now)| old != now)
            .inspect(|(_, now)| assert_eq!(**now, new))
            .count();
        assert!(
            (200 / shards / 2..200 / shards * 2).contains(&moved),
            "{moved} of 200 groups go to the new shard"
        );
        before = after;
    }
    let again = rig.connect_string(rig.server(2));
    let error = router.query("SELECT taskq_router.add_shards($1)", &[&again]).unwrap_err();
    assert_eq!(sqlstate(&error), "22023", "a shard that is known");
}
