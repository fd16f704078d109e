//! What no role may do.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::{Role, assert_denied};

fn tables(session: &mut Session) -> Vec<String> {
    session.all(
        "SELECT c.oid::regclass::text FROM pg_class c \
         WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind IN ('r', 'p', 'S')",
    )
}

#[test]
fn public_has_no_right_on_anything() {
    let db = Db::new();
    // A null ACL is the built-in default, which lets PUBLIC execute functions.
    let granted: Vec<String> = db.connect().all(
        "SELECT 'schema' FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'taskq' AND a.grantee = 0 \
         UNION ALL SELECT c.oid::regclass::text FROM pg_class c, aclexplode(c.relacl) a \
         WHERE c.relnamespace = 'taskq'::regnamespace AND a.grantee = 0 \
         UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p, \
         aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
         WHERE p.pronamespace = 'taskq'::regnamespace AND a.grantee = 0",
    );
    assert!(granted.is_empty(), "{granted:?}");
}

#[test]
fn a_role_without_a_part_can_do_nothing() {
    let role = Role::new("powerless");
    let (db, [mut boss]) = Db::connected();
    let tables = tables(&mut boss);
    let mut session = db.connect_as(&role.name);
    for call in [
        "SELECT taskq.insert_task('a', 'x')",
        "SELECT taskq.own_tasks('w', 1, '{x}')",
        "SELECT * FROM taskq.tasks",
        "SELECT taskq.cancel_tasks('{a}')",
        "SELECT taskq.grant_worker(current_user)",
    ] {
        assert_denied(&mut session, call);
    }
    for table in tables {
        assert_denied(&mut session, &format!("SELECT * FROM {table}"));
    }
}

#[test]
fn no_part_gives_a_right_on_a_table_or_sequence() {
    let role = Role::new("all");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    for part in ["inserter", "producer", "worker", "operator", "monitor"] {
        boss.run(&format!("SELECT taskq.grant_{part}('{}')", role.name));
    }
    let mut session = db.connect_as(&role.name);
    for table in tables(&mut boss) {
        for privilege in ["INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"] {
            let held: bool = session
                .query_one(
                    "SELECT CASE WHEN relkind = 'S' THEN has_sequence_privilege(oid, 'UPDATE') \
                     ELSE has_table_privilege(oid, $2) END FROM pg_class WHERE oid = $1::text::regclass",
                    &[&table, &privilege],
                )
                .unwrap()
                .get(0);
            assert!(!held, "{privilege} on {table}");
        }
    }
    let tokens = boss.own("w", 1, &["x"]).unwrap();
    let hidden = tokens[0].token.to_string();
    for table in tables(&mut boss) {
        // Where reading is denied, all is well; where it is allowed, no token may show.
        if let Ok(rows) = session.query(&format!("SELECT t::text FROM {table} t"), &[]) {
            assert!(
                !rows.iter().any(|row| row.get::<_, String>(0).contains(&hidden)),
                "{table} shows a token"
            );
        }
    }
    for call in [
        "CREATE TABLE taskq.mine (x int)",
        "CREATE VIEW taskq.mine AS SELECT 1",
        "CREATE FUNCTION taskq.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ] {
        assert_denied(&mut session, call);
    }
    boss.run("SELECT taskq.cancel_tasks('{a}')");
}

#[test]
fn a_part_does_not_include_handing_out_parts() {
    let (role, other) = (Role::new("worker"), Role::new("other"));
    let (db, [mut boss]) = Db::connected();
    let parts = ["inserter", "producer", "worker", "operator", "monitor"];
    for part in parts {
        boss.run(&format!("SELECT taskq.grant_{part}('{}')", role.name));
    }
    let mut session = db.connect_as(&role.name);
    for part in parts {
        assert_denied(&mut session, &format!("SELECT taskq.grant_{part}('{}')", other.name));
        assert_denied(&mut session, &format!("SELECT taskq.revoke_{part}('{}')", role.name));
    }
}

#[test]
fn a_worker_cannot_set_the_queues_clock() {
    let role = Role::new("worker");
    let (db, [mut boss]) = Db::connected();
    boss.run(&format!("SELECT taskq.grant_worker('{}')", role.name));
    boss.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    boss.own_one_with("x", "lease => '1 hour'");
    // Before its first call a session does not know the setting yet, and takes any value; it must not come to count.
    let mut early = db.connect_as(&role.name);
    early.batch_execute("SET taskq.now = '2099-01-01'").ok();
    assert!(early.own("w", 1, &["x"]).unwrap().is_empty());
    let mut late = db.connect_as(&role.name);
    assert!(late.own("w", 1, &["x"]).unwrap().is_empty());
    assert_denied(&mut late, "SET taskq.now = '2099-01-01'");
}

#[test]
fn temporary_objects_of_the_caller_do_not_get_in_between() {
    // The functions run with the owner's rights: whatever they look up must not be found in the caller's schemas.
    let role = Role::new("worker");
    let (db, [mut boss]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    boss.run(&format!("SELECT taskq.grant_worker('{0}'); SELECT taskq.grant_producer('{0}')", role.name));
    boss.run(&format!("GRANT TEMPORARY ON DATABASE \"{}\" TO \"{}\"", db.name(), role.name));
    let names: Vec<String> = boss.all(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'taskq'::regnamespace AND relkind IN ('r', 'v')",
    );
    let mut session = db.connect_as(&role.name);
    for name in names {
        session.run(&format!("CREATE TEMPORARY TABLE \"{name}\" (x int)"));
    }
    session.run(
        "CREATE FUNCTION pg_temp.spy(text, text) RETURNS boolean LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''ran as %'', current_user; END'; \
         CREATE OPERATOR pg_temp.= (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_temp.spy); \
         SET search_path = pg_temp, pg_catalog",
    );
    session.insert(json!([{"id": "b", "action": "x", "depends_on": ["a"]}])).unwrap();
    let grant = session.own("w", 1, &["x"]).unwrap().remove(0);
    session.complete(&grant);
    assert_eq!(session.own("w", 1, &["x"]).unwrap()[0].task_id, "b");
}
