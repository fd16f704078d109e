//! The worker of one database.

use std::time::Duration;

use pgrx::prelude::*;

use super::WORKER;
use crate::guc;
use crate::pg::board::{self, WorkerSlot, WorkerState};
use crate::pg::clock::{self, Time};
use crate::pg::process::{self, Failure};
use crate::pg::session::has_silent_commits;
use crate::pg::statement::Statement;
use crate::pg::wait_event::Sleep;
use crate::upkeep::steps::KINDS;

/// How long it pauses at least between two rounds, so that a stream of things that come due does not keep it
/// running.
const PAUSE: Duration = Duration::from_millis(200);

/// How soon it looks again at what is due and could not be done, since somebody else has it.
const AGAIN: Duration = Duration::from_secs(1);

/// The longest pause after errors.
const LONGEST: Duration = Duration::from_secs(60);

/// How long it sleeps at most where transactions can be prepared, since their commit tells nobody.
const PREPARED: Duration = Duration::from_secs(5);

/// Through SQL, for the owner's rights and the search path that come with the functions.
static STEP: Statement<&str, bool> = Statement::new(c"SELECT taskq._upkeep($1)");
static NEXT: Statement<(), Option<Time>> = Statement::new(c"SELECT taskq._next_upkeep()");

/// What it knows of one kind of upkeep.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// After an error it is left alone until then.
    not_before: Time,
    /// How long after the next error.
    patience: Duration,
}

process::main!(taskq_worker_main, live);

/// The worker's life in its database.
fn live(database: pg_sys::Oid) {
    process::connect(Some(database));
    let Some(slot) = board::slot_of(database) else { process::end(0) };
    if !slot.occupy() {
        process::end(0);
    }
    process::at_exit(leave);
    process::be_superuser();
    if !guc::background_worker() {
        end(slot, WorkerState::Off);
    }
    // Whatever is set for the database or for the user is not meant for this session.
    for (name, value) in [
        (c"lock_timeout", c"500ms"),
        (c"statement_timeout", c"0"),
        (c"idle_in_transaction_session_timeout", c"0"),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_isolation", c"read committed"),
        (c"search_path", c"pg_catalog, pg_temp"),
        (c"row_security", c"off"),
        (c"application_name", c"taskq worker"),
    ] {
        process::set(name, value);
    }
    let mut kinds = KINDS.map(|name| Kind { name, not_before: Time::BEGINNING, patience: AGAIN });
    loop {
        slot.begin_look();
        leave_if_wanted(slot);
        for kind in &mut kinds {
            work_off(kind, slot);
        }
        let now = clock::wall();
        let due = next_due(slot, &kinds, now);
        let mut latest = now + guc::maintenance_interval();
        if has_silent_commits() {
            latest = latest.min(now + PREPARED);
        }
        let wakes_at = slot.end_look(due.min(latest));
        process::sleep(process::until(wakes_at), Sleep::Worker);
        pause(slot, now);
    }
}

/// Waits until [`PAUSE`] is over since then, however often it is woken. What it is woken for is seen by the
/// look that follows.
fn pause(slot: &WorkerSlot, since: Time) {
    loop {
        crate::pg::latch::reset();
        leave_if_wanted(slot);
        let over = since + PAUSE;
        if over <= clock::wall() {
            return;
        }
        process::sleep(process::until(over), Sleep::Worker);
    }
}

/// The slot of this process is free again, whatever it died of.
fn leave() {
    if let Some(slot) = board::my_slot() {
        slot.leave();
    }
}

fn end(slot: &WorkerSlot, state: WorkerState) -> ! {
    slot.set_state(state);
    process::end(0)
}

/// Ends the process if it is to go: for a shutdown, for somebody who wants the database for himself, or to
/// come back with new settings.
fn leave_if_wanted(slot: &WorkerSlot) {
    if process::asked_to_end() {
        // That may have been DROP DATABASE … WITH (FORCE).
        slot.stay_away_until(clock::wall() + AGAIN);
        end(slot, WorkerState::Ended);
    }
    if process::settings_changed() || slot.away_until() > clock::wall() {
        end(slot, WorkerState::Ended);
    }
}

/// Does all that is due of one kind, a transaction for each step.
fn work_off(kind: &mut Kind, slot: &WorkerSlot) {
    while kind.not_before <= clock::wall() {
        leave_if_wanted(slot);
        match step(kind.name) {
            Ok(Some(more)) => {
                kind.patience = AGAIN;
                if !more {
                    return;
                }
            }
            Ok(None) => end(slot, WorkerState::Absent),
            Err(failure) => put_off(kind, &failure),
        }
    }
}

/// One step of a kind; whether there is more to do, or `None` if the extension is not there.
fn step(kind: &'static str) -> Result<Option<bool>, Failure> {
    process::transaction(c"taskq upkeep", || {
        process::hold_extension()?;
        STEP.first(kind)
    })
}

fn put_off(kind: &mut Kind, failure: &Failure) {
    kind.not_before = clock::wall() + kind.patience;
    if failure.busy {
        pgrx::debug1!("{WORKER}: {} are put off: {}", kind.name, failure.message);
    } else {
        let seconds = kind.patience.as_secs();
        pgrx::log!("{WORKER}: {} failed, and are tried again in {seconds} s: {}", kind.name, failure.message);
        kind.patience = (kind.patience * 2).min(LONGEST);
    }
}

/// When something will be due.
fn next_due(slot: &WorkerSlot, kinds: &[Kind], now: Time) -> Time {
    let due = process::transaction(c"taskq upkeep", || {
        process::hold_extension()?;
        Some(NEXT.first(()).flatten().unwrap_or(Time::INFINITY))
    });
    let due = match due {
        Ok(Some(due)) => due,
        Ok(None) => end(slot, WorkerState::Absent),
        Err(_) => now,
    };
    // What is due already is in somebody else's hands, or has failed.
    let due = if due <= now { now + AGAIN } else { due };
    kinds.iter().map(|kind| kind.not_before).filter(|time| *time > now).fold(due, Time::min)
}
