//! Whose calls `stop_waiting` ends: those of the caller's own role, or of any if it is an operator.

use taskq_tests::{Background, Db, Session};

use super::{Role, assert_denied, with_part};

/// A call of actor `ann` that sleeps; how many tasks it comes back with.
fn asleep(session: Session, watcher: &mut Session) -> Background<i64> {
    let call = session.background(|session| {
        session.one("SELECT count(*) FROM taskq.own_tasks('ann', 1, '{ours}', wait => '60 seconds')")
    });
    watcher.until_asleep(call.pid());
    call
}

fn stop(session: &mut Session) -> i64 {
    session.one("SELECT taskq.stop_waiting('ann')")
}

#[test]
fn a_worker_ends_calls_of_its_own_role_and_an_operator_those_of_any() {
    let [one, two, three] = ["one", "two", "three"].map(Role::new);
    let (db, [mut boss]) = Db::connected();
    let mut worker = with_part(&db, &mut boss, &one, ("worker", ""));
    let mut narrowed = with_part(&db, &mut boss, &two, ("worker", ", '{ours}'"));
    let mut operator = with_part(&db, &mut boss, &three, ("operator", ""));
    let [of_one, of_two] = [&one, &two].map(|role| asleep(db.connect_as(&role.name), &mut boss));
    assert_eq!(stop(&mut worker), 1);
    assert_eq!(of_one.join().1, 0);
    assert_eq!(stop(&mut worker), 0, "the other is not its own");
    assert_eq!(stop(&mut narrowed), 1);
    assert_eq!(of_two.join().1, 0);
    let all = [&one, &two].map(|role| asleep(db.connect_as(&role.name), &mut boss));
    assert_eq!(stop(&mut operator), 2);
    let again = [&one, &two].map(|role| asleep(db.connect_as(&role.name), &mut boss));
    assert_eq!(stop(&mut boss), 2, "a superuser is an operator, too");
    all.into_iter().chain(again).for_each(|call| assert_eq!(call.join().1, 0));
}

/// The role is that with whose rights the call is made, and not the one that has logged in.
#[test]
fn the_role_is_the_one_that_is_set() {
    let [one, two] = ["one", "two"].map(Role::new);
    let (db, [mut boss]) = Db::connected();
    for role in [&one, &two] {
        drop(with_part(&db, &mut boss, role, ("worker", "")));
    }
    let as_role = |role: &Role| {
        let mut session = db.connect();
        session.run(&format!("SET ROLE \"{}\"; SET application_name = 'ann'", role.name));
        session
    };
    let sleeper = asleep(as_role(&one), &mut boss);
    let procedure = as_role(&one).background(|session| {
        let answer = session.simple_query("CALL taskq.wait_for_work('{ours}', '60 seconds', NULL)").unwrap();
        answer
            .iter()
            .any(|one| matches!(one, postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("t")))
    });
    boss.until_asleep(procedure.pid());
    assert_eq!(stop(&mut as_role(&two)), 0);
    assert_eq!(stop(&mut as_role(&one)), 2);
    assert_eq!((sleeper.join().1, procedure.join().1), (0, false));
}

#[test]
fn others_may_not() {
    for part in [("inserter", ""), ("producer", ""), ("monitor", "")] {
        let role = Role::new("part");
        let (db, [mut boss]) = Db::connected();
        let mut session = with_part(&db, &mut boss, &role, part);
        assert_denied(&mut session, "SELECT taskq.stop_waiting('ann')");
    }
}
