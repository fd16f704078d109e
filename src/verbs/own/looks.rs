//! Looking for tasks, once, or again and again with sleep in between.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::leave::leave;
use crate::allowance::Allowance;
use crate::claim::left_out::LeftOut;
use crate::claim::marks;
use crate::claim::{self, Grant, Moved, Request, claim};
use crate::clock;
use crate::error::Result;
use crate::flow::actions::{self, Action};
use crate::pg::block::in_transaction_block;
use crate::pg::board;
use crate::pg::clock::{Time, wall};
use crate::pg::subtransaction;
use crate::settle::commit;
use crate::store::{tables, touched};
use crate::upkeep::{self, Claimant, Due, Upkeep, elapsed};
use crate::verbs::wait::Waiter;
use crate::wake::{self, lately};

/// What a look has come to.
pub(super) struct Look {
    pub(super) grants: Vec<Grant>,
    pub(super) upkeep: Upkeep,
    pub(super) actions: Vec<Action>,
    /// It has counted signals, perhaps for others only.
    counted_for_others: bool,
    /// If nothing has come of it: when there will be something to do.
    due: Option<Time>,
}

impl Look {
    pub(super) fn of(actions: Vec<Action>) -> Self {
        Look { grants: Vec::new(), upkeep: Upkeep::default(), actions, counted_for_others: false, due: None }
    }

    /// Something is due, and no other session sees what this call does of it as long as it sleeps.
    fn is_owed(&self) -> bool {
        self.upkeep.tried || self.upkeep.expired
    }

    pub(super) fn action_nos(&self) -> Vec<i32> {
        self.actions.iter().map(|a| a.action_no).collect()
    }
}

/// Looks, and looks again after each sleep, until there is something to return or the time is up. Also
/// tells what the last look has left to the end of the call.
pub(super) fn look_until(request: &Request, waiter: &mut Option<Waiter>) -> Result<(Vec<Grant>, Upkeep)> {
    let mut looks = Looks { again: WARY.get(), ..Looks::default() };
    elapsed::begin_call();
    loop {
        let mut found = match waiter {
            Some(waiter) => looks.without_trace(request, waiter),
            None => look(request, None, &mut LeftOut::default(), false, None),
        };
        let over = !found.grants.is_empty() || request.max_tasks == 0;
        if let Some(waiter) = waiter.as_mut().filter(|_| found.counted_for_others) {
            waiter.leaves_signals();
        }
        if waiter.as_mut().is_some_and(|waiter| !over && waiter.sleep(found.due, found.is_owed())) {
            continue;
        }
        if waiter.is_some() {
            WARY.set(looks.owing);
            if !over && looks.owing {
                // The time is up, and nothing that is changed now is held back.
                found = look(request, None, &mut LeftOut::default(), false, None);
            }
        }
        leave(&found, waiter, request.max_tasks);
        return Ok((found.grants, found.upkeep));
    }
}

thread_local! {
    /// The last call that waited has met entries that may not run. The next one reads before it takes from the beginning:
    /// where such entries keep coming, a call would meet some with its first look, and sleep with a transaction id.
    static WARY: Cell<bool> = const { Cell::new(false) };
}

/// The looks of a call that may go to sleep: what comes to nothing leaves no trace.
///
/// What such a look has moved out of the way, or looked after, others could not see before the call ends, nor change: a
/// resume of a group would wait for the sleeper. So it is rolled back, and whoever has a use for it does it himself: he
/// knows as well when it is due. Entries that may not run are left out of the looks that follow, so that they are not met
/// again ([`LeftOut`]). What is owed to others is done by the last look, when the time is up.
#[derive(Default)]
struct Looks {
    left_out: LeftOut,
    /// The call has looked before, or knows that it may be in vain.
    again: bool,
    /// A look was rolled back, or has left something out.
    owing: bool,
    /// The last one that has changed something in vain.
    vain: Option<Vain>,
}

/// What a look has done in vain it would do again, and so would all that sleep with it, each in the others' way: so the call rests, for
/// some time and in proportion to what that has taken, from going through everything, and from deadlines up to then.
#[derive(Clone, Copy)]
struct Vain {
    deadline: Option<Time>,
    until: Instant,
}

const LEAST_REST: Duration = Duration::from_secs(1);

/// How soon a look goes on that was cut short, or comes again for what others were faster to take.
const SOON: Duration = Duration::from_millis(100);
const REST: u32 = 9;

impl Vain {
    fn after(look: &Look, took: Duration) -> Self {
        let deadline = look.upkeep.looked_at.filter(|_| look.upkeep.changed);
        Vain { deadline, until: Instant::now() + (REST * took).max(LEAST_REST) }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

impl Looks {
    /// A look that takes no lock and no transaction id where there is nothing for it, but for the first. That is the
    /// one of calls that find something at once.
    ///
    /// If nothing comes of it, it is rolled back, and so nobody sleeps on a lock. A statement with SKIP LOCKED may lock
    /// a row and then leave it out: if another session has changed the row since the statement's snapshot (granted the
    /// task, say) and committed, its newest version is locked first and found unsuitable then. The lock stays. Asleep
    /// with it, we would make the return of that task wait for the end of our sleep; the end of the subtransaction
    /// gives it up. So it does with slots that were locked for entries which others took: those who are woken for the
    /// slots would find none. And so it does with the tables, which a VACUUM FULL or an upgrade may want for itself.
    fn without_trace(&mut self, request: &Request, waiter: &mut Waiter) -> Look {
        waiter.before_look();
        self.vain = self.vain.filter(|vain| !vain.left().is_zero());
        let (resting, began) = (self.vain, Instant::now());
        let reading = std::mem::replace(&mut self.again, true);
        let mut found = self.attempt(request, waiter, reading);
        if found.grants.is_empty() && (found.upkeep.moved || found.upkeep.more) && !waiter.time_is_up() {
            // It may have ended for all that is in its way. What comes behind that?
            found = self.attempt(request, waiter, true);
        }
        self.owing |= !self.left_out.is_empty();
        if found.grants.is_empty() && (resting.is_some() || found.upkeep.changed) {
            // What keeps it back is not there for whoever ends that to see, since it is undone.
            wake::passed_over();
            waiter.was_in_vain();
        }
        match resting {
            // Something has woken it meanwhile that may need what it rests from.
            Some(vain) => found.due = found.due.into_iter().chain([clock::now() + vain.left()]).min(),
            None if found.upkeep.changed || found.upkeep.moved => {
                self.vain = Some(Vain::after(&found, began.elapsed()));
            }
            None => {}
        }
        found
    }

    fn attempt(&mut self, request: &Request, waiter: &mut Waiter, reading: bool) -> Look {
        let (left_out, vain) = (&mut self.left_out, self.vain);
        let looked = subtransaction::all_or_nothing(|| {
            tables::hold();
            let look = look(request, Some(waiter), left_out, reading, vain);
            if look.grants.is_empty() { Err(Box::new(look)) } else { Ok(look) }
        });
        if let Ok(look) = &looked {
            claim::keep(&look.grants);
        }
        looked.unwrap_or_else(|look| {
            let mut look = *look;
            self.owing |= look.upkeep.changed || look.upkeep.moved || look.upkeep.left;
            if look.upkeep.untold {
                wake::undone(&look.action_nos());
            }
            if let Some(grants) = after_a_rollback(request, &self.left_out) {
                look.grants = grants;
            }
            look
        })
    }
}

/// Signals that came while the look had their counters locked were left to it. If what they free can be owned, that is
/// what the call comes back with; else they stay for whoever calls next, and the background worker is told.
fn after_a_rollback(request: &Request, left_out: &LeftOut) -> Option<Vec<Grant>> {
    if !touched::has_touched() {
        return None;
    }
    let looked = subtransaction::all_or_nothing(|| {
        if !commit::look_now() {
            return Err(false);
        }
        let mut grants = Vec::new();
        // What was freed may be the first entry in a lane.
        let actions = actions::for_claim(&request.actions);
        claim(request, &actions, clock::now(), left_out, &mut grants);
        if grants.is_empty() { Err(true) } else { Ok(grants) }
    });
    match &looked {
        Ok(grants) => claim::keep(grants),
        Err(true) => board::tell(wall()),
        Err(false) => {}
    }
    looked.ok()
}

/// One look: upkeep, then the claim, and again while upkeep may have left something due behind. `reading`: only if there
/// is something for it, as far as can be told without a lock.
fn look(
    request: &Request,
    waiter: Option<&mut Waiter>,
    left_out: &mut LeftOut,
    reading: bool,
    vain: Option<Vain>,
) -> Look {
    let mut look = Look::of(actions::for_claim(&request.actions));
    let action_nos = look.action_nos();
    let waiting = waiter.is_some();
    let news = waiter.as_ref().map_or_else(Instant::now, |waiter| waiter.news());
    // The last look has to have its part of the caller's time-out.
    let most = Allowance::half_of_time_out();
    let until = waiter.as_ref().and_then(|waiter| waiter.until()).into_iter().chain(most.until()).min();
    let care = match &waiter {
        None => Care::Once,
        Some(_) if !reading || vain.is_some() => Care::Brief { in_vain: vain.and_then(|vain| vain.deadline) },
        Some(_) => Care::Thorough { until },
    };
    if let Some(waiter) = waiter {
        waiter.register(wake::channels_for_work(&request.actions, &action_nos));
    }
    let now = clock::now();
    let mut worth_it = true;
    if reading {
        let due = upkeep::look(&action_nos, now);
        look.upkeep.expired = due.expired;
        worth_it = left_out.walk(&open(&look.actions), now, until) || due.any();
    }
    if worth_it {
        attempt(request, &mut look, &action_nos, left_out, care, None);
        // What has ended by this look, the performance that had a merge key for instance, may have been what kept back some
        // that are left out.
        let may_be_free = look.grants.is_empty() && look.upkeep.changed && !left_out.is_empty();
        if may_be_free && left_out.walk(&open(&look.actions), clock::now(), until) {
            let claimed =
                claim_through(request, &look.actions, clock::now(), left_out, care, &mut look.grants);
            look.upkeep.note(claimed);
        }
    }
    if waiting && look.grants.is_empty() {
        let rates = actions::next_grant(&look.actions, clock::now());
        // What was due was looked at in vain: whoever has a use for it commits it. What somebody has in hand is looked at
        // again.
        let Upkeep { changed, stale, left, .. } = look.upkeep;
        let looked_at = look.upkeep.looked_at.filter(|_| changed || stale || left).or(care.in_vain());
        let overdue = look.upkeep.busy.then(clock::now);
        let rest = (look.upkeep.cut || look.upkeep.outrun).then(|| clock::now() + SOON);
        // Who is called may be needed for what has been passed by before.
        let walked = look.upkeep.walked.filter(|walked| walked.since < news);
        let anew =
            walked.map(|walked| clock::now() + walked.until().saturating_duration_since(Instant::now()));
        let due = upkeep::next_due(&action_nos, looked_at);
        let soon = overdue.into_iter().chain(rest).chain(anew).chain(rates);
        look.due = due.into_iter().chain(soon).chain(left_out.until()).min();
        if left_out.is_empty() && !look.upkeep.moved {
            upkeep::note_passed_over(&look.actions);
        }
    }
    look
}

fn open(actions: &[Action]) -> Vec<&Action> {
    actions.iter().filter(|a| !a.paused).collect()
}

/// How much a look does for what may stand behind all that is in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// A part of it: it stays done, and the next call goes on from there.
    Once,
    /// A part of it, of a call that may go to sleep: it is undone if nothing comes of it. Deadlines up to this one have been looked
    /// after in vain.
    Brief { in_vain: Option<Time> },
    /// All of it, as long as the call may: what is undone the next look would do anew, and come no further. What may not run is left
    /// out.
    Thorough { until: Option<Instant> },
}

impl Care {
    fn in_vain(self) -> Option<Time> {
        match self {
            Care::Brief { in_vain } => in_vain,
            _ => None,
        }
    }

    fn goes_on(self) -> bool {
        matches!(self, Care::Thorough { until } if until.is_none_or(|until| Instant::now() < until))
    }
}

/// Claims; with care until something comes of it, or nothing is left. What it has done besides.
fn claim_through(
    request: &Request,
    actions: &[Action],
    now: Time,
    left_out: &LeftOut,
    care: Care,
    grants: &mut Vec<Grant>,
) -> Moved {
    let mut any = false;
    loop {
        let moved = claim(request, actions, now, left_out, grants);
        any |= moved.any;
        if !moved.cut || !grants.is_empty() || !care.goes_on() {
            return Moved { any, ..moved };
        }
    }
}

/// How many steps of upkeep of which nothing has come for a call it makes. There may be any number of tasks that are due, and
/// may not run; a call that is cut off by its caller's time-out has done nothing. The next one goes on from there.
const MOST_IN_VAIN: usize = 5;

/// How often a call counts signals that nobody had counted, for something of its own behind those of others.
const MOST_ROUNDS: usize = 25;

/// What is due, then the claim, as one look has it. `looked`: what is due was looked for before.
pub(super) fn attempt(
    request: &Request,
    look: &mut Look,
    action_nos: &[i32],
    left_out: &LeftOut,
    care: Care,
    mut looked: Option<Due>,
) {
    let waiting = care != Care::Once;
    let Look { grants, upkeep: total, actions, counted_for_others, .. } = look;
    // What upkeep has made, a run of a schedule for instance, may be the first task of its action, and what it has made
    // ready the first entry in a lane: it has its place in the order of what is granted.
    let look_anew = |actions: &mut Vec<Action>| *actions = actions::for_claim(&request.actions);
    let claim_through = |actions: &[Action], now: Time, grants: &mut Vec<Grant>| {
        claim_through(request, actions, now, left_out, care, grants)
    };
    let may_do_without =
        request.max_tasks > 0 && looked.is_none() && !actions.iter().any(Action::is_chosen_from);
    // What this call has granted may be for less time than the call takes: it must not end such a try, and grant the task
    // to the same caller once more. So once it has granted something, it looks after deadlines before that moment only.
    let mut first_grant = None;
    if may_do_without && lately::nothing_was_due(action_nos) {
        marks::without_look();
        let now = clock::now();
        total.note(claim_through(actions, now, grants));
        first_grant = (!grants.is_empty()).then_some(now);
        if grants.len() >= request.max_tasks {
            grants.sort_by_key(|g| (std::cmp::Reverse(g.priority), g.position));
            return;
        }
    }
    let mut in_vain = 0;
    let time = Allowance::half_of_time_out();
    loop {
        let now = clock::now();
        let had = grants.len();
        let room = request.max_tasks - had;
        let due = first_grant.map_or(now, |at| at - Duration::from_micros(1));
        let claimant =
            Claimant { action_nos, names: &request.actions, room, waiting, in_vain: care.in_vain() };
        let upkeep = upkeep::before_claim(claimant, looked.take(), due);
        total.go_on_with(upkeep);
        if upkeep.changed {
            look_anew(actions);
        }
        total.note(claim_through(actions, now, grants));
        in_vain += usize::from(grants.len() == had);
        if grants.len() >= request.max_tasks || !upkeep.more {
            break;
        }
        if in_vain >= MOST_IN_VAIN && (in_transaction_block() || !care.goes_on()) {
            break;
        }
        if time.is_used_up() {
            break;
        }
        first_grant = first_grant.or((!grants.is_empty()).then_some(now));
    }
    // What a waiting call counts for others it undoes, if it has no use for it, and does again at its end.
    let signals = total.signals;
    let counts = || match waiting {
        true => signals && upkeep::fold_due(clock::now()),
        false => upkeep::fold(clock::now()),
    };
    // What a transaction that may stay open counts, others have to leave to it.
    let rounds = if waiting || in_transaction_block() { 1 } else { MOST_ROUNDS };
    for _ in 0..rounds {
        if grants.len() >= request.max_tasks || !counts() {
            break;
        }
        *counted_for_others = true;
        // Signals that nobody had counted: what they have freed may be ours.
        total.changed = true;
        look_anew(actions);
        total.note(claim_through(actions, clock::now(), grants));
    }
    grants.sort_by_key(|g| (std::cmp::Reverse(g.priority), g.position));
}
