//! The table: small queues, and the operations that touch the same rows of each. Pairs of operations of a scene are tried: in the long
//! form each pair, at READ COMMITTED in every order.
//!
//! In a statement `@` begins the name of whatever belongs to the run (so that no run meets another one's names), and
//! `#p` is the token for the task `@p`: that of the session itself if it was granted the task, else that of the scene.

/// A claim of so many tasks of an action, with a lease or without.
macro_rules! own {
    ($most:literal, $action:literal) => {
        concat!(
            "SELECT task_id, token, num_tries, num_failures FROM taskq.own_tasks('worker', ",
            $most,
            ", '{",
            $action,
            "}')"
        )
    };
    ($most:literal, $action:literal, $lease:literal) => {
        concat!(
            "SELECT task_id, token, num_tries, num_failures FROM taskq.own_tasks('worker', ",
            $most,
            ", '{",
            $action,
            "}', '",
            $lease,
            "')"
        )
    };
}

mod flow;
mod graph;
mod keys;
mod work;

/// A call.
#[derive(Clone, Copy)]
pub struct Op {
    pub name: &'static str,
    pub sql: &'static str,
    pub kind: Kind,
    /// What the call may do instead of all that it could do alone, because another call is beside it whose work it does
    /// not see or passes over. An empty text is doing nothing, and no row.
    pub passing_over: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Names its tasks, and waits for the transaction that is in its way.
    Names,
    /// Waits for no other.
    Claims,
    /// Chooses tasks by a filter, once: by what was committed when it began. What others bring in meanwhile it misses, as an
    /// UPDATE with a condition would; so beside others no serial order need give the same.
    Chooses,
    /// Answers how many there were, by what was committed when it looked: what others have in hand is among them, or is not.
    /// What it does is that of a serial order.
    Counts,
}

/// A small queue, and what is done to it.
pub struct Scene {
    pub name: &'static str,
    pub setup: &'static [&'static str],
    pub ops: Vec<Op>,
    pub rules: Rules,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq)]
pub enum Rules {
    Serial,
    /// There is something that upkeep has to do, whichever call does it: it is done before the state is compared. How
    /// much of it a claim does before it looks is bounded, and what others have locked it passes over for what comes
    /// next: so beside others it may have done more of it than alone, whether it gets anything or not.
    Upkeep,
    /// What rides on a task that is granted depends on what others have locked at that moment: where another call was
    /// beside a claim no serial order need give the same.
    Riders,
}

const fn op(name: &'static str, sql: &'static str) -> Op {
    Op { name, sql, kind: Kind::Names, passing_over: &[] }
}

/// With dependencies that are left out where the other task does not exist, or is not committed yet: what it does then.
const fn ignoring(name: &'static str, sql: &'static str, without: &'static [&'static str]) -> Op {
    Op { name, sql, kind: Kind::Names, passing_over: without }
}

const fn claim(name: &'static str, sql: &'static str) -> Op {
    Op { name, sql, kind: Kind::Claims, passing_over: &[""] }
}

/// A return, which waits, and then a claim; and the return alone.
const fn returning(name: &'static str, sql: &'static str, alone: &'static [&'static str]) -> Op {
    Op { name, sql, kind: Kind::Claims, passing_over: alone }
}

const fn counting(name: &'static str, sql: &'static str) -> Op {
    Op { name, sql, kind: Kind::Counts, passing_over: &[] }
}

/// Upkeep, which answers the same whether it had something to do or not.
const fn upkeep() -> Op {
    let (name, sql) = ("maintain", "SELECT 1 FROM taskq.maintain()");
    Op { name, sql, kind: Kind::Claims, passing_over: &["SELECT 1"] }
}

/// A claim, and what it may do instead of that beside others, doing nothing being one of it.
const fn claiming(name: &'static str, sql: &'static str, instead: &'static [&'static str]) -> Op {
    Op { name, sql, kind: Kind::Claims, passing_over: instead }
}

const fn choosing(name: &'static str, sql: &'static str) -> Op {
    Op { name, sql, kind: Kind::Chooses, passing_over: &[] }
}

/// All scenes.
pub fn all() -> Vec<Scene> {
    [work::scenes(), graph::scenes(), keys::scenes(), flow::scenes()].into_iter().flatten().collect()
}
