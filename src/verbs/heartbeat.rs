//! The sleep of `extend_tasks_ownership(wait =>)`: until one of the tasks is held no more, a deadline is near, or the time is up.
//!
//! **It holds no row while it sleeps.** Its looks give up their locks at once, and it has written nothing: otherwise a cancel
//! would have to wait for the row of the task, and the call could not be woken by it. So the extension that comes before the
//! sleep is made by a process that commits ([`errand`]); where there is none, or the caller has begun a transaction
//! block, none is made, and the call comes back before the first deadline that can be moved would pass.
//!
//! **It is woken by an end.** A change that makes a token void is noted for the task ([`wake::let_go`], [`wake::settled`]), and its
//! commit, where that calls back, wakes the calls that are registered for that; a commit between a look and the sleep finds the
//! registration. A call for more than [`MOST_CHANNELS`] tasks looks every second besides.

use std::collections::HashMap;
use std::time::Duration;

use pgrx::datum::{Interval, Uuid};
use pgrx::pg_sys;

use super::more_time::more_time;
use super::waiter::Waiter;
use crate::background::errand;
use crate::clock;
use crate::error::Result;
use crate::locks::tables;
use crate::number::TaskNo;
use crate::pg::block;
use crate::pg::clock::Time;
use crate::pg::process;
use crate::pg::statement::{Statement, record};
use crate::pg::subtransaction::keeping_no_locks;
use crate::returns::tokens::valid;
use crate::rights::{self, Doing};
use crate::store::run;
use crate::token::{Nonce, Token, in_pieces};
use crate::upkeep::Next;
use crate::wake;

/// For how many tasks a call registers at most: the server's table of locks has room for some for each connection.
const MOST_CHANNELS: usize = 16;

/// How often a call looks that holds more.
const LOOK: Duration = Duration::from_secs(1);

/// So long before a deadline passes that can still be moved the call comes back, or a quarter of what is left when it begins, if
/// that is less.
const BEFORE: Duration = Duration::from_secs(1);

record! {
    /// A task that is held.
    struct Held {
        task_no: TaskNo,
        nonce: Nonce,
        action_no: i32,
        deadline: Time,
        granted_at: Option<Time>,
        max_run_time: Option<Interval>,
    }
}

static HELD: Statement<(&[TaskNo], &[Nonce]), Held> = Statement::new(
    c"SELECT r.task_no, r.nonce, r.action_no, r.deadline, r.granted_at, r.max_run_time
        FROM taskq.run r WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2)",
);

/// Sleeps for as long as all of the tasks are held, no deadline is near, and the time is not up. What the caller gives to extend is
/// extended before, where that can be done at once for all to see; extending again is for the caller.
pub(super) fn wait(
    pairs: &[(Option<String>, Option<Uuid>)],
    lease: Interval,
    actor_id: &str,
    wait: Interval,
) -> Result<()> {
    let mut waiter = Waiter::new("wait", wait)?.quietly();
    let tokens: Vec<Token> = keeping_no_locks(|| valid(pairs)).into_values().collect();
    if tokens.is_empty() || tokens.len() < pairs.len() {
        return Ok(());
    }
    let channels = tokens.iter().take(MOST_CHANNELS);
    waiter.register(channels.map(|token| wake::settled_channel(token.task_no)).collect());
    let began = clock::now();
    if held_until(&tokens, began)?.is_none() || waiter.time_is_up() {
        return Ok(());
    }
    // In a block nothing is done that the end of the caller's transaction could not undo.
    if !block::begun_by_caller() {
        let deadline = began.plus(lease);
        let order = Order { deadline, tokens: tokens.clone(), actor_id: actor_id.to_owned() };
        errand::send("taskq_extend_main", &order.written());
    }
    loop {
        waiter.before_look();
        let now = clock::now();
        let Some(until) = held_until(&tokens, began)?.filter(|until| *until > now) else { return Ok(()) };
        let look = (tokens.len() > MOST_CHANNELS).then(|| now + LOOK);
        if !waiter.sleep(Next { due: look.into_iter().chain([until]).min(), ..Next::default() }) {
            return Ok(());
        }
    }
}

/// When a call that began then has to come back, as long as all of the tasks are held; `None` if one is not. Holds nothing afterwards.
fn held_until(tokens: &[Token], began: Time) -> Result<Option<Time>> {
    keeping_no_locks(|| {
        tables::hold();
        let pieces = in_pieces(tokens.iter().map(|token| token.pair()));
        let held = pieces.into_iter().flat_map(|(task_nos, nonces)| HELD.query((task_nos, nonces)));
        let held: HashMap<(TaskNo, Nonce), Held> =
            held.map(|held| ((held.task_no, held.nonce), held)).collect();
        rights::check_tasks(Doing::Work, held.keys().map(|(task_no, _)| *task_no))?;
        if tokens.iter().any(|token| !held.contains_key(&token.pair())) {
            return Ok(None);
        }
        Ok(held.values().map(|held| come_back(held, began)).min())
    })
}

/// When a call has to come back for a task: to extend in time, or to say that the time of its try is over.
fn come_back(held: &Held, began: Time) -> Time {
    let last = run::end_of_run_time(held.granted_at, held.max_run_time, held.action_no);
    match held.deadline {
        deadline if last <= deadline => last,
        Time::INFINITY => Time::INFINITY,
        deadline => deadline - BEFORE.min(began.until(deadline) / 4),
    }
}

/// The parameters of the process that extends.
struct Order {
    deadline: Time,
    tokens: Vec<Token>,
    actor_id: String,
}

impl Order {
    /// The deadline, how many tokens, these, and the actor.
    fn written(&self) -> Vec<u8> {
        let tokens = self.tokens.iter().flat_map(|token| [token.task_no.0, token.nonce.0]);
        let numbers = [self.deadline.0, self.tokens.len() as i64].into_iter().chain(tokens);
        numbers.flat_map(i64::to_ne_bytes).chain(self.actor_id.bytes()).collect()
    }

    fn read(bytes: &[u8]) -> Option<Order> {
        let mut numbers = bytes.chunks_exact(size_of::<i64>());
        let mut next = || Some(i64::from_ne_bytes(numbers.next()?.try_into().ok()?));
        let (deadline, count) = (Time(next()?), usize::try_from(next()?).ok()?);
        let mut tokens = Vec::new();
        for _ in 0..count {
            tokens.push(Token { task_no: TaskNo(next()?), nonce: Nonce(next()?) });
        }
        let actor = bytes.get((2 + 2 * count) * size_of::<i64>()..)?;
        Some(Order { deadline, tokens, actor_id: String::from_utf8(actor.to_vec()).ok()? })
    }
}

process::main!(taskq_extend_main, life);

/// The life of the process that extends: a token is good if the row of its task has it, whatever the order says.
fn life(database: pg_sys::Oid) {
    errand::run(database, |bytes| {
        if let Some(Order { deadline, tokens, actor_id }) = Order::read(bytes) {
            more_time(&tokens, deadline, &actor_id, clock::now());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{Nonce, Order, TaskNo, Time, Token};

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let token = |n| Token { task_no: TaskNo(n), nonce: Nonce(-n) };
        for tokens in [vec![], vec![token(1)], vec![token(7), token(i64::MAX)]] {
            let order = Order { deadline: Time(123), tokens, actor_id: "näme".to_owned() };
            let read = Order::read(&order.written()).unwrap();
            assert_eq!((read.deadline, read.actor_id.as_str()), (order.deadline, "näme"));
            assert_eq!(read.tokens.len(), order.tokens.len());
            for (read, written) in read.tokens.iter().zip(&order.tokens) {
                assert_eq!(read.pair(), written.pair());
            }
        }
        assert!(Order::read(&[1, 2, 3]).is_none());
    }
}
