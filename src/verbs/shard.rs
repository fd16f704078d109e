//! Shards: servers that share a load, each a queue of its own. All that a queue knows of it is its number, which the
//! numbers of its tasks carry, and so its tokens: see [`crate::token`].
//!
//! **The number is where the sequence is.** Its values are what a dump takes along, so the number comes with the data,
//! and is not looked up to make a task. Setting it restarts the sequence, which is transactional, and locks it: the
//! call waits for transactions that have taken a number, and those that want one wait for the call. So no transaction
//! has tasks of two shards.
//!
//! **Before the first task.** A name of an action gets a number with the first task of it, and keeps that. A queue without
//! any has never had a task: nothing that is stored, and no token, has a number that could be given out again.

use pgrx::datum::Uuid;
use pgrx::prelude::*;

use crate::error::{Refusal, Result, or_throw, required};
use crate::pg::statement::Statement;
use crate::store::positions;
use crate::token::{MOST_SHARDS, Token, first_of};

/// `taskq.set_shard(n integer) -> void`
#[pg_extern(sql = "")]
fn taskq_set_shard(n: Option<i32>) {
    or_throw(set_shard(n));
}

/// `taskq.shard() -> integer`
#[pg_extern(sql = "")]
fn taskq_shard() -> i32 {
    positions::shard()
}

/// `taskq.shard_of(token uuid) -> integer`: NULL where it has not the form of a token.
#[pg_extern(sql = "")]
fn taskq_shard_of(token: Uuid) -> Option<i32> {
    Token::from_uuid(&token).map(Token::shard)
}

static HAS_HAD_TASKS: Statement<(), bool> = Statement::new(c"SELECT EXISTS (SELECT FROM taskq.action)");
static RESTART: Statement<i64, ()> = Statement::new(c"SELECT taskq._restart_numbers($1)");

fn set_shard(n: Option<i32>) -> Result<()> {
    let n = required("n", n)?;
    if !(0..MOST_SHARDS).contains(&n) {
        return Err(Refusal::out_of_range(
            "n",
            &n.to_string(),
            &format!("Give a number from 0 to {}.", MOST_SHARDS - 1),
        ));
    }
    // Before the lock, so that the call does not wait for what is refused; and once more when the transactions that it
    // waited for have ended.
    refuse_after_the_first_task()?;
    RESTART.execute(first_of(n));
    refuse_after_the_first_task()
}

fn refuse_after_the_first_task() -> Result<()> {
    match HAS_HAD_TASKS.first(()) {
        Some(true) => Err(Refusal::shard_is_set(positions::shard())),
        _ => Ok(()),
    }
}
