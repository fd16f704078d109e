//! Claims that have to choose: of actions with limits, or with entries that are in lanes or belong there.
//!
//! In rounds: a look at what is next, in the order of all actions together and without locks; then one entry after the
//! other is taken whose limits allow it, until there is no more room; those that another transaction has in hand are
//! passed over. A round that gets nothing is followed by one that looks twice as far: of what others have in hand there
//! may be much. An action or a lane whose limits are used up is out of the following rounds, so that its backlog is
//! not looked through again.
//!
//! An entry takes a slot of *each* limit that it is subject to: its action's, its group's in the action, its
//! group's own. All are locked before it is taken, and none is waited for. Whether those were all, the gates ask
//! again once it is taken.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::call::{Call, Grant};
use super::candidate::{Candidate, Source};
use super::candidates;
use super::reservations::{Full, Reservations, Reserved};
use super::under_way::Claim;
use super::{lanes, sleeper, take, turns};
use crate::flow::actions::Action;
use crate::flow::group_settings;
use crate::number::{Lane, TaskNo};
use crate::pg::session::check_for_interrupts;
use crate::store::slot::{Limit, full_lanes};
use crate::wake;

/// How many entries are looked at first, to be moved into lanes, once one is met that belongs there; twice as many after each round
/// that has met such.
const FIRST_MOVE: usize = 1_000;

/// How many entries a round looks at (but see [`MOST_ASKED`]) and chooses at most: what a caller has room for may be any number,
/// and what is looked at is held in memory.
const MOST_IN_A_ROUND: usize = 10_000;

/// How many a round looks at, at most, where those that the one before has looked at were not to be tried.
const MOST_ASKED: usize = 50_000;

/// Grants what the limits allow, up to what there is room for.
pub(super) fn claim(claim: &mut Claim, actions: &[&Action], grants: &mut Vec<Grant>) {
    let mut sources = sources(actions, &claim.lanes_met());
    let mut reservations = Reservations::default();
    // Entries that were tried without success, with their lanes: turned away, or taken by another call. And those that are not
    // to be tried.
    let mut passed: HashMap<TaskNo, Lane> = HashMap::new();
    // The least number of entries that a round looks at: 0, or, up to a bound, twice as many as the round before where that took none.
    let mut window = 0;
    let mut to_move = FIRST_MOVE;
    move_into_lanes(claim, &mut sources, &mut passed, to_move);
    while grants.len() < claim.call.request.max_tasks
        && !claim.is_over()
        // It asks about each candidate.
        && !claim.call.asked.is_over(true)
        && !sources.is_empty()
    {
        check_for_interrupts();
        let room = (claim.call.request.max_tasks - grants.len()).min(MOST_IN_A_ROUND);
        // A call that has moved enough out of its way takes what is in lanes, and leaves the rest to others.
        let lane_zero = claim.may_move();
        let wanted = window.max(room);
        let mut next = candidates::next(&sources, wanted, &passed, lane_zero);
        if next.is_empty() {
            break;
        }
        passed.extend(not_to_be_tried(&claim.call, &mut next));
        if next.is_empty() {
            window = (2 * wanted).min(MOST_ASKED);
            continue;
        }
        let before = grants.len();
        let round = take(claim, next, room, &sources, &mut reservations, grants);
        if !round.in_vain.is_empty() {
            wake::passed_over();
        }
        passed.extend(round.in_vain);
        claim.sweep();
        close(&mut sources, &round.refused, &reservations);
        let nothing = grants.len() == before;
        if nothing && !claim.may_move() {
            // What is left would be moved by a few in each round. The next call goes on.
            break;
        }
        window = if nothing { (2 * wanted).min(MOST_IN_A_ROUND) } else { 0 };
        if move_into_lanes(claim, &mut sources, &mut passed, to_move) {
            to_move *= 2;
        }
    }
    if !claim.call.request.trial || grants.is_empty() {
        reservations.settle(actions);
    }
}

/// Takes out of the candidates those that the call is not to try, with their lanes.
fn not_to_be_tried(call: &Call, next: &mut Vec<Candidate>) -> Vec<(TaskNo, Lane)> {
    let mut out = Vec::new();
    if sleeper::has_no_id(call) {
        // Slots are locked before entries: entries that another transaction has need none.
        let in_hand = sleeper::in_hand(next.iter().map(|c| c.task_no));
        if !in_hand.is_empty() {
            wake::passed_over();
        }
        out.extend(next.extract_if(.., |c| in_hand.contains(&c.task_no)));
    }
    if call.asked.is_choosy() {
        // Whether such an entry could be held back is not known here: the task says.
        let is_taken = |c: &Candidate| call.takes(c.task_no, c.action_no, c.lane, true);
        out.extend(next.extract_if(.., |c| !is_taken(c)));
    }
    out.into_iter().map(|c| (c.task_no, c.lane)).collect()
}

/// `laned` are actions of which entries were met that belong into lanes.
pub(super) fn sources<'a>(actions: &[&'a Action], laned: &HashSet<i32>) -> Vec<Source<'a>> {
    let laned: HashSet<i32> = actions
        .iter()
        .filter(|a| a.has_lanes() || laned.contains(&a.action_no))
        .map(|a| a.action_no)
        .collect();
    let names = actions.iter().filter(|a| laned.contains(&a.action_no)).map(|a| a.named.name.clone());
    let full = if laned.is_empty() { Vec::new() } else { full_lanes(names) };
    actions
        .iter()
        .map(|action| Source {
            action,
            laned: laned.contains(&action.action_no),
            full: lanes::full_in(action, &full),
            turns: first_number(actions, &action.named.name).unwrap_or(action.action_no),
        })
        .collect()
}

/// The actions come in the order of their numbers.
fn first_number(actions: &[&Action], name: &str) -> Option<i32> {
    actions.iter().find(|action| action.named.name == name).map(|action| action.action_no)
}

/// What a round has not got.
#[derive(Default)]
struct Round {
    /// Entries that were not granted, with their lanes.
    in_vain: Vec<(TaskNo, Lane)>,
    /// Those that were not tried, since their limits do not allow it.
    refused: Vec<(Candidate, Full)>,
}

/// Takes the first of the entries that their limits allow, up to `room`.
fn take(
    claim: &mut Claim,
    next: Vec<Candidate>,
    room: usize,
    sources: &[Source],
    reservations: &mut Reservations,
    grants: &mut Vec<Grant>,
) -> Round {
    let limits = ask(&next, room, sources, reservations);
    let mut round = Round::default();
    let mut chosen: Vec<(Candidate, Reserved)> = Vec::with_capacity(room.min(next.len()));
    let call = &claim.call;
    let taken = take::chosen(call, |try_to_take| {
        for (candidate, limits) in next.into_iter().zip(limits) {
            if chosen.len() == room {
                break;
            }
            let action = source(sources, &candidate).action;
            match reservations.reserve(action, &limits, call) {
                Err(full) => round.refused.push((candidate, full)),
                Ok(reserved) if try_to_take(candidate.task_no, reserved.has_slots()) => {
                    chosen.push((candidate, reserved));
                }
                Ok(reserved) => {
                    reservations.give_back(action, reserved);
                    round.in_vain.push((candidate.task_no, candidate.lane));
                }
            }
        }
    });
    if !claim.call.request.trial {
        for (candidate, _) in &chosen {
            if let Some(turn) = candidate.turn {
                turns::remember(source(sources, candidate).turns, turn);
            }
        }
        wake::taken(taken.iter().map(|g| g.action_no));
    }
    let reserved: HashMap<TaskNo, &Reserved> = chosen.iter().map(|(c, r)| (c.task_no, r)).collect();
    let admitted = claim.admit(taken, &|task_no, limit| reserved.get(&task_no).is_some_and(|r| r.has(limit)));
    let granted: HashSet<TaskNo> = admitted.iter().map(|g| g.task_no).collect();
    grants.extend(admitted);
    for (candidate, reserved) in chosen {
        let action = source(sources, &candidate).action;
        if granted.contains(&candidate.task_no) {
            reservations.keep(action, reserved, candidate.task_no);
        } else {
            reservations.give_back(action, reserved);
            round.in_vain.push((candidate.task_no, candidate.lane));
        }
    }
    reservations.occupy();
    round
}

/// Locks slots of the limits that the entries are subject to, as many as there is room for; the limits of each.
fn ask(
    next: &[Candidate],
    room: usize,
    sources: &[Source],
    reservations: &mut Reservations,
) -> Vec<Vec<Limit>> {
    let groups: HashSet<&String> = next.iter().filter_map(|c| c.group.as_ref()).collect();
    let own = group_settings::limits(groups.into_iter().cloned().collect());
    let limits: Vec<Vec<(Limit, i32)>> =
        next.iter().map(|c| limits(source(sources, c).action, c, &own)).collect();
    let mut wanted: BTreeMap<Limit, (i32, usize)> = BTreeMap::new();
    for (limit, most) in limits.iter().flatten() {
        let entry = wanted.entry(limit.clone()).or_insert((*most, 0));
        entry.1 = (entry.1 + 1).min(room);
    }
    reservations.ask(wanted);
    limits.into_iter().map(|of_one| of_one.into_iter().map(|(limit, _)| limit).collect()).collect()
}

/// The limits that an entry is subject to, and how many each allows.
fn limits(action: &Action, candidate: &Candidate, own: &HashMap<String, i32>) -> Vec<(Limit, i32)> {
    let mut limits = Vec::new();
    if let Some(most) = action.max_concurrency {
        limits.push((Limit::of_action(&action.named.name), most));
    }
    if let Some(group) = &candidate.group {
        if let Some(most) = action.max_per_group {
            limits.push((Limit::per_group(&action.named.name, group), most));
        }
        if let Some(most) = own.get(group) {
            limits.push((Limit::of_group(group), *most));
        }
    }
    limits
}

fn source<'a, 'b>(sources: &'b [Source<'a>], candidate: &Candidate) -> &'b Source<'a> {
    // The candidates are those of the sources.
    let at = sources.iter().position(|s| s.action.action_no == candidate.action_no);
    &sources[at.unwrap_or_default()]
}

/// Takes actions and lanes whose limits are used up out of the following rounds.
fn close(sources: &mut Vec<Source>, refused: &[(Candidate, Full)], reservations: &Reservations) {
    for (candidate, full) in refused {
        let Some(at) = sources.iter().position(|s| s.action.action_no == candidate.action_no) else {
            continue;
        };
        if !reservations.is_used_up(sources[at].action, full) {
            continue;
        }
        let of_action = Limit::of_action(&sources[at].action.named.name);
        if *full == Full::Rate || *full == Full::Slots(of_action) {
            sources.remove(at);
        } else if !sources[at].full.contains(&candidate.lane) {
            sources[at].full.push(candidate.lane);
            if let Full::Slots(limit) = full {
                reservations.note_full(limit);
            }
        }
    }
}

/// If the round has met entries that belong into lanes, moves more of those that come next there, and looks into the
/// lanes from now on.
fn move_into_lanes(
    claim: &mut Claim,
    sources: &mut [Source],
    passed: &mut HashMap<TaskNo, Lane>,
    to_move: usize,
) -> bool {
    if !claim.has_met_lanes() {
        return false;
    }
    let (action_nos, moved) = claim.take_lanes_met();
    for task_no in moved {
        passed.remove(&task_no);
    }
    for (action_no, from) in action_nos {
        let Some(source) = sources.iter_mut().find(|s| s.action.action_no == action_no) else { continue };
        if !source.laned {
            source.laned = true;
            let full = full_lanes([source.action.named.name.clone()].into_iter());
            source.full.extend(lanes::full_in(source.action, &full));
        }
        claim.move_into_lanes(source.action, from, to_move);
    }
    true
}
