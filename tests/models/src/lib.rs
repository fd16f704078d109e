//! Models of the protocols of taskq that a storm of random calls cannot exhaust.
//!
//! Each is a small copy of what some files of `src` do: a database of a few rows, in which statements, locks and commits
//! are as atomic as PostgreSQL makes them and no more; a few backends; and steps, each of which says for which function of
//! the source it stands. Every interleaving of the steps is tried, up to the bounds that a model states ([`check`]).
//!
//! That a model finds nothing tells something only if it would find something. So each has a list of the *clauses* that
//! the protocol consists of, and is tried without each of them in turn: where a clause is needed the checker has to come
//! up with a schedule that shows what the clause is for. Clauses that can go and nothing is lost have tests of their own.
//! Why they are there is said at the clause, or at the test.
//!
//! * [`marks`]: low-water marks.
//! * [`signals`]: deferred signals, and who counts them.
//! * [`wake`]: sleeping and waking.
//! * [`limits`]: slots, and who has them.
//! * [`suspend`]: tasks that wait in the middle, and that they close no cycle.
//! * [`tender`]: what is due while calls sleep, and the process that does it.
//!
//! `TASKQ_MODELS=long` tries larger bounds. Two tests are ignored unless asked for, since they take long.

pub mod check;
pub mod limits;
pub mod marks;
pub mod signals;
pub mod suspend;
pub mod tender;
pub mod wake;
