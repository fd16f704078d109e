//! A version that does not exist: the next one, made of the script that is installed. It has something of each kind more, or
//! otherwise, and an update that leads there as a real one would.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use taskq_tests::{Db, Session};

use crate::objects::{differences, objects};

/// What the rehearsal changes, as `objects.sql` calls it.
pub const NEW_KINDS: [&str; 9] =
    ["member", "dumped", "relation r", "column", "constraint", "index", "view", "function", "type"];

/// What stands in the script of today, and in that of the next version.
const CHANGED: [(&str, &str); 8] = [
    (
        "    metadata jsonb,\n    CONSTRAINT task_id_key",
        "    metadata jsonb,\n    note text COLLATE \"C\",\n    CONSTRAINT task_id_key",
    ),
    (
        "COMMENT ON TABLE taskq.task IS",
        "COMMENT ON COLUMN taskq.task.note IS 'a note';\nCOMMENT ON TABLE taskq.task IS",
    ),
    (
        ") WITH (fillfactor = 45);\nCREATE INDEX run_claim_idx",
        ") WITH (fillfactor = 46);\nCREATE INDEX run_claim_idx",
    ),
    (
        "CREATE INDEX settled_at_idx ON taskq.settled (settled_at, task_no);",
        "CREATE INDEX settled_at_idx ON taskq.settled (settled_at, code);",
    ),
    (
        "'aborted', 'completed', 'cancelled', 'released', 'revoked'))\n);\nCREATE INDEX attempt_task_idx",
        "'aborted', 'completed', 'cancelled', 'released', 'revoked', 'noted'))\n);\nCREATE INDEX attempt_task_idx",
    ),
    (
        "    num_try integer NOT NULL,\n    started_at timestamptz,\n    ended_at",
        "    num_try integer NOT NULL DEFAULT 1,\n    started_at timestamptz,\n    ended_at",
    ),
    (
        "CHECK (VALUE IN ('completed', 'settled', 'aborted'));",
        "CHECK (VALUE IN ('completed', 'settled', 'aborted', 'noted'));",
    ),
    (
        "'let a role look at the views, count, check and wait';",
        "'let a role look at the views, count, check, note and wait';",
    ),
];

/// Added behind everything else but what takes rights back. A view gets one more column, whatever it has.
const ADDED: &str = "
DO $do$ BEGIN
    EXECUTE format('CREATE OR REPLACE VIEW taskq.workgroups AS SELECT v.*, v.workgroup <> $$$$ AS noted FROM (%s) AS v',
                   rtrim(pg_get_viewdef('taskq.workgroups'::regclass), ';'));
END $do$;
CREATE TABLE taskq.note (
    note_no bigint PRIMARY KEY,
    said text COLLATE \"C\" NOT NULL,
    CONSTRAINT note_said_check CHECK (said <> '')
) WITH (fillfactor = 90);
CREATE INDEX note_said_idx ON taskq.note (said);
COMMENT ON TABLE taskq.note IS 'notes';
CREATE SEQUENCE taskq.note_seq AS bigint CACHE 1;
SELECT pg_catalog.pg_extension_config_dump('taskq.note', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.note_seq', '');
CREATE DOMAIN taskq.noted AS text CONSTRAINT noted_check CHECK (VALUE <> '');
COMMENT ON DOMAIN taskq.noted IS 'a note';
CREATE VIEW taskq.notes AS SELECT n.said FROM taskq.note AS n;
COMMENT ON VIEW taskq.notes IS 'notes';
CREATE FUNCTION taskq.add_note(said text) RETURNS bigint LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ INSERT INTO taskq.note VALUES (nextval('taskq.note_seq'), said) RETURNING note_no $$;
COMMENT ON FUNCTION taskq.add_note IS 'add a note';
REVOKE ALL ON FUNCTION taskq.add_note(text) FROM PUBLIC;
REVOKE ALL ON DOMAIN taskq.noted FROM PUBLIC;
";
const TAKEN_BACK: &str = "-- What ALTER DEFAULT PRIVILEGES has given away";

/// The update. First of all it takes the locks that it will need; see docs/how-to/upgrade.md on who gives way.
const UPDATE: &str = "
LOCK TABLE taskq.task, taskq.run, taskq.settled, taskq.attempt IN ACCESS EXCLUSIVE MODE;
ALTER TABLE taskq.task ADD COLUMN note text COLLATE \"C\";
COMMENT ON COLUMN taskq.task.note IS 'a note';
ALTER TABLE taskq.run SET (fillfactor = 46);
DROP INDEX taskq.settled_at_idx;
CREATE INDEX settled_at_idx ON taskq.settled (settled_at, code);
ALTER TABLE taskq.attempt DROP CONSTRAINT attempt_outcome_check;
ALTER TABLE taskq.attempt ADD CONSTRAINT attempt_outcome_check
    CHECK (outcome IN ('pending', 'timeout', 'aborted', 'completed', 'cancelled', 'released', 'revoked', 'noted'));
ALTER TABLE taskq.attempt ALTER COLUMN num_try SET DEFAULT 1;
ALTER DOMAIN taskq.dependency_condition DROP CONSTRAINT dependency_condition_check;
ALTER DOMAIN taskq.dependency_condition ADD CONSTRAINT dependency_condition_check
    CHECK (VALUE IN ('completed', 'settled', 'aborted', 'noted'));
COMMENT ON FUNCTION taskq.grant_monitor IS 'let a role look at the views, count, check, note and wait';
";

const HEAD: &str = "\\echo Use \"ALTER EXTENSION taskq UPDATE\" to load this file. \\quit\n\
     SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);\n";

/// The version that `CREATE EXTENSION` installs.
fn current(session: &mut Session) -> String {
    session.one("SELECT default_version FROM pg_available_extensions WHERE name = 'taskq'")
}

/// Where the server looks for scripts.
fn installed(session: &mut Session) -> PathBuf {
    let share: String = session.one("SELECT setting FROM pg_config WHERE name = 'SHAREDIR'");
    Path::new(&share).join("extension")
}

/// Makes the scripts of the next version, where the server finds them; its name, and that of the version before.
pub fn next_version(session: &mut Session) -> (String, String) {
    let now = current(session);
    let next = format!("{}-dev", after(&now));
    let folder = installed(session);
    let script = fs::read_to_string(folder.join(format!("taskq--{now}.sql"))).expect("the script of today");
    let mut fresh = script;
    for (old, new) in CHANGED {
        assert_eq!(fresh.matches(old).count(), 1, "this stands once in the script: {old}");
        fresh = fresh.replace(old, new);
    }
    let (before, after) = fresh.split_once(TAKEN_BACK).expect("the end of the script");
    let update = format!("{HEAD}{UPDATE}{ADDED}");
    put(&folder, &format!("taskq--{next}.sql"), &format!("{before}{ADDED}{TAKEN_BACK}{after}"));
    put(&folder, &format!("taskq--{now}--{next}.sql"), &update);
    (now, next)
}

/// An update to a version that does only this.
pub fn update_script(session: &mut Session, to: &str, script: &str) {
    let (folder, now) = (installed(session), current(session));
    put(&folder, &format!("taskq--{now}--{to}.sql"), &format!("{HEAD}{script}"));
}

/// 0.1.1 for 0.1.0.
fn after(version: &str) -> String {
    let (front, last) = version.split('-').next().unwrap().rsplit_once('.').expect("a version has dots");
    format!("{front}.{}", last.parse::<u32>().expect("a number") + 1)
}

/// Whole, or not at all: other tests may be reading it.
fn put(folder: &Path, name: &str, text: &str) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let new = folder.join(format!("{name}.new"));
    fs::write(&new, text).expect("the server is a private one, whose folders may be written to");
    fs::rename(new, folder.join(name)).unwrap();
}

#[test]
fn an_update_leads_to_what_a_fresh_installation_has() {
    let (db, fresh) = (Db::empty(), Db::empty());
    let (mut session, mut other) = (db.connect(), fresh.connect());
    let (now, next) = next_version(&mut session);
    session.run(&format!("CREATE EXTENSION taskq VERSION '{now}'"));
    other.run(&format!("CREATE EXTENSION taskq VERSION '{next}'"));
    let (old, wanted) = (objects(&mut session), objects(&mut other));
    // The next version differs in each of these, so that there is something to update.
    let found = differences(&old, &wanted);
    for kind in NEW_KINDS {
        assert!(found.iter().any(|line| line[2..].starts_with(kind)), "the next version has no other {kind}");
    }
    session.run(&format!("ALTER EXTENSION taskq UPDATE TO '{next}'"));
    let found = differences(&objects(&mut session), &wanted);
    assert!(found.is_empty(), "updated (-) and fresh (+): {found:#?}");
}

/// An update that is rolled back has not been.
#[test]
fn an_update_that_fails_leaves_everything_as_it_was() {
    let db = Db::empty();
    let mut session = db.connect();
    let (now, next) = next_version(&mut session);
    session.run(&format!("CREATE EXTENSION taskq VERSION '{now}'"));
    session.run("SELECT taskq.insert_task('a', 'x')");
    let before = objects(&mut session);
    update_script(&mut session, "0.0.1-broken", &format!("{UPDATE}{ADDED}SELECT 1/0;"));
    session.batch_execute("ALTER EXTENSION taskq UPDATE TO '0.0.1-broken'").unwrap_err();
    assert_eq!(differences(&objects(&mut session), &before), [""; 0]);
    assert_eq!(session.perform("x", "completed"), "a");
    session.run(&format!("ALTER EXTENSION taskq UPDATE TO '{next}'"));
    session.run("SELECT taskq.insert_task('b', 'x')");
    assert_eq!(session.perform("x", "completed"), "b");
}
