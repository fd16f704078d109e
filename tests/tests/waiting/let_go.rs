//! What a transaction has taken and lets go of again wakes the calls that have passed over it meanwhile: by a rollback,
//! or because it only wanted to know whether it is free.
//!
//! Why: a call that has looked in such a moment sleeps, and nothing that it would hear of happens any more.

use taskq_tests::Db;

use crate::sleeper::{Sleeper, WORK};

struct Case {
    name: &'static str,
    before: &'static str,
    open: &'static str,
    end: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "a grant",
        before: "SELECT taskq.insert_task('a', 'x')",
        open: "SELECT taskq.own_tasks('v', 1, '{x}')",
        end: "ROLLBACK",
    },
    Case {
        name: "a leader with its riders",
        before: "SELECT taskq.insert_task('l', 'x', merge_key => 'k'), taskq.insert_task('a', 'x', merge_key => 'k')",
        open: "SELECT taskq.own_tasks('v', 1, '{x}')",
        end: "ROLLBACK",
    },
    Case {
        name: "entries that were only moved",
        before: "SELECT taskq.insert_task('a', 'x', workgroup => 'api'); SELECT taskq.delay_workgroup('api', '0.5 seconds')",
        open: "SELECT taskq.own_tasks('v', 1, '{x}'), pg_sleep(1)",
        end: "ROLLBACK",
    },
    Case {
        name: "what was to be cancelled",
        before: "SELECT taskq.insert_task('a', 'x')",
        open: "SELECT taskq.cancel_tasks('{a}')",
        end: "ROLLBACK",
    },
    Case {
        name: "the run before that a schedule has found",
        before: "SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"x\"}', overlap => 'skip'); SELECT pg_sleep(1.1); \
                 SELECT taskq.maintain(), pg_sleep(1.1)",
        open: "SELECT taskq.maintain()",
        end: "SELECT taskq.unschedule('s'); COMMIT",
    },
];

#[test]
fn what_a_transaction_lets_go_of_wakes_calls_that_have_passed_over_it() {
    let db = Db::new();
    for case in CASES {
        for way in WORK {
            eprintln!("{}, {}", way.name, case.name); // shown only if the test fails
            db.clear();
            let (mut session, mut watcher) = (db.connect(), db.connect());
            session.run(case.before);
            session.run("BEGIN");
            session.run(case.open);
            let sleeper = Sleeper::start(&db, &mut watcher, way);
            session.run(case.end);
            drop(sleeper.woken_by(case.name));
        }
    }
}

/// A claim locks the key before the entry, and here another transaction has that just then. So it leaves with the key
/// and without the entry, and a call that looks before it commits passes over all that has the key.
#[test]
fn a_merge_key_that_was_locked_and_not_used_wakes_a_waiting_call() {
    let db = Db::new();
    for way in WORK {
        db.clear();
        let (mut holder, mut session, mut watcher) = (db.connect(), db.connect(), db.connect());
        session.run("SELECT taskq.insert_task('a', 'x', merge_key => 'k')");
        holder.run("BEGIN; SELECT FROM taskq.run FOR UPDATE");
        session.run("BEGIN");
        assert!(session.own("v", 1, &["x"]).unwrap().is_empty());
        holder.run("ROLLBACK");
        let sleeper = Sleeper::start(&db, &mut watcher, way);
        session.run("COMMIT");
        drop(sleeper.woken_by("the commit of the claim that had the key"));
    }
}
