//! Shards: the number of a queue among several, which its tasks' numbers and tokens carry.
//!
//! On wrong code a transaction that inserts while the number is set has tasks of two shards; a session that has looked before
//! does not find what comes at lower positions; the number is lost on the way to another server; or a token that was granted
//! elsewhere is good here, or is said to be of a task that does not exist.

mod elsewhere;
mod setting;

use taskq_tests::Session;
use uuid::Uuid;

fn shard_of(session: &mut Session, token: Uuid) -> Option<i32> {
    session.query_one("SELECT taskq.shard_of($1)", &[&token]).unwrap().get(0)
}

fn set(session: &mut Session, n: i32) {
    session.run(&format!("SELECT taskq.set_shard({n})"));
    assert_eq!(session.one::<i32>("SELECT taskq.shard()"), n);
}
