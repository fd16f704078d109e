//! The worker of one database.

use std::time::{Duration, Instant};

use super::WORKER;
use super::station::Station;
use super::trust;
use crate::clock as queue_clock;
use crate::guc;
use crate::pg::clock::{self, Time, Wall};
use crate::pg::extension::{self, Held};
use crate::pg::process::{self, Failure};
use crate::pg::search_path;
use crate::pg::session::has_silent_commits;
use crate::pg::wait_event::Sleep;
use crate::store::seal;
use crate::upkeep::steps::{self, Reach};
use crate::upkeep::{Kind, Step};

/// How long after the beginning of a round the next begins at the earliest, unless more is to be done at once: so a stream of things
/// that come due does not keep it running.
const PAUSE: Duration = Duration::from_millis(200);

/// For how long it begins steps of one kind, however much is due, before it looks at the others.
const TURN: Duration = Duration::from_millis(100);

/// How soon it looks again at what is due and could not be done, such as what another transaction has.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The longest pause after errors, and the one where something speaks against the work.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long it sleeps at most where transactions can be prepared, since COMMIT PREPARED wakes no process.
const PREPARED: Duration = Duration::from_secs(5);

/// What it knows of one kind of upkeep.
#[derive(Clone, Copy)]
struct Known {
    kind: Kind,
    /// After an error it is left alone until then.
    not_before: Wall,
    /// How long after the next error.
    patience: Duration,
}

process::main!(taskq_worker_main, live);

/// The worker's life in its database. One that stays is told its name, one that was called its number.
fn live(database: pgrx::pg_sys::Oid) {
    process::connect(database);
    process::begin_session();
    let station = Station::take(database == pgrx::pg_sys::InvalidOid);
    let mut kinds =
        Kind::ALL.map(|kind| Known { kind, not_before: Wall::BEGINNING, patience: LOOK_AGAIN_AFTER });
    // Why nothing is done.
    let mut objection = None;
    loop {
        station.begin_look();
        station.leave_if_wanted();
        let began = clock::wall();
        let (mut due, mut done) = (began + LOOK_AGAIN_AFTER, false);
        match may_work(&station, &mut objection) {
            May::Work => {
                let mut more = false;
                for kind in &mut kinds {
                    let step = work_off(kind, &station);
                    done |= step.done;
                    more |= step.more;
                }
                if done {
                    station.leave_to_others(more);
                }
                if more {
                    continue;
                }
                due = next_due(&kinds, clock::wall());
            }
            May::Soon => {}
            May::Not => due = began + LONGEST_PAUSE,
        }
        let failed = objection.is_some() || kinds.iter().any(|kind| kind.not_before > began);
        let mut latest = began + guc::maintenance_interval();
        if has_silent_commits() {
            latest = latest.min(began + PREPARED);
        }
        station.rest(due.min(latest), done, failed);
        pause(&station, began);
        station.leave_to_others(false);
    }
}

/// Waits until [`PAUSE`] is over since then, however often it is woken. What it is woken for is seen by the
/// look that follows.
fn pause(station: &Station, since: Wall) {
    loop {
        crate::pg::latch::reset();
        station.leave_if_wanted();
        let over = since + PAUSE;
        if over <= clock::wall() {
            return;
        }
        process::sleep(process::until(over), Sleep::Worker);
    }
}

/// Runs `work` in a transaction of its own, with the rights of the extension's owner and no more; `None` if the extension
/// is not there.
///
/// The work is a function of the library: one that is looked up in the catalog by its name is whatever its owner has
/// made of it.
pub(super) fn as_owner<T>(work: impl FnOnce(Held) -> T) -> Result<Option<T>, Failure> {
    process::transaction(c"taskq upkeep", || {
        let held = extension::hold()?;
        held.be_owner();
        let _path = search_path::Call::begin();
        Some(work(held))
    })
}

/// Whether the worker may work.
enum May {
    Work,
    /// Another session has a lock on the extension.
    Soon,
    /// Something speaks against it.
    Not,
}

/// Whether nothing speaks against the work. What does is logged, except a lock that another session has on the
/// extension; not again for as long as it stays the same.
fn may_work(station: &Station, known: &mut Option<String>) -> May {
    if !guc::background_worker() {
        return May::Not;
    }
    let objection = match as_owner(trust::objection) {
        Ok(None) => {
            // The extension is not there. It may come.
            station.leave_if_called();
            return May::Not;
        }
        Ok(Some(objection)) => objection,
        // A command is about to change the extension.
        Err(failure) if failure.busy => return May::Soon,
        Err(failure) => Some(failure.message),
    };
    if let Some(objection) = objection.as_ref().filter(|_| objection != *known) {
        pgrx::log!("{WORKER}: nothing is done in this database: {objection}");
    }
    *known = objection;
    if known.is_none() { May::Work } else { May::Not }
}

/// Does what is due of one kind, a transaction for each step, for as long as the other kinds may wait.
fn work_off(kind: &mut Known, station: &Station) -> Step {
    let mut done = false;
    let (began, reach) = (Instant::now(), Reach::all(seal::SEAL_FOR_OTHERS_AFTER));
    while kind.not_before <= clock::wall() {
        station.leave_if_wanted();
        if done && began.elapsed() >= TURN {
            return Step { done, more: true };
        }
        match as_owner(|_| steps::step(kind.kind, &reach, queue_clock::now())) {
            Ok(Some(step)) => {
                kind.patience = LOOK_AGAIN_AFTER;
                done |= step.done;
                if !step.more {
                    break;
                }
            }
            // The extension has gone; the next look says so.
            Ok(None) => break,
            Err(failure) => put_off(kind, &failure),
        }
    }
    Step { done, more: false }
}

fn put_off(kind: &mut Known, failure: &Failure) {
    kind.not_before = clock::wall() + kind.patience;
    if failure.busy {
        pgrx::debug1!("{WORKER}: {} are put off: {}", kind.kind.name(), failure.message);
    } else {
        let seconds = kind.patience.as_secs();
        pgrx::log!(
            "{WORKER}: {} failed, and are tried again in {seconds} s: {}",
            kind.kind.name(),
            failure.message
        );
        kind.patience = (kind.patience * 2).min(LONGEST_PAUSE);
    }
}

/// When something will be due.
fn next_due(kinds: &[Known], now: Wall) -> Wall {
    let due = match as_owner(|_| steps::next(queue_clock::now())) {
        Ok(Some(due)) => due.map_or(Wall::INFINITY, Time::by_server),
        Ok(None) | Err(_) => now,
    };
    // What is due already is locked by another transaction, or has failed.
    let due = if due <= now { now + LOOK_AGAIN_AFTER } else { due };
    kinds.iter().map(|kind| kind.not_before).filter(|time| *time > now).fold(due, Wall::min)
}
