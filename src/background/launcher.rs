//! The launcher: which databases have a worker.

use std::collections::HashMap;
use std::time::Duration;

use pgrx::prelude::*;

use super::{ENTRY, LAUNCHER, WORKER};
use crate::guc;
use crate::pg::board::{self, WorkerSlot, WorkerState};
use crate::pg::clock::{self, Wall};
use crate::pg::process::{self, Started};
use crate::pg::wait_event::Sleep;

/// How soon at the latest the list of databases is read again, while the setting is on, and one is looked after that wanted no worker.
const LOOK: Duration = Duration::from_secs(60);

/// How soon a worker that died after a long life is followed by another; and how late at most if each dies soon, or none could be
/// started.
const FIRST_RESTART_AFTER: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(60);

/// One that has lived so long has not failed at the start.
const ALIVE: Duration = Duration::from_secs(60);

/// What the launcher knows of a database's worker.
struct Known {
    worker: Option<Started>,
    started_at: Wall,
    /// None is started before.
    not_before: Wall,
    /// How long it was put off after the last failure.
    patience: Duration,
    /// Settings were read anew since the worker was started, which may have read them before.
    is_outdated: bool,
}

process::main!(taskq_launcher_main, live);

/// The launcher's life.
fn live(_: pg_sys::Oid) {
    process::connect(None);
    board::launcher_is_here();
    let mut known: HashMap<pg_sys::Oid, Known> = HashMap::new();
    let mut may_complain = true;
    loop {
        crate::pg::latch::reset();
        if process::asked_to_end() {
            // Not 0, which would mean never to start it again.
            process::end(1);
        }
        if process::settings_changed() {
            process::read_settings();
            may_complain = true;
            // Settings of databases are read by the processes that connect to them.
            for one in known.values_mut() {
                one.not_before = Wall::BEGINNING;
                one.is_outdated = true;
            }
            forget_absence(known.keys());
        }
        let mut next = LOOK;
        if guc::background_worker() {
            match process::transaction(c"looking for databases", process::databases) {
                Ok(databases) => {
                    known.retain(|database, _| databases.contains(database));
                    for slot in board::slots_for(&databases) {
                        next = next.min(look_after(slot, &mut known, &mut may_complain));
                    }
                }
                Err(failure) => pgrx::log!("{LAUNCHER}: {}", failure.message),
            }
        }
        process::sleep(next, Sleep::Launcher);
    }
}

/// Databases without the extension, or whose setting was off, are looked at again.
fn forget_absence<'a>(databases: impl Iterator<Item = &'a pg_sys::Oid>) {
    for slot in databases.filter_map(|database| board::slot_of(*database)) {
        if matches!(slot.state(), WorkerState::Absent | WorkerState::Off) {
            slot.set_state(WorkerState::Unknown);
        }
    }
}

/// Starts a worker for the database if it should have one; returns how soon to look again.
fn look_after(
    slot: &WorkerSlot,
    known: &mut HashMap<pg_sys::Oid, Known>,
    may_complain: &mut bool,
) -> Duration {
    let now = clock::wall();
    let database = slot.database();
    let entry = known.entry(database).or_insert(Known {
        worker: None,
        started_at: Wall::BEGINNING,
        not_before: Wall::BEGINNING,
        patience: FIRST_RESTART_AFTER,
        is_outdated: false,
    });
    if entry.worker.as_ref().is_some_and(Started::has_ended) {
        entry.worker = None;
        if slot.state() == WorkerState::Running && !slot.is_occupied() {
            // It has not said so: it died of an error, for instance.
            entry.patience = if entry.started_at.until(now) > ALIVE {
                FIRST_RESTART_AFTER
            } else {
                (entry.patience * 2).min(LATE)
            };
            entry.not_before = now + entry.patience;
            slot.set_state(WorkerState::Ended);
        }
    }
    if entry.worker.is_some() || slot.is_occupied() {
        // Ours, or one that a launcher before this one has started. Its end wakes us.
        return LOOK;
    }
    match slot.state() {
        // The extension may have come since: by a restore, or without any call of a function of it. And a worker that was started
        // before the last reload may have read its setting before that, and say only now that it is switched off.
        WorkerState::Absent | WorkerState::Off => {
            let again = entry.started_at + LOOK;
            if again > now && !entry.is_outdated {
                return process::until(again);
            }
        }
        WorkerState::Unknown | WorkerState::Running | WorkerState::Ended => {}
    }
    let not_before = entry.not_before.max(slot.away_until());
    if not_before > now {
        return process::until(not_before);
    }
    slot.set_state(WorkerState::Running);
    entry.started_at = now;
    entry.is_outdated = false;
    entry.worker = process::start_worker(WORKER, ENTRY, database, true);
    if entry.worker.is_none() {
        slot.set_state(WorkerState::Ended);
        entry.not_before = now + LATE;
        if std::mem::take(may_complain) {
            pgrx::log!("{LAUNCHER}: no worker could be started: max_worker_processes may be too low");
        }
    }
    LOOK
}
