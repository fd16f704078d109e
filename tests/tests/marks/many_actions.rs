//! A call for very many actions takes time that grows with their number. To have the actions in an order by an index each
//! one there is was compared with each of the names: 100,000 took more than a minute.

use taskq_tests::Db;

const ACTIONS: usize = 100_000;

#[test]
#[ignore = "long"]
fn a_call_for_100_000_actions_takes_seconds() {
    let (_db, [mut session]) = Db::connected();
    // Names of tasks that are gone.
    session.run(&format!(
        "INSERT INTO taskq.action (action_no, name) \
         SELECT nextval('taskq.action_no_seq'), 'a' || n FROM generate_series(1, {ACTIONS}) AS n"
    ));
    session.run("SELECT taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('action', 'a' || n * 100, 'group_id', 'g')) \
                   FROM generate_series(1, 100) AS n))");
    session.run("SET statement_timeout = '30s'");
    let names = format!("(SELECT array_agg('a' || n) FROM generate_series(1, {ACTIONS}) AS n)");
    let own = |max_tasks: usize| format!("SELECT count(*) FROM taskq.own_tasks('w', {max_tasks}, {names})");
    assert_eq!(session.one::<i64>(&own(10)), 10);
    assert_eq!(session.one::<i64>(&own(1_000)), 90);
    assert_eq!(session.one::<i64>(&own(1)), 0);
    // The names are looked up once more by who waits.
    session.run(&format!("CREATE TABLE names AS SELECT {names} AS names"));
    session.run(
        "DO $$ DECLARE n text[] := (SELECT names FROM names); BEGIN PERFORM taskq._action_channels(n); END $$",
    );
}
