//! Taking entries: from the order of claiming, which has what is in no lane, or those that were chosen before. This is
//! where tasks are granted, and the only place.
//!
//! **Nothing is locked needlessly.** An entry is taken in the version that the look has seen, or not at all. If another
//! transaction is changing it, the claim skips it; if one has changed it since, the claim does not lock its newest version to
//! find out that it is unsuitable. So a call that takes nothing has no entry locked. Nor has it, except in a
//! race, a transaction id with which it scans on or goes to sleep, which would keep low-water marks and vacuum where they are: PostgreSQL
//! assigns one before it finds the row changed. So the call looks before it tries ([`sleeper`]); a change in the instant between comes too
//! late for that.
//!
//! **A scan goes on where the one before has seen something.** It remembers of a stretch where it has seen the first entry
//! that is grantable in its snapshot; the next scan of the call begins there ([`Ranges::go_on`]). Otherwise, where a scan over many dead
//! entries takes longer than an entry lives, each scan would come too late, and begin anew.
//!
//! **No other transaction has it.** The row is changed by the access method under the lock of its page: of two that try the same
//! version one finds it changed. A row that an insertion only refers to (`FOR KEY SHARE`, to attach an edge) can be taken; see
//! [`Row::update`].

use std::cmp::Reverse;

use pgrx::pg_sys::ItemPointerData;

use super::call::{Call, Grant};
use super::marks::{Ranges, Stretch};
use super::{merge, sleeper};
use crate::guc;
use crate::number::{Lane, Position, TaskNo};
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::row_version::Fate;
use crate::pg::session::check_for_interrupts;
use crate::pg::table::{Change, Key, Row, Scan, look};
use crate::store::{progress, run, task};
use crate::token::Nonce;

/// What was taken by one look.
pub(super) struct Taken {
    /// The tasks that were taken, before the gates are asked.
    pub(super) grants: Vec<Grant>,
    /// There may be more: it has not come to the end, or has met entries that were changed since it looked.
    pub(super) more: bool,
    /// How many pages it has walked over.
    pub(super) pages: u64,
}

/// Takes up to `room` entries of these actions that are in no lane, in their order. The next walk goes on from there.
pub(super) fn in_order(call: &Call, ranges: &mut Ranges, room: usize, depth: usize) -> Taken {
    let mut held = Vec::new();
    let mut seen = SeenFirst::default();
    let (more, pages) = look(|look| {
        let more = look.changing(&run::IN_ORDER, |entries| match ranges.single() {
            true => walk(call, entries, ranges, room, &mut held, &mut seen),
            false => merged(call, entries, ranges, (room, depth), &mut held, &mut seen),
        });
        (more, look.pages())
    });
    for (at, first) in seen.0 {
        ranges.go_on(at, first);
    }
    Taken { grants: grants(call, held), more, pages }
}

/// Of stretches, the first position that a walk has seen as grantable; the end, if it has seen all and nothing is.
#[derive(Default)]
struct SeenFirst(Vec<(usize, Position)>);

impl SeenFirst {
    /// A walk through a stretch has seen this, and has come to its end or not.
    fn note(&mut self, stretch: &Stretch, first: Option<Position>, to_the_end: bool) {
        // Of several priorities the lower ones may have what stands further ahead.
        match first {
            Some(first) if to_the_end || stretch.highest == stretch.lowest => {
                self.0.push((stretch.at, first))
            }
            None if to_the_end => self.0.push((stretch.at, Position::END)),
            _ => {}
        }
    }
}

/// Takes entries by their numbers, as `choose` goes through them: it is given what tries to take one, with slots or
/// without, and returns whether it did. One that another transaction has it does not take.
pub(super) fn chosen(call: &Call, choose: impl FnOnce(&mut dyn FnMut(TaskNo, bool) -> bool)) -> Vec<Grant> {
    let mut held = Vec::new();
    look(|look| {
        look.changing(&run::BY_NUMBER, |entries| {
            choose(&mut |task_no, with_slots| {
                check_for_interrupts();
                let before = held.len();
                entries.start(&[Key::eq(1, task_no)]);
                if let Some(entry) = entries.next().filter(|entry| entry.get(run::GRANTABLE)) {
                    take(call, &entry, with_slots, &mut held);
                }
                held.len() > before
            });
        });
    });
    grants(call, held)
}

/// The entries of one action, stretch by stretch.
fn walk(
    call: &Call,
    entries: &mut Scan,
    ranges: &Ranges,
    room: usize,
    held: &mut Vec<Held>,
    seen: &mut SeenFirst,
) -> bool {
    let mut more = false;
    for stretch in ranges.each() {
        let before = held.len();
        let mut first: Option<Position> = None;
        for keys in keys(&stretch, room) {
            entries.start(&keys);
            while held.len() < room && !call.asked.is_over(!held.is_empty()) {
                let Some(entry) = entries.next() else { break };
                if entry.get(run::GRANTABLE) {
                    let position = entry.get(run::POSITION);
                    first = Some(first.map_or(position, |first| first.min(position)));
                    more |= take(call, &entry, false, held);
                }
            }
            if held.len() == room {
                more = true;
                break;
            }
        }
        if let Some(first) = held.get(before) {
            run::note_reach(stretch.start, first.position);
        }
        let is_over = call.asked.is_over(!held.is_empty());
        seen.note(&stretch, first, held.len() < room && !is_over);
        if held.len() == room || is_over {
            break;
        }
    }
    more
}

/// An entry that was seen, and where.
struct Seen {
    priority: i32,
    position: Position,
    place: ItemPointerData,
}

/// The entries of several actions: the first `depth` of each are merged, and the best of all taken.
fn merged(
    call: &Call,
    entries: &mut Scan,
    ranges: &Ranges,
    (room, depth): (usize, usize),
    held: &mut Vec<Held>,
    firsts: &mut SeenFirst,
) -> bool {
    let mut seen: Vec<Seen> = Vec::new();
    let mut cut = false;
    for of_action in ranges.by_action() {
        check_for_interrupts();
        let until = seen.len() + depth;
        for stretch in of_action {
            if seen.len() == until {
                break;
            }
            let before = seen.len();
            for keys in keys(&stretch, depth) {
                entries.start(&keys);
                while seen.len() < until {
                    let Some(entry) = entries.next() else { break };
                    if entry.get(run::GRANTABLE) {
                        let (priority, position) = (entry.get(run::PRIORITY), entry.get(run::POSITION));
                        seen.push(Seen { priority, position, place: entry.place() });
                    }
                }
            }
            let first = seen[before..].iter().map(|entry| entry.position).min();
            firsts.note(&stretch, first, seen.len() < until);
        }
        cut |= seen.len() == until;
    }
    // What comes behind the first `depth` of one action may have to come before those of another.
    cut |= seen.len() > depth;
    seen.sort_unstable_by_key(|entry| (Reverse(entry.priority), entry.position));
    let mut more = cut;
    for entry in seen.into_iter().take(depth) {
        if held.len() == room {
            return true;
        }
        if let Some(entry) = entries.at(entry.place) {
            more |= take(call, &entry, false, held);
        }
    }
    more
}

/// Of the index [`run::IN_ORDER`]: for each walk through a stretch.
fn keys(stretch: &Stretch, wanted: usize) -> impl Iterator<Item = [Key; 4]> + use<> {
    let Stretch { action_no, highest, lowest, start, .. } = *stretch;
    let whole =
        [Key::eq(1, action_no), Key::at_most(2, highest), Key::at_least(2, lowest), Key::at_least(3, start)];
    let [near, far] = run::in_order(action_no, highest, start, wanted);
    let parts = if highest == lowest { [Some(near), Some(far)] } else { [Some(whole), None] };
    parts.into_iter().flatten()
}

/// An entry that is this call's now.
struct Held {
    task_no: TaskNo,
    action_no: i32,
    priority: i32,
    position: Position,
    lane: Lane,
    tries: i32,
    failures: i32,
    dependencies: i32,
    deadline: Time,
    gated: bool,
    overdue: bool,
}

/// Takes an entry that the look shows as grantable, if no other transaction has it. Returns whether it was changed since the
/// look: a newer version of it may be grantable.
fn take(call: &Call, entry: &Row, with_slots: bool, held: &mut Vec<Held>) -> bool {
    if !call.takes(
        entry.get(run::TASK_NO),
        entry.get(run::ACTION_NO),
        entry.get(run::LANE),
        entry.get(run::GATED),
    ) {
        return false;
    }
    if call.has_expired(entry.get(run::TASK_NO), entry.get(run::TRIES)) {
        return false;
    }
    sleeper::take(call, entry, || attempt(call, entry, with_slots, held)) == Change::Newer
}

fn attempt(call: &Call, entry: &Row, with_slots: bool, held: &mut Vec<Held>) -> Change {
    let (task_no, action_no) = (entry.get(run::TASK_NO), entry.get(run::ACTION_NO));
    if let Some(key_hash) = entry.get(run::KEY_HASH)
        && !(entry.fate() == Fate::Untouched && merge::has_its_key(task_no, action_no, key_hash))
    {
        return Change::Busy;
    }
    let tries = entry.get(run::TRIES) + 1;
    let granted_at = call.time_of_grant();
    let deadline = deadline(call, entry, granted_at);
    let grant = run::Grant {
        nonce: call.base.nonce(task_no),
        tries,
        granted_at,
        deadline,
        actor_id: &call.request.actor_id,
        limited: with_slots,
    };
    let changed = run::grant(entry, &grant);
    if changed == Change::Done {
        held.push(Held {
            task_no,
            action_no,
            priority: entry.get(run::PRIORITY),
            position: entry.get(run::POSITION),
            lane: entry.get(run::LANE),
            tries,
            failures: entry.get(run::FAILURES),
            dependencies: entry.get(run::DEPENDENCIES),
            deadline,
            gated: entry.get(run::GATED),
            overdue: entry.get(run::NONCE) != Nonce::NONE,
        });
    }
    changed
}

/// As the call says, else the task, else its action, else the setting; and no later than a try lasts at most.
fn deadline(call: &Call, entry: &Row, granted_at: Time) -> Time {
    let action = call.action(entry.get(run::ACTION_NO));
    let longest = entry.get(run::MAX_RUN_TIME).or_else(|| action?.max_run_time);
    let deadline = call
        .request
        .lease
        .or_else(|| entry.get(run::LEASE))
        .or_else(|| action?.lease)
        .or_else(|| *call.lease.get_or_init(guc::lease))
        .map_or(Time::INFINITY, |duration| granted_at.plus(duration));
    longest.map_or(deadline, |longest| deadline.min(granted_at.plus(longest)))
}

/// What the worker is given with the entries. Read once they are held: a call that changes a task by name locks its
/// entry first, so what it has written is seen, or comes after us.
fn grants(call: &Call, held: Vec<Held>) -> Vec<Grant> {
    if held.is_empty() {
        return Vec::new();
    }
    let task_nos = || held.iter().map(|h| h.task_no);
    let (checkpoints, tasks) = look(|look| {
        let read = |at: usize, task: &Row| granted(call, &held[at], task);
        (progress::checkpoints(look, task_nos()), task::each(look, task_nos(), read))
    });
    // An entry without a task belongs to none, and stays granted from here on, so that no claim meets it
    // again. `check()` names it.
    let with = |(grant, checkpoint): (Option<Grant>, Option<JsonText>)| Some(Grant { checkpoint, ..grant? });
    tasks.into_iter().zip(checkpoints).filter_map(with).collect()
}

fn granted(call: &Call, h: &Held, task: &Row) -> Grant {
    Grant {
        task_no: h.task_no,
        nonce: call.base.nonce(h.task_no),
        tries: h.tries,
        failures: h.failures,
        deadline: h.deadline,
        priority: h.priority,
        position: h.position,
        id: task.get(task::ID),
        action: call.action(h.action_no).map(|a| a.named.name.clone()).unwrap_or_default(),
        body: task.get(task::BODY),
        metadata: task.get(task::METADATA),
        checkpoint: None,
        results: None,
        steps: None,
        incomplete: false,
        dependencies: h.dependencies,
        gated: h.gated,
        group_id: task.get(task::GROUP_ID),
        workgroup: task.get(task::WORKGROUP),
        merge_key: task.get(task::MERGE_KEY),
        overdue: h.overdue,
        action_no: h.action_no,
        lane: h.lane,
    }
}
