//! View `taskq.workers`: sessions that sleep in a call of the queue, and actors that hold tasks.

use taskq_tests::Db;

use crate::sleeper::{END, Sleeper, WORK};

#[test]
fn it_shows_calls_that_sleep_and_actors_that_hold_tasks() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT taskq.insert_task('a', 'y'); SELECT taskq.insert_task('b', 'y'); SELECT taskq.insert_task('c', 'z');
         SELECT taskq.insert_task('known', 'x'); SELECT taskq.cancel_tasks('{known}');
         SELECT taskq.own_tasks('holder', 9, '{y,z}')",
    );
    let all = "SELECT concat_ws(' ', pid IS NOT NULL, role, actor_id, actions::text, asleep_since IS NOT NULL, tasks_held)
                 FROM taskq.workers ORDER BY 1";
    assert_eq!(session.all::<String>(all), ["f holder {y,z} f 3"]);
    for (way, actions) in WORK.into_iter().zip([" {x}"; 2]).chain(END.into_iter().zip([""; 2])) {
        let sleeper = Sleeper::start(&db, &mut session, way);
        let role: String = session.one("SELECT current_user::text");
        assert_eq!(
            session.all::<String>(all),
            ["f holder {y,z} f 3".to_owned(), format!("t {role}{actions} t")],
            "{}",
            way.name
        );
        let pid = session.one::<i32>("SELECT pid FROM taskq.workers WHERE pid IS NOT NULL");
        assert_eq!(pid, sleeper.pid());
        session.run(&format!("SELECT pg_terminate_backend({pid})"));
        sleeper.fails();
    }
}

#[test]
fn a_role_that_may_not_see_a_session_sees_less_of_it() {
    let db = Db::new();
    let mut session = db.connect();
    let role = format!("{}_monitor", db.name());
    session.run(&format!("CREATE ROLE {role} LOGIN; SELECT taskq.grant_monitor('{role}')"));
    let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
    let mut monitor = db.connect_as(&role);
    let shown = "SELECT concat_ws(' ', pid IS NOT NULL, asleep_since IS NOT NULL) FROM taskq.workers";
    assert_eq!(monitor.one::<String>(shown), "t f");
    session.run(&format!("SELECT pg_terminate_backend({})", sleeper.pid()));
    sleeper.fails();
    drop(monitor);
    session.run(&format!("SELECT taskq.revoke_monitor('{role}'); DROP ROLE {role}"));
}
