//! What `why` says of a task whose merge key is taken.
//!
//! Why: "tells why a task is not running". A task with a taken key looks ready. On wrong code nothing is said of it before a claim
//! has met it.

use serde_json::json;
use taskq_tests::Db;

#[test]
fn a_taken_key_is_named_before_and_after_a_claim_has_met_the_task() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "first", "action": "x", "merge_key": "k"}])).unwrap();
    assert!(
        session.all::<String>("SELECT taskq.why('first')").iter().all(|reason| !reason.contains("merge"))
    );
    let first = session.own_one("x");
    session
        .insert(json!([{"id": "later", "action": "x", "merge_key": "k"},
                          {"id": "another", "action": "x", "merge_key": "l"},
                          {"id": "elsewhere", "action": "x", "merge_key": "k", "group_id": "g"}]))
        .unwrap();
    let taken = "a task with the same merge key \"k\" runs: \"first\"";
    assert_eq!(session.all::<String>("SELECT taskq.why('later')")[0], taken, "no claim has met it");
    for id in ["another", "elsewhere"] {
        let reasons: Vec<String> = session.all(&format!("SELECT taskq.why('{id}')"));
        assert!(reasons.iter().all(|reason| !reason.contains("merge")), "{id}: {reasons:?}");
    }
    session.own("w", 9, &["x"]).unwrap();
    assert_eq!(session.all::<String>("SELECT taskq.why('later')")[0], taken, "a claim has parked it");
    session.complete(&first);
    assert!(
        session.all::<String>("SELECT taskq.why('later')").iter().all(|reason| !reason.contains("merge"))
    );
}
