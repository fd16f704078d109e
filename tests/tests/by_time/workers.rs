//! View `taskq.workers`: sessions that sleep in a call of the queue, and actors that hold tasks.

use serde_json::json;
use taskq_tests::{Db, Session};

use crate::sleeper::{END, Sleeper, WORK, Way};

#[test]
fn it_shows_calls_that_sleep_and_actors_that_hold_tasks() {
    let (db, [mut session]) = Db::connected();
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

/// On wrong code a name that is misspelt looks as one for which the workers have no time.
#[test]
fn why_tells_for_what_the_waiting_calls_ask() {
    let (db, [mut session]) = Db::connected();
    let told = |session: &mut Session| session.all::<String>("SELECT taskq.why('a')").pop().unwrap();
    session.insert(json!([{"id": "a", "action": "maek"}])).unwrap();
    assert_eq!(told(&mut session), "no call waits for tasks");
    let ask = |actions: &'static str, session: &mut Session| {
        Sleeper::start(&db, session, Way { name: "own_tasks", call: actions })
    };
    let mut sleepers =
        vec![ask("SELECT taskq.own_tasks('w', 1, '{new}', wait => '60 seconds')", &mut session)];
    assert_eq!(
        told(&mut session),
        "no waiting call asks for action \"maek\": of 1 waiting call none asks for one that has tasks"
    );
    session.run(
        "SELECT taskq.insert_task(x, x, delay => '1 day') FROM unnest('{make,mail,post,print}'::text[]) AS x",
    );
    for _ in 0..3 {
        sleepers
            .push(ask("SELECT taskq.own_tasks('w', 1, '{make,print}', wait => '60 seconds')", &mut session));
    }
    sleepers.push(ask("SELECT taskq.own_tasks('w', 1, '{mail}', wait => '60 seconds')", &mut session));
    sleepers.push(ask("SELECT taskq.own_tasks('w', 1, '{post}', wait => '60 seconds')", &mut session));
    assert_eq!(
        told(&mut session),
        "no waiting call asks for action \"maek\": of 6 waiting calls 3 ask for \"make\", 1 asks for \"mail\", 3 ask for \"print\", and others"
    );
    session.run("SELECT taskq.pause_action('maek')");
    sleepers.push(ask("SELECT taskq.own_tasks('w', 1, '{maek,post}', wait => '60 seconds')", &mut session));
    assert_eq!(told(&mut session), "1 waiting call asks for action \"maek\"");
    // It waits for the end of a task, and asks for none.
    sleepers.push(ask("SELECT taskq.wait_for_task('a', '60 seconds')", &mut session));
    assert_eq!(told(&mut session), "1 waiting call asks for action \"maek\"");
    for sleeper in sleepers {
        session.run(&format!("SELECT pg_terminate_backend({})", sleeper.pid()));
        sleeper.fails();
    }
    assert_eq!(told(&mut session), "no call waits for tasks");
}

#[test]
fn a_role_that_may_not_see_a_session_sees_less_of_it() {
    let (db, [mut session]) = Db::connected();
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
