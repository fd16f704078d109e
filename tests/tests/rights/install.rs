//! What CREATE EXTENSION leaves open. The install script runs with the rights of a superuser, in a database of any
//! owner: an operator that the owner has put into the search_path, or a default privilege that the owner or the
//! administrator has set, must not become a part of the extension.

use taskq_tests::db::admin;
use taskq_tests::{Db, refused, sqlstate};

use super::{Role, assert_denied};

/// On wrong code a view or a function is bound for good to what was found in `public`, and `check()` runs it with the
/// rights of the owner of the extension: mallory becomes a superuser.
#[test]
fn no_operator_of_others_becomes_a_part_of_the_extension() {
    let mallory = Role::new("mallory");
    let db = Db::empty();
    let mut boss = db.connect();
    boss.run(&format!("GRANT ALL ON SCHEMA public TO \"{}\"", mallory.name));
    let mut session = db.connect_as(&mallory.name);
    // Where pg_catalog has no exact match, one of another schema would win.
    for (left, right) in
        [("numeric", "integer"), ("integer", "numeric"), ("bigint", "numeric"), ("numeric", "bigint")]
    {
        for (name, operator) in
            [("ne", "<>"), ("gt", ">"), ("lt", "<"), ("eq", "="), ("ge", ">="), ("le", "<=")]
        {
            session.run(&format!(
                "CREATE FUNCTION public.{name}_{left}_{right}({left}, {right}) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                     IF (SELECT usesuper FROM pg_catalog.pg_user WHERE usename OPERATOR(pg_catalog.=) current_user) THEN
                         EXECUTE 'ALTER ROLE \"{role}\" SUPERUSER';
                     END IF;
                     RETURN $1::numeric OPERATOR(pg_catalog.{operator}) $2::numeric; END $$;
                 CREATE OPERATOR public.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.{name}_{left}_{right})",
                role = mallory.name
            ));
        }
    }
    boss.run("CREATE EXTENSION taskq");
    boss.run("SELECT taskq.insert_task('a', 'x', group_id => 'g')");
    boss.own_one("x");
    for view in boss.all::<String>(
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'taskq'::regnamespace AND relkind = 'v'",
    ) {
        boss.run(&format!("SELECT * FROM {view}"));
    }
    boss.run("SELECT * FROM taskq.check(); SELECT * FROM taskq.why('a'); SELECT taskq.metrics()");
    let is_superuser = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{}'", mallory.name);
    assert!(!boss.one::<bool>(&is_superuser));
}

/// The same, for whatever could be bound: views and bodies in the form of the standard depend on what they use.
#[test]
fn nothing_of_the_extension_depends_on_anything_outside_of_it_and_pg_catalog() {
    let (_db, [mut session]) = Db::connected();
    let outside: Vec<String> = session.all(
        "WITH RECURSIVE ours AS (
             SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
              WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'taskq'
             UNION
             -- Rules of views, defaults, constraints, indexes: whatever goes with an object.
             SELECT d.classid, d.objid FROM pg_depend d JOIN ours o ON (d.refclassid, d.refobjid) = (o.classid, o.objid)
              WHERE d.deptype IN ('a', 'i'))
         SELECT DISTINCT pg_describe_object(o.classid, o.objid, 0) || ' -> ' || pg_describe_object(d.refclassid, d.refobjid, 0)
           FROM ours o
           JOIN pg_depend d ON (d.classid, d.objid) = (o.classid, o.objid)
          WHERE d.refobjid >= 16384 AND (d.refclassid, d.refobjid) NOT IN (SELECT * FROM ours)
            AND d.refclassid <> 'pg_extension'::regclass
            AND NOT (d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'taskq'::regnamespace)",
    );
    assert_eq!(outside, [""; 0]);
    // Objects of the system have numbers below those of users; schemas, too. It must hold for operators by name as well.
    let operators: i64 = session.one(
        "SELECT count(*) FROM pg_depend d JOIN pg_operator p ON p.oid = d.refobjid
          WHERE d.refclassid = 'pg_operator'::regclass AND p.oprnamespace NOT IN ('pg_catalog'::regnamespace, 'taskq'::regnamespace)",
    );
    assert_eq!(operators, 0);
}

/// The library reads and writes heap tables. On wrong code CREATE EXTENSION makes others, and each call fails later.
#[test]
fn the_tables_are_heap_tables_whatever_new_ones_are() {
    let db = Db::empty();
    let mut session = db.connect();
    session.run("CREATE ACCESS METHOD another TYPE TABLE HANDLER heap_tableam_handler");
    session.run("SET default_table_access_method = another; CREATE EXTENSION taskq");
    let methods: Vec<String> = session.all(
        "SELECT DISTINCT a.amname::text FROM pg_class c JOIN pg_am a ON a.oid = c.relam
          WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'r'",
    );
    assert_eq!(methods, ["heap"]);
    assert_eq!(session.one::<String>("SHOW default_table_access_method"), "another", "the caller's setting");
    session.run("SELECT taskq.insert_task('a', 'x')");
    session.own_one("x");
}

/// `DROP SCHEMA public CASCADE` is how many reset their application's database.
#[test]
fn the_extension_belongs_to_no_schema_that_an_application_drops() {
    let db = Db::empty();
    let mut session = db.connect();
    session.run("CREATE EXTENSION taskq");
    session.run("SELECT taskq.insert_task('a', 'x')");
    session.run("DROP SCHEMA public CASCADE");
    assert_eq!(session.perform("x", "completed"), "a");
    let schema: String =
        session.one("SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'taskq'");
    assert_eq!(schema, "pg_catalog");
    // And it is installed where there is none.
    session.run("DROP EXTENSION taskq; CREATE EXTENSION taskq");
}

/// With the default privileges that many administrators set, a reader of tables could make tokens, and a caller of
/// functions could call the internal ones.
#[test]
fn nothing_is_left_to_default_privileges() {
    let reader = Role::new("reader");
    let db = Db::empty();
    let mut boss = db.connect();
    let grant =
        |what: &str| format!("ALTER DEFAULT PRIVILEGES GRANT ALL ON {what} TO \"{}\", PUBLIC", reader.name);
    for what in ["TABLES", "SEQUENCES", "ROUTINES", "TYPES", "SCHEMAS"] {
        boss.run(&grant(what));
    }
    boss.run("CREATE EXTENSION taskq");
    let open: Vec<String> = boss.all(
        "SELECT 'schema' FROM pg_namespace, aclexplode(nspacl) a WHERE nspname = 'taskq' AND a.grantee <> nspowner
         UNION ALL SELECT relname FROM pg_class, aclexplode(relacl) a
                    WHERE relnamespace = 'taskq'::regnamespace AND a.grantee <> relowner
         UNION ALL SELECT proname FROM pg_proc, aclexplode(COALESCE(proacl, acldefault('f', proowner))) a
                    WHERE pronamespace = 'taskq'::regnamespace AND a.grantee <> proowner
         UNION ALL SELECT typname FROM pg_type, aclexplode(COALESCE(typacl, acldefault('T', typowner))) a
                    WHERE typnamespace = 'taskq'::regnamespace AND typtype = 'd' AND a.grantee <> typowner",
    );
    assert_eq!(open, [""; 0]);
    // A part is as wide as anywhere else.
    boss.run(&format!("SELECT taskq.grant_monitor('{}')", reader.name));
    let mut session = db.connect_as(&reader.name);
    session.run("SELECT * FROM taskq.tasks");
    for call in [
        "SELECT * FROM taskq.run",
        "SELECT taskq.insert_task('a', 'x')",
        "SELECT taskq.own_tasks('w', 1, '{x}')",
        "SELECT taskq.maintain()",
    ] {
        assert_denied(&mut session, call);
    }
    drop(session);
    boss.run(&format!(
        "SELECT taskq.revoke_monitor('{0}'); DROP OWNED BY \"{0}\"; DROP EXTENSION taskq",
        reader.name
    ));
    for what in ["TABLES", "SEQUENCES", "ROUTINES", "TYPES", "SCHEMAS"] {
        boss.run(&grant(what).replace("GRANT ALL", "REVOKE ALL").replace(" TO ", " FROM "));
    }
}

/// Texts are UTF-8 in Rust. In a database of another encoding they would come back changed, or not at all.
#[test]
fn a_database_of_another_encoding_is_refused() {
    for encoding in ["LATIN1", "SQL_ASCII", "EUC_JP"] {
        let name = format!("t_{}_{}", encoding.to_lowercase(), std::process::id());
        admin(&format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"));
        let outcome = {
            let config = taskq_tests::db::config();
            let mut client = config.clone().dbname(&name).connect(postgres::NoTls).unwrap();
            client.batch_execute("CREATE EXTENSION taskq")
        };
        admin(&format!("DROP DATABASE {name} WITH (FORCE)"));
        let error = outcome.expect_err("the encoding is not UTF8");
        assert_eq!(sqlstate(&error), "0A000");
        let error = error.as_db_error().unwrap();
        assert!(error.message().contains("UTF8"), "{error:?}");
        assert!(error.detail().is_some_and(|detail| detail.contains(encoding)), "{error:?}");
        assert!(error.hint().is_some_and(|hint| hint.contains("ENCODING 'UTF8'")), "{error:?}");
    }
}

/// PostgreSQL takes a number, and `-` for none, where it reads the name of a role.
#[test]
fn a_part_is_given_to_a_role_that_exists() {
    let (_db, [mut session]) = Db::connected();
    for part in [
        "grant_producer",
        "grant_worker",
        "grant_monitor",
        "revoke_producer",
        "revoke_worker",
        "revoke_monitor",
    ] {
        for role in ["'-'", "'99999999'", "''", "'no such role'", "'a.b'", "'\"a'", "repeat('x', 1000)"] {
            refused(&mut session, "42704", "does not exist", &format!("SELECT taskq.{part}({role})"), &[]);
        }
    }
}

/// A backslash in a plain string is one or two of them, as the setting has it, and the whole script is read before its first statement.
#[test]
fn no_setting_of_the_database_changes_what_is_made() {
    let definitions = "SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p WHERE p.pronamespace = 'taskq'::regnamespace AND p.prokind <> 'a'
                       UNION ALL
                       SELECT pg_get_viewdef(c.oid) FROM pg_class AS c WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'v'
                       ORDER BY 1";
    let of = |settings: &[&str]| -> Vec<String> {
        let db = Db::empty();
        for setting in settings {
            admin(&format!("ALTER DATABASE \"{}\" SET {setting}", db.name()));
        }
        let mut boss = db.connect();
        boss.run("SET client_min_messages = error; CREATE EXTENSION taskq");
        boss.run("SET standard_conforming_strings = on; SET quote_all_identifiers = off");
        boss.all(definitions)
    };
    let plain = of(&[]);
    assert!(plain.len() > 150, "{} definitions", plain.len());
    let other =
        of(&["standard_conforming_strings = off", "backslash_quote = off", "escape_string_warning = off"]);
    for (plain, other) in plain.iter().zip(&other) {
        assert_eq!(plain, other);
    }
    assert_eq!(plain.len(), other.len());
}
