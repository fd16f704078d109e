//! What `health`, `why` and the page say of calls that ask for other actions, or for very many.
//!
//! Why: `health` did not know of calls for very many actions, and told that none asks; `why` did not tell of the others beside
//! them. On wrong code an operator looks for a worker that is there, or does not see that a name is misspelt.

use serde_json::json;
use taskq_tests::sleeper::{Sleeper, Way};
use taskq_tests::{Db, Session};

use super::health::{set_back, the_problem};

/// What is said of the calls: by `health`, and by `why`.
fn told(session: &mut Session) -> (String, String) {
    let problem = the_problem(session, "starving", "warning", "maek");
    let calls = problem.split_once(", and ").unwrap().1.to_owned();
    (calls, session.all::<String>("SELECT taskq.why('a')").pop().unwrap())
}

#[test]
fn health_and_why_say_the_same_of_the_calls_that_wait() {
    let (db, [mut session]) = Db::connected();
    set_back(&mut session, "10 minutes");
    session.insert(json!([{"id": "a", "action": "maek"}])).unwrap();
    session.set_now(None);
    session
        .insert(json!([{"action": "make", "delay": "1 day"}, {"action": "mail", "delay": "1 day"}]))
        .unwrap();
    assert_eq!(
        told(&mut session),
        ("no call waits for tasks".to_owned(), "no call waits for tasks".to_owned())
    );
    let ask = |call: &'static str, session: &mut Session| {
        Sleeper::start(&db, session, Way { name: "own_tasks", call })
    };
    let make = "SELECT taskq.own_tasks('w', 1, '{make}', wait => '60 seconds')";
    let mut sleepers = vec![ask(make, &mut session), ask(make, &mut session)];
    sleepers.push(ask("SELECT taskq.own_tasks('w', 1, '{mail}', wait => '60 seconds')", &mut session));
    let others = "of 3 waiting calls 2 ask for \"make\", 1 asks for \"mail\"";
    assert_eq!(
        told(&mut session),
        (
            format!("no waiting call asks for it: {others}"),
            format!("no waiting call asks for action \"maek\": {others}")
        )
    );
    // A quarter of the locks that a session may have, and one more.
    sleepers.push(ask(
        "SELECT taskq.own_tasks('w', 1, (SELECT array_agg('many ' || i) FROM generate_series(0, current_setting('max_locks_per_transaction')::integer / 4) AS i), wait => '60 seconds')",
        &mut session,
    ));
    let many = "1 waiting call asks for very many actions, \"maek\" perhaps among them; of the others 2 ask for \"make\", 1 asks for \"mail\"";
    assert_eq!(told(&mut session), (many.to_owned(), many.to_owned()));
    session.run("SELECT taskq.pause_action('maek')");
    sleepers.push(ask("SELECT taskq.own_tasks('w', 1, '{maek}', wait => '60 seconds')", &mut session));
    for sleeper in sleepers {
        session.run(&format!("SELECT pg_terminate_backend({})", sleeper.pid()));
        sleeper.fails();
    }
}
