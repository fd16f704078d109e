//! The worker has the rights of the extension's owner, and of no role that could have put something in its way.

use std::thread;
use std::time::{Duration, Instant};

use taskq_tests::{Session, until};

use super::cluster::{runs, start};

const EVERY_SECOND: &str = "SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"x\", \"group_id\": \"g\"}', overlap => 'queue')";

/// What the owner of functions puts into those that the worker calls, or has called, by their names.
fn trap(session: &mut Session, role: &str) {
    for (function, result, value) in [
        ("_next_upkeep()", "timestamptz", "NULL"),
        ("_upkeep(kind text)", "boolean", "false"),
        ("_lane(group_id text)", "bigint", "1"),
        ("_key_hash(action text, group_id text, key text)", "bigint", "1"),
    ] {
        // With the rights that it is called with, and with those that it may get back to.
        session.run(&format!(
            "CREATE OR REPLACE FUNCTION taskq.{function} RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN
               IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
                 EXECUTE 'ALTER ROLE {role} SUPERUSER';
               ELSIF (SELECT rolsuper FROM pg_roles WHERE rolname = session_user) THEN
                 BEGIN
                   EXECUTE 'RESET ROLE';
                   EXECUTE 'ALTER ROLE {role} SUPERUSER';
                 EXCEPTION WHEN OTHERS THEN NULL;
                 END;
               END IF;
               RETURN {value};
             END $$"
        ));
    }
}

#[test]
fn the_owner_of_the_functions_gains_no_rights_by_the_worker() {
    let cluster = start("owner");
    let mut session = cluster.connect();
    session.run("CREATE ROLE dba2 SUPERUSER; CREATE ROLE exdba SUPERUSER; CREATE ROLE app2");
    for (database, installer, leaves, owner) in [
        ("reassigned", "dba2", "REASSIGN OWNED BY dba2 TO app2", "app2"),
        ("degraded", "exdba", "ALTER ROLE exdba NOSUPERUSER", "exdba"),
    ] {
        session.run(&format!("CREATE DATABASE {database}"));
        let mut inside = cluster.connect_to(database);
        inside.run(&format!(
            "SET SESSION AUTHORIZATION {installer}; CREATE EXTENSION taskq; RESET SESSION AUTHORIZATION"
        ));
        inside.run(leaves);
        inside.run(&format!("SET ROLE {owner}"));
        trap(&mut inside, owner);
        inside.run("RESET ROLE");
        inside.run(EVERY_SECOND);
        // It works with the owner's rights: runs come, with whatever the owner has made of the functions.
        runs(&mut inside, "tick", 3);
        // Deadlines that pass, merge keys and due tasks are handled by statements that call functions by name.
        inside.run(
            "SELECT taskq.insert_task('held', 'h', max_tries => 1, merge_key => 'k', group_id => 'g'); \
             SELECT taskq.own_tasks('w', 1, '{h}', lease => '0.2 seconds'); \
             SELECT taskq.insert_task('delayed', 'h', delay => '0.2 seconds', group_id => 'g')",
        );
        until("the worker ends the try", || (inside.state("held") == "aborted").then_some(()));
        thread::sleep(Duration::from_secs(1));
        let rises: bool = inside.one(&format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{owner}'"));
        assert!(!rises, "{owner} has become a superuser");
        inside.run("SELECT taskq.unschedule('tick')");
    }
}

#[test]
#[ignore = "long"]
fn nothing_is_done_where_something_of_others_is_on_the_tables() {
    let cluster = start("foreign");
    let mut session = cluster.connect();
    session.run(
        "CREATE ROLE app2; CREATE SCHEMA app; \
         CREATE FUNCTION app.spy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE FUNCTION app.even(n bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN true; END'; \
         CREATE TABLE app.child () ",
    );
    session.run(EVERY_SECOND);
    // The log of an earlier run may still be there.
    let said = || cluster.log().matches("there is a trigger on task").count();
    let before_all = said();
    for (put, take) in [
        (
            "CREATE TRIGGER spy AFTER INSERT ON taskq.task EXECUTE FUNCTION app.spy()",
            "DROP TRIGGER spy ON taskq.task",
        ),
        ("CREATE RULE spy AS ON INSERT TO taskq.run DO ALSO NOTIFY spy", "DROP RULE spy ON taskq.run"),
        (
            "CREATE POLICY spy ON taskq.lease USING (app.even(1)); ALTER TABLE taskq.lease ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE taskq.lease DISABLE ROW LEVEL SECURITY; DROP POLICY spy ON taskq.lease",
        ),
        ("CREATE INDEX spy ON taskq.settled (app.even(task_no))", "DROP INDEX taskq.spy"),
        ("CREATE INDEX spy ON taskq.settled (task_no) WHERE app.even(task_no)", "DROP INDEX taskq.spy"),
        (
            "ALTER TABLE taskq.schedule ADD CONSTRAINT spy CHECK (app.even(1)) NOT VALID",
            "ALTER TABLE taskq.schedule DROP CONSTRAINT spy",
        ),
        ("ALTER FUNCTION taskq._lane OWNER TO app2", "ALTER FUNCTION taskq._lane OWNER TO CURRENT_USER"),
        ("ALTER TABLE taskq.countdown OWNER TO app2", "ALTER TABLE taskq.countdown OWNER TO CURRENT_USER"),
        ("ALTER SCHEMA taskq OWNER TO app2", "ALTER SCHEMA taskq OWNER TO CURRENT_USER"),
    ] {
        let more = tasks(&mut session) + 1;
        runs(&mut session, "tick", more);
        session.run(put);
        // What is under way may end.
        thread::sleep(Duration::from_millis(300));
        let before = tasks(&mut session);
        thread::sleep(Duration::from_millis(1_500));
        assert_eq!(tasks(&mut session), before, "{put}");
        session.run(take);
        // A commit to the queue has it look again.
        let began = Instant::now();
        session.run("SELECT taskq.insert_task(NULL, 'y', delay => '1 millisecond')");
        until("it goes on", || (tasks(&mut session) > before + 1).then_some(()));
        assert!(began.elapsed() < Duration::from_secs(5), "{take}: {:?}", began.elapsed());
    }
    assert_eq!(said(), before_all + 1, "once for each cause");
}

fn tasks(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.tasks WHERE id LIKE 'tick@%'")
}
