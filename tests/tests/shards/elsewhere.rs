//! Tokens that were granted on another shard: `TQ001` in every call that takes tokens, whether or not there is a task of that
//! id here, and whatever number its task has here.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, refused};
use uuid::Uuid;

use super::{set, shard_of};

const BOTH: &str = "'ann', ARRAY[$1], ARRAY[$2::uuid]";

/// Two queues in which the same insertions have been made; the second one holds its first task.
fn two() -> (Db, Session, Db, Uuid) {
    let (here, there) = (Db::new(), Db::new());
    let (mut session, mut other) = (here.connect(), there.connect());
    set(&mut session, 1);
    set(&mut other, 2);
    for session in [&mut session, &mut other] {
        session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    }
    let foreign = other.own_one("x").token;
    assert_eq!(shard_of(&mut session, foreign), Some(2));
    (here, session, there, foreign)
}

#[test]
fn a_token_of_another_shard_is_good_for_nothing() {
    let (_here, mut session, _there, foreign) = two();
    let own = session.own_one("x");
    assert_eq!(own.task_id, "a");
    // A task that is held here, one that is ready, one that there is not, and one that stands for its tasks over there.
    for id in ["a", "b", "absent"] {
        let error = refused(&mut session, "TQ001", id, "SELECT taskq.return_task($1, $2)", &[&id, &foreign]);
        assert_eq!(error.detail(), Some("It was granted on shard 2, and this is shard 1."));
        assert!(error.hint().unwrap().contains("shard_of"), "{error:?}");
        let report = "SELECT taskq.report_status($1, $2, 'here')";
        let error = refused(&mut session, "TQ001", id, report, &[&id, &foreign]);
        assert_eq!(error.detail(), Some("It was granted on shard 2, and this is shard 1."));
        let codes = |session: &mut Session, query: &str| -> Vec<Option<String>> {
            session.query(query, &[&id, &foreign]).unwrap().iter().map(|row| row.get(0)).collect()
        };
        let bad = [Some("TQ001".to_owned())];
        assert_eq!(
            codes(&mut session, "SELECT sqlstate FROM taskq.return_tasks(ARRAY[$1], ARRAY[$2::uuid])"),
            bad
        );
        let query = format!("SELECT sqlstate FROM taskq.return_and_own_tasks({BOTH}, 0, '{{x}}')");
        assert_eq!(codes(&mut session, &query), bad);
        let returns: Value = json!([{"task_id": id, "token": foreign, "status_code": "aborted"}]);
        for query in [
            "SELECT sqlstate FROM taskq.return_tasks($1)",
            "SELECT sqlstate FROM taskq.return_and_own_tasks('ann', $1, 0, '{x}')",
        ] {
            let codes: Vec<Option<String>> =
                session.query(query, &[&returns]).unwrap().iter().map(|row| row.get(0)).collect();
            assert_eq!(codes, bad, "{query}");
        }
        let extend = format!("SELECT owned::text FROM taskq.extend_tasks_ownership({BOTH}, '1 hour')");
        assert_eq!(codes(&mut session, &extend), [Some("false".to_owned())]);
    }
    session.complete(&own);
}

/// The same bits but for the shard: a number that is given here, and its nonce.
#[test]
fn the_shard_is_a_part_of_the_number() {
    let (_here, mut session, _there, _) = two();
    let own = session.own_one("x");
    let mut bits = own.token.as_u128();
    bits ^= 1 << 116;
    let forged = Uuid::from_u128(bits);
    assert_eq!(shard_of(&mut session, forged), Some(0));
    refused(&mut session, "TQ001", "a", "SELECT taskq.return_task($1, $2)", &[&"a", &forged]);
    session.complete(&own);
}

/// One that no grant can have made is not of another shard: an unknown id is what it was.
#[test]
fn an_unknown_id_with_any_uuid_is_an_unknown_task() {
    let (_here, mut session, _there, _) = two();
    refused(&mut session, "TQ003", "absent", "SELECT taskq.return_task('absent', $1)", &[&Uuid::new_v4()]);
    let own = session.own_one("x");
    refused(&mut session, "TQ003", "absent", "SELECT taskq.return_task('absent', $1)", &[&own.token]);
    refused(&mut session, "TQ003", "absent", "SELECT taskq.report_status('absent', $1)", &[&own.token]);
}
