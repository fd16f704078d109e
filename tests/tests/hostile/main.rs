//! Whatever a caller gives, the server stays up, nothing is changed by a call that fails, and the error is one that a caller
//! can read: an SQLSTATE of the queue or of PostgreSQL's classes for bad input, never an internal one, a few lines at most.
//!
//! * `functions`: every function, as `pg_proc` knows them, with values that are NULL, empty, huge, negative, infinite, NaN,
//!   multi-dimensional or of another type in each argument, one at a time and by chance several;
//! * `documents`: the JSON that calls take, mutated;
//! * `settings`: what a session may set makes no difference;
//! * `smith`: statements that SQLsmith writes;
//! * `memory`: a session that makes very many calls stays as large as it was.
//!
//! `TASKQ_TEST_SOAK=20` makes what is random that many times as long.

mod call;
mod documents;
mod functions;
mod memory;
mod scene;
mod settings;
mod smith;
mod values;
