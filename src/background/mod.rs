//! A process that commits, and does what is due: the worker of a database.
//!
//! **On demand.** A call of a function that sleeps is a part of one statement and can commit nothing before that ends. Where it
//! finds something due that it can show to no other session, it [calls](call_if) the worker of its database. That is started as a
//! background process if there is none and one may be started, and leaves soon after there is nothing more to do. For this nothing
//! has to be preloaded.
//!
//! **Kept.** With `shared_preload_libraries = 'taskq'` what time makes necessary is done although no call comes. A launcher,
//! connected to no database, gives each database that has the extension, allows connections and is no template a worker, which
//! stays as a rule: unless `taskq.background_worker` is off there, or the server has no room for one more process. It looks into
//! 128 databases at most.
//!
//! Either way it does what is due, one kind after the other in short transactions, and sleeps until more is due, or
//! for a while.
//!
//! **It hardly delays other sessions.** It holds no lock on a table and no snapshot while it sleeps. Where the library is
//! preloaded, it leaves the database for commands that want that for themselves, DROP DATABASE for instance. DROP EXTENSION waits
//! for the transaction in which it works, and it does not wait for that for long: each transaction begins by holding the extension,
//! and gives up soon if it has to wait.
//!
//! **It works with the rights of the extension's owner**, and is to run no code but that of the extension and the server: see
//! [`trust`].

mod call;
mod launcher;
mod station;
mod trust;
mod worker;

use std::time::Duration;

use pgrx::pg_sys;

use crate::pg::clock;
use crate::pg::session::{check_for_interrupts, nap};
use crate::pg::{board, process, utility};

const LAUNCHER: &str = "taskq launcher";
const WORKER: &str = "taskq worker";

/// The name of the function that is a worker's life.
const ENTRY: &str = "taskq_worker_main";

/// How long the launcher sends no other worker after one that was asked to end.
const AWAY_AFTER_END: Duration = Duration::from_secs(1);

pub(crate) use call::{begin_call, call_if, when_to_look};

/// How many workers of all databases may be at work because calls have sent for them: a quarter of what the server
/// has room for, so that parallel queries, logical replication and other extensions keep theirs; but at least one, and at most
/// eight.
fn most_called() -> u32 {
    (process::most_workers() / 4).clamp(1, 8)
}

/// How long a worker stays away, from then on, from a database that a command wants for itself.
const AWAY: Duration = Duration::from_secs(10);

/// How long that command waits at most for it to go. Postgres waits for another five seconds at most.
const MOST_TIME_TO_LEAVE: Duration = Duration::from_secs(5);

/// To be called when the library is loaded.
pub(crate) fn init() {
    if process::is_server_start() {
        board::request();
        utility::before_exclusive_commands(vacate);
        process::register_launcher(LAUNCHER, "taskq_launcher_main");
    }
}

/// Has the worker leave a database, and waits until it has, for [`MOST_TIME_TO_LEAVE`] at most. If the command fails after that, the
/// launcher sends another.
fn vacate(database: pg_sys::Oid) {
    let Some(slot) = board::slot_of(database) else { return };
    let began = clock::wall();
    slot.stay_away_until(began + AWAY);
    while slot.is_occupied() && began.until(clock::wall()) < MOST_TIME_TO_LEAVE {
        nap(Duration::from_millis(10));
        check_for_interrupts();
    }
}
