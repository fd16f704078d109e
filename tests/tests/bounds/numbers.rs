//! Numbers that a caller may give and the queue could take for a size: "give me all" must cost what there is, not what
//! was asked for.

use serde_json::json;
use taskq_tests::{Db, Session};

const MOST: i32 = i32::MAX;

fn granted(session: &mut Session, arguments: &str) -> i64 {
    session.one(&format!("SELECT count(*) FROM taskq.own_tasks('w', {arguments})"))
}

/// Room for two billion grants, of an action that claims have to choose from: 120 bytes for each would be 250 GB.
#[test]
fn all_tasks_of_a_limited_action_can_be_asked_for() {
    let (_db, [mut session]) = Db::connected();
    for (action, setting) in [
        ("limited", "max_concurrency => 3"),
        ("rated", "rate_limit => 3, rate_period => '1 hour'"),
        ("fair", "fair => true"),
        ("per-group", "max_per_group => 3"),
    ] {
        session.run(&format!("SELECT taskq.set_action('{action}', {setting})"));
        let tasks = (0..5).map(|i| json!({"id": format!("{action}-{i}"), "action": action, "group_id": "g"}));
        session.insert(tasks.collect()).unwrap();
        let expected = if action == "fair" { 5 } else { 3 };
        assert_eq!(granted(&mut session, &format!("{MOST}, '{{{action}}}'")), expected, "{action}");
    }
}

/// More tasks than one round of choosing looks at: the next rounds take the rest, in the same order.
#[test]
fn a_claim_of_many_limited_tasks_takes_all_that_the_limit_allows_in_order() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('x', max_concurrency => 25000)");
    session.run("SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg('{\"action\": \"x\"}'::jsonb) FROM generate_series(1, 30000)))");
    session.run(&format!(
        "CREATE TABLE got AS SELECT row_number() OVER () AS n, * FROM taskq.own_tasks('w', {MOST}, '{{x}}')"
    ));
    assert_eq!(session.one::<i64>("SELECT count(*) FROM got"), 25_000);
    let out_of_order = "SELECT count(*) FROM (SELECT t.task_no < lag(t.task_no) OVER (ORDER BY g.n) AS back
                          FROM got g JOIN taskq.task t ON t.id = g.task_id) AS o WHERE back";
    assert_eq!(session.one::<i64>(out_of_order), 0);
    assert_eq!(granted(&mut session, &format!("{MOST}, '{{x}}'")), 0);
}

#[test]
fn the_largest_numbers_are_taken_for_what_they_are() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "depends_on": ["a"]}]));
    for call in [
        format!("SELECT count(*) FROM taskq.ancestors('b', {MOST})"),
        format!("SELECT count(*) FROM taskq.descendants('a', {MOST})"),
        format!("SELECT length(taskq.graph('a', 'dot', {MOST}, {MOST}))"),
        format!("SELECT taskq.retry_tasks(actions => '{{x}}', max_tasks => {MOST})"),
        format!("SELECT count(*) FROM taskq.own_tasks('w', {MOST}, '{{x}}', wait => '0')"),
    ] {
        session.run(&call);
    }
}
