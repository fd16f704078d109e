//! A process that commits, and does what is due: the worker of a database. It holds the *post* of its database, so that this has one.
//!
//! **Called.** A call of a function that sleeps is a part of one statement and can commit nothing before that ends. Where it
//! finds something due that it can show to no other session, it [calls](call_if) the worker of its database. That is started as a
//! background process if there is none and one may be started, and leaves soon after there is nothing more to do. For this nothing
//! has to be preloaded.
//!
//! **One that stays.** With `shared_preload_libraries = 'taskq'` the server keeps such a process for each database that
//! `taskq.databases` names. It stays, so what time makes necessary is done although no call comes. It is no other process
//! otherwise: it is woken by commits and calls in the same way.
//!
//! Either does what is due, one kind after the other in short transactions, and sleeps until more is due, or for a while.
//!
//! **It hardly delays other sessions.** It holds no lock on a table and no snapshot while it sleeps. DROP EXTENSION waits
//! for the transaction in which it works, and it does not wait for that for long: each transaction begins by holding the extension,
//! and gives up soon if it has to wait.
//!
//! **It works with the rights of the extension's owner**, and is to run no code but that of the extension and the server: see
//! [`trust`].

mod call;
mod station;
mod trust;
mod worker;

use crate::guc;
use crate::pg::process;

const WORKER: &str = "taskq worker";

/// The name of the function that is a worker's life.
const ENTRY: &str = "taskq_worker_main";

pub(crate) use call::{begin_call, call, call_if, or_by_worker, when_to_look};

/// How many workers of all databases may be at work because calls have sent for them: a quarter of what the server
/// has room for, so that parallel queries, logical replication and other extensions keep theirs; but at least one, and at most
/// eight. Those that stay are none of these.
fn most_called() -> u32 {
    (process::most_workers() / 4).clamp(1, 8)
}

/// To be called when the library is loaded.
pub(crate) fn init() {
    if process::is_preloading() && !process::is_upgrade() {
        for database in guc::databases() {
            process::register(WORKER, ENTRY, &database);
        }
    }
}
