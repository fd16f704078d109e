//! The comparison of two installations, object by object.

use std::collections::{BTreeMap, BTreeSet};

use taskq_tests::{Db, Session};

use crate::rehearsal::NEW_KINDS;

/// What the catalog says of everything that the extension has.
pub type Objects = BTreeSet<(String, String, String)>;

/// See there.
const OBJECTS: &str = include_str!("objects.sql");

pub fn objects(session: &mut Session) -> Objects {
    session.run("SET search_path = pg_catalog");
    let rows = session.query(OBJECTS, &[]).expect("the catalog");
    let found: Objects = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(found.len(), rows.len(), "each line is there once");
    session.run("RESET search_path");
    found
}

/// What only one of the two has: `-` the first, `+` the second.
pub fn differences(first: &Objects, second: &Objects) -> Vec<String> {
    let line = |sign, (kind, name, said): &(String, String, String)| format!("{sign} {kind} {name}: {said}");
    let mut lines: Vec<String> = first.difference(second).map(|object| line('-', object)).collect();
    lines.extend(second.difference(first).map(|object| line('+', object)));
    lines
}

#[test]
fn two_fresh_installations_are_the_same() {
    let (first, second) = (Db::new(), Db::empty());
    let mut session = second.connect();
    session.run("CREATE EXTENSION taskq");
    let (first, second) = (objects(&mut first.connect()), objects(&mut session));
    assert_eq!(differences(&first, &second), [""; 0]);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (kind, ..) in &first {
        *kinds.entry(kind).or_default() += 1;
    }
    // It has looked at something.
    for kind in [
        "member",
        "dumped",
        "relation r",
        "relation v",
        "relation i",
        "relation S",
        "column",
        "constraint",
        "index",
        "view",
        "sequence",
        "function",
        "type",
        "operator",
        "dependence",
        "initial rights",
    ] {
        assert!(kinds.contains_key(kind), "no {kind} among {kinds:?}");
    }
}

/// One change of each kind that an update may forget or do otherwise: each is found.
#[test]
fn a_difference_of_each_kind_is_found() {
    let changes: &[(&str, &str)] = &[
        ("member", "CREATE TABLE taskq.more (); ALTER EXTENSION taskq ADD TABLE taskq.more"),
        ("member", "ALTER EXTENSION taskq DROP VIEW taskq.top"),
        (
            "dumped",
            "UPDATE pg_extension SET extconfig = extconfig[2:], extcondition = extcondition[2:] WHERE extname = 'taskq'",
        ),
        ("dumped", "UPDATE pg_extension SET extcondition[1] = 'WHERE true' WHERE extname = 'taskq'"),
        ("initial rights", "DELETE FROM pg_init_privs WHERE objoid = 'taskq.check()'::regprocedure"),
        ("schema", "COMMENT ON SCHEMA taskq IS 'another'"),
        ("schema", "GRANT USAGE ON SCHEMA taskq TO PUBLIC"),
        ("rights by default", "ALTER DEFAULT PRIVILEGES IN SCHEMA taskq GRANT SELECT ON TABLES TO PUBLIC"),
        ("relation r", "ALTER TABLE taskq.run SET (fillfactor = 46)"),
        ("relation r", "COMMENT ON TABLE taskq.run IS NULL"),
        ("relation r", "ALTER TABLE taskq.countdown SET UNLOGGED"),
        ("relation r", "GRANT SELECT ON taskq.run TO pg_monitor"),
        ("relation r", "ALTER TABLE taskq.run OWNER TO pg_monitor"),
        ("relation r", "ALTER TABLE taskq.run ENABLE ROW LEVEL SECURITY"),
        ("relation r", "ALTER TABLE taskq.run REPLICA IDENTITY FULL"),
        ("relation v", "ALTER VIEW taskq.top SET (security_barrier)"),
        ("column", "ALTER TABLE taskq.task ADD COLUMN more text"),
        ("column", "ALTER TABLE taskq.task ADD COLUMN more text; ALTER TABLE taskq.task DROP COLUMN more"),
        ("column", "ALTER TABLE taskq.task RENAME COLUMN body TO other"),
        ("column", "ALTER TABLE taskq.part_action ALTER COLUMN action TYPE varchar(900)"),
        ("column", "ALTER TABLE taskq.task ALTER COLUMN body SET NOT NULL"),
        ("column", "ALTER TABLE taskq.task ALTER COLUMN body SET DEFAULT 'x'"),
        ("column", "ALTER TABLE taskq.bucket ALTER COLUMN position DROP DEFAULT"),
        ("column", "ALTER TABLE taskq.task ALTER COLUMN body SET STORAGE EXTERNAL"),
        ("column", "ALTER TABLE taskq.task ALTER COLUMN body SET STATISTICS 7"),
        ("column", "COMMENT ON COLUMN taskq.task.body IS 'x'"),
        ("column", "GRANT SELECT (body) ON taskq.task TO pg_monitor"),
        ("constraint", "ALTER TABLE taskq.attempt DROP CONSTRAINT attempt_outcome_check"),
        ("constraint", "ALTER TABLE taskq.attempt ADD CHECK (num_try > 0) NOT VALID"),
        ("constraint", "ALTER DOMAIN taskq.status_code DROP CONSTRAINT status_code_check"),
        ("constraint", "ALTER TABLE taskq.task RENAME CONSTRAINT task_id_key TO other"),
        ("index", "CREATE INDEX more ON taskq.task (body)"),
        (
            "index",
            "DROP INDEX taskq.run_lane_idx; CREATE INDEX run_lane_idx ON taskq.run (action_no, priority, lane, position) WHERE lane <> 0",
        ),
        (
            "index",
            "DROP INDEX taskq.run_lane_idx; CREATE INDEX run_lane_idx ON taskq.run (action_no, priority DESC, lane, position)",
        ),
        ("index", "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'taskq.run_lane_idx'::regclass"),
        ("relation i", "ALTER INDEX taskq.run_lane_idx SET (fillfactor = 51)"),
        (
            "view",
"DO $do$ BEGIN EXECUTE format('CREATE OR REPLACE VIEW taskq.workgroups AS SELECT v.* FROM (%s) AS v LIMIT 7',
                rtrim(pg_get_viewdef('taskq.workgroups'::regclass), ';')); END $do$",
        ),
        ("sequence", "ALTER SEQUENCE taskq.position_seq CACHE 2"),
        ("sequence", "ALTER SEQUENCE taskq.position_seq OWNED BY taskq.task.task_no"),
        ("function", "ALTER FUNCTION taskq.check() COST 7"),
        ("function", "ALTER FUNCTION taskq.check() VOLATILE"),
        ("function", "ALTER FUNCTION taskq.check() RESET ALL"),
        ("function", "ALTER FUNCTION taskq.check() SECURITY INVOKER"),
        ("function", "COMMENT ON FUNCTION taskq.check() IS 'x'"),
        ("function", "GRANT EXECUTE ON FUNCTION taskq.check() TO PUBLIC"),
        (
            "function",
            "CREATE OR REPLACE FUNCTION taskq._is_worker() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN false",
        ),
        (
            "function",
            "UPDATE pg_proc SET prosrc = 'taskq_own_tasks_wrapper' WHERE prosrc = 'taskq_delete_tasks_wrapper'",
        ),
        ("type", "ALTER TYPE taskq.named_only ADD VALUE 'x'"),
        ("type", "ALTER TYPE taskq._schema_1 RENAME TO _schema_2"),
        ("type", "ALTER DOMAIN taskq.status_code SET DEFAULT 'pending'"),
        ("type", "ALTER DOMAIN taskq.status_code SET NOT NULL"),
        (
            "type",
            "REVOKE ALL ON DOMAIN taskq.status_code FROM PUBLIC; GRANT USAGE ON DOMAIN taskq.status_code TO pg_monitor",
        ),
        ("operator", "ALTER OPERATOR taskq.=== (bigint, bigint) SET (RESTRICT = NONE)"),
        (
            "trigger",
            "CREATE TRIGGER t BEFORE UPDATE ON taskq.task FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        ),
        ("rule", "CREATE RULE r AS ON DELETE TO taskq.task DO ALSO NOTHING"),
        ("policy", "CREATE POLICY p ON taskq.task USING (true)"),
        ("statistics", "CREATE STATISTICS taskq.s ON id, body FROM taskq.task"),
        ("dependence", "ALTER FUNCTION taskq.check() DEPENDS ON EXTENSION plpgsql"),
        ("extension", "COMMENT ON EXTENSION taskq IS 'x'"),
        ("extension", "UPDATE pg_extension SET extversion = 'x' WHERE extname = 'taskq'"),
    ];
    let (_db, [mut session]) = Db::connected();
    session.run("SET allow_system_table_mods = on");
    let before = objects(&mut session);
    let mut kinds = BTreeSet::new();
    for (kind, change) in changes {
        session.run("BEGIN");
        session.run(change);
        let found = differences(&before, &objects(&mut session));
        assert!(
            found.iter().any(|line| line[2..].starts_with(kind)),
            "{change}: no difference of the kind {kind} among {found:#?}"
        );
        session.run("ROLLBACK");
        kinds.insert(*kind);
    }
    assert_eq!(differences(&before, &objects(&mut session)), [""; 0]);
    // Kinds that the rehearsal has are here as well.
    for kind in NEW_KINDS {
        assert!(kinds.contains(kind), "{kind}");
    }
}
