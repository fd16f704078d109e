//! Rights: nothing for PUBLIC; one call gives a role its part and one takes it back; no role but the owner of the
//! extension touches a table.
//!
//! A function that runs with its caller's rights, or a table that PUBLIC may read, fails here.

mod claims;
mod forbidden;
mod inserters;
mod install;
mod narrowed;
mod narrowed_groups;
mod narrowed_signals;
mod revoked;
mod roles;
mod search_path;
mod settings;
mod stopping;
mod untold;

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use taskq_tests::db::admin;
use taskq_tests::{Db, Session, sqlstate};

/// A role of the cluster that goes with this value. To be declared before the database, so that it goes after it.
struct Role {
    name: String,
}

impl Role {
    fn new(kind: &str) -> Role {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t_{kind}_{}_{}", COUNTER.fetch_add(1, Ordering::Relaxed), process::id());
        admin(&format!("CREATE ROLE \"{name}\" LOGIN"));
        Role { name }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        admin(&format!("DROP ROLE IF EXISTS \"{}\"", self.name));
    }
}

/// Every part that there is, as it is given: `grant_` with this and the arguments behind the role.
const PARTS: [(&str, &str); 8] = [
    ("inserter", ""),
    ("inserter", ", '{ours}'"),
    ("producer", ""),
    ("producer", ", '{ours}'"),
    ("worker", ""),
    ("worker", ", '{ours}'"),
    ("operator", ""),
    ("monitor", ""),
];

/// A session of the role with this part, and no other.
fn with_part(db: &Db, boss: &mut Session, role: &Role, (part, arguments): (&str, &str)) -> Session {
    boss.run(&format!("SELECT taskq.grant_{part}('{}'{arguments})", role.name));
    let mut session = db.connect_as(&role.name);
    // The library is loaded by its first function: the parts have none in common.
    session.batch_execute("SELECT taskq.insert_tasks('[]')").ok();
    session.batch_execute("SELECT taskq.clock()").ok();
    session
}

fn without_part(boss: &mut Session, role: &Role, (part, _): (&str, &str)) {
    boss.run(&format!("SELECT taskq.revoke_{part}('{}')", role.name));
}

/// The call must fail for want of a right.
fn assert_denied(session: &mut Session, call: &str) {
    match session.batch_execute(call) {
        Ok(()) => panic!("{call} must be denied"),
        Err(error) => assert_eq!(sqlstate(&error), "42501", "{call}: {error:?}"),
    }
}

/// The call may fail for any reason but want of a right.
fn assert_allowed(session: &mut Session, call: &str) {
    if let Err(error) = session.batch_execute(call) {
        assert_ne!(sqlstate(&error), "42501", "{call}: {error:?}");
    }
}
