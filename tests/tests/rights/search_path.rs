//! Functions that switch to the owner themselves have no SET clause: the first statement that a call runs pins the search path
//! (src/pg/search_path.rs), and the end of the call puts the caller's back, however it ends and wherever it was made.

use std::collections::HashMap;

use taskq_tests::{Db, Session, sqlstate};
use uuid::Uuid;

use super::Role;

/// One for all roles, and one that none of our statements could run with: a comparison of two texts or two numbers with
/// it raises an error.
const HOSTILE: &str = "CREATE SCHEMA hostile;
    CREATE FUNCTION hostile.spy(anyelement, anyelement) RETURNS boolean LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''ran as %'', current_user; END';
    CREATE OPERATOR hostile.= (LEFTARG = anyelement, RIGHTARG = anyelement, FUNCTION = hostile.spy);
    CREATE FUNCTION hostile.spy(text, text) RETURNS boolean LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''ran as %'', current_user; END';
    CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.spy);
    CREATE FUNCTION hostile.spy(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''ran as %'', current_user; END';
    CREATE OPERATOR hostile.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = hostile.spy);
    SET search_path = hostile, pg_catalog";

/// Calls that run statements, none, some within subtransactions of their own, or refuse after they have run some.
const CALLS: &[&str] = &[
    "SELECT taskq.complete_task('p')",
    "SELECT taskq.insert_task('a' || nextval('hostile.n'), 'x', group_id => 'g', merge_key => 'k', workgroup => 'w')",
    "SELECT taskq.insert_tasks('[{\"id\": \"p\", \"action\": \"x\"}, {\"id\": \"q\", \"action\": \"x\", \"depends_on\": [\"p\"]}]', \
        on_conflict => 'skip')",
    "SELECT taskq.insert_tasks('[{\"action\": \"x\", \"unique_by\": {\"key\": \"u\", \"period\": \"1 hour\"}}]', \
        on_conflict => 'skip')",
    "SELECT count(*) FROM taskq.own_tasks('w', 2, '{x}')",
    "SELECT count(*) FROM taskq.own_tasks('w', 1, '{none}', wait => '10 ms')",
    "SELECT count(*) FROM taskq.return_and_own_tasks('w', '[]', 1, '{x}')",
    "SELECT taskq.set_group('g', max_concurrency => 1)",
    "SELECT taskq.pause_group('g')",
    "SELECT taskq.resume_group('g')",
    "SELECT taskq.retry_tasks('{p,q}')",
    "SELECT taskq.cancel_tasks('{q}')",
    "SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}', 'UTC')",
    "SELECT taskq.run_schedule('s')",
    "SELECT count(*) FROM taskq.wait_for_task('p', '0')",
];

/// Calls that are refused.
const REFUSED: &[&str] = &[
    "SELECT taskq.insert_task('p', 'x')",
    "SELECT taskq.insert_task('r', 'x', depends_on => '{absent}')",
    "SELECT taskq.return_task('p', '00000000-0000-0000-0000-000000000000')",
    "SELECT taskq.add_dependencies('{p}', '{absent}')",
    "SELECT taskq.run_schedule('absent')",
    "SELECT taskq.insert_task('r', 'x', unique_by => '{\"wrong\": 1}')",
];

const PATH: &str = "SELECT pg_catalog.current_setting('search_path')";

fn hostile(db: &Db) -> Session {
    let mut session = db.connect();
    session.run(HOSTILE);
    session.run("CREATE SEQUENCE hostile.n");
    session.run("SELECT taskq.insert_task('p', 'x'), taskq.insert_task('q', 'x', depends_on => '{p}', group_id => 'g')");
    session.run("SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}', 'UTC')");
    session
}

#[test]
fn the_callers_path_is_neither_used_nor_changed_by_any_call() {
    let db = Db::new();
    let mut session = hostile(&db);
    let path: String = session.one(PATH);
    for call in CALLS {
        session.run(call);
        assert_eq!(session.one::<String>(PATH), path, "{call}");
    }
    for call in REFUSED {
        let error = session.batch_execute(call).expect_err(call);
        assert!(sqlstate(&error).starts_with("TQ") || sqlstate(&error) == "22023", "{call}: {error:?}");
        assert_eq!(session.one::<String>(PATH), path, "{call}");
    }
}

#[test]
fn a_path_that_was_pinned_below_a_savepoint_goes_with_it() {
    let db = Db::new();
    let mut session = hostile(&db);
    for call in CALLS {
        session.run("BEGIN; SET LOCAL search_path = pg_catalog, hostile; SAVEPOINT s");
        session.run(call);
        assert_eq!(session.one::<String>(PATH), "pg_catalog, hostile", "{call}");
        session.run("ROLLBACK TO s");
        assert_eq!(session.one::<String>(PATH), "pg_catalog, hostile", "{call}");
        session.run(call);
        session.run("RELEASE s");
        assert_eq!(session.one::<String>(PATH), "pg_catalog, hostile", "{call}");
        session.run("ROLLBACK");
        assert_eq!(session.one::<String>(PATH), "hostile, pg_catalog", "{call}");
    }
    for call in REFUSED {
        session.run("BEGIN; SET LOCAL search_path = pg_catalog, hostile; SAVEPOINT s");
        session.batch_execute(call).expect_err(call);
        session.run("ROLLBACK TO s");
        assert_eq!(session.one::<String>(PATH), "pg_catalog, hostile", "{call}");
        session.run("COMMIT");
        assert_eq!(session.one::<String>(PATH), "hostile, pg_catalog", "{call}");
    }
}

#[test]
fn a_block_that_catches_a_refusal_has_its_path_again() {
    let db = Db::new();
    let mut session = hostile(&db);
    session.run(
        "CREATE FUNCTION hostile.tries(calls text[]) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, hostile AS $$
         DECLARE call text; seen text;
         BEGIN
             FOR i IN 1..3 LOOP
                 FOREACH call IN ARRAY calls LOOP
                     BEGIN
                         EXECUTE call;
                     EXCEPTION WHEN OTHERS THEN
                         IF SQLERRM LIKE 'ran as%' THEN RAISE; END IF;
                     END;
                     seen := current_setting('search_path');
                     IF seen <> 'pg_catalog, hostile' THEN RETURN call || ': ' || seen; END IF;
                 END LOOP;
             END LOOP;
             RETURN NULL;
         END $$",
    );
    let calls: Vec<&str> = CALLS.iter().chain(REFUSED).copied().collect();
    let row = session.query_one("SELECT hostile.tries($1)", &[&calls]).unwrap();
    assert_eq!(row.get::<_, Option<String>>(0), None);
    assert_eq!(session.one::<String>(PATH), "hostile, pg_catalog");
}

#[test]
fn what_is_done_at_a_commit_has_the_owners_rights_and_not_the_callers_path() {
    let role = Role::new("worker");
    let db = Db::new();
    let (mut owner, mut one, mut two) = (hostile(&db), db.connect(), db.connect());
    owner.run(&format!(
        "SELECT taskq.grant_worker('{0}'); GRANT USAGE ON SCHEMA hostile TO \"{0}\"",
        role.name
    ));
    owner.run(
        "SELECT taskq.insert_task('up ' || n, 'up') FROM pg_catalog.generate_series(1, 2) AS n;
         SELECT taskq.insert_task('down', 'y', depends_on => '{up 1,up 2}');
         SELECT taskq.insert_task('z ' || n, 'z') FROM pg_catalog.generate_series(1, 2) AS n",
    );
    for session in [&mut one, &mut two] {
        session.run(&format!("SET ROLE \"{}\"; SET search_path = hostile, pg_catalog", role.name));
    }
    let settle = |session: &mut Session, action: &str| {
        let call = "SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 1, ARRAY[$1])";
        assert_eq!(session.query(call, &[&action]).unwrap().len(), 1);
    };
    // The second leaves its signal to the first, which counts it right before it commits.
    one.run("BEGIN");
    settle(&mut one, "up");
    settle(&mut two, "up");
    one.run("COMMIT");
    let state = "SELECT state FROM taskq.tasks WHERE id OPERATOR(pg_catalog.=) 'down'";
    assert_eq!(owner.one::<String>(state), "ready");
    // So is what a transaction block tidies at its end: a lease is handed on to the task of it that is left.
    let own = "SELECT task_id, token FROM taskq.own_tasks('w', 2, '{z}', '1 hour')";
    let granted: HashMap<String, Uuid> =
        one.query(own, &[]).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    let keeper = "SELECT t.id FROM taskq.lease AS l JOIN taskq.task AS t ON t.task_no OPERATOR(pg_catalog.=) l.keeper_no";
    let first = owner.one::<String>(keeper);
    one.run("BEGIN");
    one.query_one("SELECT taskq.return_task($1, $2)", &[&first, &granted[&first]]).unwrap();
    one.run("COMMIT");
    let second = owner.one::<String>(keeper);
    assert!(second != first && granted.contains_key(&second), "{second} after {first}");
    for session in [&mut one, &mut two] {
        assert_eq!(session.one::<String>(PATH), "hostile, pg_catalog");
        assert_eq!(session.one::<String>("SELECT current_user::text"), role.name);
    }
}
