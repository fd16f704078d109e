//! Leases that have passed, and that others have locked in transactions that stay open: they are passed over.
//!
//! Why: a lease that no task needs any more was seen in each round of a call, though another transaction was about to remove
//! it, and so the call went round for as long as that stayed open; two such calls in transaction blocks went round for each
//! other, for ever. On wrong code a call does not come back (`statement_timeout` ends it), or comes back empty although
//! there are tasks behind those that are locked.

use serde_json::json;
use taskq_tests::{Db, Session, until};

fn owned_by(session: &mut Session, actor: &str, max_tasks: i32) -> Vec<String> {
    let grants = session.own_with(actor, max_tasks, &["x"], "lease => '1 hour'").unwrap();
    grants.into_iter().map(|grant| grant.task_id).collect()
}

/// The deadlines of all that is held have passed, in the order of the leases.
fn time_goes_by(session: &mut Session) {
    for table in ["run", "lease"] {
        session.run(&format!(
            "UPDATE taskq.{table} SET deadline = deadline - interval '2 hours' WHERE deadline < 'infinity'"
        ));
    }
}

/// A lease that no task needs, as what is prepared leaves them, and three leases of a task each.
fn one_stale_and_three_overdue(db: &Db) -> Session {
    let mut session = db.connect();
    session.insert(["a", "b", "c"].iter().map(|id| json!({"id": id, "action": "x"})).collect()).unwrap();
    for _ in 0..3 {
        assert_eq!(session.own_with("dead", 1, &["x"], "lease => '1 hour'").unwrap().len(), 1);
    }
    time_goes_by(&mut session);
    session.run(
        "INSERT INTO taskq.lease (deadline, keeper_no, base) SELECT min(deadline) - interval '1 second', 1, 1 FROM taskq.lease",
    );
    session
}

/// A worker ends the tries, and none is kept from the others by an open transaction.
#[test]
fn calls_in_open_blocks_do_not_go_round_for_each_other() {
    let db = Db::new();
    one_stale_and_three_overdue(&db);
    let mut workers: Vec<Session> = (0..4).map(|_| db.connect()).collect();
    let mut had = Vec::new();
    for (n, worker) in workers.iter_mut().enumerate() {
        worker.run("SET statement_timeout = '5 s'; BEGIN");
        let mut own = || owned_by(worker, &format!("w{n}"), 1);
        had.extend(if n < 3 {
            until("one comes", || Some(own()).filter(|had| !had.is_empty()))
        } else {
            own()
        });
    }
    had.sort();
    assert_eq!(had, ["a", "b", "c"]);
    for worker in &mut workers {
        worker.run("COMMIT");
    }
    assert_eq!(db.connect().broken(), Vec::<String>::new());
}

#[test]
fn nor_does_a_call_of_its_own_behind_many_that_are_locked() {
    let (db, [mut session]) = Db::connected();
    session.run("SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[260]))");
    for _ in 0..250 {
        assert_eq!(owned_by(&mut session, "dead", 1).len(), 1);
    }
    time_goes_by(&mut session);
    // Fifty of them have no task any more.
    session.run(
        "UPDATE taskq.lease SET base = 1
          WHERE ctid = ANY (ARRAY(SELECT ctid FROM taskq.lease ORDER BY deadline LIMIT 50))",
    );
    let mut holder = db.connect();
    holder.run("BEGIN");
    holder.run(
        "SELECT FROM taskq.run AS r, (SELECT l.keeper_no FROM taskq.lease AS l ORDER BY deadline LIMIT 240 FOR UPDATE) AS l
          WHERE r.task_no = l.keeper_no FOR UPDATE OF r",
    );
    let mut worker = db.connect();
    worker.run("SET statement_timeout = '5 s'");
    // Ten that no worker has had, and ten whose leases are not locked.
    assert_eq!(owned_by(&mut worker, "w", 100).len(), 20);
    assert_eq!(owned_by(&mut worker, "w", 100).len(), 0);
    let began = std::time::Instant::now();
    worker.run("SELECT taskq.maintain()");
    assert!(began.elapsed().as_secs() < 5);
    holder.run("ROLLBACK");
    assert_eq!(owned_by(&mut worker, "w", 300).len(), 190);
    // The tasks of the fifty leases have none.
    session.run("UPDATE taskq.run SET deadline = 'infinity' WHERE actor_id = 'dead'");
}
