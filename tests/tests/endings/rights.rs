//! Who reads ends, and of which actions.

use taskq_tests::{Db, sqlstate};

use crate::ended;

#[test]
fn a_narrowed_part_sees_the_ends_of_its_actions() {
    let (db, [mut session]) = Db::connected();
    let role = format!("{} reader", db.name());
    session.run(&format!("CREATE ROLE \"{role}\" LOGIN"));
    session.run("SELECT taskq.insert_task('a', 'mine'), taskq.insert_task('b', 'theirs'); SELECT taskq.cancel_tasks('{a,b}')");
    let both = ["a aborted cancelled", "b aborted cancelled"];
    for (part, narrowing, seen) in [
        ("monitor", "", &both[..]),
        ("operator", "", &both[..]),
        ("producer", "", &both[..]),
        ("worker", "", &both[..]),
        ("producer", ", '{mine}'", &both[..1]),
        ("worker", ", '{mine}'", &both[..1]),
    ] {
        session.run(&format!("SELECT taskq.grant_{part}('\"{role}\"'{narrowing})"));
        let mut reader = db.connect_as(&role);
        assert_eq!(ended(&mut reader, None), seen, "{part}{narrowing}");
        if !narrowing.is_empty() {
            let others = reader.batch_execute("SELECT taskq.endings(actions => '{theirs}')").unwrap_err();
            assert_eq!(sqlstate(&others), "42501");
        }
        session.run(&format!("SELECT taskq.revoke_{part}('\"{role}\"')"));
    }
    session.run(&format!("SELECT taskq.grant_inserter('\"{role}\"')"));
    let inserter = db.connect_as(&role).batch_execute("SELECT taskq.endings()").unwrap_err();
    assert_eq!(sqlstate(&inserter), "42501");
    session.run(&format!("SELECT taskq.revoke_inserter('\"{role}\"'); DROP ROLE \"{role}\""));
}
